"""Options of one verification or ranking."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernellab.records import Record, Source, Trust
from kernellab.verifier.protocol import rules

Baseline = Literal["eager", "compile", "max-autotune"]
Fidelity = Literal["", "strict", "framework"]


class DrawnCase(Record):
    """Inputs of a task drawn from a seed: ``sizes`` of its Dims, and their family."""

    sizes: dict[str, int] = Field(default_factory=dict)
    family: str
    seed: int


class VerifyOptions(Record):
    """``level``: T0 static only; T1 a quick look (small shapes, not timed); T2 everything (the default); T3 also
    replays its recorded device code without it; T4 verifies again with a second judge; the intervals must overlap.

    ``allow_library`` accepts a candidate that relies on the framework's own operators; ``repeat`` is the number of
    timings; ``deadline`` is in seconds for the whole verification (of a machine with nothing else to do: it grows with
    other work, at most four times), ``budget`` in seconds for its timing.
    """

    level: Trust = Trust.T2
    allow_library: bool = False
    #: run code written by a person or a model on a machine without a sandbox
    unsandboxed: bool = False
    repeat: int = Field(default=1, ge=1, le=20)
    baselines: tuple[Baseline, ...] = ("eager",)
    #: the user's own kernels that are also timed, by the name of their figures; each has a separate worker
    rivals: dict[str, Source] = Field(default_factory=dict)
    #: additional sizes of Dims, at which another part of it runs; the other Dims are as declared
    sizes: tuple[dict[str, int], ...] = ()
    #: inputs for which another kernel of the task was wrong; the stage correct tries them first
    counterexamples: tuple[DrawnCase, ...] = ()
    #: the rules have proved that the source computes the same with fewer operations: gives the label ``algebra``, and
    #: no floor by the reference's FLOPs. Set by the caller that ran the rules on the sketch, never from a source's
    #: claim
    rewritten: bool = False
    #: run compute-sanitizer on its device code
    sanitize: bool = False
    deadline: float = Field(default=300.0, gt=0)
    budget: float = Field(default=rules.TIMING.budget, gt=0)
    #: processor seconds that a worker of the candidate may use for building and calls; 0 means no limit
    processor: float = Field(default=0.0, ge=0)
    #: for a quick look (T1) on a machine with little memory, of cases far longer than the task's: largest bytes of the
    #: inputs and of each tensor that the reference computes; 0 means no limit. Branches on larger sizes are then not
    #: seen; a timed verification has no such limit. The judge then keeps little between requests, too
    longest: int = Field(default=0, ge=0)
    #: threads of candidate, baselines and reference; 0 means the machine's default
    threads: int = Field(default=0, ge=0)
    #: required accuracy of float32 results (:attr:`kernellab.task.Task.fidelity`); "" means the framework's
    precision: Fidelity = ""


class RankOptions(Record):
    """Options of a ranking: as :class:`VerifyOptions`, without those of a verdict. If not ``paired``, the candidate is
    timed without eager."""

    allow_library: bool = False
    unsandboxed: bool = False
    paired: bool = True
    deadline: float = Field(default=120.0, gt=0)
    budget: float = Field(default=rules.RANK.budget, gt=0)
    threads: int = Field(default=0, ge=0)
    precision: Fidelity = ""

    def as_verification(self) -> VerifyOptions:
        """The same as the options that stages read: a quick look, timed against eager or without a baseline."""
        return VerifyOptions(
            level=Trust.T1, allow_library=self.allow_library, unsandboxed=self.unsandboxed, deadline=self.deadline,
            budget=self.budget, threads=self.threads, baselines=("eager",) if self.paired else (),
            precision=self.precision,
        )  # fmt: skip
