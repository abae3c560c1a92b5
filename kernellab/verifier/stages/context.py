"""State shared by the stages of one verification: the request, the time left, the findings so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.conditions import Condition
from kernellab.dsls import get_adapter
from kernellab.dsls.base import Adapter
from kernellab.records import Comparison, Coverage, Evidence, Replay, Source, Timing
from kernellab.records.counters import HotSpots
from kernellab.target import Backend
from kernellab.task import Task
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.protocol.rules import COMPILED
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.judge.pool import Pool


@dataclass(frozen=True)
class Request:
    """The judge's request: only texts and words."""

    task_text: str
    task_name: str
    source: Source
    backend: Backend
    chip: str
    options: VerifyOptions


@dataclass
class Findings:
    """Findings of the stages, as reported in the verdict. A stage that refuses keeps its earlier findings."""

    conditions: list[Condition] = field(default_factory=list)
    build_seconds: float | None = None
    own_share: float | None = None
    hot: HotSpots | None = None
    precision: str = ""
    time: Timing | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    #: Bound by the machine's measured roofs, in ms.
    sol_ms: float | None = None
    replay: Replay | None = None
    #: Edges of the reference reached by drawn inputs.
    coverage: Coverage | None = None
    sandbox: str = ""
    #: A sentence on the library's share of the work, if it has one and may have it.
    composed: str = ""
    #: Share of the timed calls disturbed by other processes.
    disturbed: float = 0.0
    #: Rates measured here, for the verdict's environment.
    roofs: dict[str, Any] = field(default_factory=dict)
    #: Whether a replay without the host code reproduced the result.
    sealed: bool = False

    def add(self, *conditions: Condition) -> None:
        """Add each condition once."""
        self.conditions += [c for c in dict.fromkeys(conditions) if c not in self.conditions]


@dataclass
class Context:
    """One verification: the request, the workers, and the deadline (``end``, of the monotonic clock).

    The deadline counts seconds of a machine with nothing else to do: while other work has the cores, it moves away by
    the part of the time that the verification did not get.
    """

    request: Request
    pool: Pool
    end: float
    findings: Findings = field(default_factory=Findings)
    #: Seconds of the candidate's calls that were checked.
    called: float = 0.0
    #: Reports progress to the caller: "case 7 of 14".
    tell: Callable[[str], None] = lambda words: None
    #: When the verification began; of the monotonic clock.
    began: float = field(default_factory=lambda: time.monotonic())
    #: Until when the load of the machine is counted in ``end``; of the monotonic clock.
    seen: float = field(default_factory=lambda: time.monotonic())
    #: Seconds of waits for other verifications.
    waited: float = 0.0

    @staticmethod
    def of(request: Request, pool: Pool) -> Context:
        """Return a context for a verification that begins now."""
        return Context(request, pool, time.monotonic() + request.options.deadline)

    def wait(self, seconds: float) -> None:
        """Move the deadline by ``seconds`` that just passed in a wait for other verifications."""
        self.end += seconds
        self.waited += seconds
        self.seen = min(self.seen + seconds, time.monotonic())

    def _yield_to_load(self) -> None:
        now = time.monotonic()
        self.end += (now - self.seen) * (1.0 - 1.0 / crowding())
        self.seen = now

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
        """Return the seconds for a step that may take ``most``, within the deadline. Raises Refused when none are
        left."""
        self._yield_to_load()
        left = self.end - time.monotonic()
        if left <= 0:
            limit, passed = self.options.deadline, time.monotonic() - self.began
            by_clock = f" ({passed:.0f} s by the clock, with other work on the machine)" if passed > 1.2 * limit else ""
            raise Refused(
                f"The whole verification took longer than its deadline of {limit:g} s{by_clock}; the kernel's calls "
                f"had {self.called:.1f} s of it.",
                Evidence(signature="deadline", called=min(1.0, self.called / max(limit, passed - self.waited))),
            )
        return min(most, left)


def has_model(source: Source) -> bool:
    """Return whether a source defines KernelBench's ModelNew."""
    return any("ModelNew" in text for text in source.files.values())


def threads_of(options: VerifyOptions) -> int:
    """Return the number of threads: as requested, or the available cores."""
    return options.threads or len(os.sched_getaffinity(0))


def baselines_of(options: VerifyOptions, task: Task) -> list[str]:
    """Return the requested baselines; torch.compile does not apply to a NumPy reference."""
    return [b for b in options.baselines if not (b in COMPILED and task.framework == "numpy")]


def numbered(baselines: Sequence[str], eagers: int = 2) -> list[tuple[str, int]]:
    """Return the workers that baselines need; eager has two, to measure the difference between workers of the same
    code."""
    return [(name, number) for name in baselines for number in range(eagers if name == "eager" else 1)]
