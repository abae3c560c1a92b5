"""Proposed changes for each argument of a task, as data: patterns, edges of integers and masks, special values."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product
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
    condition: str
    #: Whether to try it even if it reaches no new edge.
    always: bool = False
    beyond: bool = False
    #: Word in the names of edges that, if reached, make a wrong answer a failure; "" for any edge.
    purpose: str | None = None
    #: Limit within which the kernel is right although it is wrong here.
    right: DrawnLimit = ANY
    covered: frozenset[str] = frozenset()
    #: Whether to try it before others, for some of which no time is left.
    first: bool = False


def in_order(proposals: list[Proposal]) -> list[Proposal]:
    """Order the proposals. Conditions that are always tried come in a fixed order, the first of each argument before
    any second, so that two verdicts of one kernel report the same. The others come in an unpredictable order. Both
    kinds alternate, so that time is left for both."""
    conditions = [p for p in proposals if p.grade is Grade.CONDITION and p.always]
    places = Counter[int]()
    turns = []
    for p in conditions:
        turns.append((places[p.change[1]], p))
        places[p.change[1]] += 1
    conditions = [p for _, p in sorted(turns, key=lambda turn: turn[0])]
    shuffled = [p for p in proposals if p not in conditions]
    secrets.SystemRandom().shuffle(shuffled)
    shuffled.sort(key=lambda p: (not p.first, p.grade is Grade.CONDITION or p.purpose is None, not p.always, p.grade))
    ordered: list[Proposal] = []
    while conditions or shuffled:
        ordered += [*conditions[:1], *shuffled[:1]]
        del shuffled[:1], conditions[:1]
    return ordered


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
#: Supports whose values patterns cannot set one by one.
_SHUT = (Support.PROB, Support.FIXED, Support.DISCRETE)


def not_handled(kind: str, name: str) -> str:
    """Return the condition for a kernel that does not handle ``kind`` in the argument ``name``."""
    return f"{kind} in {name} not handled"


def floats(name: str, position: int, value: Tensor, legal: Legal, domain: str | None) -> Iterator[Proposal]:
    """Propose changes of a float argument, within and beyond the task's own values."""
    import torch

    low, high = value_bounds(legal, value)
    if legal.support not in _SHUT and not legal.is_sorted:
        for kind, always in _INSIDE.items():
            yield Proposal(pattern_at(position, kind, low, high), Grade.REFUSED, f"{name} {kind} not handled", always)
        if low <= 0 <= high:
            thin = pattern_at(position, "thin", 0, 0)
            yield Proposal(thin, Grade.REFUSED, f"{name} of few elements not handled", True, first=True)
        # A value computed from all elements (the norm of a gradient) reaches the other side of a clamp this way.
        smallest, largest = (float(end) for end in value.aminmax())
        for factor in _FACTORS:
            if legal.low <= smallest * factor and largest * factor <= legal.high:
                of_size = f"{name} of another size not handled"
                yield Proposal(("scale", position, factor), Grade.REFUSED, of_size, purpose="")
    if legal.support is Support.PROB:
        yield Proposal(pattern_at(position, "one hot", 0, 1), Grade.REFUSED, f"{name} one hot not handled", True)
    if domain not in (None, "real"):
        return
    info = torch.finfo(value.dtype)
    if legal.support in (Support.UNIT, Support.NONNEGATIVE, Support.NONPOSITIVE) and not legal.is_sorted:
        # The verdict states that it holds up to these ends, which the samples nearly reach.
        near_zero = legal.support is Support.UNIT and legal.low < DRAWN.near_zero
        grade, positive = Grade.REFUSED if near_zero else Grade.CONDITION, legal.support is not Support.NONPOSITIVE
        right = DrawnLimit(values="", low=info.tiny if positive else None, high=None if positive else -info.tiny)
        yield Proposal(pattern_at(position, "some", 0, 0), grade, f"0 in {name} not handled", True, True, right=right)
    nan, most = DrawnLimit(values="", not_nan=True), DrawnLimit(values="", high=info.max)
    specials = {"NaN": nan, "inf": most, "-inf": DrawnLimit(values="", low=info.min)}
    lone, words = pattern_at(position, "lone NaN", 0, 0), "NaN decides"
    yield Proposal(lone, Grade.REFUSED, f"NaN in {name}", beyond=True, purpose=words)
    for kind, right in specials.items():
        yield Proposal(
            pattern_at(position, kind, 0, 0), Grade.CONDITION, not_handled(kind, name), True, True,
            purpose=kind if kind == "NaN" else "inf", right=right,
        )  # fmt: skip
    rms = legal.rms if isfinite(legal.rms) else 1.0
    least = info.tiny / 16 if value.dtype == torch.float16 else info.tiny * 64  # float16 denormals are ordinary numbers
    huge, tiny = info.max / 64 / max(rms, 1e-30), least / max(rms, 1e-30)
    large, small = f"large {name} not handled", f"tiny {name} not handled"
    # Samples that come near zero extend to zero; zero itself is proposed above.
    near = 0 <= low < DRAWN.near_zero * (1.0 if legal.support is Support.UNIT else rms)
    inside = DrawnLimit(values="", low=0.0 if near else low, high=high)
    usual = DrawnLimit(values="", least=rms * DRAWN.usual)
    of_all = inside.model_copy(update={"least": usual.least})
    # Also of one sign throughout: no other input reveals a maximum that starts from -1e30.
    kinds = (("scaled", 1), ("uniform", -1), ("uniform", 1))[: 1 + (legal.low < 0) * (1 + (legal.high > 0))]
    for size, (kind, sign) in product((huge**0.5, huge), kinds):
        yield Proposal(pattern_at(position, kind, sign * size, 0), Grade.CONDITION, large, True, True, right=inside)
    for size, always in ((tiny**0.5, True), (tiny, value.dtype == torch.float16)):
        yield Proposal(pattern_at(position, "scaled", size, 0), Grade.CONDITION, small, always, True, right=usual)
    ends = (info.smallest_normal, info.max / 4)
    yield Proposal(pattern_at(position, "magnitudes", *ends), Grade.CONDITION, large, False, True, right=of_all)


def codes(name: str, position: int) -> Iterator[Proposal]:
    """Propose all 8-bit codes: those of finite numbers, and all including NaN and infinities."""
    for kind, words in (("numbers", f"codes of {name} as drawn only"), ("all", not_handled("NaN", name))):
        yield Proposal(("codes", position, secrets.randbits(31), kind), Grade.CONDITION, words, True, True)


def complexes(name: str, position: int, value: Tensor) -> Iterator[Proposal]:
    """Propose zeros and numbers on the axes; numbers of all quadrants; non-finite, large and tiny ones."""
    import torch

    yield Proposal(pattern_at(position, "some", 0, 0), Grade.REFUSED, f"0 in {name} not handled", True, True)
    # If all parts have one sign, zero is at the end of the samples' range.
    has_both_signs = [float(bool((part > 0).any() and (part < 0).any())) for part in (value.imag, value.real)]
    if any(has_both_signs):
        on_axes = pattern_at(position, "on axes", *has_both_signs)
        yield Proposal(on_axes, Grade.REFUSED, f"{name} on an axis not handled", True, True)
        for kind, is_wanted in zip(("real", "imaginary"), has_both_signs, strict=True):
            if is_wanted:
                throughout = pattern_at(position, kind, 0, 0)
                yield Proposal(throughout, Grade.REFUSED, f"{name} {kind} throughout not handled", True, True)
    yield Proposal(pattern_at(position, "turned", 0, 0), Grade.CONDITION, f"{name} as drawn only", True, True)
    for kind in SPECIAL_KINDS:
        yield Proposal(pattern_at(position, kind, 0, 0), Grade.CONDITION, not_handled(kind, name), True, True)
    info = torch.finfo(value.dtype)
    for size, what in ((info.max / 64, "large"), (info.tiny * 64, "tiny")):
        for factor in (size**0.5, size):
            words = f"{what} {name} not handled"
            yield Proposal(pattern_at(position, "scaled", factor, 0), Grade.CONDITION, words, True, True)


def of_range(name: str, position: int, value: Tensor, at: Range, stated: bool) -> Iterator[Proposal]:
    """Propose, for a mask, all, none and whole rows; for integers the ends of the range, and beyond it unless
    stated."""
    if at.mask:
        runs: tuple[tuple[str, int], ...] = (("false first", 0), ("false last", 0))
        if value.dim() > 1 and value.shape[-1] == value.shape[-2]:
            runs += (("triangle", 0), (secrets.choice(("band", "blocks")), 0))
        for kind, number in (("low", 0), ("high", 1), ("a whole row true", 1), ("a whole row false", 0), *runs):
            yield Proposal(
                pattern_at(position, kind, number, number),
                Grade.REFUSED,
                f"{name} as drawn only",
                True,
                beyond=at.fixed,
                first=(kind, number) in runs,
            )
        yield Proposal(
            pattern_at(position, "uniform", 0, 1), Grade.REFUSED, f"{name} as drawn only", True, beyond=at.fixed
        )
        return
    inside = f"{name} as drawn only"
    if at.fixed:
        kind = "sorted" if at.is_sorted else "uniform"
        yield Proposal(pattern_at(position, kind, at.low, at.high), Grade.IGNORED, inside, True, beyond=True)
        if not stated and at.most >= at.high + _FAR:
            # Positions, which may begin elsewhere in a later call.
            right = DrawnLimit(values="", low=at.low, high=at.high)
            words = f"{name} above {at.high} not handled"
            yield Proposal(pattern_at(position, "moved", _FAR, 0), Grade.CONDITION, words, True, True, right=right)
    elif not at.is_sorted and not is_permutation(value):
        yield Proposal(pattern_at(position, "low", at.low, at.low), Grade.REFUSED, inside, True)
        yield Proposal(pattern_at(position, "high", at.high, at.high), Grade.REFUSED, inside, True)
        yield Proposal(pattern_at(position, "ends", at.low, at.high), Grade.REFUSED, inside)
        for order in ("ascending", "descending", "two runs"):
            yield Proposal(pattern_at(position, order, at.low, at.high), Grade.REFUSED, inside, True)
    elif is_permutation(value) and not stated:
        yield Proposal(pattern_at(position, "uniform", at.low, at.high), Grade.CONDITION, inside, True, True)
    if at.is_sorted and not at.fixed:
        # Offsets of segments, some of which are empty.
        repeated = pattern_at(position, "repeated", at.low, at.high)
        yield Proposal(repeated, Grade.CONDITION, f"equal neighbours in {name} not handled", True, True)
    if stated or at.fixed or at.is_sorted or is_permutation(value):
        return
    # The words name the values tried, not those of the few small samples.
    patterns: list[tuple[str, int, int, bool, str]] = []
    if at.least < 0 <= at.low:
        patterns.append(("uniform", max(at.least, -at.high - 1), -1, True, f"{name} below 0 not handled"))
    if at.least <= 0 < at.low:
        patterns.append(("some", 0, 0, True, f"0 in {name} not handled"))
    if at.most > at.high or at.least < min(at.low, -at.high - 1):
        near = (max(at.least, -(1 << 25)), min(at.most, 1 << 25))
        words = f"{name} beyond {at.low}..{at.high} not handled"
        patterns += [
            ("uniform", at.least, at.most, True, words), ("ends", at.least, at.most, True, words),
            ("uniform", *near, False, words),
        ]  # fmt: skip
    for kind, low, high, always, words in patterns:
        yield Proposal(
            pattern_at(position, kind, low, high), Grade.CONDITION, words, always, True,
            right=DrawnLimit(values="", low=at.low, high=at.high),
        )  # fmt: skip


def number_at(name: str, position: int, kind: str, number: int, purpose: str) -> Proposal:
    """Propose one number, throughout or in some places, only if the reference's operations exist to handle it."""
    change = pattern_at(position, kind, number, number)
    return Proposal(change, Grade.REFUSED, f"{name} as drawn only", False, True, purpose)


def pattern_at(position: int, kind: str, low: float, high: float) -> tuple[Any, ...]:
    """Return a pattern change with a random seed."""
    return ("pattern", position, kind, secrets.randbits(31), low, high)
