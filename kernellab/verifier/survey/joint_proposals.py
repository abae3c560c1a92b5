"""Proposals that change several arguments at once: special values at one place of two, nearly equal rows, integers all
at their ends.

A kernel may be right for each argument alone: a special case of a formula of two arguments, a difference that cancels,
or a sum of products of integers that overflows needs both.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from itertools import chain, combinations, product, repeat
from typing import TYPE_CHECKING

from kernellab.task import ArgKind
from kernellab.task.dtypes import is_float8
from kernellab.task.sample.inputs import legal_values
from kernellab.verifier.cases.changes import SPECIAL, USUAL
from kernellab.verifier.cases.input_specs import meet
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.survey.proposals import SPECIAL_KINDS, Grade, Proposal, not_handled, outside, value_bounds
from kernellab.verifier.survey.ranges import Range

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case

#: Number of integer arguments whose ends, of all that a reference accepts, are combined.
_COMBINED_ENDS = 2
#: Domains whose values depend on each other, or are always the same.
_BOUND_DOMAINS = ("fixed", "prob", "sorted")


def float_bounds(base: Case, far: float) -> dict[int, tuple[float, float]]:
    """Return the value bounds of the float arguments that can be drawn, up to ``far`` where nothing bounds them, by
    position."""
    bounds: dict[int, tuple[float, float]] = {}
    for position, spec in enumerate(base.task.args):
        domain = base.task.domain.get(spec.name)
        if _is_free_float(base, position) and domain not in _BOUND_DOMAINS:
            value = base.args[position]
            bounds[position] = value_bounds(legal_values(spec, value, domain), value, far)
    return bounds


def _is_free_float(base: Case, position: int) -> bool:
    """Return whether an argument is a float tensor with elements that a caller makes for each call."""
    spec, value = base.task.args[position], base.args[position]
    if spec.kind is not ArgKind.TENSOR or spec.static or not hasattr(value, "numel") or not value.numel():
        return False
    return bool(value.is_floating_point()) and not is_float8(value)


def at_ends(base: Case, ranges: Mapping[int, Range]) -> Iterator[Proposal]:
    """Yield proposals with all integers at their least and at their largest value at once, where combinations (a sum of
    two 16-bit products) are largest: of the samples, and of what the reference accepts, where each alone may be right.
    With float outputs a sum of many equal terms is rounded."""
    if len(ranges) < 2:
        return
    task = base.task
    names = " and ".join(task.args[i].name for i in ranges)
    is_rounded = any(o.is_floating_point() or o.is_complex() for o in base.native)
    grade = Grade.CONDITION if is_rounded else Grade.REFUSED
    lowest = tuple((i, at.low) for i, at in ranges.items())
    highest = tuple((i, at.high) for i, at in ranges.items())
    for values in sorted({lowest, highest}):
        words = f"{names} at their ends at once not handled"
        yield Proposal(("still", values[0][0], values, ()), grade, words, always=True)
    if any(task.domain.get(task.args[i].name) is not None for i in ranges):
        return
    for ends in product(("least", "most"), repeat=min(len(ranges), _COMBINED_ENDS)):
        # further arguments follow the last of these
        at_end = zip(ranges.items(), chain(ends, repeat(ends[-1])), strict=False)
        values = tuple((i, at.least if end == "least" else at.most) for (i, at), end in at_end)
        if values not in (lowest, highest):
            words = f"{names} beyond what was drawn, all at once, not handled"
            yield outside(("still", values[0][0], values, ()), words)


def together(base: Case) -> list[Proposal]:
    """Return proposals with special values in two arguments at the same place. Only the first pairs are used, so that
    two verdicts of one kernel report the same conditions."""
    domains = base.task.domain
    free = [
        position for position, spec in enumerate(base.task.args)
        if _is_free_float(base, position) and domains.get(spec.name) in (None, "real")
    ]  # fmt: skip
    proposals: list[Proposal] = []
    pairs = []
    for one, other in combinations(free, 2):
        if meet(base.args[one].shape, base.args[other].shape):
            pairs.append((one, other))
        elif len(proposals) < 2 * DRAWN.special_pairs:
            # A product of matrices that skips terms with a zero factor turns 0 * inf into 0.
            proposals += [_hidden(base, one, other), _hidden(base, other, one)]
    for one, other in pairs[: DRAWN.special_pairs]:
        proposals += _at_one_place(base, one, other)
    return proposals


def _at_one_place(base: Case, one: int, other: int) -> Iterator[Proposal]:
    names = [base.task.args[i].name for i in (one, other)]
    both = f"in {names[0]} and {names[1]} at once not handled"
    # If numbers are never negative, -1 would refuse kernels that are right for 0 and 1.
    is_signed = all(bool((base.args[i] < 0).any()) for i in (one, other))
    usual, usual_words = ((*USUAL, -1.0), "0, near 0, 1 or -1") if is_signed else (USUAL, "0, near 0 or 1")
    yield outside(("together", one, other, secrets.randbits(31), usual), f"{usual_words} {both}")
    covered = [f"{usual_words} {both}", *(not_handled(kind, name) for kind in SPECIAL_KINDS for name in names)]
    special = ("together", one, other, secrets.randbits(31), SPECIAL)
    yield outside(special, f"special values {both}", covered=frozenset(covered))


def _hidden(base: Case, zeroed: int, infinite: int) -> Proposal:
    first, second = (base.task.args[i].name for i in (zeroed, infinite))
    words, covered = f"inf in {second} times 0 in {first} not handled", frozenset((not_handled("inf", second),))
    return outside(("hidden", zeroed, infinite, secrets.randbits(31)), words, covered=covered)


def nearly_equal(base: Case) -> list[Proposal]:
    """Return a proposal for a second argument whose rows nearly equal the first's, so that differences cancel."""
    free = [i for i, (low, _) in float_bounds(base, DRAWN.far_magnitude).items() if base.args[i].dim() and low < 0]
    for one, other in combinations(free, 2):
        first, second = base.args[one].shape, base.args[other].shape
        if first == second or (min(len(first), len(second)) > 1 and first[-1] == second[-1]):
            words = f"nearly equal {base.task.args[one].name} and {base.task.args[other].name} not handled"
            return [outside(("near", one, other, secrets.randbits(31)), words)]
    return []
