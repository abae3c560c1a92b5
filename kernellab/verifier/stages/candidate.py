"""The candidate's worker and what all stages do with it; one that finds fault raises :class:`Refused` with evidence.

The stages themselves are the modules correct, robust, honest and fast.
"""

from __future__ import annotations

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
from kernellab.records.tried import Tried, fails_at_whole_tiles
from kernellab.target import Backend
from kernellab.task import Task, TaskForm
from kernellab.task.dtypes import alike, computable, finite
from kernellab.task.sample.constants import constants
from kernellab.task.sample.inputs import Family
from kernellab.verifier.boundary_checks.attempt import outputs_of
from kernellab.verifier.boundary_checks.memory import Memory
from kernellab.verifier.cases import cases, device
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.extents import numbers_of
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cases.prefetch import Ahead
from kernellab.verifier.compare import signature
from kernellab.verifier.compare.compare import Mismatch, metadata
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.judge.worker_client import Call, Worker
from kernellab.verifier.protocol.control import Output, Written
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.remedies import right_with_own_inputs
from kernellab.verifier.protocol.rules import CORRECT, DEADLINES, DEVICE
from kernellab.verifier.sandbox.consent import without_sandbox
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.context import Context, baselines_of, numbered, threads_of
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.timing.checks import reference_shares
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.attribution.counters import Sampler
    from kernellab.verifier.attribution.inspection import Looks
    from kernellab.verifier.attribution.profile import Profile
    from kernellab.verifier.stages.ordinary import Ordinary


#: signatures that a comparison of aligned and ragged sizes must not override
_CERTAIN = ("shape", "dtype", "count", "stale", "all-zero", "identity", "narrow-store")
#: those whose cause shows with each draw: where others are right, values decide
_OF_ALL_VALUES = ("edge-tile", "accumulate-dtype")

#: after a wrong answer, so long are other sizes tried
_CONTRAST_SECONDS = 2.0
#: constant contents that the evidence names where they are wrong
_CONSTANTS_TOLD = 2


class Stages:
    """Holds the candidate's worker for one verification; a context manager."""

    def __init__(self, context: Context, task: Task) -> None:
        self.context = context
        self.task = task
        self.source = context.source
        self.threads = threads_of(context.options)
        torch.set_num_threads(1)
        self.tf32 = device.runs_tf32(task)
        self.comparison = Comparison(task)
        #: places of the arguments that the reference writes into: they are outputs too, behind those returned
        self.written = self.comparison.written
        self.dtypes, self.limits = self.comparison.dtypes, self.comparison.limits
        self.limits_for = self.comparison.limits_for
        self._worker: Worker | None = None
        self.ahead = Ahead(task, context.interpreted, numbers_of(self.source), context.options.sizes)
        #: the workers of ``options.rivals``, once they are built
        self.rivals: dict[str, Worker] = {}
        #: the same source in an ordinary process, where it reads what a judge may be known by
        self.ordinary: Ordinary | None = None
        #: looks at calls among the timed ones
        self.watch: Sampler | None = None
        #: and single looks at others, spread over them
        self.looks: Looks | None = None
        #: and samples of the timed ones themselves, of each run
        self.profiles: list[Profile] = []
        #: of the generators when ModelNew is constructed, where its parameters are the constructor's
        self.seed: int | None = None
        #: random normal inputs, for the stage honest
        self.normal: Case | None = None
        #: what was traced for the share of own code, and the names of the launches that were seen then
        self.traced: tuple[Case, list[str]] | None = None
        #: the names of launches that were recorded once and are only replayed since
        self.replays: list[str] = []
        #: right answers of cases that were run, for telling a stale result
        self.answers: list[Tensor] = []
        self.memory = Memory(self)

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (self._worker, *self.rivals.values(), self.ordinary.worker if self.ordinary else None):
            if worker is not None:
                worker.close()

    @property
    def worker(self) -> Worker:
        assert self._worker is not None
        return self._worker

    # -- build

    def build(self, beside: Iterator[None] | None = None) -> float:
        """Seconds of importing (and so compiling) the candidate in its worker; meanwhile steps of ``beside`` are
        taken."""
        start = time.perf_counter()
        try:
            self._worker = self.start(self.source, beside=beside)
        except WorkerFailure as failure:
            raise Refused(self.words("build", failure), self._named(failure, "build")) from failure
        self.context.findings.sandbox = ", ".join(self._worker.sandbox)
        return time.perf_counter() - start

    def begin_baselines(self, names: Sequence[str], eagers: int = 2) -> None:
        """Begins the builds of the baselines ``names``, which continue during the next stages."""
        backend = self.context.request.backend
        for name, number in numbered(names, eagers):
            self.context.pool.begin_baseline(self.source.dsl, backend, name, self.task, self.threads, number)

    def as_built(self) -> bool:
        """Has the parameters be, from here on, those that the reference's constructor and ModelNew's give under one new
        seed; they are not exchanged then. False where that gains nothing: no ModelNew in KernelBench's form,
        or parameters of one value throughout (a norm's, a zero bias), which a kernel might leave out unnoticed."""
        task = self.task
        is_model = task.form is TaskForm.KERNELBENCH and any("ModelNew" in t for t in self.source.files.values())
        if not is_model or self.seed is not None:
            return False
        seed = secrets.randbits(62)
        values = task.module().state_of(seed)
        if not values or any(v.numel() > 1 and bool((v == v.reshape(-1)[0]).all()) for v in values):
            return False
        self.seed = seed
        cases.hold_parameters(values)
        self.ahead = Ahead(task, self.context.interpreted, numbers_of(self.source), self.context.options.sizes)
        self.answers = []
        if self.ordinary is not None:
            # it has other parameters
            self.ordinary.worker.close()
            self.ordinary = None
        self.restart()
        return True

    def start(self, source: Source, beside: Iterator[None] | None = None) -> Worker:
        """A fresh worker with ``source`` built in it; meanwhile steps of ``beside`` are taken, as far as they come.

        Raises:
            WorkerFailure: it cannot be built.
            Refused: its files cannot be written.
        """
        worker = self.context.pool.worker(source.dsl, self.context.request.backend, "candidate", self.threads)
        try:
            if without_sandbox(worker.sandbox, source.origin, self.context.options.unsandboxed):
                self.context.findings.add(Mark(kind="unsandboxed"))
            worker.memory_limit = memory_limit(self.task, self.context.request.backend)
            worker.processor_limit = self.context.options.processor
            worker.written = self.written
            adapter = get_adapter(source.dsl)
            worker.makes_code, worker.packages = adapter.makes_code, adapter.marks
            worker.runtime = adapter.runtime
            write_files(worker.scratch / "src", source.files)
            worker.begin_build(self.build_message(source))
            began = time.monotonic()
            for _ in beside or ():
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
        """What a worker is told to build."""
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
        return DEADLINES.interpreted if self.context.interpreted else 1.0

    # -- calls

    def check(
        self, case: Case, *, strided: bool = False, slot: int = 0, right: Sequence[Tensor] = (), private: bool = False,
        op: str = "call",
    ) -> list[Tensor]:  # fmt: skip
        """Runs a case and compares every output; Refused with evidence when one is wrong. Outputs that are, to the bit,
        those that were found ``right`` for the same case are not compared again. ``private``: the arguments may lie as
        a user's do, where the judge need not look at them after the call."""
        outputs = self.outputs(case, "correct", strided=strided, slot=slot, private=private, op=op)
        wrong = self.comparison.first_wrong(case, outputs, right)
        if wrong is not None:
            raise self._wrong(wrong.case, wrong.output, wrong.got, wrong.mismatch)
        self.remember(case)
        return outputs

    def remember(self, case: Case) -> None:
        """Keeps a case's right answers, where they are not large, for telling a stale result by."""
        small = (native for native in case.native if native.nbytes <= DEVICE.answer_bytes)
        self.answers = [*self.answers[-4:], *small]
        # where the float64 run was not asked for, nothing is known of whether it would have fitted
        asked = case.asked if case.double and device.current() == "cuda" else ()
        if any(r.double is None and r.native.is_floating_point() for r in asked):
            self.context.findings.add(Mark(kind="reference-not-in-float64"))

    def outputs(
        self, case: Case, stage: str, seconds: float | None = None, *, strided: bool = False, slot: int = 0,
        private: bool = False, op: str = "call",
    ) -> list[Tensor]:  # fmt: skip
        hidden = private and self._hides(case)
        try:
            call = self.call(case, seconds, strided=strided, slot=slot, private=hidden, op=op)
        except WorkerFailure as failure:
            reason = self.words(stage, failure, case)
            found = evidence.of_failure(self.context.adapter, self.source, failure, case)
            # what a time limit ended says nothing of a mask
            kinds = ("crash", "exit", "exception", "out-of-bounds")
            if not strided and failure.kind in kinds and self.is_edge(case):
                found = found.model_copy(update={"signature": "edge-tile"})
            raise Refused(reason, found) from failure
        count = len(case.native) - len(self.written)
        returned = call.outputs[: len(call.outputs) - len(self.written)]
        wrong = metadata([(o.shape, o.dtype) for o in returned], case.native[:count])
        if wrong is not None:
            found = evidence.of_mismatch(self.source, case, 0, None, None, wrong)
            raise Refused(f"{_capital(wrong.message)} ({case.words}).", found)
        for i, output in enumerate(call.outputs):
            if self.worker.trespassed(output):
                raise self.trespass(case, i, "its output")
        try:
            return self.read(call)
        except WorkerFailure as failure:
            raise self.failed(stage, failure, case) from failure

    def read(self, call: Call) -> list[Tensor]:
        """What a call has given, which is to stay so while the next one runs. Raises WorkerFailure."""
        found = [self.worker.read(o) for o in call.outputs]
        self.memory.keep(call, found)
        return found

    def no_view(self, case: Case, layout: Layout, outputs: Sequence[Output]) -> None:
        """Refuses an output that lies in an argument where the reference's does not, for arguments as they lie in the
        call: a caller who changes one would change both, and a branch for some values alone may return its argument."""
        ranges = self.worker.input_ranges()
        for i, output in enumerate(outputs):
            if isinstance(output, Written) or not output.lies_in(ranges):
                continue
            args = _as_placed(case.args, layout)
            if args is not None and not reference_shares(self.task, args, i):
                raise self.refused(case, "aliases-input", f"output {i} is a view of an input")

    def _hides(self, case: Case) -> bool:
        """Shall the arguments of this checked call lie in memory of its process, as a user's do? Drawn in secret."""
        on_host = self.context.request.backend is not Backend.CUDA
        small = lay_out(case.args).size <= CORRECT.private_bytes
        return small and on_host and not self.written and secrets.randbelow(CORRECT.private_one_in) == 0

    def call(
        self, case: Case, seconds: float | None = None, *, strided: bool = False, slot: int = 0, poison: bool = True,
        private: bool = False, op: str = "call", layout: Layout | None = None, passed: int | None = None,
    ) -> Call:  # fmt: skip
        """One call of a case, in ``layout`` where one is given, with its first ``passed`` arguments (all by default).

        Raises:
            WorkerFailure: it does not answer as it must.
            Refused: it does to memory what it must not (:mod:`~kernellab.verifier.boundary_checks.memory`).
        """
        layout = layout or lay_out(case.args, strided)
        self.worker.write(slot, layout, case.args)
        left = self.context.left(seconds or self.call_deadline(case))
        places = replace(layout, places=layout.places[:passed])
        call = self.worker.call(places, (slot,), left, poison=poison, private=private, op=op)
        if not private:
            self.no_view(case, layout, call.outputs)
        self.memory.look(case, call, layout, slot, poison=poison, private=private)
        return call

    def call_deadline(self, case: Case) -> float:
        least = DEADLINES.call_least * self.slower * crowding()
        return max(least, DEADLINES.call_factor * case.reference_seconds)

    def _wrong(self, case: Case, output: int, got: Tensor, mismatch: Mismatch) -> Refused:
        reference = case.references[output]
        found = evidence.of_mismatch(self.source, case, output, got, reference, mismatch, earlier=self.answers)
        tried = self._contrast(case)
        if found.signature == "edge-tile" and fails_at_whole_tiles(tried):
            # what lies behind an input or was never stored to shows at an output's end at every size
            other = evidence.of_mismatch(
                self.source, case, output, got, reference, mismatch, earlier=self.answers, edge=False
            )
            found = other if other.signature == "unwritten" else found
        found = found.model_copy(update={"tried": tried})
        if mismatch.rule == "tau" and found.signature in _OF_ALL_VALUES and right_with_own_inputs(found):
            found = found.model_copy(update={"signature": "wrong-values"})
        if found.signature not in _CERTAIN and found.signature != "edge-tile":
            name = "race" if self._differs_again(case, output, got) else None
            # what a tail spoils follows a dimension: its end, whole rows, or the start of the next row
            wrong = mismatch.wrong
            together = wrong is None or (bool(wrong.any()) and not signature.scattered(wrong))
            shown, wanted = (t.abs() if t.is_complex() else computable(t) for t in (got, reference.want))
            together = together and not signature.of_rounding(shown, wanted, mismatch)
            if together and not right_with_own_inputs(found) and self.is_edge(case):
                name = "edge-tile"
            found = found.model_copy(update={"signature": name or found.signature})
        if (case.family is not Family.OWN or case.change or case.held) and all(one.right for one in found.tried):
            # values decide, and not sizes
            found = found.model_copy(update={"tried": [*found.tried, *self.constant()]})
        which = f"Output {output}: " if len(self.limits) > 1 else ""
        if output >= len(self.task.outputs):
            which = f"Argument {self.output_name(output)!r}, which the reference writes into: "
        at = signature.where(mismatch.wrong, got) if mismatch.wrong is not None else ""
        at = f", {at}" if at and at != found.signature else ""
        return Refused(f"{which}{_capital(mismatch.message)} ({case.words}){at}; {found.signature}.", found)

    def output_name(self, output: int) -> str:
        """The argument's name for an output that is one, else its number."""
        beyond = output - len(self.task.outputs)
        return self.task.args[self.written[beyond]].name if beyond >= 0 else str(output)

    def trespass(self, case: Case, output: int, what: str) -> Refused:
        mismatch = Mismatch("out-of-bounds", f"the kernel writes outside {what}")
        # a missing tail mask is what makes a kernel write past the end; with fixed sizes nothing else can be tried
        name = "edge-tile" if not self.task.dims or self.is_edge(case) else "out-of-bounds"
        found = evidence.of_mismatch(self.source, case, output, None, None, mismatch, name=name)
        return Refused(f"{_capital(mismatch.message)} ({case.words}); {name}.", found)

    def _differs_again(self, case: Case, output: int, got: Tensor) -> bool:
        try:
            again = self.worker.read(self.call(case).outputs[output])
        except (WorkerFailure, IndexError):
            return False
        return again.shape == got.shape and not alike(again, got)

    def is_edge(self, failing: Case) -> bool:
        """Right at exact multiples of the usual tiles, small ones and the nearest, wrong next to them? Tried in a fresh
        worker."""
        pairs = cases.aligned_and_ragged(self.task) if not self.context.interpreted or not self.task.dims else []
        if not pairs or all(size % 64 == 0 for _, size in failing.sizes):
            return False  # one that failed at whole tiles already answers
        right: dict[str, list[bool]] = {}
        if failing.family is Family.OWN and (failing.held or failing.change):
            # contents that the pairs do not have, for which a kernel may be wrong at any size
            failing = cases.case(self.task, dict(failing.sizes), Family.OWN)
        for kind, case in [*pairs, ("ragged", failing)]:
            if kind == "aligned" or False not in right.get("ragged", []):
                right.setdefault(kind, []).append(self._is_right(case))
        if not all(right.get("aligned", [False])) or all(right.get("ragged", [True])):
            return False
        # a fault of all large sizes is none of their edges
        near = cases.whole_near(self.task, failing)
        return near is None or self._is_right(near)

    def _contrast(self, failing: Case) -> list[Tried]:
        """Where the candidate is right and where not, at sizes that are no secret, as far as the time allows."""
        tried: list[Tried] = []
        end = min(time.monotonic() + _CONTRAST_SECONDS, self.context.end)
        for case in cases.probes(self.task, failing) if self.task.dims else ():
            if time.monotonic() > end:
                break
            tried.append(Tried(sizes=dict(case.sizes), family=case.family.value, right=self._is_right(case)))
        return tried

    def constant(self) -> list[Tried]:
        """The first wrong answers to constant contents, at one small size, as far as the time allows: sizes and
        contents are no secret, so that all of it may be told. Empty where the candidate is right there."""
        base = cases.public(self.task, self.context.interpreted)
        if base is None:
            return []
        found: list[Tried] = []
        fresh = False
        end = min(time.monotonic() + _CONTRAST_SECONDS / 2, self.context.end)
        for one in constants(self.task, base.args):
            if time.monotonic() > end or len(found) == _CONSTANTS_TOLD:
                break
            case = base.given(one.args).judged_as(Family.EDGES)
            if not cases.has_answer(case) or not all(map(finite, case.native)) or self._is_right(case):
                continue
            if not fresh:
                # the evidence was computed by a process that no secret case has met
                self.worker.close()
                fresh = True
            if (wrong := self._wrong_there(case)) is not None:
                sizes = dict(case.sizes) or evidence.static_sizes(self.task)
                found.append(
                    Tried(sizes=sizes, family=case.family.value, right=False, contents=dict(one.contents), **wrong)
                )
        return found

    def _wrong_there(self, case: Case) -> dict[str, Any] | None:
        """The first wrong element of a case, empty where there is no answer; None where it is right, or no time is
        left."""
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
        """The candidate's outputs for a case; None where it gives none of the reference's form, or leaves to its caller
        what it must not."""
        try:
            return outputs_of(self, case)
        except (WorkerFailure, Refused):
            return None

    def sure_call(self, case: Case, stage: str = "robust") -> Call:
        """A call of a case that passed before; Refused when it fails now."""
        try:
            return self.call(case)
        except WorkerFailure as failure:
            raise self.failed(stage, failure, case) from failure

    def failed(self, stage: str, failure: WorkerFailure, case: Case) -> Refused:
        found = evidence.of_failure(self.context.adapter, self.source, failure, case)
        return Refused(self.words(stage, failure, case), found)

    def refused(self, case: Case, name: str, message: str) -> Refused:
        found = evidence.of_mismatch(self.source, case, 0, None, None, Mismatch(name, message), name=name)
        return Refused(f"{_capital(message)} ({case.words}).", found)

    # -- baselines

    def baselines(self) -> list[str]:
        return baselines_of(self.context.options, self.task)

    def restart(self) -> None:
        """The candidate again in a fresh worker."""
        self.worker.close()
        self._worker = self.start(self.source)

    def restart_ended(self) -> bool:
        """Starts the candidate again where its worker has ended; had it?"""
        ended = self.worker.gone() or self.worker.closed
        if ended:
            self.restart()
        return ended

    # -- words

    def words(self, stage: str, failure: WorkerFailure, case: Case | None = None) -> str:
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
        found = evidence.of_failure(self.context.adapter, self.source, failure)
        if found.compiler and found.signature == "exception":
            return found.model_copy(update={"signature": stage})
        return found


def _as_placed(args: Sequence[Any], layout: Layout) -> list[Any] | None:
    """``args`` with the strides that they have in ``layout``, by which the reference may return one of them; None where
    elements of one lie in one place."""
    found = []
    for arg, place in zip(args, layout.places, strict=True):
        if isinstance(arg, Tensor) and arg.stride() != place.strides:
            if any(stride == 0 and extent > 1 for stride, extent in zip(place.strides, place.shape, strict=True)):
                return None
            arg = arg.new_empty_strided(place.shape, place.strides).copy_(arg)
        found.append(arg)
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
