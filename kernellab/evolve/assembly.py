"""Puts a run's scheduler together: its state, budget, operators, workers and Analyst, from its stream and settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kernellab.evolve.analyst.models import analyst
from kernellab.evolve.fold import fold
from kernellab.evolve.jobs import target_of, task_of
from kernellab.evolve.scheduler import Scheduler
from kernellab.evolve.state import RunState
from kernellab.evolve.stream import Stream
from kernellab.evolve.vary import memory
from kernellab.evolve.vary.asking import Asking
from kernellab.evolve.vary.mix import Mix
from kernellab.evolve.vary.models import ModelOperator, Models
from kernellab.evolve.vary.novelty import Novelty
from kernellab.evolve.workers.cluster import workers_for
from kernellab.memory.recall import OFF
from kernellab.models import Budget
from kernellab.session.config import model_settings


def assembled(
    stream: Stream, workspace: Path, cluster: str, changed: Callable[[], None], nudge: threading.Event
) -> Scheduler:
    """Return the scheduler of the run of ``stream``, which continues where the stream ends.

    Raises:
        TaskError, TargetError, ModelError, EvolveError: the run cannot work here.
    """
    state = fold(stream.read())
    begun, knobs = state.begun, state.knobs
    task, target = task_of(begun), target_of(begun)
    on_gpu, has_memory = target.chip.kind == "gpu", begun.memory != OFF
    budget, asking = Budget.parse(knobs.budget), Asking()
    _charge(budget, state, on_gpu)
    operator = ModelOperator(
        "", task, target, model_settings(workspace), budget, begun.allow_library, asking.cancel, workspace, stream.run,
        memory=has_memory, told=asking.told,
    )  # fmt: skip
    operators = Models(operator)
    mix = Mix(
        task, target, operators, begun.allow_library,
        remember=lambda designs: memory.seeds(workspace, begun.memory, task, target, designs),
    )  # fmt: skip
    scheduler = Scheduler(
        stream, state, mix, workers_for(cluster, target, knobs.size), budget, Novelty(target).look, changed=changed,
        nudge=nudge, on_gpu=on_gpu, asking=asking,
    )  # fmt: skip
    scheduler.analyse = analyst(operators, lambda exchange: scheduler.record(None, exchange))
    return scheduler


def _charge(budget: Budget, state: RunState, on_gpu: bool) -> None:
    """Charge the budget for what an earlier process has spent on the run."""
    seconds_worked = max(0.0, state.latest - state.begun.time) if state.evaluations else 0.0
    budget.spend(state.usage, gpu_s=state.device_seconds if on_gpu else 0.0, seconds=seconds_worked)
