"""What a search takes from the memory when it begins, and gives to it when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

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
from kernellab.records import Candidate, Verdict
from kernellab.session.memory_export import is_worth, kernel_of
from kernellab.session.skills import change
from kernellab.target import Target
from kernellab.task import Task

log = logging.getLogger("kernellab.evolve")

#: how the operator of a proposal begins that came from the memory; the entry's id stands behind it
KIND = "memory"
#: proposals that a run begins with from the memory
_SEEDS = 4


def seeds(workspace: Path, wanted: str, task: Task, target: Target, designs: Sequence[str]) -> list[Proposal]:
    """Designs begun at the values of remembered kernels, and sketches of the very same computation, none twice.

    Nothing of the memory is believed: each is a proposal as any other. A memory that fails gives none;
    its fault is logged.
    """
    try:
        recall = open_recall(workspace, wanted, task, target)
        return _proposals(recall, designs) if recall is not None else []
    except KernellabError as error:
        log.warning("The search begins without its memory: %s", error)
        return []


def _proposals(recall: Recall, designs: Sequence[str]) -> list[Proposal]:
    made: dict[str, Proposal] = {}

    def add(sketch: str, id: str, why: str) -> None:
        found = Proposal(number=0, round=0, island=0, operator=f"{KIND}:{id}", sketch=sketch, why=f"Remembered: {why}")
        made.setdefault(found.key, found)

    for hit in recall.hits(Purpose.REFINE, _SEEDS, distinct=False):
        if hit.kernel.graph == recall.features.hash and hit.kernel.sketch and hit.kernel.dsl == recall.target.dsl:
            add(with_values(hit.kernel.sketch, hit.kernel.constexpr), hit.kernel.id, hit.why)
    for start in recall.starts(designs):
        sketch = with_values(designs[start.carried.design], dict(start.carried.values))
        add(sketch, start.hit.kernel.id, start.hit.why)
    own = {Proposal(number=0, round=0, island=0, operator="", sketch=s).key for s in designs}
    return [p for key, p in made.items() if key not in own][:_SEEDS]


def at_end(workspace: Path, wanted: str, run: str, state: RunState) -> None:
    """A run has ended: the memory learns what its seeds came to, whatever the setting says of offers.

    Faults are silent: the run's own results are in the journal.
    """
    with suppress(KernellabError):
        memory = None if wanted == OFF else Memory.open_existing(workspace, place_named(wanted))
        if memory is not None:
            _learn(memory, run, state)


def _learn(memory: Memory, run: str, state: RunState) -> None:
    """The reward of a seed: the best candidate's time over its own."""
    scores = {n: e.score.time.median_ms for n, e in state.evaluations.items() if e.score is not None}
    best = min(scores.values(), default=None)
    for number, proposal in state.proposals.items():
        kind, _, id = proposal.operator.partition(":")
        if kind == KIND and best is not None:
            memory.used([id], Purpose.REFINE, best / scores[number] if number in scores else 0.0, run)


def offer_run(
    memory: Memory, run: str, state: RunState, task: Task, target: Target, verified: Sequence[tuple[Candidate, Verdict]]
) -> int:
    """Put a run's verified candidates into ``memory``, and its Analyst's findings as proposals; how many were kept."""
    graph = capture(task)
    kept = 0
    for candidate, verdict in verified:
        if not is_worth(verdict):
            continue
        made = Provenance(origin="run", place=run, turn=candidate.id, author=candidate.author.value)
        where = target.backend.value, target.chip.name
        kernel = kernel_of(task, graph, without_headers(candidate.source), where, verdict, made)
        kept += memory.remember(kernel.model_copy(update={"sketch": candidate.sketch}), task.text)
    for skill in skills(run, state, family_of(graph).value, target, verified):
        memory.propose(skill)
    return kept


def skills(
    run: str, state: RunState, family: str, target: Target, verified: Sequence[tuple[Candidate, Verdict]]
) -> list[Skill]:
    """One note: what turned the slowest verified candidate into the fastest, where that is faster for certain."""
    timed = [(c, v, e) for c, v in verified if v.passed and (e := v.against("eager")) is not None]
    if len(timed) < 2:
        return []
    ordered = sorted(timed, key=lambda found: found[2].speedup)
    (was, _, old), (now, _, new) = ordered[0], ordered[-1]
    if new.low <= old.high:
        return []
    said = state.proposals[int(now.id.removeprefix("p"))].why
    return [
        Skill(
            advice=said or "The second candidate is faster.", change=change(was.source, now.source),
            ratio=new.speedup / old.speedup, low=new.low / old.high, high=new.high / old.low, operator_class=family,
            dsl=target.dsl, chip=target.chip.name, before=f"{run}/{was.id}", after=f"{run}/{now.id}",
            provenance=Provenance(origin="run", place=run, turn=now.id),
        )
    ]  # fmt: skip


def may_remember(state: RunState) -> bool:
    """Has the run ended with a candidate that the memory may keep, and may it keep anything?"""
    passed = any(is_worth(verdict) for verdict in state.verdicts.values())
    return state.status.ended and state.begun.memory != OFF and passed


def wants_all(workspace: Path) -> bool:
    """Does ``[memory]`` say that a run's verified candidates are remembered without asking?"""
    return memory_defaults(workspace).offer == "always"


__all__ = ["at_end", "may_remember", "offer_run", "seeds", "skills", "wants_all"]
