"""Numbers, operators and names as sketch text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernellab.agents.designer.expr import Axis
from kernellab.agents.designer.extents import Extent

INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6), "mod": ("%", 6),
    "lt": ("<", 3), "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "eq": ("==", 3), "ne": ("!=", 3),
}  # fmt: skip
ATOM = 10
DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "bool": "bool",
}  # fmt: skip
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
