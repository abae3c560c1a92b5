"""Running sums, products, maxima and minima as expressions."""

from __future__ import annotations

from kernellab.agents.designer import aten, extents
from kernellab.agents.designer.aten import Handler
from kernellab.agents.designer.aten_reduce import sum_dtype
from kernellab.agents.designer.build import Builder
from kernellab.agents.designer.expr import Expr, Index, Iota, Ix, Num, Op, Scan
from kernellab.agents.designer.extents import Extent
from kernellab.capture import Node


def _scan(kind: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        if item:
            raise b.refuse(node, "the positions of a running maximum")
        if not index:
            return b.value(node.args[0], index)
        dim = node.args[1] % len(index)
        ix = index[dim]
        if node.shape[dim] == 1:
            return b.value(node.args[0], index)
        if len(ix.leaves()) != 1:
            raise b.refuse(node, "a scan along a dimension that is reshaped or indexed afterwards")
        whole = ix.plain or (ix.sign == -1 and ix.offset == extents.add(node.shape[dim], -1))
        dtype = sum_dtype(node.dtype)
        if ix.sign == 1 and _starts_late(ix, node.shape[dim]):
            return _late_scan(b, node, index, dim, kind, dtype)
        if not whole or not extents.same(ix.extent, node.shape[dim]):
            raise b.refuse(node, "a scan of which only a part is used")
        arg = aten.compute(b.value(node.args[0], index), dtype)
        return Scan(kind, arg, ix.leaves()[0], dtype, ix.sign == -1, node.line)

    return handle


#: what leaves a running sum, product, max or min as it is
_NEUTRAL = {"cumsum": 0.0, "cumprod": 1.0, "cummax": float("-inf"), "cummin": float("inf")}


def _starts_late(ix: Ix, extent: Extent) -> bool:
    """Does the index begin before the scanned elements and end with them or sooner?"""
    if not isinstance(ix.offset, int) or ix.offset >= 0:
        return False
    return extents.same(ix.extent, extents.add(extent, -ix.offset)) or extents.same(ix.extent, extent)


def _late_scan(b: Builder, node: Node, index: Index, dim: int, kind: str, dtype: str) -> Expr:
    """An exclusive scan: the elements come later along the axis, what lies before them changes nothing."""
    ix = index[dim]
    if not aten.is_float(dtype) and kind in ("cummax", "cummin"):
        raise b.refuse(node, "an exclusive running maximum of integers")
    inside = Op("ge", (Iota(ix), Num(0, "int64")), "bool")
    arg = aten.compute(b.value(node.args[0], index), dtype)
    neutral = Num(_NEUTRAL[kind] if aten.is_float(dtype) else int(_NEUTRAL[kind]), dtype)
    return Scan(kind, Op("where", (inside, arg, neutral), dtype), ix.leaves()[0], dtype, False, node.line)


SCANS: dict[str, Handler] = {
    "cumsum": _scan("cumsum"),
    "cumprod": _scan("cumprod"),
    "cummax": _scan("cummax"),
    "cummin": _scan("cummin"),
}
