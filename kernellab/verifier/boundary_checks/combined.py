"""Calls in which several things differ at once: a covering array over the factors of a task.

Each factor alone was tried before. Of a wrong answer the factors are found that are needed for it, and what the verdict
says of it is the condition of one of these, or a refusal where none has one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from kernellab.conditions import Condition, DrawnLimit
from kernellab.errors import TaskError, counted
from kernellab.target import Backend
from kernellab.task.dtypes import finite
from kernellab.verifier.boundary_checks.attempt import is_within, outputs_of
from kernellab.verifier.boundary_checks.covering import Row
from kernellab.verifier.boundary_checks.factors import Chosen, Combination, Factors, Kind, LaidOut
from kernellab.verifier.cases import answers
from kernellab.verifier.cases.cases import is_noise
from kernellab.verifier.cases.source_numbers import compared_by
from kernellab.verifier.protocol.rules import COMBINED, CORRECT, DRAWN
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages
    from kernellab.verifier.survey.survey import Drawn


def combined(
    stages: Stages, base: Case, right: Mapping[int, Sequence[Any]], drawn: Sequence[Drawn] = (),
    orders: Sequence[tuple[int, str]] = (),
) -> str:  # fmt: skip
    """Check combinations of sizes, contents (of the ``drawn`` cases, and rows in ``orders``), layouts, threads and
    scalars (values for which the kernel is ``right``), and return their number in words.

    Raises:
        Refused: Wrong where nothing but sizes and contents of the task's own differ from the usual.
    """
    on_host = stages.context.request.backend is Backend.CPU
    factors = Factors(base, stages.context.findings.conditions)
    factors.add_scalars(right, compared_by(stages.source))
    if drawn or orders:
        factors.add_contents(drawn if on_host else (), orders if on_host else ())
        factors.add_layouts(places=on_host and not stages.context.interpreted)
        if on_host and not stages.context.interpreted:
            factors.add_sizes(stages.ahead.numbers)
            factors.add_threads()
    return _Search(stages, factors).run() if len(factors.all) > 1 else ""


class _Search:
    """Tries the rows, and finds the cause of each wrong answer."""

    def __init__(self, stages: Stages, factors: Factors) -> None:
        self.stages, self.factors, self.array = stages, factors, factors.array()
        self._done: set[tuple[int, int]] = set()
        self._threads = stages.threads
        self._causes = 0

    def run(self) -> str:
        tried: list[Row] = []
        try:
            for row in self._rows():
                if self._is_tried(row):
                    tried.append(row)
        finally:
            self._team(self.stages.threads)
        if not tried:
            return ""
        return f"{counted(len(tried), 'combination')} ({self.array.share(tried):.0%} of all pairs)"

    def _rows(self) -> Iterator[Row]:
        """Yield the rows of two factors, then those of three sizes and scalars while there is time."""
        interpreted = self.stages.context.interpreted
        began, until = (
            time.thread_time(),
            time.monotonic() + (DRAWN.interpreted_seconds if interpreted else COMBINED.wall_seconds),
        )
        least = COMBINED.min_combinations if self.factors.bytes <= COMBINED.max_bytes else 0
        least_of_clock = COMBINED.interpreted_combinations if interpreted else 0
        few = [i for i, factor in enumerate(self.factors.all) if factor.kind in (Kind.SIZE, Kind.SCALAR)]
        for number, row in enumerate(chain(self.array.rows(2), self.array.rows(3, few))):
            over = number >= least and time.thread_time() - began > COMBINED.seconds
            late = number >= least_of_clock and time.monotonic() > until
            if over or late or self._causes >= COMBINED.max_causes:
                return
            # What the verdict says already is not tried again.
            yield tuple(0 if (factor, level) in self._done else level for factor, level in enumerate(row))

    def _is_tried(self, row: Row) -> bool:
        """Return whether the reference has an answer for a row, after the kernel's was judged. Raises Refused."""
        combination = self.factors.drawn(row)
        laid_out = self._answered(combination)
        if laid_out is None:
            return False
        scalars_alone = combination.of_kind(Kind.SCALAR) and not combination.of_kind(Kind.CONTENTS)
        if scalars_alone and not all(map(finite, laid_out.case.native)):
            return False  # numbers that together have no answer: each alone is only tried where it has one
        if self._is_right(combination, laid_out):
            return True
        if is_noise(laid_out.case):
            return False
        self._causes += 1
        cause = self._cause(combination)
        again = self._answered(cause)
        if again is None:  # the reference may be too late this time
            self._report(combination, laid_out)
        else:
            self._report(cause, again)
        return True

    def _answered(self, combination: Combination) -> LaidOut | None:
        """Return the case and layout of a combination; None if the reference has no answer in time."""
        laid_out = self.factors.laid_out(combination)
        if laid_out is None:
            return None
        case = laid_out.case.glance()
        try:
            with answers.within(CORRECT.scalar_seconds):
                _ = case.native
        except TaskError:
            return None
        return LaidOut(case, laid_out.layout)

    def _is_right(self, combination: Combination, laid_out: LaidOut) -> bool:
        teams = [chosen.value for chosen in combination.of_kind(Kind.THREADS)]
        self._team(teams[0] if teams else self.stages.threads)
        outputs = outputs_of(self.stages, *laid_out)
        if outputs is None:
            self._threads = 0  # the worker may be a new one
        return outputs is not None and is_within(self.stages, laid_out.case, outputs)

    def _team(self, count: int) -> None:
        if count != self._threads and not self.stages.worker.gone():
            self.stages.worker.team(count, self.stages.context.left(10.0))
            self._threads = count

    def _cause(self, combination: Combination) -> Combination:
        """Return the combination without the factors that the wrong answer does not need."""
        for chosen in combination.chosen:
            less = combination.without(chosen)
            laid_out = self._answered(less)
            if laid_out is not None and not self._is_right(less, laid_out) and not is_noise(laid_out.case):
                combination = less
        return combination

    def _report(self, cause: Combination, laid_out: LaidOut) -> None:
        """Add the conditions that exclude the cause of a wrong answer. Raises Refused if there are none."""
        words = f"{cause.words} not handled"
        blamed = min(cause.chosen, key=_order, default=None)
        condition = blamed.level.condition if blamed else None
        if blamed is None or condition is None:
            refusal = self._refusal(cause, laid_out)
            if refusal is not None:
                raise refusal
            # It misses a NaN or an infinity of the reference, which the task's own inputs do not give.
            self._add(DrawnLimit(values=words))
            return
        is_alone = len(cause.chosen) == 1
        if isinstance(condition, DrawnLimit):
            self._add(condition if is_alone else condition.model_copy(update={"values": words}))
        else:
            self._add(condition, *([] if is_alone else [DrawnLimit(values=words)]))
        factor = blamed.factor
        number = self.factors.all.index(factor)
        levels = factor.levels if factor.kind is Kind.SCALAR else [blamed.level]
        self._done |= {(number, factor.levels.index(level)) for level in levels}

    def _add(self, *conditions: Condition) -> None:
        self.stages.context.findings.add(*conditions)

    def _refusal(self, cause: Combination, laid_out: LaidOut) -> Refused | None:
        """Return the refusal; None where only what is not finite in the reference's answer is wrong, for some
        contents."""
        stages, case, words = self.stages, laid_out.case, cause.words or "once, and not again"
        if any(chosen.value.at == "end" for chosen in cause.of_kind(Kind.LAYOUT)):
            message = f"reads beyond the end of an input (the page behind it is not mapped), with {words}"
            return stages.refused(case, "out-of-bounds", message)
        outputs = outputs_of(stages, case, laid_out.layout)
        if outputs is None:
            return stages.refused(case, "crash", f"gives no answer with {words}")
        wrong = stages.comparison.first_wrong(case, outputs, counted=False)
        if wrong is None or cause.of_kind(Kind.THREADS):
            return stages.refused(case, "race", f"wrong in one call with {words}")
        where, native = wrong.mismatch.wrong, case.native[wrong.output]
        if where is not None and cause.of_kind(Kind.CONTENTS) and not bool((where & native.isfinite()).any()):
            return None
        report = evidence.of_mismatch(
            stages.source, wrong.case, wrong.output, wrong.got, wrong.case.references[wrong.output], wrong.mismatch
        )
        return Refused(f"{wrong.mismatch.message} ({case.words}; {words}); {report.signature}.", report)


def _order(chosen: Chosen) -> tuple[int, int]:
    """Place a factor among those of a cause: the first one decides what the verdict says. Reads beyond an input are
    refused; limits of values can be looked at in each call, and exclude the fewest. Of scalars it is the last one."""
    factor, level, value = chosen
    condition = level.condition
    if factor.kind is Kind.LAYOUT and value.at == "end":
        return 0, 0
    if condition is None:
        return len(Kind) + 2, 0
    if isinstance(condition, DrawnLimit):
        is_limit = condition.not_nan or (condition.low, condition.high, condition.least) != (None, None, None)
        return 1 if is_limit else len(Kind) + 1, 0
    if factor.kind is Kind.SCALAR:
        return 2, -factor.target
    return 3 if factor.kind is Kind.LAYOUT else 4, 0
