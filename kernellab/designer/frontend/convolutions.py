"""Convolutions, plain and transposed, as windows over their input."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

from kernellab.capture import Node, Ref
from kernellab.designer.frontend import pointwise as aten
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.windows import LEAST_CHANNELS, at_window, is_plain, spatial, window
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Axis, Expr, Index, Ix, Leaf, Op, Tap, Win
from kernellab.designer.ir.extents import Length
from kernellab.designer.ir.normal import Purpose

#: minimum channels on both sides of a product over positions
_WIDE = 16


def _convolution(b: Builder, node: Node, index: Index, item: int) -> Expr:
    args = [*node.args, *[None] * (9 - len(node.args))]
    return _window_of(b, node, index, args[:3], args[3:6], bool(args[6]), args[7], args[8])


def _plain(b: Builder, node: Node, index: Index, item: int) -> Expr:
    args = [*node.args, *[None] * (7 - len(node.args))]
    return _window_of(b, node, index, args[:3], args[3:6], False, 0, args[6])


def _turned(b: Builder, node: Node, index: Index, item: int) -> Expr:
    # conv_transpose: input, weight, bias, stride, padding, output_padding, groups, dilation
    args = [*node.args, *[None] * (8 - len(node.args))]
    return _window_of(b, node, index, args[:3], (args[3], args[4], args[7]), True, args[5], args[6])


def _window_of(
    b: Builder,
    node: Node,
    index: Index,
    tensors: Any,
    numbers: Any,
    transposed: bool,
    output_padding: Any,
    groups: int | None,
) -> Expr:
    source, weight, bias = tensors
    groups = groups or 1
    shape, weight_shape = b.shape(node_ref(node)), b.shape(weight)
    source, zeros_before = (source, ()) if transposed else _inside_zeros(b, source)
    x_shape = b.shape(source)
    kernel = tuple(int(e) for e in weight_shape[2:] if isinstance(e, int))
    rank = len(kernel)
    if not all(isinstance(e, int) for e in weight_shape) or len(x_shape) != rank + 2:
        raise b.refuse(node, "a convolution needs a batch, and a weight of known shape")
    stride, dilation = spatial(numbers[0], rank, 1), spatial(numbers[2], rank, 1)
    pad = _padding(b, node, numbers[1], kernel, stride, dilation)
    pad = tuple(map(operator.add, pad, zeros_before)) if zeros_before else pad
    d = aten.wide(node.dtype)

    def with_bias(value: Expr) -> Expr:
        if bias is None:
            return value
        return Op("add", (value, aten.compute(b.value(bias, (index[1],)), d)), d, node.line)

    if b.narrow and groups == 1 and not transposed and _few_positions(b, node, index, kernel):
        return with_bias(_by_positions(b, node, index, (source, weight), (stride, dilation, pad)))
    if not is_plain(index, shape, groups, 1):
        # a reader transposes or slices it: the result is stored whole
        return Leaf(b.stored(node_ref(node)), index, node.dtype)
    first, second = map(extents.fixed, weight_shape[:2])
    group_outputs = second if transposed else first // groups
    group, co = _channels(index[1], groups, group_outputs)
    w = window(x_shape[2:], index[2:], kernel, stride, pad, dilation, transposed)
    inside = first // groups if transposed else second
    packed = group_outputs > 1 and (inside * group_outputs > b.few if groups == 1 else inside >= LEAST_CHANNELS)
    c = Axis(inside) if inside > 1 or packed else None
    channel = Ix(tuple(a for a in (*group, c) if a is not None))
    ks = tuple(Ix((t,)) if t is not None else Ix() for t in _ks(w.index, rank))
    inner = Ix((c,)) if c is not None else Ix()

    x = at_window(b, source, (index[0], channel, *w.index))
    direct = b.value(weight, (Ix(co), inner, *ks)) if packed and groups == 1 and not transposed else None
    if b.narrow and packed and groups == 1 and c is not None and not w.taps and side_by_side(x, c):
        # a matrix product of both factors as they are in memory
        assert direct is not None
        rows = Ix(tuple(a for ix in (index[0], *index[2:]) for a in ix.leaves()))
        return with_bias(b.dot(x, direct, c, rows, Ix(co), d, node.line))
    lying = direct is not None and c is not None and b.narrow and _rows_of(direct, c, weight.name, kernel)
    if lying and not w.taps and _in_planes(x, channel, index[2:], shape[2:]):
        assert direct is not None and c is not None
        places = Ix(tuple(a for ix in index[2:] for a in ix.leaves()))
        return with_bias(b.dot(direct, x, c, Ix(co), places, d, node.line))
    if direct is not None and c is not None and lying and side_by_side(x, c):
        at: Expr = direct
    elif packed:
        tensor = _packed(b, weight, groups, tuple(a.extent for a in co), inside, transposed)
        at = Leaf(tensor, (*ks, Ix(group), Ix(co), inner), b.dtype(weight))
    elif group_outputs == inside == 1 and groups > 1 and b.narrow and side_by_side(x, group[-1]):
        # each output is a sum of products in float32: convert the few weights once, not for each output
        wide = "float32" if math.prod(kernel) <= 16 else b.dtype(weight)
        tensor = _packed(b, weight, groups, (), 1, transposed, wide)
        at = Leaf(tensor, (*ks, Ix(group), Ix(), Ix()), wide)
    else:
        pair = (channel, Ix(co)) if transposed else (Ix((*group, *co)), inner)
        at = b.value(weight, (*pair, *ks))
        if not isinstance(at, Leaf):  # a constant tensor of the reference
            weight_index = b.axes_for(b.shape(weight))
            tensor = b.store(weight, weight_index, b.value(weight, weight_index), b.shape(weight))
            at = Leaf(tensor, (*pair, *ks), b.dtype(weight))
    value = Win(
        x, at, dtype=d, line=node.line, taps=w.taps, sums=(c,) if c is not None else (), packed=packed,
        weights=weight.name, backward=transposed,
    )  # fmt: skip
    return with_bias(value)


def _inside_zeros(b: Builder, source: Ref) -> tuple[Ref, tuple[int, ...]]:
    """Return the source of a zero padding, and the zeros before each of its spatial dimensions: a window reads zeros
    past a tensor's edges anyway. Return ``source`` and () if it is not such a padding."""
    node = b.nodes.get(source.name)
    if node is None or source.name in b.stops or node.op != "aten.constant_pad_nd.default":
        return source, ()
    inner, pads, fill = (*node.args, 0)[:3]
    rank = len(b.shape(source)) - 2
    spatial_only = all(isinstance(p, int) and p >= 0 for p in pads) and not any(pads[2 * rank :])
    if fill != 0 or not spatial_only:
        return source, ()
    zeros_before = (*pads[0::2], *(0,) * rank)[:rank]
    return inner, tuple(reversed(zeros_before))


def side_by_side(factor: Expr, axis: Axis) -> bool:
    """Return whether the elements along ``axis`` are contiguous in the tensor of ``factor``."""
    return isinstance(factor, Leaf) and factor.index[-1].leaves() == (axis,)


def _few_positions(b: Builder, node: Node, index: Index, kernel: tuple[int, ...]) -> bool:
    """Return whether the outputs are few positions of many taps, in halves: the gradient of another convolution's
    weights. The requested index may start like the result and end before it."""
    shape, samples = b.shape(node_ref(node)), b.shape(node.args[1])[1]
    fixed = all(isinstance(e, int) for e in (*shape, *b.shape(node.args[0])))
    if not fixed or node.dtype not in HALVES or len(kernel) != 2 or samples == 1:
        return False
    plain = is_plain(index, (*shape[:2], *(ix.extent for ix in index[2:])))
    wide = all(e >= _WIDE and e % 8 == 0 for e in map(extents.fixed, shape[:2]))
    positions = math.prod(extents.fixed(ix.extent) for ix in index[2:])
    return plain and wide and math.prod(kernel) >= max(16, positions + 1) and positions <= 64


def _by_positions(b: Builder, node: Node, index: Index, factors: tuple[Ref, Ref], numbers: Any) -> Expr:
    """Return the convolution as a product over its channels and taps, which are the samples and positions of the
    convolution whose weight gradient it is. Only the requested outputs are computed."""
    source, weight = factors
    sizes = map(extents.fixed, b.shape(weight)[1:])
    n, *places = (Axis(e) for e in sizes)
    whole = map(extents.fixed, b.shape(source)[2:])
    taps = [
        Tap(place, next(iter(ix.leaves()), None), extents.fixed(ix.extent), d, s, p, size)
        for place, ix, s, d, p, size in zip(places, index[2:], *numbers, whole, strict=True)
    ]
    window_ix = tuple(Ix(tuple(a for a in (t.out, t.k) if a is not None), 0, 1, t) for t in taps)
    x = at_window(b, source, (index[0], Ix((n,)), *window_ix))
    g = at_window(b, weight, (index[1], Ix((n,)), *(Ix((place,)) for place in places)))
    return Win(x, g, dtype=aten.wide(node.dtype), line=node.line, taps=tuple(taps), sums=(n,), turned=True)


def _rows_of(weight: Expr, c: Axis, name: str, kernel: tuple[int, ...]) -> bool:
    """Return whether the channels that an output sums are contiguous in its weights."""
    if not isinstance(weight, Leaf):
        return False
    pointwise = weight.tensor == name and set(kernel) == {1} and weight.index[1].leaves() == (c,)
    return pointwise or side_by_side(weight, c)


def _in_planes(x: Expr, channel: Ix, places: Index, extent: tuple[Length, ...]) -> bool:
    """Return whether ``x`` consists of consecutive planes of positions, each a multiple of 16 bytes of halves.

    The channels are then the rows of a product's factor without a copy.
    """
    if not isinstance(x, Leaf) or x.dtype not in HALVES:
        return False
    plane = math.prod(e for e in extent if isinstance(e, int)) if all(isinstance(e, int) for e in extent) else 0
    order = [leaves for ix in x.index if (leaves := ix.leaves())]
    after_channel = order[order.index(channel.leaves()) + 1 :] if channel.leaves() in order else []
    return plane > 0 and plane % 8 == 0 and after_channel == [leaves for ix in places if (leaves := ix.leaves())]


@dataclass(frozen=True)
class Numbers:
    """The arguments of a convolution other than its tensors, one number per spatial dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    #: number of elements by which a transposed convolution's result is longer than its windows
    output_padding: tuple[int, ...] = ()


def numbers_of(b: Builder, node: Node) -> Numbers:
    """Return the numbers of any of the convolution operations below.

    Raises:
        DesignError: they are not known before the call, or there is no batch.
    """
    kind = node.op.split(".")[1]
    args = [*node.args, *[None] * (9 - len(node.args))]
    transposed, groups, more = False, args[6], None
    numbers = args[3:6]
    if kind == "convolution":
        transposed, groups, more = bool(args[6]), args[8], args[7]
    elif kind not in ("conv1d", "conv2d", "conv3d"):
        transposed, numbers, more = True, [args[3], args[4], args[7]], args[5]
    weight_shape = b.shape(node.args[1])
    kernel = tuple(int(e) for e in weight_shape[2:] if isinstance(e, int))
    if not all(isinstance(e, int) for e in weight_shape) or len(b.shape(node.args[0])) != len(weight_shape):
        raise b.refuse(node, "a convolution needs a batch, and a weight of known shape")
    stride, dilation = spatial(numbers[0], len(kernel), 1), spatial(numbers[2], len(kernel), 1)
    padding = _padding(b, node, numbers[1], kernel, stride, dilation)
    longer = spatial(more, len(kernel), 0) if transposed else ()
    return Numbers(stride, padding, dilation, groups or 1, transposed, longer)


def node_ref(node: Node) -> Ref:
    return Ref(node.name)


def _ks(index: Index, rank: int) -> list[Axis | None]:
    return [ix.win.k if ix.win is not None else None for ix in index]


def _channels(ix: Ix, groups: int, mine: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Return the axes of the group and of the channel within it, at the index of the output's channel."""
    leaves = ix.leaves()
    if groups == 1:
        return (), leaves
    if mine == 1:
        return leaves, ()
    if len(leaves) == 1:
        leaves[0].split(groups, mine)
        leaves = ix.leaves()
    return leaves[:1], leaves[1:]


def _padding(b: Builder, node: Node, given: Any, kernel: Any, stride: Any, dilation: Any) -> tuple[int, ...]:
    if given == "valid":
        return (0,) * len(kernel)
    if given == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        if any(t % 2 for t in totals):
            raise b.refuse(node, "padding that differs on both sides")
        return tuple(t // 2 for t in totals)
    return spatial(given, len(kernel), 0)


def _packed(
    b: Builder, weight: Ref, groups: int, mine: tuple[Length, ...], inside: int, transposed: bool, dtype: str = ""
) -> str:
    """Return the weight stored as [taps..., group, out channel, in channel], so that each tap's matrix is
    contiguous."""
    shape = b.shape(weight)
    taps = tuple(shape[2:])
    key = (weight.name, "packed") if not transposed else (weight.name, "packed_t")
    axes = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in (*taps, groups))
    # the channels are split like the reader's
    axes = (*axes, Ix(tuple(Axis(e) for e in mine)), Ix((Axis(inside),)) if inside > 1 or mine else Ix())
    ks, group, co, c = axes[: len(taps)], axes[-3], axes[-2], axes[-1]
    first, second = (group.axes + c.axes, co.axes) if transposed else (group.axes + co.axes, c.axes)
    value = b.value(weight, (Ix(first), Ix(second), *ks))
    value = aten.cast(value, dtype) if dtype else value
    return b.store(key, axes, value, (*taps, groups, extents.times(list(mine)), inside), Purpose.PACKED)


CONVOLUTIONS: dict[str, Handler] = {
    "convolution": _convolution, "conv1d": _plain, "conv2d": _plain, "conv3d": _plain,
    "conv_transpose1d": _turned, "conv_transpose2d": _turned, "conv_transpose3d": _turned,
}  # fmt: skip
