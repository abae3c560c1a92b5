"""What the front end's questions are answered with: the ``value`` of an answer, by the question's name in ``Answers``.

``widgets/src/protocol.ts`` is written from these too.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from kernellab.notebook.protocol import Diagnostic, ExchangeHead, Figure, NamedFigure

CompletionKind = Literal["name", "operation", "hint", "keyword", "type"]
Expected = Literal["sketch", "code", "route"]


class Checked(TypedDict):
    """Answer to "check"; cost and footprint are words with numbers, empty when the sketch cannot be costed. Right after
    a kernel has started the task's sizes are not known for a few seconds: ask again when `head.operator` changes."""

    diagnostics: list[Diagnostic]
    cost: list[Figure]
    pins: list[int]


class Completion(TypedDict):
    """`insert` replaces the word before the cursor: the letters, digits, `_` and `.` that end there."""

    label: str
    kind: CompletionKind
    detail: str
    info: str
    insert: str


Hover = TypedDict("Hover", {"title": str, "text": str, "from": tuple[int, int], "to": tuple[int, int]})
"""`from` and `to` are [line, col] from 1, `to` behind the last character; `text` is plain, with line breaks."""


class Brief(TypedDict):
    """What the role that a person holds receives: the same text that a model gets."""

    role: str
    text: str
    #: what an answer looks like: a sketch's text, a kernel's files, or a route with a suggestion
    expects: Expected


class Artefact(TypedDict):
    """`lines` maps the artefact's lines to those of `file`, where the compiler kept them; `facts` are what the
    compiler's texts tell, a sentence in each title."""

    name: str
    text: str
    language: Literal["asm", "mlir", "ptx", "text"]
    file: str
    lines: dict[int, int]
    facts: list[NamedFigure]


class CandidateRow(TypedDict):
    """A Coder's turn and its verdict's figures, None without one: the speedup's `value`, and `low` of its interval."""

    turn: str
    number: int
    author: str
    passed: bool | None
    on_path: bool
    trust: str
    time: Figure | None
    speedup: Figure | None
    value: float | None
    low: float | None
    note: str
    best: bool
    #: does its interval overlap that of the best?
    tied: bool


class CandidatePage(TypedDict):
    total: int
    offset: int
    rows: list[CandidateRow]


class ComparedRow(TypedDict):
    name: str
    a: str
    b: str
    title: str


class CandidateComparison(TypedDict):
    """Two candidates side by side; `verdict` is one sentence on the difference, `diff` a unified diff of all texts."""

    a: str
    b: str
    verdict: str
    rows: list[ComparedRow]
    diff: str


class TouchedTensor(TypedDict):
    #: `reads` and `writes` are how often each element is touched, flat and row-major
    name: str
    shape: list[int]
    dtype: str
    role: str
    reads: list[int]
    writes: list[int]


class TouchedPart(TypedDict):
    """One load or store: `tensor` is its place in `Touches.tensors`, `ranges` are [first, count] of flat elements."""

    tensor: int
    write: bool
    line: int
    ranges: list[list[int]]
    #: places past the tensor's edge
    outside: int


class MadeTile(TypedDict):
    """A tile that a statement sets, on chip: by a load, or computed."""

    name: str
    shape: list[int]
    line: int


class TouchStep(TypedDict):
    #: where the loops stand: "m = 0, n = 16"
    at: str
    parts: list[TouchedPart]
    tiles: list[MadeTile]


class Touches(TypedDict):
    """What a sketch loads and stores, step by step, at a small size; `steps` are the first of `total`. Nothing is
    drawn where `reason` says why."""

    sizes: str
    tensors: list[TouchedTensor]
    steps: list[TouchStep]
    total: int
    bytes: list[Figure]
    reason: str


class SaidMessage(TypedDict):
    role: str
    content: str


class BriefSection(TypedDict):
    name: str
    source: str
    tokens: int
    note: str


class Learnt(TypedDict):
    """What was learnt of an entry of the memory: the mean reward of its uses, 0..1."""

    mean: float
    uses: int


class MemoryHit(TypedDict):
    """An entry of the memory. A search by words has no scores."""

    id: str
    name: str
    why: str
    score: float | None
    logic: float | None
    shape: float | None
    value: float | None
    draft: Learnt
    refine: Learnt
    thumb: int
    pinned: bool
    #: why its figures do not hold here, "" where they do
    stale: str
    #: "session rms-1a2b, turn 4, by rules"
    provenance: str
    sketch: str


class MemoryPage(TypedDict):
    """``note`` says why there is no hit, and how a memory is begun."""

    hits: list[MemoryHit]
    note: str


class Download(TypedDict):
    """A file for the person to keep."""

    name: str
    text: str


class StepView(TypedDict):
    """What an agent, or a model with tools, did before its reply."""

    kind: str
    title: str
    text: str
    result: str
    failed: bool
    seconds: float


class ExchangeText(TypedDict):
    head: ExchangeHead
    messages: list[SaidMessage]
    reply: str
    reasoning: str
    steps: list[StepView]
    sections: list[BriefSection]


class SizePoint(TypedDict):
    """The best kernel at one size of a Dim; a size that was not timed says why in its `text`."""

    size: int
    ms: float | None
    speedup: float | None
    low: float | None
    high: float | None
    text: str


class HeatLine(TypedDict):
    line: int
    share: float
    text: str


class Heat(TypedDict):
    """Where a kernel's time goes: lines of `file` with their share of the samples, and sentences that say it; no file
    where no lines can be told."""

    file: str
    lines: list[HeatLine]
    told: list[str]


class ExplainedPoint(TypedDict):
    #: `because` is the fact of the record behind it, "" where the text is the fact
    text: str
    because: str


class Explained(TypedDict):
    """A verdict, or why its kernel is slow, by rules from the record; `question` is what a model would be asked."""

    title: str
    points: list[ExplainedPoint]
    advice: str
    question: str


class Answers(TypedDict):
    """What each question is answered with."""

    check: Checked
    complete: list[Completion]
    hover: Hover | None
    exchange: ExchangeText
    brief: Brief
    artefact: Artefact
    candidates: CandidatePage
    compare: CandidateComparison
    explain: Explained
    touches: Touches
    heat: Heat
    sizes: list[int]
    size: SizePoint
    memory: MemoryPage
    export: Download
