"""Cases with exact arithmetic up to where the reference rounds or compares, so that they decide which way a tie goes.

Any right computation gives the same values, so no rounding excuses another answer. A case is the base case with one
change of :mod:`kernellab.verifier.cases.changes`, by its first word:

- ``halves``: the values of an argument are multiples of a step (a grid), many of which the reference rounds at a half;
- ``shared``: half of the values that are searched for stand in the sorted argument;
- ``still``: every argument is constant but for single elements, so that two compared values are equal (a tie).

``round(x * 20)`` with x = 0.125 rounds the half 2.5; ``x > 0.5`` with x = 0.5 decides a tie.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from math import floor, frexp, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.errors import KernellabError
from kernellab.task.dtypes import alike
from kernellab.task.meta.ties import Tied
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.survey.operations import COMPARISONS, ROUNDED, Edge
from kernellab.verifier.survey.solve import Solver
from kernellab.verifier.survey.watch import Exact, Watch, turned

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.cases.cases import Case

    Tensor = torch.Tensor


class _Grid(NamedTuple):
    """Values of an argument: multiples of ``step`` up to ``largest``; with ``peak`` each row has this largest value."""

    largest: float
    step: float
    peak: float | None = None

    @property
    def change(self) -> tuple[float, ...]:
        """What the change ``halves`` ends with."""
        return (self.largest, self.step) if self.peak is None else (self.largest, self.step, self.peak)


#: The finest steps with exact arithmetic meet the most ties (for x * 20, multiples of an eighth).
_GRIDS = (_Grid(8.0, 0.5), _Grid(2.0, 0.125), _Grid(1.0, 0.5))
#: Operations that compare with each element of a sorted tensor.
_PLACED = ("searchsorted", "bucketize")
#: Upper bound on the levels of a quantisation, so that their halves have few digits.
_LEVELS = 512
#: Exceptions that a reference may raise for values that it does not accept.
_RAISED = (KernellabError, RuntimeError, ValueError)
#: Largest power of two that replaces zero if an argument cannot be zero.
_MOST = 1.0
#: Bytes of an element below which floats are widened to float64 for a run that has to be exact: all, or halves alone,
#: since a reference that names float32 runs in no wider dtype.
_WIDENED = (8, 4)


@dataclass(frozen=True)
class Found:
    """An exact case."""

    case: Case
    #: numbers that the reference rounds at a half, and pairs of equal numbers that it compares
    halves: int
    ties: int
    #: no right computation gives another answer; otherwise one may that adds up divided terms, or uses a GPU's fast
    #: division
    sure: bool
    #: the float64 answer if it differs, because a limit (0.9) has more digits there
    wider: tuple[Tensor, ...] = ()


class ExactCases:
    """The exact cases of ``base``. ``spans``: least and largest value of each float argument; ``edges`` and ``calls``:
    of its reference's operations; ``run`` watches a run of the reference (None if it raises)."""

    def __init__(
        self, base: Case, spans: dict[int, tuple[float, float]], edges: set[Edge], calls: Container[str],
        run: Callable[[Sequence[Any]], Watch | None], left: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.base, self.spans, self.edges, self.run, self.left = base, spans, edges, run, left
        self.calls = calls
        self.form = [(o.shape, o.dtype) for o in base.native]
        self.results = base.task.module().results
        self.largest = max(spans, key=lambda i: base.args[i].numel())
        #: Number of inputs at which the reference raises.
        self.dropped = 0

    def make(self) -> Iterator[Found]:
        """Yield one case for roundings, and the cases for float comparisons that distinguish equal values."""
        compared = {e for e in self.edges if e.op in COMPARISONS and e.name == "difference at"}
        rounded = any(e.op in ROUNDED for e in self.edges)
        on_grids = list(self._on_grids(rounded)) if compared or rounded or "histc" in self.calls else []
        for count in ("halves", "ties"):
            cases = [grid_case for grid_case in on_grids if getattr(grid_case, count)]
            if cases and "histc" not in self.calls:
                yield max(cases, key=lambda one: (one.sure, getattr(one, count)))
        if "histc" in self.calls:
            yield from on_grids
        if any(op in self.calls for op in _PLACED):
            yield from self._shared()
        # All zero, then all one: only ones can equal a mean that is not zero.
        for values in dict.fromkeys(
            tuple(_constant_within(n, *span) for span in self.spans.values()) for n in (0.0, _MOST)
        ):
            if compared and None not in values and self.left():
                compared = yield from self._still(compared, tuple(zip(self.spans, values, strict=True)))

    def _shared(self) -> Iterator[Found]:
        """Yield a case in which half of an argument's elements occur in a sorted argument that is searched for them."""
        is_sorted = {i: bool((self.base.args[i].diff() >= 0).all()) for i in self.spans if self.base.args[i].dim()}
        for position, sorted_position in permutations(is_sorted, 2):
            if is_sorted[position] or not is_sorted[sorted_position]:
                continue
            exact_case = self._exact(self.base.with_change(("shared", position, sorted_position, secrets.randbits(31))))
            if exact_case is not None:
                yield exact_case
                return

    def _on_grids(self, rounded: bool) -> Iterator[Found]:
        spread = tuple((i, *span) for i, span in self.spans.items())
        for grid in (*_GRIDS, *(self._peaks() if rounded else ())):
            case = self.base.with_change(("halves", self.largest, secrets.randbits(31), spread, *grid.change))
            try:
                _ = case.args
            except ValueError:
                continue  # no power of two is among an argument's values
            exact_case = self._exact(case)
            if exact_case is not None and (exact_case.sure or grid.peak is not None):
                yield exact_case

    def _peaks(self) -> Iterator[_Grid]:
        """Yield grids whose largest value becomes a power of two by one of the reference's divisors (the 127 levels of
        a row's maximum), so that the quotients have halves."""
        with Exact() as mode, suppress(*_RAISED):
            self.results(self.base.args)
        whole = sorted(n for n in mode.divisors if 2 < n < _LEVELS and n.is_integer() and frexp(n)[0] != 0.5)
        for number in whole[:2]:
            peak = frexp(number)[0] * _GRIDS[0][0]
            yield _Grid(peak, peak / number / 2, peak)

    def _still(
        self, compared: set[Edge], values: tuple[tuple[int, float | None], ...]
    ) -> Generator[Found, None, set[Edge]]:
        """Yield cases whose arguments are constant except for single elements that lead to a tie, so that earlier
        results of a loop over time are exact too. Return the comparisons that decide nothing in any of them."""

        def case_of(*patches: tuple[int, int, float]) -> Case:
            return self.base.with_change(("still", self.largest, values, patches))

        base_case = case_of()
        watch = self.run(base_case.args)
        if watch is None:
            self.dropped += 1
            return compared
        decided_edges, decided = self._decided(base_case, {e for e in compared if watch.edges.get(e)})
        if decided is not None:
            yield decided
        reached = set(decided_edges)
        patched: dict[tuple[int, int], float] = {}

        def decides(edge: Edge, at: tuple[int, int, float]) -> bool:
            return self._decided(case_of(at), {edge})[1] is not None

        missing = sorted(compared - decided_edges, key=lambda e: (e.op, e.number))
        secrets.SystemRandom().shuffle(missing)
        solver = Solver(self.run, base_case.args, watch, self.spans, secrets.randbits(31), decides, step=1.0)
        for patch in solver.solve(missing[: DRAWN.exact_edges], self.left):
            patched.setdefault((patch.position, patch.index), patch.value)
            reached.add(patch.edge)
        patches = [(*at, value) for at, value in patched.items()]
        combined = self._exact(case_of(*patches)) if len(patches) > 1 else None
        if combined is not None:
            yield combined
        else:
            yield from filter(None, (self._exact(case_of(patch)) for patch in patches[: DRAWN.solver_cases]))
        return compared - reached

    def _decided(self, case: Case, edges: set[Edge]) -> tuple[set[Edge], Found | None]:
        """Return the comparisons ``edges`` whose result for equal values decides an output of ``case``, and the exact
        case if there are any; none if the case is not exact."""
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
        """Return the case if float64 computes the same; None if its arithmetic is not exact, the reference does not
        run, or several answers are right."""
        for item_bytes in _WIDENED:
            try:
                return self._exact_with(case, item_bytes)
            except _RAISED:
                continue
        self.dropped += 1
        return None

    def _exact_with(self, case: Case, item_bytes: int) -> Found | None:
        """As :meth:`_exact`, with floats of fewer bytes than ``item_bytes`` as float64. Raises what the reference
        raises for these."""
        import torch

        args = [
            a.double() if i in self.spans and a.dtype.itemsize < item_bytes else a for i, a in enumerate(case.args)
        ]  # fmt: skip
        # In float32, a limit of many digits differs from the reference's.
        inputs = [args[i] for i in self.spans] if item_bytes == 8 else []
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
        """Return whether neither roundings to the declared dtype nor the order of equal elements decide anything."""
        if [(o.shape, o.dtype) for o in case.native] != self.form:
            return False
        if not all(alike(n, w.to(n.dtype)) for n, w in zip(case.native, wider, strict=True)):
            return False
        for turned_order in (False, True):
            with Tied(turned_order) as watch:
                outputs = self.results(case.args)
            if not watch.met:
                return True
            if not all(map(alike, outputs, case.native)):
                return False
        return True


def _constant_within(number: float, low: float, high: float) -> float | None:
    """Return the value of a constant argument: ``number`` if it is between ``low`` and ``high``, else a power of two of
    either sign that is, or None."""
    if low <= number <= high:
        return number
    least, most = (max(low, 0.0), high) if high > 0 else (-high, -low)
    power = min(_MOST, 2.0 ** floor(log2(most)))
    if least > power:
        fraction, exponent = frexp(least)
        power = 2.0 ** (exponent - (fraction == 0.5))
    return None if power > most else power if high > 0 else -power
