"""The sketch gate: a sketch runs against the task's reference before any code is written.

The gate chooses small sizes that reach every edge: 1, primes, exact multiples of the tiles and their neighbours, and 0
if the task allows it. A task of fixed shapes is reduced along the axes that may vary in its reference; if there are
none, a sample of the parallel iterations runs on the real shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

from kernellab.errors import NotRunnable, SketchError, TaskError, counted, kilobytes, lasting
from kernellab.records import Diagnostic, GateResult, GateState
from kernellab.sketch.gate.cases import Case, cases, own_case
from kernellab.sketch.gate.compare import FLOORS, Mismatch, compare64, compare_declared, wrong64, wrong_declared
from kernellab.sketch.gate.reduced_copy import derives, twins
from kernellab.sketch.gate.reference import reference, reference64, steady
from kernellab.sketch.gate.symbols import generalise
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.program import DType, Gemm, Program, TensorRole
from kernellab.sketch.program.walk import statements
from kernellab.sketch.run import execute
from kernellab.sketch.run.confined import OutOfTime, one_worker, used
from kernellab.target import Chip
from kernellab.target.threads import all_threads, one_thread
from kernellab.task import Task
from kernellab.task.dtypes import finite, held
from kernellab.task.sample.constants import constants, with_contents
from kernellab.task.sample.shrink import drawn
from kernellab.task.sample.sizes import asked_sizes, input_bytes

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: most elements of all tensors of a case, and of a reduced one, whose temporary tensors may not be reduced
_MOST_ELEMENTS, _MOST_CUT = 48 << 20, 8 << 20
#: number of cases that run regardless of the time
_AT_LEAST = 3
#: most bytes of inputs and outputs of a case at requested sizes
_MOST_ASKED = 1 << 20
#: most iterations of each parallel loop that run on real shapes
_KEEP = 3
#: least elements of an input that gets constant contents
_SOME = 8
#: bytes of inputs from which the reference runs on all threads
_LARGE = 4 << 20


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


@dataclass(frozen=True)
class Output:
    """One output in the reference's shape: the sketch's and the reference's values, and masks of stored and of wrong
    elements."""

    got: Tensor
    want: Tensor
    stored: Tensor
    wrong: Tensor


def outputs(
    program: Program, task: Task, sizes: Mapping[str, int], constexpr: Mapping[str, int | float], seconds: float = 4.0,
    contents: Mapping[str, float] | None = None,
) -> tuple[Case, dict[str, Output]]:  # fmt: skip
    """Return what a sketch computes on one small case, by tensor; in float64 if the reference can, else in the declared
    dtypes. ``sizes`` are those of a case of the gate, or of Dims; empty: a case of several tiles. ``contents`` has the
    arguments with constant contents.

    Raises:
        NotRunnable: there is no such case, it is too large, or the sketch cannot be run. SketchError: the sketch does
        not fit the task. TaskError: the reference does not accept the case, or the task has no such tensor.
    """
    binding = bind(program, task, constexpr)
    case = _asked(program, binding, task, dict(sizes))
    if contents:
        case = replace(case, args=with_contents(task, case.args, contents).args, contents=contents)
    work, shown = _Gate(task, used(), seconds), dict[str, Output]()
    with one_worker(), one_thread():
        exact = reference64(task, case.args)
        want = work._held(exact if exact is not None else reference(task, case.args))
        values = {**binding.constexpr, **{n: case.args[p] for n, p in binding.scalars.items()}}
        symbols = _symbols(program, binding, case, want)
        if _elements(program, {**values, **symbols}) > _MOST_ELEMENTS:
            raise NotRunnable("The sketch's tensors are too large to interpret it.", "Give smaller sizes.")
        ran = execute(
            program, binding.inputs(case.args), symbols=symbols, constexpr=values, f64=exact is not None,
            keep=_KEEP if case.sampled else None, seconds=seconds,
        )  # fmt: skip
    for bound, expected in zip(binding.outputs, want, strict=True):
        got, stored, _ = _output(ran.outputs[bound.tensor], ran.written[bound.tensor], expected, case)
        judged = wrong64(got, expected) if exact is not None else wrong_declared(got, expected, tf32=in_tf32(program))
        shown[bound.tensor] = Output(got, expected, stored, judged[1] & stored if case.sampled else judged[1])
    return case, shown


def _asked(program: Program, binding: Binding, task: Task, sizes: dict[str, int]) -> Case:
    listed = list(cases(program, binding, task))
    if task.dims and sizes:
        sizes = asked_sizes(task, sizes)
    case = next((case for case in listed if dict(case.sizes) == sizes), None) if sizes else None
    if not sizes:
        case = listed[:2][-1] if listed else own_case(program, task)
    elif case is None and task.dims and input_bytes(task, sizes) <= _MOST_ASKED:
        case = Case(task.module().sample(sizes, seed=0), sizes)
    if case is None:
        at = "; ".join(one.at for one in listed) or "none, as its shapes are fixed"
        much = f"its tensors take {kilobytes(input_bytes(task, sizes))}, and at most {kilobytes(_MOST_ASKED)} are run"
        why = much if task.dims and sizes else "its shapes are fixed"
        raise NotRunnable(f"No case of these sizes can be run here: {why}.", f"Take one of the gate's: {at}.")
    return case


@dataclass(frozen=True)
class _Seen:
    """The result of one case: right, or the first wrong output, its mismatch, and which other outputs were wrong."""

    case: Case
    output: str = ""
    mismatch: Mismatch | None = None
    #: whether each other output was wrong too
    others: Mapping[str, bool] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether no other output was wrong."""
        return not any(self.others.values())


@dataclass
class _Gate:
    task: Task
    start: float
    seconds: float
    whole: bool = False
    cases: int = 0
    #: did a whole run end for lack of time?
    ended: bool = False
    #: was a sketch of fixed shapes wrong at smaller sizes?
    doubted: bool = False
    #: was it wrong so in a configuration whose own shapes are too large to run?
    unsettled: bool = False
    worst: float = 0.0
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
        unsettled = " Other small sizes are wrong, and the task's own are too large to run." if self.unsettled else ""
        return self._result(GateState.RIGHT, f"Right on {counted(self.cases, 'small case')}.{unsettled}")

    def _configuration(
        self, program: Program, binding: Binding, values: Mapping[str, int | float]
    ) -> GateResult | None:
        """Return the failure of a configuration; None if it is right, or nothing could be run."""
        self.doubted = False
        looked = list(self._look(program, binding))
        if looked and all(seen.mismatch is None for seen in looked):
            looked += self._constant(program, binding, [seen.case for seen in looked])
        if not looked and not self.task.dims:
            looked = self._smaller(program, binding)
        failures = [seen for seen in looked if seen.mismatch is not None]
        if self.doubted or (failures and failures[0].case.is_cut and not failures[0].case.contents):
            # a sample of the iterations does not show elements that no iteration writes
            own = self._on_own_shapes(program, binding, whole=True) or self._on_own_shapes(program, binding)
            if own is not None:
                # right there: the sketch contains a number that belongs to the fixed shape
                failures = [*failures, own] if own.mismatch is not None else []
            self.unsettled |= own is None and not failures
        elif not looked:
            own = self._on_own_shapes(program, binding)
            failures = [own] if own is not None and own.mismatch is not None else []
        if not failures:
            return None
        right = [seen for seen in looked if seen.mismatch is None]
        return self._wrong(failures, right, values)

    def _look(self, program: Program, binding: Binding) -> Iterator[_Seen]:
        """Run the edge cases in order; after the first failure a few more, to locate it."""
        ran, end = 0, self.start + self.seconds
        for case in cases(program, binding, self.task):
            if (self.whole or ran >= _AT_LEAST) and used() > end:
                self.ended = True
                return
            try:
                seen = self._case(program, binding, case)
                if seen is None and case.plain is not None:
                    seen = self._case(program, binding, case.plain)
            except OutOfTime as error:
                self.skipped = error.message
                continue
            except SketchError as error:
                if isinstance(error, NotRunnable) or not case.is_cut:
                    raise
                continue  # the sketch contains the fixed extents
            if seen is None:
                continue
            ran += 1
            if seen.mismatch is not None and not self.whole:
                end = min(end, used() + self.seconds / 4)
            yield seen

    def _constant(self, program: Program, binding: Binding, ran: Sequence[Case]) -> list[_Seen]:
        """Return the first failure of a case that ``ran``, with constant contents; as many run as fit into a part of
        the time. They are not counted as sizes."""
        base = next((case for case in ran if _holds(case, _SOME)), ran[-1])
        before, worst, end = self.cases, self.worst, used() + self.seconds / 2
        for number, one in enumerate(constants(self.task, base.args)):
            if number and not self.whole and used() > end:
                break
            try:
                seen = self._case(program, binding, replace(base, args=one.args, contents=one.contents, plain=None))
            except OutOfTime:
                break
            except SketchError:
                continue  # it depends on values where extents are read from them
            wrong = seen.mismatch if seen is not None else None
            if seen is not None and wrong is not None and (wrong.not_finite or steady(self.task, one.args)):
                return [seen]
        self.cases, self.worst = before, worst
        return []

    def _smaller(self, program: Program, binding: Binding) -> list[_Seen]:
        """Run a sketch with fixed extents as numbers at smaller sizes; a failure there proves nothing."""
        windows = derives(self.task)
        if windows and (looked := self._twins(program, binding)):
            return looked
        general = generalise(program, binding, self.task)
        if general is not None:
            before = self.cases
            looked = list(self._look(*general))
            wrong = any(seen.mismatch for seen in looked)
            if looked and not wrong:
                return looked
            # a number may have another meaning: only the real shapes decide
            self.cases, self.doubted = before, self.doubted or wrong
        return [] if windows else self._twins(program, binding)

    def _twins(self, program: Program, binding: Binding) -> list[_Seen]:
        """Run the sketch's reduced copies; a wrong one may have a number that was not reduced."""
        looked: list[_Seen] = []
        for twin, sizes in twins(program, self.task):
            args = drawn(self.task, sizes, len(looked))
            if args is None or used() > self.start + 3 * self.seconds:
                break
            extents = {f"{axis.size}": size for axis, size in sizes.items()}
            before, worst = self.cases, self.worst
            try:
                seen = self._case(twin, binding, Case(args, extents, is_cut=True))
            except SketchError as error:
                self.skipped = self.skipped or error.message
                continue
            if seen is None or seen.mismatch is not None:
                self.cases, self.worst = before, worst
                self.doubted |= seen is not None
                continue
            looked.append(seen)
        return looked

    def _on_own_shapes(self, program: Program, binding: Binding, whole: bool = False) -> _Seen | None:
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

    def _case(self, program: Program, binding: Binding, case: Case) -> _Seen | None:
        """Return the result of the case in float64 and in the declared dtypes; None if the reference does not accept
        it."""
        large = sum(a.nbytes for a in case.args if hasattr(a, "nbytes")) >= _LARGE
        threads = all_threads if large else nullcontext
        inputs = binding.inputs(case.args)
        constexpr = {**binding.constexpr, **{n: case.args[p] for n, p in binding.scalars.items()}}
        expected = None
        if binding.of_outputs and not case.is_own and (expected := self._wanted(case, threads)) is None:
            return None
        if case.contents:
            expected = expected if expected is not None else self._wanted(case, threads)
            if expected is None or not all(map(finite, expected)):
                return None
        symbols = _symbols(program, binding, case, expected if binding.of_outputs else None)
        most = _MOST_CUT if case.is_cut else _MOST_ELEMENTS
        if _elements(program, {**constexpr, **symbols}) > most:
            raise OutOfTime("The sketch's tensors are too large to interpret it.", "Let the code be verified instead.")
        # on real shapes the sketch runs first, since it may take too long and the reference takes seconds there
        if expected is None and not case.is_own and (expected := self._wanted(case, threads)) is None:
            return None
        keep = _KEEP if case.sampled else None
        left = self.seconds if self.whole else 4 * self.seconds
        exact: tuple[Tensor, ...] | None = None
        for f64 in (True, False):
            began = used()
            run = execute(program, inputs, symbols=symbols, constexpr=constexpr, f64=f64, keep=keep, seconds=left)
            left -= used() - began
            if expected is None and (expected := self._wanted(case, threads)) is None:
                return None
            if f64:
                with threads():
                    exact = reference64(self.task, case.args)
                if exact is None:
                    continue
                exact = self._held(exact)
            seen: dict[str, Mismatch | None] = {}
            for i, bound in enumerate(binding.outputs):
                want = exact[i] if f64 and exact is not None else expected[i]
                got, written, where = _output(run.outputs[bound.tensor], run.written[bound.tensor], want, case)
                if f64:
                    error, mismatch = compare64(got, want, written, where)
                    self.worst = max(self.worst, error)
                else:
                    best = exact[i] if exact else None
                    rounds = in_tf32(program) and (not self.task.strict or bool(self.task.rounded))
                    mismatch = compare_declared(got, want, best, written, where, tf32=rounds)
                if mismatch is not None and self._selects_alike(case, i, got, expected[i], where):
                    mismatch = None
                seen[bound.tensor] = mismatch
            if wrong := {name: m for name, m in seen.items() if m is not None}:
                first = next(iter(wrong))
                self.worst = max(self.worst, *(m.error for m in wrong.values()))
                return _Seen(case, first, wrong[first], {name: name in wrong for name in seen if name != first})
        self.cases += 1
        return _Seen(case)

    def _selects_alike(self, case: Case, output: int, got: Tensor, want: Tensor, where: Tensor | None) -> bool:
        """Are these the positions of other, equal elements? Torch does not define the order of equal elements."""
        if want.is_floating_point():
            return False
        from kernellab.capture.selection import selections

        selection = selections(self.task.module().results, case.args)[output]
        wrong = selection.wrong(got, want, FLOORS) if selection is not None else None
        return wrong is not None and not bool((wrong if where is None else wrong & where).any())

    def _wanted(self, case: Case, threads: Callable[[], AbstractContextManager[object]]) -> tuple[Tensor, ...] | None:
        """Return the reference's results; None if it does not accept the case."""
        try:
            with threads():
                return self._held(reference(self.task, case.args))
        except TaskError:
            return None

    def _held(self, results: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """Return the reference's results in the form of the sketch's tensors."""
        return tuple(held(r, spec.last) for r, spec in zip(results, self.task.results, strict=True))

    def _wrong(
        self, failures: Sequence[_Seen], right: Sequence[_Seen], values: Mapping[str, int | float]
    ) -> GateResult:
        # the smallest share of wrong elements locates the fault best
        worst = min(failures, key=lambda seen: seen.mismatch.share if seen.mismatch else 1.0)
        assert worst.mismatch is not None
        extents = ", ".join(f"{k} = {v}" for k, v in values.items())
        with_values = f" with {extents}" if extents else ""
        reason = f"{worst.output} is wrong at {worst.case.at}{with_values}: {worst.mismatch.sentence}."
        for is_wrong, words in ((True, "wrong, too"), (False, "right")):
            if names := [name for name, w in worst.others.items() if w is is_wrong]:
                reason += f" {', '.join(names)} {'is' if len(names) == 1 else 'are'} {words}."
        single = next((seen for seen in failures if seen.alone), None)
        if single is not None and single.mismatch is not None and not worst.alone:
            reason += f" At {single.case.at} {single.output} alone is wrong: {single.mismatch.sentence}."
        if right and worst.case.contents:
            reason += f" It is right on {counted(len(right), 'size')} with other contents."
        elif right:
            reason += (
                f" It is right on {len(right)} of {len(right) + len(failures)} sizes, such as {right[-1].case.at}."
            )
        self.cases += sum(not seen.case.contents for seen in failures)
        return self._result(GateState.WRONG, reason, worst.case)

    def _result(self, state: GateState, reason: str, case: Case | None = None) -> GateResult:
        if self.whole and self.ended:
            reason += f" The other sizes were not run: {lasting(self.seconds)} were over."
        return GateResult(
            state=state,
            reason=reason,
            diagnostics=self.diagnostics,
            cases=self.cases,
            max_error=self.worst if self.cases else None,
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


def _symbols(program: Program, binding: Binding, case: Case, expected: tuple[Tensor, ...] | None) -> dict[str, int]:
    """Return the symbols' values in the case: from its arguments, from the reference's outputs, else from the
    sketch."""
    sizes = binding.sizes(lambda position, dim: case.args[position].shape[dim])
    if expected is not None:
        sizes |= {s: int(expected[number].shape[dim]) for s, (number, dim) in binding.of_outputs.items()}
    return {**dict(program.sizes), **sizes}


def _elements(program: Program, values: Mapping[str, int | float]) -> int:
    """Return the elements of all tensors, temporary ones included; 0 for those whose sizes do not follow from
    ``values``."""
    integers = {name: int(value) for name, value in values.items() if float(value).is_integer()}
    shapes = [t.shape for t in program.tensors if all(e.names() <= integers.keys() for e in t.shape)]
    return sum(prod(e.evaluate(integers) for e in shape) for shape in shapes)


def _holds(case: Case, elements: int) -> bool:
    return any(hasattr(a, "shape") and prod(a.shape) >= elements for a in case.args)


def in_tf32(program: Program) -> bool:
    """Does a product of the sketch round its factors to TF32, or to float16, whose mantissa is as long?"""
    narrow = any(t.dtype is DType.F16 and t.role is not TensorRole.TEMP for t in program.tensors)
    for kernel in program.kernels:
        products = [s for s in statements(kernel.body) if isinstance(s, Gemm)]
        # several products of float16 are those of the parts of float32
        halves = not narrow and len(products) == 1 and products[0].a.type.dtype is DType.F16
        if halves or any(s.precision == "tf32" for s in products):
            return True
    return False


def _output(got: Tensor, written: Tensor, want: Tensor, case: Case) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the sketch's view of an output in the reference's shape and, for a sample, the places to compare."""
    if got.numel() != prod(want.shape):
        raise SketchError(
            f"The sketch writes {list(got.shape)} where the reference gives {list(want.shape)} at {dict(case.sizes)}.",
            "Declare the out tensor with the output's shape.",
        )
    got, written = got.reshape(want.shape), written.reshape(want.shape)
    return got, written, written if case.sampled else None
