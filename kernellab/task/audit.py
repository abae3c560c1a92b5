"""The registration gate: a task whose outputs a degenerate candidate can match proves nothing about a kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.conditions import WeakTask
from kernellab.errors import TaskError
from kernellab.task.degenerate import OF_INPUTS, WORDS, matches, passing
from kernellab.task.dtypes import alike, computable
from kernellab.task.sample.inputs import Family, families, redraw, small_sample
from kernellab.task.sample.sizes import input_bytes
from kernellab.task.task import Task, TaskFlag

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: relative Frobenius error up to which an output matches (the class floors of the error rule)
FLOORS = {
    "float64": 1e-9,
    "float32": 1e-5,
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 6e-2,
    "float8_e5m2": 6e-2,
}
_SEEDS = (0, 1, 2)
#: faults with which no kernel can pass, and their remedies
_REFUSED = {
    "random": "Pass random values in as inputs, and leave out dropout.",
    "not-finite": "See that inputs() gives values for which the reference is defined.",
}


def admit(task: Task) -> tuple[TaskFlag, ...]:
    """Return the flags of a task that a kernel can pass; if degenerate kernels pass too, that is a flag.

    Raises:
        TaskError: no kernel can match the reference, since it is random or returns only NaN; or :func:`feasible`
        raises.
    """
    feasible(task)
    flags = quality(task)
    for flag in flags:
        if flag.rule in _REFUSED:
            raise TaskError(flag.reason, _REFUSED[flag.rule])
    return flags


def weaknesses(flags: Sequence[TaskFlag]) -> tuple[WeakTask, ...]:
    """Return the flags as conditions of a verdict."""
    return tuple(WeakTask(rule=flag.rule, reason=flag.reason) for flag in flags)


def feasible(task: Task) -> None:
    """Raise TaskError for a task that cannot run here at its default sizes, or whose outputs are empty at them."""
    size, memory = input_bytes(task), _memory()
    need, have = (f"{n / 1e9:.0f} GB" for n in (size, memory))
    if size > memory:
        raise TaskError(
            f"The task's inputs and outputs take {need}, and this machine has {have} of memory.",
            "Give inputs() smaller sizes.",
        )
    sizes = task.module().default_sizes()
    if all(0 in output.extents(sizes) for output in task.outputs) and not task.module().written:
        raise TaskError(
            "The task's outputs are empty at its own sizes, so that every kernel is right.",
            "Give inputs() sizes above 0; a Dim may begin at 0.",
        )


def _memory() -> int:
    """Return the bytes of memory available to this process: those of the machine, or of its control group."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return installed
    return min(installed, int(limit)) if limit.isdigit() else installed


@lru_cache(maxsize=256)
def quality(task: Task) -> tuple[TaskFlag, ...]:
    """Return flags with reasons; empty for a task on which a wrong kernel fails.

    This runs the reference a few times on its own inputs, at a small size if the task has Dims."""
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
    if any(o.is_floating_point() and o.numel() and bool(o.isnan().all()) for o in outputs[0]):
        return (TaskFlag("not-finite", "The reference gives only NaN on the task's own inputs."),)
    flags = [*_independence(task, samples, outputs), *_degenerate(task, samples, outputs)]
    if not any(f.rule in ("constant", "input-independent") for f in flags):
        flags.extend(_unused(task, samples[0], outputs[0]))
    return tuple(flags)


def floor_of(task: Task, result: int) -> float:
    """Return the allowed relative error of a result: an output, or (after those) an argument that the reference writes
    into."""
    written = (task.args[i].dtype for i in task.module().written)
    dtype = [*(o.dtype for o in task.outputs), *written][result]
    return task.tolerance.get("floor", FLOORS.get(dtype, 1e-5))


def _independence(task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Sequence[Tensor]]) -> list[TaskFlag]:
    if _all_equal_everywhere(outputs):
        return [TaskFlag("constant", "Every element of the output is the same number for all inputs.")]
    redrawn = [redraw(task, samples[0], Family.NORMAL, 7), *samples[1:]]
    has_inputs = any(_is_float(a) for a in samples[0]) or _distinct(samples)
    if has_inputs and not any(_differ(outputs[0], task.module().results(args), task) for args in redrawn):
        return [TaskFlag("input-independent", "The output is the same for all inputs.")]
    return []


def _degenerate(task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Sequence[Tensor]]) -> list[TaskFlag]:
    names = _passing(task, samples, outputs, Family.OWN)
    if not names:
        return []
    family = proposed(task)
    better = f"; judge it on the family {family.value}" if family is not None else ""
    flags = []
    for name in names:
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
    """Return the first legal family on which every degenerate candidate fails: the task's own inputs if they
    distinguish right from wrong, None if no family does."""
    for family in families(task):
        samples = _drawn(task, family)
        outputs = [task.module().results(args) for args in samples]
        if samples and not _passing(task, samples, outputs, family):
            return family
    return None


def _drawn(task: Task, family: Family) -> list[tuple[Any, ...]]:
    samples = [(seed, small_sample(task, seed)) for seed in _SEEDS]
    return [redraw(task, args, family, seed + 17) for seed, args in samples if args is not None]


def _passing(
    task: Task, samples: Sequence[Sequence[Any]], outputs: Sequence[Sequence[Tensor]], family: Family
) -> list[str]:
    """Return the degenerate candidates that pass because of these inputs, and not because of the reference's nature."""
    floors = [floor_of(task, i) for i in range(len(task.outputs) + len(task.module().written))]
    names = passing(task, samples, outputs, floors)
    blind = [name for name in names if name in OF_INPUTS]
    if blind:
        # a reference that does not depend on a change of its inputs does not on random signs and sizes either
        drawn = _drawn(task, Family.NORMAL) if family is not Family.NORMAL else samples
        nature = passing(task, drawn, [task.module().results(args) for args in drawn], floors)
        names = [name for name in names if name not in blind or name not in nature]
    return names


def _unused(task: Task, args: Sequence[Any], outputs: Sequence[Tensor]) -> list[TaskFlag]:
    flags = []
    for position, spec in enumerate(task.args):
        value = args[position]
        # a Model in training mode does not depend on its running statistics, nor on a bias before its norm
        if spec.key or not _is_float(value) or value.numel() == 0:
            continue
        changed = list(args)
        fresh = redraw(task, args, Family.NORMAL, 11)[position]
        if alike(fresh, value):
            continue  # values with NaN or infinities are kept
        changed[position] = fresh
        if not _differ(outputs, task.module().results(changed), task):
            flags.append(TaskFlag("unused-input", f"The output does not depend on the input {spec.name}."))
    return flags


def _seeded_reference(module: Any, args: Sequence[Any], seed: int) -> tuple[Tensor, ...]:
    from kernellab.task.values import seeded

    with seeded(seed + 12345):
        return module.results(args)  # type: ignore[no-any-return]


def _differ(first: Sequence[Tensor], second: Sequence[Tensor], task: Task) -> bool:
    """Do the results differ by more than another order of sums in threads explains?"""
    return not all(matches(b, a, floor_of(task, i) / 10) for i, (a, b) in enumerate(zip(first, second, strict=True)))


def _all_equal_everywhere(outputs: Sequence[Sequence[Tensor]]) -> bool:
    filled = [computable(o).reshape(-1) for run in outputs for o in run if o.numel()]
    return bool(filled) and all(bool((o == filled[0][0]).all()) for o in filled)


def _is_float(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _distinct(samples: Sequence[Sequence[Any]]) -> bool:
    import torch

    pairs = zip(samples[0], samples[-1], strict=True)
    return any(isinstance(a, torch.Tensor) and not torch.equal(a, b) for a, b in pairs)
