"""Python's half of the monitor's protocol, as ``widgets/src/monitor/protocol.ts`` has it.

A test compares both, field by field.
"""

from __future__ import annotations

from typing import TypedDict

from kernellab.notebook.protocol import ComparedRow, Diagnostic, Download, NamedText

PROTOCOL = 1


class Head(TypedDict):
    """Small, changes often."""

    protocol: int
    run: str
    #: the task's name
    name: str
    dsl: str
    target: str
    status: str
    status_text: str
    reason: str
    #: the last decision that could not be carried out
    message: str
    #: what a row's `value` is: "speedup" over the reference, or "modelled", ms by the cost model
    measure: str
    policy: str
    #: does the kernel of this notebook work on it?
    works_here: bool
    can: dict[str, bool]
    best: int | None
    best_text: str
    first_text: str
    candidates: int
    waiting: int
    round: int
    islands: list[Island]
    lines: list[Line]
    #: [evaluations, candidate]: who was the verified best from when on
    improvements: list[list[int]]
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
    state: str
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
    tokens: int


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
    children: list[int]
    steps: list[StepRow]
    facts: list[NamedText]
    #: what may be done with it
    can: dict[str, bool]


class Comparison(TypedDict):
    """Two candidates side by side; `verdict` is one sentence, `diff` a unified diff of their texts."""

    a: int
    b: int
    verdict: str
    rows: list[ComparedRow]
    diff: str


class Checked(TypedDict):
    diagnostics: list[Diagnostic]


__all__ = [
    "PROTOCOL",
    "Candidate",
    "Cell",
    "Checked",
    "ComparedRow",
    "Comparison",
    "Diagnostic",
    "Download",
    "Figures",
    "Head",
    "Island",
    "Knob",
    "Line",
    "NamedText",
    "OperatorTotal",
    "Round",
    "Row",
    "Rows",
    "StepRow",
    "StepTotal",
]
