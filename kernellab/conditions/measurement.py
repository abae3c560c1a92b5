"""How a kernel was measured, sealed and reproduced, and what an earlier version stated."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from kernellab.conditions.base import Concern
from kernellab.conditions.base import ConditionBase as _Condition


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
