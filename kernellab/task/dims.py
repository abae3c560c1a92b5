"""Dynamic extents: what a Dim is, and the value of an extent that names Dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Union

from kernellab.errors import TaskError
from kernellab.task.formula import read

#: one extent of a shape: a number, or an expression over Dim names in Python's ``+ - * //``
Extent = Union[int, str]


class TaskForm(str, Enum):
    NATIVE = "native"
    KERNELBENCH = "kernelbench"


@dataclass(frozen=True)
class Dim:
    """A dynamic extent in elements, drawn from ``min`` to ``max`` (both included); ``name`` is a keyword of ``inputs``.

    >>> Dim("N", 1, 4096)
    Dim(name='N', min=1, max=4096)

    Raises:
        TaskError: ``name`` is no identifier, or the range is empty.
    """

    name: str
    min: int = 1
    max: int = 65536

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise TaskError(f"Dim({self.name!r}) needs a name that is an identifier.", 'Write Dim("M", 1, 4096).')
        if not 0 <= self.min <= self.max:
            raise TaskError(
                f"Dim {self.name} has the range {self.min} to {self.max}, which is empty.",
                f'Write Dim("{self.name}", smallest, largest) with 0 <= smallest <= largest.',
            )


def extent(expr: Extent, sizes: Mapping[str, int]) -> int:
    """Return the value of one extent under ``sizes``. Raises KeyError for a Dim that ``sizes`` does not have."""
    formula = read(expr)
    return formula if isinstance(formula, int) else int(formula.value(sizes))
