"""What a run is made of, and the events that its stream keeps.

Every event is one immutable line; a run's state is a fold over them (:mod:`kernellab.evolve.state`). A proposal is a
candidate that was not looked at yet, an evaluation is what came of it. Times are milliseconds unless a name says
otherwise; a speedup is the reference's time over the candidate's, measured in one run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import Field, TypeAdapter

from kernellab.models.exchanges import Exchange, StepKind, Usage
from kernellab.options.search import Knobs, SearchOptions
from kernellab.records import Author, Comparison, Record, Source, Timing, Verdict
from kernellab.target import Target
from kernellab.verifier.protocol.options import Fidelity

#: the word for a run that asks no model
RULES = "rules"


class Step(str, Enum):
    """The steps of an evaluation, cheapest first; the first that a candidate fails ends it."""

    CHECK = "check"
    NOVELTY = "novelty"
    GATE = "gate"
    COST = "cost"
    BUILD = "build"
    RANK = "rank"
    VERIFY = "verify"


class SearchRequest(SearchOptions):
    """A search to begin: its options, and what a call from Python gives besides."""

    #: the run's; by default the task's
    name: str | None = None
    #: sketches and kernels that it begins with, in addition to the designs of the rules
    sketches: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    #: who wrote the sketches, where they are a session's
    author: Author = Author.HUMAN
    workspace: str | Path | None = None
    #: who does the jobs: the processes local:N, a Dask cluster at dask://HOST:PORT, or threads of this process, whose
    #: judge may be another machine's, ssh://HOST[:PORT][/PYTHON]
    cluster: str = ""

    def filled(self, usual: Knobs) -> SearchRequest:
        """With what the workspace says for what the call did not."""
        missing = usual.model_fields_set - self.model_fields_set
        return self.model_copy(update={name: getattr(usual, name) for name in missing})


class Proposal(Record):
    """A candidate before anything is known of it: a sketch, or a source that somebody wrote."""

    number: int
    round: int
    island: int
    #: who made it: seed, cross, person, agent, session, rules:REWRITE, model:NAME, agent:NAME
    operator: str
    author: Author = Author.RULES
    parents: tuple[int, ...] = ()
    #: candidates that were looked at, and that nothing was taken from
    inspirations: tuple[int, ...] = ()
    sketch: str = ""
    source: Source | None = None
    why: str = ""
    #: the rules call the library in it, where no rule designs an operation
    library: bool = False
    #: the rules have proved that it computes the same by fewer operations
    rewritten: bool = False
    #: seconds and tokens that it took to make
    seconds: float = 0.0
    usage: Usage = Usage()

    @property
    def injected(self) -> bool:
        """Did somebody from outside put it in, a person or an agent of theirs?"""
        return self.operator in ("person", "agent")

    @property
    def key(self) -> str:
        """The content's identity: two proposals of one key are one candidate, which is evaluated once."""
        content = self.source.hash if self.source is not None else _plain(self.sketch)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


class Spent(Record):
    """One step of an evaluation: how long it took, and whether the candidate passed it."""

    step: Step
    seconds: float
    passed: bool


class Score(Record):
    """A measured time, and the speedup over the reference in the same run with its interval (95 %)."""

    time: Timing
    speedup: float
    low: float
    high: float
    #: measurements that it pools
    runs: int = 1
    #: the clock that it is by: device, events, or "" for the judge's
    clock: str = ""

    def beats(self, other: Score) -> bool:
        """Is the lead larger than the noise of both?"""
        return self.low > other.high


class Place(Record):
    """Where a candidate lies on the axes of its kind: MAP-Elites' cells, and what the Analyst compares."""

    technique: str = ""
    #: bytes that one program keeps on the chip
    footprint: int = 0
    stages: int = 1
    #: FLOPs a byte
    intensity: float = 0.0
    #: what the cost model bounds its time by: memory or compute; "" not known
    bound: str = ""
    launches: int = 1
    #: programs that can run at once, of the launch that has the fewest; 0: not known
    programs: float = 0.0
    #: the schedule's features, by name: tile sizes as log2, hints as 1
    features: dict[str, float] = Field(default_factory=dict)


class Evaluation(Record):
    """What came of a proposal; ``step`` is the one that it failed, or the last that ran."""

    number: int
    key: str
    passed: bool
    step: Step
    reason: str = ""
    spent: tuple[Spent, ...] = ()
    score: Score | None = None
    modelled_ms: float | None = None
    place: Place = Place()
    #: digest of the code that was built, without comments and names: two sketches may give the same code
    source: str = ""
    #: the candidate that it repeats, where it is no separate candidate
    same_as: int | None = None
    #: where it was measured
    worker: str = ""
    chip: str = ""

    @property
    def seconds(self) -> float:
        return sum(spent.seconds for spent in self.spent)


class Move(Record):
    """A copy of a candidate goes to another island."""

    number: int
    source: int
    target: int


class Action(str, Enum):
    """What a person may do to a run."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    INJECT = "inject"
    PROTECT = "protect"
    DROP = "drop"
    FREEZE = "freeze"
    THAW = "thaw"
    KNOBS = "knobs"
    SCRATCHPAD = "scratchpad"
    DIRECTION = "direction"
    #: what the supervisor proposes is not wanted
    REFUSE = "refuse"


class Status(str, Enum):
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (Status.FINISHED, Status.STOPPED, Status.FAILED)


class Finding(Record):
    """One thing that the Analyst saw: what candidates with a feature do against those without."""

    feature: str
    #: geometric mean time without over with it: above 1, the feature helps
    effect: float
    low: float
    high: float
    having: int
    lacking: int

    @property
    def text(self) -> str:
        side = "faster" if self.effect >= 1 else "slower"
        ratio, low, high = (self.effect, self.low, self.high) if self.effect >= 1 else (
            1 / self.effect, 1 / self.high, 1 / self.low)  # fmt: skip
        return (
            f"{self.feature}: {ratio:.2f}x {side} [{low:.2f}, {high:.2f}], "
            f"{self.having} candidates with it, {self.lacking} without."
        )


class Plan(Record):
    """What the next round receives: words for a model, operators to prefer for the rules."""

    text: str = ""
    prefer: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    author: Author = Author.RULES


class _Event(Record):
    time: float = Field(default_factory=time.time)


class Begun(_Event):
    """A run's first event."""

    kind: Literal["begun"] = "begun"
    name: str
    #: the task's text
    text: str
    dsl: str
    chip: str | None = None
    #: another machine, whose judge measures; None where this one or a cluster does
    target: Target | None = None
    knobs: Knobs
    #: a model that takes part as an operator: "model", "model:NAME", "replay:FILE"; "" none
    model: str = ""
    allow_library: bool = False
    #: how near float32 results must come (:attr:`kernellab.task.Task.fidelity`); "" is as the framework
    precision: Fidelity = ""
    #: weights whose convolutions eager rounds on the GPU that it runs on (:attr:`kernellab.task.Task.rounded`)
    rounded: tuple[str, ...] = ()
    #: sketches or kernels to begin with in addition to the rules' designs
    given: tuple[Proposal, ...] = ()
    #: the memory that it begins from: "on", "off", a store's place, or "": the workspace's, where there is one
    memory: str = ""
    version: str = ""


class Proposed(_Event):
    """Proposals that are to be evaluated; those of a round are one event."""

    kind: Literal["proposed"] = "proposed"
    proposals: tuple[Proposal, ...]


class Evaluated(_Event):
    kind: Literal["evaluated"] = "evaluated"
    evaluation: Evaluation


class Verified(_Event):
    """The Verifier's verdict on a candidate that ranks among the best."""

    kind: Literal["verified"] = "verified"
    number: int
    verdict: Verdict
    seconds: float = 0.0


class Remeasured(_Event):
    """New measurements of candidates that were close, made one after the other."""

    kind: Literal["remeasured"] = "remeasured"
    scores: dict[int, Score]
    seconds: float = 0.0


class Paired(_Event):
    """The best candidate and the first design, timed in turn when the run ended; ``number`` is the best."""

    kind: Literal["paired"] = "paired"
    number: int
    first: int
    #: the best over the first design; None where they could not be timed together, and ``reason`` says why
    comparison: Comparison | None = None
    reason: str = ""
    seconds: float = 0.0


class Migrated(_Event):
    kind: Literal["migrated"] = "migrated"
    moves: tuple[Move, ...]


class RoundEnded(_Event):
    """A round is over: the best up to now, and what the next receives."""

    kind: Literal["round_ended"] = "round_ended"
    round: int
    best: int | None = None
    #: what candidates are ordered by: the best one's speedup, or the inverse of its modelled time
    worth: float | None = None
    plan: Plan = Plan()


class Exchanged(_Event):
    """A model was asked, for a proposal of this number or, None, by the Analyst."""

    kind: Literal["exchanged"] = "exchanged"
    number: int | None = None
    exchange: Exchange


class Worked(_Event):
    """What an agent that varies a candidate has just done, ``who`` by :func:`who_varies`; or the search at its end."""

    kind: Literal["worked"] = "worked"
    who: str
    text: str
    step: StepKind = "tool"


def who_varies(operator: str, parents: Sequence[int]) -> str:
    return f"{operator} on candidate {parents[0]}" if parents else operator


class Suggested(_Event):
    """The run does not gain any more, and a new direction is proposed; a person accepts, edits or refuses it."""

    kind: Literal["suggested"] = "suggested"
    round: int
    text: str
    #: operators that it wants tried
    prefer: tuple[str, ...] = ()


class Unknown(_Event):
    """An event of a later kernellab: the run is shown without it, and continues where it was made."""

    kind: Literal["unknown"] = "unknown"
    named: str = ""


class Steered(_Event):
    """A person did something."""

    kind: Literal["steered"] = "steered"
    action: Action
    #: the candidate (protect, drop) or the island (freeze, thaw)
    number: int | None = None
    #: the changed ones alone: two processes may each change another one
    knobs: dict[str, Any] | None = None
    proposal: Proposal | None = None
    text: str = ""


class Ended(_Event):
    kind: Literal["ended"] = "ended"
    status: Status
    reason: str


Event = Annotated[
    Union[
        Begun, Proposed, Evaluated, Verified, Remeasured, Paired, Migrated, RoundEnded, Exchanged, Worked, Suggested,
        Steered, Ended
    ],
    Field(discriminator="kind"),
]  # fmt: skip

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def _plain(sketch: str) -> str:
    """A sketch without comments and spacing."""
    lines = (line.split("#", 1)[0].split() for line in sketch.splitlines())
    return "\n".join(" ".join(words) for words in lines if words)
