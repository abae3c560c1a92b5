"""Checks of accesses to tensors: tile numbers used as offsets, accesses outside, outputs not written, races.

Affine reasoning proves most sketches right, in microseconds. Sketches without a proof are run at small sizes; only a
concrete element that is wrong there is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernellab.records import Diagnostic, Fix
from kernellab.sketch.check.gather import check_scatters, scatter_accesses
from kernellab.sketch.program import affine
from kernellab.sketch.program.access import (
    Access,
    Cover,
    accesses,
    at_least,
    cover,
    extent_of,
    start_of,
    substitute,
)
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Kernel, Loop, Point, Program, Range, TensorRole, Touch
from kernellab.sketch.program.team import team_hinted, why_no_team
from kernellab.sketch.syntax.messages import diagnostic_at
from kernellab.sketch.syntax.tree import Span


def check_memory(program: Program, constexpr: Mapping[str, int | float]) -> list[Diagnostic]:
    """Return diagnostics of the accesses of every kernel of ``program``; ``constexpr`` has the known values."""
    diagnostics: list[Diagnostic] = []
    suspicious: set[str] = set()
    doubtful: set[str] = set()
    written: set[str] = set()
    spans: dict[str, Span] = {}
    diagnostics.extend(check_scatters(program))
    for kernel in program.kernels:
        touched = accesses(kernel)
        picked = tuple(scatter_accesses(kernel))
        for access in (*touched, *picked):
            offsets = list(_tile_offsets(access))
            if offsets:
                diagnostics.append(_tile_index(access, offsets))
                suspicious.add(access.tensor)
            missing = _misses(access)
            if missing is not None and not offsets:
                diagnostics.append(missing)
                suspicious.add(access.tensor)
        for access in picked:
            if access.kind is not Touch.READ:
                spans.setdefault(access.tensor, access.span)
                # check_scatters reports elements that indices leave out; a tensor that is only added to starts at 0
                written.add(access.tensor)
        writes = [a for a in touched if a.kind is not Touch.READ]
        for access in writes:
            spans.setdefault(access.tensor, access.span)
            if _writes_all(access):
                written.add(access.tensor)
        doubtful |= _unsafe(kernel, touched, diagnostics, suspicious)
        diagnostics.extend(_no_team(kernel))
    for tensor in program.tensors:
        if tensor.role in (TensorRole.OUT, TensorRole.INOUT) and tensor.name not in spans:
            diagnostics.append(diagnostic_at("unused-output", tensor.span, name=tensor.name))
        if tensor.role is TensorRole.OUT and tensor.name in spans and tensor.name not in written:
            doubtful.add(tensor.name)
    doubtful -= suspicious
    if doubtful:
        diagnostics.extend(_explain(w, spans) for w in seek(program, doubtful, constexpr))
    return diagnostics


def _no_team(kernel: Kernel) -> Iterator[Diagnostic]:
    reason = why_no_team(kernel)
    for loop in team_hinted(kernel) if reason else ():
        yield diagnostic_at("team", loop.span, var=loop.var, what=reason)


# -- tile numbers as offsets -------------------------------------------------------------------------------------------


def _tile_offsets(access: Access) -> Iterator[tuple[int, Loop, IntExpr]]:
    """Yield dimensions whose start moves by 1 although the loop counts tiles of the slice's extent."""
    for position, item in enumerate(access.region.index):
        if not isinstance(item, Range) or not item.step.is_one or item.extent.is_one:
            continue
        for loop in access.loops:
            if loop.var not in item.start.loop_vars() or not loop.step.is_one:
                continue
            tile = _counted(loop)
            if tile is None or not affine.equal(tile, item.extent):
                continue
            factor = affine.coefficient(item.start, loop.var)
            if factor is not None and factor.is_one:
                yield position, loop, tile


def _counted(loop: Loop) -> IntExpr | None:
    """Return the tile size if ``loop`` runs over tile numbers: its stop is ``ceil(n, tile)`` or ``n // tile``."""
    stop = affine.simplify(loop.stop)
    return stop.args[1] if stop.op in ("cdiv", "//") else None


def _tile_index(access: Access, offsets: list[tuple[int, Loop, IntExpr]]) -> Diagnostic:
    items = []
    by_position = {position: (loop, tile) for position, loop, tile in offsets}
    for position, item in enumerate(access.region.index):
        if position in by_position:
            loop, tile = by_position[position]
            items.append(f"{loop.var}*{tile}:({loop.var}+1)*{tile}")
        elif isinstance(item, Point):
            items.append(str(item.at))
        else:
            items.append(f"{item.start}:{affine.simplify(int_op('+', item.start, item.extent))}")
    counted = " and ".join(f"'{loop.var}' counts tiles of {tile}" for _, loop, tile in offsets)
    _, loop, tile = offsets[0]
    stop = affine.simplify(loop.stop).args[0]
    right = f"{access.tensor}[{', '.join(items)}]"
    return diagnostic_at(
        "tile-index-as-offset", access.span, counted=counted, tensor=access.tensor, slice=right,
        fix=Fix(replaces=access.tensor, text=right, subscript=True), loop=f"for {loop.var} in range(0, {stop}, {tile})",
    )  # fmt: skip


# -- accesses that are never inside the tensor -------------------------------------------------------------------------


def _misses(access: Access) -> Diagnostic | None:
    for position, (item, dim) in enumerate(zip(access.region.index, access.region.tensor.shape, strict=True)):
        low, high = _bounds(start_of(item), access.loops)
        below = high is not None and at_least(num(0), int_op("+", high, extent_of(item)))
        above = low is not None and at_least(low, dim)
        if not below and not above:
            continue
        where = "before its start" if below else f"past its end ({dim})"
        what = f"Dimension {position} of '{access.tensor}' is indexed {where} in every iteration."
        remedy = f"The last element is {dim} - 1." if above else "Count from the start: there are no negative indices."
        return diagnostic_at("out-of-range", access.span, what=what, remedy=remedy)
    return None


def _bounds(expr: IntExpr, loops: tuple[Loop, ...]) -> tuple[IntExpr | None, IntExpr | None]:
    """Return the smallest and the largest value of an affine ``expr`` over ``loops``; None if it is not affine."""
    low: IntExpr | None = expr
    high: IntExpr | None = expr
    for loop in reversed(loops):
        if loop.var not in expr.loop_vars():
            continue
        factor = affine.coefficient(expr, loop.var)
        if factor is None or not (at_least(factor, num(0)) or at_least(num(0), factor)):
            return None, None
        ends = (loop.start, int_op("-", loop.stop, num(1)))
        first, last = ends if at_least(factor, num(0)) else (ends[1], ends[0])
        low = None if low is None else substitute(low, loop.var, first)
        high = None if high is None else substitute(high, loop.var, last)
    return low, high


# -- outputs fully written, each element by one iteration --------------------------------------------------------------


def _covers(access: Access) -> list[Cover | None]:
    return [cover(item, access.loops) for item in access.region.index]


def _writes_all(access: Access) -> bool:
    """Is this access proved to write the whole tensor?"""
    if access.conditions:
        return False
    used: set[str] = set()
    for covered, dim in zip(_covers(access), access.region.tensor.shape, strict=True):
        if covered is None or not covered.whole or covered.used & used or covered.first.loop_vars():
            return False
        used |= covered.used
        if not at_least(num(0), covered.first) or not at_least(int_op("+", covered.first, covered.length), dim):
            return False
    return True


def _unsafe(kernel: Kernel, touched: tuple[Access, ...], diagnostics: list[Diagnostic], reported: set[str]) -> set[str]:
    """Return tensors whose writes are not proved to be safe under the kernel's parallel loops; certain races are
    reported."""
    doubtful: set[str] = set()
    for access in touched:
        if access.kind is not Touch.WRITE or not access.parallel or access.tensor in reported:
            continue
        covers = _covers(access)
        moving = {v for c in covers if c is not None for v in c.used}
        moving |= {v for item in access.region.index for v in start_of(item).loop_vars()}
        for loop in reversed(access.loops):
            # a loop over a part of an outer loop's range moves with that loop
            moving |= loop.start.loop_vars() | loop.stop.loop_vars() if loop.var in moving else set()
        still = [loop for loop in access.parallel if loop.var not in moving]
        if still and not access.conditions and not any(_single(loop) for loop in still):
            diagnostics.append(diagnostic_at("race", access.span, var=still[0].var, tensor=access.tensor))
            reported.add(access.tensor)
            continue
        apart = {v for c in covers if c is not None for v in c.apart}
        if any(loop.var not in apart for loop in access.parallel):
            doubtful.add(access.tensor)
    for name in kernel.reads & kernel.writes:
        regions = {a.region for a in touched if a.tensor == name}
        if any(a.parallel for a in touched if a.tensor == name) and len(regions) > 1:
            doubtful.add(name)
    stores = [a.tensor for a in touched if a.kind is Touch.WRITE and a.parallel]
    return doubtful | {name for name in stores if stores.count(name) > 1}


def _single(loop: Loop) -> bool:
    return affine.constant(loop.trips) in (0, 1)


def _explain(witness: Witness, spans: Mapping[str, Span]) -> Diagnostic:
    span = witness.span or spans[witness.tensor]
    sizes = ", ".join(f"{n}={v}" for n, v in witness.sizes.items())
    place = f"{witness.tensor}[{', '.join(map(str, witness.element))}]"
    if witness.rule == "not-covered":
        what = f"{place} is not written when {sizes}"
        return diagnostic_at(
            "not-covered",
            span,
            name=witness.tensor,
            what=what,
            remedy="Let the loops and slices cover every dimension.",
        )
    return diagnostic_at(witness.rule, span, var=witness.var, tensor=witness.tensor)


# -- a search at small sizes for an element that shows the fault -------------------------------------------------------
# The loops run on integers only, without values: which elements each parallel iteration accesses. A fault that is found
# is a fact at those sizes; finding none proves nothing.

#: most elements of one tensor, and most accessed elements in all, for which the search runs
_MAX_ELEMENTS = 1 << 17
_MAX_TOUCHES = 1 << 18


@dataclass(frozen=True)
class Witness:
    rule: str
    tensor: str
    element: tuple[int, ...]
    sizes: Mapping[str, int]
    var: str = ""
    span: Span | None = None


class _TooLarge(Exception):
    pass


def seek(program: Program, tensors: set[str], constexpr: Mapping[str, int | float]) -> list[Witness]:
    """Return at most one witness for each tensor, with default constexpr values and two choices of symbol sizes."""
    witnesses: dict[str, Witness] = {}
    for env in _sizes(program, constexpr):
        try:
            for witness in _Run(program, tensors - witnesses.keys(), env).witnesses():
                witnesses.setdefault(witness.tensor, witness)
        except (_TooLarge, KeyError, ZeroDivisionError):
            continue
    return list(witnesses.values())


def _sizes(program: Program, constexpr: Mapping[str, int | float]) -> Iterator[dict[str, int]]:
    """Yield sizes just above two tiles if they fit, and small primes; for a symbol with a value only this value, since
    others may depend on it."""
    fixed = {c.name: int(constexpr.get(c.name, 2 if c.value is None else c.value)) for c in program.constexprs}
    extents = [fixed[c.name] for c in program.constexprs if c.is_extent]
    tile = max([e for e in extents if e <= 512], default=4)
    for base in (3, tile) if program.symbols else (tile,):
        yield fixed | {s: base + 2 + 2 * i for i, s in enumerate(program.symbols)} | dict(program.sizes)


@dataclass
class _State:
    """The writer of each element: 0 for none, else the number of the parallel iteration plus 1."""

    shape: tuple[int, ...]
    writer: np.ndarray
    covered: np.ndarray


class _Run:
    def __init__(self, program: Program, tensors: set[str], env: dict[str, int]) -> None:
        self.program = program
        self.env = env
        self.symbols = {s: env[s] for s in program.symbols}
        self.states: dict[str, _State] = {}
        #: parallel iterations so far, numbered from 1
        self.numbers: dict[tuple[int, ...], int] = {}
        self.touches = 0
        self.found: list[Witness] = []
        for tensor in program.tensors:
            if tensor.name in tensors:
                shape = tuple(max(0, d.evaluate(env)) for d in tensor.shape)
                count = _product(shape)
                if count > _MAX_ELEMENTS:
                    raise _TooLarge
                self.states[tensor.name] = _State(shape, np.zeros(count, np.int64), np.zeros(count, bool))

    def witnesses(self) -> list[Witness]:
        for kernel in self.program.kernels:
            for state in self.states.values():
                state.writer[:] = 0
            mine = [a for a in accesses(kernel) if a.tensor in self.states]
            # writes first: a read of what another iteration writes is wrong in either order
            for access in sorted(mine, key=lambda a: a.kind is Touch.READ):
                self._access(access)
        for tensor in self.program.tensors:
            if tensor.name in self.states and tensor.role is TensorRole.OUT and not self._has(tensor.name):
                gaps = np.flatnonzero(~self.states[tensor.name].covered)
                if gaps.size:
                    self._note("not-covered", tensor.name, int(gaps[0]))
        return self.found

    def _has(self, tensor: str) -> bool:
        return any(w.tensor == tensor for w in self.found)

    def _note(self, rule: str, tensor: str, offset: int, var: str = "", span: Span | None = None) -> None:
        element = []
        for size in reversed(self.states[tensor].shape):
            element.append(offset % size)
            offset //= size
        self.found.append(Witness(rule, tensor, tuple(reversed(element)), self.symbols, var, span))

    def _access(self, access: Access) -> None:
        state = self.states[access.tensor]
        # the kernel's view, with as many elements
        shape = tuple(max(0, d.evaluate(self.env)) for d in access.region.tensor.shape)
        for env, number, var in self._iterations(access):
            offsets = self._offsets(access, shape, env)
            self.touches += offsets.size
            if self.touches > _MAX_TOUCHES:
                raise _TooLarge
            if number and access.kind is not Touch.ADD and not self._has(access.tensor):
                owners = state.writer[offsets]
                others = np.flatnonzero((owners != 0) & (owners != number))
                if others.size:
                    rule = "parallel-dependence" if access.kind is Touch.READ else "race"
                    self._note(rule, access.tensor, int(offsets[others[0]]), var, access.span)
            if access.kind is not Touch.READ:
                state.covered[offsets] = True
            if access.kind is Touch.WRITE:
                state.writer[offsets] = number

    def _iterations(self, access: Access) -> Iterator[tuple[dict[str, int], int, str]]:
        """Yield environments of the access, the number of the parallel iteration (0 outside), and a parallel
        variable."""
        parallel = access.parallel
        var = parallel[-1].var if parallel else ""
        for env in _nest(access.loops, dict(self.env)):
            if all(bool(cond.evaluate(env)) is holds for cond, holds in access.conditions):
                place = tuple(env[p.var] for p in parallel)
                yield env, self.numbers.setdefault(place, len(self.numbers) + 1) if parallel else 0, var

    def _offsets(self, access: Access, shape: tuple[int, ...], env: dict[str, int]) -> np.ndarray:
        """Return the elements that one iteration accesses, as vectors: a Python step for each would take seconds."""
        offsets = np.zeros(1, np.int64)
        for item, size in zip(access.region.index, shape, strict=True):
            places = np.array([item.at.evaluate(env)]) if isinstance(item, Point) else _places(item, env)
            inside = places[(places >= 0) & (places < size)]
            if offsets.size * inside.size > _MAX_ELEMENTS:
                raise _TooLarge
            offsets = (offsets[:, None] * size + inside).ravel()
        return offsets


def _places(item: Range, env: Mapping[str, int]) -> np.ndarray:
    start, step = item.start.evaluate(env), item.step.evaluate(env)
    extent = item.extent.evaluate(env)
    if extent > _MAX_ELEMENTS:
        raise _TooLarge
    return start + step * np.arange(extent)


def _nest(loops: tuple[Loop, ...], env: dict[str, int]) -> Iterator[dict[str, int]]:
    if not loops:
        yield env
        return
    loop = loops[0]
    start, stop, step = (_value(e, env) for e in (loop.start, loop.stop, loop.step))
    if step < 1 or (stop - start) // step > _MAX_TOUCHES:
        raise _TooLarge
    for value in range(start, stop, step):
        env[loop.var] = value
        yield from _nest(loops[1:], env)


def _value(expr: IntExpr, env: Mapping[str, int]) -> int:
    return expr.evaluate(env)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
