"""What each stage does with the candidate's worker; a stage that finds fault raises :class:`Refused` with evidence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernellab.records import Author, Evidence, Trust
from kernellab.task import Task, TaskForm
from kernellab.task_inputs import Family, input_bytes
from kernellab.verifier import cases, evidence
from kernellab.verifier.cases import Case
from kernellab.verifier.compare import NUMERIC, Limits, Mismatch, compare, metadata
from kernellab.verifier.link import Call, Worker, WorkerFailure
from kernellab.verifier.memory import lay_out
from kernellab.verifier.pipeline import Refused, Verification, baselines_of, numbered, threads_of
from kernellab.verifier.rules import CAPS, DEADLINES, HONEST
from kernellab.verifier.worker import write_files

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: signatures that a comparison of aligned and ragged sizes must not override
_CERTAIN = ("shape", "dtype", "count", "stale", "all-zero", "identity")


class Stages:
    """Holds the candidate's worker for one verification; a context manager."""

    def __init__(self, verification: Verification, task: Task) -> None:
        import torch

        self.v = verification
        self.task = task
        self.source = verification.source
        self.threads = threads_of(verification.options)
        torch.set_num_threads(1)
        self.limits = [Limits.of(o.dtype, dict(task.tolerance)) for o in task.outputs]
        self._worker: Worker | None = None
        self.worst = 0.0
        #: right answers of cases that were run, for telling a stale result
        self.answers: list[Tensor] = []

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()

    @property
    def worker(self) -> Worker:
        assert self._worker is not None
        return self._worker

    # -- build

    def build(self) -> float:
        """Seconds of importing (and so compiling) the candidate in its worker."""
        start = time.perf_counter()
        request = self.v.request
        if self.v.options.level.value > Trust.T1.value and not self.v.interpreted:
            for name, number in numbered(self.baselines()):
                self.v.pool.begin_baseline(self.source.dsl, request.backend, name, self.task, self.threads, number)
        try:
            self._worker = self._start()
        except WorkerFailure as failure:
            raise Refused(self.words("build", failure), self._named(failure, "build")) from failure
        self.v.state.sandbox = ", ".join(self._worker.sandbox)
        return time.perf_counter() - start

    def _start(self) -> Worker:
        request = self.v.request
        worker = self.v.pool.worker(self.source.dsl, request.backend, "candidate", self.threads)
        try:
            worker.memory_limit = CAPS.memory + CAPS.memory_factor * input_bytes(self.task)
            write_files(worker.scratch / "src", self.source.files)
            worker.build(self._build_message(), self.v.left(DEADLINES.build))
        except ValueError as error:
            worker.close()
            raise Refused(f"The source cannot be written: {error}.", Evidence(signature="source")) from None
        except BaseException:
            worker.close()
            raise
        return worker

    def _build_message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"entry_file": self.source.entry_file, "entry": self.source.entry}
        if self.v.adapter.build:
            message["command"] = list(self.v.adapter.build)
        if self.task.form is TaskForm.KERNELBENCH and any("ModelNew" in t for t in self.source.files.values()):
            from kernellab.task_load import _init_arguments

            module = self.task.module()
            make = module.namespace.get("get_init_inputs")
            args, keywords = _init_arguments(make() if make else [])
            message |= {"init_args": args, "init_kwargs": keywords, "state": list(module.state())}
        return message

    @property
    def _slower(self) -> float:
        return DEADLINES.interpreted if self.v.interpreted else 1.0

    # -- smoke and correct

    def smoke(self) -> str:
        case = cases.smoke_case(self.task, self.v.interpreted)
        self._outputs(case, "smoke", self.v.left(DEADLINES.smoke * self._slower))
        self.answers += [r.native for r in case.references]
        return f"{case.words}"

    def correct(self) -> str:
        found = cases.correct_cases(self.task, self.v.interpreted)
        for case in found:
            self._check(case)
        names = dict.fromkeys(c.family.value for c in found)
        return f"{len(found)} cases ({', '.join(names)}), relative error at most {self.worst:.1e}"

    def _check(self, case: Case, *, strided: bool = False, slot: int = 0) -> list[Tensor]:
        """Runs a case and compares every output; Refused with evidence when one is wrong."""
        outputs = self._outputs(case, "correct", strided=strided, slot=slot)
        for i, (got, reference, limits) in enumerate(zip(outputs, case.references, self.limits, strict=True)):
            mismatch, error = compare(got, reference, limits)
            if mismatch is not None and mismatch.rule in NUMERIC:
                mismatch, error = compare(got, case.nudged[i], limits)
            if mismatch is not None:
                raise self._wrong(case, i, got, mismatch)
            self.worst = max(self.worst, error)
        self.answers = [*self.answers[-4:], *(r.native for r in case.references)]
        return outputs

    def _outputs(
        self, case: Case, stage: str, seconds: float | None = None, *, strided: bool = False, slot: int = 0
    ) -> list[Tensor]:
        try:
            call = self._call(case, seconds, strided=strided, slot=slot)
        except WorkerFailure as failure:
            reason = self.words(stage, failure, case)
            found = evidence.of_failure(self.v.adapter, self.source, failure, case)
            if not strided and failure.kind in ("crash", "exit", "exception", "hang") and self._is_edge(case):
                found = found.model_copy(update={"signature": "edge-tile"})
            raise Refused(reason, found) from failure
        wrong = metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references])
        if wrong is not None:
            found = evidence.of_mismatch(self.source, case, 0, None, None, wrong)
            raise Refused(f"{_capital(wrong.message)} ({case.words}).", found)
        for i, output in enumerate(call.outputs):
            if self.worker.trespassed(output):
                raise self._trespass(case, i, "its output")
        try:
            return [self.worker.read(o) for o in call.outputs]
        except WorkerFailure as failure:
            raise Refused(self.words(stage, failure, case),
                          evidence.of_failure(self.v.adapter, self.source, failure, case)) from failure  # fmt: skip

    def _call(self, case: Case, seconds: float | None = None, *, strided: bool = False, slot: int = 0) -> Call:
        layout = lay_out(case.args, strided)
        self.worker.write(slot, layout, case.args)
        return self.worker.call(layout, (slot,), self.v.left(seconds or self.call_deadline(case)), poison=True)

    def call_deadline(self, case: Case) -> float:
        least = DEADLINES.call_least * self._slower
        return max(least, DEADLINES.call_factor * case.reference_seconds)

    def _wrong(self, case: Case, output: int, got: Tensor, mismatch: Mismatch) -> Refused:
        reference = case.references[output]
        found = evidence.of_mismatch(self.source, case, output, got, reference, mismatch, earlier=self.answers)
        if found.signature not in _CERTAIN and found.signature != "edge-tile":
            name = "race" if self._differs_again(case, output, got) else None
            if self._is_edge(case):
                name = "edge-tile"
            found = found.model_copy(update={"signature": name or found.signature})
        which = f"Output {output}: " if len(self.limits) > 1 else ""
        return Refused(f"{which}{_capital(mismatch.message)} ({case.words}); {found.signature}.", found)

    def _trespass(self, case: Case, output: int, what: str) -> Refused:
        mismatch = Mismatch("out-of-bounds", f"kernel writes outside {what}")
        # a missing tail mask is what makes a kernel write past the end; with fixed sizes nothing else can be tried
        name = "edge-tile" if not self.task.dims or self._is_edge(case) else "out-of-bounds"
        found = evidence.of_mismatch(self.source, case, output, None, None, mismatch, name=name)
        return Refused(f"{_capital(mismatch.message)} ({case.words}); {name}.", found)

    def _differs_again(self, case: Case, output: int, got: Tensor) -> bool:
        import torch

        try:
            again = self.worker.read(self._call(case).outputs[output])
        except (WorkerFailure, IndexError):
            return False
        return again.shape == got.shape and not torch.equal(again.nan_to_num(), got.nan_to_num())

    def _is_edge(self, failing: Case) -> bool:
        """Right at exact multiples of the usual tiles, wrong beside them? Tried in a fresh worker."""
        pairs = cases.aligned_and_ragged(self.task) if not self.v.interpreted or not self.task.dims else []
        if not pairs:
            return False
        right: dict[str, list[bool]] = {}
        for kind, case in [*pairs, ("ragged", failing)]:
            if kind == "aligned" or False not in right.get("ragged", []):
                right.setdefault(kind, []).append(self._is_right(case))
        return all(right.get("aligned", [False])) and not all(right.get("ragged", [True]))

    def _is_right(self, case: Case) -> bool:
        try:
            if self.worker.gone() or self.worker.closed:
                self.restart()
            call = self._call(case)
            if metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references]):
                return False
            if any(self.worker.trespassed(o) for o in call.outputs):
                return False
            outputs = [self.worker.read(o) for o in call.outputs]
        except (WorkerFailure, Refused):
            return False
        checks = zip(outputs, case.references, self.limits, strict=True)
        return all(compare(got, reference, limits)[0] is None for got, reference, limits in checks)

    # -- robust

    def robust(self) -> str:
        """Mutation, guards, aliasing, two outputs alive, staleness by pointer, determinism, late writes, strides."""
        first, second = self._small_case(), self._small_case()
        outputs = self._check(first)
        self._untouched(first)
        call = self._last_call(first)
        self._no_alias(first, call)
        kept = [self.worker.read(o) for o in call.outputs]
        self._deterministic(first, outputs, kept)
        self._check(second)
        self._same(first, call, kept, "reused-output", "a later call overwrites the output of an earlier one")
        self._check(first, slot=1)
        self._late(first)
        self._strided(first)
        return "inputs unchanged, guards whole, no aliasing, two outputs alive, new contents and new pointers, repeated"

    def _small_case(self) -> Case:
        return cases.small_case(self.task, self.v.interpreted)

    def _last_call(self, case: Case) -> Call:
        try:
            return self._call(case)
        except WorkerFailure as failure:
            raise Refused(self.words("robust", failure, case),
                          evidence.of_failure(self.v.adapter, self.source, failure, case)) from failure  # fmt: skip

    def _untouched(self, case: Case) -> None:
        arena = self.worker.arenas[0]
        changed = arena.changed(case.args)
        if changed is not None:
            raise self._robust(case, "mutates-input", f"kernel changes its input {self.task.args[changed].name!r}")
        beside = arena.trespassed()
        if beside is not None:
            raise self._trespass(case, 0, f"its input {self.task.args[beside].name!r}")

    def _no_alias(self, case: Case, call: Call) -> None:
        ranges = self.worker.input_ranges()
        for i, output in enumerate(call.outputs):
            inside = any(low < output.data + 1 and output.data < high for low, high in ranges)
            if inside and not self._reference_aliases(case, i):
                raise self._robust(case, "aliases-input", f"output {i} is a view of an input")

    def _reference_aliases(self, case: Case, output: int) -> bool:
        import torch

        native = cases.run_reference(self.task, case.args)[output]
        tensors = [a for a in case.args if isinstance(a, torch.Tensor)]
        return any(native.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in tensors)

    def _deterministic(self, case: Case, one: Sequence[Tensor], two: Sequence[Tensor]) -> None:
        import torch

        if all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, two, strict=True)):
            return
        for i, (got, reference, limits) in enumerate(zip(two, case.references, self.limits, strict=True)):
            if compare(got, reference, limits)[0] is not None:
                raise self._robust(case, "race", f"output {i} is right in one call and wrong in the next")
        self.v.state.labels.append("non-deterministic")

    def _same(self, case: Case, call: Call, before: Sequence[Tensor], name: str, message: str) -> None:
        import torch

        for i, (output, was) in enumerate(zip(call.outputs, before, strict=True)):
            try:
                now = self.worker.read(output)
            except WorkerFailure:
                continue  # the memory was given back: nothing was overwritten
            if not torch.equal(now.nan_to_num(), was.nan_to_num()):
                raise self._robust(case, name, f"{message} (output {i})")

    def _late(self, case: Case) -> None:
        call = self._last_call(case)
        before = [self.worker.read(o) for o in call.outputs]
        self.worker.resume()
        time.sleep(HONEST.late_wait)
        self.worker.stop()
        self._same(case, call, before, "late-write", "the output changes after kernel has returned")

    def _strided(self, case: Case) -> None:
        """Inputs with gaps between rows. A foreign source on fixed shapes may need contiguous ones, with a label."""
        import torch

        if not any(isinstance(a, torch.Tensor) and a.dim() >= 2 for a in case.args):
            return
        fresh = cases.case(self.task, dict(case.sizes), Family.OWN)
        try:
            self._check(fresh, strided=True)
        except Refused as refused:
            must = self.source.origin is Author.RULES
            if must:
                name = "strided-inputs"
                found = refused.evidence.model_copy(update={"signature": name}) if refused.evidence else None
                raise Refused(f"Inputs that are not contiguous: {refused.reason}", found) from refused
            self.v.state.labels.append("contiguous-only")
            if self.worker.gone():
                self.restart()

    def _robust(self, case: Case, name: str, message: str) -> Refused:
        found = evidence.of_mismatch(self.source, case, 0, None, None, Mismatch(name, message), name=name)
        return Refused(f"{_capital(message)} ({case.words}).", found)

    # -- honest

    def honest(self) -> str:
        """The share of a call's time that is not spent in the framework's own compute operators."""
        if self.v.interpreted:
            return "new contents at old pointers checked; share of own kernels not measured in the interpreter"
        case = cases.case(self.task, self.task.module().default_sizes(), Family.OWN)
        layout = lay_out(case.args)
        self.worker.write(0, layout, case.args)
        try:
            answer = self.worker.trace(layout, 0, self.v.left(3 * self.call_deadline(case)))
            total, library = float(answer["total"]), {str(k): float(v) for k, v in dict(answer["library"]).items()}
        except WorkerFailure as failure:
            raise Refused(self.words("honest", failure, case),
                          evidence.of_failure(self.v.adapter, self.source, failure, case)) from failure  # fmt: skip
        except (KeyError, TypeError, ValueError):
            raise Refused("The worker's answer to the trace is malformed.", Evidence(signature="protocol")) from None
        share = max(0.0, 1.0 - sum(library.values()) / total) if total > 0 else 1.0
        self.v.state.update["own_share"] = share
        names = ", ".join(list(library)[:4])
        if share < HONEST.own_share:
            if not self.v.options.allow_library:
                raise self._robust(case, "library", f"{1 - share:.0%} of the time is in the framework's own {names}")
            self.v.state.labels.append("library")
        return f"{share:.0%} of the time in own code" + (f", the rest in {names}" if names else "")

    # -- fast

    def baselines(self) -> list[str]:
        return baselines_of(self.v.options, self.task)

    def fast(self) -> str:
        from kernellab.verifier.fast import fast

        return fast(self)

    def restart(self) -> None:
        """The candidate again in a fresh worker."""
        self.worker.close()
        self._worker = self._start()

    # -- words

    def words(self, stage: str, failure: WorkerFailure, case: Case | None = None) -> str:
        at = f" ({case.words})" if case else ""
        first = next((line for line in failure.message.strip().splitlines() if line.strip()), failure.kind)
        if failure.kind in ("exception", "output", "protocol"):
            lines = evidence.compiler_lines(self.v.adapter, self.source, failure)
            if lines:
                where = f"{lines[0].file}, line {lines[0].line}: " if lines[0].line else f"{lines[0].file}: "
                return f"{where}{lines[0].message.rstrip('.')}{at}."
            return f"{first.rstrip('.')}{at}."
        return f"The kernel {first.rstrip('.')} in the stage {stage}{at}."

    def _named(self, failure: WorkerFailure, stage: str) -> Evidence:
        found = evidence.of_failure(self.v.adapter, self.source, failure)
        if found.compiler and found.signature == "exception":
            return found.model_copy(update={"signature": stage})
        return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
