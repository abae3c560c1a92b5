"""What a caller may ask of one verification."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernellab.records import Record, Source, Trust
from kernellab.verifier.protocol import rules

Baseline = Literal["eager", "compile", "max-autotune"]
Fidelity = Literal["", "strict", "framework"]


class DrawnCase(Record):
    """Inputs of a task that a seed draws: ``sizes`` of its Dims, and the family that they are of."""

    sizes: dict[str, int] = Field(default_factory=dict)
    family: str
    seed: int


class VerifyOptions(Record):
    """``level``: T0 static only; T1 a quick look (small shapes, not timed); T2 everything (the default); T3 also
    relaunches its recorded device code without it; T4 is the same again by a second judge, with intervals that overlap.

    ``allow_library`` takes a candidate that leans on the framework's own operators; ``repeat`` is how many times the
    timing is done; ``deadline`` is in seconds for the whole verification, ``budget`` in seconds for its timing.
    """

    level: Trust = Trust.T2
    allow_library: bool = False
    #: run code that a person or a model wrote on a machine without a sandbox
    unsandboxed: bool = False
    repeat: int = Field(default=1, ge=1, le=20)
    baselines: tuple[Baseline, ...] = ("eager",)
    #: the user's own kernels to be timed against too, by the name that their figures have; each has a separate worker
    rivals: dict[str, Source] = Field(default_factory=dict)
    #: sizes of Dims at which it is tried as well, where another part of it runs; the other Dims are as declared
    sizes: tuple[dict[str, int], ...] = ()
    #: inputs at which another kernel of the task was wrong; the stage correct tries them first
    counterexamples: tuple[DrawnCase, ...] = ()
    #: the rules have proved that the source computes the same by fewer operations: the label ``algebra``, and no floor
    #: by the reference's FLOPs. Set by who asked the rules for the sketch, never from what a source says
    rewritten: bool = False
    #: have compute-sanitizer look at what it gives the device
    sanitize: bool = False
    deadline: float = Field(default=300.0, gt=0)
    budget: float = Field(default=rules.TIMING.budget, gt=0)
    #: seconds of the processor's time that a worker of the candidate may use to build and in calls; 0 means no limit
    processor: float = Field(default=0.0, ge=0)
    #: bytes of inputs at most, for a quick look (T1) on a machine with little memory, of cases that are far longer than
    #: the task's; 0 means no limit. What branches on larger sizes is not seen; a timed verification has no such limit
    longest: int = Field(default=0, ge=0)
    #: threads of candidate, baselines and reference; 0 means what the machine gives
    threads: int = Field(default=0, ge=0)
    #: how near float32 results must come (:attr:`kernellab.task.Task.fidelity`); "" is as the framework
    precision: Fidelity = ""


class RankOptions(Record):
    """What a caller may ask of a ranking: as :class:`VerifyOptions`, less what makes a verdict. Where not ``paired``
    the candidate is timed alone, without eager."""

    allow_library: bool = False
    unsandboxed: bool = False
    paired: bool = True
    deadline: float = Field(default=120.0, gt=0)
    budget: float = Field(default=rules.RANK.budget, gt=0)
    threads: int = Field(default=0, ge=0)
    precision: Fidelity = ""

    def as_verification(self) -> VerifyOptions:
        """The same as the options that stages read: a quick look, timed against eager or alone."""
        return VerifyOptions(
            level=Trust.T1, allow_library=self.allow_library, unsandboxed=self.unsandboxed, deadline=self.deadline,
            budget=self.budget, threads=self.threads, baselines=("eager",) if self.paired else (),
            precision=self.precision,
        )  # fmt: skip
