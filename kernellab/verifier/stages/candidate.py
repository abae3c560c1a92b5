"""The candidate's worker and the operations that all stages share.

An operation that detects an error raises :class:`Refused` with evidence. The stages themselves are the modules correct,
robust, honest and fast.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.dsls import get_adapter
from kernellab.records import Evidence, Source, Trust
from kernellab.records.tried import Tried, fails_at_whole_tiles, right_at_ragged_sizes
from kernellab.sandbox.consent import without_sandbox
from kernellab.target import Backend
from kernellab.task import Task, TaskForm
from kernellab.task.dtypes import alike, computable, finite
from kernellab.task.sample.constants import constants
from kernellab.task.sample.inputs import Family
from kernellab.verifier.boundary_checks.attempt import outputs_of
from kernellab.verifier.boundary_checks.memory import Memory
from kernellab.verifier.cases import cases, device, selection, statics
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.contrast import contrast, whole_near
from kernellab.verifier.cases.extents import numbers_of, together_in
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cases.prefetch import Ahead
from kernellab.verifier.compare import signature
from kernellab.verifier.compare.compare import Mismatch, metadata
from kernellab.verifier.coverage.calls import Calls
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.judge.worker_client import Call, Worker
from kernellab.verifier.protocol.control import Output, Written
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.remedies import right_with_own_inputs
from kernellab.verifier.protocol.rules import CORRECT, DEADLINES, DEVICE
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.context import Context, baselines_of, numbered, threads_of
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.timing.checks import reference_shares
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.attribution.counters import Sampler
    from kernellab.verifier.attribution.inspection import Looks
    from kernellab.verifier.attribution.profile import Profile
    from kernellab.verifier.coverage.stage import Covered
    from kernellab.verifier.stages.robustness.ordinary import Ordinary


#: Signatures that a comparison of aligned and ragged sizes must not override.
_CERTAIN = ("shape", "dtype", "count", "stale", "all-zero", "identity", "narrow-store")
#: Signatures whose cause shows in every draw: if other draws are right, the values decide.
_OF_ALL_VALUES = ("edge-tile", "accumulate-dtype")

#: Seconds to spend on constant contents after a wrong answer, and number of wrong ones named in the evidence.
_CONSTANTS_SECONDS, _CONSTANTS_TOLD = 1.0, 2


class Stages:
    """Hold the candidate's worker for one verification; a context manager."""

    def __init__(self, context: Context, task: Task) -> None:
        self.context = context
        self.task = task
        self.source = context.source
        self.threads = threads_of(context.options)
        torch.set_num_threads(1)
        self.tf32 = device.runs_tf32(task)
        self.comparison = Comparison(task)
        #: Positions of the arguments that the reference writes into. They are outputs too, after those returned.
        self.written = self.comparison.written
        self.dtypes, self.limits = self.comparison.dtypes, self.comparison.limits
        self.limits_for = self.comparison.limits_for
        self._worker: Worker | None = None
        self.ahead = self._ahead()
        #: Workers of ``options.rivals``, once built.
        self.rivals: dict[str, Worker] = {}
        #: The same source in an ordinary process, if one was started.
        self.ordinary: Ordinary | None = None
        #: The calls so far, and the same source in a process that counts which of its code runs, if one was started.
        judged = context.options.level.value > Trust.T1.value and context.request.backend is not Backend.CUDA
        self.calls = Calls() if judged else None
        self.covered: Covered | None = None
        #: Sampler of calls between the timed ones.
        self.watch: Sampler | None = None
        #: Single inspections of other calls, spread over the run.
        self.looks: Looks | None = None
        #: Samples of the timed calls, one profile for each run.
        self.profiles: list[Profile] = []
        #: Seed of the generators when ModelNew is constructed, if its parameters come from the constructor.
        self.seed: int | None = None
        #: Random normal inputs for the stage honest.
        self.normal: Case | None = None
        #: Case traced for the share of own code, and the names of its launches.
        self.traced: tuple[Case, list[str]] | None = None
        #: Names of launches that are recorded once and then only replayed.
        self.replays: list[str] = []
        #: Right answers of earlier cases, to detect a stale result.
        self.answers: list[Tensor] = []
        self.memory = Memory(self)

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        others = (process.worker for process in (self.ordinary, self.covered) if process is not None)
        for worker in (self._worker, *self.rivals.values(), *others):
            if worker is not None:
                worker.close()

    def _ahead(self) -> Ahead:
        options = self.context.options
        most = options.longest if options.level is Trust.T1 else 0
        source = self.source
        numbers, pairs = numbers_of(source), together_in(source)
        return Ahead(self.task, self.context.interpreted, numbers, options.sizes, pairs, most)

    @property
    def worker(self) -> Worker:
        assert self._worker is not None
        return self._worker

    # -- build

    def build(self, meanwhile: Iterator[None] | None = None) -> float:
        """Build (import and compile) the candidate in its worker, running steps of ``meanwhile`` until it is done.

        Returns:
            The seconds that it took.
        """
        start = time.perf_counter()
        try:
            self._worker = self.start(self.source, meanwhile=meanwhile)
        except WorkerFailure as failure:
            raise Refused(self.words("build", failure), self._named(failure, "build")) from failure
        self.context.findings.sandbox = ", ".join(self._worker.sandbox)
        return time.perf_counter() - start

    def begin_baselines(self, names: Sequence[str], eagers: int = 2) -> None:
        """Begin building the baselines ``names``; the builds continue during the next stages."""
        backend = self.context.request.backend
        for name, number in numbered(names, eagers):
            self.context.pool.begin_baseline(self.source.dsl, backend, name, self.task, self.threads, number)

    def as_built(self) -> bool:
        """Draw the parameters from now on under one new seed for both the reference's constructor and ModelNew's,
        without exchanging them. Return False where that gains nothing: no ModelNew in KernelBench's form, or each
        parameter constant (a norm's weight, a zero bias), which a kernel might omit unnoticed."""
        task = self.task
        is_model = task.form is TaskForm.KERNELBENCH and any("ModelNew" in t for t in self.source.files.values())
        if not is_model or self.seed is not None:
            return False
        seed = secrets.randbits(62)
        values = task.module().state_of(seed)
        if not values or any(v.numel() > 1 and bool((v == v.reshape(-1)[0]).all()) for v in values):
            return False
        self.seed = seed
        statics.hold_parameters(values)
        self.ahead = self._ahead()
        self.answers = []
        if self.ordinary is not None:
            # The ordinary process has other parameters.
            self.ordinary.worker.close()
            self.ordinary = None
        self.restart()
        return True

    def start(self, source: Source, meanwhile: Iterator[None] | None = None) -> Worker:
        """Return a fresh worker with ``source`` built in it, running steps of ``meanwhile`` while the build lasts.

        Raises:
            WorkerFailure: The source cannot be built.
            Refused: The files cannot be written.
        """
        worker = self.context.pool.worker(source.dsl, self.context.request.backend, "candidate", self.threads)
        try:
            if without_sandbox(worker.sandbox, source.origin, self.context.options.unsandboxed):
                self.context.findings.add(Mark(kind="unsandboxed"))
            worker.memory_limit = memory_limit(self.task, self.context.request.backend)
            worker.processor_limit = self.context.options.processor
            worker.written = self.written
            worker.seen = self.calls.saw if self.calls is not None and source is self.source else None
            adapter = get_adapter(source.dsl)
            worker.makes_code, worker.packages = adapter.makes_code, adapter.marks
            worker.runtime = adapter.runtime
            write_files(worker.scratch / "src", source.files)
            worker.begin_build(self.build_message(source))
            began = time.monotonic()
            for _ in meanwhile or ():
                worker.watch()
                if worker.built():
                    break
            worker.finish_build(self.context.left(DEADLINES.build) - (time.monotonic() - began))
        except ValueError as error:
            worker.close()
            raise Refused(f"The source cannot be written: {error}.", Evidence(signature="source")) from None
        except BaseException:
            worker.close()
            raise
        return worker

    def build_message(self, source: Source) -> dict[str, Any]:
        """Return the build message for a worker."""
        message: dict[str, Any] = {"entry_file": source.entry_file, "entry": source.entry}
        message["precision"] = dict(self.task.precision)
        message |= {"arguments": len(self.task.args), "defaults": self.task.last_defaults}
        if self.context.options.level.value > Trust.T2.value or self.context.options.sanitize:
            message["seal"] = source.dsl
        command = get_adapter(source.dsl).build
        if command:
            message["command"] = list(command)
        if self.task.form is TaskForm.KERNELBENCH and any("ModelNew" in t for t in source.files.values()):
            module = self.task.module()
            args, keywords = module.init_arguments()
            message |= {
                "seed": self.seed,
                "init_args": args,
                "init_kwargs": keywords,
                "state": list(module.state()),
                "evaluates": module.evaluates,
            }
        return message

    @property
    def slower(self) -> float:
        """Factor by which calls are slower in the interpreter."""
        return DEADLINES.interpreted if self.context.interpreted else 1.0

    # -- calls

    def check(
        self, case: Case, *, strided: bool = False, slot: int = 0, right: Sequence[Tensor] = (), private: bool = False,
        op: str = "call",
    ) -> list[Tensor]:  # fmt: skip
        """Run a case and compare every output; raise Refused with evidence if one is wrong. Outputs that are bitwise
        equal to those in ``right``, of the same case, are not compared again. ``private``: the arguments may be in the
        worker's private memory, as a user's are, if the judge need not read them after the call."""
        outputs = self.outputs(case, "correct", strided=strided, slot=slot, private=private, op=op)
        wrong = self.comparison.first_wrong(case, outputs, right)
        if wrong is not None:
            raise self._wrong(wrong.case, wrong.output, wrong.got, wrong.mismatch)
        self.remember(case)
        return outputs

    def remember(self, case: Case) -> None:
        """Keep a case's right answers, unless large, to detect a stale result."""
        small = (native for native in case.native if native.nbytes <= DEVICE.answer_bytes)
        self.answers = [*self.answers[-4:], *small]
        # Without a float64 run, whether it fits in memory is unknown.
        references = case.asked if case.double and device.current() == "cuda" else ()
        if any(r.double is None and r.native.is_floating_point() for r in references):
            self.context.findings.add(Mark(kind="reference-not-in-float64"))

    def outputs(
        self, case: Case, stage: str, seconds: float | None = None, *, strided: bool = False, slot: int = 0,
        private: bool = False, op: str = "call",
    ) -> list[Tensor]:  # fmt: skip
        """Return the outputs of a case for ``stage``; raise Refused on a failure or a wrong form."""
        hidden = private and self._hides(case)
        try:
            call = self.call(case, seconds, strided=strided, slot=slot, private=hidden, op=op)
        except WorkerFailure as failure:
            reason = self.words(stage, failure, case)
            report = evidence.of_failure(self.context.adapter, self.source, failure, case)
            # A time limit says nothing about a mask.
            kinds = ("crash", "exit", "exception", "out-of-bounds")
            if not strided and failure.kind in kinds and self.is_edge(case):
                report = report.model_copy(update={"signature": "edge-tile"})
            raise Refused(reason, report) from failure
        count = len(case.native) - len(self.written)
        returned = call.outputs[: len(call.outputs) - len(self.written)]
        wrong = metadata([(o.shape, o.dtype) for o in returned], case.native[:count])
        if wrong is not None:
            report = evidence.of_mismatch(self.source, case, 0, None, None, wrong)
            raise Refused(f"{_capital(wrong.message)} ({case.words}).", report)
        for i, output in enumerate(call.outputs):
            if self.worker.trespassed(output):
                raise self.trespass(case, i, "its output")
        try:
            return self.read(call)
        except WorkerFailure as failure:
            raise self.failed(stage, failure, case) from failure

    def read(self, call: Call) -> list[Tensor]:
        """Return the outputs of a call and keep them to check that later calls do not change them. Raises
        WorkerFailure."""
        outputs = [self.worker.read(o) for o in call.outputs]
        self.memory.keep(call, outputs)
        return outputs

    def no_view(self, case: Case, layout: Layout, outputs: Sequence[Output]) -> None:
        """Refuse an output that aliases an argument where the reference's does not, with the arguments placed as in the
        call. Writing into one would change both, and a branch for some values may return its argument."""
        for i, output in enumerate(outputs):
            if isinstance(output, Written) or not self.worker.views(output):
                continue
            args = _as_placed(case.args, layout)
            if args is not None and not reference_shares(self.task, args, i):
                raise self.refused(case, "aliases-input", f"output {i} is a view of an input")

    def _hides(self, case: Case) -> bool:
        """Decide randomly whether a checked call keeps its arguments in the worker's private memory, as a user's call
        does."""
        on_host = self.context.request.backend is not Backend.CUDA
        small = lay_out(case.args).size <= CORRECT.private_bytes
        return small and on_host and not self.written and secrets.randbelow(CORRECT.private_one_in) == 0

    def call(
        self, case: Case, seconds: float | None = None, *, strided: bool = False, slot: int = 0, poison: bool = True,
        private: bool = False, op: str = "call", layout: Layout | None = None, passed: int | None = None,
    ) -> Call:  # fmt: skip
        """Call the candidate once for a case, in ``layout`` if given, with its first ``passed`` arguments (default:
        all).

        Raises:
            WorkerFailure: The worker does not answer as required.
            Refused: The call breaks a memory rule (:mod:`~kernellab.verifier.boundary_checks.memory`).
        """
        layout = layout or lay_out(case.args, strided)
        self.worker.write(slot, layout, case.args)
        left = self.context.left(seconds or self.call_deadline(case))
        places = replace(layout, places=layout.places[:passed])
        began = time.monotonic()
        try:
            call = self.worker.call(places, (slot,), left, poison=poison, private=private, op=op)
        finally:
            self.context.called += time.monotonic() - began
        if not private:
            self.no_view(case, layout, call.outputs)
        self.memory.look(case, call, layout, slot, poison=poison, private=private)
        return call

    def call_deadline(self, case: Case) -> float:
        """Return the time limit for a call of ``case``, in seconds."""
        least = DEADLINES.call_least * self.slower * crowding()
        return max(least, DEADLINES.call_factor * case.reference_seconds)

    def _wrong(self, case: Case, output: int, got: Tensor, mismatch: Mismatch) -> Refused:
        reference = case.references[output]
        report = evidence.of_mismatch(self.source, case, output, got, reference, mismatch, earlier=self.answers)
        tried = self._contrast(case)
        smaller = [one for one in tried if one.sizes != dict(case.sizes)]
        if report.signature == "edge-tile" and fails_at_whole_tiles(tried):
            # Reads past an input and missing stores show at an output's end at every size.
            without_edge = evidence.of_mismatch(
                self.source, case, output, got, reference, mismatch, earlier=self.answers, edge=False
            )
            is_edge = without_edge.signature != "unwritten" and not right_at_ragged_sizes(tried)
            report = report if is_edge else without_edge
        elif report.signature == "edge-tile" and smaller and all(one.right for one in smaller):
            # Each small ragged size is right, so that what lies at the end may be what lies beyond a size.
            whole = self._whole_above(case)
            if whole is not None and not self._is_right(whole):
                report = evidence.of_mismatch(
                    self.source, case, output, got, reference, mismatch, earlier=self.answers, edge=False
                )
                tried.append(Tried(sizes=dict(whole.sizes), family=whole.family.value, right=False))
        report = report.model_copy(update={"tried": tried})
        if mismatch.rule == "tau" and report.signature in _OF_ALL_VALUES and right_with_own_inputs(report):
            report = report.model_copy(update={"signature": "wrong-values"})
        if report.signature == "accumulate-dtype" and self._beyond_digits(smaller):
            report = report.model_copy(update={"signature": "wrong-values"})
        if report.signature not in _CERTAIN and report.signature != "edge-tile":
            name = "race" if self._differs_again(case, output, got) else None
            # A tail error follows a dimension: its end, whole rows, or the start of the next row.
            wrong = mismatch.wrong
            clustered = wrong is None or (bool(wrong.any()) and not signature.scattered(wrong))
            shown, wanted = (t.abs() if t.is_complex() else computable(t) for t in (got, reference.want))
            clustered = clustered and not signature.of_rounding(shown, wanted, mismatch)
            if clustered and not right_with_own_inputs(report) and self.is_edge(case):
                name = "edge-tile"
            report = report.model_copy(update={"signature": name or report.signature})
        if (case.family is not Family.OWN or case.change or case.held) and all(one.right for one in report.tried):
            # The values matter, not the sizes.
            report = report.model_copy(update={"tried": [*report.tried, *self.constant()]})
        which = f"Output {output}: " if len(self.limits) > 1 else ""
        if output >= len(self.task.outputs):
            which = f"Argument {self.output_name(output)!r}, which the reference writes into: "
        at = signature.where(mismatch.wrong, got) if mismatch.wrong is not None else ""
        at = f", {at}" if at and at != report.signature else ""
        return Refused(f"{which}{_capital(mismatch.message)} ({case.words}){at}; {report.signature}.", report)

    def _beyond_digits(self, tried: Sequence[Tried]) -> bool:
        """Return whether the smallest wrong one of the sizes that were tried is off by more than lost digits: a step
        left out is a small part of a long sum, and a large part of a short one."""
        wrong = [one for one in tried if not one.right]
        if not wrong:
            return False
        least = min(wrong, key=lambda one: math.prod(one.sizes.values()))
        case = cases.case(self.task, dict(least.sizes), Family.OWN)
        outputs = self._answers(case)
        found = None if outputs is None else self.comparison.first_wrong(case, outputs, counted=False)
        return found is not None and (found.mismatch.rel_frobenius or 0.0) > signature.LOST_DIGITS

    def output_name(self, output: int) -> str:
        """Return the argument's name for an output that is an argument, else the output's number."""
        beyond = output - len(self.task.outputs)
        return self.task.args[self.written[beyond]].name if beyond >= 0 else str(output)

    def trespass(self, case: Case, output: int, what: str) -> Refused:
        """Return the refusal of a write outside ``what``."""
        mismatch = Mismatch("out-of-bounds", f"the kernel writes outside {what}")
        # A missing tail mask makes a kernel write past the end. With fixed sizes no other size can be tried.
        name = "edge-tile" if not self.task.dims or self.is_edge(case) else "out-of-bounds"
        report = evidence.of_mismatch(self.source, case, output, None, None, mismatch, name=name)
        return Refused(f"{_capital(mismatch.message)} ({case.words}); {name}.", report)

    def _differs_again(self, case: Case, output: int, got: Tensor) -> bool:
        try:
            again = self.worker.read(self.call(case).outputs[output])
        except (WorkerFailure, IndexError):
            return False
        return again.shape == got.shape and not alike(again, got)

    def is_edge(self, failing: Case) -> bool:
        """Return whether the candidate is right at multiples of the usual tiles (small ones and the nearest) and wrong
        next to them. Restarts the worker if it has ended."""
        pairs = selection.aligned_and_ragged(self.task) if not self.context.interpreted or not self.task.dims else []
        if not pairs or all(size % 64 == 0 for _, size in failing.sizes):
            return False  # a failure at whole tiles already answers this
        right: dict[str, list[bool]] = {"aligned": [], "ragged": []}
        if failing.family is Family.OWN and (failing.held or failing.change):
            # The pairs do not have these contents, for which a kernel may be wrong at any size.
            failing = cases.case(self.task, dict(failing.sizes), Family.OWN)
        for kind, case in pairs:
            if kind == "aligned" or False not in right["ragged"]:
                right[kind].append(self._is_right(case))
        if not right["aligned"] or not all(right["aligned"]):
            return False
        small = False in right["ragged"]
        if not small and self._is_right(failing):
            return False
        # A failure at all large sizes is not an edge error: a whole size above it is right, or small ragged ones fail.
        above = self._whole_above(failing)
        if above is not None:
            return self._is_right(above)
        near = whole_near(self.task, failing)
        return small and (near is None or self._is_right(near))

    def _whole_above(self, failing: Case) -> Case | None:
        """Return the task's own inputs at the multiples of 64 above the failing sizes; None if no such case can run."""
        near = whole_near(self.task, failing)
        sizes = dict(failing.sizes)
        above = near is not None and all(size >= sizes[name] for name, size in near.sizes)
        return near if above else None

    def _contrast(self, failing: Case) -> list[Tried]:
        return contrast(self.task, failing, self._is_right, self.context.end)

    def constant(self) -> list[Tried]:
        """Return the first wrong answers for constant contents at one small size, within a time limit. Neither sizes
        nor contents are secret, so all of it may be reported. Empty if the candidate is right."""
        base = selection.public(self.task, self.context.interpreted)
        if base is None:
            return []
        failures: list[Tried] = []
        fresh = False
        end = min(time.monotonic() + _CONSTANTS_SECONDS, self.context.end)
        for content in constants(self.task, base.args):
            if time.monotonic() > end or len(failures) == _CONSTANTS_TOLD:
                break
            case = base.given(content.args).judged_as(Family.EDGES)
            if not cases.has_answer(case) or not all(map(finite, case.native)) or self._is_right(case):
                continue
            if not fresh:
                # Compute the evidence in a process that has received no secret case.
                self.worker.close()
                fresh = True
            if (wrong := self._wrong_there(case)) is not None:
                sizes = dict(case.sizes) or evidence.static_sizes(self.task)
                failures.append(
                    Tried(sizes=sizes, family=case.family.value, right=False, contents=dict(content.contents), **wrong)
                )
        return failures

    def _wrong_there(self, case: Case) -> dict[str, Any] | None:
        """Return the first wrong element of a case, empty if there is no answer; None if it is right or time has run
        out."""
        outputs = self._answers(case)
        if outputs is None:
            return {} if time.monotonic() < self.context.end else None
        wrong = self.comparison.first_wrong(case, outputs, counted=False)
        if wrong is None:
            return None
        return evidence.of_element(wrong.output, wrong.got, case.native[wrong.output], wrong.mismatch.wrong)

    def _is_right(self, case: Case) -> bool:
        outputs = self._answers(case)
        return outputs is not None and self.comparison.first_wrong(case, outputs, counted=False) is None

    def _answers(self, case: Case) -> list[Tensor] | None:
        """Return the candidate's outputs for a case, or None if they lack the reference's form or break a rule."""
        try:
            return outputs_of(self, case)
        except (WorkerFailure, Refused):
            return None

    def sure_call(self, case: Case, stage: str = "robust") -> Call:
        """Call the candidate for a case that passed before; raise Refused if it fails now."""
        try:
            return self.call(case)
        except WorkerFailure as failure:
            raise self.failed(stage, failure, case) from failure

    def failed(self, stage: str, failure: WorkerFailure, case: Case) -> Refused:
        """Return the refusal for a worker's failure."""
        report = evidence.of_failure(self.context.adapter, self.source, failure, case)
        return Refused(self.words(stage, failure, case), report)

    def refused(self, case: Case, name: str, message: str) -> Refused:
        """Return a refusal with the signature ``name``."""
        report = evidence.of_mismatch(self.source, case, 0, None, None, Mismatch(name, message), name=name)
        return Refused(f"{_capital(message)} ({case.words}).", report)

    # -- baselines

    def baselines(self) -> list[str]:
        return baselines_of(self.context.options, self.task)

    def restart(self) -> None:
        """Restart the candidate in a fresh worker."""
        self.worker.close()
        self._worker = self.start(self.source)

    def restart_ended(self) -> bool:
        """Restart the candidate if its worker has ended; return whether it had."""
        ended = self.worker.gone() or self.worker.closed
        if ended:
            self.restart()
        return ended

    # -- words

    def words(self, stage: str, failure: WorkerFailure, case: Case | None = None) -> str:
        """Return a sentence about a worker's failure."""
        at = f" ({case.words})" if case else ""
        first = next((line for line in failure.message.strip().splitlines() if line.strip()), failure.kind)
        if failure.kind in ("exception", "output", "protocol"):
            lines = evidence.compiler_lines(self.context.adapter, self.source, failure)
            if lines:
                where = f"{lines[0].file}, line {lines[0].line}: " if lines[0].line else f"{lines[0].file}: "
                return f"{where}{lines[0].message.rstrip('.')}{at}."
            return f"{first.rstrip('.')}{evidence.inside(failure)}{at}."
        return f"The kernel {first.rstrip('.')} in the stage {stage}{at}."

    def _named(self, failure: WorkerFailure, stage: str) -> Evidence:
        report = evidence.of_failure(self.context.adapter, self.source, failure)
        if report.compiler and report.signature == "exception":
            return report.model_copy(update={"signature": stage})
        return report


def _as_placed(args: Sequence[Any], layout: Layout) -> list[Any] | None:
    """Return ``args`` with their strides in ``layout``, since the reference may return one of them; None if elements of
    an argument overlap."""
    placed = []
    for arg, place in zip(args, layout.places, strict=True):
        if isinstance(arg, Tensor) and arg.stride() != place.strides:
            if any(stride == 0 and extent > 1 for stride, extent in zip(place.strides, place.shape, strict=True)):
                return None
            arg = arg.new_empty_strided(place.shape, place.strides).copy_(arg)
        placed.append(arg)
    return placed


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
