"""Windows over a copy of their input in which the summed elements of each position are contiguous.

Tensor cores accept float32 factors only along the summed axis, and a warp loads 16 bytes per lane only if they are
contiguous; in (batch, channel, rows, columns) neither holds. The input is therefore copied once as (batch, rows,
columns, channels), which moves two bytes for each byte read. With few channels the copy also unfolds taps: their input
elements are placed next to the channels, as one longer summed axis, and the window keeps the other taps. The chip's
rates determine how many taps are unfolded: each makes the copy longer and the products fuller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from kernellab.designer.frontend.convolutions import side_by_side
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Free, Index, Ix, Tap
from kernellab.designer.ir.expr import Expr, Leaf, Win
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Layout, Output
from kernellab.designer.passes.rewrite import with_product
from kernellab.designer.passes.split.precision import ON_THE_FLY, STORED
from kernellab.target import Chip

#: bytes that one lane loads at once; rows of the copy are multiples of it
_LANE = 16
#: bytes of the dtypes that tensor cores multiply
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
#: share of the tensor cores' rate that a window reaches over its copy, by output channels, and the part of it reached
#: over the original input; measured on an H200 at TF32
_COPIED = {16: 0.2, 32: 0.35, 64: 0.6, 128: 0.7}
_IN_PLACE = {16: 0.5, 32: 0.4, 64: 0.45, 128: 0.6}
#: share of that rate if every second half of a row is loaded separately: on an H200 in place 0.18 ms for 64 x 128 x 56
#: x 56 to 256 channels
_STRIDED = 0.4
#: rate share of float16 windows relative to that of TF32 windows; measured on an H100
_OF_HALVES = 0.75
#: share of the memory's rate that a copy and a window reach
_STREAMED = 0.8
#: the same for a copy that places taps next to channels shorter than a cache sector (32 bytes), which it writes in
#: parts: for rows of at most two sectors, and for longer ones
_SCATTERED = (0.23, 0.1)
#: number of TF32 products that emulate one of float32 (or six of bfloat16, at half the time each)
PRODUCTS = 3
#: largest number of contiguous summed elements in the copy
_LONGEST_ROW = 128


def channels_last(
    plan: Plan,
    size: Callable[[Axis], int],
    chip: Chip,
    splits: Callable[[Launch], bool],
    always: bool = False,
    halves: bool = False,
) -> Plan:
    """Insert a copy before each window that gains by one (``always``: before each that can use one).

    ``window(X)`` becomes ``copy(X -> X_last)``, channels last, and ``window(X_last)``. ``splits``: whether a window's
    float32 products are each computed from narrower ones; the copy then stores each factor in two parts. ``halves``:
    copies may hold float16 in place of float32.
    """
    layout = plan.layout.copied()
    launches: list[Launch] = []
    copies: dict[Hashable, str] = {}
    for k in plan.launches:
        if k.kind is not LaunchKind.WINDOW:
            launches.append(k)
        elif k.window.turned:
            launches += _both_last(k, k.window, layout, copies)
        elif k.window.packed and _lies_last(k.window):
            launches.append(with_product(k, replace(k.window, last=True)))
        elif k.window.packed and _may_copy(k.window):
            unfolded = _unfolding(k, k.window, _Rates(chip, size, splits(k), halves), always)
            launches += [k] if unfolded is None else _copies(k, k.window, unfolded, layout, copies)
        else:
            launches.append(k)
    return Plan(tuple(launches), layout)


def summed_block(extent: int, item: int = 4) -> int:
    """Return the step length along a summed axis of elements of ``item`` bytes: few lanes past its end, and few
    steps."""
    blocks, step = ((16, 32), 6) if item == 4 else ((16, 32, 64), 12)
    return min(blocks, key=lambda b: (math.ceil(extent / b) * (b + step), -b))


def _may_copy(win: Win) -> bool:
    """Return whether the window's factors are tensors of fixed shape in one dtype of tensor cores."""
    fixed = all(isinstance(a.extent, int) for a in Free()(win.a) | Free()(win.b))
    return fixed and isinstance(win.a, Leaf) and isinstance(win.b, Leaf) and win.a.dtype == win.b.dtype in _BYTES


def _lies_last(win: Win) -> bool:
    """Return whether the summed channels are already contiguous in both factors."""
    return len(win.sums) == 1 and all(side_by_side(e, win.sums[0]) for e in (win.a, win.b))


# -- which taps


@dataclass(frozen=True)
class _Rates:
    """Properties that a window's time depends on: the chip, the extents, whether a float32 product consists of several,
    and whether a copy may hold float16 in place of float32."""

    chip: Chip
    size: Callable[[Axis], int]
    split: bool
    halves: bool = False


def _unfolding(k: Launch, win: Win, rates: _Rates, always: bool) -> tuple[Tap, ...] | None:
    """Return the taps that the copy unfolds; None if the window is faster without a copy."""
    least = math.inf if always else _seconds(k, win, None, rates)
    fastest: tuple[Tap, ...] | None = None
    for taps in _choices(win):
        seconds = _seconds(k, win, taps, rates)
        if seconds < least:
            least, fastest = seconds, taps
    return fastest


def _choices(win: Win) -> Iterator[tuple[Tap, ...]]:
    """Yield the sets of taps that a copy may unfold, fewest first."""
    inside = extents.fixed(win.sums[0].extent)
    free = [tap for tap in win.taps if phases(tap) == 1 and tap.k is not None]
    for count in range(len(free) + 1):
        for taps in combinations(free, count):
            if not taps or _row_length(taps, inside, win) <= _LONGEST_ROW:
                yield taps


def _row_length(taps: tuple[Tap, ...], inside: int, win: Win) -> int:
    """Return the number of contiguous summed elements in the copy."""
    lane = _LANE // _BYTES[win.dtype] if win.dtype in _BYTES else 4
    return math.prod(tap.kernel for tap in taps) * -(-inside // lane) * lane


def _seconds(k: Launch, win: Win, taps: tuple[Tap, ...] | None, rates: _Rates) -> float:
    """Estimate the time of the copy and the window from bytes and operations; ``taps`` None: without a copy."""
    assert isinstance(win.a, Leaf)
    chip, size = rates.chip, rates.size
    width = _BYTES[win.a.dtype]
    rate = chip.peak_flops.get("tf32" if width == 4 else "bf16", 0.0) or math.inf
    halves = rates.halves and width == 4 and taps is not None and chip.peak_flops.get("f16", 0.0)
    bandwidth = (chip.bandwidth or math.inf) * _STREAMED
    inside = size(win.sums[0])
    out = math.prod(size(a) for a in Free()(win.b) - Free()(win.a))
    share = next((_COPIED[n] for n in _COPIED if out <= n), _COPIED[128])
    positions = math.prod(size(a) for a in k.par)
    written = width * positions * len(k.outs)
    source = width * inside * math.prod(_extent(ix, size) for ix in win.a.index if not set(ix.leaves()) & set(win.sums))
    tap_count = math.prod(-(-tap.kernel // phases(tap)) for tap in win.taps if taps is None or tap not in taps)
    copying = bandwidth
    if taps is None:
        read, copied, row = source, 0.0, inside
        share *= next((_IN_PLACE[n] for n in _IN_PLACE if out <= n), _IN_PLACE[128])
        if width == 2 and any(tap.stride > 1 and not tap.transposed for tap in win.taps):
            share *= _STRIDED
    else:
        row = _row_length(taps, inside, win)
        read = width * row * math.prod(
            size(ix.win.out) if ix.win is not None and ix.win in taps and ix.win.out else _extent(ix, size)
            for ix in win.a.index
            if not set(ix.leaves()) & set(win.sums)
        )  # fmt: skip
        if rates.split:
            read *= 2
        if halves:
            # the input is read once more, for its largest elements
            rate, read, source = halves * _OF_HALVES, read // 2, 2 * source
        copied = source + read
        if taps and width * _row_length((), inside, win) < 2 * _LANE:
            copying *= _SCATTERED[width * row > 64] / _STREAMED
    # in a copy a step costs about as much as six more elements
    block = summed_block(row)
    summed = -(-row // block) * (block + 6) if taps is not None else max(row, 16)
    flops = 2.0 * positions * tap_count * summed
    if rates.split:
        flops *= PRODUCTS
        share *= ON_THE_FLY if taps is None else 1.0 if halves else STORED
    # a program's stores do not overlap its own products
    return copied / copying + flops / (rate * share) + (read + written) / bandwidth


def _extent(ix: Ix, size: Callable[[Axis], int]) -> int:
    if ix.win is not None:
        return ix.win.size if isinstance(ix.win.size, int) else 1
    return math.prod(size(a) for a in ix.leaves())


# -- the copies


def _both_last(k: Launch, win: Win, layout: Layout, copies: dict[Hashable, str]) -> list[Launch]:
    """Return a copy of each factor whose channels are not contiguous, and the window that reads them."""
    launches: list[Launch] = []

    def last(e: Expr) -> Leaf:
        assert isinstance(e, Leaf)
        (c,) = (a for ix in e.index for a in ix.leaves() if ix.win is None and a in k.par)
        if side_by_side(e, c):
            return e
        copy, first = _input(e, c, (), c, c, layout, copies)
        launches.extend(first)
        return copy

    rewritten = replace(win, a=last(win.a), b=last(win.b))
    return [*launches, with_product(k, rewritten)]


def _copies(
    k: Launch, win: Win, unfolded: tuple[Tap, ...], layout: Layout, copies: dict[Hashable, str]
) -> list[Launch]:
    """Return the copy of the input (and of the weights if their rows change), and the window that reads them."""
    (c,) = win.sums
    assert isinstance(win.a, Leaf) and isinstance(win.b, Leaf)
    inside = extents.fixed(c.extent)
    lane = _LANE // _BYTES[win.a.dtype]
    wide = Axis(-(-inside // lane) * lane)
    row = Axis(math.prod(tap.kernel for tap in unfolded) * extents.fixed(wide.extent))
    x, launches = _input(win.a, c, unfolded, wide, row, layout, copies)
    w = win.b
    if unfolded or wide.extent != inside:
        w, second = _weights(win, unfolded, wide, row, layout)
        launches.append(second)
    else:
        row = c
        x = Leaf(x.tensor, (*x.index[:-1], Ix((c,))), x.dtype, x.line)
    other_taps = tuple(tap for tap in win.taps if tap not in unfolded)
    return [*launches, with_product(k, replace(win, a=x, b=w, taps=other_taps, sums=(row,), last=True))]


def _input(
    source: Leaf,
    c: Axis,
    unfolded: tuple[Tap, ...],
    wide: Axis,
    row: Axis,
    layout: Layout,
    copies: dict[Hashable, str],
) -> tuple[Leaf, list[Launch]]:
    """Return the elements of ``source`` with ``c`` contiguous, and the copy that stores them; one of ``copies`` is
    reused. ``wide`` is the padded channel, ``row`` the unfolded taps and channels of the copy's last dimension."""
    # one entry for each dimension: as the copy writes and reads it, and as the window reads the copy
    written: list[Ix] = []
    read: list[Ix] = []
    here: list[Ix] = []
    shape: list[int] = []
    ks: dict[Tap, Axis] = {tap: Axis(tap.kernel) for tap in unfolded}
    for ix in source.index:
        if c in ix.leaves():
            read.append(Ix((wide,)))
            continue
        tap = ix.win
        if tap is not None and tap in ks:
            out = Axis(tap.out.extent) if tap.out is not None else None
            axes = tuple(a for a in (out, ks[tap]) if a is not None)
            read.append(Ix(axes, 0, 1, replace(tap, out=out, k=ks[tap])))
            written.append(Ix((out,)) if out is not None else Ix())
            here.append(Ix((tap.out,)) if tap.out is not None else Ix())
            shape.append(extents.fixed(out.extent) if out is not None else 1)
            continue
        extent = tap.size if tap is not None else math.prod(extents.fixed(a.extent) for a in ix.leaves())
        axis = Axis(extent)
        read.append(Ix((axis,)) if ix.leaves() or tap is not None else ix)
        written.append(Ix((axis,)) if ix.leaves() or tap is not None else Ix())
        here.append(ix if ix.leaves() or tap is not None else Ix())
        shape.append(extents.fixed(extent))
    place = next(n for n, ix in enumerate(source.index) if c in ix.leaves())
    key = (layout.name(source.tensor), place, (*shape, row.extent), tuple(ks.items()))
    launches: list[Launch] = []
    if key not in copies:
        name = copies[key] = layout.fresh(f"{source.tensor}_last")
        layout.views[name], layout.dtypes[name] = (*shape, row.extent), source.dtype
        value = Leaf(source.tensor, tuple(read), source.dtype, source.line)
        launches.append(_copy(name, tuple(written), tuple(ks.values()), wide, value))
    return Leaf(copies[key], (*here, Ix((row,))), source.dtype, source.line), launches


def _weights(win: Win, unfolded: tuple[Tap, ...], wide: Axis, row: Axis, layout: Layout) -> tuple[Leaf, Launch]:
    """Repack the weights with the unfolded taps next to their channels."""
    packed = win.b
    assert isinstance(packed, Leaf)
    (c,) = win.sums
    unfolded_by_axis = {tap.k: tap for tap in unfolded}
    written: list[Ix] = []
    read: list[Ix] = []
    here: list[Ix] = []
    shape: list[int] = []
    ks: dict[Tap, Axis] = {tap: Axis(tap.kernel) for tap in unfolded}
    for ix in packed.index:
        leaf = ix.leaves()[0] if ix.leaves() else None
        if leaf is c:
            read.append(Ix((wide,)))
        elif leaf is not None and leaf in unfolded_by_axis:
            read.append(Ix((ks[unfolded_by_axis[leaf]],)))
        else:
            axes = (Axis(ix.extent),) if leaf is not None else ()
            read.append(Ix(axes))
            written.append(Ix(axes))
            here.append(ix)
            shape.append(extents.fixed(ix.extent) if leaf is not None else 1)
    name = layout.fresh(f"{win.weights}_rows")
    layout.views[name], layout.dtypes[name] = (*shape, row.extent), packed.dtype
    value = Leaf(packed.tensor, tuple(read), packed.dtype, packed.line)
    copy = _copy(name, tuple(written), tuple(ks.values()), wide, value)
    return Leaf(name, (*here, Ix((row,))), packed.dtype, packed.line), copy


def _copy(name: str, outer: Index, taps: tuple[Axis, ...], wide: Axis, value: Leaf) -> Launch:
    along = (a for ix in outer for a in ix.leaves())
    stored = Output(name, (*outer, Ix((*taps, wide))), value, value.dtype)
    return Launch(LaunchKind.COPY, frozenset((*along, wide)), frozenset(taps), outs=[stored], title="copy")
