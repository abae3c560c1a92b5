"""The candidate's worker and the operations that all stages share.

:class:`Stages` holds the worker in which the candidate is built, and what one stage leaves for another. A stage calls
the kernel by :meth:`Stages.check`, which requires right outputs, by :meth:`Stages.outputs`, which requires the right
form, or by :meth:`Stages.call`, which only keeps the memory rules. An operation that detects an error raises
:class:`Refused` with evidence. The stages themselves are the modules correct, robust, honest and fast.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.dsls import get_adapter
from kernellab.records import Evidence, Source, Trust
from kernellab.sandbox.consent import without_sandbox
from kernellab.target import Backend
from kernellab.task import Task, TaskForm
from kernellab.verifier.boundary_checks.memory import Memory
from kernellab.verifier.cases import device, statics
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cases.prefetch import Ahead
from kernellab.verifier.cases.source_numbers import numbers_of, together_in
from kernellab.verifier.compare.compare import Mismatch, metadata
from kernellab.verifier.coverage.calls import Calls
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.judge.worker_client import Call, Worker
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.rules import CORRECT, DEADLINES, DEVICE
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.context import Context, baselines_of, has_model, numbered, threads_of
from kernellab.verifier.stages.diagnosis import Diagnosis
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.attribution.counters import Sampler
    from kernellab.verifier.attribution.inspection import Looks
    from kernellab.verifier.attribution.profile import Profile
    from kernellab.verifier.coverage.stage import Covered
    from kernellab.verifier.stages.robustness.ordinary import Ordinary


class TracedCall(NamedTuple):
    """A case, and the names of the launches that it made while torch's dispatcher was traced."""

    case: Case
    launches: list[str]


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
        #: The call that was traced for the share of own code.
        self.traced: TracedCall | None = None
        #: Names of launches that are recorded once and then only replayed.
        self.replays: list[str] = []
        #: Right answers of earlier cases, to detect a stale result.
        self.answers: list[Tensor] = []
        self.memory = Memory(self)
        self.diagnosis = Diagnosis(self)

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
            raise Refused(self.words("build", failure), self._evidence_of_build(failure)) from failure
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
        is_model = task.form is TaskForm.KERNELBENCH and has_model(self.source)
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
        if self.task.form is TaskForm.KERNELBENCH and has_model(source):
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
        return DEADLINES.interpreted_factor if self.context.interpreted else 1.0

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
            raise self.diagnosis.refusal(wrong)
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
            if not strided and failure.kind in kinds and self.diagnosis.is_edge(case):
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
        self.memory.look(case, call, layout, slot, poison=poison, private=private)
        return call

    def call_deadline(self, case: Case) -> float:
        """Return the time limit for a call of ``case``, in seconds."""
        least = DEADLINES.call_least * self.slower * crowding()
        return max(least, DEADLINES.call_factor * case.reference_seconds)

    def trespass(self, case: Case, output: int, what: str) -> Refused:
        """Return the refusal of a write outside ``what``."""
        mismatch = Mismatch("out-of-bounds", f"the kernel writes outside {what}")
        # A missing tail mask makes a kernel write past the end. With fixed sizes no other size can be tried.
        name = "edge-tile" if not self.task.dims or self.diagnosis.is_edge(case) else "out-of-bounds"
        report = evidence.of_mismatch(self.source, case, output, None, None, mismatch, name=name)
        return Refused(f"{_capital(mismatch.message)} ({case.words}); {name}.", report)

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

    def _evidence_of_build(self, failure: WorkerFailure) -> Evidence:
        """Return the evidence of a failed build; an exception with a compiler's lines is named after the stage."""
        report = evidence.of_failure(self.context.adapter, self.source, failure)
        if report.compiler and report.signature == "exception":
            return report.model_copy(update={"signature": "build"})
        return report


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
