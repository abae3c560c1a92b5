"""Factors of a product that are stored as matrices first: those that its tiles cannot read as slices of one tensor.

A program reads both factors once for each tile of its product. Elements at computed places, as a roll or a reshape
that follows no axes leaves them, keep it from tensor cores; rows that lie in short pieces leave tiles mostly empty; and
a sum that others read too is made again by every program.
"""

from __future__ import annotations

from kernellab.capture import Ref
from kernellab.designer.frontend.build import Builder
from kernellab.designer.ir.expr import Axis, Expr, Free, Ix, Leaf, run, walk
from kernellab.designer.ir.extents import fixed

#: rows or columns of the other factor, and summed elements, from which on it pays to store one
_REUSED, _LEAST = 64, 16
#: neighbouring rows, and summed elements, that a tile reads as one slice
_ROWS, _SUMMED = 64, 32
#: views that leave elements in their order
_RESHAPES = frozenset(("view", "reshape", "_unsafe_view", "clone", "contiguous", "squeeze", "unsqueeze"))


def factors_apart(b: Builder, left: Ref, right: Ref) -> None:
    """Marks those of a product's factors to be stored that its tiles would not read well."""
    a, c = b.shape(left), b.shape(right)
    if not b.apart or not all(isinstance(n, int) for n in (*a[-2:], *c[-2:])) or fixed(a[-1]) < _LEAST:
        return
    for ref, others in ((left, fixed(c[-1])), (right, fixed(a[-2]))):
        if others >= _REUSED and ref.name in b.nodes:
            _apart(b, ref, rows=ref is left)


def _apart(b: Builder, ref: Ref, rows: bool) -> None:
    source = ref
    while b.nodes[source.name].aten in _RESHAPES and not b.is_stored(source):
        below = b.nodes[source.name].args[0]
        if below.name not in b.nodes or below.item is not None or b.shape(below)[-1:] != b.shape(ref)[-1:]:
            break
        source = below
    if b.is_stored(source) or source.item is not None:
        return
    index = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in b.shape(ref))
    value = b.value(ref, index)
    over, own = (index[-1], index[-2]) if rows else (index[-2], index[-1])
    again = _joined(value, own, over) and b.readers(source.name) > 1
    if again or _scattered(value, own, _ROWS) or _scattered(value, over, _SUMMED):
        b.stop(source)


def _scattered(value: Expr, ix: Ix, least: int) -> bool:
    """Does ``value`` read along ``ix`` at computed places, or in pieces of fewer than ``least`` elements?"""
    leaves, free = ix.leaves(), Free()
    for e in walk(value, inside=False):
        if isinstance(e, Leaf) and any(free(at).intersection(leaves) for at in e.operands):
            return True
    return len(leaves) > 1 and run(value, leaves) < min(least, fixed(ix.extent))


def _joined(value: Expr, own: Ix, over: Ix) -> bool:
    """Is ``value`` made of several tensors that vary along both of its dimensions?"""
    free, sides = Free(), (own.within(), over.within())
    loads = [free(e) for e in walk(value, inside=False) if isinstance(e, Leaf)]
    return sum(all(axes & side for side in sides) for axes in loads) > 1


__all__ = ["factors_apart"]
