"""Convolutions, plain and transposed, as windows over their input.

One handler builds all of them: the sum over the taps and the channels of a group is a :class:`Win`, or a matrix product
where the factors already lie in memory as matrices (a kernel of 1 x 1), plus the bias.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

from kernellab.capture import Node, Ref
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.windows import LEAST_CHANNELS, Window, at_window, is_plain, spatial, window
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import cast, compute, wide
from kernellab.designer.ir.axes import Axis, Index, Ix, Tap
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Expr, Leaf, Op, Win
from kernellab.designer.ir.extents import Length
from kernellab.designer.ir.normal import Purpose

#: minimum channels on both sides of a product over positions
_WIDE = 16
#: most positions of such a product, and its minimum taps; chosen, not measured
_MOST_POSITIONS, _LEAST_TAPS = 64, 16
#: most taps of a depthwise convolution whose weights are stored as float32
_CONVERTED_TAPS = 16


@dataclass(frozen=True)
class Numbers:
    """The arguments of a convolution other than its tensors, one number per spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    #: number of elements by which a transposed convolution's result is longer than its windows
    output_padding: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Channels:
    """The channels of a convolution: ``inside`` input channels and ``outside`` output channels in each group.

    ``group`` and ``out`` are the axes of the group and of the output channel within it at the requested index.
    ``packed``: the channels of a group are multiplied as matrices. ``summed`` is the axis of the input channels; None
    for a single one that is not multiplied as a matrix.
    """

    inside: int
    outside: int
    group: tuple[Axis, ...]
    out: tuple[Axis, ...]
    packed: bool
    summed: Axis | None = None

    @property
    def of_input(self) -> Ix:
        return Ix((*self.group, *(() if self.summed is None else (self.summed,))))

    @property
    def inner(self) -> Ix:
        """The index of the input channel within its group."""
        return Ix() if self.summed is None else Ix((self.summed,))


def _convolution(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, weight, bias = (*node.args, None)[:3]
    numbers, dtype = numbers_of(b, node), wide(node.dtype)
    if not numbers.transposed:
        source, zeros_before = _inside_zeros(b, source)
        if zeros_before:
            numbers = replace(numbers, padding=tuple(map(operator.add, numbers.padding, zeros_before)))
    if (
        b.options.narrow_products
        and numbers.groups == 1
        and not numbers.transposed
        and _few_positions(b, node, index, numbers)
    ):
        value = _by_positions(b, node, index, source, weight, numbers)
    elif not is_plain(index, b.shape(node_ref(node)), numbers.groups, 1):
        # a reader transposes or slices it: the result is stored whole
        return Leaf(b.stored(node_ref(node)), index, node.dtype)
    else:
        value = _over_window(b, node, index, source, weight, numbers)
    if bias is None:
        return value
    return Op("add", (value, compute(b.value(bias, (index[1],)), dtype)), dtype, node.line)


def _over_window(b: Builder, node: Node, index: Index, source: Ref, weight: Ref, numbers: Numbers) -> Expr:
    """Return the sum over the window's taps and the channels of a group."""
    channels = _channels(b, index[1], weight, numbers)
    w = window(
        b.shape(source)[2:], index[2:], numbers.kernel, numbers.stride, numbers.padding, numbers.dilation,
        numbers.transposed,
    )  # fmt: skip
    if channels.inside > 1 or channels.packed:
        channels = replace(channels, summed=Axis(channels.inside))
    x = at_window(b, source, (index[0], channels.of_input, *w.index))
    ks = tuple(Ix() if tap.win is None or tap.win.k is None else Ix((tap.win.k,)) for tap in w.index)
    in_order: Expr | None = None
    if channels.packed and numbers.groups == 1 and not numbers.transposed:
        in_order = b.value(weight, (Ix(channels.out), channels.inner, *ks))
    product = _as_product(b, node, index, x, in_order, w, channels, numbers, weight)
    if product is not None:
        return product
    weights = _weights_at(b, x, in_order, weight, ks, channels, numbers)
    return Win(
        x, weights, dtype=wide(node.dtype), line=node.line, taps=w.taps, sums=channels.inner.axes,
        packed=channels.packed, weights=weight.name, backward=numbers.transposed,
    )  # fmt: skip


def _as_product(
    b: Builder, node: Node, index: Index, x: Expr, in_order: Expr | None, w: Window, channels: _Channels,
    numbers: Numbers, weight: Ref,
) -> Expr | None:  # fmt: skip
    """Return a convolution without taps as a matrix product of both factors as they are in memory; None if they are no
    matrices there. ``in_order``: the weights in the order of their tensor."""
    c, out, dtype = channels.summed, Ix(channels.out), wide(node.dtype)
    if not b.options.narrow_products or not channels.packed or numbers.groups != 1 or c is None or w.taps:
        return None
    if side_by_side(x, c):
        assert in_order is not None
        rows = Ix(tuple(a for ix in (index[0], *index[2:]) for a in ix.leaves()))
        return b.dot(x, in_order, c, rows, out, dtype, node.line)
    shape = b.shape(node_ref(node))
    read_in_rows = _channels_contiguous(in_order, c, weight.name, numbers.kernel)
    if in_order is None or not read_in_rows or not _in_planes(x, channels.of_input, index[2:], shape[2:]):
        return None
    places = Ix(tuple(a for ix in index[2:] for a in ix.leaves()))
    return b.dot(in_order, x, c, out, places, dtype, node.line)


def _weights_at(
    b: Builder, x: Expr, in_order: Expr | None, weight: Ref, ks: Index, channels: _Channels, numbers: Numbers
) -> Expr:
    """Return the weights at a tap: in their own tensor, or packed so that each tap's matrix is contiguous."""
    c, group, out = channels.summed, channels.group, channels.out
    read_in_rows = _channels_contiguous(in_order, c, weight.name, numbers.kernel)
    if in_order is not None and b.options.narrow_products and read_in_rows and side_by_side(x, c):
        return in_order
    if channels.packed:
        tensor = _packed(b, weight, numbers, tuple(a.extent for a in out), channels.inside)
        return Leaf(tensor, (*ks, Ix(group), Ix(out), channels.inner), b.dtype(weight))
    is_depthwise = channels.outside == channels.inside == 1 and numbers.groups > 1
    if is_depthwise and b.options.narrow_products and side_by_side(x, group[-1]):
        # each output is a sum of products in float32: convert the few weights once, not for each output
        dtype = "float32" if math.prod(numbers.kernel) <= _CONVERTED_TAPS else b.dtype(weight)
        return Leaf(_packed(b, weight, numbers, (), 1, dtype), (*ks, Ix(group), Ix(), Ix()), dtype)
    rows = (channels.of_input, Ix(out)) if numbers.transposed else (Ix((*group, *out)), channels.inner)
    value = b.value(weight, (*rows, *ks))
    if isinstance(value, Leaf):
        return value
    # a constant tensor of the reference
    weight_index = b.axes_for(b.shape(weight))
    tensor = b.store(weight, weight_index, b.value(weight, weight_index), b.shape(weight))
    return Leaf(tensor, (*rows, *ks), b.dtype(weight))


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


def side_by_side(factor: Expr, axis: Axis | None) -> bool:
    """Return whether the elements along ``axis`` are contiguous in the tensor of ``factor``."""
    return axis is not None and isinstance(factor, Leaf) and factor.index[-1].leaves() == (axis,)


def _few_positions(b: Builder, node: Node, index: Index, numbers: Numbers) -> bool:
    """Return whether the outputs are few positions of many taps, in halves: the gradient of another convolution's
    weights. The requested index may start like the result and end before it."""
    shape, samples = b.shape(node_ref(node)), b.shape(node.args[1])[1]
    fixed = all(isinstance(e, int) for e in (*shape, *b.shape(node.args[0])))
    if not fixed or node.dtype not in HALVES or len(numbers.kernel) != 2 or samples == 1:
        return False
    plain = is_plain(index, (*shape[:2], *(ix.extent for ix in index[2:])))
    wide = all(e >= _WIDE and e % 8 == 0 for e in map(extents.fixed, shape[:2]))
    positions = math.prod(extents.fixed(ix.extent) for ix in index[2:])
    many_taps = math.prod(numbers.kernel) >= max(_LEAST_TAPS, positions + 1)
    return plain and wide and many_taps and positions <= _MOST_POSITIONS


def _by_positions(b: Builder, node: Node, index: Index, source: Ref, weight: Ref, numbers: Numbers) -> Expr:
    """Return the convolution as a product over its channels and taps, which are the samples and positions of the
    convolution whose weight gradient it is. Only the requested outputs are computed."""
    sizes = map(extents.fixed, b.shape(weight)[1:])
    n, *places = (Axis(e) for e in sizes)
    whole = map(extents.fixed, b.shape(source)[2:])
    taps = [
        Tap(place, next(iter(ix.leaves()), None), extents.fixed(ix.extent), d, s, p, size)
        for place, ix, s, d, p, size in zip(
            places, index[2:], numbers.stride, numbers.dilation, numbers.padding, whole, strict=True
        )
    ]
    window_ix = tuple(Ix(tuple(a for a in (t.out, t.k) if a is not None), 0, 1, t) for t in taps)
    x = at_window(b, source, (index[0], Ix((n,)), *window_ix))
    g = at_window(b, weight, (index[1], Ix((n,)), *(Ix((place,)) for place in places)))
    return Win(x, g, dtype=wide(node.dtype), line=node.line, taps=tuple(taps), sums=(n,), turned=True)


def _channels_contiguous(weight: Expr | None, c: Axis | None, name: str, kernel: tuple[int, ...]) -> bool:
    """Return whether the channels that an output sums are contiguous in its weights, the tensor ``name``."""
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


def numbers_of(b: Builder, node: Node) -> Numbers:
    """Return the numbers of any of the convolution operations below.

    Raises:
        DesignError: they are not known before the call, or there is no batch.
    """
    args = [*node.args, *[None] * (9 - len(node.args))]
    if node.aten == "convolution":
        stride, padding, dilation, is_transposed, output_padding, groups = args[3:9]
        transposed = bool(is_transposed)
    elif node.aten in ("conv1d", "conv2d", "conv3d"):
        stride, padding, dilation, groups = args[3:7]
        transposed, output_padding = False, None
    else:  # conv_transpose1d, 2d, 3d
        stride, padding, output_padding, groups, dilation = args[3:8]
        transposed = True
    weight_shape = b.shape(node.args[1])
    kernel = tuple(e for e in weight_shape[2:] if isinstance(e, int))
    if not all(isinstance(e, int) for e in weight_shape) or len(b.shape(node.args[0])) != len(weight_shape):
        raise b.refuse(node, "a convolution needs a batch, and a weight of known shape")
    strides, dilations = spatial(stride, len(kernel), 1), spatial(dilation, len(kernel), 1)
    longer = spatial(output_padding, len(kernel), 0) if transposed else ()
    return Numbers(
        kernel, strides, _padding(b, node, padding, kernel, dilations), dilations, groups or 1, transposed, longer
    )


def node_ref(node: Node) -> Ref:
    return Ref(node.name)


def _channels(b: Builder, ix: Ix, weight: Ref, numbers: Numbers) -> _Channels:
    """Return the channels at the index ``ix`` of the output's channel."""
    first, second = map(extents.fixed, b.shape(weight)[:2])
    groups = numbers.groups
    inside, outside = (first // groups, second) if numbers.transposed else (second, first // groups)
    leaves = ix.leaves()
    if groups > 1 and outside > 1 and len(leaves) == 1:
        leaves[0].split(groups, outside)
        leaves = ix.leaves()
    # the axes before this one are those of the group
    first_out = 0 if groups == 1 else len(leaves) if outside == 1 else 1
    group, out = leaves[:first_out], leaves[first_out:]
    as_matrices = inside * outside > b.options.direct_pairs if groups == 1 else inside >= LEAST_CHANNELS
    return _Channels(inside, outside, group, out, outside > 1 and as_matrices)


def _padding(
    b: Builder, node: Node, stated: Any, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the padding before and after each dimension, stated as numbers, "valid" or "same"."""
    if stated == "valid":
        return (0,) * len(kernel)
    if stated == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        if any(t % 2 for t in totals):
            raise b.refuse(node, "padding that differs on both sides")
        return tuple(t // 2 for t in totals)
    return spatial(stated, len(kernel), 0)


def _packed(
    b: Builder, weight: Ref, numbers: Numbers, out_extents: tuple[Length, ...], inside: int, dtype: str = ""
) -> str:
    """Return the weight stored as [taps..., group, out channel, in channel], so that each tap's matrix is contiguous.

    ``out_extents``: the extents of the axes into which the reader splits the output channels.
    """
    taps, transposed = b.shape(weight)[2:], numbers.transposed
    key = (weight.name, "packed_t" if transposed else "packed")
    *ks, group = (Ix() if e == 1 else Ix((Axis(e),)) for e in (*taps, numbers.groups))
    co, c = Ix(tuple(Axis(e) for e in out_extents)), Ix((Axis(inside),)) if inside > 1 or out_extents else Ix()
    first, second = (group.axes + c.axes, co.axes) if transposed else (group.axes + co.axes, c.axes)
    value = b.value(weight, (Ix(first), Ix(second), *ks))
    value = cast(value, dtype) if dtype else value
    shape = (*taps, numbers.groups, extents.times(list(out_extents)), inside)
    return b.store(key, (*ks, group, co, c), value, shape, Purpose.PACKED)


CONVOLUTIONS: dict[str, Handler] = dict.fromkeys(
    ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    _convolution,
)
