"""The parts of a run, and the events that its stream stores.

Every event is one immutable line; a run's state is a fold over them (:mod:`kernellab.evolve.fold`). A proposal is a
candidate before its evaluation, an evaluation is its result. Times are milliseconds unless a name says otherwise; a
speedup is the reference's time divided by the candidate's, measured in one run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from kernellab.models.exchanges import Exchange, StepKind, Usage
from kernellab.options.search import Knobs, SearchOptions
from kernellab.records import Author, Comparison, Record, Source, Timing, Verdict
from kernellab.target import Target
from kernellab.verifier.protocol.options import Fidelity

#: The spec of a run without a model.
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
    """A search to begin: its options and the additional arguments of a call from Python."""

    #: The run's name; by default the task's.
    name: str | None = None
    #: Initial sketches and kernels, in addition to the rules' designs.
    sketches: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    #: The author of the sketches, if they are a session's.
    author: Author = Author.HUMAN
    workspace: str | Path | None = None
    #: Who runs the jobs: local:N processes, a Dask cluster at dask://HOST:PORT, or threads of this process, whose judge
    #: may be on another machine, ssh://HOST[:PORT][/PYTHON].
    cluster: str = ""

    def filled(self, usual: Knobs) -> SearchRequest:
        """Return the request with the workspace's values for options that the call did not set."""
        missing = usual.model_fields_set - self.model_fields_set
        return self.model_copy(update={name: getattr(usual, name) for name in missing})


class Proposal(Record):
    """A candidate before its evaluation: a sketch, or an external source."""

    number: int
    round: int
    island: int
    #: Its origin: seed, cross, person, agent, session, rules:REWRITE, model:NAME, agent:NAME.
    operator: str
    author: Author = Author.RULES
    parents: tuple[int, ...] = ()
    #: Candidates that were shown, but from which nothing was taken.
    inspirations: tuple[int, ...] = ()
    sketch: str = ""
    source: Source | None = None
    why: str = ""
    #: The rules call the library for operations without a rule.
    library: bool = False
    #: The rules have proved that it computes the same with fewer operations.
    rewritten: bool = False
    #: Seconds and tokens that making it took.
    seconds: float = 0.0
    usage: Usage = Usage()

    @property
    def injected(self) -> bool:
        """Whether a person or their agent added it from outside."""
        return self.operator in ("person", "agent")

    @property
    def key(self) -> str:
        """The content's identity: proposals with the same key are one candidate, which is evaluated once."""
        content = self.source.hash if self.source is not None else _plain(self.sketch)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


class Spent(Record):
    """One step of an evaluation: its duration, and whether the candidate passed it."""

    step: Step
    seconds: float
    passed: bool


class Score(Record):
    """A measured time, and the speedup over the reference in the same run with its 95 % interval."""

    time: Timing
    speedup: float
    low: float
    high: float
    #: Number of pooled measurements.
    runs: int = 1
    #: The clock: device, events, or "" for the judge's.
    clock: str = ""

    def beats(self, other: Score) -> bool:
        """Whether the lead is larger than the noise of both."""
        return self.low > other.high


class Place(Record):
    """A candidate's position on the axes of its kind: MAP-Elites' cells, and the Analyst's features."""

    technique: str = ""
    #: Bytes that one program keeps on chip.
    footprint: int = 0
    stages: int = 1
    #: FLOPs per byte.
    intensity: float = 0.0
    #: What bounds its time in the cost model: memory or compute; "" if unknown.
    bound: str = ""
    launches: int = 1
    #: Minimum number of parallel programs over the launches; 0 if unknown.
    programs: float = 0.0
    #: The schedule's features, by name: tile sizes as log2, hints as 1.
    features: dict[str, float] = Field(default_factory=dict)


class Evaluation(Record):
    """The result of a proposal; ``step`` is the one that it failed, or the last that ran."""

    number: int
    key: str
    passed: bool
    step: Step
    reason: str = ""
    spent: tuple[Spent, ...] = ()
    score: Score | None = None
    modelled_ms: float | None = None
    place: Place = Place()
    #: Digest of the built code, without comments and names: two sketches may give the same code.
    source: str = ""
    #: The candidate that it repeats, if any.
    same_as: int | None = None
    #: The machine on which it was measured.
    worker: str = ""
    chip: str = ""

    @property
    def seconds(self) -> float:
        return sum(spent.seconds for spent in self.spent)


class Move(Record):
    """A copy of a candidate moves to another island."""

    number: int
    source: int
    target: int


class Action(str, Enum):
    """A person's actions on a run."""

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
    #: Rejects the supervisor's suggestion.
    REFUSE = "refuse"


class Status(str, Enum):
    """The status of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (Status.FINISHED, Status.STOPPED, Status.FAILED)


class Finding(Record):
    """One observation of the Analyst: candidates with a feature compared with those without."""

    feature: str
    #: Geometric mean time without the feature divided by that with it: above 1, it helps.
    effect: float
    low: float
    high: float
    having: int
    lacking: int

    @property
    def text(self) -> str:
        ratio, low, high, side = self.effect, self.low, self.high, "faster"
        if self.effect < 1:
            ratio, low, high, side = 1 / self.effect, 1 / self.high, 1 / self.low, "slower"
        return (
            f"{self.feature}: {ratio:.2f}x {side} [{low:.2f}, {high:.2f}], "
            f"{self.having} candidates with it, {self.lacking} without."
        )


class Plan(Record):
    """The input of the next round: text for a model, preferred operators for the rules."""

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
    #: The task's text.
    text: str
    dsl: str
    chip: str | None = None
    #: Another machine whose judge measures; None for this one or a cluster.
    target: Target | None = None
    knobs: Knobs
    #: A model that takes part as an operator: "model", "model:NAME", "replay:FILE"; "" for none.
    model: str = ""
    allow_library: bool = False
    #: The allowed error of float32 results (:attr:`kernellab.task.Task.fidelity`); "" is the framework's.
    precision: Fidelity = ""
    #: Weights whose convolutions eager rounds on its GPU (:attr:`kernellab.task.Task.rounded`).
    rounded: tuple[str, ...] = ()
    #: Initial sketches or kernels in addition to the rules' designs.
    given: tuple[Proposal, ...] = ()
    #: The memory from which it begins: "on", "off", a store's place, or "" for the workspace's, if there is one.
    memory: str = ""
    version: str = ""


class Proposed(_Event):
    """Proposals to evaluate; those of a round are one event."""

    kind: Literal["proposed"] = "proposed"
    proposals: tuple[Proposal, ...]


class Evaluated(_Event):
    """A proposal was evaluated."""

    kind: Literal["evaluated"] = "evaluated"
    evaluation: Evaluation


class Verified(_Event):
    """The Verifier's verdict on a candidate that ranks among the best."""

    kind: Literal["verified"] = "verified"
    number: int
    verdict: Verdict
    seconds: float = 0.0


class Remeasured(_Event):
    """New measurements of close candidates, made one after the other."""

    kind: Literal["remeasured"] = "remeasured"
    scores: dict[int, Score]
    seconds: float = 0.0


class Paired(_Event):
    """The best candidate and the first design, timed in turn at the end of the run; ``number`` is the best."""

    kind: Literal["paired"] = "paired"
    number: int
    first: int
    #: The best over the first design; None if they could not be timed together, for the ``reason``.
    comparison: Comparison | None = None
    reason: str = ""
    seconds: float = 0.0


class Migrated(_Event):
    """Copies of candidates have moved to other islands."""

    kind: Literal["migrated"] = "migrated"
    moves: tuple[Move, ...]


class RoundEnded(_Event):
    """The end of a round: the best so far, and the next round's plan."""

    kind: Literal["round_ended"] = "round_ended"
    round: int
    best: int | None = None
    #: The value that orders candidates: the best one's speedup, or the inverse of its modelled time.
    worth: float | None = None
    plan: Plan = Plan()


class Exchanged(_Event):
    """A model exchange for the proposal of this number, or (None) for the Analyst."""

    kind: Literal["exchanged"] = "exchanged"
    number: int | None = None
    exchange: Exchange


class Worked(_Event):
    """The last step of an agent that varies a candidate, ``who`` by :func:`who_varies`; or of the search at its end."""

    kind: Literal["worked"] = "worked"
    who: str
    text: str
    step: StepKind = "tool"


def who_varies(operator: str, parents: Sequence[int]) -> str:
    """The name of an operator at work on a candidate."""
    return f"{operator} on candidate {parents[0]}" if parents else operator


class Suggested(_Event):
    """A suggested new direction after gains have stopped; a person accepts, edits or rejects it."""

    kind: Literal["suggested"] = "suggested"
    round: int
    text: str
    #: The operators that it prefers.
    prefer: tuple[str, ...] = ()


class Unknown(_Event):
    """An event of a later kernellab: the run is shown without it, and continues only in that version."""

    kind: Literal["unknown"] = "unknown"
    named: str = ""


class Steered(_Event):
    """A person's action."""

    kind: Literal["steered"] = "steered"
    action: Action
    #: The candidate (protect, drop) or the island (freeze, thaw).
    number: int | None = None
    #: Only the changed ones: two processes may each change a different one.
    knobs: dict[str, Any] | None = None
    proposal: Proposal | None = None
    text: str = ""


class Ended(_Event):
    """The run has ended."""

    kind: Literal["ended"] = "ended"
    status: Status
    reason: str


Event = Annotated[
    Begun | Proposed | Evaluated | Verified | Remeasured | Paired | Migrated | RoundEnded | Exchanged | Worked
    | Suggested | Steered | Ended,
    Field(discriminator="kind"),
]  # fmt: skip

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def _plain(sketch: str) -> str:
    """A sketch without comments and whitespace."""
    lines = (line.split("#", 1)[0].split() for line in sketch.splitlines())
    return "\n".join(" ".join(words) for words in lines if words)
