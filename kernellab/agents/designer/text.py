"""Numbers, operators and names as sketch text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernellab.agents.designer.expr import Axis
from kernellab.agents.designer.extents import Extent
from kernellab.sketch.program import DType

INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6), "mod": ("%", 6),
    "lt": ("<", 3), "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "eq": ("==", 3), "ne": ("!=", 3),
}  # fmt: skip
ATOM = 10
#: torch's name of a dtype -> the sketch's
DTYPES = {d.torch_name: d.value for d in DType}
#: what a value is called, by the operation that makes it
TITLES = {
    "exp": "exps", "sub": "shifted", "mul": "product", "add": "added", "div": "ratio", "rsqrt": "scale",
    "sqrt": "root", "log": "logs", "where": "chosen", "max": "larger", "min": "smaller", "cast": "converted",
    "abs": "size", "sum": "total", "prod": "product", "any": "some", "argmax": "at", "argmin": "at",
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A value as text: its tile axes in order, and how tightly it binds."""

    text: str
    axes: tuple[Axis, ...] = ()
    binds: int = ATOM

    def wrap(self, level: int) -> str:
        return self.text if self.binds >= level else f"({self.text})"


def item_bytes(dtype: str) -> int:
    """Bytes of one element of torch's ``dtype``."""
    return DType(DTYPES[dtype]).bytes


def number(value: float | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return "(inf - inf)"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return repr(value)
    return str(value)


def infix(op: str, left: Text, right: Text) -> tuple[str, int]:
    symbol, level = INFIX[op]
    # comparisons do not chain, and the right operand of - / // % must not regroup
    return f"{left.wrap(level + (level == 3))} {symbol} {right.wrap(level + 1)}", level


def plus(a: str, b: Extent) -> str:
    """``a + b`` for positions, with what adds nothing left out."""
    if b == 0:
        return a
    if a == "0":
        return str(b)
    return f"{a} - {str(b)[1:]}" if str(b).startswith("-") else f"{a} + {b}"


class Names:
    """Hands out names that are free."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def fresh(self, wanted: str) -> str:
        name, k = wanted, 2
        while name in self.taken:
            name, k = f"{wanted}{k}", k + 1
        self.taken.add(name)
        return name
