"""A search at small sizes for an element that shows a fault: one that no iteration writes, or that two write.

The loops run on integers only, without values: which elements each parallel iteration accesses. A fault that is found
is a fact at those sizes; finding none proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from kernellab.sketch.program.access import Access, accesses
from kernellab.sketch.program.program import Loop, Point, Program, Range, TensorRole, Touch
from kernellab.sketch.syntax.tree import Span

#: most elements of one tensor, and most accessed elements in all, for which the search runs
_MAX_ELEMENTS = 1 << 17
_MAX_TOUCHES = 1 << 18


@dataclass(frozen=True)
class Witness:
    """One wrong element: the rule of its diagnostic, its indices, and the sizes of the symbols.

    ``var`` is the parallel loop of a race, ``span`` the access; None for an element that no access writes."""

    rule: str
    tensor: str
    element: tuple[int, ...]
    sizes: Mapping[str, int]
    var: str = ""
    span: Span | None = None


class _TooLarge(Exception):
    """The search would take too long at these sizes."""


def find_witnesses(program: Program, tensors: set[str], constexpr: Mapping[str, int | float]) -> list[Witness]:
    """Return at most one witness for each tensor, with default constexpr values and two choices of symbol sizes."""
    witnesses: dict[str, Witness] = {}
    for env in _sizes(program, constexpr):
        try:
            for witness in _Search(program, tensors - witnesses.keys(), env).witnesses():
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
    """One tensor: the number of the parallel iteration that wrote each element in this kernel, 0 for none, and which
    elements some kernel has written."""

    shape: tuple[int, ...]
    writer: np.ndarray
    covered: np.ndarray


class _Iteration(NamedTuple):
    """One execution of an access: the values of all names, and the number of the parallel iteration, 0 outside."""

    env: dict[str, int]
    number: int


class _Search:
    """Runs the accesses of a program to some of its tensors in order, at one choice of sizes."""

    def __init__(self, program: Program, tensors: set[str], env: dict[str, int]) -> None:
        self.program = program
        self.env = env
        self.symbols = {s: env[s] for s in program.symbols}
        self.states: dict[str, _State] = {}
        #: parallel iterations so far, numbered from 1
        self.numbers: dict[tuple[int, ...], int] = {}
        self.touches = 0
        self.faults: list[Witness] = []
        for tensor in program.tensors:
            if tensor.name in tensors:
                shape = tuple(max(0, d.evaluate(env)) for d in tensor.shape)
                count = prod(shape)
                if count > _MAX_ELEMENTS:
                    raise _TooLarge
                self.states[tensor.name] = _State(shape, np.zeros(count, np.int64), np.zeros(count, bool))

    def witnesses(self) -> list[Witness]:
        for kernel in self.program.kernels:
            for state in self.states.values():
                state.writer[:] = 0
            watched = [a for a in accesses(kernel) if a.tensor in self.states]
            # writes first: a read of what another iteration writes is wrong in either order
            for access in sorted(watched, key=lambda a: a.kind is Touch.READ):
                self._access(access)
        for tensor in self.program.tensors:
            if tensor.name in self.states and tensor.role is TensorRole.OUT and not self._has_fault(tensor.name):
                gaps = np.flatnonzero(~self.states[tensor.name].covered)
                if gaps.size:
                    self._note("not-covered", tensor.name, int(gaps[0]))
        return self.faults

    def _has_fault(self, tensor: str) -> bool:
        return any(w.tensor == tensor for w in self.faults)

    def _note(self, rule: str, tensor: str, offset: int, var: str = "", span: Span | None = None) -> None:
        element = []
        for size in reversed(self.states[tensor].shape):
            element.append(offset % size)
            offset //= size
        self.faults.append(Witness(rule, tensor, tuple(reversed(element)), self.symbols, var, span))

    def _access(self, access: Access) -> None:
        state = self.states[access.tensor]
        # the kernel's view, with as many elements
        shape = tuple(max(0, d.evaluate(self.env)) for d in access.region.tensor.shape)
        var = access.parallel[-1].var if access.parallel else ""
        for env, number in self._iterations(access):
            offsets = self._offsets(access, shape, env)
            self.touches += offsets.size
            if self.touches > _MAX_TOUCHES:
                raise _TooLarge
            if number and access.kind is not Touch.ADD and not self._has_fault(access.tensor):
                owners = state.writer[offsets]
                others = np.flatnonzero((owners != 0) & (owners != number))
                if others.size:
                    rule = "parallel-dependence" if access.kind is Touch.READ else "race"
                    self._note(rule, access.tensor, int(offsets[others[0]]), var, access.span)
            if access.kind is not Touch.READ:
                state.covered[offsets] = True
            if access.kind is Touch.WRITE:
                state.writer[offsets] = number

    def _iterations(self, access: Access) -> Iterator[_Iteration]:
        """Yield the executions of the access whose conditions hold."""
        parallel = access.parallel
        for env in _nest(access.loops, dict(self.env)):
            if all(bool(cond.evaluate(env)) is holds for cond, holds in access.conditions):
                place = tuple(env[p.var] for p in parallel)
                yield _Iteration(env, self.numbers.setdefault(place, len(self.numbers) + 1) if parallel else 0)

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
    start, stop, step = (e.evaluate(env) for e in (loop.start, loop.stop, loop.step))
    if step < 1 or (stop - start) // step > _MAX_TOUCHES:
        raise _TooLarge
    for value in range(start, stop, step):
        env[loop.var] = value
        yield from _nest(loops[1:], env)
