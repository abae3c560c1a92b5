"""Parts of the functions of an asynchronous kernel: lines, descriptors, layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernellab.lowering.gluon.boxes import Box
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.text import names_used
from kernellab.sketch.program.ints import IntExpr

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
    """Layouts of tiles in registers: of products' results by their columns; vectors along rows have a slice of one."""

    def __init__(self, rows: IntExpr, home: IntExpr) -> None:
        self._rows, self.home = rows, home
        self.columns: dict[str, str] = {}
        #: the layout of the tile that the current statement computes
        self.now = ""
        self.vector = f"gl.SliceLayout(1, {self.name(home)})"

    def name(self, columns: IntExpr) -> str:
        text = tidy(str(columns))
        return self.columns.setdefault(
            text, f"LAYOUT_{text if text.isidentifier() or text.isdigit() else len(self.columns)}"
        )

    def is_rows(self, shape: Sequence[IntExpr]) -> bool:
        return len(shape) > 0 and shape[0] == self._rows

    def of(self, shape: tuple[IntExpr, ...]) -> str:
        if len(shape) == 2 and self.is_rows(shape) and not shape[1].is_one:
            return self.name(shape[1])
        return self.vector if len(shape) == 1 and self.is_rows(shape) else ""

    def for_new_axes(self, code: str, shape: tuple[IntExpr, ...], axes: tuple[int, ...]) -> str:
        wanted = f"gl.SliceLayout(1, {self.now})" if self.now else ""
        if axes == (1,) and len(shape) == 1 and self.is_rows(shape) and wanted not in ("", self.vector):
            return f"gl.convert_layout({code}, {wanted})"
        return code if code.isidentifier() else f"({code})"


__all__ = ["Function", "Layouts", "Line", "Source"]
