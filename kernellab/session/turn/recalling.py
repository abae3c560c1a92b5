"""The memory in a turn: hits for briefs, starts for designs, and learning from verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kernellab.agents.briefs import Advice, Brief, CodeBrief, Cure, DesignBrief, DesignReply, Recalled, Remembered
from kernellab.errors import CaptureError
from kernellab.memory.records import Purpose
from kernellab.records import Role, Route, Verdict
from kernellab.session.record.records import Reminder, Turn
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench

if TYPE_CHECKING:
    from kernellab.memory.recall import Recall, Start
    from kernellab.memory.retrieval import Hit
    from kernellab.tuning.search import Tuned
    from kernellab.tuning.space import Point

AnyBrief = TypeVar("AnyBrief", bound=Brief)

#: Least similarity at which an unmeasured design uses a kernel's values: of the computation, and of the sizes. Chosen,
#: not measured.
_SURE_LOGIC, _SURE_SHAPE = 0.85, 0.75


def reminded(bench: Bench, brief: AnyBrief) -> AnyBrief:
    """Return the brief with the memory's entries for it; unchanged without a memory."""
    recall = bench.recall()
    if recall is None:
        return brief
    recalled = Recalled()
    # a model may design what cannot be captured; then the memory has no entries for it
    with bench.remembering(), suppress(CaptureError):
        recalled = _recalled(recall, brief)
    return replace(brief, recalled=recalled)


def _recalled(recall: Recall, brief: Brief) -> Recalled:
    purpose = Purpose.REFINE if brief.passed else Purpose.DRAFT
    hits = recall.hits(purpose, 2 if isinstance(brief, DesignBrief) else 1)
    cures = []
    last = brief.history[-1].verdict if brief.history else None
    if isinstance(brief, CodeBrief) and last is not None and not last.passed:
        signature = (last.evidence.signature if last.evidence else None) or last.stage.value
        cures = [Cure(f.id, f.reason, f.change, f.speedup) for f in recall.cures(signature)]
    skills = [Advice(s.id, s.advice, s.change, s.ratio, s.low, s.high) for s in recall.skills()]
    return Recalled(tuple(map(_remembered, hits)), tuple(cures), tuple(skills))


def _remembered(hit: Hit) -> Remembered:
    kernel = hit.kernel
    return Remembered(
        id=kernel.id, name=kernel.name, why=hit.why, score=hit.score, logic=hit.logic, shape=hit.shape,
        value=hit.value, dsl=kernel.dsl, sketch=kernel.sketch or "", constexpr=kernel.constexpr,
        source=kernel.source, rationale=kernel.rationale, stale=hit.stale,
    )  # fmt: skip


def reminders(recalled: Recalled) -> tuple[Reminder, ...]:
    """The reminders that a turn's record keeps of its role's entries."""
    return tuple(
        Reminder(id=k.id, name=k.name, why=k.why, score=k.score, logic=k.logic, shape=k.shape, value=k.value)
        for k in recalled.kernels
    )


def reminder_of(hit: Hit, is_taken: bool) -> Reminder:
    """Return a hit as a turn's record keeps it."""
    return Reminder(
        id=hit.kernel.id, name=hit.kernel.name, why=hit.why, score=hit.score, logic=hit.logic, shape=hit.shape,
        value=hit.value, taken=is_taken,
    )  # fmt: skip


def starts(bench: Bench, replies: list[DesignReply]) -> list[Start]:
    """Where remembered kernels would start among the rules' designs; empty without a memory."""
    recall = bench.recall()
    start_points: list[Start] = []
    if recall is not None:
        with bench.remembering():
            start_points = recall.starts([r.sketch for r in replies], [r.rationale for r in replies])
    return start_points


class StartedDesign(NamedTuple):
    """A design, or the route of a Designer that is done, and the remembered kernels from which it began."""

    reply: DesignReply | Route
    reminders: tuple[Reminder, ...] = ()


def from_nearest(replies: list[DesignReply], start_points: list[Start]) -> StartedDesign:
    """Return the rules' first design, started from the nearest remembered kernel if it is near enough without a
    measurement: nearly the same computation and size, measured on this machine."""
    for start in start_points:
        hit = start.hit
        if hit.logic >= _SURE_LOGIC and hit.shape >= _SURE_SHAPE and not hit.stale:
            reply, values = replies[start.carried.design], dict(start.carried.values)
            rationale = f"{reply.rationale} Begun as remembered: {hit.why}"
            return StartedDesign(
                replace(reply, constexpr=values, rationale=rationale), (reminder_of(hit, is_taken=True),)
            )
    return StartedDesign(replies[0])


def learn_starts(bench: Bench, start_points: list[Start], points: Sequence[Point], tuned: Tuned) -> None:
    """Report to the memory how near each start was to the tuner's best: the best time divided by the start's."""
    times = {m.point: m.time.median_ms for m in tuned.measured if m.time is not None}
    recall = bench.recall()
    if recall is None or recall.held_out or tuned.best not in times:
        return
    with bench.remembering():
        for start, point in zip(start_points, points, strict=True):
            share = times[tuned.best] / times[point] if point in times else 0.0
            recall.memory.used([start.hit.kernel.id], Purpose.DRAFT, share)


def learn(bench: Bench, state: State, turn: Turn) -> None:
    """Report the result of ``turn``, a verification, to the memory, for the entries that earlier turns received."""
    entry_ids = _entries_above(state, turn)
    # a benchmark's run does not change the memory, so that its tasks receive the same entries in any order
    recall = None if bench.created.hold_out or not entry_ids or turn.reused is not None else bench.recall()
    if recall is None or turn.verdict is None:
        return
    passed = [t.verdict for t in state.up(turn.parent) if t.verdict is not None and t.verdict.passed]
    purpose = Purpose.REFINE if passed else Purpose.DRAFT
    with bench.remembering():
        score = reward(turn.verdict, max(passed, key=lambda v: v.speedup or 0.0) if passed else None)
        recall.memory.used(entry_ids, purpose, score, f"{state.id} {turn.id}")


def _entries_above(state: State, turn: Turn) -> list[str]:
    """The entries that roles of this attempt received, back to the last verdict."""
    entry_ids: dict[str, None] = {}
    for ancestor in state.up(turn.parent):
        if ancestor.role is Role.VERIFIER:
            break
        entry_ids.update(dict.fromkeys(r.id for r in ancestor.remembered))
    return list(entry_ids)


def reward(verdict: Verdict, before: Verdict | None) -> float:
    """The score of a verdict's memory entries, 0 to 1. For a draft: whether it passed and how near it is to its bound.
    For a refinement: how much faster than ``before`` it is (1 if at least twice as fast)."""
    if not verdict.passed:
        return 0.0
    if before is None:
        return 0.5 + 0.5 * min(1.0, verdict.bound_share or 0.0)
    ratio = (verdict.speedup or 0.0) / (before.speedup or 1.0)
    return min(1.0, max(0.0, ratio / 2))
