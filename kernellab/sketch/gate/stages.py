"""The sketch gate: a sketch runs against the task's reference before any code is written.

The gate chooses small sizes that reach every edge: 1, primes, exact multiples of the tiles and their neighbours, and 0
if the task allows it. A task of fixed shapes is reduced along the axes that may vary in its reference; if there are
none, a sample of the parallel iterations runs on the real shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from time import perf_counter

from kernellab.errors import NotRunnable, SketchError, TaskError, counted, lasting
from kernellab.records import Diagnostic, GateResult, GateState
from kernellab.sketch.gate.cases import Case, cases, own_case
from kernellab.sketch.gate.reduced_copy import derives, twins
from kernellab.sketch.gate.reference import steady
from kernellab.sketch.gate.run_case import CaseResult, run_case
from kernellab.sketch.gate.symbols import generalise
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.program import Program
from kernellab.sketch.run.confined import OutOfTime, one_worker, used
from kernellab.target import Chip
from kernellab.target.threads import one_thread
from kernellab.task import Task
from kernellab.task.sample.constants import constants
from kernellab.task.sample.shrink import drawn

#: number of cases that run regardless of the time
_LEAST_CASES = 3
#: least elements of an input that gets constant contents
_LEAST_ELEMENTS = 8


def gate(
    program_or_text: Program | str,
    task: Task,
    *,
    chip: Chip | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    seconds: float = 1.0,
    whole: bool = False,
) -> GateResult:
    """Is the sketch right for ``task``? Runs it in float64 and in its declared dtypes at edge sizes.

    ``constexpr`` are values of tunables; each tunable is also tried at its smallest legal value. Cases start until
    ``seconds`` of CPU time, this thread's and the worker's, have passed, so that a busy machine runs no fewer.
    ``whole``: every case runs, so that all machines agree; if ``seconds`` end it before, the reason says so. Does not
    raise for a bad sketch: WRONG has the size that failed and how, NOT_RUNNABLE the reason."""
    start = perf_counter()
    work = _Gate(task, used(), seconds, whole)
    with one_worker(), one_thread():
        result = work.judge(program_or_text, chip, dict(constexpr or {}))
    return result.model_copy(update={"seconds": perf_counter() - start})


@dataclass
class _Gate:
    """One run of the gate; ``cases`` and ``max_error`` are those of its result, and grow with each case that counts."""

    task: Task
    #: the CPU time at the start, as ``used`` returns it, and the seconds after which no case starts
    start: float
    seconds: float
    whole: bool = False
    cases: int = 0
    #: did a whole run end for lack of time?
    has_ended: bool = False
    #: was a sketch of fixed shapes wrong at smaller sizes?
    is_doubted: bool = False
    #: was it wrong so in a configuration whose own shapes are too large to run?
    is_unsettled: bool = False
    max_error: float = 0.0
    #: why a case was not run; "" if none was left out
    skipped: str = ""
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def judge(self, program_or_text: Program | str, chip: Chip | None, constexpr: dict[str, int | float]) -> GateResult:
        program = program_or_text
        if isinstance(program, str):
            from kernellab.sketch.check import check

            checked = check(program, chip=chip, constexpr=constexpr)
            self.diagnostics = list(checked.diagnostics)
            if checked.program is None:
                first = next((d for d in self.diagnostics if d.severity == "error"), self.diagnostics[0])
                return self._result(GateState.WRONG, f"Line {first.line}: {first.message} {first.remedy}".strip())
            program = checked.program
        try:
            configurations = _configurations(program, self.task, constexpr)
            for values, binding in configurations:
                failed = self._configuration(program, binding, values)
                if failed is not None:
                    return failed
        except NotRunnable as error:
            return self._result(GateState.NOT_RUNNABLE, str(error))
        except SketchError as error:
            return self._result(GateState.WRONG, str(error))
        except TaskError as error:
            return self._result(GateState.NOT_RUNNABLE, f"The reference cannot be run: {error.message}")
        if not self.cases:
            reason = self.skipped or "No size of the task is small enough to interpret."
            return self._result(GateState.NOT_RUNNABLE, reason)
        unsettled = (
            " Other small sizes are wrong, and the task's own are too large to run." if self.is_unsettled else ""
        )
        return self._result(GateState.RIGHT, f"Right on {counted(self.cases, 'small case')}.{unsettled}")

    def _configuration(
        self, program: Program, binding: Binding, values: Mapping[str, int | float]
    ) -> GateResult | None:
        """Return the failure of a configuration; None if it is right, or nothing could be run."""
        self.is_doubted = False
        results = list(self._edge_cases(program, binding))
        if results and all(result.mismatch is None for result in results):
            results += self._constant_contents(program, binding, [result.case for result in results])
        if not results and not self.task.dims:
            results = self._smaller_sizes(program, binding)
        failures = [result for result in results if result.mismatch is not None]
        if self.is_doubted or (failures and failures[0].case.is_cut and not failures[0].case.contents):
            # a sample of the iterations does not show elements that no iteration writes
            own = self._on_own_shapes(program, binding, whole=True) or self._on_own_shapes(program, binding)
            if own is not None:
                # right there: the sketch contains a number that belongs to the fixed shape
                failures = [*failures, own] if own.mismatch is not None else []
            self.is_unsettled |= own is None and not failures
        elif not results:
            own = self._on_own_shapes(program, binding)
            failures = [own] if own is not None and own.mismatch is not None else []
        if not failures:
            return None
        right = [result for result in results if result.mismatch is None]
        return self._wrong(failures, right, values)

    def _edge_cases(self, program: Program, binding: Binding) -> Iterator[CaseResult]:
        """Run the edge cases in order; after the first failure a few more, to locate it."""
        ran, end = 0, self.start + self.seconds
        for case in cases(program, binding, self.task):
            if (self.whole or ran >= _LEAST_CASES) and used() > end:
                self.has_ended = True
                return
            try:
                result = self._case(program, binding, case)
                if result is None and case.plain is not None:
                    result = self._case(program, binding, case.plain)
            except OutOfTime as error:
                self.skipped = error.message
                continue
            except SketchError as error:
                if isinstance(error, NotRunnable) or not case.is_cut:
                    raise
                continue  # the sketch contains the fixed extents
            if result is None:
                continue
            ran += 1
            if result.mismatch is not None and not self.whole:
                end = min(end, used() + self.seconds / 4)
            yield result

    def _constant_contents(self, program: Program, binding: Binding, ran: Sequence[Case]) -> list[CaseResult]:
        """Return the first failure of a case that ``ran``, with constant contents; as many run as fit into a part of
        the time. They are not counted as sizes."""
        base = next((case for case in ran if _has_tensor_of(case, _LEAST_ELEMENTS)), ran[-1])
        before, max_error, end = self.cases, self.max_error, used() + self.seconds / 2
        for number, one in enumerate(constants(self.task, base.args)):
            if number and not self.whole and used() > end:
                break
            try:
                result = self._case(program, binding, replace(base, args=one.args, contents=one.contents, plain=None))
            except OutOfTime:
                break
            except SketchError:
                continue  # it depends on values where extents are read from them
            wrong = result.mismatch if result is not None else None
            if result is not None and wrong is not None and (wrong.not_finite or steady(self.task, one.args)):
                return [result]
        self.cases, self.max_error = before, max_error
        return []

    def _smaller_sizes(self, program: Program, binding: Binding) -> list[CaseResult]:
        """Run a sketch with fixed extents as numbers at smaller sizes; a failure there proves nothing."""
        windows = derives(self.task)
        if windows and (results := self._reduced_copies(program, binding)):
            return results
        general = generalise(program, binding, self.task)
        if general is not None:
            before = self.cases
            results = list(self._edge_cases(*general))
            wrong = any(result.mismatch for result in results)
            if results and not wrong:
                return results
            # a number may have another meaning: only the real shapes decide
            self.cases, self.is_doubted = before, self.is_doubted or wrong
        return [] if windows else self._reduced_copies(program, binding)

    def _reduced_copies(self, program: Program, binding: Binding) -> list[CaseResult]:
        """Run the sketch's reduced copies; a wrong one may have a number that was not reduced."""
        results: list[CaseResult] = []
        for twin, sizes in twins(program, self.task):
            args = drawn(self.task, sizes, len(results))
            if args is None or used() > self.start + 3 * self.seconds:
                break
            extents = {f"{axis.size}": size for axis, size in sizes.items()}
            before, max_error = self.cases, self.max_error
            try:
                result = self._case(twin, binding, Case(args, extents, is_cut=True))
            except SketchError as error:
                self.skipped = self.skipped or error.message
                continue
            if result is None or result.mismatch is not None:
                self.cases, self.max_error = before, max_error
                self.is_doubted |= result is not None
                continue
            results.append(result)
        return results

    def _on_own_shapes(self, program: Program, binding: Binding, whole: bool = False) -> CaseResult | None:
        """Run the task's own shapes: all iterations if ``whole``, else a sample; None if that is too much work."""
        case = own_case(program, self.task)
        if case is None:
            self.skipped = self.skipped or "The task's shapes are fixed and too large to run here."
            return None
        try:
            return self._case(program, binding, replace(case, sampled=case.sampled and not whole))
        except OutOfTime as error:
            self.skipped = error.message
            return None

    def _case(self, program: Program, binding: Binding, case: Case) -> CaseResult | None:
        """Run a case and count it; None if the reference does not accept it."""
        seconds = self.seconds if self.whole else 4 * self.seconds
        result = run_case(self.task, program, binding, case, seconds)
        if result is not None:
            self.max_error = max(self.max_error, result.error)
            self.cases += result.mismatch is None
        return result

    def _wrong(
        self, failures: Sequence[CaseResult], right: Sequence[CaseResult], values: Mapping[str, int | float]
    ) -> GateResult:
        # the smallest share of wrong elements locates the fault best
        worst = min(failures, key=lambda result: result.mismatch.share if result.mismatch else 1.0)
        assert worst.mismatch is not None
        extents = ", ".join(f"{k} = {v}" for k, v in values.items())
        with_values = f" with {extents}" if extents else ""
        reason = f"{worst.output} is wrong at {worst.case.at}{with_values}: {worst.mismatch.sentence}."
        for is_wrong, words in ((True, "wrong, too"), (False, "right")):
            if names := [name for name, w in worst.others.items() if w is is_wrong]:
                reason += f" {', '.join(names)} {'is' if len(names) == 1 else 'are'} {words}."
        single = next((result for result in failures if result.alone), None)
        if single is not None and single.mismatch is not None and not worst.alone:
            reason += f" At {single.case.at} {single.output} alone is wrong: {single.mismatch.sentence}."
        if right and worst.case.contents:
            reason += f" It is right on {counted(len(right), 'size')} with other contents."
        elif right:
            reason += (
                f" It is right on {len(right)} of {len(right) + len(failures)} sizes, such as {right[-1].case.at}."
            )
        self.cases += sum(not result.case.contents for result in failures)
        return self._result(GateState.WRONG, reason, worst.case)

    def _result(self, state: GateState, reason: str, case: Case | None = None) -> GateResult:
        if self.whole and self.has_ended:
            reason += f" The other sizes were not run: {lasting(self.seconds)} were over."
        return GateResult(
            state=state,
            reason=reason,
            diagnostics=self.diagnostics,
            cases=self.cases,
            max_error=self.max_error if self.cases else None,
            sizes=dict(case.sizes) if case else {},
            contents=dict(case.contents) if case else {},
        )


def _configurations(
    program: Program, task: Task, constexpr: dict[str, int | float]
) -> list[tuple[dict[str, int | float], Binding]]:
    """Return the given values of the tunables, then each tunable at its smallest legal value."""
    bound = bind(program, task, constexpr)
    defaults = {c.name: bound.constexpr[c.name] for c in program.constexprs if c.is_extent or c.choices}
    configurations = [(defaults, bound)]
    smallest = {c.name: min(c.choices) for c in program.tunables}
    if any(defaults[k] != v for k, v in smallest.items()):
        # a require line may forbid that combination
        with suppress(NotRunnable):
            configurations.insert(0, ({**defaults, **smallest}, bind(program, task, {**constexpr, **smallest})))
    return configurations


def _has_tensor_of(case: Case, elements: int) -> bool:
    return any(hasattr(a, "shape") and prod(a.shape) >= elements for a in case.args)
