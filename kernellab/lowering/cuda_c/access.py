"""Places in tensors: addresses, the checks that they need, and vector accesses."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.lowering.c_family.index import ZERO, Index, in_range, step_into
from kernellab.lowering.c_family.ints import Ints
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Point, Range, Region

#: an access is wide if its known integers are multiples of this
_WIDE = 4


@dataclass(frozen=True)
class Access:
    """One element of a region: its address, and the checks (C++ conditions) that it lies inside the tensor."""

    address: str
    checks: tuple[str, ...]


def access(region: Region, index: Index, ints: Ints) -> Access:
    """Return the access to the element of ``region`` at ``index``."""
    ranges = iter(index)
    address = ZERO
    checks: list[str] = []
    for item, size in zip(region.index, region.tensor.shape, strict=True):
        if isinstance(item, Point):
            text = ints.cpp(item.at)
            inside = ints.nonnegative(item.at) and ints.below(item.at, size)
        else:
            at = next(ranges)
            ints.note([at])
            text = in_range(item, at, ints)
            inside = ints.fits(item.start, item.extent, item.step, size)
        if not inside:
            low = ints.nonnegative(item.at if isinstance(item, Point) else item.start)
            checks.append(f"{text} < {ints.operand(size)}" if low else f"kl::within({text}, {ints.cpp(size)})")
        address = step_into(address, size, text, ints)
    return Access(address, tuple(checks))


def wide_when(region: Region, index: Index, last: str | None, ints: Ints) -> list[IntExpr] | None:
    """Return the integers that a vector's width must divide for vector accesses to ``region`` along ``last``.

    None if there are none: there is no loop (``last`` is None), the last dimension does not follow ``last`` in steps of
    one, or a known integer is no multiple of four."""
    if not region.index or not index or index[-1] != last or last in index[:-1]:
        return None
    item = region.index[-1]
    if not isinstance(item, Range) or not ints.is_one(item.step):
        return None
    start = _multiples(item.start, ints)
    if start is None:
        return None
    wanted = [region.tensor.shape[-1], *start]
    values = [ints.const(e) for e in wanted]
    return None if any(k is not None and k % _WIDE for k in values) else wanted


def _multiples(expr: IntExpr, ints: Ints) -> list[IntExpr] | None:
    """Return integers without loop variables whose common divisors divide ``expr`` in every iteration."""
    if expr.kind is IntKind.LOOP:
        loop = ints.loops.get(expr.name)
        start = _multiples(loop.start, ints) if loop is not None else None
        step = _multiples(loop.step, ints) if loop is not None else None
        return None if start is None or step is None else [*start, *step]
    if not expr.loop_vars():
        return [expr]
    parts = [_multiples(a, ints) for a in expr.args]
    if expr.op in ("+", "-", "min", "max"):
        return None if any(p is None for p in parts) else [e for p in parts if p is not None for e in p]
    if expr.op == "*":
        # one factor is enough: one without loop variables, if there is one
        still = [p for p, a in zip(parts, expr.args, strict=True) if p is not None and not a.loop_vars()]
        return still[0] if still else next((p for p in parts if p is not None), None)
    return None


__all__ = ["Access", "access", "wide_when"]
