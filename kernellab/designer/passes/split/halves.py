"""Float32 products on tensor cores: each factor is first stored as two float16 values that add up to it.

Two float16 hold 22 bits of mantissa, and three of the four products of such parts give the product of two float32 to
about 2^-22 (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022): half the work of six
products of bfloat16. Since the range of float16 is too small, factors are first scaled by powers of two, which is
exact:

- where the summed axis is a factor's contiguous one, each of its rows by its largest element; the result's row is
  scaled back before it is stored,
- where it is not, each position along the summed axis, and the other factor is scaled back there before it is split.

An element thus keeps 22 bits down to 2^-17 of the largest that it is summed with, and is off by 2^-40 of that below.
The three products of one step are summed separately and then added to the accumulator: tensor cores that accumulate the
whole chain round towards zero. Measured on an H100 against float64, 4096^3: 2.0e-7 (1.4e-5 without; eager 1.2e-6).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.expr import Dot, Expr, Leaf, Op, walk
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.ir.normal import Layout, Output, Purpose
from kernellab.designer.ir.scaling import NARROW, WIDE, down, in_two, largest, up
from kernellab.designer.passes.rewrite import with_product
from kernellab.designer.passes.split.lines import in_memory_order, stem_of, turned, whole_lines, wider


def in_halves(k: Launch, dot: Dot, layout: Layout) -> list[Launch] | None:
    """Return the launches that store both factors of ``dot``, which ``k`` multiplies, as halves, and their product.

    None if a factor's memory order ends neither with the summed axis nor with the axes that only it has.
    """
    sides = (_Side.of(dot.a, dot), _Side.of(dot.b, dot))
    if None in sides:
        return None
    first, second = (side for side in sides if side is not None)
    launches: list[Launch] = []
    if not first.along and not second.along:
        transpose_launch, first = _turned(first, dot, layout)
        launches.append(transpose_launch)
    across = next((side for side in (first, second) if not side.along), None)
    parts_of_side: dict[int, _Parts] = {}
    # the factor scaled per position along the sum comes first: the other one is scaled back there
    for side in sorted((first, second), key=lambda side: side.along):
        back = parts_of_side[id(across)].scale if across is not None and side is not across else None
        launch, parts_of_side[id(side)] = _stored(side, back, layout)
        launches.append(launch)
    return [*launches, _product(k, dot, (parts_of_side[id(first)], parts_of_side[id(second)]))]


@dataclass(frozen=True, eq=False)
class _Side:
    """A factor: its axes in memory order, the axes only it has, and whether the summed axis is the contiguous one."""

    value: Expr
    outer: tuple[Axis, ...]
    last: Axis
    own: frozenset[Axis]
    along: bool

    @classmethod
    def of(cls, value: Expr, dot: Dot) -> _Side | None:
        free = Free()
        (over,) = dot.axes
        own_axes = free(value) - (free(dot.a) & free(dot.b))
        *outer, last = order = in_memory_order(value, dot)
        if isinstance(value, Leaf):
            along = last is over
        else:
            leaves = [e for e in walk(value, inside=False) if isinstance(e, Leaf) and len(e.index) > 1]
            ends = {leaf.index[-1].leaves()[-1:] for leaf in leaves}
            along = ends == {(over,)}
            if not along and len(own_axes) == 1:
                # in the order of most of its elements
                order = (*(a for a in order if a not in own_axes), *own_axes)
                *outer, last = order
        if not along and set(order[len(order) - len(own_axes) :]) != own_axes:
            return None
        return cls(value, tuple(outer), last, own_axes, along)


@dataclass(frozen=True)
class _Parts:
    """The stored parts of a factor: the halves as the product reads them, and the factor that scales a row or position
    back."""

    high: Leaf
    low: Leaf
    scale: Leaf
    along: bool


def _turned(side: _Side, dot: Dot, layout: Layout) -> tuple[Launch, _Side]:
    """Return a launch that stores a factor with the summed axis last, and that factor."""
    (over,) = dot.axes
    order = (*(a for a in (*side.outer, side.last) if a is not over), over)
    launch, leaf = turned(side.value, order, WIDE, layout)
    return launch, _Side(leaf, order[:-1], over, side.own, True)


def _stored(side: _Side, back: Leaf | None, layout: Layout) -> tuple[Launch, _Parts]:
    """Return the launch that stores a factor's halves; ``back``: the scales of the positions along the sum in the
    other."""
    wide = Axis(whole_lines(side.last.extent))
    value = wider(side.value, side.last, wide, layout)
    if back is not None:
        value = Op("mul", (value, wider(back, side.last, wide, layout)), WIDE)
    reduced = (wide,) if side.along else (*(a for a in side.outer if a in side.own), wide)
    row_axes = [a for a in side.outer if a not in reduced]
    launch = Launch(LaunchKind.REDUCTION, frozenset(row_axes), frozenset(reduced), title="split")
    top = largest(value, reduced)
    launch.reds.append(top)
    scaled = Op("mul", (value, down(top)), WIDE)
    high, low = in_two(scaled)
    stem = stem_of(side.value)
    written, read = ((*(Ix((a,)) for a in side.outer), Ix((last,))) for last in (wide, side.last))
    leaves = []
    for word, part in (("hi", high), ("lo", low)):
        name = layout.fresh(f"{stem}_{word}")
        layout.views[name] = tuple(a.extent for a in (*side.outer, wide))
        layout.dtypes[name] = NARROW
        launch.outs.append(Output(name, written, part, NARROW, purpose=Purpose.HALVES))
        leaves.append(Leaf(name, read, NARROW))
    name, index = layout.fresh(f"{stem}_scale"), tuple(Ix((a,)) for a in row_axes)
    layout.views[name] = tuple(a.extent for a in row_axes) or (1,)
    layout.dtypes[name] = WIDE
    launch.outs.append(Output(name, index, up(top), WIDE, purpose=Purpose.HALVES))
    return launch, _Parts(leaves[0], leaves[1], Leaf(name, index, WIDE), side.along)


def _product(k: Launch, dot: Dot, parts: tuple[_Parts, _Parts]) -> Launch:
    """Return ``k`` over the halves, with its sums scaled back."""
    a, b = parts
    halves_dot = Dot(a.high, b.high, dot.over, dot.dtype, dot.line, parts=(a.low, b.low))
    scales: list[Expr] = [p.scale for p in parts if p.along]
    scale = scales[0] if len(scales) == 1 else Op("mul", tuple(scales), WIDE)
    return with_product(k, halves_dot, Op("mul", (halves_dot, scale), WIDE))
