"""Proposed changes for each argument of a task, as data: patterns, edges of integers and masks, special values.

A proposal is a change (:mod:`kernellab.verifier.cases.changes`), what a wrong answer to it means, and the condition of
the verdict that says so in words. Values that the task's own inputs may have are *within*: a wrong answer is a failure.
Others are *outside*: a wrong answer is a condition, unless the reference's operations exist to handle them.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from itertools import product, zip_longest
from math import isfinite
from typing import TYPE_CHECKING, Any

from kernellab.conditions import DrawnLimit
from kernellab.task.sample.draw import Legal, Support
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.survey.ranges import Range, is_permutation

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: A condition without bounds on other values.
ANY = DrawnLimit(values="")


class Grade(str, Enum):
    """Consequence of a wrong answer to a drawn input."""

    #: A failure: the values are the task's own, or the reference's operations exist to handle them.
    REFUSED = "refused"
    #: A failure if the answer does not change at all, else a condition: the task's own inputs always have one value.
    IGNORED = "ignored"
    #: A condition of the verdict: the values are not among the task's own inputs.
    CONDITION = "condition"


@dataclass(frozen=True)
class Proposal:
    """A proposed change of an argument, and the consequence of a wrong answer to it."""

    change: tuple[Any, ...]
    grade: Grade
    #: The verdict's condition, in words: ``NaN in x not handled``.
    condition: str
    _: KW_ONLY
    #: Whether to try it even if it reaches no new edge.
    always: bool = False
    #: Whether the task's own inputs never have such values.
    beyond: bool = False
    #: Word in the names of edges that, if reached, make a wrong answer a failure; "" for any edge.
    purpose: str | None = None
    #: Limit within which the kernel is right although it is wrong here.
    right: DrawnLimit = ANY
    #: Conditions that make this one redundant.
    covered: frozenset[str] = frozenset()
    #: Whether to try it before others, for some of which no time is left.
    first: bool = False


def outside(
    change: tuple[Any, ...], condition: str, *, always: bool = True, right: DrawnLimit = ANY,
    purpose: str | None = None, covered: frozenset[str] = frozenset(),
) -> Proposal:  # fmt: skip
    """Propose values that the task's own inputs never have: a wrong answer is a condition."""
    return Proposal(
        change, Grade.CONDITION, condition, always=always, beyond=True, purpose=purpose, right=right, covered=covered
    )


def in_order(proposals: list[Proposal]) -> list[Proposal]:
    """Order the proposals. Conditions that are always tried come in a fixed order, the first of each argument before
    any second, so that two verdicts of one kernel report the same. The others come in an unpredictable order. Both
    kinds alternate, so that time is left for both."""
    conditions = [p for p in proposals if p.grade is Grade.CONDITION and p.always]
    others = [p for p in proposals if p not in conditions]
    secrets.SystemRandom().shuffle(others)
    others.sort(key=lambda p: (not p.first, p.grade is Grade.CONDITION or p.purpose is None, not p.always, p.grade))
    alternating = zip_longest(_by_turns(conditions), others)
    return [proposal for pair in alternating for proposal in pair if proposal is not None]


def _by_turns(proposals: list[Proposal]) -> list[Proposal]:
    """Return the first proposal of each argument, then the second of each, and so on."""
    numbers = Counter[int]()
    turns: list[int] = []
    for proposal in proposals:
        argument = proposal.change[1]
        turns.append(numbers[argument])
        numbers[argument] += 1
    return [proposal for _, proposal in sorted(zip(turns, proposals, strict=True), key=lambda pair: pair[0])]


# -- proposals for one argument ----------------------------------------------------------------------------------------


def value_bounds(legal: Legal, value: Tensor, least: float = 32.0) -> tuple[float, float]:
    """Return the bounds of patterns within the task's own values: at least ``least`` if the support has room."""
    import torch

    size = max(least, 30.0 * legal.rms)
    most = min(size, torch.finfo(value.dtype).max / 64)
    if legal.support is Support.DISCRETE:
        return min(legal.values), max(legal.values)
    return max(legal.low, -most), min(legal.high, most)


#: Patterns of float arguments that stay within the task's own values, and whether they are always tried.
_INSIDE = {
    "unusual row": True, "one on a grid": True,
    "constant rows": False, "grid": False, "ties": False, "zeros of both signs": False, "zero": True,
    "positive": False, "negative": False, "largest first": False, "largest last": False,
}  # fmt: skip
#: Factors for all elements at once, used if they reach an edge.
_FACTORS = (1 / 64, 8.0)
SPECIAL_KINDS = ("NaN", "inf", "-inf")
#: Offset by which positions are moved: past the range of 16 bits.
_FAR = 1 << 16
#: Integers beyond the samples' range that are near it, chosen, not measured.
_NEAR = 1 << 25
#: Supports whose values patterns cannot set one by one.
_SHUT = (Support.PROB, Support.FIXED, Support.DISCRETE)


def not_handled(kind: str, name: str) -> str:
    """Return the condition for a kernel that does not handle ``kind`` in the argument ``name``."""
    return f"{kind} in {name} not handled"


def floats(name: str, position: int, value: Tensor, legal: Legal, domain: str | None) -> Iterator[Proposal]:
    """Propose changes of a float argument, within and beyond the task's own values."""
    low, high = value_bounds(legal, value)
    if legal.support not in _SHUT and not legal.is_sorted:
        yield from _own_floats(name, position, value, legal)
    if legal.support is Support.PROB:
        one_hot = pattern_at(position, "one hot", 0, 1)
        yield Proposal(one_hot, Grade.REFUSED, f"{name} one hot not handled", always=True)
    if domain not in (None, "real"):
        return
    if legal.support in (Support.UNIT, Support.NONNEGATIVE, Support.NONPOSITIVE) and not legal.is_sorted:
        yield _zeros(name, position, value, legal)
    yield from _not_finite(name, position, value)
    yield from _other_magnitudes(name, position, value, legal, low, high)


def _own_floats(name: str, position: int, value: Tensor, legal: Legal) -> Iterator[Proposal]:
    """Propose patterns of numbers that the task's own inputs may have."""
    low, high = value_bounds(legal, value)
    for kind, always in _INSIDE.items():
        change = pattern_at(position, kind, low, high)
        yield Proposal(change, Grade.REFUSED, f"{name} {kind} not handled", always=always)
    if low <= 0 <= high:
        thin = pattern_at(position, "thin", 0, 0)
        yield Proposal(thin, Grade.REFUSED, f"{name} of few elements not handled", always=True, first=True)
    # A value computed from all elements (the norm of a gradient) reaches the other side of a clamp this way.
    smallest, largest = (float(end) for end in value.aminmax())
    for factor in _FACTORS:
        if legal.low <= smallest * factor and largest * factor <= legal.high:
            of_size = f"{name} of another size not handled"
            yield Proposal(("scale", position, factor), Grade.REFUSED, of_size, purpose="")


def _zeros(name: str, position: int, value: Tensor, legal: Legal) -> Proposal:
    """Propose zeros, the end of a support that the samples nearly reach: the verdict states that it holds up to it."""
    import torch

    tiny = torch.finfo(value.dtype).tiny
    comes_near = legal.support is Support.UNIT and legal.low < DRAWN.near_zero_bound
    is_positive = legal.support is not Support.NONPOSITIVE
    right = DrawnLimit(values="", low=tiny if is_positive else None, high=None if is_positive else -tiny)
    grade = Grade.REFUSED if comes_near else Grade.CONDITION
    change = pattern_at(position, "some", 0, 0)
    return Proposal(change, grade, f"0 in {name} not handled", always=True, beyond=True, right=right)


def _not_finite(name: str, position: int, value: Tensor) -> Iterator[Proposal]:
    """Propose NaN and infinities; a NaN that decides a result is what some operations exist to handle."""
    import torch

    info = torch.finfo(value.dtype)
    lone = pattern_at(position, "lone NaN", 0, 0)
    yield Proposal(lone, Grade.REFUSED, f"NaN in {name}", beyond=True, purpose="NaN decides")
    specials = {
        "NaN": DrawnLimit(values="", not_nan=True),
        "inf": DrawnLimit(values="", high=info.max),
        "-inf": DrawnLimit(values="", low=info.min),
    }
    for kind, right in specials.items():
        purpose = kind if kind == "NaN" else "inf"
        yield outside(pattern_at(position, kind, 0, 0), not_handled(kind, name), purpose=purpose, right=right)


def _other_magnitudes(
    name: str, position: int, value: Tensor, legal: Legal, low: float, high: float
) -> Iterator[Proposal]:
    """Propose much larger and much smaller numbers than the samples', which lie from ``low`` to ``high``."""
    import torch

    info = torch.finfo(value.dtype)
    is_float16 = value.dtype == torch.float16
    rms = legal.rms if isfinite(legal.rms) else 1.0
    least = info.tiny / 16 if is_float16 else info.tiny * 64  # float16 denormals are ordinary numbers
    huge, tiny = info.max / 64 / max(rms, 1e-30), least / max(rms, 1e-30)
    large, small = f"large {name} not handled", f"tiny {name} not handled"
    # Samples that come near zero extend to zero; zero itself is proposed above.
    near = 0 <= low < DRAWN.near_zero_bound * (1.0 if legal.support is Support.UNIT else rms)
    inside = DrawnLimit(values="", low=0.0 if near else low, high=high)
    usual = DrawnLimit(values="", least=rms * DRAWN.usual_rms_share)
    # Also of one sign throughout: no other input reveals a maximum that starts from -1e30.
    kinds = (("scaled", 1), ("uniform", -1), ("uniform", 1))[: 1 + (legal.low < 0) * (1 + (legal.high > 0))]
    for size, (kind, sign) in product((huge**0.5, huge), kinds):
        yield outside(pattern_at(position, kind, sign * size, 0), large, right=inside)
    for size, always in ((tiny**0.5, True), (tiny, is_float16)):
        yield outside(pattern_at(position, "scaled", size, 0), small, always=always, right=usual)
    of_all = inside.model_copy(update={"least": usual.least})
    magnitudes = pattern_at(position, "magnitudes", info.smallest_normal, info.max / 4)
    yield outside(magnitudes, large, always=False, right=of_all)


def codes(name: str, position: int) -> Iterator[Proposal]:
    """Propose all 8-bit codes: those of finite numbers, and all including NaN and infinities."""
    for kind, words in (("numbers", f"codes of {name} as drawn only"), ("all", not_handled("NaN", name))):
        yield outside(("codes", position, secrets.randbits(31), kind), words)


def complexes(name: str, position: int, value: Tensor) -> Iterator[Proposal]:
    """Propose zeros and numbers on the axes; numbers of all quadrants; non-finite, large and tiny ones."""
    import torch

    zeros = pattern_at(position, "some", 0, 0)
    yield Proposal(zeros, Grade.REFUSED, f"0 in {name} not handled", always=True, beyond=True)
    # If all parts have one sign, zero is at the end of the samples' range.
    has_both_signs = [float(bool((part > 0).any() and (part < 0).any())) for part in (value.imag, value.real)]
    if any(has_both_signs):
        on_axes = pattern_at(position, "on axes", *has_both_signs)
        yield Proposal(on_axes, Grade.REFUSED, f"{name} on an axis not handled", always=True, beyond=True)
        for kind, is_wanted in zip(("real", "imaginary"), has_both_signs, strict=True):
            if is_wanted:
                throughout, words = pattern_at(position, kind, 0, 0), f"{name} {kind} throughout not handled"
                yield Proposal(throughout, Grade.REFUSED, words, always=True, beyond=True)
    yield outside(pattern_at(position, "turned", 0, 0), f"{name} as drawn only")
    for kind in SPECIAL_KINDS:
        yield outside(pattern_at(position, kind, 0, 0), not_handled(kind, name))
    info = torch.finfo(value.dtype)
    for size, adjective in ((info.max / 64, "large"), (info.tiny * 64, "tiny")):
        for factor in (size**0.5, size):
            yield outside(pattern_at(position, "scaled", factor, 0), f"{adjective} {name} not handled")


def of_range(name: str, position: int, value: Tensor, at: Range, stated: bool) -> Iterator[Proposal]:
    """Propose, for a mask, all, none and whole rows; for integers the ends of the range, and beyond it unless
    stated."""
    if at.mask:
        yield from _masks(name, position, value, at)
    elif at.fixed:
        yield from _instead_of_fixed(name, position, at, stated)
    elif at.is_sorted or is_permutation(value):
        if is_permutation(value) and not stated:
            yield outside(pattern_at(position, "uniform", at.low, at.high), f"{name} as drawn only")
        if at.is_sorted:
            # Offsets of segments, some of which are empty.
            repeated = pattern_at(position, "repeated", at.low, at.high)
            yield outside(repeated, f"equal neighbours in {name} not handled")
    else:
        yield from _own_integers(name, position, at)
        if not stated:
            yield from _other_integers(name, position, at)


def _masks(name: str, position: int, value: Tensor, at: Range) -> Iterator[Proposal]:
    words = f"{name} as drawn only"
    runs = [("false first", 0), ("false last", 0)]
    if value.dim() > 1 and value.shape[-1] == value.shape[-2]:
        runs += [("triangle", 0), (secrets.choice(("band", "blocks")), 0)]
    throughout = [("low", 0), ("high", 1), ("a whole row true", 1), ("a whole row false", 0)]
    for kind, number in (*throughout, *runs):
        change = pattern_at(position, kind, number, number)
        is_first = (kind, number) in runs
        yield Proposal(change, Grade.REFUSED, words, always=True, beyond=at.fixed, first=is_first)
    drawn = pattern_at(position, "uniform", 0, 1)
    yield Proposal(drawn, Grade.REFUSED, words, always=True, beyond=at.fixed)


def _instead_of_fixed(name: str, position: int, at: Range, stated: bool) -> Iterator[Proposal]:
    """Propose other integers where every sample has the same ones."""
    kind = "sorted" if at.is_sorted else "uniform"
    other = pattern_at(position, kind, at.low, at.high)
    yield Proposal(other, Grade.IGNORED, f"{name} as drawn only", always=True, beyond=True)
    if not stated and at.most >= at.high + _FAR:
        # Positions, which may begin elsewhere in a later call.
        right = DrawnLimit(values="", low=at.low, high=at.high)
        yield outside(pattern_at(position, "moved", _FAR, 0), f"{name} above {at.high} not handled", right=right)


def _own_integers(name: str, position: int, at: Range) -> Iterator[Proposal]:
    words = f"{name} as drawn only"
    yield Proposal(pattern_at(position, "low", at.low, at.low), Grade.REFUSED, words, always=True)
    yield Proposal(pattern_at(position, "high", at.high, at.high), Grade.REFUSED, words, always=True)
    yield Proposal(pattern_at(position, "ends", at.low, at.high), Grade.REFUSED, words)
    for order in ("ascending", "descending", "two runs"):
        yield Proposal(pattern_at(position, order, at.low, at.high), Grade.REFUSED, words, always=True)


def _other_integers(name: str, position: int, at: Range) -> Iterator[Proposal]:
    """Propose integers beyond the samples' range, as far as the reference accepts them. The words name the values
    tried, not those of the few small samples."""
    right = DrawnLimit(values="", low=at.low, high=at.high)
    if at.least < 0 <= at.low:
        negative = pattern_at(position, "uniform", max(at.least, -at.high - 1), -1)
        yield outside(negative, f"{name} below 0 not handled", right=right)
    if at.least <= 0 < at.low:
        yield outside(pattern_at(position, "some", 0, 0), f"0 in {name} not handled", right=right)
    if at.most > at.high or at.least < min(at.low, -at.high - 1):
        words = f"{name} beyond {at.low}..{at.high} not handled"
        for kind in ("uniform", "ends"):
            yield outside(pattern_at(position, kind, at.least, at.most), words, right=right)
        near = pattern_at(position, "uniform", max(at.least, -_NEAR), min(at.most, _NEAR))
        yield outside(near, words, always=False, right=right)


def number_at(name: str, position: int, kind: str, number: int, purpose: str) -> Proposal:
    """Propose one number, throughout or in some places, only if the reference's operations exist to handle it."""
    change = pattern_at(position, kind, number, number)
    return Proposal(change, Grade.REFUSED, f"{name} as drawn only", beyond=True, purpose=purpose)


def pattern_at(position: int, kind: str, low: float, high: float) -> tuple[Any, ...]:
    """Return a pattern change with a random seed."""
    return ("pattern", position, kind, secrets.randbits(31), low, high)
