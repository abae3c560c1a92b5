"""Places in tensors: addresses, the checks that they need, and vector accesses."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.lowering.c_family.index import Index, wrap
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
    address = ""
    checks: list[str] = []
    for item, size in zip(region.index, region.tensor.shape, strict=True):
        if isinstance(item, Point):
            text = ints.cpp(item.at)
            inside = ints.nonnegative(item.at) and ints.below(item.at, size)
        else:
            at = next(ranges)
            ints.note([at])
            start = "" if ints.const(item.start) == 0 else ints.cpp(item.start)
            step = "" if ints.is_one(item.step) else f" * {ints.operand(item.step)}"
            text = (f"{start} + {at}{step}" if start else f"{at}{step}") if at != "0" else start or "0"
            inside = ints.fits(item.start, item.extent, item.step, size)
        if not inside:
            low = ints.nonnegative(item.at if isinstance(item, Point) else item.start)
            checks.append(f"{text} < {ints.operand(size)}" if low else f"kl::within({text}, {ints.cpp(size)})")
        if not address:
            address = text
        else:
            scaled = address if address == "0" else f"{wrap(address)} * {ints.operand(size)}"
            address = text if address == "0" else (scaled if text == "0" else f"{scaled} + {text}")
    return Access(address or "0", tuple(checks))


def wide_when(region: Region, index: Index, last: str, ints: Ints) -> list[IntExpr] | None:
    """Return the integers that a vector's width must divide for vector accesses to ``region`` along ``last``.

    None if there are none: the last dimension does not follow ``last`` in steps of one, or a known integer is no
    multiple of four."""
    if not region.index or not index or index[-1] != last or last == "0" or last in index[:-1]:
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
