"""Recorded exchanges as a model: no key, no network, and always the same answers.

A replay file is JSON lines: a header with the date and the models of the recording, then one
:class:`~kernellab.models.exchanges.Exchange` per line. A request is matched by its content, for any model and settings;
measured figures, remaining budgets and names of models may differ. If the prompts have changed since, it is matched by
its place: the most similar request of its purpose for the same task, and the reply states the difference.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from kernellab.errors import ModelError, ModelFault, refused
from kernellab.models import faults
from kernellab.models.chat import ChatReply, ChatRequest
from kernellab.models.exchanges import ChatMessage, Exchange, Finish, Usage
from kernellab.models.keys import scrub
from kernellab.records import Role

_FORMAT, _VERSION = "kernellab replay", 1
#: Finishes of an endpoint's replies; network faults and cancellations are not replayed.
_REPLAYED = (Finish.STOP, Finish.TRUNCATED, Finish.FILTERED, Finish.EMPTY)
#: Differences between two machines in the same prompt: measured figures, numbers of cases in a time limit, addresses,
#: scratch folders; and between two versions: the length of a helper that the prompt omits, and a comment about a
#: constant's other values.
_MEASURED = re.compile(
    r"0x[0-9a-fA-F]{4,}|/tmp/[^\s\"')]+"
    r"|[-+]?\d[\d_,]*(?:\.\d+)?(?:[eE][-+]?\d+)?\s?"
    r"(?:ns|us|µs|ms|s|min|[KMGT]i?B(?:/s)?|bytes/s|[GT]?FLOPS?(?:/s)?|GHz|MHz|%|x|×|cores|threads)(?![\w/])"
    r"|\d+ (?:small cases?|of \d+ sizes|lines: helpers)"
    r"|; budget left: [^\n]*?(?= Say who works next)"
    r"|(?://|#) (?:one of|fixed here; the sketch takes) [^\n]*(?:\nstatic_assert\([^\n]*)?"
    r"|[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+"
)

#: The task in a prompt: a heading and the signature, then usually the reference.
_TASK = re.compile(r"^# The task[^\n]*\n[^\n]*", re.MULTILINE)
_CODE = re.compile(r"^```python\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
#: The mark of a model that was itself a recording.
_MARK = re.compile(r" ?\(recorded on [^)\n]*\)")


@dataclass(frozen=True)
class Replay:
    """A replay file's content. ``recorded`` is its date (ISO), ``models`` the names that answered."""

    path: Path
    recorded: str
    models: tuple[str, ...]
    note: str
    exchanges: tuple[Exchange, ...]

    @property
    def mark(self) -> str:
        """The mark of everything that is replayed."""
        return f"recorded on {self.recorded} with {', '.join(self.models) or 'no model'}"


def write_replay(path: Path, exchanges: Iterable[Exchange], note: str = "") -> Path:
    """Write ``exchanges`` as a replay file, atomically; keys that this process has read are removed."""
    recorded = tuple(exchanges)
    first = min((exchange.started for exchange in recorded), default=0.0)
    header = {
        "format": _FORMAT, "version": _VERSION, "note": note,
        "recorded": datetime.fromtimestamp(first, timezone.utc).date().isoformat(),
        "models": sorted({exchange.answered_by for exchange in recorded}),
    }  # fmt: skip
    lines = [json.dumps(header, ensure_ascii=False), *(exchange.model_dump_json() for exchange in recorded)]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(scrub("\n".join(lines) + "\n"), encoding="utf-8")
    draft.replace(path)
    return path


def read_replay(path: Path) -> Replay:
    """Read a replay file.

    Raises:
        ModelError: the file does not exist or is not a replay file, or a line is not an exchange (the message names
        it).
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines would also split inside texts
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _unusable(f"The replay file {path} cannot be read: {reason}.") from None
    try:
        header = json.loads(lines[0])
    except (ValueError, RecursionError):  # unbalanced brackets
        header = {}
    if not isinstance(header, Mapping) or header.get("format") != _FORMAT:
        raise _unusable(f"{path} is not a replay file: its first line is not the header of one.")
    if header.get("version") != _VERSION:
        raise _unusable(f"{path} has version {header.get('version')} of the replay format, not {_VERSION}.")
    exchanges = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            exchanges.append(Exchange.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in fault["loc"])
            raise _unusable(f"{path}, line {number}: {place or 'the line'} is wrong: {refused(fault, 'it')}.") from None
    return Replay(
        path, str(header.get("recorded", "?")), tuple(map(str, header.get("models", ()))), str(header.get("note", "")),
        tuple(exchanges),
    )  # fmt: skip


class ReplayModel:
    """Answers as the file did. Equal requests are answered in the order of the recording.

    A request is matched verbatim first, then without measured figures (times, rates, decimals, scratch folders,
    addresses, budgets), then by its place. A recorded reply has no cost. Safe to use from several threads.
    """

    def __init__(self, replay: Replay, role: Role | None = None, by_place: bool = True) -> None:
        """``role`` limits the answers to those recorded for it; without ``by_place`` only the content is matched."""
        self.replay = replay
        self._by_place = by_place
        self._lock = threading.Lock()
        self._usable = [e for e in replay.exchanges if e.finish in _REPLAYED and role in (None, e.role)]
        #: By the key of a request's content or place, the indices of its exchanges in ``_usable``.
        self._indices: dict[str, list[int]] = defaultdict(list)
        for index, exchange in enumerate(self._usable):
            for key in _all_keys(exchange):
                self._indices[key].append(index)
        #: Indices of the exchanges that have answered a request.
        self._answered: set[int] = set()

    @property
    def name(self) -> str:
        return f"{', '.join(self.replay.models) or 'no model'} (recorded on {self.replay.recorded})"

    @property
    def price(self) -> None:
        return None

    @property
    def free(self) -> bool:
        return True

    @property
    def by_agent(self) -> bool:
        """Whether an agent answered in the recording."""
        return any(exchange.by_agent for exchange in self._usable)

    def __repr__(self) -> str:
        return f"ReplayModel({str(self.replay.path)!r}, {self.replay.mark})"

    def skip(self, exchanges: Iterable[Exchange]) -> None:
        """Mark ``exchanges`` as answered: a reopened session continues at its position."""
        for exchange in exchanges:
            if exchange.finish in _REPLAYED:
                self._next(_all_keys(exchange))

    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """Return the recorded reply.

        Raises:
            ModelError: kind ``no-answer``: nothing was recorded for this request; the message names the nearest
            recorded one
                and the first difference.
        """
        if cancel is not None and cancel.is_set():
            raise faults.cancelled()
        keys = _keys(request.messages, request.schema)
        exchange = self._next(keys)
        note = ""
        if exchange is None:
            exchange = self._most_similar(request) if request.purpose and self._by_place else None
            if exchange is None:
                raise self._no_answer(request)
            note = f"The prompt has changed since; {_difference(exchange, request)}."
        if on_text is not None and exchange.reply:
            on_text(exchange.reply)
        return ChatReply(
            text=exchange.reply, reasoning=exchange.reasoning, finish=exchange.finish, usage=Usage(),
            model=exchange.model, seconds=0.0, attempts=exchange.attempts, note=note, recorded_at=self.replay.recorded,
            steps=exchange.steps, others=exchange.others, by_agent=exchange.by_agent,
        )  # fmt: skip

    def _next(self, keys: Sequence[str]) -> Exchange | None:
        with self._lock:
            for key in keys:
                for index in self._indices.get(key, ()):
                    if index not in self._answered:
                        self._answered.add(index)
                        return self._usable[index]
        return None

    def _most_similar(self, request: ChatRequest) -> Exchange | None:
        """The most similar unanswered request at this place; the first of several."""
        task = _task_in(request.messages)
        if not task:
            return None
        request_lines = {_masked(line) for line in _lines(request.messages)}
        with self._lock:
            unanswered = [i for i in self._indices.get(_place(request.purpose, task), ()) if i not in self._answered]
            if not unanswered:
                return None
            common_lines = {
                i: {_masked(line) for line in _lines(self._usable[i].messages)} & request_lines for i in unanswered
            }
            frequency = Counter(line for lines in common_lines.values() for line in lines)
            # a line that few recorded requests have is the most significant
            index = max(unanswered, key=lambda i: (sum(1 / frequency[line] for line in common_lines[i]), -i))
            self._answered.add(index)
            return self._usable[index]

    def _no_answer(self, request: ChatRequest) -> ModelError:
        remedy = "Record it with a model (`model`), or take back the change that altered the prompt."
        file_name = self.replay.path.name
        request_lines = _lines(request.messages)
        if not self._usable:
            return ModelError(ModelFault.NO_ANSWER, f"{file_name} holds no answer for this role.", remedy)
        key = _keys(request.messages, request.schema).unmeasured
        matches = sum(_keys(e.messages, e.schema_).unmeasured == key for e in self._usable)
        if matches:
            times = "once" if matches == 1 else f"{matches} times"
            return ModelError(
                ModelFault.NO_ANSWER, f"{file_name} answers this request {times}, and it was asked once more.", remedy
            )
        nearest = max(self._usable, key=lambda e: _likeness(request_lines, _lines(e.messages)))
        number = self.replay.exchanges.index(nearest) + 1
        return ModelError(
            ModelFault.NO_ANSWER,
            f"{file_name} holds no answer to this request. The nearest is number {number} ({nearest.role.value}, "
            f"{nearest.purpose}); {_difference(nearest, request)}.",
            remedy,
        )  # fmt: skip


class _Keys(NamedTuple):
    """The identity of a request: verbatim, and without measured figures."""

    exact: str
    unmeasured: str


def _keys(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> _Keys:
    form = json.dumps(schema, sort_keys=True) if schema else ""
    verbatim = "\0".join([form, *(f"{message.role}\0{message.content.strip()}" for message in messages)])
    return _Keys(_hash("exact", verbatim), _hash("unmeasured", _masked(verbatim)))


def _all_keys(exchange: Exchange) -> tuple[str, ...]:
    """The keys by which a recorded exchange is found, the most certain first."""
    place = _place(exchange.purpose, _task_in(exchange.messages))
    return (*_keys(exchange.messages, exchange.schema_), place)


def _masked(text: str) -> str:
    """Return ``text`` without the differences between two runs of the same session."""
    return _MEASURED.sub("#", _MARK.sub("", text))


def _task_in(messages: Sequence[ChatMessage]) -> str:
    """The task in a prompt: its reference's text, or its heading and signature; empty if there is none."""
    text = "\n".join(message.content for message in messages)
    heading = _TASK.search(text)
    if heading is None:
        return ""
    code = _CODE.search(text, heading.end())
    next_heading = text.find("\n# ", heading.end())
    return code["text"] if code is not None and (next_heading < 0 or code.start() < next_heading) else heading.group()


def _place(purpose: str, task: str) -> str:
    """The place of a request in the work."""
    return _hash("place", f"{purpose}\0{task}")


def _hash(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def _lines(messages: Sequence[ChatMessage]) -> list[str]:
    return [line for message in messages for line in (f"[{message.role}]", *message.content.strip().splitlines())]


def _likeness(a: list[str], b: list[str]) -> float:
    """Share of common lines: a fast estimate, because it is computed for every recorded request."""
    return difflib.SequenceMatcher(None, a, b, autojunk=False).quick_ratio()


def _difference(recorded: Exchange, request: ChatRequest) -> str:
    """The first difference in words; figures may differ."""
    for number, (old, new) in enumerate(zip(recorded.messages, request.messages, strict=False), start=1):
        if old.role != new.role:
            return f"its message {number} is from {old.role}, here from {new.role}"
        old_lines, new_lines = old.content.strip().splitlines(), new.content.strip().splitlines()
        for line, (a, b) in enumerate(zip(old_lines, new_lines, strict=False), start=1):
            if _masked(a) != _masked(b):
                place = f"in message {number} ({old.role}), line {line}"
                return f"{place}, it has {_crop(a, b)} where this has {_crop(b, a)}"
        if len(old_lines) != len(new_lines):
            subject, rest = ("it has", old_lines) if len(old_lines) > len(new_lines) else ("this has", new_lines)
            line = min(len(old_lines), len(new_lines))
            return (
                f"in message {number} ({old.role}), line {line + 1}, {subject} one more line: {_crop(rest[line], '')}"
            )
    if len(recorded.messages) != len(request.messages):
        return f"it has {len(recorded.messages)} messages, this has {len(request.messages)}"
    return "the same messages were asked with another answer schema"


def _crop(line: str, other: str) -> str:
    """``line`` around the place where it differs from ``other``."""
    place = next((i for i, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), 0)
    start = max(place - 30, 0)
    return repr(("..." if start else "") + line[start : start + 80] + ("..." if len(line) > start + 80 else ""))


def _unusable(message: str) -> ModelError:
    return ModelError(ModelFault.CONFIG, message, "Give a file that kernellab recorded.")
