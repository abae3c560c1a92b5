"""What the stages of one verification share: the request, the time that is left, what was found so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.conditions import Condition
from kernellab.dsls import get_adapter
from kernellab.dsls.base import Adapter
from kernellab.records import Comparison, Coverage, Evidence, HotSpots, Replay, Source, Timing
from kernellab.target import Backend
from kernellab.task import Task
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.protocol.rules import COMPILED
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.judge.pool import Pool


@dataclass(frozen=True)
class Request:
    """What the judge was asked: texts and words only."""

    task_text: str
    task_name: str
    source: Source
    backend: Backend
    chip: str
    options: VerifyOptions


@dataclass
class Findings:
    """What the stages found, as the verdict tells it. A stage that refuses keeps what it found before."""

    conditions: list[Condition] = field(default_factory=list)
    build_seconds: float | None = None
    own_share: float | None = None
    hot: HotSpots | None = None
    precision: str = ""
    time: Timing | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    #: the bound by the machine's measured roofs, ms
    sol_ms: float | None = None
    replay: Replay | None = None
    #: the edges of the reference that drawn inputs reached
    coverage: Coverage | None = None
    sandbox: str = ""
    #: a sentence on the library's part, where it has one and may have it
    composed: str = ""
    #: share of the timed calls that something else on the machine disturbed
    disturbed: float = 0.0
    #: the rates measured here, as the environment of the verdict keeps them
    roofs: dict[str, Any] = field(default_factory=dict)
    #: has a replay without its host code shown the same?
    sealed: bool = False

    def add(self, *conditions: Condition) -> None:
        """Adds each condition once."""
        self.conditions += [c for c in dict.fromkeys(conditions) if c not in self.conditions]


@dataclass
class Context:
    """One verification: what was asked, the workers to do it with, and until when (``end``, of the monotonic clock)."""

    request: Request
    pool: Pool
    end: float
    findings: Findings = field(default_factory=Findings)
    #: tells whoever waits what is being done: "case 7 of 14"
    tell: Callable[[str], None] = lambda words: None

    @staticmethod
    def of(request: Request, pool: Pool) -> Context:
        """A verification that begins now."""
        return Context(request, pool, time.monotonic() + request.options.deadline)

    @property
    def options(self) -> VerifyOptions:
        return self.request.options

    @property
    def source(self) -> Source:
        return self.request.source

    @property
    def adapter(self) -> Adapter:
        return get_adapter(self.source.dsl)

    @property
    def interpreted(self) -> bool:
        return self.request.backend is Backend.INTERPRETER

    def left(self, most: float) -> float:
        """Seconds for a step that may take ``most``, within the whole deadline. Raises Refused when none are left."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise Refused(f"The whole verification took longer than its deadline of {self.options.deadline:g} s.",
                          Evidence(signature="deadline"))  # fmt: skip
        return min(most, left)


def threads_of(options: VerifyOptions) -> int:
    return options.threads or len(os.sched_getaffinity(0))


def baselines_of(options: VerifyOptions, task: Task) -> list[str]:
    """The baselines asked for; torch.compile has nothing to say of a NumPy reference."""
    return [b for b in options.baselines if not (b in COMPILED and task.framework == "numpy")]


def numbered(baselines: Sequence[str], eagers: int = 2) -> list[tuple[str, int]]:
    """The workers that baselines need: eager has two, whose difference is what two workers of one code differ by."""
    return [(name, number) for name in baselines for number in range(eagers if name == "eager" else 1)]
