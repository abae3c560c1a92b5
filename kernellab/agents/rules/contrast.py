"""Where a failing kernel is right and where it is wrong, among the sizes that the Verifier tried after the failure.

The cases are ``Evidence.tried``: each has sizes, the family of its inputs, and whether the kernel was right. Only those
with the task's own inputs are compared here. Right at N=32, 64 and wrong at N=33, 70 means a missing tail: it is right
exactly where N is a multiple of 32. Right up to N=128 and wrong at N=129 means an array of that length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kernellab.errors import counted
from kernellab.records import Evidence
from kernellab.records.tried import Tried

#: Minimum length of an array or a mask that :func:`limit` suggests.
_SHORTEST = 4
#: Steps whose multiples are compared with the sizes: those of usual tiles and vectors, the largest first.
_STEPS = (64, 32, 16, 8, 4, 2)


class _Contrast(NamedTuple):
    """The cases with the task's own inputs, by the kernel's result."""

    right: list[Tried]
    wrong: list[Tried]


def _contrast(evidence: Evidence) -> _Contrast:
    own_cases = [case for case in evidence.tried if case.family in ("", "inputs")]
    return _Contrast([case for case in own_cases if case.right], [case for case in own_cases if not case.right])


def contrast_lines(evidence: Evidence) -> list[str]:
    """Where a failing kernel is right and where it is wrong, among the cases that were tried afterwards."""
    right, wrong = _contrast(evidence)
    if not right:
        return _only_wrong(wrong, evidence.sizes)
    if not wrong:
        return [f"With the task's own inputs it is right at all that were tried: {_cases_text(right)}."]
    smallest = smallest_of(wrong).sizes
    is_other = smallest != evidence.sizes
    return [
        *([f"The smallest failing size is {sizes_text(smallest)}."] if is_other else []),
        f"Right at {_cases_text(right)}; wrong at {_cases_text(wrong)}.",
        *filter(None, [separation(evidence)]),
    ]


def _only_wrong(wrong: Sequence[Tried], failing: Mapping[str, int]) -> list[str]:
    """The sentence for a kernel that is right at no tried sizes; ``failing`` are those of the failure itself."""
    if not wrong:
        return []
    others = [case for case in wrong if case.sizes != failing]
    if not others:
        return ["With the task's own inputs it is wrong at these sizes, too."]
    least = sizes_text(smallest_of(others).sizes)
    if len(others) == 1:
        return [f"It is wrong at the small size that was tried, {least}, too."]
    return [f"It is wrong at each of {counted(len(others), 'small size')} that were tried, {least} too."]


def separation(evidence: Evidence) -> str:
    """The condition on the sizes that separates right from wrong, in a sentence; empty if none does."""
    return multiple(evidence) or limit(evidence)


def multiple(evidence: Evidence) -> str:
    """State the multiple of Dims that separates right from wrong sizes, in a sentence; empty if there is none. Of
    several, the largest comes first: tiles are seldom small."""
    dims_by_step = multiples(evidence)
    if not dims_by_step:
        return ""
    right = _contrast(evidence).right
    except_one = ", or where every size is 1" if len(_without_ones(right)) < len(right) else ""
    step, *smaller_steps = dims_by_step
    dims = dims_by_step[step]
    are = f"{joined(dims)} {'is a multiple' if len(dims) == 1 else 'are multiples'} of {step}"
    fitting = [str(n) for n in smaller_steps if dims_by_step[n] == dims]
    also_fits = f" ({joined(fitting)} {'fits' if len(fitting) == 1 else 'fit'} as well)" if fitting else ""
    return f"Of the sizes tried it is right exactly where {are}{also_fits}{except_one}: look for a missing tail."


def multiples(evidence: Evidence) -> dict[int, list[str]]:
    """By step (64, 32, ... 2), the Dims that are a multiple of it in every right case that was tried, and in no wrong
    one; steps without such a Dim are omitted."""
    contrast = _contrast(evidence)
    right, wrong = _without_ones(contrast.right), contrast.wrong
    dims_by_step: dict[int, list[str]] = {}
    if not right or not wrong:
        return dims_by_step
    for step in _STEPS:
        for dim in right[0].sizes:
            right_sizes, wrong_sizes = {case.sizes[dim] for case in right}, {case.sizes[dim] for case in wrong}
            separates = all(n % step == 0 for n in right_sizes) and all(n % step for n in wrong_sizes)
            if len(right_sizes) > 1 and separates:
                dims_by_step.setdefault(step, []).append(dim)
    return dims_by_step


def limit(evidence: Evidence) -> str:
    """State the size up to which a kernel is right and above which it is wrong, in a sentence; else empty."""
    right, wrong = _contrast(evidence)
    dims_by_limit: dict[int, list[str]] = {}
    for dim in right[0].sizes if len(right) > 1 and wrong else ():
        largest_right, smallest_wrong = max(case.sizes[dim] for case in right), min(case.sizes[dim] for case in wrong)
        if smallest_wrong == largest_right + 1 and largest_right >= _SHORTEST:
            dims_by_limit.setdefault(largest_right, []).append(dim)
    if len(dims_by_limit) != 1:
        return ""
    ((size, dims),) = dims_by_limit.items()
    return (
        f"It is right where {joined(dims)} {'is' if len(dims) == 1 else 'are'} at most {size}, and wrong from "
        f"{size + 1} on: look for an array, a mask or a loop of that length."
    )


def smallest_of(cases: Sequence[Tried]) -> Tried:
    """The case with the smallest sum of sizes."""
    return min(cases, key=_sum_of_sizes)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """``M=4, N=33``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def joined(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _cases_text(cases: Sequence[Tried]) -> str:
    """The sizes as ``S=32, 64``, or each case with all of its sizes if several Dims differ."""
    ordered = sorted(cases, key=_sum_of_sizes)
    if all(len(set(case.sizes.values())) == 1 for case in ordered):
        return f"{'='.join(ordered[0].sizes)}={', '.join(str(next(iter(case.sizes.values()))) for case in ordered)}"
    return "; ".join(f"({sizes_text(case.sizes)})" for case in ordered)


def _without_ones(cases: Sequence[Tried]) -> list[Tried]:
    """Omit cases whose every size is 1, where few loops take a step at all."""
    return [case for case in cases if set(case.sizes.values()) != {1}]


def _sum_of_sizes(case: Tried) -> int:
    return sum(case.sizes.values())
