"""Calls that a verdict holds for: layouts, scalars, values, sizes."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, PlainSerializer, model_validator

from kernellab.conditions.base import Concern
from kernellab.conditions.base import ConditionBase as _Condition


class StridesLimit(_Condition):
    """Inputs must be contiguous as a whole, or in their last dimension ("rows")."""

    kind: Literal["strides"] = "strides"
    contiguous: Literal["all", "rows"]

    @property
    def label(self) -> str:
        return "contiguous-only" if self.contiguous == "all" else "rows contiguous only"


class AlignmentLimit(_Condition):
    """Inputs must begin at a multiple of ``bytes``."""

    kind: Literal["alignment"] = "alignment"
    _label: ClassVar[str] = "aligned inputs only"
    bytes: int = 16


def _as_number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf", "nan") else value


#: JSON has no infinity and no NaN, so they are strings there
Number = Annotated[
    Union[bool, int, float],
    BeforeValidator(_as_number),
    PlainSerializer(lambda x: x if isfinite(x) else str(x), return_type=Any, when_used="json"),
]


class ScalarLimit(_Condition):
    """A scalar argument must be ``value``: other values give wrong results (``refuted``) or could not be tried.

    Of one that the kernel has no parameter for (not ``taken``), it is always the default.
    """

    kind: Literal["scalar"] = "scalar"
    _concern: ClassVar[Concern] = "task"
    argument: str
    value: Number
    refuted: bool
    taken: bool = True

    @property
    def label(self) -> str:
        if not self.taken:
            return f"{self.argument} held at {self.value}"
        return f"{self.argument} = {self.value} only" if self.refuted else ""

    @property
    def flag(self) -> str:
        return "" if self.refuted else f"scalar: only {self.argument} = {self.value} was tried"


class Domain(_Condition):
    """Values of a tensor argument were drawn from ``low`` to ``high``, both included; None: unbounded on that side.

    ``refuted``: values outside give wrong results, so that a call with them must be refused.
    """

    kind: Literal["domain"] = "domain"
    _concern: ClassVar[Concern] = "task"
    argument: str
    low: float | None = None
    high: float | None = None
    refuted: bool = False

    @model_validator(mode="after")
    def _bounded(self) -> Domain:
        if self.low is None and self.high is None:
            raise ValueError("a domain has a bound")
        return self

    @property
    def text(self) -> str:
        """``x in [0, 1]``, ``x >= 0`` or ``x <= 0``."""
        if self.low is None:
            return f"{self.argument} <= {self.high:g}"
        ends = f">= {self.low:g}" if self.high is None else f"in [{self.low:g}, {self.high:g}]"
        return f"{self.argument} {ends}"

    @property
    def label(self) -> str:
        return f"right for {self.text} only" if self.refuted else ""

    @property
    def flag(self) -> str:
        return f"domain: verified for {self.text}"


class SpecialValues(_Condition):
    """A NaN or an infinity in an input does not reach the result as it does in the reference. Verdicts of earlier
    versions have it; now ``drawn`` names the argument too."""

    kind: Literal["special-values"] = "special-values"
    _label: ClassVar[str] = "{value} not handled"
    value: Literal["NaN", "inf"]


class DrawnLimit(_Condition):
    """Values of an argument that the task's own inputs never draw, and for which the kernel is wrong: "NaN in x not
    handled". An exported operator tests for those that ``low``, ``high``, ``least`` or ``not_nan`` give of a tensor;
    "equal rows not handled" has none of them, and is for you to avoid.

    ``argument`` is "" where they are those of several; ``values`` says which they are. ``low`` and ``high`` are the
    ends of the range for which it is right, where it is wrong beyond that; ``least`` is the smallest magnitude other
    than zero for which it is right. ``not_nan``: it is wrong for a NaN. ``built_in``: the task's own inputs always have
    one value there, and the kernel is right for that alone.
    """

    kind: Literal["drawn"] = "drawn"
    _label: ClassVar[str] = "{values}"
    argument: str = ""
    values: str
    low: int | float | None = None
    high: int | float | None = None
    least: float | None = None
    not_nan: bool = False
    built_in: bool = False


class FixedSizes(_Condition):
    """A task without Dims was verified at its inputs' ``shapes``; or ``dims`` were tried up to a size below the end of
    their range (name, largest size tried, end), and tensors that can have more elements than an int counts up to
    fewer ``elements`` (name, most tried, end). Nothing is known of the kernel at others."""

    kind: Literal["fixed-sizes"] = "fixed-sizes"
    _concern: ClassVar[Concern] = "task"
    shapes: tuple[tuple[int, ...], ...] = ()
    dims: tuple[tuple[str, int, int], ...] = ()
    elements: tuple[tuple[str, int, int], ...] = ()

    @property
    def flag(self) -> str:
        ranges = [f"{name} up to {tried} of {end}" for name, tried, end in self.dims]
        ranges += [f"{name} up to {tried:,} of {end:,} elements" for name, tried, end in self.elements]
        if ranges:
            return f"sizes: {' and '.join(ranges)} tried"
        return f"sizes: at {' and '.join(' x '.join(map(str, shape)) for shape in self.shapes)} only"


class SmallArguments(_Condition):
    """Arguments as small as a number in the texts, ``values``, gave another answer: an epsilon is placed otherwise, or
    digits are lost next to zero. An ordinary argument does not show it."""

    kind: Literal["small-arguments"] = "small-arguments"
    _concern: ClassVar[Concern] = "kernel"
    values: str

    @property
    def flag(self) -> str:
        return f"small numbers: not exact for {self.values}"


class FixedArguments(_Condition):
    """Parameters of the reference that are no numbers and have only their defaults, and the arguments of a Model's
    constructor, as code: no other value is part of the task, and nothing is known of the kernel at one."""

    kind: Literal["fixed-arguments"] = "fixed-arguments"
    _concern: ClassVar[Concern] = "task"
    values: tuple[tuple[str, str], ...]

    @property
    def flag(self) -> str:
        return f"arguments: only {', '.join(f'{name} = {value}' for name, value in self.values)}"


class DrawnInPart(_Condition):
    """Of the inputs drawn from what the task declares, ``tried`` fitted the time; ``untried`` did not."""

    kind: Literal["drawn-in-part"] = "drawn-in-part"
    _concern: ClassVar[Concern] = "measurement"
    tried: int
    untried: int

    @property
    def flag(self) -> str:
        share = self.tried / max(self.tried + self.untried, 1)
        return f"drawn inputs: {share:.0%} tried ({self.tried} of {self.tried + self.untried}), as many as fit the time"


class OutputStrides(_Condition):
    """An output does not lie in memory as the reference's does: ``form`` is contiguous or channels_last."""

    kind: Literal["output-strides"] = "output-strides"
    _label: ClassVar[str] = "output {output} not {form}"
    output: int
    form: str = "contiguous"
