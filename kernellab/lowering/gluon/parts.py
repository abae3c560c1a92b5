"""Parts of the functions of an asynchronous kernel: lines, descriptors, layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernellab.lowering.gluon.boxes import Box
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.text import names_used
from kernellab.sketch.program.ints import IntExpr

#: a line of Gluon, and the sketch's line that it is from (0: none)
Line = tuple[str, int]


@dataclass(frozen=True)
class Function:
    """A generated function: its parameters in order, documentation and lines."""

    name: str
    doc: str
    lines: list[Line]
    parameters: list[str] = field(default_factory=list)

    def used(self) -> frozenset[str]:
        return names_used(self.lines)


@dataclass(frozen=True)
class Source:
    """A region that the copy engine reads or writes: the descriptor's name, and the box."""

    name: str
    tensor: str
    box: Box


class Layouts:
    """Layouts of tiles in registers.

    A product's result has the layout of its number of columns, ``LAYOUT_64``; a vector with one number for each row has
    a slice of the first product's. ``result_columns``: the columns of the first product.
    """

    def __init__(self, rows: IntExpr, result_columns: IntExpr) -> None:
        self._rows, self._result_columns = rows, result_columns
        #: names of layouts by the text of their columns
        self.columns: dict[str, str] = {}
        self.vector = f"gl.SliceLayout(1, {self.of_result()})"
        self._current = ""

    @contextmanager
    def computing(self, layout: str) -> Iterator[None]:
        """Within, values are computed for a tile of ``layout``; "": none that is known."""
        self._current = layout
        yield
        self._current = ""

    def of_columns(self, columns: IntExpr) -> str:
        text = tidy(str(columns))
        return self.columns.setdefault(
            text, f"LAYOUT_{text if text.isidentifier() or text.isdigit() else len(self.columns)}"
        )

    def of_result(self) -> str:
        """Return the layout of the first product's result."""
        return self.of_columns(self._result_columns)

    def of_tile(self, shape: tuple[IntExpr, ...]) -> str:
        """Return the layout of a matrix; of a tile of other dimensions the first product's."""
        return self.of(shape) if len(shape) == 2 else self.of_result()

    def is_rows(self, shape: Sequence[IntExpr]) -> bool:
        return len(shape) > 0 and shape[0] == self._rows

    def of(self, shape: tuple[IntExpr, ...]) -> str:
        """Return the layout of a matrix or vector with the products' rows; "" for any other shape."""
        if len(shape) == 2 and self.is_rows(shape) and not shape[1].is_one:
            return self.of_columns(shape[1])
        return self.vector if len(shape) == 1 and self.is_rows(shape) else ""

    def for_new_axes(self, code: str, shape: tuple[IntExpr, ...], axes: tuple[int, ...]) -> str:
        """Return ``code`` of ``shape`` in the layout that it needs before it gets the new ``axes``."""
        needed = f"gl.SliceLayout(1, {self._current})" if self._current else ""
        if axes == (1,) and len(shape) == 1 and self.is_rows(shape) and needed not in ("", self.vector):
            return f"gl.convert_layout({code}, {needed})"
        return code if code.isidentifier() else f"({code})"


__all__ = ["Function", "Layouts", "Line", "Source"]
