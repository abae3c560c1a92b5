"""Numbers, operators and names as sketch text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernellab.designer.ir.expr import Axis
from kernellab.designer.ir.extents import Extent

INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6), "mod": ("%", 6),
    "lt": ("<", 3), "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "eq": ("==", 3), "ne": ("!=", 3),
}  # fmt: skip
ATOM = 10
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


def filled(shape: Sequence[str], value: str, dtype: str) -> str:
    """A tile of ``shape`` with one value; a scalar where it has no extent."""
    return f"full([{', '.join(shape)}], {value}, {dtype})" if shape else f"cast({value}, {dtype})"


def accumulator(name: str, shape: str, dtype: str) -> str:
    """The statement that makes a tile of sums of products, which starts at 0."""
    return f'{name} = alloc({shape}, {dtype}, llm_hint=["fastest", "accumulator", "init_zero"])'


def joined(kind: str, name: str, value: Text) -> str:
    """The running result ``name`` of a reduction with one more value."""
    if kind == "sum":
        return f"{name} + {value.wrap(6)}"
    if kind == "prod":
        return f"{name} * {value.wrap(7)}"
    return f"{kind}({name}, {value.text})"


def compute_dtype(dtype: str) -> str:
    """The dtype in which values of ``dtype`` are compared and added."""
    return dtype if dtype in ("float64", "int64", "int32") else "float32"


def combined(terms: Iterable[tuple[str, int]]) -> str:
    """``a*x + b*y - c`` of (name, factor), without what adds nothing; numbers fold."""
    constant, text = 0, ""
    for name, factor in terms:
        if not name or not factor or name == "0":
            continue
        if name.isdigit():
            constant += int(name) * factor
            continue
        part = name if abs(factor) == 1 else f"{name}*{abs(factor)}"
        text = f"{text} {'-' if factor < 0 else '+'} {part}" if text else part if factor > 0 else f"0 - {part}"
    return plus(text, constant) if text else str(constant)


def indented(lines: Iterable[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


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
