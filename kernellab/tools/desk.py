"""What one turn may call: tools that look and try, for the turn's task alone, and the one that answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from kernellab.errors import KernellabError
from kernellab.models import scrub
from kernellab.models.exchanges import Step
from kernellab.records import Author
from kernellab.session.record.events import Note
from kernellab.tools.context import Context
from kernellab.tools.records import Request, Result, Text, ToolError
from kernellab.tools.tool import Tool, call, failed, tools
from kernellab.verifier.protocol.sanitize import shown

#: none of them writes to the workspace, and none shows other sessions
_OF_A_TURN = (
    "describe_task", "check_sketch", "gate_sketch", "run_sketch", "cost_sketch", "lower_sketch", "search_documents",
    "read_document", "list_documents", "chip_facts", "search_memory", "rank_source", "verify_source", "lens",
)  # fmt: skip
_OF_A_SEARCH = ("search_status", "search_lineage")
SUBMIT = "submit_answer"
#: characters of a step's text and result in the journal
_KEPT = 6000
#: steps of one turn: an agent that does more repeats itself, and each is kept in the journal
MOST_STEPS = 4000
#: answers of a turn in a search: each is kept and judged
MOST_ANSWERS = 30


class AnswerRequest(Request):
    answer: Text = Field(description="The whole answer, in the form that the brief asks for.")


@dataclass
class Desk:
    """One turn's tools: ``most`` calls, each a :class:`Step` that ``record`` gets. Safe to use from several threads.

    ``notes`` gives what the role has been told up to now; what is new goes along with the next result.
    """

    context: Context
    most: int
    record: Callable[[Step], None] = lambda step: None
    notes: Callable[[], tuple[Note, ...]] = tuple
    #: those of them that the brief holds
    briefed: tuple[Note, ...] = ()
    search: bool = False
    #: may the memory be searched?
    memory: bool = True
    #: called before each call
    before: Callable[[], object] = lambda: None
    #: may more than one answer be submitted?
    several: bool = False
    #: what was submitted, the last as the answer proper
    answers: list[str] = field(default_factory=list)
    used: int = 0
    steps: list[Step] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        names = [name for name in _OF_A_TURN if self.memory or name != "search_memory"]
        names += _OF_A_SEARCH if self.search else ()
        sentence = (
            "Submit the answer of this turn, in the form that the brief asks for. It is judged when you have ended."
        )
        submit = Tool(SUBMIT, sentence, AnswerRequest, Result, self._submit)
        self.tools: Mapping[str, Tool] = {**{name: tools()[name] for name in names}, SUBMIT: submit}
        self._told = set(self.briefed)

    @property
    def task(self) -> str:
        """The name of the turn's task."""
        assert self.context.bound is not None
        return self.context.bound.name

    def call(self, name: str, arguments: Mapping[str, Any], context: Context) -> Result:
        """The tool's result, recorded. Raises KernellabError, as :func:`kernellab.tools.call`."""
        self.before()
        began = time.time()
        with self._lock:
            self.used += 1
            over = self.used > self.most and name != SUBMIT
        text, result, failed = json.dumps(dict(arguments), ensure_ascii=False), "", False
        try:
            if over:
                raise ToolError(f"The {self.most} tool calls of this turn are used up.", f"Answer now: {SUBMIT}.")
            found = call(name, arguments, context, self.tools)
            result = found.summary
            return found
        except Exception as error:
            result, failed = str(error), True
            raise
        finally:
            self.add(Step(
                kind="tool", title=name, text=text, result=result, failed=failed, started=began,
                seconds=time.time() - began,
            ))  # fmt: skip

    def text(self, name: str, arguments: str) -> str:
        """The result as a model reads it; what cannot be done is a sentence with its remedy."""
        try:
            found = self.call(name, _read(arguments), self.context).model_dump_json(exclude_none=True)
        except json.JSONDecodeError as error:
            with self._lock:
                self.used += 1
            found = f"{name}: the arguments are no JSON object: {error}."
            self.add(Step(kind="tool", title=name, text=arguments, result=found, failed=True, started=time.time()))
        except KernellabError as error:
            found = str(error)
        except Exception as error:  # the turn outlives a fault of one tool
            found = failed(name, error)
        return shown(scrub("\n".join(filter(None, (found, self.news())))))

    def news(self) -> str:
        """What the role has been told since the last call; "" for nothing."""
        new = [note for note in self.notes() if note not in self._told]
        self._told |= set(new)
        said = list[str]()
        for note in new:
            person = note.author is Author.HUMAN
            title = f"{'a person' if person else 'another agent'}'s note"
            self.add(Step(kind="note", title=title, text=note.text, started=time.time()))
            said.append(f"{'A person' if person else 'A note'} says: {note}")
        return "\n".join(said)

    def add(self, step: Step) -> None:
        # a key that a tool or an agent came across is not kept
        texts = {"title": step.title, "text": step.text, "result": step.result}
        kept = step.model_copy(update={name: shown(scrub(text)[:_KEPT]) for name, text in texts.items()})
        with self._lock:
            self.steps.append(kept)
        self.record(kept)

    def note(self, title: str, text: str = "") -> None:
        self.add(Step(kind="note", title=title, text=text, started=time.time()))

    def shown(self) -> str:
        """The steps as a person reads them while the turn works."""
        return "\n\n".join(map(str, self.steps))

    def _submit(self, context: Context, request: AnswerRequest) -> Result:
        with self._lock:
            if not self.several:
                self.answers.clear()
            if len(self.answers) == MOST_ANSWERS:
                raise ToolError(f"{MOST_ANSWERS} answers of this turn are taken, which is the limit.", "End your turn.")
            if request.answer not in self.answers:
                self.answers.append(request.answer)
            count = len(self.answers)
        if not self.several:
            return Result(summary="The answer is taken.", next="End your turn; what is wrong comes back to you.")
        return Result(
            summary=f"Answer {count} is taken.",
            next="Submit another, different one, or end your turn: each is judged when you have ended.",
        )


def _read(arguments: str) -> dict[str, Any]:
    """Raises JSONDecodeError: it is no JSON object."""
    read = json.loads(arguments or "{}")
    if not isinstance(read, dict):
        raise json.JSONDecodeError(f"it is a {type(read).__name__}", arguments, 0)
    return read
