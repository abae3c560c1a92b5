"""What a session offers to the memory when it ends: its verified kernels, and its failures with their fixes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernellab.capture import Graph, capture
from kernellab.capture.family import family_of
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.lowering.headers import without_headers
from kernellab.memory.canonical import canonical
from kernellab.memory.memory import Memory
from kernellab.memory.recall import OFF
from kernellab.memory.records import Failure, Kernel, Measured, Provenance
from kernellab.memory.stale import verifier, versions
from kernellab.options.memory import memory_defaults
from kernellab.records import Source, Trust, Verdict
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.skills import change, proposals
from kernellab.session.turn.context import Bench
from kernellab.target import Target
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.session.engine.driver import Driver

#: Trust levels at which a verdict may be remembered.
_LEAST_TRUST = (Trust.T2, Trust.T3, Trust.T4)
#: Maximum number of characters of a stored change.
_MOST_CHANGE = 4000


def kernels(state: State, task: Task, graph: Graph) -> Iterator[Kernel]:
    """Yield each verified kernel of the session once, with the figures of its last verdict.

    A kernel that an interpreter ran, that was not timed, or whose verdict is below T2 is omitted.
    """
    if state.target is None or state.target.backend == "interpreter":
        return
    hashes: set[str] = set()
    for turn in reversed(list(state.turns.values())):
        code_turn, verdict = state.source_turn(turn.parent), turn.verdict
        if code_turn is None or code_turn.candidate is None or verdict is None or not is_worth(verdict):
            continue
        source = without_headers(code_turn.candidate.source)
        if source.hash in hashes:
            continue
        hashes.add(source.hash)
        machine = Machine(state.target.backend, state.target.chip)
        kernel = kernel_of(task, graph, source, machine, verdict, _provenance(state, code_turn))
        yield kernel.model_copy(update={
            "sketch": code_turn.candidate.sketch, "constexpr": code_turn.candidate.constexpr,
            "rationale": _rationale(state, code_turn),
        })  # fmt: skip


def failures(state: State, graph: Graph) -> Iterator[Failure]:
    """Yield each refused kernel with a passing kernel below it, and the difference between the two."""
    if state.target is None:
        return
    form, family = canonical(graph), family_of(graph).value
    for turn in state.turns.values():
        code_turn, verdict = state.source_turn(turn.parent), turn.verdict
        if code_turn is None or code_turn.candidate is None or verdict is None or verdict.passed:
            continue
        cure = _cure(state, turn)
        if cure is None:
            continue
        fixed_source, passed_verdict = cure
        signature = (verdict.evidence.signature if verdict.evidence else None) or verdict.stage.value
        yield Failure(
            graph=form.hash, operator_class=family, dsl=code_turn.candidate.source.dsl, backend=state.target.backend,
            stage=verdict.stage.value, signature=signature, reason=verdict.reason,
            change=change(code_turn.candidate.source, fixed_source, _MOST_CHANGE), speedup=passed_verdict.speedup,
            provenance=_provenance(state, code_turn),
        )  # fmt: skip


def offer(memory: Memory, state: State, asked: bool = False) -> int:
    """Store a session's results in ``memory``. Return the number of stored kernels. ``asked``: a person requested it.

    Kernels and failures are stored directly; skills become proposals, which a person approves.

    Raises:
        MemoryStoreError: the store cannot be written. TaskError, CaptureError: the task no longer runs.
    """
    task = load_task(state.created.text, state.created.name)
    graph = capture(task)
    count = sum(memory.remember(kernel, task.text, asked) for kernel in kernels(state, task, graph))
    for failure in failures(state, graph):
        memory.remember_failure(failure)
    for skill in proposals(state, family_of(graph).value):
        memory.propose(skill)
    return count


def at_end(bench: Bench, state: State) -> None:
    """Store an ended session's results if ``[memory]`` says "always". Faults are not raised."""
    if bench.workspace is None or state.created.memory == OFF or state.created.hold_out:
        return
    with bench.remembering():
        should_offer = memory_defaults(bench.workspace).offer == "always" and state.best() is not None
        recall = bench.recall() if should_offer else None
        if should_offer and not bench.memory_fault:
            offer(recall.memory if recall else Memory.open(bench.workspace), state)


class Machine(NamedTuple):
    """Where a kernel was judged."""

    backend: str
    chip: str

    @classmethod
    def of(cls, target: Target) -> Machine:
        return cls(target.backend.value, target.chip.name)


def kernel_of(
    task: Task, graph: Graph, source: Source, machine: Machine, verdict: Verdict, provenance: Provenance
) -> Kernel:
    """Return the memory's record of ``source`` (without headers), judged on ``machine``."""
    form = canonical(graph)
    return Kernel(
        name=task.name, task=task.hash, graph=form.hash, operator_class=family_of(graph).value,
        words=tuple(sorted(word.split(" ")[0] for word in form.words)),
        dsl=source.dsl, backend=machine.backend, chip=machine.chip, chip_family=_family(source.dsl, machine.chip),
        dtype=next((a.dtype for a in task.tensors), ""), sizes=task.module().default_sizes(),
        signature=task.signature, source=source, measured=measured(verdict, source.dsl), provenance=provenance,
    )  # fmt: skip


def carrying(kernel: Kernel, before: Kernel) -> Kernel:
    """Return ``kernel`` with ``before``'s sketch, notes, ratings, and its figures as the reported ones."""
    copied = ("sketch", "constexpr", "rationale", "draft", "refine", "thumb", "pinned")
    return kernel.model_copy(update={**{name: getattr(before, name) for name in copied}, "reported": before.measured})


def measured(verdict: Verdict, dsl: str) -> Measured:
    """Return a verdict's figures, against eager if it was a baseline, with the versions to which they apply."""
    compared = verdict.against("eager") or (verdict.comparisons[0] if verdict.comparisons else None)
    return Measured(
        trust=verdict.trust, speedup=compared.speedup if compared else None, low=compared.low if compared else None,
        high=compared.high if compared else None, baseline=compared.baseline if compared else "",
        time_ms=verdict.time.median_ms if verdict.time else None, sol_ms=verdict.sol_ms,
        versions={**verdict.environment.versions, **versions(dsl)}, verifier=verifier(),
    )  # fmt: skip


def _family(dsl: str, chip: str) -> str:
    """The family of a chip; "" if the chip is not this machine's."""
    with suppress(KernellabError):
        local_chip = detect_target(dsl).chip
        return local_chip.family if local_chip.name == chip else ""
    return ""


def is_worth(verdict: Verdict) -> bool:
    """Whether the memory may store it: passed, at T2 or better, and timed."""
    return verdict.passed and verdict.trust in _LEAST_TRUST and verdict.time is not None


def _cure(state: State, failed: Turn) -> tuple[Source, Verdict] | None:
    """Return the first kernel below ``failed`` that passed, with its verdict."""
    for turn in state.turns.values():
        if turn.verdict is None or not is_worth(turn.verdict) or turn.number <= failed.number:
            continue
        if any(ancestor.id == failed.id for ancestor in state.up(turn.parent)):
            code_turn = state.source_turn(turn.parent)
            if code_turn is not None and code_turn.candidate is not None:
                return code_turn.candidate.source, turn.verdict
    return None


def _rationale(state: State, code_turn: Turn) -> str:
    """The reason for the kernel's design, in the Designer's words."""
    return next((turn.rationale for turn in state.up(code_turn.id) if turn.sketch is not None and turn.rationale), "")


def _provenance(state: State, turn: Turn) -> Provenance:
    return Provenance(
        origin="session", place=state.id, turn=turn.id, author=turn.author.value, created=turn.started + turn.seconds
    )


class SessionMemory:
    """One session's access to the memory."""

    def __init__(self, driver: Driver, bench: Bench, workspace: Path) -> None:
        self._driver, self._bench, self._workspace = driver, bench, workspace

    @property
    def store(self) -> Memory | None:
        """The memory that the session queries; None if it is off, does not exist, or failed."""
        recall = self._bench.recall()
        return recall.memory if recall else None

    @property
    def fault(self) -> str:
        """Why the memory is not used, in a sentence with its remedy; "" if it works or is off."""
        return self._bench.memory_fault

    def remember(self) -> int:
        """Store the session's verified kernels in the workspace's memory. Return the number of new kernels.

        Raises:
            MemoryStoreError, TaskError, CaptureError.
        """
        return offer(self.store or Memory.open(self._workspace), self._driver.state, asked=True)
