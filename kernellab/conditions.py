"""What a verdict holds for, and what the Verifier noticed: one frozen record for each fact.

A condition is made where the fact is known and read by its fields: by guards of exported operators, the Conductor,
reports, the search, the JSON output. No code reads the texts for people (:func:`labels`, :func:`flags`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from kernellab.condition import Concern, CoverageUnknown, ImportChanges, NeverRan
from kernellab.condition import ConditionBase as _Condition

# -- facts without a parameter -----------------------------------------------------------------------------------------

MarkKind = Literal[
    "expanded-inputs-unsupported", "tensor-given-twice", "constructor-parameters", "non-deterministic",
    "denormals-flushed", "denormals-left-flushed", "zeros-unsigned", "memory-grows", "output-in-a-file", "threads-left",
    "random-left", "buffers-not-compared", "one-mode", "reference-not-in-float64", "unsandboxed", "algebra", "ghost",
    "launches-not-seen", "task-not-discriminating", "busy-machine", "clocks-disagree", "shared-clock", "two-clocks",
    "outputs-read-late", "outputs-copied", "contents-repeated", "slower-on-new-contents", "stream-order-not-seen",
    "below-byte-floor", "below-cached-bytes", "below-arithmetic", "interpreted", "sealed", "native",
    "one-configuration", "agent-shared-machine", "prints", "one-thread", "one-call-at-a-time", "no-gradients",
    "no-inference-tensors", "default-dtype", "outputs-oversized", "conjugates-misread", "hazards-in-shared-memory",
    "written-copied", "view-copied",
]  # fmt: skip

#: label and flag of each
_MARKS: dict[MarkKind, tuple[str, str]] = {
    "expanded-inputs-unsupported": ("expanded inputs not read", ""),
    "tensor-given-twice": ("one tensor given twice not handled", ""),
    "constructor-parameters": (
        "parameters of its constructor only",
        "parameters: right with those that its constructor draws under a new seed; it ignores loaded ones",
    ),
    "non-deterministic": ("non-deterministic", ""),
    "denormals-flushed": ("denormals flushed", ""),
    "denormals-left-flushed": ("", "denormals: a call leaves the calling thread flushing them to zero"),
    "zeros-unsigned": ("", "zeros: 0 where the reference has -0, or -0 where it has 0, by which a caller may divide"),
    "threads-left": ("", "threads: a call leaves another number of threads to its caller"),  # older journals
    "random-left": ("", "random: a call changes the state of torch's generator"),  # older journals
    "memory-grows": ("memory grows with each call", ""),
    "prints": ("", "output: each call writes to standard output or error"),
    "one-thread": ("", "threads: fails in another thread than the one that imported it"),
    "one-call-at-a-time": ("one call at a time only", ""),
    "no-gradients": ("", "gradients: fails for inputs that require one"),
    "no-inference-tensors": ("", "inference: fails for inputs that torch's inference mode made"),
    "default-dtype": ("", "default dtype: wrong numbers while torch's is float64; name the dtype of what is allocated"),
    "conjugates-misread": ("conjugated or negated views misread", ""),
    "written-copied": ("returns a copy of an argument that it writes into", ""),
    "view-copied": ("", "views: a new tensor where the reference returns an argument's own memory"),
    "outputs-oversized": ("outputs hold much more memory than they need", ""),
    "output-in-a-file": ("outputs in a file", ""),
    "hazards-in-shared-memory": ("", "racecheck: hazards in shared memory, between barriers that it may not know"),
    "buffers-not-compared": ("", "buffers: what the reference writes into its own is not compared"),
    "one-mode": ("", "modes: called in the mode that the reference is built in; the other has other answers"),
    "reference-not-in-float64": ("reference not in float64", ""),
    "unsandboxed": ("unsandboxed", ""),
    "algebra": ("algebra", ""),
    "ghost": ("ghost", ""),
    "launches-not-seen": ("", "ghost: no launch of an own kernel could be seen"),
    "task-not-discriminating": ("task not discriminating", ""),
    "busy-machine": ("busy machine", ""),
    "clocks-disagree": ("clocks disagree", ""),
    "shared-clock": ("shared clock", ""),
    "two-clocks": ("two clocks", ""),
    "outputs-read-late": ("outputs read late", ""),
    "outputs-copied": ("outputs copied by the worker", ""),
    "contents-repeated": ("contents repeated", ""),
    "slower-on-new-contents": ("slower on new contents, by which it is told", ""),
    "stream-order-not-seen": ("order of streams not seen", ""),
    "below-byte-floor": ("under the byte floor, ask for T4", ""),
    "below-cached-bytes": ("under the memory's bound, in the caches", ""),
    "below-arithmetic": ("under the bound of the reference's arithmetic", ""),
    "interpreted": ("interpreted", ""),
    "one-configuration": ("", "autotuned: one configuration ran, the first; others are tried on a GPU"),
    "sealed": ("sealed", ""),
    "native": ("replayed as native code", ""),
    "agent-shared-machine": ("agent shared the machine", ""),
}

#: those that speak of the task, and of the measurement
_OF_TASK: tuple[MarkKind, ...] = ("reference-not-in-float64", "task-not-discriminating")
_OF_MEASUREMENT: tuple[MarkKind, ...] = (
    "busy-machine", "shared-clock", "two-clocks", "contents-repeated", "interpreted", "one-configuration",
    "unsandboxed", "agent-shared-machine",
)  # fmt: skip


class Mark(_Condition):
    """A fact that its kind says completely."""

    kind: MarkKind

    @property
    def concern(self) -> Concern:
        return "task" if self.kind in _OF_TASK else "measurement" if self.kind in _OF_MEASUREMENT else "kernel"

    @property
    def label(self) -> str:
        return _MARKS[self.kind][0]

    @property
    def flag(self) -> str:
        return _MARKS[self.kind][1]


# -- calls that the verdict holds for ----------------------------------------------------------------------------------


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
    """A NaN or an infinity in an input does not reach the result as it does in the reference."""

    kind: Literal["special-values"] = "special-values"
    _label: ClassVar[str] = "{value} not handled"
    value: Literal["NaN", "inf"]


class DrawnLimit(_Condition):
    """Values of an argument that the task's own inputs never draw, and for which the kernel is wrong.

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
    their range (name, largest size tried, end). Nothing is known of the kernel at others."""

    kind: Literal["fixed-sizes"] = "fixed-sizes"
    _concern: ClassVar[Concern] = "task"
    shapes: tuple[tuple[int, ...], ...] = ()
    dims: tuple[tuple[str, int, int], ...] = ()

    @property
    def flag(self) -> str:
        if self.dims:
            return f"sizes: {' and '.join(f'{name} up to {tried} of {end}' for name, tried, end in self.dims)} tried"
        return f"sizes: at {' and '.join(' x '.join(map(str, shape)) for shape in self.shapes)} only"


class FixedArguments(_Condition):
    """Parameters of the reference that are no numbers and have only their defaults, as code: no other value is part of
    the task, and nothing is known of the kernel at one."""

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


# -- whose work it is --------------------------------------------------------------------------------------------------


class LibraryShare(_Condition):
    """A library does ``share`` of the time; None where that is not known."""

    kind: Literal["library"] = "library"
    share: float | None = None

    @property
    def label(self) -> str:
        return "library" if self.share is None else f"library {self.share:.0%}"


class IdleKernel(_Condition):
    """The result is right without this kernel."""

    kind: Literal["idle-kernel"] = "idle-kernel"
    _label: ClassVar[str] = "dead: {kernel}"
    kernel: str


class CachedResult(_Condition):
    """The result needs this kernel for new inputs only."""

    kind: Literal["cached-result"] = "cached-result"
    kernel: str

    @property
    def flag(self) -> str:
        return f"cache: {cached_result(self.kernel)}"


def cached_result(kernel: str) -> str:
    return f"the result needs {kernel} for new inputs and not for inputs seen before: it is cached"


class LaunchesWhenTraced(_Condition):
    """These kernels are launched only while torch's dispatcher is traced."""

    kind: Literal["launches-when-traced"] = "launches-when-traced"
    kernels: tuple[str, ...]

    @property
    def flag(self) -> str:
        return f"ghost: {launches_when_traced(self.kernels)}"


def launches_when_traced(kernels: Iterable[str]) -> str:
    return f"its own {', '.join(kernels)} runs only while torch's dispatcher is traced"


class OwnShareUnseen(_Condition):
    """The share of own code is the process's own report, since its program counters cannot be read."""

    kind: Literal["own-share-unseen"] = "own-share-unseen"
    reason: str

    @property
    def flag(self) -> str:
        return f"own share: as the kernel's process reports it; its program counters cannot be read ({self.reason})"


class StaticFinding(_Condition):
    """What the static analysis of the source found and does not refuse."""

    kind: Literal["static"] = "static"
    rule: str
    message: str
    file: str = ""
    line: int | None = None

    @property
    def flag(self) -> str:
        return f"{self.rule}: {self.message.rstrip('.')}" + (f" ({self.file}:{self.line})" if self.line else "")


# -- the task ----------------------------------------------------------------------------------------------------------


class WeakTask(_Condition):
    """Why the task proves little: ``rule`` is random, constant, identity, ..."""

    kind: Literal["task"] = "task"
    _concern: ClassVar[Concern] = "task"
    rule: str
    reason: str

    @property
    def flag(self) -> str:
        return f"task: {self.rule}: {self.reason}" if self.rule else f"task: {self.reason}"


# -- the measurement ---------------------------------------------------------------------------------------------------


class DisturbedCalls(_Condition):
    """Other work on the machine disturbed this share of the timed calls."""

    kind: Literal["disturbed-calls"] = "disturbed-calls"
    _concern: ClassVar[Concern] = "measurement"
    _flag: ClassVar[str] = "busy machine: other work disturbed {share:.0%} of the timed calls"
    share: float


class OtherClock(_Condition):
    """The figures are not the judge's clock's."""

    kind: Literal["clock"] = "clock"
    clock: Literal["device", "events"]

    @property
    def label(self) -> str:
        return CLOCKS[self.clock]


CLOCKS: dict[str, str] = {"device": "by the device's clock", "events": "by the workers' events"}


class LaunchBound(_Condition):
    """Most of a call is the host's launching; ``on_device`` is the ratio to eager by the device's clock."""

    kind: Literal["launch-bound"] = "launch-bound"
    on_device: float | None = None

    @property
    def label(self) -> str:
        return "launch-bound" + (f", {self.on_device:.2f}x eager on the device" if self.on_device is not None else "")


class MoreCores(_Condition):
    """The timed calls had ``cores`` cores on average, the baselines' ``baselines``."""

    kind: Literal["cores"] = "cores"
    _label: ClassVar[str] = "{cores:.1f} cores against {baselines} of the baselines"
    cores: float
    baselines: int


class BaselineMissing(_Condition):
    """A baseline that was asked for could not be timed."""

    kind: Literal["baseline-missing"] = "baseline-missing"
    _label: ClassVar[str] = "no {baseline} baseline"
    _flag: ClassVar[str] = "baseline {baseline}: {reason}"
    _concern: ClassVar[Concern] = "measurement"
    baseline: str
    reason: str


class NotSealed(_Condition):
    """A replay without the candidate's host code was asked for and does not show the same, or compute-sanitizer could
    not look at one."""

    kind: Literal["not-sealed"] = "not-sealed"
    #: on the host: a replay of native code
    native: bool = False
    sanitized: bool = False
    reason: str

    @property
    def label(self) -> str:
        return f"not {'sanitized' if self.sanitized else 'native' if self.native else 'sealed'}: {self.reason}"


class Ratio(BaseModel):
    """A speedup with the ends of its interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speedup: float
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}]"


class NotReproduced(_Condition):
    """A second judge did not confirm the first: it ``failed`` the kernel, had ``no time``, or its ratio ``differs``."""

    kind: Literal["not-reproduced"] = "not-reproduced"
    outcome: Literal["failed", "no time", "differs"]
    baseline: str = ""
    first: Ratio | None = None
    second: Ratio | None = None

    @property
    def label(self) -> str:
        return "not reproduced: not timed" if self.outcome == "no time" else "not reproduced"

    @property
    def flag(self) -> str:
        if self.first is None or self.second is None:
            return ""
        return f"not reproduced: {self.first.text} {self.baseline}, then {self.second.text}"


class Stated(_Condition):
    """A text that an earlier version wrote and that has no record."""

    kind: Literal["stated"] = "stated"
    stated_label: str = ""
    stated_flag: str = ""

    @property
    def label(self) -> str:
        return self.stated_label

    @property
    def flag(self) -> str:
        return self.stated_flag


class JudgedOn(_Condition):
    """Another machine's judge reached it: its figures are of that one."""

    kind: Literal["judged-on"] = "judged-on"
    _label: ClassVar[str] = "judged on {host}"
    _concern: ClassVar[Concern] = "measurement"
    host: str


class Switched(_Condition):
    """Several kernels in one: from each of ``starts`` on, as sizes of ``dim``, another one runs. The sizes on both
    sides of each were tried."""

    kind: Literal["switched"] = "switched"
    dim: str
    starts: tuple[int, ...]

    @property
    def flag(self) -> str:
        return f"switches: another kernel from {self.dim} = {' and '.join(map(str, self.starts))} on; both sides tried"


Condition = Annotated[
    Union[
        Mark, StridesLimit, AlignmentLimit, ScalarLimit, Domain, SpecialValues, DrawnLimit, FixedSizes,
        FixedArguments, DrawnInPart, OutputStrides, LibraryShare, IdleKernel, CachedResult, LaunchesWhenTraced,
        OwnShareUnseen, StaticFinding, WeakTask, DisturbedCalls, OtherClock, LaunchBound, MoreCores, BaselineMissing,
        NotSealed, NotReproduced, Stated, JudgedOn, Switched, NeverRan, CoverageUnknown,
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
