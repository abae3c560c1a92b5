"""Sliding windows: the accesses of convolution and pooling, as indices and as one kind of product.

A position of the input is ``out * stride + k * dilation - pad`` (transposed: ``(out + pad - k * dilation) / stride`` if
that is an integer); a :class:`Tap` describes this for one dimension and is part of a Leaf's index. Outside the tensor
the language's edge rule supplies the padding, so no padded copy is made. A :class:`Win` is the sum (or the maximum)
over the taps and, in a convolution, over the channels of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Index, Ix, Tap
from kernellab.designer.ir.expr import Expr, Leaf, Win
from kernellab.errors import DesignError
from kernellab.operations.aten import Role, named

#: number of channels of a group below which a convolution is summed directly, not as a matrix product
LEAST_CHANNELS = 4
#: length of an unfolded window up to which it is read tap by tap, instead of as a row
_LONGEST_UNFOLDED = 32
_VIEWS = frozenset(("unsqueeze", "squeeze", "permute", "transpose", "t")) | named(Role.SAME)


@dataclass
class Window:
    """The spatial part of one operator: ``taps`` by dimension, ``index`` of the input's spatial dimensions."""

    taps: tuple[Tap, ...]
    index: Index = field(default=())

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(t.k for t in self.taps if t.k is not None)


def spatial(given: object, rank: int, default: int) -> tuple[int, ...]:
    """Return one number per spatial dimension from an ATen argument: a number, a sequence of one or several, or
    nothing."""
    items = tuple(given) if isinstance(given, (tuple, list)) else (default if given is None else given,)
    items = items or (default,)
    if not all(isinstance(i, int) for i in items):
        raise DesignError("A window whose numbers are not known before the call has no schedule.", "Fix its sizes.")
    return tuple(int(i) for i in (items * rank if len(items) == 1 else items))


def window(
    sizes: tuple[Extent, ...],
    out: Index,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool = False,
) -> Window:
    """Return the window over dimensions of ``sizes`` at the output index ``out``, which has one plain axis per
    dimension."""
    taps, index = [], []
    for size, ix, k, s, p, d in zip(sizes, out, kernel, stride, pad, dilation, strict=True):
        axis = ix.leaves()[0] if ix.leaves() else None
        if size == 1 and axis is None and k == 1 and p == 0:
            index.append(Ix())
            continue
        inner = Axis(k) if k > 1 else None
        if s == 1 and p == 0 and inner is None and axis is not None and extents.same(axis.extent, size):
            index.append(ix)
            continue
        tap = Tap(axis, inner, k, s, d, p, size, transposed)
        taps.append(tap)
        index.append(Ix(tuple(a for a in (axis, inner) if a is not None), 0, 1, tap))
    return Window(tuple(taps), tuple(index))


def at_window(b: Builder, ref: Ref, index: Index) -> Expr:
    """Return the operand at a window's index: an element of a tensor, which an earlier launch writes if it is
    computed."""
    if _is_view(b, ref):
        value = b.value(ref, index)
        if isinstance(value, Leaf):
            return value
    return Leaf(b.stored(ref), index, b.dtype(ref))


def over_unfolded(b: Builder, node: Node, index: Index, dims: Sequence[int], join: str, dtype: str) -> Expr | None:
    """Return ``x.unfold(-1, size, step)`` reduced over each window, as pooling does. None for another form."""
    view = b.nodes.get(node.args[0].name)
    if view is None or view.name in b.stops or view.op != "aten.unfold.default":
        return None
    source, dim, size, step = view.args[:4]
    last = len(view.shape) - 2
    short = isinstance(size, int) and isinstance(step, int) and 1 < size <= _LONGEST_UNFOLDED
    if not short or list(dims) != [last + 1] or dim % (last + 1) != last or len(index) != last + 1:
        return None
    if not is_plain(index, view.shape[:-1]):
        return None
    w = window((b.shape(source)[last],), index[last:], (size,), (step,), (0,), (1,))
    x = at_window(b, source, (*index[:last], *w.index))
    return Win(x, x, dtype=dtype, line=node.line, taps=w.taps, join=join, pairs=False)


def _is_view(b: Builder, ref: Ref) -> bool:
    """Return whether it is an input or stored, seen through views that neither shift nor split an index."""
    while ref.name not in b.inputs and ref.name not in b.stops:
        node = b.nodes[ref.name]
        if node.op.split(".")[1] not in _VIEWS or not isinstance(node.args[0], Ref):
            return False
        ref = node.args[0]
    return True


def is_plain(out: Index, shape: tuple[Extent, ...], groups: int = 1, channel: int = -1) -> bool:
    """Return whether each dimension runs over a separate axis (the channel's may be split)."""
    for d, (ix, extent) in enumerate(zip(out, shape, strict=True)):
        leaves = ix.leaves()
        if not leaves and extent == 1 and ix.offset == 0:
            continue
        if not leaves or not ix.plain or not extents.same(ix.extent, extent):
            return False
        grouped = groups == 1 or (len(leaves) == 2 and extents.same(leaves[0].extent, groups))
        if len(leaves) != 1 and not (d == channel and grouped):
            return False
    all_axes = [leaf for ix in out for leaf in ix.leaves()]
    return len(all_axes) == len(set(all_axes))


def phases(tap: Tap) -> int:
    """Return the number of classes of output positions that read different taps: the stride of a transposed window."""
    return tap.stride if tap.transposed else 1
