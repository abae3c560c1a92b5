"""A search at small sizes for an element that is never written, written twice at once, or read while it is written.

The loops are run on integers only: no values, just which elements each parallel iteration touches. What is found is a
fact about those sizes; what is not found is no proof, and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernellab.sketch.program.access import Access, accesses
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Loop, Point, Program, Range, TensorRole, Touch
from kernellab.sketch.syntax.tree import Span

#: elements of one tensor, and touched elements in all, beyond which the search gives up
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
    """At most one witness a tensor, with default constexpr values and two choices of symbol sizes."""
    found: dict[str, Witness] = {}
    for env in _sizes(program, constexpr):
        try:
            for witness in _Run(program, tensors - found.keys(), env).witnesses():
                found.setdefault(witness.tensor, witness)
        except (_TooLarge, KeyError, ZeroDivisionError):
            continue
    return list(found.values())


def _sizes(program: Program, constexpr: Mapping[str, int | float]) -> Iterator[dict[str, int]]:
    """Sizes just above two tiles where they fit, and small primes; of a symbol with a value this value alone, since
    others may follow from it.
    """
    fixed = {c.name: int(constexpr.get(c.name, 2 if c.value is None else c.value)) for c in program.constexprs}
    extents = [fixed[c.name] for c in program.constexprs if c.is_extent]
    tile = max([e for e in extents if e <= 512], default=4)
    for base in (3, tile):
        yield fixed | {s: base + 2 + 2 * i for i, s in enumerate(program.symbols)} | dict(program.sizes)


@dataclass
class _State:
    """Who wrote each element: 0 no one, else the parallel iteration's number plus 1."""

    shape: tuple[int, ...]
    writer: np.ndarray
    covered: np.ndarray


class _Run:
    def __init__(self, program: Program, tensors: set[str], env: dict[str, int]) -> None:
        self.program = program
        self.env = env
        self.symbols = {s: env[s] for s in program.symbols}
        self.states: dict[str, _State] = {}
        #: parallel iterations met so far, numbered from 1
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
            # writes first: a read of what another iteration writes is wrong whichever comes first
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
        # the kernel's own view, of as many elements
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
        """Environments of the access, the number of the parallel iteration (0 outside), and a parallel variable."""
        parallel = access.parallel
        var = parallel[-1].var if parallel else ""
        for env in _nest(access.loops, dict(self.env)):
            if all(bool(cond.evaluate(env)) is taken for cond, taken in access.conditions):
                place = tuple(env[p.var] for p in parallel)
                yield env, self.numbers.setdefault(place, len(self.numbers) + 1) if parallel else 0, var

    def _offsets(self, access: Access, shape: tuple[int, ...], env: dict[str, int]) -> np.ndarray:
        """The elements that one iteration touches; whole vectors, since a Python step for each takes seconds."""
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
