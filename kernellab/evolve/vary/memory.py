"""What a search takes from the memory at its beginning, and stores in it at its end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kernellab.capture import capture
from kernellab.capture.family import family_of
from kernellab.errors import KernellabError
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.lowering.headers import without_headers
from kernellab.memory.memory import Memory
from kernellab.memory.recall import OFF, Recall, open_recall, place_named
from kernellab.memory.records import Provenance, Purpose, Skill
from kernellab.memory.transfer import with_values
from kernellab.options.memory import memory_defaults
from kernellab.records import Candidate, Comparison, Verdict
from kernellab.session.memory_export import Machine, is_worth, kernel_of
from kernellab.session.skills import change
from kernellab.target import Target
from kernellab.task import Task

log = logging.getLogger("kernellab.evolve")

#: Prefix of the operator of a proposal from the memory, followed by the entry's id.
KIND = "memory"
#: Maximum number of proposals from the memory at the beginning of a run.
_SEEDS = 4


def seeds(workspace: Path, wanted: str, task: Task, target: Target, designs: Sequence[str]) -> list[Proposal]:
    """Return designs with the values of remembered kernels, and sketches of the same computation, without duplicates.

    The memory is not trusted: each is a proposal like any other. A memory that fails gives none, and its fault is
    logged.
    """
    try:
        recall = open_recall(workspace, wanted, task, target)
        return _proposals(recall, designs) if recall is not None else []
    except KernellabError as error:
        log.warning("The search begins without its memory: %s", error)
        return []


def _proposals(recall: Recall, designs: Sequence[str]) -> list[Proposal]:
    proposal_by_key: dict[str, Proposal] = {}

    def add(sketch: str, id: str, why: str) -> None:
        proposal = Proposal(
            number=0, round=0, island=0, operator=f"{KIND}:{id}", sketch=sketch, why=f"Remembered: {why}"
        )
        proposal_by_key.setdefault(proposal.key, proposal)

    for hit in recall.hits(Purpose.REFINE, _SEEDS, distinct=False):
        if hit.kernel.graph == recall.features.hash and hit.kernel.sketch and hit.kernel.dsl == recall.target.dsl:
            add(with_values(hit.kernel.sketch, hit.kernel.constexpr), hit.kernel.id, hit.why)
    for start in recall.starts(designs):
        sketch = with_values(designs[start.carried.design], dict(start.carried.values))
        add(sketch, start.hit.kernel.id, start.hit.why)
    design_keys = {Proposal(number=0, round=0, island=0, operator="", sketch=s).key for s in designs}
    return [p for key, p in proposal_by_key.items() if key not in design_keys][:_SEEDS]


def at_end(workspace: Path, wanted: str, run: str, state: RunState) -> None:
    """Report the results of a run's seeds to the memory, regardless of the setting for offers.

    Faults are ignored: the run's own results are in the journal.
    """
    with suppress(KernellabError):
        memory = None if wanted == OFF else Memory.open_existing(workspace, place_named(wanted))
        if memory is not None:
            _learn(memory, run, state)


def _learn(memory: Memory, run: str, state: RunState) -> None:
    """Store a seed's reward: the best candidate's time divided by its own."""
    scores = {n: e.score.time.median_ms for n, e in state.evaluations.items() if e.score is not None}
    best = min(scores.values(), default=None)
    for number, proposal in state.proposals.items():
        kind, _, id = proposal.operator.partition(":")
        if kind == KIND and best is not None:
            memory.used([id], Purpose.REFINE, best / scores[number] if number in scores else 0.0, run)


def offer_run(
    memory: Memory, run: str, state: RunState, task: Task, target: Target, verified: Sequence[tuple[Candidate, Verdict]]
) -> int:
    """Store a run's verified candidates in ``memory``, and its findings as proposals. Return the number stored."""
    graph = capture(task)
    count = 0
    for candidate, verdict in verified:
        if not is_worth(verdict):
            continue
        provenance = Provenance(origin="run", place=run, turn=candidate.id, author=candidate.author.value)
        kernel = kernel_of(task, graph, without_headers(candidate.source), Machine.of(target), verdict, provenance)
        count += memory.remember(kernel.model_copy(update={"sketch": candidate.sketch}), task.text)
    for skill in skills(run, state, family_of(graph).value, target, verified):
        memory.propose(skill)
    return count


class _Timed(NamedTuple):
    """A candidate and its comparison with eager."""

    candidate: Candidate
    eager: Comparison


def skills(
    run: str, state: RunState, family: str, target: Target, verified: Sequence[tuple[Candidate, Verdict]]
) -> list[Skill]:
    """Return one note: the change from the slowest verified candidate to the fastest, if that is certainly faster."""
    timed = [
        _Timed(candidate, eager)
        for candidate, verdict in verified
        if verdict.passed and (eager := verdict.against("eager")) is not None
    ]
    if len(timed) < 2:
        return []
    timed.sort(key=lambda one: one.eager.speedup)
    (slowest, old), (fastest, new) = timed[0], timed[-1]
    if new.low <= old.high:
        return []
    rationale = state.proposals[int(fastest.id.removeprefix("p"))].why
    return [
        Skill(
            advice=rationale or "The second candidate is faster.", change=change(slowest.source, fastest.source),
            ratio=new.speedup / old.speedup, low=new.low / old.high, high=new.high / old.low, operator_class=family,
            dsl=target.dsl, chip=target.chip.name, before=f"{run}/{slowest.id}", after=f"{run}/{fastest.id}",
            provenance=Provenance(origin="run", place=run, turn=fastest.id),
        )
    ]  # fmt: skip


def may_remember(state: RunState) -> bool:
    """Whether the run has ended with a candidate that the memory may store, and the memory is on."""
    has_worthy = any(is_worth(verdict) for verdict in state.verdicts.values())
    return state.status.ended and state.begun.memory != OFF and has_worthy


def wants_all(workspace: Path) -> bool:
    """Whether ``[memory]`` says that a run's verified candidates are stored without asking."""
    return memory_defaults(workspace).offer == "always"


__all__ = ["at_end", "may_remember", "offer_run", "seeds", "skills", "wants_all"]
