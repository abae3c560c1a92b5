"""The rules Designer's first design, chosen by measuring: its schedules race, and the best one's tunables climb."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.agents.rules.slow import KEEP_EAGER
from kernellab.errors import KernellabError
from kernellab.options.design import tuning_limit
from kernellab.records import Candidate, Route, RouteKind
from kernellab.session.engine.engine import engine
from kernellab.session.record.records import Reminder
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.recalling import learn_starts, reminder, starts
from kernellab.sketch.check import load_program
from kernellab.sketch.program.library import is_library
from kernellab.target import Backend
from kernellab.verifier.judge import turns

if TYPE_CHECKING:
    from kernellab.tuning import Measured, Tuned
    from kernellab.tuning.space import Point

#: points that a tuner may climb beyond the designs themselves
CLIMB = 12


def tuned_design(
    bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel,
    remembered: Callable[[Iterable[Reminder]], None] = lambda _: None,
) -> DesignReply:  # fmt: skip
    """The fastest schedule with its tunables' values; the first one where nothing can be timed.

    Where there is a memory, the race begins with the values of kernels like this one; ``remembered`` is passed them.

    Where a design composes with the library, it races with the others even if no one asked for tuning: which is faster
    is measured, never guessed.

    Raises:
        DesignError, CaptureError: as the Designer; what goes wrong in measuring is said in the rationale.
    """
    replies = designer.designs(brief)
    composed = brief.allow_library and any(_composes(r) for r in replies)
    limit = bench.created.tune or (str(len(replies)) if composed else "")
    if brief.target.backend is Backend.INTERPRETER or not limit:
        return replies[0]
    from kernellab.tuning.space import Point

    begun = starts(bench, replies)
    first = [Point.of(replies[s.carried.design].sketch, dict(s.carried.values)) for s in begun]
    try:
        found = _measured(bench, brief, replies, limit, channel, first)
    except KernellabError as error:
        return replace(replies[0], rationale=f"{replies[0].rationale} Not tuned: {error.message}")
    if found.best is None:
        return replace(replies[0], rationale=f"{replies[0].rationale} {found.words()}")
    remembered(reminder(s.hit, p == found.best) for s, p in zip(begun, first, strict=True))
    if not found.cached:
        learn_starts(bench, begun, first, found)
    return _chosen(replies, found.best, found.words())


def faster_design(bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel) -> DesignReply | Route:
    """After a kernel that is certainly slower than eager: the fastest of all schedules and what their tunables climb
    to, as measured; a route to FINISH where that is what was tried already.

    Raises:
        DesignError, CaptureError: as the Designer, where nothing can be measured.
    """
    replies = designer.designs(brief)
    try:
        found = _measured(bench, brief, replies, str(len(replies) + CLIMB), channel, ())
    except KernellabError:
        return designer.design(brief)
    if found.best is None:
        return designer.design(brief)
    reply = _chosen(replies, found.best, found.words())
    if not any(a.sketch == reply.sketch and a.candidate and _same(a.candidate, reply) for a in brief.history):
        return reply
    tried = f"{len(found.measured)} points of {len(replies)} designs were measured, and this one stays the fastest."
    why = brief.route.reason if brief.route is not None else ""
    return Route(
        to=RouteKind.FINISH,
        error_class=brief.route.error_class if brief.route else "",
        reason=f"{why} {tried} {KEEP_EAGER}",
    )


def _same(candidate: Candidate, reply: DesignReply) -> bool:
    """Was ``candidate`` made with the values of ``reply``, or with the sketch's own where it says none?"""
    own = {c.name: c.value for c in load_program(reply.sketch).tunables}
    return {**own, **candidate.constexpr} == {**own, **candidate.constexpr, **reply.constexpr}


def _measured(
    bench: Bench, brief: DesignBrief, replies: list[DesignReply], limit: str, channel: Channel, first: Sequence[Point]
) -> Tuned:
    """The race of ``replies`` within ``limit``, as it is remembered or as it is run now."""
    from kernellab.tuning import WorkerMeasure, cache, tune
    from kernellab.tuning.space import Point, Space

    fixed = dict(bench.created.constexpr)
    designs = [r.sketch for r in replies]
    sizes = {a.name: a.shape for a in brief.task.args} | dict(brief.task.module().default_sizes())
    name = cache.key(designs, brief.target, sizes, {**fixed, **{f"start {n}": str(p) for n, p in enumerate(first)}})
    found = cache.read(name, limit)
    if found is not None:
        return found
    began, (trials, seconds) = time.perf_counter(), tuning_limit(limit)

    def stop() -> bool:
        return channel.cancel.is_set() or time.perf_counter() - began > seconds

    tried = set[Point]()
    most = limit if limit.endswith("s") else f"{trials} designs"

    def timed(point: Point, budget: float) -> Measured:
        tried.add(point)
        channel.say(f"timing design {len(tried)}, at most {most}")
        return measure(point, budget)

    try:
        with engine().verifying, turns.aside():
            measure = WorkerMeasure(engine().verifier(), brief.task, brief.target, fixed, brief.allow_library)
            space = Space(brief.task, brief.target, fixed)
            found = tune(designs, space, timed, trials, stop, first=first)
    finally:
        if brief.target.chip.kind == "gpu":
            bench.budget.spend(gpu_s=time.perf_counter() - began)
    if not channel.cancel.is_set():
        cache.write(name, limit, found)
    return found


def _chosen(replies: list[DesignReply], best: Point, words: str) -> DesignReply:
    chosen = next(r for r in replies if r.sketch == best.sketch)
    return replace(chosen, constexpr=dict(best.values), rationale=f"{chosen.rationale} {words}")


def _composes(reply: DesignReply) -> bool:
    return any(is_library(kernel) for kernel in load_program(reply.sketch).kernels)
