"""What the kernel and the workbench say to each other: one anywidget a session.

State travels in traits (these records), so that a reload of the page redraws it; it is the journal's, never the front
end's. Questions travel as custom messages with an id (``board/requests.py``), answered by the same id
(``answers.py``). All ignore unknown fields. ``widgets/src/protocol.ts`` is written from these; ``make fixtures`` dumps
real ones into ``widgets/fixtures``.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from kernellab.records import Author, Role
from kernellab.session.record.records import QuestionKind, SessionStatus

PROTOCOL = 1

#: a word with the enumeration that it is a value of
StatusWord = Annotated[str, SessionStatus]
RoleWord = Annotated[str, Role]
AuthorWord = Annotated[str, Author]
CardKind = Annotated[str, QuestionKind]
Button = Literal["step", "run", "pause", "fork", "undo", "stop", "approve", "edit", "tune"]
TurnWord = Literal["running", "done", "failed", "passed", "waiting", "superseded", "stopped"]
StageWord = Literal["passed", "failed", "running", "not reached", "skipped"]
Severity = Literal["error", "warning", "info"]
Language = Literal["cpp", "python", "cuda", "text"]


class Head(TypedDict):
    """Small, changes often."""

    protocol: int
    #: the session's id in the journal; `name` is the variable that it is bound to
    id: str
    name: str
    #: "f32 [M, N] -> f32 [M, N]", "cpp on 2-core AVX-512"
    operator: str
    target: str
    dsl: str
    status: StatusWord
    status_text: str
    #: a sentence each: why the status is what it is, and the last decision that could not be carried out
    reason: str
    message: str
    #: what the running verification does: "correct: case 7 of 14; about 4 s left"; or which comparison is being timed
    doing: str
    current: str | None
    #: "Next: Coder (rules), about 1 s, no tokens"; "" while a turn runs and once nothing follows
    next: str
    approval: str
    roles: dict[str, str]
    role_choices: dict[str, list[str]]
    notes: dict[str, list[str]]
    can: dict[Button, bool]
    card: Card | None
    best: BestFigures | None
    ledger: LedgerFigures | None
    teaching: bool
    prediction: Prediction | None
    comparing: bool
    sol_ms: float | None
    #: how the best kernel is called from a cell, "" while eager is to be kept
    call: str


class Figure(TypedDict):
    #: what is shown: "2.9x"
    text: str
    #: baseline, interval, trust level and machine in words
    title: str


class Speedup(TypedDict):
    """Against a baseline, with its interval: above 1 is faster."""

    baseline: str
    value: float
    low: float
    high: float
    text: str
    title: str


class Headroom(TypedDict):
    """The share of the speed-of-light bound that is reached, None where the bound cannot be believed."""

    share: float | None
    text: str
    title: str


class BestFigures(TypedDict):
    turn: str
    number: int
    time: Figure | None
    speedups: list[Speedup]
    #: share of the speed-of-light bound reached, 0..1
    headroom: Headroom | None
    trust: str
    label: str
    #: numbers of the candidates whose intervals overlap that of the best
    tied: list[int]


class LedgerFigures(TypedDict):
    #: input, cached and output, or "tokens not reported"
    tokens: str
    #: in dollars, or "cost not reported"; "" before the first token
    cost: str
    seconds: float
    budget: str
    #: what is odd about the models' answers
    warning: str
    text: str


class Card(TypedDict):
    """The question to the person, or (pending false) what was proposed at the shown turn."""

    id: str
    kind: CardKind
    role: str
    title: str
    text: str
    hint: str
    evidence: list[str]
    to: str | None
    suggestion: str
    pending: bool
    editable: bool
    #: may the role that is asked bring anything else, and keep what a person wrote? of a brief: is there one to keep?
    retry: bool


class Predicted(TypedDict):
    turn: str
    expected: float
    measured: float


class Prediction(TypedDict):
    """Teaching mode: what the person expects before the measurement."""

    asked: bool
    turn: str | None
    expected: float | None
    reason: str
    measured: float | None
    history: list[Predicted]


class TurnRow(TypedDict):
    """One row of the timeline; rows are in order of number."""

    id: str
    number: int
    parent: str | None
    role: RoleWord
    author: AuthorWord
    state: TurnWord
    on_path: bool
    depth: int
    #: 0 while it runs: the front end counts from `started` (seconds since the epoch)
    seconds: float
    started: float
    note: str
    tokens: int


class Diagnostic(TypedDict):
    line: int
    col: int
    end_line: int | None
    end_col: int | None
    code: str
    rule: str
    severity: Severity
    message: str
    remedy: str
    #: what to put in its place, where the checker knows
    fix: str | None


class StageRow(TypedDict):
    name: str
    state: StageWord
    seconds: float
    note: str


class GateView(TypedDict):
    state: str
    reason: str
    cases: int
    max_error: float | None


class Claim(TypedDict):
    text: str
    holds: bool | None
    why: str


class Remembered(TypedDict):
    title: str
    text: str
    why: str


class Detail(TypedDict):
    """About the turn that is looked at; changes when that turn does. ``judged`` is the number of the verdict's."""

    turn: str | None
    stages: list[StageRow]
    judged: int | None
    verdict: VerdictView | None
    gate: GateView | None
    diagnostics: list[Diagnostic]
    rationale: str
    claims: list[Claim]
    stopped: str
    error: str
    remedy: str
    exchanges: list[ExchangeHead]
    memory: list[Remembered]
    pins: list[int]


class NamedFigure(TypedDict):
    name: str
    text: str
    title: str


class ComparedSpeedup(TypedDict):
    baseline: str
    value: float
    low: float
    high: float
    distinguishable: bool
    text: str
    title: str


class FirstWrong(TypedDict):
    index: list[int]
    got: str
    want: str


class CompilerLine(TypedDict):
    file: str
    line: int | None
    message: str


class NamedText(TypedDict):
    name: str
    text: str


class Launch(TypedDict):
    kernel: str
    facts: list[NamedFigure]


class VerdictView(TypedDict):
    passed: bool
    stage: str
    reason: str
    #: what to do about a refusal; "" where it passed
    remedy: str
    trust: str
    trust_text: str
    label: str
    flags: list[str]
    figures: list[NamedFigure]
    comparisons: list[ComparedSpeedup]
    first_wrong: FirstWrong | None
    signature: str | None
    sizes: dict[str, int]
    error_map: list[str]
    compiler: list[CompilerLine]
    environment: list[NamedText]
    #: what a GPU counted, launch by launch; and why it did not, "" where nothing was to be counted
    launches: list[Launch]
    uncounted: str


class RooflinePoint(TypedDict):
    turn: str
    number: int
    intensity: float
    rate: float
    label: str
    best: bool


class BaselineRate(TypedDict):
    baseline: str
    rate: float


class SpeedupAt(TypedDict):
    turn: str
    number: int
    speedup: float
    low: float
    high: float


class Roofline(TypedDict):
    """Times in ms, intensities in flop/byte, rates in flop/s. Points are verdicts of the session's turns; of a long
    session the best, the newest and some between. The rates are 0 and there are no points where the chip's are not
    known."""

    peak_flops: float
    bandwidth: float
    ridge: float
    source: str
    points: list[RooflinePoint]
    baselines: list[BaselineRate]
    #: what the speedups of ``history`` are against: PyTorch eager, or NumPy
    against: str
    history: list[SpeedupAt]
    #: the task's Dims, at whose sizes kernels can be timed, and its own size of each
    dims: dict[str, int]


class ExchangeHead(TypedDict):
    id: str
    role: str
    purpose: str
    model: str
    finish: str
    error: str
    tokens: str
    seconds: float
    #: "recorded on 2026-11-21" where the answer is a replay, else ""
    recorded: str


class Texts(TypedDict):
    """Long and seldom changed; for the shown turn. `before` is what the line had before that turn's own sketch or
    source: the diffs' left sides. `files_before` holds only the files that differ (a file that is new has "" there)."""

    turn: str | None
    sketch: str
    sketch_before: str
    files: dict[str, str]
    files_before: dict[str, str]
    main_file: str
    begun_from: int | None  #: the turn whose code `files` are, where that is of an older sketch
    language: Language
    #: generated line -> sketch line, by file
    line_map: dict[str, dict[int, int]]
    #: names of texts that `artefact` fetches: ttir, ttgir, llir, ptx, sass, gimple, asm
    artefacts: list[str]
    reproduction: str
    log: str
    task: str


class Partial(TypedDict):
    """What a running model turn has written so far: the last few thousand of `length` characters; turn None when
    none. Where it waits for its next try, the text is why, and for how long; cut off: its process is gone."""

    turn: str | None
    role: str
    text: str
    length: int
    state: Literal["writes", "waits", "cut off"]


class Traits(TypedDict):
    """The model's traits by name."""

    head: Head
    turns: list[TurnRow]
    #: the rows that differ from ``turns``, which seldom is sent, or are new: a turn costs a few hundred bytes
    changed: list[TurnRow]
    detail: Detail
    #: of the whole session, so it changes only with a new measurement
    roofline: Roofline
    texts: Texts
    partial: Partial
    #: the turn looked at, "" follows the head; both sides set it
    shown: str
    #: grows every few seconds while the kernel lives
    beat: int
