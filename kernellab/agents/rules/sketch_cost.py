"""What a sketch costs by the model, and its arithmetic compared with the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kernellab.agents.briefs import RouteBrief
from kernellab.errors import KernellabError, SketchError
from kernellab.target import Target
from kernellab.verifier.audit.trace import Cost as Work
from kernellab.verifier.audit.trace import trace

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost
    from kernellab.task import Task

#: Ratio of a sketch's arithmetic to the reference's above which it is reported.
_MORE_WORK = 1.5
#: Share above which a part is called most of the whole.
_MOST = 0.5
#: Operations of a sketch that are products, and the ratio up to which their arithmetic is the reference's own.
_PRODUCTS, _SAME = ("dot", "gemm"), 1.05


def work_of(task: Task) -> Work:
    """The work of one run of the reference at the task's own sizes; cached unless counting ended in a problem."""
    try:
        return _counted(task)
    except _Uncounted as error:
        return error.work


class _Uncounted(Exception):
    def __init__(self, work: Work) -> None:
        super().__init__(work.problem)
        self.work = work


@lru_cache(maxsize=64)
def _counted(task: Task) -> Work:
    """Count like :func:`work_of`. Raises _Uncounted, which is not cached, if counting ended in a problem."""
    work = trace(task)
    if work.problem:
        raise _Uncounted(work)
    return work


def more_work(task: Task, cost: Cost) -> float | None:
    """The ratio of a sketch's arithmetic to the reference's if it is certainly more; None if it is not, or if the
    reference's is unknown."""
    work = work_of(task)
    reference_flops = work.total_flops + work.other_flops
    if work.problem or work.guessed or not reference_flops:
        return None
    ratio = sum(cost.flops.values()) / reference_flops
    return ratio if ratio >= _MORE_WORK else None


def largest_part(task: Task, cost: Cost) -> str:
    """Name the operation with most of a sketch's arithmetic, in words. Products are left out where the sketch's need
    no more than the reference's: what they compute is no waste."""
    products = [part for part in cost.operations if part.operation in _PRODUCTS]
    others = [part for part in cost.operations if part.operation not in _PRODUCTS]
    are_needed = bool(products) and sum(part.flops for part in products) <= _SAME * work_of(task).total_flops
    parts = others if are_needed and others else cost.operations
    share = parts[0].flops / sum(part.flops for part in parts)
    apart = "apart from the reference's products " if parts is others else ""
    return f"{apart}{most_of(share)} is {parts[0].operation} in line {parts[0].line}"


def most_of(share: float) -> str:
    """Describe the largest part of a whole by its share (0 to 1)."""
    return "most of it" if share > _MOST else f"the largest part of it, {share:.0%},"


def cost_of(brief: RouteBrief) -> Cost | None:
    """Return the cost of the brief's sketch with its candidate's tunables; None if it cannot be computed."""
    if not brief.sketch:
        return None
    constexpr = brief.candidate.constexpr if brief.candidate else {}
    try:
        return cost_at(brief.sketch, brief.task, brief.target, constexpr)
    except KernellabError:
        return None


def cost_at(sketch: str, task: Task, target: Target, constexpr: Mapping[str, int | float]) -> Cost:
    """Return the cost of a sketch at the task's own sizes.

    Raises:
        SketchError: the sketch is invalid, cannot be bound to the task, or its cost cannot be computed.
    """
    from kernellab.sketch.check import load_program
    from kernellab.sketch.cost import cost
    from kernellab.sketch.program.bind import bind

    program = load_program(sketch)
    binding = bind(program, task, dict(constexpr), target)
    sizes = dict(task.module().default_sizes())
    try:
        symbols = binding.sizes(lambda at, dim: task.args[at].extents(sizes)[dim])
        return cost(program, {**binding.fixed, **symbols}, dict(binding.constexpr), target.chip)
    except (KeyError, IndexError) as error:
        raise SketchError(
            f"The cost of the sketch cannot be estimated: the size of {error} is not known.", ""
        ) from None
