"""Other values of a scalar argument, at which the reference answers differently.

They are values near the task's own, the numbers that a source names or compares something with, and values of other
magnitudes and sign. A reference may take a scalar for a size or a number of steps, so that each run has a time limit,
and large integers are left out once a smaller one has changed a shape or taken long.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from math import exp, log
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kernellab.errors import TaskError
from kernellab.task.dtypes import finite
from kernellab.task.meta.operators import watching
from kernellab.verifier.cases import answers
from kernellab.verifier.compare.compare import Limits, compare
from kernellab.verifier.protocol.rules import CORRECT

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case

#: Largest float to try, since a reference may take as many steps.
_MOST = 1e3
#: Number of compared literals of which both sides are tried.
SIDES = 4
#: Number of argument extents at which a scalar is tried.
_MOST_EXTENTS = 4
#: Largest integer that may be an axis; all axes up to it are tried.
AXES = 4
#: Integers from here on are tried only if others have not changed an output shape.
_SIZE = 2048


def extents_of(base: Case) -> list[int]:
    """Return the shortest extents of the arguments; a scalar can be as large as one (groups, a window, a k)."""
    extents = {n for a in base.args if isinstance(a, Tensor) for n in a.shape if n > AXES}
    return sorted(extents)[:_MOST_EXTENTS]


def other_values(
    base: Case, position: int, named: Sequence[int] = (), compared: Sequence[float] = (), few: bool = False
) -> Iterator[Case]:
    """Yield cases with another value of a scalar, for which the reference runs, is finite and answers differently:
    nearby values, the numbers that the source has ``compared``, and those it has ``named`` with their successors, where
    a branch may begin. With ``few``, a value of the other sign comes first."""
    value = base.args[position]
    is_size = False
    for candidate in _candidates(base, position, named, compared, few):
        if candidate == value or (is_size and abs(candidate) >= _SIZE):
            continue
        case = base.with_change(("scalar", position, candidate))
        # The scalar may be a very large number of steps.
        if not ends_within(case, CORRECT.scalar_seconds + 100 * base.reference_seconds):
            continue
        references = case.references
        # For a number of steps, larger values would take longer in proportion.
        is_size = is_size or case.reference_used > 8 * max(base.reference_used, 1e-4)
        dtypes = [f.native.dtype for f in references] == [b.native.dtype for b in base.references]
        if not dtypes or not all(finite(f.native) and 0 not in f.native.shape for f in references):
            continue
        same_shapes = all(f.native.shape == b.native.shape for f, b in zip(references, base.references, strict=True))
        is_size = is_size or not same_shapes
        if not same_shapes or _answers_differ(base, case):
            yield case


def _candidates(
    base: Case, position: int, named: Sequence[int], compared: Sequence[float], few: bool
) -> tuple[Any, ...]:
    """Return values of a scalar in the order in which they are tried, the likely ones first, equal ones once."""
    value = base.args[position]
    if isinstance(value, bool):
        return (not value,)
    whole = isinstance(value, int)
    candidates = _integers(base, position, named, compared, few) if whole else _floats(value, compared)
    if few:
        near = candidates[0]
        other_sign = type(value)(-1 if value >= 0 else 1) * (abs(near) + 1)
        candidates = (near, other_sign, type(value)(0), *candidates)
    return tuple(dict.fromkeys(candidates))


def _integers(base: Case, position: int, named: Sequence[int], compared: Sequence[float], few: bool) -> tuple[int, ...]:
    """Return integers around the value, at possible axes and extents, and at the source's numbers, then long ones."""
    value = base.args[position]
    near = [value + 1, value - 1, 2 * value, value // 2] if value > 1 else [value + 1]
    if abs(value) <= AXES:
        # The value may be an axis, a step or a count.
        near += range(-AXES, AXES + 2)
    near += [n + by for n in extents_of(base) for by in (0, -1, 1)]
    # These follow the nearby values, which show whether the scalar is a size or a number of steps.
    equal = [int(n) for n in compared if n.is_integer() and abs(n) < _SIZE]
    equal += [n + by for n in equal[:SIDES] for by in (-1, 1)]
    far = 64 + secrets.randbelow(1000)
    near_named = [m for n in named if n < 1 << 20 for m in (n, n + 1)]
    long = (1 << 15) + secrets.randbelow(1 << 15)
    candidates = [*near, *equal, far, *near_named, long, -1, 0, 1]
    if not few and _is_free(base, position, (far, long)):
        # past an int, and past what a double holds exactly
        candidates += [(1 << 31) + far, -(1 << 31) - far, (1 << 53) + 2 * far + 1]
    return (*candidates, -far)


def _floats(value: float, compared: Sequence[float]) -> tuple[float, ...]:
    """Return floats around the value, on both sides of the source's numbers, and of other magnitudes and sign."""
    draw = secrets.SystemRandom()
    ranges = ((2, 1e3), (1e-3, 1), (1e-12, 1e-5))
    large, small, tiny = (exp(draw.uniform(log(low), log(high))) for low, high in ranges)
    near = (3 * value, value / 3) if value else (0.5, -0.5)
    likely = [n for n in compared if abs(n) <= _MOST]
    # Both sides of where a branch begins.
    likely += [n * by for n in likely[:SIDES] if n for by in (0.96, 1.04)]
    return (*near, *likely, large, -small, tiny, 1.0, -1.0, 0.0)


def _answers_differ(base: Case, case: Case) -> bool:
    """Return whether the reference's answers to two cases of equal shapes differ by more than the error rule allows."""
    return any(
        compare(before.native, after, Limits.of(str(after.native.dtype).removeprefix("torch.")))[0] is not None
        for before, after in zip(base.references, case.references, strict=True)
    )


def _is_free(base: Case, position: int, numbers: Sequence[int]) -> bool:
    """Return whether an integer only enters arithmetic: no tensor size in the reference depends on ``numbers``."""

    def largest(number: int) -> int:
        numels = [0]

        def look(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            result = func(*args, **kwargs)
            numels.extend(r.numel() for r in (result if isinstance(result, (tuple, list)) else (result,))
                         if isinstance(r, Tensor))  # fmt: skip
            return result

        with watching(look), answers.within(CORRECT.scalar_seconds):
            _ = base.with_change(("scalar", position, number)).native
        return max(numels)

    try:
        return len({largest(n) for n in numbers}) == 1
    except TaskError:
        return False


def ends_within(case: Case, seconds: float) -> bool:
    """Return whether the reference answers a case within ``seconds``."""
    try:
        with answers.within(seconds):
            return bool(case.references)
    except TaskError:
        return False
