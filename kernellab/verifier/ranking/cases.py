"""The few cases that find most plain errors in the least time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log

from kernellab.task import Task, small_sizes
from kernellab.task.sample.inputs import Family, families
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases.cases import Case, case
from kernellab.verifier.cases.extents import at_ends
from kernellab.verifier.cases.last_elements import decided_last
from kernellab.verifier.cases.selection import drawn_base, of_all, smoke_case
from kernellab.verifier.protocol.rules import DRAWN, RANK
from kernellab.verifier.survey.survey import Survey

#: purpose of each case, by the first family that the task accepts: rows of all kinds in one batch; values at which exp
#: overflows; means that hide the spread; edges
_KINDS = (
    (Family.MIXED, Family.NORMAL, Family.OWN),
    (Family.LARGE, Family.HEAVY, Family.SCALED, Family.OWN),
    (Family.OFFSET, Family.UNIFORM, Family.OWN),
    (Family.EDGES, Family.STRUCTURED, Family.OWN),
)
#: tile sizes whose neighbours the small sizes include, and attempts to draw a size that the task accepts
_AROUND, _TRIES = (16, 64), 12

Sizes = dict[str, int]


class RankCases:
    """The smallest shape, at least three families and the timed case, each made once, as far as possible during the
    candidate's build."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.smoke = smoke_case(task)
        legal = families(task)
        chosen = [next((f for f in kinds if f in legal), Family.OWN) for kinds in _KINDS]
        self.families = [_case(task, sizes, family) for sizes, family in zip(_sizes(task), chosen, strict=True)]
        # the extents of the others are odd
        powers = _powers(task)
        self.powers = [_case(task, powers, of_all(legal))] if powers else []
        small = dict(self.families[1].sizes)
        #: used for many calls; None for much data, which would take too long
        self.small = _case(task, small, Family.OWN) if input_bytes(task, small) <= RANK.case_bytes else None
        full = dict(task.module().default_sizes())
        ends = [decided_last(_case(task, s, of_all(legal))) for s in at_ends(task, full)]
        self.ends = [replace(c, double=False) for c in ends]
        self._begin_survey()
        self.timed = _case(task, task.module().default_sizes(), Family.OWN)

    def made(self) -> Iterator[None]:
        """Make the cases with the reference's answers, one per step."""
        # an empty step, for a source that is built at once
        yield
        for prepared in (self.smoke, *self.families, *self.powers, *filter(None, [self.small]), *self.ends):
            try:
                _ = prepared.native
            except Exception:  # the stage that needs the case meets the same error and reports it
                return
            yield
        try:
            # not `yield from`: when a build ends, it closes this iterator, which would also close the survey's steps
            for _ in self._steps:
                yield
        except Exception:  # likewise
            self._begin_survey()
        # the reference's time determines the limit for a call
        _ = self.timed.reference_seconds
        yield

    def drawn(self) -> Survey:
        """Inputs drawn from the task's declaration, of the kinds on which a wrong answer is a failure."""
        try:
            for _ in self._steps:
                pass
        except Exception:
            # an iterator that has raised would end silently at the next ranking
            self._begin_survey()
            raise
        return self.survey

    def _begin_survey(self) -> None:
        self.survey = Survey(drawn_base(self.task), DRAWN.rank_cases, DRAWN.rank_seconds, conditions=False)
        self._steps = self.survey.make()


@dataclass
class Recent:
    """The cases of the last ranked task, for some further rankings.

    A search ranks one candidate of a task after the other, and drawing tens of megabytes of inputs takes longer than
    the rest of a ranking on a CPU. Each candidate has a separate process, which knows nothing about earlier ones.
    """

    task: Task | None = None
    cases: RankCases | None = None
    uses: int = 0

    def of(self, task: Task, make: Callable[[Task], RankCases]) -> RankCases:
        """Cases for ``task``: those of the previous ranking, or new ones from ``make`` if that had another task, or if
        they have been used often."""
        if self.cases is None or self.task != task or self.uses >= RANK.case_uses:
            self.task, self.cases, self.uses = task, make(task), 0
        self.uses += 1
        cases = self.cases
        if any(arg.static for arg in task.args) or input_bytes(task) > RANK.stored_case_bytes:
            # static arguments differ for each candidate
            self.cases = None
        return cases


def _case(task: Task, sizes: Sizes, family: Family) -> Case:
    # for much data, float64 is used only if the reference at the declared dtype does not decide
    return replace(case(task, sizes, family), double=input_bytes(task, sizes) <= RANK.case_bytes)


def _sizes(task: Task) -> list[Sizes]:
    """One for each kind of case: the task's own sizes if it has no others; otherwise just next to them, small ones,
    some from the whole range, and small ones again. Extents are odd if possible: not a multiple of any tile."""
    full = dict(task.module().default_sizes())
    if not task.dims:
        return [full] * len(_KINDS)
    draw = random.SystemRandom()
    small = [s for s in map(partial(_odd, task), small_sizes(task, _AROUND, 8)) if 0 not in s.values()]
    several = sorted(small, key=lambda s: input_bytes(task, s))[len(small) // 2 :] or [full]
    bounds = {d.name: (max(d.min, 1), max(min(d.max, 2 * full[d.name]), 1)) for d in task.dims}

    def next_to_full() -> Sizes:
        return {k: n + draw.choice((-1, 1)) for k, n in full.items()}

    def anywhere() -> Sizes:
        return {k: round(exp(draw.uniform(log(low), log(high)))) for k, (low, high) in bounds.items()}

    makers = (next_to_full, lambda: draw.choice(several), anywhere, lambda: draw.choice(several))
    return [_drawn(task, make) or several[-1] for make in makers]


def _powers(task: Task) -> Sizes | None:
    """Sizes with each extent a power of two; None if those are only the task's own."""
    draw = random.SystemRandom()
    full = task.module().default_sizes()
    exponents = {d.name: [k for k in range(1, 31) if d.min <= 1 << k <= d.max] for d in task.dims}
    for _ in range(_TRIES if task.dims and all(exponents.values()) else 0):
        sizes = {k: 1 << draw.choice(choices) for k, choices in exponents.items()}
        if sizes != full and input_bytes(task, sizes) <= RANK.case_bytes and runs_at(task, tuple(sizes.items())):
            return sizes
    return None


def _drawn(task: Task, make: Callable[[], Sizes]) -> Sizes | None:
    """Odd sizes of little data that the task accepts; None if there are none."""
    for _ in range(_TRIES):
        sizes = _odd(task, make())
        while input_bytes(task, sizes) > RANK.case_bytes:
            longest = max(sizes, key=lambda k: sizes[k])
            shorter = _odd(task, {**sizes, longest: sizes[longest] // 2})
            if shorter == sizes:
                break
            sizes = shorter
        if input_bytes(task, sizes) <= RANK.case_bytes and runs_at(task, tuple(sizes.items())):
            return sizes
    return None


def _odd(task: Task, sizes: Sizes) -> Sizes:
    """The same sizes with each extent odd, as far as the Dims' ranges allow."""
    return {d.name: max(d.min, min(d.max, sizes[d.name] | 1)) for d in task.dims}
