"""What a sketch costs by the cost model, in lines for a prompt: its traffic, its arithmetic and its time, next to the
task's bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernellab.agents.briefs import Brief, CodeBrief
from kernellab.agents.model.prompts.facts import (
    DECIDES,
    cache_bytes,
    compulsory_bytes,
    megabytes,
    operations,
    roofline_of,
    rough,
    shown_kernel,
)
from kernellab.agents.rules.performance import ENOUGH
from kernellab.agents.rules.sketch_cost import cost_at, largest_part, more_work
from kernellab.agents.rules.slow import MOSTLY_CALL_MS
from kernellab.errors import KernellabError, counted, duration, kilobytes
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost
    from kernellab.sketch.cost.estimate import TensorCost

#: Ratio to the ideal traffic up to which traffic counts as ideal.
_ONCE = 1.05
#: Ratio of a sketch's cost to the bound above which its lowering is not worth a verification.
_WASTEFUL = 16.0


def bound_of(brief: Brief) -> float:
    """The bound in ms: of the judge, else by the chip's facts; 0 if it is unknown."""
    limit = roofline_of(brief.task, brief.target.chip)
    return brief.bound_ms or (limit.ms if limit is not None else 0.0)


def wasteful_ms(brief: CodeBrief) -> float | None:
    """The cost in ms of a sketch whose lowering is not run, since it exceeds the bound so far that the lowering says
    little about what a Coder can do; None for other sketches, and if the cost or the bound is unknown."""
    try:
        cost_ms = cost_at(brief.sketch, brief.task, brief.target, brief.constexpr).time_ms
    except KernellabError:
        return None
    bound = bound_of(brief)
    return cost_ms if cost_ms is not None and bound and cost_ms > max(_WASTEFUL * bound, MOSTLY_CALL_MS) else None


def lowered_work(brief: CodeBrief) -> str:
    """What the code by rule of a sketch costs where it is far more than needed, in sentences: that it was not run, and
    how much more arithmetic than the reference it does; empty if it does not certainly do more, or if its cost is
    unknown."""
    try:
        estimate = cost_at(brief.sketch, brief.task, brief.target, brief.constexpr)
    except KernellabError:
        return ""
    ratio, cost_ms, sentences = more_work(brief.task, estimate), wasteful_ms(brief), []
    if cost_ms is not None:
        sentences.append(
            f"It was not run: the cost model gives it {rough(brief)}{duration(cost_ms)}, "
            f"{cost_ms / bound_of(brief):,.0f} times the bound."
        )
    if ratio is not None:
        sentences.append(f"It does {_times_the_work(brief.task, ratio, estimate)} of the sketch.")
    elif cost_ms is not None and estimate.bound == "compute":
        part = largest_part(brief.task, estimate)
        sentences.append(f"{part[0].upper()}{part[1:]} of the sketch.")
    return " ".join(sentences)


def cost_lines(brief: Brief, sketch: str, constexpr: Mapping[str, int | float], suggestion: str = "") -> list[str]:
    """Where a sketch's bytes and FLOPs go, by the cost model; empty if its cost is unknown. The arithmetic is omitted
    if ``suggestion``, elsewhere in the prompt, states it."""
    task = brief.task
    try:
        estimate = cost_at(sketch, task, brief.target, constexpr)
    except KernellabError:
        return []
    if _is_faster_than(estimate, brief, sketch):
        return ["The code that was written from it takes less time than the cost model gives the sketch."]
    traffic_ratio = estimate.bytes_slow / max(sum(compulsory_bytes(task).values()), 1)
    is_ideal = _ONCE >= traffic_ratio >= 1 / _ONCE and all(t.slow <= _ONCE * t.unique for t in estimate.tensors)
    volume = f"{megabytes(estimate.bytes_slow)}, {traffic_ratio:.2f} times the ideal"
    lines = [_volume_line(brief, estimate, "each input and output once" if is_ideal else volume)]
    if estimate.time_ms is not None:
        lines.append(_time_line(brief, estimate, estimate.time_ms))
    ratio = more_work(task, estimate)
    if ratio is not None and f"{ratio:.1f} times the arithmetic" not in suggestion:
        lines.append(f"It does {_times_the_work(task, ratio, estimate)}.")
    # if the traffic is ideal, the bound's section has each tensor's bytes
    return lines if is_ideal else lines + _traffic_lines(brief, estimate)


def _is_faster_than(estimate: Cost, brief: Brief, sketch: str) -> bool:
    """Whether the shown kernel is of ``sketch`` and takes less time than the model gives the sketch."""
    attempt = shown_kernel(brief)
    if estimate.time_ms is None or attempt is None or attempt.sketch != sketch or attempt.verdict is None:
        return False
    time = attempt.verdict.time
    return time is not None and time.median_ms < ENOUGH * estimate.time_ms


def _volume_line(brief: Brief, estimate: Cost, volume: str) -> str:
    has = "each launch has at least" if len(estimate.launches) > 1 else "it has"
    return (
        f"By the cost model the sketch moves {volume} from and to memory; the tiles of one iteration take "
        f"{kilobytes(estimate.footprint)}; {has} {counted(round(estimate.parallelism), 'parallel iteration')} for "
        f"{counted(brief.target.chip.cores, 'core')}."
    )


def _time_line(brief: Brief, estimate: Cost, time_ms: float) -> str:
    bound = bound_of(brief)
    # what the model counts of a sketch may be less than what the task compels
    if bound and time_ms * ENOUGH <= bound:
        return "By the same model the sketch allows the bound: it finds nothing to gain in another sketch."
    beyond = f", {time_ms / bound:.2g} times the bound" if bound else ""
    return f"The sketch allows {rough(brief)}{duration(time_ms)}{beyond}; {DECIDES[estimate.bound]} decides it."


def _traffic_lines(brief: Brief, estimate: Cost) -> list[str]:
    """Each tensor's traffic, and whether the cache serves it faster."""
    lines, cache = [], cache_bytes(brief.target.chip)
    if estimate.bound == "memory" and sum(t.unique for t in estimate.tensors) <= cache:
        lines.append(
            f"That is by the memory's rate; the tensors fit into the cache of {kilobytes(cache)}, from which they come "
            "faster."
        )
    tensors = sorted(estimate.tensors, key=lambda t: -t.slow)
    return [*lines, f"Moved from and to memory: {'; '.join(map(_tensor_text, tensors))}."] if tensors else lines


def _tensor_text(tensor: TensorCost) -> str:
    is_refetched = tensor.unique and tensor.slow > _ONCE * tensor.unique
    repeats = f", {tensor.slow / tensor.unique:.1f} times each" if is_refetched else ""
    return f"{tensor.tensor} {megabytes(tensor.slow)}{repeats} (line {tensor.line})"


def _times_the_work(task: Task, ratio: float, estimate: Cost) -> str:
    work = operations(sum(estimate.flops.values()))
    return f"{ratio:.1f} times the arithmetic of the reference ({work}); {largest_part(task, estimate)}"
