"""Float32 windows on tensor cores in float16, which has as many mantissa bits as TF32 and twice its rate.

The copy and the packing before a window store each factor as float16, rounded like TF32. If the products must be exact
in float32, they store two float16 values that add up to the factor, and three products emulate one (:mod:`.halves`).
Since the range of float16 is too small, each sample of the input and the weights of each output channel are first
scaled by a power of two, which is exact, and the sums are scaled back. An element then has TF32's precision down to
2^-27 of the largest of its sample, and is off by 2^-38 of that below. Finding the largest element reads the input once
more, so a window gains only if its products take longer than that.

Measured on an H100, convolutions of 64 to 128 channels with 3 x 3 taps: 1.84 ms where TF32 took 2.46, 0.45 and 0.61.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.expr import Expr, Leaf, Op, Win
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Layout, Output, Purpose
from kernellab.designer.ir.scaling import NARROW, WIDE, down, in_two, largest, up
from kernellab.designer.passes.rewrite import with_product
from kernellab.designer.passes.round_tf32 import factors, rounded, serves
from kernellab.target import Chip

#: share of the tensor cores' rate that windows over a copy reach
_REACHED = 0.55
#: host time in seconds of the launches that find the largest elements, four of 15 us: many small windows in sequence
#: wait for it
_LAUNCHES = 6e-5


def windows_in_halves(plan: Plan, size: Callable[[Axis], int], chip: Chip, products: Callable[[Launch], int]) -> Plan:
    """Store the factors of each window over a copy in float16 if that is faster.

    ``products``: the number of narrower products that compute each of a window's, 1 for TF32 and 0 if it multiplies
    otherwise. A window whose factors another launch reads too keeps them unchanged.
    """
    if not chip.peak_flops.get("f16") or not chip.bandwidth:
        return plan
    layout = plan.layout.copied()
    scale_launches: dict[int, list[Launch]] = {}
    replacements: dict[int, Launch] = {}
    for k in plan.launches:
        stored = _stored_factors(k, plan, layout) if _is_over_copy(k) else None
        count = products(k) if stored is not None else 0
        if stored is None or not count or not _gains(k, stored.source, size, chip, count):
            continue
        copy, packing, backward = stored.copy, stored.packing, k.window.backward
        image, weights = _Scaled.image(stored.source, copy, layout), _Scaled.weights(packing, k.window, layout)
        scale_launches[id(copy)], scale_launches[id(packing)] = image.launches, weights.launches
        replacements[id(copy)] = _storing(copy, image, count, backward, layout)
        replacements[id(packing)] = _storing(packing, weights, count, backward, layout)
        replacements[id(k)] = _reading(k, image, weights, count, layout)
    launches = [
        planned for k in plan.launches for planned in (*scale_launches.get(id(k), []), replacements.get(id(k), k))
    ]
    return Plan(tuple(launches), layout)


def _is_over_copy(k: Launch) -> bool:
    return k.kind is LaunchKind.WINDOW and k.window.packed and k.window.last and not k.window.parts


class _StoredFactors(NamedTuple):
    """The launches that store a window's factors, and the tensor that the copy reads."""

    copy: Launch
    packing: Launch
    source: Leaf


def _stored_factors(k: Launch, plan: Plan, layout: Layout) -> _StoredFactors | None:
    """Return what stores the factors of a window; None if another launch reads them, or a scale has no place."""
    writers = {layout.name(o.tensor): j for j in plan.launches if serves(j) for o in j.outs if o.dtype == WIDE}
    tensors = [layout.name(e.tensor) for e in factors(k)]
    readers = {id(j) for j in plan.launches if any(layout.name(e.tensor) in tensors for e in j.loads)}
    if len(tensors) != 2 or readers != {id(k)}:
        return None
    copy, packing = (writers.get(tensor) for tensor in tensors)
    if copy is None or packing is None or copy is packing or len(packing.outs) != 1:
        return None
    source = _source(copy, layout)
    return None if source is None else _StoredFactors(copy, packing, source)


def _source(copy: Launch, layout: Layout) -> Leaf | None:
    """Return the tensor that a copy reads, if its first dimension is that of the samples."""
    (out,) = copy.outs if len(copy.outs) == 1 else (None,)
    if out is None or not isinstance(out.expr, Leaf) or out.expr.operands or not out.index[0].leaves():
        return None
    first = out.expr.index[0]
    view = layout.views.get(out.expr.tensor, ())
    whole = first.plain and first.leaves() == out.index[0].leaves()
    return out.expr if whole and len(view) > 2 and all(isinstance(n, int) for n in view) else None


def _gains(k: Launch, source: Leaf, size: Callable[[Axis], int], chip: Chip, count: int) -> bool:
    """Return whether the time saved by faster products exceeds the time to find the largest elements."""
    win, free = k.window, Free()
    positions = math.prod(size(a) for a in k.par)
    steps = math.prod(tap.kernel for tap in win.taps)
    phases = math.prod(tap.stride for tap in win.taps if tap.transposed)
    flops = 2.0 * count * positions * max(1, steps // phases) * size(win.sums[0])
    tf32 = chip.peak_flops.get("tf32", 0.0) or chip.peak_flops["f16"] / 2
    saved = flops / _REACHED * (1 / tf32 - 1 / chip.peak_flops["f16"])
    copied = 4.0 * math.prod(size(a) for a in free(win.a))
    # halves are written and read instead of whole elements
    saved += (1.0 if count == 1 else 0.0) * copied / chip.bandwidth
    read = 4.0 * math.prod(_elements(ix) for ix in source.index)
    return saved > 1.5 * (read / chip.bandwidth) + _LAUNCHES


def _elements(ix: Ix) -> int:
    if ix.win is not None:
        return extents.fixed(ix.win.size)
    return math.prod(extents.fixed(a.extent) for a in ix.leaves())


@dataclass(frozen=True)
class _Scaled:
    """The scaling of a factor: the launches that store the scales, ``down`` for the copy or packing, and ``up`` for the
    window."""

    launches: list[Launch]
    down: Leaf
    up: Leaf

    @classmethod
    def image(cls, source: Leaf, copy: Launch, layout: Layout) -> _Scaled:
        """Scale each sample by its largest element, which is first computed per channel."""
        samples, channels, *rest = (extents.fixed(n) for n in layout.views[source.tensor])
        flat = _seen_as(source.tensor, (samples, channels, math.prod(rest)), layout)
        n, c, at = Axis(samples), Axis(channels), Axis(math.prod(rest))
        sizes_tensor = layout.fresh(f"{layout.name(source.tensor)}_sizes")
        first = _largest(Leaf(flat, (Ix((n,)), Ix((c,)), Ix((at,))), WIDE), (n, c), (at,), sizes_tensor, layout)
        n, c = Axis(samples), Axis(channels)
        stem = layout.name(source.tensor)
        scales = _scales(Leaf(sizes_tensor, (Ix((n,)), Ix((c,))), WIDE), (n,), (c,), stem, layout)
        sample = copy.outs[0].index[:1]
        return cls([first, scales.launch], Leaf(scales.down, sample, WIDE), Leaf(scales.up, sample, WIDE))

    @classmethod
    def weights(cls, packing: Launch, win: Win, layout: Layout) -> _Scaled:
        """Scale the weights of each output channel if these are contiguous; else all by one factor."""
        value, stored = packing.outs[0].expr, packing.outs[0].index
        source = packing.loads[0]
        view = [extents.fixed(n) for n in layout.views[source.tensor]]
        stem = layout.name(source.tensor)
        flat = _seen_as(source.tensor, (view[0], math.prod(view[1:])), layout)
        rows, at = Axis(view[0]), Axis(math.prod(view[1:]))
        leaf = Leaf(flat, (Ix((rows,)), Ix((at,))), WIDE)
        # the last but one dimension of the stored tensor is the output channel of a group
        channel = stored[-2].leaves() if len(stored) > 1 else ()
        by_channel = isinstance(value, Leaf) and value.index[0].plain and value.index[0].leaves() == channel
        if by_channel and len(channel) == 1:
            scales = _scales(leaf, (rows,), (at,), stem, layout)
            window_channel = win.b.index[-2] if isinstance(win.b, Leaf) else Ix()
            down, up = Leaf(scales.down, stored[-2:-1], WIDE), Leaf(scales.up, (window_channel,), WIDE)
            return cls([scales.launch], down, up)
        sizes_tensor = layout.fresh(f"{stem}_sizes")
        first = _largest(leaf, (rows,), (at,), sizes_tensor, layout)
        rows = Axis(view[0])
        scales = _scales(Leaf(sizes_tensor, (Ix((rows,)),), WIDE), (), (rows,), stem, layout)
        return cls([first, scales.launch], Leaf(scales.down, (), WIDE), Leaf(scales.up, (), WIDE))


def _seen_as(tensor: str, view: tuple[int, ...], layout: Layout) -> str:
    """Return a name that refers to ``tensor`` in another shape."""
    tensor_name = layout.name(tensor)
    names = [tensor_name, *(n for n, t in layout.seconds.items() if t == tensor_name)]
    name = next((n for n in names if layout.views.get(n) == view), "")
    if not name:
        name = layout.fresh(f"{tensor_name}_seen{len(names)}")
        layout.seconds[name] = tensor_name
        layout.views[name], layout.dtypes[name] = view, layout.dtypes[tensor_name]
    return name


def _largest(value: Leaf, kept: tuple[Axis, ...], over: tuple[Axis, ...], name: str, layout: Layout) -> Launch:
    """Return a launch that stores the largest finite magnitude along ``over``."""
    launch = Launch(LaunchKind.REDUCTION, frozenset(kept), frozenset(over), title="sizes")
    top = largest(value, over)
    launch.reds.append(top)
    layout.views[name] = tuple(a.extent for a in kept) or (1,)
    layout.dtypes[name] = WIDE
    launch.outs.append(Output(name, tuple(Ix((a,)) for a in kept), top, WIDE))
    return launch


class _Scales(NamedTuple):
    """A launch that stores powers of two, and the tensors of those that scale to float16 and back."""

    launch: Launch
    down: str
    up: str


def _scales(value: Leaf, kept: tuple[Axis, ...], over: tuple[Axis, ...], stem: str, layout: Layout) -> _Scales:
    """Return a launch that stores the powers of two that scale the elements along ``over`` to float16, and back."""
    launch = Launch(LaunchKind.REDUCTION, frozenset(kept), frozenset(over), title="scales")
    top = largest(value, over)
    launch.reds.append(top)
    names = (layout.fresh(f"{stem}_down"), layout.fresh(f"{stem}_up"))
    index = tuple(Ix((a,)) for a in kept)
    for name, scale in zip(names, (down(top), up(top)), strict=True):
        layout.views[name] = tuple(a.extent for a in kept) or (1,)
        layout.dtypes[name] = WIDE
        launch.outs.append(Output(name, index, scale, WIDE, purpose=Purpose.SCALES))
    return _Scales(launch, *names)


def _storing(k: Launch, scaled: _Scaled, count: int, to_even: bool, layout: Layout) -> Launch:
    """Return a copy or packing that stores its single output as float16."""
    (out,) = k.outs
    value = Op("mul", (out.expr, scaled.down), WIDE)
    layout.dtypes[out.tensor] = NARROW
    if count == 1:
        # float16 itself rounds ties to even, as transposed convolutions do
        nearest: Expr = value if to_even else rounded(value)
        return replace(k, outs=[replace(out, expr=Op("cast", (nearest,), NARROW), dtype=NARROW)])
    high, rest = in_two(value)
    low = _low(out.tensor, layout)
    return replace(k, outs=[replace(out, expr=high, dtype=NARROW), replace(out, tensor=low, expr=rest, dtype=NARROW)])


def _low(tensor: str, layout: Layout) -> str:
    """Return the tensor of the lower halves of ``tensor``, in the same shape."""
    tensor_name, name = layout.name(tensor), f"{tensor}_low"
    layout.views[name], layout.dtypes[name] = layout.views[tensor], NARROW
    if tensor != tensor_name:
        layout.seconds[name] = f"{tensor_name}_low"
    return name


def _reading(k: Launch, image: _Scaled, weights: _Scaled, count: int, layout: Layout) -> Launch:
    """Return the window over float16, with its sums scaled back."""
    win = k.window
    a, b = (replace(e, dtype=NARROW) for e in (win.a, win.b) if isinstance(e, Leaf))
    for e in (a, b):
        layout.dtypes[e.tensor] = NARROW
    parts = () if count == 1 else tuple(replace(e, tensor=_low(e.tensor, layout)) for e in (a, b))
    rewritten = replace(win, a=a, b=b, parts=parts, scaled=True)
    samples = a.index[0]
    back = Op("mul", (replace(image.up, index=(samples,)), weights.up), WIDE)
    return with_product(k, rewritten, Op("mul", (rewritten, back), WIDE))


__all__ = ["windows_in_halves"]
