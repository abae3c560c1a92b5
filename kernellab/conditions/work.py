"""Whose work a kernel is, and what is weak about its task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from kernellab.conditions.base import Concern
from kernellab.conditions.base import ConditionBase as _Condition


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


class WeakTask(_Condition):
    """Why the task proves little: ``rule`` is random, constant, identity, ..."""

    kind: Literal["task"] = "task"
    _concern: ClassVar[Concern] = "task"
    rule: str
    reason: str

    @property
    def flag(self) -> str:
        return f"task: {self.rule}: {self.reason}" if self.rule else f"task: {self.reason}"
