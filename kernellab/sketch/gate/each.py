"""The small twin of a sketch of many launches, launch by launch.

A whole network has one number for many things: 64 channels, 64 heads, a batch of 64. Within one launch there are few.
The tensors that it reads are known from the launches before; a loop over rows of one of them tells how many rows there
are of what it writes; what a window leaves is a shape that the reference has, too. As with any twin, one that is right
shows that the rule is, and one that is wrong shows nothing: a number may have been taken for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from math import prod
from typing import Any

from kernellab.sketch.gate.swap import swapped
from kernellab.sketch.program.binding import Binding
from kernellab.sketch.program.ints import IntExpr, IntKind, num
from kernellab.sketch.program.program import Const, Kernel, Loop, Point, Program, Region, Scatter, Tensor
from kernellab.sketch.program.walk import gathers
from kernellab.task import Task

Shape = tuple[int, ...]
#: extents that are numbers, and expressions of tunables as they are
Extents = tuple[int | IntExpr, ...]
#: larger numbers that equal a product of extents are taken for it
_LARGEST_PLAIN = 64
#: ways to split a dimension that are looked at
_MOST_WAYS = 64
#: taps of a window along an axis, and how far beyond an axis its last one may reach
_MOST_TAPS = 11


@dataclass(frozen=True)
class Traced:
    """What becomes of numbers and shapes from one size of a reference to another: all that each may become."""

    extents: Mapping[int, frozenset[int]]
    products: Mapping[int, frozenset[int]]
    shapes: Mapping[Shape, frozenset[Shape]]

    @staticmethod
    def of(before: Sequence[Shape], after: Sequence[Shape]) -> Traced:
        extents: dict[int, set[int]] = {}
        products: dict[int, set[int]] = {}
        shapes: dict[Shape, set[Shape]] = {}
        for old, new in zip(before, after, strict=True):
            shapes.setdefault(old, set()).add(new)
            for a, b in zip(old, new, strict=True):
                extents.setdefault(a, set()).add(b)
            for many, few in _products([*zip(old, new, strict=True)]):
                products.setdefault(many, set()).add(few)
        return Traced(_frozen(extents), _frozen(products), _frozen(shapes))

    def may(self, number: int) -> frozenset[int]:
        """What ``number`` may become, with itself where no extent is it."""
        found = self.extents.get(number, frozenset()) | self.products.get(number, frozenset())
        return found or frozenset((number,))

    def counted(self, number: int) -> int | None:
        """What a count of elements becomes, where that is certain."""
        found = self.products.get(number, frozenset()) if number > _LARGEST_PLAIN else frozenset()
        return next(iter(found)) if len(found) == 1 and number not in self.extents else None


def in_small(
    program: Program, binding: Binding, task: Task, shapes: Mapping[int, Shape], results: Sequence[Shape],
    traced: Traced,
) -> Program | None:  # fmt: skip
    """``program`` for a task whose arguments have ``shapes`` (by position) and whose outputs are ``results``; None
    where some number may be several things."""
    known: dict[str, Extents] = {}
    declared: dict[str, tuple[IntExpr, ...]] = {}
    given = [(n, p, task.args[p].held.shape, shapes[p]) for n, p in binding.tensors.items() if p in shapes]
    given += [(b.tensor, -1, o.held.shape, r) for b, o, r in zip(binding.outputs, task.results, results, strict=False)]
    for name, _, old, new in given:
        seen = _viewed(_extents(program.tensor(name).shape), tuple(map(int, old)), new, traced)
        if len(seen) != 1:
            return None
        known[name] = seen[0]
    kernels = []
    before: dict[int, int] = {}
    for kernel in program.kernels:
        small = _Launch(kernel, program, traced, known, declared, before).small()
        if small is None:
            return None
        kernels.append(small)
    if any(t.name not in declared for t in program.tensors):
        return None
    tensors = tuple(replace(t, shape=declared[t.name]) for t in program.tensors)
    return replace(program, tensors=tensors, kernels=tuple(kernels))


#: a loop, by its variable and its end; a dimension of a tensor as a launch sees it
Place = tuple[Any, ...]


class _Launch:
    """One kernel: what each of its loops and dimensions becomes."""

    def __init__(
        self, kernel: Kernel, program: Program, traced: Traced, known: dict[str, Extents],
        shapes: dict[str, tuple[IntExpr, ...]], before: dict[int, int],
    ) -> None:  # fmt: skip
        #: what numbers became in the launches before: one that finishes a sum has its count, not its shape
        self.before = before
        self.kernel, self.traced, self.known, self.shapes = kernel, traced, known, shapes
        self.first = {t.name: t for t in program.tensors}
        self.views: dict[Tensor, Extents] = {}
        #: place -> what it may become
        self.domain: dict[Place, frozenset[Any]] = {}
        #: pairs of places that become the same
        self.links: list[tuple[Place, Place]] = []
        #: a loop, how far each of its steps goes, and the dimension in which it goes to the end
        self.steps: list[tuple[Place, int, Place]] = []
        self.fixed = True

    def small(self) -> Kernel | None:
        self._collect()
        if not self.fixed:
            return None
        for settle in (self._views, self._shapes, self._strides, self._views, self._likely, self._views):
            self._join()
            if self._open():
                settle()
        self._join()
        if self._open() or any(not d for d in self.domain.values()):
            return None
        return self._written()

    def _collect(self) -> None:
        def loops(body: Sequence[Any], around: Mapping[str, Place]) -> None:
            for stmt in body:
                inner = dict(around)
                if isinstance(stmt, Loop):
                    place = ("loop", stmt.var, stmt.stop)
                    inner[stmt.var] = place
                    if stmt.stop.kind is IntKind.NUM:
                        self.domain.setdefault(place, self.traced.may(stmt.stop.value))
                for region in _regions(stmt):
                    self._region(region, inner)
                for block in stmt.bodies:
                    loops(block, inner)

        loops(self.kernel.body, {})

    def _region(self, region: Region, around: Mapping[str, Place]) -> None:
        tensor = region.tensor
        for d, (index, extent) in enumerate(zip(region.index, self._view(tensor), strict=False)):
            start = index.at if isinstance(index, Point) else index.start
            if start.kind is IntKind.LOOP and start.name in around:
                place = around[start.name]
                stop = place[2]
                if stop.kind is IntKind.NUM and stop.value == extent:
                    self.links.append((place, ("dim", tensor, d)))
            elif len(inside := start.loop_vars() & around.keys()) == 1 and isinstance(extent, int):
                place = around[next(iter(inside))]
                stride = _stride(start, place[1])
                if place[2].kind is IntKind.NUM and stride > 0 and abs(place[2].value * stride - extent) <= _MOST_TAPS:
                    self.steps.append((place, stride, ("dim", tensor, d)))

    def _view(self, tensor: Tensor) -> Extents:
        if tensor not in self.views:
            extents = self.views[tensor] = _extents(tensor.shape)
            new = self.known.get(tensor.name)
            ways: list[Extents] = []
            if new is not None:
                ways = _viewed(extents, _extents(self.first[tensor.name].shape), new, self.traced)
                self.fixed = self.fixed and bool(ways)
            for d, n in enumerate(extents):
                may: frozenset[Any] = frozenset((n,)) if isinstance(n, IntExpr) else self.traced.may(n)
                self.domain["dim", tensor, d] = frozenset(w[d] for w in ways) if ways else may
        return self.views[tensor]

    def _join(self) -> None:
        changed = True
        while changed:
            changed = False
            for a, b in self.links:
                both = self.domain[a] & self.domain[b]
                for place in (a, b):
                    if self.domain[place] != both:
                        self.domain[place], changed = both, True

    def _open(self) -> bool:
        return any(len(d) > 1 for d in self.domain.values())

    def _views(self) -> None:
        """Views of what is known agree with it in their elements."""
        for tensor, extents in self.views.items():
            new = self.known.get(tensor.name)
            if new is not None:
                self._restrict(tensor, _viewed(extents, _extents(self.first[tensor.name].shape), new, self.traced))

    def _shapes(self) -> None:
        """What the reference makes in this very shape."""
        for tensor, extents in self.views.items():
            plain = tuple(n for n in extents if isinstance(n, int))
            if tensor.name not in self.known and plain == extents and plain in self.traced.shapes:
                self._restrict(tensor, self.traced.shapes[plain])

    def _strides(self) -> None:
        """A loop that goes in strides through a dimension of known extent ends where that does."""
        for loop, stride, dim in self.steps:
            if len(self.domain[loop]) > 1 and len(self.domain[dim]) == 1:
                end = next(iter(self.domain[dim]))
                gap = {n: abs(n * stride - end) for n in self.domain[loop]}
                near = frozenset(n for n in gap if gap[n] <= _MOST_TAPS)
                self.domain[loop] = near or self.domain[loop]

    def _restrict(self, tensor: Tensor, ways: Any) -> None:
        places = [("dim", tensor, d) for d in range(len(self.views[tensor]))]
        fitting = [w for w in ways if all(n in self.domain[p] for n, p in zip(w, places, strict=True))]
        if fitting:
            for d, place in enumerate(places):
                self.domain[place] = frozenset(w[d] for w in fitting)

    def _likely(self) -> None:
        """What the number is elsewhere in the launch; else an extent rather than a product of extents."""
        settled = self._map(only_known=True)
        for place, domain in self.domain.items():
            if len(domain) > 1:
                number = place[2].value if place[0] == "loop" else self.views[place[1]][place[2]]
                if isinstance(number, IntExpr):
                    continue
                extents = self.traced.extents.get(number, frozenset())
                # a window's taps are few and stay as they are
                taps = frozenset((number,)) if number <= _MOST_TAPS else frozenset()
                for likely in (settled.get(number, frozenset()), taps, extents):
                    if len(domain & likely) == 1:
                        self.domain[place] = domain & likely
                        break

    def _map(self, only_known: bool = False) -> dict[int, frozenset[int]]:
        """Number -> what it becomes, from the extents of all tensors as the launch sees them."""
        extents: dict[int, set[int]] = {}
        products: dict[int, set[int]] = {}
        for tensor, old in self.views.items():
            domains = [self.domain["dim", tensor, d] for d in range(len(old))]
            if (only_known and tensor.name not in self.known) or any(len(d) != 1 for d in domains):
                continue
            pairs = [(a, next(iter(b))) for a, b in zip(old, domains, strict=True) if not isinstance(a, IntExpr)]
            for before, after in zip(self.first[tensor.name].shape, self.shapes.get(tensor.name, ()), strict=False):
                pairs += _inside(before, after)
            for a, b in pairs:
                extents.setdefault(a, set()).add(b)
            for many, few in _products(pairs):
                if many > _LARGEST_PLAIN or many == few:
                    products.setdefault(many, set()).add(few)
        return _frozen(products) | _frozen(extents)

    def _written(self) -> Kernel:
        numbers = self._map()
        table = {a: next(iter(b)) for a, b in numbers.items() if len(b) == 1}
        for a in [a for a in table if a > _LARGEST_PLAIN]:
            # a reversed index counts down from the last
            table.setdefault(a - 1, table[a] - 1)

        def becomes(number: int) -> int:
            if number in table or number in numbers:
                return table.get(number, number)
            found = self.traced.extents.get(number, frozenset((number,)))
            return next(iter(found)) if len(found) == 1 else self.before.get(number, number)

        def literal(item: Const) -> Const:
            value = item.value
            if isinstance(value, bool) or not float(value).is_integer():
                return item
            small = table.get(int(value)) or self.traced.counted(int(value)) or self.before.get(int(value))
            if small is None:
                return item
            return replace(item, value=float(small) if isinstance(value, float) else small)

        def place(item: Any, swap: Callable[[Any], Any]) -> Any:
            if isinstance(item, Tensor):
                return views.get(item, item)
            domain = self.domain.get(("loop", item.var, item.stop)) if isinstance(item, Loop) else None
            if domain is None:
                return None
            parts = {n: swap(getattr(item, n)) for n in ("start", "step", "body")}
            return replace(item, stop=num(next(iter(domain))), **parts)

        def number(expr: IntExpr) -> IntExpr:
            return num(becomes(expr.value))

        views: dict[Tensor, Tensor] = {}
        for tensor, old in self.views.items():
            new = tuple(next(iter(self.domain["dim", tensor, d])) for d in range(len(old)))
            shape = tuple(swapped(n, number, literal) if isinstance(n, IntExpr) else num(n) for n in new)
            views[tensor] = replace(tensor, shape=shape)
            if self.first[tensor.name].shape == tensor.shape:
                self.known.setdefault(tensor.name, new)
                self.shapes.setdefault(tensor.name, shape)
        small = swapped(self.kernel, number, literal, place)
        self.before.update(table)
        return small  # type: ignore[no-any-return]


def _regions(stmt: Any) -> Iterator[Region]:
    """The places that a statement touches, those too at indices that are values."""
    yield from (region for region, _ in stmt.touches)
    if isinstance(stmt, Scatter):
        yield Region(stmt.tensor, ())
    for gather in gathers(stmt):
        tensor = gather.attr("tensor")
        if isinstance(tensor, Tensor):
            yield Region(tensor, ())


def _extents(shape: Sequence[IntExpr]) -> Extents:
    return tuple(e.value if e.kind is IntKind.NUM else e for e in shape)


def _stride(index: IntExpr, var: str) -> int:
    """How far ``index`` goes where ``var`` goes one further; 0 where that is no number."""
    try:
        first, second, third = (index.evaluate(dict.fromkeys(index.names(), 0) | {var: n}) for n in (0, 1, 2))
    except ZeroDivisionError:
        return 0
    return second - first if third - second == second - first else 0


def _inside(before: IntExpr, after: IntExpr) -> list[tuple[int, int]]:
    """The numbers in an expression that is none itself, before and after."""
    if (before.kind, before.op, len(before.args)) != (after.kind, after.op, len(after.args)):
        return []
    found = [
        (a.value, b.value) for a, b in zip(before.args, after.args, strict=True) if a.kind is b.kind is IntKind.NUM
    ]
    return found + [pair for a, b in zip(before.args, after.args, strict=True) for pair in _inside(a, b)]


def _products(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Products of two extents and more, in order, before and after: a view merges some, a mean leaves some out."""
    for count in range(2, len(pairs) + 1):
        for some in combinations(pairs, count):
            yield prod(a for a, _ in some), prod(b for _, b in some)


def _viewed(view: Extents, old: Extents, new: Extents, traced: Traced) -> list[Extents]:
    """What a view of a tensor of shape ``old`` may become where that becomes ``new``."""
    if view == old:
        return [new]
    v = [n for n in view if isinstance(n, int)]
    o = [(a, b) for a, b in zip(old, new, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if len(v) < len(view) or len(o) < len(old):
        return []
    ways: list[Extents] = [()]
    while v or o:
        mine, theirs = [v.pop(0)] if v else [], [o.pop(0)] if o else []
        while prod(mine) != prod(a for a, _ in theirs):
            if prod(mine) < prod(a for a, _ in theirs):
                if not v:
                    return []
                mine.append(v.pop(0))
            else:
                if not o:
                    return []
                theirs.append(o.pop(0))
        elements = prod(b for _, b in theirs)
        if len(mine) == 1:
            found: list[Extents] = [(elements,)]
        elif elements == prod(mine):
            found = [tuple(mine)]
        else:
            every = islice(product(*(sorted(traced.may(n)) for n in mine)), _MOST_WAYS)
            found = [way for way in every if prod(way) == elements]
        ways = [(*way, *more) for way in ways for more in found]
        if not ways or len(ways) > _MOST_WAYS:
            return []
    return ways


def _frozen(found: Mapping[Any, set[Any]]) -> dict[Any, frozenset[Any]]:
    return {key: frozenset(values) for key, values in found.items()}


__all__ = ["Traced", "in_small"]
