"""Cases whose arithmetic is exact up to where the reference rounds or compares: which way a tie goes is decided there.

Any right way to compute gives the same values in them, so that no rounding excuses another answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from math import floor, frexp, log2
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError
from kernellab.task.dtypes import alike
from kernellab.task.meta.ties import Tied
from kernellab.verifier.boundary_checks.operations import COMPARISONS, ROUNDED, Edge
from kernellab.verifier.boundary_checks.solve import Solver
from kernellab.verifier.boundary_checks.watch import Exact, Watch, turned
from kernellab.verifier.protocol.rules import DRAWN

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.cases.cases import Case

    Tensor = torch.Tensor

#: the largest value and the step of a grid: the finest steps of which arithmetic is exact meet the most ties (of
#: x * 20 those are multiples of an eighth)
_GRIDS = ((8.0, 0.5), (2.0, 0.125), (1.0, 0.5))
#: operations that compare with each element of a sorted tensor
_PLACED = ("searchsorted", "bucketize")
#: levels of a quantisation have fewer than so many, so that halves of them have few digits
_LEVELS = 512
#: what a reference may raise of values that it does not take
_RAISED = (KernellabError, RuntimeError, ValueError)
#: the largest power of two that stands for zero where that is none of an argument's values
_MOST = 1.0


@dataclass(frozen=True)
class Found:
    """An exact case. ``sure``: no right way to compute gives another answer; else one may that adds up what is divided
    already, or divides as quickly as a GPU can. ``wider``: what float64 answers, where it has limits (0.9) with more
    digits and so answers otherwise."""

    case: Case
    halves: int
    ties: int
    sure: bool
    wider: tuple[Tensor, ...] = ()


class ExactCases:
    """The exact cases of ``base``, of whose float arguments ``spans`` gives the least and the largest value; its
    reference ``calls`` operations that have ``edges``; ``run`` watches a run of it (None where it raises)."""

    def __init__(
        self, base: Case, spans: dict[int, tuple[float, float]], edges: set[Edge], calls: Container[str],
        run: Callable[[Sequence[Any]], Watch | None], left: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.base, self.spans, self.edges, self.run, self.left = base, spans, edges, run, left
        self.calls = calls
        self.form = [(o.shape, o.dtype) for o in base.native]
        self.results = base.task.module().results
        self.largest = max(spans, key=lambda i: base.args[i].numel())
        #: inputs at which the reference raises
        self.dropped = 0

    def make(self) -> Iterator[Found]:
        """One case for roundings, and those for the comparisons of floats that have a side for equal values."""
        compared = {e for e in self.edges if e.op in COMPARISONS and e.name == "difference at"}
        rounded = any(e.op in ROUNDED for e in self.edges)
        on_grids = list(self._on_grids(rounded)) if compared or rounded or "histc" in self.calls else []
        for count in ("halves", "ties"):
            found = [one for one in on_grids if getattr(one, count)]
            if found and "histc" not in self.calls:
                yield max(found, key=lambda one: (one.sure, getattr(one, count)))
        if "histc" in self.calls:
            yield from on_grids
        if any(op in self.calls for op in _PLACED):
            yield from self._shared()
        # all zero, then all one: a mean that is not zero is met by ones alone
        for values in dict.fromkeys(tuple(_calm(n, *span) for span in self.spans.values()) for n in (0.0, _MOST)):
            if compared and None not in values and self.left():
                compared = yield from self._still(compared, tuple(zip(self.spans, values, strict=True)))

    def _shared(self) -> Iterator[Found]:
        """Half of the elements of an argument are elements of a sorted one, in which their places are looked for."""
        is_sorted = {i: bool((self.base.args[i].diff() >= 0).all()) for i in self.spans if self.base.args[i].dim()}
        for one, other in permutations(is_sorted, 2):
            if is_sorted[one] or not is_sorted[other]:
                continue
            found = self._exact(self.base.with_change(("shared", one, other, secrets.randbits(31))))
            if found is not None:
                yield found
                return

    def _on_grids(self, rounded: bool) -> Iterator[Found]:
        spread = tuple((i, *span) for i, span in self.spans.items())
        for grid in (*_GRIDS, *(self._peaks() if rounded else ())):
            case = self.base.with_change(("halves", self.largest, secrets.randbits(31), spread, *grid))
            try:
                _ = case.args
            except ValueError:
                continue  # an argument has no power of two among its values
            found = self._exact(case)
            if found is not None and (found.sure or len(grid) == 3):
                yield found

    def _peaks(self) -> Iterator[tuple[float, float, float]]:
        """Grids below a largest value that the reference's own divisors (the 127 levels of a row's maximum) make a
        power of two: what is divided by that has halves."""
        with Exact() as seen, suppress(*_RAISED):
            self.results(self.base.args)
        whole = sorted(n for n in seen.divisors if 2 < n < _LEVELS and n.is_integer() and frexp(n)[0] != 0.5)
        for number in whole[:2]:
            peak = frexp(number)[0] * _GRIDS[0][0]
            yield peak, peak / number / 2, peak

    def _still(
        self, compared: set[Edge], values: tuple[tuple[int, float | None], ...]
    ) -> Generator[Found, None, set[Edge]]:
        """Cases of arguments with one of ``values`` throughout but for single elements that lead to a tie: what a loop
        over time has made before is exact then, too. Returns those of the comparisons that decide in none."""

        def case_of(*patches: tuple[int, int, float]) -> Case:
            return self.base.with_change(("still", self.largest, values, patches))

        still = case_of()
        watch = self.run(still.args)
        if watch is None:
            self.dropped += 1
            return compared
        calm, decided = self._decided(still, {e for e in compared if watch.edges.get(e)})
        if decided is not None:
            yield decided
        reached = set(calm)
        found: dict[tuple[int, int], float] = {}

        def decides(edge: Edge, at: tuple[int, int, float]) -> bool:
            return self._decided(case_of(at), {edge})[1] is not None

        missing = sorted(compared - calm, key=lambda e: (e.op, e.number))
        secrets.SystemRandom().shuffle(missing)
        solver = Solver(self.run, still.args, watch, self.spans, secrets.randbits(31), decides, step=1.0)
        for patch in solver.solve(missing[: DRAWN.exact_edges], self.left):
            found.setdefault((patch.position, patch.index), patch.value)
            reached.add(patch.edge)
        patches = [(*at, value) for at, value in found.items()]
        together = self._exact(case_of(*patches)) if len(patches) > 1 else None
        if together is not None:
            yield together
        else:
            yield from filter(None, (self._exact(case_of(patch)) for patch in patches[: DRAWN.solved]))
        return compared - reached

    def _decided(self, case: Case, edges: set[Edge]) -> tuple[set[Edge], Found | None]:
        """Those of the comparisons ``edges`` whose answer for equal values decides an output of ``case``, and that
        where there are some; none where it is not exact."""
        exact = self._exact(case) if edges else None
        if exact is None:
            return set(), None
        decided = set()
        for edge in edges:
            try:
                if turned(self.results, case.args, case.native, edge).matters:
                    decided.add(edge)
            except _RAISED:
                self.dropped += 1
        return decided, exact if decided else None

    def _exact(self, case: Case) -> Found | None:
        """The case, where float64 computes the same: None where its arithmetic is not exact, or does not run, or more
        than one answer is right."""
        for narrower in (8, 4):  # a reference that names float32 runs in no wider dtype
            try:
                return self._found(case, narrower)
            except _RAISED:
                continue
        self.dropped += 1
        return None

    def _found(self, case: Case, narrower: int) -> Found | None:
        import torch

        args = [
            a.double() if i in self.spans and a.dtype.itemsize < narrower else a for i, a in enumerate(case.args)
        ]  # fmt: skip
        # in float32 a limit of many digits is another number than the reference's
        inputs = [args[i] for i in self.spans] if narrower == 8 else []
        with Exact(inputs) as exact:
            wider = self.results(args)
        if exact.holds and self._is_one_answer(case, wider):
            return Found(case, exact.halves, exact.ties, not exact.divided)
        if not exact.has_digits or any(case.args[i].dtype != torch.float32 for i in self.spans):
            return None
        numbers = torch.tensor(sorted(exact.floats), dtype=torch.float32)
        with Exact([*inputs, numbers], torch.float32) as exact:
            own = self.results(args)
        if not exact.holds or not self._is_one_answer(case, own):
            return None
        return Found(case, exact.halves, exact.ties, not exact.divided, tuple(wider))

    def _is_one_answer(self, case: Case, wider: Sequence[Tensor]) -> bool:
        """Do roundings to the declared dtype, and an order of equal elements that torch leaves open, decide nothing?"""
        if [(o.shape, o.dtype) for o in case.native] != self.form:
            return False
        if not all(alike(n, w.to(n.dtype)) for n, w in zip(case.native, wider, strict=True)):
            return False
        for turned_order in (False, True):
            with Tied(turned_order) as watch:
                found = self.results(case.args)
            if not watch.met:
                return True
            if not all(map(alike, found, case.native)):
                return False
        return True


def _calm(number: float, low: float, high: float) -> float | None:
    """``number`` where it lies between ``low`` and ``high``, else a power of two, of either sign, that does; None where
    there is none."""
    if low <= number <= high:
        return number
    least, most = (max(low, 0.0), high) if high > 0 else (-high, -low)
    power = min(_MOST, 2.0 ** floor(log2(most)))
    if least > power:
        fraction, exponent = frexp(least)
        power = 2.0 ** (exponent - (fraction == 0.5))
    return None if power > most else power if high > 0 else -power
