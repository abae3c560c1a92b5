"""A resolved program in which numbers stand for something else: smaller numbers, or symbols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kernellab.sketch.program.ints import IntExpr, IntKind, int_op
from kernellab.sketch.program.program import Const, Value


def swapped(item: Any, number: Callable[[IntExpr], IntExpr], literal: Callable[[Const], Value]) -> Any:
    """A copy of ``item`` with ``number`` of every number in an index, and ``literal`` of every one in arithmetic."""

    def swap(part: Any) -> Any:
        match part:
            case tuple():
                return tuple(map(swap, part))
            case IntExpr(kind=IntKind.NUM):
                return number(part)
            case IntExpr(kind=IntKind.OP):
                return int_op(part.op, *map(swap, part.args))
            case IntExpr():
                return part
            case Const():
                return literal(part)
        if not is_dataclass(part) or isinstance(part, type):
            return part
        return replace(part, **{f.name: swap(getattr(part, f.name)) for f in fields(part) if f.name != "span"})

    return swap(item)
