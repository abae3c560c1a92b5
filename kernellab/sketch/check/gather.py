"""Races, coverage and edges for indices that are tiles, whose values are unknown here.

So a scatter may write an element twice unless its author states ``unique``; no other statement of the launch may access
its target; and a padded index must not name an element of the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kernellab.records import Diagnostic
from kernellab.sketch.program import affine
from kernellab.sketch.program.access import Access, cover
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import (
    AtomicAdd,
    If,
    Kernel,
    Loop,
    Point,
    Program,
    Range,
    Region,
    Scatter,
    Statement,
    Store,
    Tensor,
    TensorRole,
    Touch,
)
from kernellab.sketch.program.walk import gathers
from kernellab.sketch.syntax.messages import diagnostic_at
from kernellab.sketch.syntax.tree import Span

Items = tuple[Point | Range | None, ...]


def check_scatters(program: Program) -> list[Diagnostic]:
    """Return diagnostics of scatters that may conflict with themselves or others, and of outputs that they may leave
    unwritten."""
    diagnostics: list[Diagnostic] = []
    stored: set[str] = set()
    scattered: dict[str, Scatter] = {}
    for kernel in program.kernels:
        touched = list(_touched(kernel.body, ()))
        diagnostics += _mixed_uses(touched)
        for stmt, loops in touched:
            if isinstance(stmt, Scatter):
                diagnostics += _check_scatter(stmt, loops)
                if stmt.whole:
                    stored.add(stmt.tensor.name)
                elif not stmt.add:
                    scattered.setdefault(stmt.tensor.name, stmt)
            elif isinstance(stmt, (Store, AtomicAdd)):
                stored.add(stmt.region.tensor.name)
    for name, stmt in scattered.items():
        if stmt.tensor.role is TensorRole.OUT and name not in stored:
            remedy = (
                f"Store to all of {name} in a sketch before, add with atomic_add to what then begins at 0, or promise "
                "whole=true where the indices name each element."
            )
            what = "the indices may leave elements out"
            diagnostics.append(diagnostic_at("not-covered", stmt.span, name=name, what=what, remedy=remedy))
    return diagnostics


def scatter_accesses(kernel: Kernel) -> Iterator[Access]:
    """Yield each gather and scatter as the access of its slices and scalars; a tile index stays inside."""
    for stmt, loops in _touched(kernel.body, ()):
        if isinstance(stmt, Scatter):
            kind = Touch.ADD if stmt.add else Touch.WRITE
            yield Access(kind, box(stmt.tensor, stmt.items), loops, (), stmt.span)
        for value in gathers(stmt):
            tensor, items = value.attr("tensor"), value.attr("items")
            assert isinstance(tensor, Tensor) and isinstance(items, tuple)
            yield Access(Touch.READ, box(tensor, items), loops, (), stmt.span)


def box(tensor: Tensor, items: Items) -> Region:
    """Return the box around all elements that the items may name."""
    whole = (Range(num(0), dim, num(1)) for dim in tensor.shape)
    return Region(tensor, tuple(item or all_of for item, all_of in zip(items, whole, strict=True)))


class _Inner(NamedTuple):
    """A statement that is not a loop, and the loops around it."""

    stmt: Statement
    loops: tuple[Loop, ...]


def _touched(body: tuple[Statement, ...], loops: tuple[Loop, ...]) -> Iterator[_Inner]:
    """Yield every statement that is not a loop."""
    for stmt in body:
        if isinstance(stmt, Loop):
            yield from _touched(stmt.body, (*loops, stmt))
        elif isinstance(stmt, If):
            yield from _touched((*stmt.then, *stmt.orelse), loops)
        else:
            yield _Inner(stmt, loops)


def _check_scatter(stmt: Scatter, loops: tuple[Loop, ...]) -> Iterator[Diagnostic]:
    """Yield the diagnostics of a scatter by itself."""
    name = stmt.tensor.name
    if not stmt.add and not stmt.unique:
        yield diagnostic_at("scatter-collides", stmt.span, tensor=name)
    elif stmt.add and stmt.tensor.dtype.is_float and not keeps_apart(stmt, loops):
        yield diagnostic_at("unordered-add", stmt.span, tensor=name, dtype=stmt.tensor.dtype.value)


def keeps_apart(stmt: Scatter, loops: tuple[Loop, ...]) -> bool:
    """Do parallel iterations add to different elements for any values of the indices?

    They do if every parallel loop moves a slice or scalar of the target by at least its extent."""
    parallel = [loop for loop in loops if loop.hints.parallel and affine.constant(loop.trips) not in (0, 1)]
    covers = [cover(item, loops) for item in stmt.items if item is not None]
    apart = {var for c in covers if c is not None for var in c.apart}
    return all(loop.var in apart for loop in parallel)


#: how a slice of a tensor is used, in words
_USES = {Touch.READ: "loaded", Touch.WRITE: "stored to", Touch.ADD: "added to"}


def _mixed_uses(touched: list[_Inner]) -> Iterator[Diagnostic]:
    """Yield diagnostics of tensors with a tile index in a launch that also accesses them in another way."""
    uses_of: dict[str, set[str]] = {}
    spans: dict[tuple[str, str], Span] = {}

    def note(name: str, use: str, stmt: Statement) -> None:
        uses_of.setdefault(name, set()).add(use)
        spans.setdefault((name, use), stmt.span)

    for stmt, _ in touched:
        if isinstance(stmt, Scatter):
            note(stmt.tensor.name, "added to at indices" if stmt.add else "scattered to", stmt)
        for region, touch in stmt.touches:
            note(region.tensor.name, _USES[touch], stmt)
        for value in gathers(stmt):
            tensor = value.attr("tensor")
            assert isinstance(tensor, Tensor)
            note(tensor.name, "gathered from", stmt)
    for name, uses in uses_of.items():
        at_indices = uses & {"added to at indices", "scattered to"}
        if at_indices:
            others = uses - at_indices
        else:
            # reads do not disturb each other
            at_indices = uses & {"gathered from"}
            others = uses - {"loaded", "gathered from"}
        if at_indices and others:
            use = min(at_indices)
            yield diagnostic_at("scatter-meets", spans[name, use], tensor=name, way=use, other=min(others))
