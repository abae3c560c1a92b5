"""Float32 products on tensor cores: each factor is first stored as narrower floats that add up to it.

A factor becomes two float16 (``halves.py``) if rows can be scaled into their range, else three bfloat16, which have the
range of float32. A float32 has 24 bits of mantissa and a bfloat16 has 8, so x = hi + mid + lo. Six of the nine products
of such parts give the product of two float32 to about 2^-24; the other three are below that. Splitting in separate
passes costs ten bytes per element once, and leaves only loads and tensor cores in the product's loop. The parts are
stored in rows of whole 128-byte lines, so that factors of any shape are read at full speed.

The six products of one step are summed separately and then added to the accumulator: tensor cores that accumulate the
whole chain round towards zero. Measured on an H200 against float64, 4096^3: 2.1e-7 (2.8e-5 without; eager 1.1e-6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.expr import Attend, Dot, Expr, Inner, Leaf, Op
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Layout, Output, Purpose
from kernellab.designer.passes.rewrite import Rewrite, with_product
from kernellab.designer.passes.split.halves import in_halves
from kernellab.designer.passes.split.lines import in_memory_order, whole_lines, wider
from kernellab.target import Chip

#: share of the tensor cores' rate that the products reach if they split on the fly, and if the parts are stored
ON_THE_FLY, STORED = 0.55, 0.85
_SPLIT = (LaunchKind.PRODUCT, LaunchKind.ATTENTION)


@dataclass(frozen=True)
class Representation:
    """A representation of a float32 in parts: the parts' dtype as chips name it, and the number of products of parts.

    ``bytes_per_element`` are moved for each split element; ``longest_single_step`` is the longest sum for which
    splitting never pays: such a product is one step, dominated by storing its result. ``launches`` is the host time in
    seconds of the launches that split.
    """

    dtype: str
    products: int
    bytes_per_element: int
    longest_single_step: int
    launches: float = 0.0


#: three bfloat16, read once and written; and two float16, which are read twice
THIRDS, HALVES = Representation("bf16", 6, 10, 64), Representation("f16", 3, 12, 16, 3e-5)


def in_planes(plan: Plan, size: Callable[[Axis], int], chip: Chip, exact: Callable[[Launch], bool]) -> Plan:
    """Split the factors before each product that gains by it.

    ``C = A @ B`` becomes ``A_hi, A_mid, A_lo = split(A)``, the same for B, and C the sum of six products of bf16 parts.
    ``exact``: whether the product is one of float32 without a stated lower precision. Shapes must be fixed.
    """
    layout = plan.layout.copied()
    launches: list[Launch] = []
    for k in plan.launches:
        launches += _with_stored_parts(k, size, chip, layout) if k.kind in _SPLIT and exact(k) else [k]
    return Plan(tuple(launches), layout)


def _with_stored_parts(k: Launch, size: Callable[[Axis], int], chip: Chip, layout: Layout) -> list[Launch]:
    """Return ``k`` with the launches that split its factors if that is faster."""
    if k.kind is LaunchKind.ATTENTION:
        return _split_attention(k, k.attention, layout) if _pays(k.product, size, chip, THIRDS) else [k]
    if _pays(k.product, size, chip, HALVES) and (halved := in_halves(k, k.product, layout)) is not None:
        return halved
    return _split(k, k.product, layout) if _pays(k.product, size, chip, THIRDS) else [k]


def _pays(dot: Dot, size: Callable[[Axis], int], chip: Chip, form: Representation) -> bool:
    """Return whether the time that the tensor cores save exceeds that of storing the parts."""
    free = Free()
    products: list[Dot | Inner] = [dot.inner, dot] if isinstance(dot, Attend) else [dot]
    factors = (dot.inner.a, dot.inner.b, dot.b) if isinstance(dot, Attend) else (dot.a, dot.b)
    sides = [free(factor) for factor in factors]
    if not isinstance(dot, Attend) and (len(dot.axes) != 1 or size(dot.axes[0]) <= form.longest_single_step):
        return False
    if any(not isinstance(a.extent, int) for side in sides for a in side):
        return False
    rate_on_the_fly = chip.peak_flops.get("bf16", 0.0) / THIRDS.products
    rate = chip.peak_flops.get(form.dtype, 0.0) / form.products
    if not rate or rate < 1.2 * chip.peak_flops.get("f32", rate) or not chip.bandwidth:
        return False
    flops = sum(2.0 * math.prod(size(a) for a in free(p.a) | free(p.b)) for p in products)
    saved = flops * (1 / (rate_on_the_fly * ON_THE_FLY) - 1 / (rate * STORED)) if rate_on_the_fly else math.inf
    moved = form.bytes_per_element * sum(math.prod(size(a) for a in side) for side in sides)
    return saved > 1.5 * moved / chip.bandwidth + form.launches


def _split(k: Launch, dot: Dot, layout: Layout) -> list[Launch]:
    """Return the launches that store the parts of both factors, and the product of these parts."""
    split = _SplitFactors(layout)
    a, b = split.parts(dot.a, dot), split.parts(dot.b, dot)
    parts_dot = Dot(a[0], b[0], dot.over, dot.dtype, dot.line, parts=(*a[1:], *b[1:]))
    return [*split.launches, with_product(k, parts_dot)]


def _split_attention(k: Launch, att: Attend, layout: Layout) -> list[Launch]:
    """Return the launches that store the parts of queries, keys and values, and the attention over these."""
    inner = att.inner
    split = _SplitFactors(layout)
    queries, keys, values = split.parts(inner.a, inner), split.parts(inner.b, inner), split.parts(att.b, att)
    parts_inner = replace(inner, a=queries[0], b=keys[0], parts=(*queries[1:], *keys[1:]))
    scores = Rewrite(lambda e: parts_inner if e is inner else None)(att.a)
    parts_attention = replace(att, a=scores, b=values[0], parts=values[1:])
    return [*split.launches, with_product(k, parts_attention)]


class _SplitFactors:
    """The launches that store factors in three parts each; a factor that two products share is stored once."""

    def __init__(self, layout: Layout) -> None:
        self.launches: list[Launch] = []
        self._layout = layout
        self._parts: dict[int, tuple[Leaf, ...]] = {}

    def parts(self, factor: Expr, product: Dot | Inner) -> tuple[Leaf, ...]:
        """Return the three parts of a factor of ``product``, highest first."""
        if id(factor) not in self._parts:
            self._parts[id(factor)] = self._store(factor, product)
        return self._parts[id(factor)]

    def _store(self, factor: Expr, product: Dot | Inner) -> tuple[Leaf, ...]:
        layout = self._layout
        *outer, last = in_memory_order(factor, product)
        wide = Axis(whole_lines(last.extent))
        launch = Launch(LaunchKind.POINTWISE, frozenset([*outer, wide]), frozenset(), title="split")
        self.launches.append(launch)
        stem = _unused_stem(factor.tensor if isinstance(factor, Leaf) else "factor", layout)
        written = (*(Ix((a,)) for a in outer), Ix((wide,)))
        read = (*(Ix((a,)) for a in outer), Ix((last,)))
        leaves = []
        rest = wider(factor, last, wide, layout)
        for word in ("hi", "mid", "lo"):
            part = Op("cast", (rest,), "bfloat16")
            rest = Op("sub", (rest, Op("cast", (part,), "float32")), "float32")
            name = f"{stem}_{word}"
            layout.views[name] = tuple(a.extent for a in (*outer, wide))
            layout.dtypes[name] = "bfloat16"
            launch.outs.append(Output(name, written, part, "bfloat16", purpose=Purpose.PARTS))
            leaves.append(Leaf(name, read, "bfloat16"))
        return tuple(leaves)


def _unused_stem(base: str, layout: Layout) -> str:
    """Return ``base``, with a number from 2 if tensors of parts have that name."""
    stem, count = base, 2
    while f"{stem}_hi" in layout.views:
        stem, count = f"{base}{count}", count + 1
    return stem
