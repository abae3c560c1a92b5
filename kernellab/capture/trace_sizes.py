"""Sizes and numbers at which a reference is traced: distinct, so that none is taken for another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from kernellab.task import ArgKind, Task
from kernellab.task.sample.sizes import runs_at

#: distinct primes, so that no two Dims are confused; large enough that a quarter of one is not 1 either
_SAMPLES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
#: factors applied to them if the reference does not run at these sizes
_STEPS = (2, 8, 32, 128)
#: far from the sample value, so that a constant derived from it in an unknown way is found by the check
_FACTOR, _FACTOR_STEP = 0.8137205519482161, 1.0123e-3
#: instead of a value of 0, which a factor leaves
_FOR_ZERO = 0.37


def sample_sizes(task: Task) -> dict[str, int]:
    """Return sizes at which the reference runs: some references require multiples, most often along one Dim."""
    all_dims = frozenset(d.name for d in task.dims)
    single_dims = [frozenset([name]) for name in sorted(all_dims)] if len(all_dims) > 1 else []
    primes = _multiples(task, 1, all_dims)
    candidates = (_multiples(task, step, along) for step in _STEPS for along in (*single_dims, all_dims))
    return next((s for s in chain((primes,), candidates) if not s or runs_at(task, tuple(s.items()))), primes)


def _multiples(task: Task, step: int, along: frozenset[str]) -> dict[str, int]:
    """Return distinct sizes; those of the Dims ``along`` are multiples of ``step`` if their ranges allow it."""
    sizes: dict[str, int] = {}
    for dim, prime in zip(task.dims, _SAMPLES, strict=False):
        by = step if dim.name in along else 1
        size = min(max(prime * by, dim.min), dim.max)
        while size in sizes.values() and size + by <= dim.max:
            size += by
        sizes[dim.name] = size
    return sizes


def perturbed(value: float, position: int) -> float:
    """Return a scalar argument's value for the trace, another one for each position."""
    if not math.isfinite(value):
        return value
    return (value if value else _FOR_ZERO) * (_FACTOR + position * _FACTOR_STEP)


def sizes_to_compare(task: Task, args: Sequence[Any], sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the sizes of a trace, and others, with the scalar arguments."""
    scalars = {spec.name: args[i] for i, spec in enumerate(task.args) if spec.kind is ArgKind.SCALAR}
    return [{**scalars, **{name: size + by for name, size in sizes.items()}} for by in (0, 1, 2)]
