"""The workbench's messages: what a person decides (``Act``), what the front end asks (``Ask``), and the replies.

Each travels in an envelope with an id, which its reply repeats::

    {"id": "page1-7", "body": {"action": "pin", "line": 4, "on": true}}    ->  {"kind": "done", "id": "page1-7"}
    {"id": "page1-8", "body": {"ask": "check", "text": "sketch ..."}}      ->  {"kind": "answer", "id": "page1-8",
                                                                                "value": {"diagnostics": [], ...}}

What the ``value`` of each answer is says ``notebook/answers.py``.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Move(TypedDict):
    action: Literal["step", "run", "pause", "stop", "undo"]


class _CardAct(TypedDict):
    #: the id of the card that was answered: when it is not the open one any more, the answer is an error
    card: str


class _Approve(_CardAct):
    action: Literal["approve"]


class Approve(_Approve, total=False):
    to: str
    suggestion: str


class AnswerCard(_CardAct):
    action: Literal["answer"]
    text: str


class EditSketch(TypedDict):
    """``base`` is the turn whose text was edited (Texts.turn when the edit began, "" when it does not matter): when the
    head has another text since, the answer is an error, unless ``shown`` is that turn: then it is a fork."""

    action: Literal["sketch"]
    text: str
    base: str


class EditSource(TypedDict):
    """``base`` as of a sketch."""

    action: Literal["source"]
    files: dict[str, str]
    base: str


class Fork(TypedDict):
    action: Literal["fork"]
    turn: str


class SetApproval(TypedDict):
    action: Literal["approval"]
    value: str


class SetRole(TypedDict):
    action: Literal["role"]
    role: str
    value: str


class Note(TypedDict):
    action: Literal["note", "unnote"]
    role: str
    text: str


class Pin(TypedDict):
    action: Literal["pin"]
    line: int
    on: bool


class Predict(TypedDict):
    """``expected`` None lets the measurement go on without a prediction."""

    action: Literal["predict"]
    expected: float | None
    reason: str


class SetBudget(TypedDict):
    """tokens=200000,usd=1,minutes=10; "" takes it away."""

    action: Literal["budget"]
    value: str


class Analyse(TypedDict):
    """A turn of the Analyst's next to the line; "" asks for a summary."""

    action: Literal["analyse"]
    question: str


class Remember(TypedDict):
    """What the session has verified goes into the memory."""

    action: Literal["remember"]


class Forget(TypedDict):
    """An entry of the memory: out of the store and of every later prompt."""

    action: Literal["forget"]
    id: str


class Judge(TypedDict):
    action: Literal["judge"]
    id: str
    thumb: int
    pinned: bool


class Tune(TypedDict):
    """The rules' designs are measured against each other, and the fastest is verified."""

    action: Literal["tune"]


class TimeAgain(TypedDict):
    """Two to eight verified candidates, by their turns, timed in one run at sizes of the task's Dims ({}: its own)."""

    action: Literal["time_again"]
    turns: list[str]
    sizes: dict[str, int]


class Insert(TypedDict):
    """A kernel cannot put a cell into the notebook by itself; the note says how it gets there. Copy it as well."""

    action: Literal["insert"]
    text: str


Act = (
    Move | Approve | AnswerCard | EditSketch | EditSource | Fork | SetApproval | SetRole | Note | Pin | Predict
    | SetBudget | Analyse | Remember | Forget | Judge | TimeAgain | Tune | Insert
)  # fmt: skip
"""A person's decision. Answered by ``Done``; the same id sent twice is carried out once."""


class AskCheck(TypedDict):
    """A check that a newer one has overtaken is answered by the error "superseded"."""

    ask: Literal["check"]
    text: str


class AskAt(TypedDict):
    """``line`` and ``col`` from 1."""

    ask: Literal["complete", "hover"]
    text: str
    line: int
    col: int


class AskExchange(TypedDict):
    ask: Literal["exchange"]
    exchange: str


class AskBrief(TypedDict):
    ask: Literal["brief"]


class AskArtefact(TypedDict):
    """Of the shown turn."""

    ask: Literal["artefact"]
    name: str


class _Page(TypedDict):
    ask: Literal["candidates"]
    offset: int
    limit: int


class AskCandidates(_Page, total=False):
    sort: Literal["number", "speedup"]


class AskCompare(TypedDict):
    """``a`` and ``b`` are ids of turns."""

    ask: Literal["compare"]
    a: str
    b: str


class AskExplain(TypedDict):
    """Of the shown turn."""

    ask: Literal["explain"]
    what: Literal["verdict", "speed"]


class AskTouches(TypedDict):
    """Of a sketch's text."""

    ask: Literal["touches"]
    text: str


class AskHeat(TypedDict):
    """Of the shown turn's code."""

    ask: Literal["heat"]


class AskSizes(TypedDict):
    """The sizes of a Dim at which the best kernel is timed."""

    ask: Literal["sizes"]
    dim: str


class AskSize(TypedDict):
    """The best kernel timed at one of them, which takes a second or more."""

    ask: Literal["size"]
    dim: str
    size: int


class AskMemory(TypedDict):
    """No words: kernels of computations like this task's."""

    ask: Literal["memory"]
    words: str


class AskExport(TypedDict):
    """The best as a module, or all candidates as CSV."""

    ask: Literal["export"]
    what: Literal["module", "candidates"]


Ask = (
    AskCheck | AskAt | AskExchange | AskBrief | AskArtefact | AskCandidates | AskCompare | AskExplain | AskTouches
    | AskHeat | AskSizes | AskSize | AskMemory | AskExport
)  # fmt: skip
"""A question of the front end's. Answered by ``Answer``."""


class Ping(TypedDict):
    """Answered at once, whatever else is under way: is the line to the kernel whole?"""

    ping: Literal[True]


class _Done(TypedDict):
    kind: Literal["done"]
    id: str


class Done(_Done, total=False):
    """A decision was taken."""

    #: a sentence with its remedy: nothing was done
    error: str
    #: a sentence to show
    note: str


class _Answer(TypedDict):
    kind: Literal["answer"]
    id: str


class Answer(_Answer, total=False):
    value: object
    error: str


FromKernel = Done | Answer
"""The reply to a message of the same id."""
