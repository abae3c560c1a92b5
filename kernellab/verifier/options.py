"""What a caller may ask of one verification."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernellab.records import Record, Source, Trust
from kernellab.verifier import rules

Baseline = Literal["eager", "compile", "max-autotune"]


class VerifyOptions(Record):
    """``level``: T0 static only; T1 a quick look (small shapes, not timed); T2 everything (the default); T3 also
    relaunches its recorded device code without it; T4 is the same again by a second judge, with intervals that overlap.

    ``allow_library`` takes a candidate that leans on the framework's own operators; ``repeat`` is how many times the
    timing is done; ``deadline`` is in seconds for the whole verification, ``budget`` in seconds for its timing.
    ``ranking`` is for choosing among candidates of our own: one case, then the clock; its verdict is T1 and says so.
    """

    level: Trust = Trust.T2
    allow_library: bool = False
    #: run code that a person or a model wrote on a machine without a sandbox
    unsandboxed: bool = False
    ranking: bool = False
    repeat: int = Field(default=1, ge=1, le=20)
    baselines: tuple[Baseline, ...] = ("eager",)
    #: kernels of one's own to be timed against too, by the name that their figures have; each has a worker of its own
    rivals: dict[str, Source] = Field(default_factory=dict)
    deadline: float = Field(default=300.0, gt=0)
    budget: float = Field(default=rules.TIMING.budget, gt=0)
    #: threads of candidate, baselines and reference; 0 means what the machine gives
    threads: int = Field(default=0, ge=0)
