"""Cases whose arithmetic is exact up to where the reference rounds or compares: which way a tie goes is decided there.

Any right way to compute gives the same values in them, so that no rounding excuses another answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from math import floor, frexp, log2
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError
from kernellab.task.dtypes import alike
from kernellab.verifier.boundary_checks.operations import COMPARISONS, ROUNDED, Edge
from kernellab.verifier.boundary_checks.solve import Solver
from kernellab.verifier.boundary_checks.watch import Exact, Watch, turned
from kernellab.verifier.compare.roundings import Tied
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
#: the largest power of two that stands for zero where that is none of an argument's values
_MOST = 1.0


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

    def make(self) -> Iterator[Case]:
        """One case for roundings, and those for the comparisons of floats that have a side for equal values."""
        compared = {e for e in self.edges if e.op in COMPARISONS and e.name == "difference at"}
        on_grids = list(self._on_grids()) if compared or any(e.op in ROUNDED for e in self.edges) else []
        for count in ("halves", "ties"):
            found = [one for one in on_grids if getattr(one[0], count)]
            if found:
                yield max(found, key=lambda one: getattr(one[0], count))[1]
        if any(op in self.calls for op in _PLACED):
            yield from self._shared()
        if compared and self.left():
            yield from self._still(compared)

    def _shared(self) -> Iterator[Case]:
        """Half of the elements of an argument are elements of a sorted one, in which their places are looked for."""
        is_sorted = {i: bool((self.base.args[i].diff() >= 0).all()) for i in self.spans if self.base.args[i].dim()}
        for one, other in permutations(is_sorted, 2):
            if is_sorted[one] or not is_sorted[other]:
                continue
            case = self.base.with_change(("shared", one, other, secrets.randbits(31)))
            if self._exact(case) is not None:
                yield case
                return

    def _on_grids(self) -> Iterator[tuple[Exact, Case]]:
        spread = tuple((i, *span) for i, span in self.spans.items())
        for most, step in _GRIDS:
            change = ("halves", self.largest, secrets.randbits(31), spread, most, step)
            case = self.base.with_change(change)
            exact = self._exact(case)
            if exact is not None:
                yield exact, case

    def _still(self, compared: set[Edge]) -> Iterator[Case]:
        """Cases of arguments that are zero (or a power of two) but for single elements that lead to a tie: what a loop
        over time has made before is exact then, too."""
        values = tuple((i, _calm(*span)) for i, span in self.spans.items())
        if any(value is None for _, value in values):
            return

        def case_of(*patches: tuple[int, int, float]) -> Case:
            return self.base.with_change(("still", self.largest, values, patches))

        still = case_of()
        watch = self.run(still.args)
        if watch is None:
            return
        calm = self._decided(still, {e for e in compared if watch.edges.get(e)})
        if calm:
            yield still
        found: dict[tuple[int, int], float] = {}

        def decides(edge: Edge, at: tuple[int, int, float]) -> bool:
            return bool(self._decided(case_of(at), {edge}))

        missing = sorted(compared - calm, key=lambda e: (e.op, e.number))
        secrets.SystemRandom().shuffle(missing)
        solver = Solver(self.run, still.args, watch, self.spans, secrets.randbits(31), decides, step=1.0)
        for patch in solver.solve(missing[: DRAWN.exact_edges], self.left):
            found.setdefault((patch.position, patch.index), patch.value)
        patches = [(*at, value) for at, value in found.items()]
        together = case_of(*patches)
        if len(patches) > 1 and self._exact(together) is not None:
            yield together
        else:
            yield from map(case_of, patches[: DRAWN.solved])

    def _decided(self, case: Case, edges: set[Edge]) -> set[Edge]:
        """Those of the comparisons ``edges`` whose answer for equal values decides an output of ``case``, which is
        exact; none where it is not."""
        with suppress(KernellabError, RuntimeError, ValueError):
            if edges and self._exact(case) is not None:
                return {e for e in edges if turned(self.results, case.args, case.native, e).matters}
        return set()

    def _exact(self, case: Case) -> Exact | None:
        """A run in float64; None where it is not exact, or does not run, or more than one answer is right."""
        for narrower in (8, 4):  # a reference that names float32 runs in no wider dtype
            with suppress(KernellabError, RuntimeError, ValueError):
                args = [
                    a.double() if i in self.spans and a.dtype.itemsize < narrower else a
                    for i, a in enumerate(case.args)
                ]
                # in float32 a limit of many digits is another number than the reference's
                with Exact([args[i] for i in self.spans] if narrower == 8 else ()) as exact:
                    wider = self.results(args)
                return exact if exact.holds and self._is_one_answer(case, wider) else None
        return None

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


def _calm(low: float, high: float) -> float | None:
    """Zero, or the power of two nearest to it, between ``low`` and ``high``; None where there is none."""
    if low <= 0.0 <= high:
        return 0.0
    least, most = (low, high) if low > 0 else (-high, -low)
    fraction, exponent = frexp(least)
    power = 2.0 ** (exponent - (fraction == 0.5))
    power = max(power, min(_MOST, 2.0 ** floor(log2(most))))
    return None if power > most else power if low > 0 else -power
