"""Loops over a Dim: one launch whose programs run all steps, with the values passed between steps in tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product
from typing import Any, NamedTuple

from kernellab.capture import Node, Ref
from kernellab.capture.graph import LOOP, Body, Extent, Input, Stacked
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Dot, Expr, Frontier, Leaf, Op, Red, walk
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.normal import Output, share
from kernellab.designer.passes.rewrite import Rewrite
from kernellab.task.formula import Formula, named

#: number of arrangements of equal extents of one value that are tried
_TRIED = 24


@dataclass(frozen=True)
class Steps:
    """The launch of a loop.

    ``starts`` and ``afters`` are the values before the first step and after every step, each at its place in
    ``written``, the tensors after the last step. ``tile_indices`` maps each name to the index of a tile where steps
    find the value; if steps read it at other places than they write it, it alternates between the two halves of a
    temporary tensor (``halves``). ``each`` are stored at every step. ``step`` is the name of the step's number,
    ``count`` the number of steps.
    """

    step: str
    count: Extent
    tile_indices: dict[str, Index]
    starts: tuple[Output, ...]
    afters: tuple[Output, ...]
    each: tuple[Output, ...]
    shapes: dict[str, tuple[Extent, ...]]
    halves: frozenset[str] = frozenset()

    @property
    def tiles(self) -> frozenset[str]:
        """The names of the values that steps find on chip."""
        return frozenset(self.tile_indices) - self.halves

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(o.tensor for o in (*self.afters, *self.each))

    @property
    def leaves(self) -> list[Leaf]:
        """The loads of its steps."""
        visited: dict[int, object] = {}
        return [
            e for o in (*self.afters, *self.each, *self.starts) for e in walk(o.expr, visited) if isinstance(e, Leaf)
        ]

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(e.tensor for e in self.leaves if e.tensor not in self.tile_indices)


@dataclass(frozen=True)
class LoopResult:
    """One result of a loop, as a stored call."""

    loop: Steps
    shape: tuple[Extent, ...]

    @property
    def reads(self) -> frozenset[str]:
        return self.loop.reads


@dataclass(eq=False)
class Walk(Launch):
    """The launch of a loop, which reads the values passed between its steps from tiles."""

    steps: Steps | None = None
    #: the axis of a value that depends on the step's number
    time: Axis = field(default_factory=lambda: Axis(1))

    @property
    def loop(self) -> Steps:
        assert self.steps is not None
        return self.steps

    @property
    def roots(self) -> list[Expr]:
        return [o.expr for o in (*self.loop.starts, *self.loop.afters, *self.loop.each)]

    @property
    def loads(self) -> list[Leaf]:
        return [e for e in super().loads if e.tensor not in self.loop.tiles]


def _loop(b: Builder, node: Node, index: Index, item: int) -> Expr:
    ref = Ref(node.name, item)
    if ref not in b.stored_names:
        _add_loop(b, node)
    return Leaf(b.stored_names[ref], index, b.dtype(ref), node.line)


def _add_loop(b: Builder, node: Node) -> None:
    """Add the launch of a loop, which all of its results share."""
    body: Body = node.keyword("body")
    count, starts, outer = node.args
    for ref in outer:
        if ref.name in b.nodes and _is_work(b, ref):
            b.stop(ref)
    b.nodes |= {n.name: n for n in body.nodes}
    b.steps.add(body.step)
    results = [
        _Result(b.named.get(ref) or f"{node.name}_{k}", b.shape(ref), b.dtype(ref))
        for k, ref in enumerate(Ref(node.name, k) for k in range(len(node.results)))
    ]
    passed, stacked = results[: len(body.before)], results[len(body.after) :]
    b.inputs |= {name: Input(name, -1, r.shape, r.dtype) for name, r in zip(body.before, passed, strict=False)}
    indices = [_index(b, r.shape) for r in passed]
    tile_indices = dict(zip(body.before, indices, strict=True))
    first = [
        Output(r.tensor, index, _start(b, ref, index), r.dtype)
        for r, ref, index in zip(passed, starts, indices, strict=False)
    ]
    cuts_before = len(b.cuts)
    with b.factors_on_chip():  # a factor of a step's product is on chip, like the rest of the step
        afters = [
            Output(r.tensor, index, b.value(ref, index), r.dtype)
            for r, ref, index in zip(passed, body.after, indices, strict=False)
        ]
        each = [_stored_at_each_step(b, r, stack, tile_indices) for r, stack in zip(stacked, body.stacked, strict=True)]
    outputs = share([_in_sums(o) for o in (*afters, *each)])
    _check(b, node, outputs, tile_indices, [c.value for c in b.cuts[cuts_before:]], body.step)
    halves = frozenset(
        e.tensor for o in outputs for e in walk(o.expr) if isinstance(e, Leaf) and _is_moved(e, tile_indices)
    )
    outputs = share([_in_halves(o, halves, half(named(body.step))) for o in outputs])
    shapes = {r.tensor: r.shape for r in results}
    for name, r in zip(body.before, passed, strict=False):
        if name in halves:
            tile_indices[name], shapes[name] = (half(named(body.step)), *tile_indices[name]), (2, *r.shape)
    loop_steps = Steps(
        body.step, count if isinstance(count, int) else count.expr, tile_indices, tuple(share(first)),
        tuple(outputs[: len(afters)]), tuple(outputs[len(afters) :]), shapes, halves,
    )  # fmt: skip
    for k, r in enumerate(results):
        b.stored_names[Ref(node.name, k)] = r.tensor
        b.calls[r.tensor] = LoopResult(loop_steps, r.shape)


class _Result(NamedTuple):
    """The tensor of a loop's result."""

    tensor: str
    shape: tuple[Extent, ...]
    dtype: str


def _stored_at_each_step(b: Builder, result: _Result, stack: Stacked, tile_indices: Mapping[str, Index]) -> Output:
    """Return the output of a value of each step, along the axes in which the fewest of the previous step's values are
    moved."""
    index, value = min(_arranged(b, stack.value, tile_indices), key=lambda tried: _moved(tried[1], tile_indices))
    at = Ix((), stack.place)
    return Output(result.tensor, (*index[: stack.dim], at, *index[stack.dim :]), value, result.dtype)


def _index(b: Builder, shape: tuple[Extent, ...], order: Mapping[Any, Sequence[int]] | None = None) -> Index:
    """Return an index in which the k-th dimension of an extent has that extent's k-th axis, or the one given by
    ``order``."""
    counts: dict[Any, int] = {}
    index = []
    for extent in shape:
        key = extents.product(extent)
        at = counts[key] = counts.get(key, -1) + 1
        axes = _axes(b, extent, max((order or {}).get(key, [at])) + 1 if order else at + 1)
        index.append(Ix() if extent == 1 else Ix((axes[order[key][at] if order else at],)))
    return tuple(index)


def _axes(b: Builder, extent: Extent, count: int) -> list[Axis]:
    """Return the first axes of an extent that no reshape has split."""
    result: list[Axis] = []
    for _ in range(count):
        result.append(b.pick_axis(extent, set(result), whole=True))
    return result


def _arrangements(b: Builder, shape: tuple[Extent, ...], tile_indices: Iterable[Index]) -> Iterator[Index]:
    """Yield the indices of ``shape`` for each choice among the axes along which values of its extents are kept."""
    extents_of = {extents.product(e): e for e in shape if e != 1}
    keys = [extents.product(e) for e in shape]
    kept_axes = [a for index in tile_indices for ix in index for a in ix.leaves()]
    orders = []
    for key in extents_of:
        axis_count = len({a for a in kept_axes if extents.product(a.extent) == key})
        orders.append(list(permutations(range(max(axis_count, keys.count(key))), keys.count(key))))
    default_order = {key: tuple(range(keys.count(key))) for key in keys}
    for orders_chosen in product(*orders):
        yield _index(b, shape, default_order | dict(zip(extents_of, orders_chosen, strict=True)))


def _arranged(b: Builder, ref: Ref, tile_indices: Mapping[str, Index]) -> Iterator[tuple[Index, Expr]]:
    for index in islice(_arrangements(b, b.shape(ref), tile_indices.values()), _TRIED):
        yield index, b.value(ref, index)


def _moved(value: Expr, tile_indices: Mapping[str, Index]) -> int:
    """Return the number of dimensions in which values of the previous step are read along another axis than they are
    kept."""
    reads = [e for e in walk(value) if isinstance(e, Leaf) and e.tensor in tile_indices]
    return sum(ix != kept for e in reads for ix, kept in zip(e.index, tile_indices[e.tensor], strict=True))


def _start(b: Builder, ref: Ref, index: Index) -> Expr:
    value = b.value(ref, index)
    if any(isinstance(e, Frontier) for e in walk(value)):
        return Leaf(b.tensor(ref) if b.is_stored(ref) else b.stored(ref), index, b.dtype(ref))
    return value


def _is_work(b: Builder, ref: Ref) -> bool:
    """Return whether a value is more than pointwise work, which steps can do where they read it."""
    return any(isinstance(e, Frontier) for e in walk(b.value(ref, b.axes_for(b.shape(ref)))))


def _in_sums(o: Output) -> Output:
    """Rewrite matrix products of an output as sums: a step has all of its tiles on chip."""

    def change(e: Expr) -> Expr | None:
        if type(e) is not Dot:
            return None
        wide = e.dtype if e.dtype == "float64" else "float32"
        return Red("sum", Op("mul", (visit(e.a), visit(e.b)), wide, e.line), e.over.leaves(), e.dtype, e.line)

    visit = Rewrite(change)
    return replace(o, expr=visit(o.expr))


def half(step: Extent) -> Ix:
    """Return the index of the half of a temporary tensor in which a step finds the previous step's values."""
    return Ix((), step % 2 if isinstance(step, int) else Formula("%", (step, 2)))


def _is_moved(e: Leaf, tile_indices: Mapping[str, Index]) -> bool:
    """Return whether it reads a value of the previous step at other places than a tile's."""
    return e.tensor in tile_indices and not all(ix.plain for ix in e.index)


def _in_halves(o: Output, halves: Set[str], now: Ix) -> Output:
    """Rewrite an output to read values of the previous step, which have no operands, from a temporary tensor."""

    def change(e: Expr) -> Expr | None:
        return replace(e, index=(now, *e.index)) if isinstance(e, Leaf) and e.tensor in halves else None

    return replace(o, expr=Rewrite(change)(o.expr)) if halves else o


def _check(
    b: Builder, node: Node, outs: Sequence[Output], tile_indices: Mapping[str, Index], stored: list[Expr], step: str
) -> None:
    """Raise NodeError if a step is not work on tiles of the previous step's values."""
    inside = [e for o in outs for e in walk(o.expr)]
    if any(isinstance(e, Frontier) and not isinstance(e, Red) for e in inside):
        raise b.refuse(node, "a step of the loop holds a scan, a window or another operation with a launch to itself")
    stored_exprs = [e for value in stored for e in walk(value)]
    if any(names_step(e, step) or (isinstance(e, Leaf) and e.tensor in tile_indices) for e in stored_exprs):
        raise b.refuse(node, "a value of a step of the loop has to be stored in the middle of the step")
    if any(
        isinstance(e, Leaf) and e.tensor in tile_indices and (e.operands or any(ix.sign < 0 for ix in e.index))
        for e in inside
    ):
        raise b.refuse(node, "a step of the loop reads what the one before left at places that it computes")
    if any(isinstance(e, Leaf) and any(len(ix.leaves()) > 1 for ix in e.index) for e in inside):
        raise b.refuse(node, "a step of the loop reads a tensor in another shape")


def names_step(e: Expr, step: str) -> bool:
    """Return whether the expression itself, without its operands, contains the step's number."""
    terms: list[Any] = [getattr(e, "expr", None)]
    terms += [ix.offset for ix in getattr(e, "index", ())] if isinstance(e, Leaf) else []
    terms += [e.index.offset] if hasattr(e, "index") and isinstance(e.index, Ix) else []
    return any(isinstance(t, Formula) and step in t.names() for t in terms)


#: operations that run steps, by their name in a graph
STEPS: dict[str, Handler] = {LOOP.split(".")[1]: _loop}
