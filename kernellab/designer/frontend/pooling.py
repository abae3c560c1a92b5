"""Pooling: the largest element or the mean of each window."""

from __future__ import annotations

from typing import Any

from kernellab.capture import Node, Ref
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.windows import at_window, is_plain, spatial, window
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import is_float, wide
from kernellab.designer.ir.axes import Index
from kernellab.designer.ir.expr import Expr, Leaf, Num, Op, Win
from kernellab.designer.ir.normal import number


class _Pool:
    """One pooling node at an index: its numbers, and the window over its input."""

    def __init__(self, b: Builder, node: Node, index: Index, item: int, rank: int, dilated: bool) -> None:
        self.b, self.node, self.index, self.rank = b, node, index, rank
        source = node.args[0]
        self.shape = b.shape(Ref(node.name, item if node.results else None))
        self.sizes = b.shape(source)[-rank:]
        args = [*node.args, *[None] * (7 - len(node.args))]
        self.kernel = spatial(args[1], rank, 1)
        self.stride = spatial(args[2] or args[1], rank, 1)
        self.pad = spatial(args[3], rank, 0)
        self.dilation = spatial(args[4] if dilated else 1, rank, 1)
        self.ceil = bool(args[5] if dilated else args[4])
        self.plain = is_plain(index, self.shape)

    def over(self, join: str) -> Expr:
        b, node = self.b, self.node
        w = window(self.sizes, self.index[-self.rank :], self.kernel, self.stride, self.pad, self.dilation)
        x = at_window(b, node.args[0], (*self.index[: -self.rank], *w.index))
        dtype = wide(node.dtype)
        return Win(x, x, dtype=dtype, line=node.line, taps=w.taps, join=join, pairs=False)


def _max(rank: int) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        if item == 1:
            raise b.refuse(node, "the positions of the largest elements are asked for")
        pool = _Pool(b, node, index, item, rank, dilated=True)
        if not is_float(node.dtype):
            raise b.refuse(node, "a maximum of integers over a window")
        if not pool.plain:
            return Leaf(b.stored(Ref(node.name, item if node.results else None)), index, node.dtype)
        return pool.over("max")

    return handle


def _mean(rank: int) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        pool = _Pool(b, node, index, item, rank, dilated=False)
        if not pool.plain:
            return Leaf(b.stored(Ref(node.name)), index, node.dtype)
        args: list[Any] = [*node.args, *[None] * (7 - len(node.args))]
        whole = True if args[5] is None else bool(args[5])
        d = wide(node.dtype)
        total = pool.over("sum")
        if args[6] is not None:
            return Op("div", (total, b.value(float(args[6]))), d, node.line)
        if not pool.ceil and (whole or not any(pool.pad)):
            count = 1
            for k in pool.kernel:
                count *= k
            return Op("div", (total, Num(float(count), d)), d, node.line)
        return Op("div", (total, _seen(pool, whole, d)), d, node.line)

    return handle


def _seen(pool: _Pool, whole: bool, dtype: str) -> Expr:
    """Return the number of elements in each window; padding counts if ``whole``, positions past the padding never
    do."""
    count: Expr | None = None
    for d in range(pool.rank):
        ix, size = pool.index[d - pool.rank], pool.sizes[d]
        k, s, p = pool.kernel[d], pool.stride[d], pool.pad[d]
        at = Op("sub", (Op("mul", (pool.b.position(ix), Num(s, "int64")), "int64"), Num(p, "int64")), "int64")
        end = Op("min", (Op("add", (at, Num(k, "int64")), "int64"), number(extents.add(size, p))), "int64")
        begin: Expr = at
        if not whole:
            begin = Op("max", (at, Num(0, "int64")), "int64")
            end = Op("min", (end, number(size)), "int64")
        along = Op("cast", (Op("sub", (end, begin), "int64"),), dtype)
        count = along if count is None else Op("mul", (count, along), dtype)
    assert count is not None
    return count


def _adaptive(rank: int, join: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        source, shape = node.args[0], b.shape(Ref(node.name, item if node.results else None))
        sizes, output_sizes = b.shape(source)[-rank:], shape[-rank:]
        pairs = list(zip(sizes, output_sizes, strict=True))
        if item == 1 or not all(isinstance(s, int) and isinstance(w, int) and s % w == 0 for s, w in pairs):
            raise b.refuse(node, "windows of different sizes")
        kernel = tuple(extents.fixed(s) // extents.fixed(w) for s, w in pairs)
        if not is_plain(index, shape):
            return Leaf(b.stored(Ref(node.name, item if node.results else None)), index, node.dtype)
        w = window(sizes, index[-rank:], kernel, kernel, (0,) * rank, (1,) * rank)
        x = at_window(b, source, (*index[:-rank], *w.index))
        d = wide(node.dtype)
        value: Expr = Win(x, x, dtype=d, line=node.line, taps=w.taps, join=join, pairs=False)
        count = 1
        for k in kernel:
            count *= k
        return value if join == "max" else Op("div", (value, Num(float(count), d)), d, node.line)

    return handle


POOLS: dict[str, Handler] = {
    "max_pool1d": _max(1), "max_pool2d": _max(2), "max_pool3d": _max(3),
    "max_pool2d_with_indices": _max(2), "max_pool3d_with_indices": _max(3),
    "avg_pool1d": _mean(1), "avg_pool2d": _mean(2), "avg_pool3d": _mean(3),
    "_adaptive_avg_pool2d": _adaptive(2, "sum"), "_adaptive_avg_pool3d": _adaptive(3, "sum"),
    "adaptive_avg_pool1d": _adaptive(1, "sum"), "adaptive_max_pool2d": _adaptive(2, "max"),
    "adaptive_max_pool3d": _adaptive(3, "max"),
}  # fmt: skip
