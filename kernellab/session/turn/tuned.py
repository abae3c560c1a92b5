"""The rules Designer's first design, chosen by measurement: schedules race, then the best one's tunables are tuned."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import KernellabError, counted
from kernellab.options.design import tuning_limit
from kernellab.records import Candidate, Route, RouteKind
from kernellab.session.engine.engine import engine
from kernellab.session.turn.context import Bench, Channel, charging_gpu_time
from kernellab.session.turn.recalling import StartedDesign, learn_starts, reminder_of, starts
from kernellab.sketch.check import load_program
from kernellab.sketch.program.library import is_library
from kernellab.target import Backend
from kernellab.verifier.judge import turns

if TYPE_CHECKING:
    from kernellab.tuning import Measured, Tuned
    from kernellab.tuning.space import Point

#: Number of points that a tuner may try beyond the designs themselves; chosen, not measured.
CLIMB = 12


def tuned_design(bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel) -> StartedDesign:
    """Return the fastest schedule with its tunables' values; the first schedule if nothing can be timed.

    With a memory, the race begins with the values of similar kernels.

    A design that calls the library races with the others even if tuning was not requested: which is faster is measured,
    not guessed.

    Raises:
        DesignError, CaptureError: from the Designer; an error of a measurement is stated in the rationale.
    """
    replies = designer.designs(brief)
    has_library = brief.allow_library and any(_calls_library(r) for r in replies)
    limit = bench.created.tune or (str(len(replies)) if has_library else "")
    if brief.target.backend is Backend.INTERPRETER or not limit:
        return StartedDesign(replies[0])
    from kernellab.tuning.space import Point

    remembered_starts = starts(bench, replies)
    first = [Point.of(replies[s.carried.design].sketch, dict(s.carried.values)) for s in remembered_starts]
    try:
        tuned = _measured(bench, brief, replies, limit, channel, first)
    except KernellabError as error:
        return StartedDesign(replace(replies[0], rationale=f"{replies[0].rationale} Not tuned: {error.message}"))
    if tuned.best is None:
        return StartedDesign(replace(replies[0], rationale=f"{replies[0].rationale} {tuned.words()}"))
    if not tuned.cached:
        learn_starts(bench, remembered_starts, first, tuned)
    reminders = [
        reminder_of(start.hit, is_taken=point == tuned.best)
        for start, point in zip(remembered_starts, first, strict=True)
    ]
    return StartedDesign(_chosen(replies, tuned.best, tuned.words()), tuple(reminders))


def faster_design(bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel) -> DesignReply | Route:
    """Return the design after a kernel that is slower than eager: the fastest of all schedules and their
    tuned tunables, as measured; a route to FINISH if that design was tried already.

    Raises:
        DesignError, CaptureError: from the Designer, if nothing can be measured.
    """
    replies = designer.designs(brief)
    try:
        tuned = _measured(bench, brief, replies, str(len(replies) + CLIMB), channel, ())
    except KernellabError:
        return designer.design(brief)
    if tuned.best is None:
        return designer.design(brief)
    reason = brief.route.reason if brief.route is not None else ""
    last = brief.history[-1].verdict if brief.history else None
    advice = last.advice if last is not None else ""
    return _new_or_end(brief, replies, tuned, lambda tried: f"{reason} {tried} {advice}".strip())


def measured_design(
    bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel, limit: str
) -> DesignReply | Route:  # fmt: skip
    """Return the fastest of all schedules and their tuned tunables, as measured within ``limit``; a route to FINISH if
    that design was tried already, or nothing ran.

    Raises:
        DesignError, CaptureError: from the Designer.
        KernellabError: the designs cannot be measured.
    """
    replies = designer.designs(brief)
    tuned = _measured(bench, brief, replies, limit, channel, ())
    if tuned.best is None:
        return Route(to=RouteKind.FINISH, error_class="none", reason=tuned.words())
    return _new_or_end(brief, replies, tuned, lambda tried: tried)


def _new_or_end(
    brief: DesignBrief, replies: list[DesignReply], tuned: Tuned, reason: Callable[[str], str]
) -> DesignReply | Route:  # fmt: skip
    """The measured best; if that was tried already, a route to FINISH, for a ``reason`` that holds what was tried."""
    assert tuned.best is not None
    reply = _chosen(replies, tuned.best, tuned.words())
    if not any(a.sketch == reply.sketch and a.candidate and _has_values(a.candidate, reply) for a in brief.history):
        return reply
    points, designs = counted(len(tuned.measured), "point"), counted(len(replies), "design")
    were = "was" if len(tuned.measured) == 1 else "were"
    tried = f"{points} of {designs} {were} measured, and this one stays the fastest."
    return Route(to=RouteKind.FINISH, error_class=brief.route.error_class if brief.route else "", reason=reason(tried))


def _has_values(candidate: Candidate, reply: DesignReply) -> bool:
    """Whether ``candidate`` was made with the values of ``reply``, or the sketch's own where the reply has none."""
    defaults = {c.name: c.value for c in load_program(reply.sketch).tunables}
    return {**defaults, **candidate.constexpr} == {**defaults, **candidate.constexpr, **reply.constexpr}


def _measured(
    bench: Bench, brief: DesignBrief, replies: list[DesignReply], limit: str, channel: Channel, first: Sequence[Point]
) -> Tuned:
    """Race ``replies`` within ``limit``, or return the cached result."""
    from kernellab.tuning import WorkerMeasure, cache, tune
    from kernellab.tuning.space import Point, Space

    fixed = dict(bench.created.constexpr)
    designs = [r.sketch for r in replies]
    sizes = {a.name: a.shape for a in brief.task.args} | dict(brief.task.module().default_sizes())
    name = cache.key(designs, brief.target, sizes, {**fixed, **{f"start {n}": str(p) for n, p in enumerate(first)}})
    tuned = cache.read(name, limit)
    if tuned is not None:
        return tuned
    began, (trials, seconds) = time.perf_counter(), tuning_limit(limit)

    def stop() -> bool:
        return channel.cancel.is_set() or time.perf_counter() - began > seconds

    tried_points = set[Point]()
    limit_text = limit if limit.endswith("s") else f"{trials} designs"

    def timed(point: Point, budget: float) -> Measured:
        tried_points.add(point)
        channel.say(f"timing design {len(tried_points)}, at most {limit_text}")
        return measure(point, budget)

    with charging_gpu_time(bench, brief.target), engine().verifying, turns.aside():
        measure = WorkerMeasure(engine().verifier(), brief.task, brief.target, fixed, brief.allow_library)
        space = Space(brief.task, brief.target, fixed)
        tuned = tune(designs, space, timed, trials, stop, first=first)
    if not channel.cancel.is_set():
        cache.write(name, limit, tuned)
    return tuned


def _chosen(replies: list[DesignReply], best: Point, words: str) -> DesignReply:
    chosen = next(r for r in replies if r.sketch == best.sketch)
    return replace(chosen, constexpr=dict(best.values), rationale=f"{chosen.rationale} {words}")


def _calls_library(reply: DesignReply) -> bool:
    return any(is_library(kernel) for kernel in load_program(reply.sketch).kernels)
