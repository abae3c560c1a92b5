"""What the kernel and the monitor of a search say to each other: one anywidget a run.

State travels in traits; rows travel as messages, each change once. A page that misses some sees it by the trait
``version`` and asks for them. The front end's ``widgets/src/monitor/protocol.ts`` is written from these records.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from kernellab.evolve.records import Status
from kernellab.notebook.answers import Checked, ComparedRow, Completion, Download, Hover
from kernellab.notebook.board.requests import AskAt, AskCheck
from kernellab.notebook.protocol import NamedText

PROTOCOL = 1

StatusWord = Annotated[str, Status]
RunButton = Literal["pause", "resume", "stop", "steer", "work", "remember"]
CandidateButton = Literal["protect", "drop", "open"]
CandidateWord = Literal["waiting", "untried", "passed", "verified", "flagged", "failed", "repeat", "dropped"]


class Head(TypedDict):
    """Small, changes often."""

    protocol: int
    run: str
    #: the task's name
    name: str
    dsl: str
    target: str
    status: StatusWord
    status_text: str
    reason: str
    #: the last decision that could not be carried out
    message: str
    #: what a row's `value` is: "speedup" over the reference, or "modelled", ms by the cost model
    measure: Literal["speedup", "modelled"]
    policy: str
    #: does the kernel of this notebook work on it?
    works_here: bool
    can: dict[RunButton, bool]
    best: int | None
    best_text: str
    first_text: str
    #: the other verified candidates that are not certainly slower than the best
    tied: list[int]
    candidates: int
    waiting: int
    round: int
    islands: list[Island]
    lines: list[Line]
    #: [evaluations, candidate]: who was the verified best from when on
    improvements: list[list[int]]
    #: seconds since the epoch, later by its breaks; and seconds from then to its last event
    began: float
    spent: float
    #: seconds that its further rounds take, about: at the pace of its work up to now; None where it is not known
    left: float | None
    #: "12,400 tokens", "tokens not reported", or ""
    tokens: str
    #: a direction that the run proposes and a person decides on, "" for none
    suggestion: str


class Island(TypedDict):
    number: int
    size: int
    best: int | None
    frozen: bool


class Line(TypedDict):
    """A level to compare with, as a speedup over eager."""

    name: str
    value: float
    title: str


class Row(TypedDict):
    """A candidate. `value`, `low` and `high` are in the head's measure; `at` is its place in the order of evaluation,
    from 1, None while it waits."""

    number: int
    round: int
    island: int
    operator: str
    author: str
    parents: list[int]
    state: CandidateWord
    protected: bool
    at: int | None
    value: float | None
    low: float | None
    high: float | None
    text: str
    #: the step that it failed, "" where it failed none
    step: str
    reason: str
    seconds: float


class Rows(TypedDict):
    """Rows that changed after version `since`; `version` is that of the last. More are to be asked for where the
    trait's version is higher."""

    since: int
    version: int
    rows: list[Row]


class Figures(TypedDict):
    """What is known of the whole run; at most once a second."""

    rounds: list[Round]
    steps: list[StepTotal]
    operators: list[OperatorTotal]
    cells: list[Cell]
    knobs: list[Knob]
    ledger: list[NamedText]
    scratchpad: str
    direction: str


class Round(TypedDict):
    """`after` is how many candidates were evaluated when it ended."""

    round: int
    evaluations: int
    after: int
    best: int | None
    value: float | None
    text: str
    plan: str
    author: str
    prefer: list[str]


class StepTotal(TypedDict):
    name: str
    seen: int
    refused: int
    seconds: float


class OperatorTotal(TypedDict):
    #: `gain` is the sum of the logarithms of what its children improved
    name: str
    tries: int
    gain: float
    seconds: float
    tokens: str


class Cell(TypedDict):
    """The best candidate of one kind: on-chip bytes are in powers of four, flop/byte in powers of two."""

    technique: str
    footprint: int
    stages: int
    intensity: int
    number: int


class Knob(TypedDict):
    """`options` are what it may be, empty where anything of its kind may be."""

    name: str
    value: str
    options: list[str]
    title: str


class StepRow(TypedDict):
    name: str
    seconds: float
    passed: bool


class Candidate(TypedDict):
    number: int
    sketch: str
    files: dict[str, str]
    why: str
    inspirations: list[int]
    steps: list[StepRow]
    facts: list[NamedText]
    #: what may be done with it
    can: dict[CandidateButton, bool]


class Comparison(TypedDict):
    """Two candidates side by side; `verdict` is one sentence, `diff` a unified diff of their texts."""

    a: int
    b: int
    verdict: str
    rows: list[ComparedRow]
    diff: str


class Traits(TypedDict):
    head: Head
    figures: Figures
    #: that of the row which changed last
    version: int
    beat: int


class Command(TypedDict):
    action: Literal["pause", "resume", "stop", "work", "refuse", "remember"]


class Inject(TypedDict):
    action: Literal["inject"]
    text: str
    island: int
    why: str


class OfCandidate(TypedDict):
    action: Literal["protect", "drop", "open"]
    number: int


class OfIsland(TypedDict):
    action: Literal["freeze", "thaw"]
    island: int


class SetKnob(TypedDict):
    action: Literal["knob"]
    name: str
    value: str


class Write(TypedDict):
    """``accept`` takes the direction that is proposed, as it is or as edited."""

    action: Literal["scratchpad", "direction", "accept"]
    text: str


Act = Command | Inject | OfCandidate | OfIsland | SetKnob | Write
"""A person's decision; each but ``open`` and ``remember`` is an event of the run."""


class AskRows(TypedDict):
    ask: Literal["rows"]
    since: int


class AskCandidate(TypedDict):
    ask: Literal["candidate"]
    number: int


class AskCompare(TypedDict):
    ask: Literal["compare"]
    a: int
    b: int


class AskReport(TypedDict):
    ask: Literal["report"]


Ask = AskRows | AskCandidate | AskCompare | AskCheck | AskAt | AskReport


class Answers(TypedDict):
    """What each question is answered with."""

    rows: Rows
    candidate: Candidate
    compare: Comparison
    check: Checked
    complete: list[Completion]
    hover: Hover | None
    report: Download
