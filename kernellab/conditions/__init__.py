"""What a verdict holds for, and what the Verifier noticed: one frozen record for each fact.

A condition is made where the fact is known and read by its fields: by guards of exported operators, the Conductor,
reports, the search, the JSON output. No code reads the texts for people (:func:`labels`, :func:`flags`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, Union, get_args

from pydantic import Field

from kernellab.conditions.base import ConditionBase as _Condition
from kernellab.conditions.calls import (
    AlignmentLimit,
    Domain,
    DrawnInPart,
    DrawnLimit,
    FixedArguments,
    FixedSizes,
    Number,
    OutputStrides,
    ScalarLimit,
    SmallArguments,
    SpecialValues,
    StridesLimit,
)
from kernellab.conditions.code import CodeRegion, CoverageUnknown, ImportChanges, NeverRan
from kernellab.conditions.marks import Mark, MarkKind
from kernellab.conditions.measurement import (
    CLOCKS,
    BaselineMissing,
    DisturbedCalls,
    JudgedOn,
    LaunchBound,
    MoreCores,
    NotReproduced,
    NotSealed,
    OtherClock,
    Ratio,
    Stated,
    Switched,
)
from kernellab.conditions.work import (
    CachedResult,
    IdleKernel,
    LaunchesWhenTraced,
    LibraryShare,
    OwnShareUnseen,
    StaticFinding,
    WeakTask,
    cached_result,
    launches_when_traced,
)

__all__ = [
    "CLOCKS",
    "KINDS",
    "AlignmentLimit",
    "BaselineMissing",
    "CachedResult",
    "CodeRegion",
    "Condition",
    "CoverageUnknown",
    "DisturbedCalls",
    "Domain",
    "DrawnInPart",
    "DrawnLimit",
    "FixedArguments",
    "FixedSizes",
    "IdleKernel",
    "ImportChanges",
    "JudgedOn",
    "LaunchBound",
    "LaunchesWhenTraced",
    "LibraryShare",
    "Mark",
    "MarkKind",
    "MoreCores",
    "NeverRan",
    "NotReproduced",
    "NotSealed",
    "Number",
    "OtherClock",
    "OutputStrides",
    "OwnShareUnseen",
    "Ratio",
    "ScalarLimit",
    "SmallArguments",
    "SpecialValues",
    "Stated",
    "StaticFinding",
    "StridesLimit",
    "Switched",
    "WeakTask",
    "cached_result",
    "facts",
    "flags",
    "joined",
    "labels",
    "launches_when_traced",
    "marked",
    "of",
    "other_clock",
]

Condition = Annotated[
    Union[
        Mark, StridesLimit, AlignmentLimit, ScalarLimit, Domain, SpecialValues, DrawnLimit, FixedSizes,
        FixedArguments, SmallArguments, DrawnInPart, OutputStrides, LibraryShare, IdleKernel, CachedResult,
        LaunchesWhenTraced, OwnShareUnseen, StaticFinding, WeakTask, DisturbedCalls, OtherClock, LaunchBound,
        MoreCores, BaselineMissing, NotSealed, NotReproduced, Stated, JudgedOn, Switched, NeverRan, CoverageUnknown,
        ImportChanges,
    ],
    Field(discriminator="kind"),
]  # fmt: skip

#: every class of condition
KINDS: tuple[type[_Condition], ...] = get_args(get_args(Condition)[0])

C = TypeVar("C", bound=_Condition)


def of(conditions: Iterable[Condition], kind: type[C]) -> list[C]:
    """Those of one class."""
    return [condition for condition in conditions if isinstance(condition, kind)]


def marked(conditions: Iterable[Condition], kind: MarkKind) -> bool:
    """Is there a :class:`Mark` of this kind?"""
    return any(condition.kind == kind for condition in conditions)


def other_clock(conditions: Iterable[Condition]) -> str:
    """The clock that the figures are from; "" for the judge's."""
    return next((condition.clock for condition in of(conditions, OtherClock)), "")


def joined(*several: Iterable[Condition]) -> tuple[Condition, ...]:
    """All of them in order, equal ones once."""
    return tuple(dict.fromkeys(condition for conditions in several for condition in conditions))


def labels(conditions: Iterable[Condition]) -> list[str]:
    """The labels in order, equal ones once. Refuted domains are one label, at the place of the first."""
    conditions = list(conditions)
    domains = ", ".join(c.text for c in of(conditions, Domain) if c.refuted)
    texts = (
        (f"right for {domains} only" if c.refuted else "") if isinstance(c, Domain) else c.label for c in conditions
    )
    return list(dict.fromkeys(filter(None, texts)))


def flags(conditions: Iterable[Condition]) -> list[str]:
    """The flags in order, equal ones once. Domains are one flag, at the place of the first."""
    conditions = list(conditions)
    domains = ", ".join(c.text for c in of(conditions, Domain))
    texts = (f"domain: verified for {domains}" if isinstance(c, Domain) else c.flag for c in conditions)
    return list(dict.fromkeys(filter(None, texts)))


def facts(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """One JSON object for each: its fields, its texts, and what it speaks of."""
    return [{**c.model_dump(mode="json"), "concern": c.concern, "label": c.label, "flag": c.flag} for c in conditions]
