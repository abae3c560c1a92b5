"""What a session offers to the memory when it ends: its verified kernels, and its failures with what fixed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kernellab.capture import Graph, capture
from kernellab.capture.family import family_of
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.lowering.headers import with_headers, without_headers
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
from kernellab.target import Backend
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier

#: a verdict below it is never remembered
_LEAST_TRUST = (Trust.T2, Trust.T3, Trust.T4)
#: characters of a change that are kept
_MOST_CHANGE = 4000


def kernels(state: State, task: Task, graph: Graph) -> Iterator[Kernel]:
    """Each verified kernel of the session once, with the figures of its last verdict.

    A kernel that an interpreter ran, that was not timed, or whose verdict is below T2, is not offered.
    """
    if state.target is None or state.target.backend == "interpreter":
        return
    seen: set[str] = set()
    for turn in reversed(list(state.turns.values())):
        made = _made(state, turn)
        verdict = turn.verdict
        if made is None or made.candidate is None or verdict is None or not is_worth(verdict):
            continue
        source = without_headers(made.candidate.source)
        if source.hash in seen:
            continue
        seen.add(source.hash)
        where = state.target.backend, state.target.chip
        kernel = kernel_of(task, graph, source, where, verdict, _provenance(state, made))
        yield kernel.model_copy(update={
            "sketch": made.candidate.sketch, "constexpr": made.candidate.constexpr,
            "rationale": _rationale(state, made),
        })  # fmt: skip


def failures(state: State, graph: Graph) -> Iterator[Failure]:
    """Each refused kernel whose line went on to one that passed, with the difference between the two."""
    if state.target is None:
        return
    form, family = canonical(graph), family_of(graph).value
    for turn in state.turns.values():
        made, verdict = _made(state, turn), turn.verdict
        if made is None or made.candidate is None or verdict is None or verdict.passed:
            continue
        cure = _cure(state, turn)
        if cure is None:
            continue
        fixed, by = cure
        signature = (verdict.evidence.signature if verdict.evidence else None) or verdict.stage.value
        yield Failure(
            graph=form.hash, operator_class=family, dsl=made.candidate.source.dsl, backend=state.target.backend,
            stage=verdict.stage.value, signature=signature, reason=verdict.reason,
            change=change(made.candidate.source, fixed, _MOST_CHANGE), speedup=by.speedup,
            provenance=_provenance(state, made),
        )  # fmt: skip


def offer(memory: Memory, state: State, asked: bool = False) -> int:
    """Put all that a session has found into ``memory``; how many kernels were kept. ``asked``: by a person, now.

    Kernels and failures are kept as they are; skills become proposals, which a person approves.

    Raises:
        MemoryStoreError: the store cannot be written. TaskError, CaptureError: the task does not run any more.
    """
    task = load_task(state.created.text, state.created.name)
    graph = capture(task)
    kept = sum(memory.remember(kernel, task.text, asked) for kernel in kernels(state, task, graph))
    for failure in failures(state, graph):
        memory.remember_failure(failure)
    for skill in proposals(state, family_of(graph).value):
        memory.propose(skill)
    return kept


def at_end(bench: Bench, state: State) -> None:
    """A session has ended: what it found is remembered where ``[memory]`` says "always". Faults are not raised."""
    if bench.workspace is None or state.created.memory == OFF or state.created.hold_out:
        return
    with bench.remembering():
        wanted = memory_defaults(bench.workspace).offer == "always" and state.best() is not None
        recall = bench.recall() if wanted else None
        if wanted and not bench.memory_fault:
            offer(recall.memory if recall else Memory.open(bench.workspace), state)


def imported(
    memory: Memory, verifier: Verifier, given: tuple[str, str], source: Source, licence: str, place: str,
    before: Kernel | None = None,
) -> str:  # fmt: skip
    """Verify somebody's kernel for the task ``given`` (text, name) and keep it; why not, or "" when it was kept.

    ``before`` is its entry in another memory: its sketch, notes and ratings are kept, its figures are read again.
    """
    known = memory.judged_before().get(source.hash)
    if known is not None:
        return known or "It was imported before."
    why = _import(memory, verifier, given, source, licence, place, before)
    memory.looked(source.hash, why)
    return why


def _import(
    memory: Memory, verifier: Verifier, given: tuple[str, str], source: Source, licence: str, place: str,
    before: Kernel | None,
) -> str:  # fmt: skip
    try:
        task = load_task(*given)
        graph = capture(task)
        target = detect_target(source.dsl)
        verdict = verifier.verify(task, with_headers(source), target)
    except KernellabError as error:
        return error.message
    if not is_worth(verdict) or target.backend is Backend.INTERPRETER:
        return verdict.reason
    provenance = Provenance(origin="import", place=place, licence=licence)
    where = target.backend.value, target.chip.name
    kernel = kernel_of(task, graph, without_headers(source), where, verdict, provenance)
    kept = memory.remember(carrying(kernel, before) if before is not None else kernel, task.text)
    return "" if kept else "It was forgotten before, or is slower than those that are kept."


def kernel_of(
    task: Task, graph: Graph, source: Source, where: tuple[str, str], verdict: Verdict, provenance: Provenance
) -> Kernel:
    """The memory's record of ``source`` (without headers), judged on ``where``: backend and chip."""
    form = canonical(graph)
    backend, chip = where
    return Kernel(
        name=task.name, task=task.hash, graph=form.hash, operator_class=family_of(graph).value,
        words=tuple(sorted(word.split(" ")[0] for word in form.words)), dsl=source.dsl, backend=backend, chip=chip,
        chip_family=_family(source.dsl, chip),
        dtype=next((a.dtype for a in task.tensors), ""), sizes=task.module().default_sizes(),
        signature=task.signature, source=source, measured=measured(verdict, source.dsl), provenance=provenance,
    )  # fmt: skip


def carrying(kernel: Kernel, before: Kernel) -> Kernel:
    """``kernel`` with what no verification makes: the sketch, notes, ratings, and the figures it came with."""
    kept = ("sketch", "constexpr", "rationale", "draft", "refine", "thumb", "pinned")
    return kernel.model_copy(update={**{name: getattr(before, name) for name in kept}, "reported": before.measured})


def measured(verdict: Verdict, dsl: str) -> Measured:
    """A verdict's figures, against eager where it was the baseline, with what they hold for."""
    against = verdict.against("eager") or (verdict.comparisons[0] if verdict.comparisons else None)
    return Measured(
        trust=verdict.trust, speedup=against.speedup if against else None, low=against.low if against else None,
        high=against.high if against else None, baseline=against.baseline if against else "",
        time_ms=verdict.time.median_ms if verdict.time else None, sol_ms=verdict.sol_ms,
        versions={**verdict.environment.versions, **versions(dsl)}, verifier=verifier(),
    )  # fmt: skip


def _family(dsl: str, chip: str) -> str:
    """The family of a chip; "" where it is not this machine's."""
    with suppress(KernellabError):
        here = detect_target(dsl).chip
        return here.family if here.name == chip else ""
    return ""


def is_worth(verdict: Verdict) -> bool:
    """May the memory keep it: passed, at T2 or better, and timed?"""
    return verdict.passed and verdict.trust in _LEAST_TRUST and verdict.time is not None


def _made(state: State, turn: Turn) -> Turn | None:
    """The turn whose candidate ``turn`` judged."""
    if turn.verdict is None:
        return None
    return next((above for above in state.up(turn.parent) if above.candidate is not None), None)


def _cure(state: State, failed: Turn) -> tuple[Source, Verdict] | None:
    """The first kernel below ``failed`` that passed, with its verdict."""
    for turn in state.turns.values():
        if turn.verdict is None or not is_worth(turn.verdict) or turn.number <= failed.number:
            continue
        if any(above.id == failed.id for above in state.up(turn.parent)):
            made = _made(state, turn)
            if made is not None and made.candidate is not None:
                return made.candidate.source, turn.verdict
    return None


def _rationale(state: State, made: Turn) -> str:
    """Why the kernel is as it is, in the Designer's words."""
    return next((turn.rationale for turn in state.up(made.id) if turn.sketch is not None and turn.rationale), "")


def _provenance(state: State, turn: Turn) -> Provenance:
    return Provenance(
        origin="session", place=state.id, turn=turn.id, author=turn.author.value, created=turn.started + turn.seconds
    )


__all__ = ["at_end", "carrying", "failures", "imported", "is_worth", "kernel_of", "kernels", "measured", "offer"]
