"""Running sums, products, maxima and minima as expressions."""

from __future__ import annotations

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.reductions import sum_dtype
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import compute, is_float
from kernellab.designer.ir.axes import Index, Ix
from kernellab.designer.ir.expr import Expr, Iota, Leaf, Num, Op, Scan
from kernellab.operations.sketch import OPS


def _from_memory(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """A scan whose dimension is later reshaped, indexed or partly used: it is stored whole and read from memory."""
    ref = Ref(node.name, item if node.results else None)
    return Leaf(b.stored(ref), index, b.dtype(ref))


def _of_stored_argument(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """A scan over a dimension that a reshape in its argument has split: the argument is stored first."""
    b.stored(node.args[0])
    b.stop(node.args[0])
    return _from_memory(b, node, index, item)


def _scan(kind: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        if not index or node.shape[node.args[1] % len(index)] == 1:
            return Num(0, "int64") if item else b.value(node.args[0], index)
        dim = node.args[1] % len(index)
        ix = index[dim]
        if len(ix.leaves()) != 1:
            return _from_memory(b, node, index, item)
        whole = ix.plain or (ix.sign == -1 and ix.offset == extents.add(node.shape[dim], -1))
        dtype = sum_dtype(node.dtype)
        if ix.sign == 1 and _starts_late(ix, node.shape[dim]):
            return _late_scan(b, node, index, dim, kind, dtype)
        if not whole or not extents.same(ix.extent, node.shape[dim]):
            return _from_memory(b, node, index, item)
        arg = compute(b.value(node.args[0], index), dtype)
        if len(ix.leaves()) != 1:
            return _of_stored_argument(b, node, index, item)
        scan = Scan(kind, arg, ix.leaves()[0], dtype, ix.sign == -1, node.line)
        return _last_place(b, scan, ix) if item else scan

    return handle


def _last_place(b: Builder, scan: Scan, ix: Ix) -> Expr:
    """Return the last position of a running maximum or minimum: the running maximum of the positions that equal it."""
    equal = Op("eq", (scan.arg, scan), "bool")
    if is_float(scan.dtype):
        equal = Op("logical_or", (equal, Op("isnan", (scan.arg,), "bool")), "bool")
    place = Op("where", (equal, b.position(ix), Num(0, "int64")), "int64")
    return Scan("cummax", place, scan.over, "int64", scan.reverse, scan.line)


def _starts_late(ix: Ix, extent: Extent) -> bool:
    """Return whether the index begins before the scanned elements, and ends with them or earlier."""
    if not isinstance(ix.offset, int) or ix.offset >= 0:
        return False
    return extents.same(ix.extent, extents.add(extent, -ix.offset)) or extents.same(ix.extent, extent)


def _late_scan(b: Builder, node: Node, index: Index, dim: int, kind: str, dtype: str) -> Expr:
    """An exclusive scan: the elements are shifted along the axis, and the identity precedes them."""
    ix = index[dim]
    if not is_float(dtype) and kind in ("cummax", "cummin"):
        raise b.refuse(node, "an exclusive running maximum of integers")
    inside = Op("ge", (Iota(ix), Num(0, "int64")), "bool")
    arg = compute(b.value(node.args[0], index), dtype)
    if len(ix.leaves()) != 1:
        return _of_stored_argument(b, node, index, 0)
    start = OPS[kind].identity
    assert start is not None, kind
    neutral = Num(start if is_float(dtype) else int(start), dtype)
    return Scan(kind, Op("where", (inside, arg, neutral), dtype), ix.leaves()[0], dtype, False, node.line)


SCANS: dict[str, Handler] = {
    "cumsum": _scan("cumsum"),
    "cumprod": _scan("cumprod"),
    "cummax": _scan("cummax"),
    "cummin": _scan("cummin"),
}
