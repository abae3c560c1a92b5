"""The rules Designer's first design, chosen by measuring: its schedules race, and the best one's tunables climb."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import KernellabError
from kernellab.session.engine.engine import engine
from kernellab.session.record.records import Reminder
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.recalling import learn_starts, reminder, starts
from kernellab.sketch.check import load_program
from kernellab.sketch.program.library import is_library
from kernellab.target import Backend
from kernellab.verifier.judge import turns


def tuned_design(
    bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel,
    remembered: Callable[[Iterable[Reminder]], None] = lambda _: None,
) -> DesignReply:  # fmt: skip
    """The fastest schedule with its tunables' values; the first one where nothing can be timed.

    Where there is a memory, the race begins with the values of kernels like this one; ``remembered`` is told of them.

    Where a design composes with the library, it races with the others even if nobody asked for tuning: which is faster
    is measured, never guessed.

    Raises:
        DesignError, CaptureError: as the Designer; what goes wrong in measuring is said in the rationale.
    """
    replies = designer.designs(brief)
    trials = bench.created.tune or (len(replies) if brief.allow_library and any(_composes(r) for r in replies) else 0)
    if brief.target.backend is Backend.INTERPRETER or not trials:
        return replies[0]
    from kernellab.tuning import WorkerMeasure, cache, tune
    from kernellab.tuning.space import Point, Space

    fixed = dict(bench.created.constexpr)
    designs = [r.sketch for r in replies]
    sizes = {a.name: a.shape for a in brief.task.args} | dict(brief.task.module().default_sizes())
    begun = starts(bench, replies)
    first = [Point.of(designs[s.carried.design], dict(s.carried.values)) for s in begun]
    name = cache.key(designs, brief.target, sizes, {**fixed, **{f"start {n}": str(p) for n, p in enumerate(first)}})
    found = cache.read(name, trials)
    if found is None:
        began = time.perf_counter()
        try:
            with engine().verifying, turns.aside():
                measure = WorkerMeasure(engine().verifier(), brief.task, brief.target, fixed, brief.allow_library)
                space = Space(brief.task, brief.target, fixed)
                found = tune(designs, space, measure, trials, channel.cancel.is_set, first=first)
        except KernellabError as error:
            return replace(replies[0], rationale=f"{replies[0].rationale} Not tuned: {error.message}")
        finally:
            if brief.target.chip.kind == "gpu":
                bench.budget.spend(gpu_s=time.perf_counter() - began)
        if not channel.cancel.is_set():
            cache.write(name, trials, found)
    if found.best is None:
        return replace(replies[0], rationale=f"{replies[0].rationale} {found.words()}")
    remembered(reminder(s.hit, p == found.best) for s, p in zip(begun, first, strict=True))
    if not found.cached:
        learn_starts(bench, begun, first, found)
    chosen = next(r for r in replies if r.sketch == found.best.sketch)
    values = dict(found.best.values)
    return replace(chosen, constexpr=values, rationale=f"{chosen.rationale} {found.words()}")


def _composes(reply: DesignReply) -> bool:
    return any(is_library(kernel) for kernel in load_program(reply.sketch).kernels)
