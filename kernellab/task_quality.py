"""The registration gate: a task whose outputs a degenerate candidate can match proves nothing about a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task import Task, TaskFlag
from kernellab.task_battery import OF_INPUTS, WORDS, passing
from kernellab.task_inputs import Family, families, redraw, small_sample

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: relative Frobenius error below which an output counts as matched (the error rule's class floors)
FLOORS = {
    "float64": 1e-9,
    "float32": 1e-5,
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 6e-2,
    "float8_e5m2": 6e-2,
}
_SEEDS = (0, 1, 2)
#: elements of a large output that are compared
_LOOKED_AT = 1 << 17
#: faults that no kernel can pass with, and what mends them
_REFUSED = {
    "random": "Pass random values in as inputs, and leave out dropout.",
    "not-finite": "See that inputs() gives values for which the reference is defined.",
}


def admit(task: Task) -> tuple[TaskFlag, ...]:
    """The flags of a task that a kernel can pass; what degenerate kernels pass too stays a flag.

    Raises:
        TaskError: no kernel can match the reference: it is random, or gives only NaN.
    """
    flags = quality(task)
    for flag in flags:
        if flag.rule in _REFUSED:
            raise TaskError(flag.reason, _REFUSED[flag.rule])
    return flags


@lru_cache(maxsize=256)
def quality(task: Task) -> tuple[TaskFlag, ...]:
    """Flags with reasons; empty for a task on which a wrong kernel fails.

    Runs the reference a few times on its own inputs, at a small size where the task has Dims.
    """
    try:
        return _audit(task)
    except TaskError as error:
        return (TaskFlag("not-audited", f"The reference runs on its own inputs only: {error.message}"),)


def _audit(task: Task) -> tuple[TaskFlag, ...]:
    samples = [s for s in (small_sample(task, seed) for seed in _SEEDS) if s is not None]
    if not samples:
        return (TaskFlag("not-audited", "The task's only size is too large to try degenerate candidates on."),)
    module = task.module()
    outputs = [_seeded_reference(module, args, 0) for args in samples]
    if _differ(outputs[0], _seeded_reference(module, samples[0], 1), task):
        return (TaskFlag("random", "The reference gives two results for the same inputs, so no kernel can match it."),)
    if any(o.is_floating_point() and bool(o.isnan().all()) and o.numel() for o in outputs[0]):
        return (TaskFlag("not-finite", "The reference gives only NaN on the task's own inputs."),)
    flags = [*_independence(task, samples, outputs), *_degenerate(task, samples, outputs)]
    if not any(f.rule in ("constant", "input-independent") for f in flags):
        flags.extend(_unused(task, samples[0], outputs[0]))
    return tuple(flags)


def matches(got: Tensor, want: Tensor, floor: float) -> bool:
    """Is ``got`` within ``floor`` of ``want`` in relative Frobenius norm (exactly, for integers and bools)?"""
    import torch

    if got.shape != want.shape:
        return False
    if want.numel() > _LOOKED_AT:
        # a degenerate answer is wrong in any large enough part of it; an odd step meets all columns
        step = want.numel() // _LOOKED_AT | 1
        got, want = got.reshape(-1)[::step], want.reshape(-1)[::step]
    if not want.is_floating_point():
        return bool(torch.equal(got.to(want.dtype), want))
    a, b = got.to(torch.float64), want.to(torch.float64)
    finite = b.isfinite()
    if not bool((a.isfinite() == finite).all()):
        return False
    a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
    return float((a - b).norm()) <= floor * float(b.norm())


def floor_of(task: Task, output: int) -> float:
    return task.tolerance.get("floor", FLOORS.get(task.outputs[output].dtype, 1e-5))


def _independence(task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Sequence[Tensor]]) -> list[TaskFlag]:
    if _all_equal_everywhere(outputs):
        return [TaskFlag("constant", "Every element of the output is the same number for all inputs.")]
    redrawn = [redraw(task, samples[0], Family.NORMAL, 7), *samples[1:]]
    has_inputs = any(_is_float(a) for a in samples[0]) or _distinct(samples)
    if has_inputs and not any(_differ(outputs[0], task.module().reference(args), task) for args in redrawn):
        return [TaskFlag("input-independent", "The output is the same for all inputs.")]
    return []


def _degenerate(task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Sequence[Tensor]]) -> list[TaskFlag]:
    found = _passing(task, samples, outputs, Family.OWN)
    if not found:
        return []
    family = proposed(task)
    better = f"; judge it on the family {family.value}" if family is not None else ""
    flags = []
    for name in found:
        rule, _, argument = name.partition(":")
        if argument:
            reason = (
                f"A kernel that returns its input {argument} passes on the task's own inputs; give inputs that it "
                f"must change, or DOMAIN = {{{argument!r}: 'real'}}{better}."
            )
        else:
            reason = f"A kernel that {WORDS[rule]} passes on the task's own inputs{better}."
        flags.append(TaskFlag(rule, reason))
    return flags


@lru_cache(maxsize=256)
def proposed(task: Task) -> Family | None:
    """The first legal family on which every degenerate candidate fails: the task's own inputs where they tell right
    from wrong, None where no family does."""
    for family in families(task):
        samples = _drawn(task, family)
        outputs = [task.module().reference(args) for args in samples]
        if samples and not _passing(task, samples, outputs, family):
            return family
    return None


def _drawn(task: Task, family: Family) -> list[tuple[Any, ...]]:
    samples = [(seed, small_sample(task, seed)) for seed in _SEEDS]
    return [redraw(task, args, family, seed + 17) for seed, args in samples if args is not None]


def _passing(
    task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Sequence[Tensor]], family: Family
) -> list[str]:
    """What passes by the fault of these inputs, and not by the reference's nature."""
    floors = [floor_of(task, i) for i in range(len(task.outputs))]
    found = passing(task, samples, outputs, floors)
    blind = [name for name in found if name in OF_INPUTS]
    if blind:
        # a reference that is blind to a change of its inputs shows it on random signs and sizes too
        drawn = _drawn(task, Family.NORMAL) if family is not Family.NORMAL else samples
        nature = passing(task, drawn, [task.module().reference(args) for args in drawn], floors)
        found = [name for name in found if name not in blind or name not in nature]
    return found


def _unused(task: Task, args: Sequence[Any], outputs: Sequence[Tensor]) -> list[TaskFlag]:
    import torch

    flags = []
    for position, spec in enumerate(task.args):
        value = args[position]
        if not _is_float(value) or value.numel() == 0:
            continue
        changed = list(args)
        fresh = redraw(task, args, Family.NORMAL, 11)[position]
        if torch.equal(fresh, value):
            continue
        changed[position] = fresh
        if not _differ(outputs, task.module().reference(changed), task):
            flags.append(TaskFlag("unused-input", f"The output does not depend on the input {spec.name}."))
    return flags


def _seeded_reference(module: Any, args: Sequence[Any], seed: int) -> tuple[Tensor, ...]:
    from kernellab.task_load import seeded

    with seeded(seed + 12345):
        return module.reference(args)  # type: ignore[no-any-return]


def _differ(first: Sequence[Tensor], second: Sequence[Tensor], task: Task) -> bool:
    """More than threads that sum in another order can explain."""
    return not all(matches(b, a, floor_of(task, i) / 10) for i, (a, b) in enumerate(zip(first, second, strict=True)))


def _all_equal_everywhere(outputs: Sequence[Sequence[Tensor]]) -> bool:
    numbers = {float(v) for run in outputs for o in run for v in (o.min(), o.max()) if o.numel()}
    return len(numbers) == 1


def _is_float(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _distinct(samples: Sequence[Sequence[Any]]) -> bool:
    import torch

    pairs = zip(samples[0], samples[-1], strict=True)
    return any(isinstance(a, torch.Tensor) and not torch.equal(a, b) for a, b in pairs)
