"""Sums of a product's results as products with sums: a product of which only the sum is used is never computed.

The sum over the columns of ``x @ w`` is ``x`` times the sums of w's rows; the sum over all positions of a transposed
convolution that cuts nothing off is each channel's sum times the sum of its taps. Linear operations may be in between:
bias, scale, batch normalisation in evaluation mode. This is algebra, exact except for rounding, and it removes the
product; the sketch's note says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernellab.capture import Node, Ref
from kernellab.designer.frontend.build import Builder
from kernellab.designer.ir.arithmetic import compute, is_float, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Expr, Leaf, Num, Op, Red
from kernellab.designer.ir.normal import Purpose
from kernellab.operations.aten import Role, named

_SAME = named(Role.SAME)


def summed(b: Builder, ref: Any, dims: Sequence[int], index: Index) -> Expr | None:
    """Return the sum over ``dims`` of ``ref`` without the product in ``ref``, or None if that is not possible.

    ``index`` has the rank of ``ref``; its entries at ``dims`` are ignored. Extents must be fixed.
    """
    if (
        not b.options.algebra
        or not dims
        or not isinstance(ref, Ref)
        or not all(isinstance(e, int) for e in b.shape(ref))
    ):
        return None
    if not is_float(b.dtype(ref)) or not all(index[d].plain for d in range(len(index)) if d not in dims):
        return None
    builder_sum = _Sum(b, tuple(sorted(dims)), index, b.shape(ref))
    return builder_sum.of(ref)


class _Sum:
    """Sums over ``dims`` of values of one shape."""

    def __init__(self, b: Builder, dims: tuple[int, ...], index: Index, shape: tuple[Any, ...]) -> None:
        self.b, self.dims, self.shape = b, dims, shape
        self.index = tuple(Ix() if d in dims else ix for d, ix in enumerate(index))
        self.count = math.prod(int(shape[d]) for d in dims)

    def of(self, ref: Any) -> Expr | None:
        b = self.b
        if not isinstance(ref, Ref) or ref.name in b.inputs or b.shape(ref) != self.shape:
            return None
        node = b.nodes[ref.name]
        if b.readers(ref.name) != 1:
            # the product is computed for another reader anyway
            return None
        kind = node.op.split(".")[1]
        handle = {"mul": self._scaled, "div": self._scaled, "add": self._added, "sub": self._added,
                  "_native_batch_norm_legit_no_training": self._normalised, "mm": self._product,
                  "addmm": self._product, "convolution": self._window}.get(kind)  # fmt: skip
        if kind in _SAME:
            return self.of(node.args[0])
        return handle(node) if handle is not None else None

    # linear operations

    def _scaled(self, node: Node) -> Expr | None:
        first, second = node.args[:2]
        if node.keyword("rounding_mode"):
            return None
        for ref, factor in ((first, second), (second, first)):
            if self._constant(factor) and (ref is first or node.op.split(".")[1] == "mul"):
                inner = self.of(ref)
                if inner is not None:
                    value = compute(self.b.operand(factor, self.index, self.shape), inner.dtype)
                    return Op(node.op.split(".")[1], (inner, value), inner.dtype, node.line)
        return None

    def _constant(self, ref: Any) -> bool:
        """Return whether the value is constant along the summed dimensions."""
        own_shape = self.b.shape(ref)
        lead = len(self.shape) - len(own_shape)
        return all(d < lead or own_shape[d - lead] == 1 for d in self.dims)

    def _added(self, node: Node) -> Expr | None:
        first, second = node.args[:2]
        if node.keyword("alpha", 1) != 1:
            return None
        inner = self.of(first)
        if inner is None:
            return None
        addend = self._broadcast(second, inner.dtype, node.line)
        return Op(node.op.split(".")[1], (inner, addend), inner.dtype, node.line)

    def _broadcast(self, ref: Any, dtype: str, line: int) -> Expr:
        """Return the sum of a value that is broadcast to the shape."""
        own_shape = self.b.shape(ref)
        lead = len(self.shape) - len(own_shape)
        over = [d for d in self.dims if d >= lead and own_shape[d - lead] != 1]
        index = list(self.index)
        for d in over:
            index[d] = Ix((Axis(self.shape[d]),))
        value = compute(self.b.operand(ref, tuple(index), self.shape), dtype)
        if over:
            value = Red("sum", value, tuple(a for d in over for a in index[d].leaves()), dtype, line)
        times = self.count // math.prod(int(self.shape[d]) for d in over)
        return value if times == 1 else Op("mul", (value, Num(float(times), dtype)), dtype, line)

    def _normalised(self, node: Node) -> Expr | None:
        """``(sum(x) - n mean) / sqrt(var + eps) * weight + n bias``, for n elements of a channel."""
        x, weight, bias, mean, var, _, eps = node.args[:7]
        inner = self.of(x) if 1 not in self.dims else None
        if inner is None:
            return None
        b, d, line, channel = self.b, inner.dtype, node.line, (self.index[1],)
        count = Num(float(self.count), d)
        mean_value, variance = (compute(b.value(a, channel), d) for a in (mean, var))
        scale = Op("rsqrt", (Op("add", (variance, b.value(eps)), d),), d, line)
        value: Expr = Op("sub", (inner, Op("mul", (mean_value, count), d)), d, line)
        value = Op("mul", (value, scale), d, line)
        if isinstance(weight, Ref):
            value = Op("mul", (value, b.value(weight, channel)), d, line)
        if isinstance(bias, Ref):
            value = Op("add", (value, Op("mul", (b.value(bias, channel), count), d)), d, line)
        return value

    # -- products

    def _product(self, node: Node) -> Expr | None:
        """Over the columns: ``sum_j (x @ w)[i, j] = sum_k x[i, k] * (sum_j w[k, j])``; the inner sums are stored."""
        b, d, line = self.b, wide(node.dtype), node.line
        bias, left, right = (None, *node.args[:2]) if node.op.split(".")[1] == "mm" else node.args[:3]
        if self.dims != (1,) or node.kwargs or b.shape(left)[1] == 1:
            return None
        right_shape = b.shape(right)
        k, cols = Axis(right_shape[0]), Axis(right_shape[1])
        rows = Red("sum", compute(b.value(right, (Ix((k,)), Ix((cols,)))), d), (cols,), d, line)
        name = b.store((node.name, "summed"), (Ix((k,)),), rows, (right_shape[0],), Purpose.SUMS)
        bound = b.bound(b.shape(left), [1], self.index)
        value: Expr = Op("mul", (compute(b.value(left, bound), d), Leaf(name, bound[1:], d)), d, line)
        value = Red("sum", value, bound[1].leaves(), d, line)
        return value if bias is None else Op("add", (value, self._broadcast(bias, d, line)), d, line)

    def _window(self, node: Node) -> Expr | None:
        """Over all positions p of a transposed convolution of which no result is cut off, with taps t:

        ``sum_p y[n, o, p] = sum_c (sum_p x[n, c, p]) * (sum_t w[c, o, t]) + (number of p) * bias[o]``; both inner sums
        are stored.
        """
        b, d, line = self.b, wide(node.dtype), node.line
        source, weight, bias, _stride, pads, _dilation, transposed, extra, groups = node.args[:9]
        rank = len(self.shape) - 2
        if not transposed or groups != 1 or any(pads) or any(extra) or self.dims != tuple(range(2, 2 + rank)):
            return None
        inside, out = b.shape(weight)[:2]
        if inside == 1 or out == 1:
            return None
        channel_in, channel_out = Ix((Axis(inside),)), Ix((Axis(out),))
        taps = tuple(Ix((Axis(e),)) if e != 1 else Ix() for e in b.shape(weight)[2:])
        over = tuple(a for ix in taps for a in ix.leaves())
        value = compute(b.value(weight, (channel_in, channel_out, *taps)), d)
        value = Red("sum", value, over, d, line) if over else value
        key, at = (node.name, "weight", "summed"), (channel_in, channel_out)
        weights = b.store(key, at, value, (inside, out), Purpose.SUMS)
        batch = Ix((Axis(self.shape[0]),)) if self.shape[0] != 1 else Ix()
        places = tuple(Ix((Axis(e),)) if e != 1 else Ix() for e in b.shape(source)[2:])
        channel = Ix((Axis(inside),))
        value = compute(b.value(source, (batch, channel, *places)), d)
        over = tuple(a for ix in places for a in ix.leaves())
        value = Red("sum", value, over, d, line) if over else value
        inputs = b.store((node.name, "input", "summed"), (batch, channel), value, (self.shape[0], inside), Purpose.SUMS)
        k = Axis(inside)
        pair = (Leaf(inputs, (self.index[0], Ix((k,))), d), Leaf(weights, (Ix((k,)), self.index[1]), d))
        value = Red("sum", Op("mul", pair, d, line), (k,), d, line)
        return value if bias is None else Op("add", (value, self._channel(bias, d, line)), d, line)

    def _channel(self, bias: Ref, dtype: str, line: int) -> Expr:
        value = compute(self.b.value(bias, (self.index[1],)), dtype)
        return Op("mul", (value, Num(float(self.count), dtype)), dtype, line)
