"""The rules Designer's first design, chosen by measuring: its schedules race, and the best one's tunables climb."""

from __future__ import annotations

import time
from dataclasses import replace

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.designer import RulesDesigner
from kernellab.errors import KernellabError
from kernellab.session.bench import Bench, Channel
from kernellab.session.engine import engine
from kernellab.target import Backend
from kernellab.verifier import turns


def tuned_design(bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel) -> DesignReply:
    """The fastest schedule with its tunables' values; the first one where nothing can be timed.

    Raises:
        DesignError, CaptureError: as the Designer; what goes wrong in measuring is said in the rationale.
    """
    replies = designer.designs(brief)
    if brief.target.backend is Backend.INTERPRETER:
        return replies[0]
    from kernellab.tuning import WorkerMeasure, cache, tune
    from kernellab.tuning.space import Space

    fixed = dict(bench.created.constexpr)
    designs = [r.sketch for r in replies]
    sizes = {a.name: a.shape for a in brief.task.args} | dict(brief.task.module().default_sizes())
    name = cache.key(designs, brief.target, sizes, fixed)
    found = cache.read(name, bench.created.tune)
    if found is None:
        began = time.perf_counter()
        try:
            with engine().verifying, turns.aside():
                measure = WorkerMeasure(engine().verifier(), brief.task, brief.target, fixed)
                space = Space(brief.task, brief.target, fixed)
                found = tune(designs, space, measure, bench.created.tune, channel.cancel.is_set)
        except KernellabError as error:
            return replace(replies[0], rationale=f"{replies[0].rationale} Not tuned: {error.message}")
        finally:
            if brief.target.chip.kind == "gpu":
                bench.budget.spend(gpu_s=time.perf_counter() - began)
        if not channel.cancel.is_set():
            cache.write(name, bench.created.tune, found)
    if found.best is None:
        return replace(replies[0], rationale=f"{replies[0].rationale} {found.words()}")
    chosen = next(r for r in replies if r.sketch == found.best.sketch)
    values = dict(found.best.values)
    return replace(chosen, constexpr=values, rationale=f"{chosen.rationale} {found.words()}")
