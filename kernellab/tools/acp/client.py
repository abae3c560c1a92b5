"""What an agent's program tells kernellab by the Agent Client Protocol, as steps of its turn; and what it may do."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernellab.models import THINKING, scrub
from kernellab.models.exchanges import Step, StepKind
from kernellab.tools.desk import MOST_STEPS, Desk
from kernellab.verifier.protocol.sanitize import shown

#: characters of what a person is shown of a call that asks for permission: its title; its arguments and changes each
_TITLE, _DETAIL = 300, 4000
#: characters of the texts between which a difference is looked for: the search takes their product
_COMPARED = 40_000
#: characters that an agent may say in its turn, what each message counts in addition, and one that JSON cannot hold
MOST_SAID, _EACH, _UNWRITTEN = 16_000_000, 16, 1000


#: kinds of calls that may concern an agent's own folder alone, where no one is there to be asked
_IN_A_FOLDER = {"read", "edit", "delete", "move", "search"}
_REFUSED = 'never, no one is asked here: --approve permission asks, permission = "allow" under [agents.NAME] grants all'
#: some agents give a call's arguments along with where it goes
_OF_A_CALL = {"server", "tool", "arguments"}


@dataclass(frozen=True)
class _Call:
    """A call of one of the agent's tools, as far as the agent has reported it; fields have the protocol's names."""

    started: float = field(default_factory=time.time)
    title: str = ""
    kind: Any = None
    raw_input: Any = None
    content: Any = ()
    locations: Any = ()

    def merged(self, update: Any) -> _Call:
        """Return the call with what ``update`` adds: a later report may leave out what was reported before."""
        names = ("title", "kind", "raw_input", "content", "locations")
        return replace(self, **{name: getattr(update, name, None) or getattr(self, name) for name in names})

    @property
    def diffs(self) -> list[Any]:
        """The changes of files."""
        return [part for part in self.content if getattr(part, "type", "") == "diff"]

    @property
    def paths(self) -> list[str]:
        """The files that it reads or changes."""
        return [str(place.path) for place in (*self.locations, *self.content) if hasattr(place, "path")]


class Client:
    """What the agent tells its client, as steps of the turn."""

    def __init__(self, desk: Desk, permit: Callable[[str, str], str], permission: str = "ask") -> None:
        self._desk, self._permit = desk, permit
        #: the pieces of the message or thought that is being written
        self._pieces: list[str] = []
        self._kind: StepKind = "message"
        #: calls that are not over, by their ids
        self._calls: dict[str, _Call] = {}
        #: a person's answer that holds for the rest of the turn: "turn", "never", or "" where there is none
        self._always = {"allow": "turn", "never": "never"}.get(permission, "")
        self._one_at_a_time = asyncio.Lock()
        #: is a person asked now?
        self.asks = False
        #: characters that it has said
        self._length = 0
        #: its last message
        self.last = ""
        self.usd: float | None = None
        #: tokens in its context, as it last reported; 0: not reported
        self.in_context = 0
        #: dollars that the budget was charged with
        self._charged_usd = 0.0

    def speaking(self) -> str:
        text = "".join(self._pieces)
        return (THINKING if self._kind == "thought" and text else "") + text

    @property
    def length(self) -> int:
        """What the agent has said in this turn, as it counts against the most; it changes with each message."""
        return self._length

    @property
    def too_long(self) -> bool:
        """Has it said or done more than a turn may? What comes then is dropped."""
        return self._length > MOST_SAID or len(self._desk.steps) >= MOST_STEPS

    def heard(self, characters: int) -> None:
        """So many more characters came that are no part of a message."""
        self._length += characters

    def flush(self) -> None:
        """The message up to now becomes a step."""
        pieces, self._pieces = self._pieces, []  # the loop may append meanwhile
        if text := "".join(pieces).strip():
            self._desk.add(Step(kind=self._kind, text=text, started=time.time()))
            self.last = text if self._kind == "message" else self.last

    @property
    def new_usd(self) -> float | None:
        """Dollars since they were last taken; None where it tells none."""
        return None if self.usd is None else self.usd - self._charged_usd

    def take_usd(self) -> float | None:
        new, self._charged_usd = self.new_usd, self.usd or 0.0
        return new

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        kind = update.session_update
        chunk = kind in ("agent_message_chunk", "agent_thought_chunk")
        text = str(getattr(update.content, "text", "")) if chunk else ""
        self._length += _EACH + (len(text) if chunk else _size(update))
        if self.too_long:
            return
        if chunk:
            step_kind: StepKind = "message" if kind == "agent_message_chunk" else "thought"
            if step_kind != self._kind:
                self.flush()
                self._kind = step_kind
            self._pieces.append(text)
        elif kind == "plan":
            self.flush()
            lines = (f"{'x' if e.status == 'completed' else '>' if e.status == 'in_progress' else ' '} {e.content}"
                     for e in update.entries)  # fmt: skip
            self._desk.add(Step(kind="plan", text="\n".join(lines), started=time.time()))
        elif kind in ("tool_call", "tool_call_update"):
            self._called(update)
        elif kind == "usage_update":
            self.in_context = update.used
            cost = update.cost.amount if update.cost is not None and update.cost.currency == "USD" else 0.0
            # 0 is what an agent tells that knows no price; a sum that falls, or is no number, would free the budget
            if 0 < cost < math.inf:
                self.usd = max(cost, self.usd or 0.0)

    def _called(self, update: Any) -> None:
        """A tool of the agent's: one step when it is over. Those of kernellab have their steps from the desk."""
        call = self._calls[update.tool_call_id] = self._calls.get(update.tool_call_id, _Call()).merged(update)
        if update.status not in ("completed", "failed"):
            return
        del self._calls[update.tool_call_id]
        if self._is_ours(call):
            return
        self.flush()
        texts = [part.content.text for part in call.content if hasattr(getattr(part, "content", None), "text")]
        self._desk.add(Step(
            kind="edit" if call.diffs else "tool", title=call.title,
            text=self._changes(call) or json.dumps(call.raw_input or {}, default=str),
            result="\n".join(texts), failed=update.status == "failed", started=call.started,
            seconds=time.time() - call.started,
        ))  # fmt: skip

    def _changes(self, call: _Call) -> str:
        return "\n".join(_difference(diff, self._desk.context.folder) for diff in call.diffs)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        if self.too_long:  # its line is counted as it comes
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        # what was reported of the call before may be left out here
        call = self._calls.get(tool_call.tool_call_id, _Call()).merged(tool_call)
        call = replace(call, title=call.title or "a tool")
        title, detail = self._shown(call)
        answer = "turn"
        if self._is_ours(call):
            self._permitted(title, detail, "a tool of kernellab")
        else:
            own = call.kind in _IN_A_FOLDER and bool(call.paths) and all(map(self._is_own, call.paths))
            answer = await self._asked(title, detail, own)
        # what is allowed for a turn is remembered here: an agent may remember it for ever
        kinds = ("reject_once", "reject_always") if answer == "never" else ("allow_once", "allow_always")
        chosen = next((o.option_id for kind in kinds for o in options if o.kind == kind), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    def _shown(self, call: _Call) -> tuple[str, str]:
        """The title and the details of a call, as a person who is asked for permission sees them."""
        title = (
            f"{call.kind} {call.title}" if call.kind and call.kind not in ("other", *call.title.split()) else call.title
        )
        # both: a harmless change would hide the command that it comes with
        arguments = json.dumps(call.raw_input, default=str) if call.raw_input else ""
        details = [shown(_cut(text, _DETAIL)) for text in (self._changes(call), arguments) if text]
        return " ".join(shown(_cut(title, _TITLE)).split()), "\n".join(details)

    def _is_own(self, path: str) -> bool:
        """Does it lie in the agent's folder?"""
        folder = self._desk.context.folder
        return folder is not None and (folder / path).resolve().is_relative_to(folder.resolve())

    async def _asked(self, title: str, detail: str, own: bool) -> str:
        """A person's answer; where no one is asked, what is the agent's ``own`` may be done, and nothing else. It may
        ask for several things at once: each waits for the one before it."""
        async with self._one_at_a_time:
            answer, self.asks = self._always, not self._always
            try:
                answer = answer or await in_daemon(lambda: self._permit(scrub(title), scrub(detail)))
            finally:
                self.asks = False
            if answer in ("turn", "never"):
                self._always = answer
        words = answer or ("once, in its own folder" if own else _REFUSED)
        answer = answer or ("once" if own else "never")
        self._permitted(title, detail, words, answer == "never")
        return answer

    def _permitted(self, title: str, detail: str, words: str, refused: bool = False) -> None:
        self._desk.add(Step(
            kind="permission", title=title, text=detail, result=words, failed=refused, started=time.time(),
        ))  # fmt: skip

    def _is_ours(self, call: _Call) -> bool:
        """Is a call one of a tool of the turn? Its title names it in one of the ways in which agents name those of an
        MCP server; it is of no other kind, changes no file, and has arguments of that tool alone."""
        before, after = r"(tool: *)?(mcp[_.: ]*)?(kernellab[_./: -]*)?", r"( \(kernellab[\w ]*\))?"
        tools = "|".join(self._desk.tools)
        named = re.fullmatch(f"{before}(?P<tool>{tools}){after}", call.title, re.IGNORECASE)
        if named is None or call.kind not in (None, "other") or call.diffs:
            return False
        arguments = call.raw_input
        if (
            isinstance(arguments, dict)
            and set(arguments) <= _OF_A_CALL
            and isinstance(arguments.get("arguments"), dict)
        ):
            tool = str(arguments.get("tool", named["tool"]))
            if arguments.get("server", "kernellab") != "kernellab" or tool.lower() != named["tool"].lower():
                return False
            arguments = arguments["arguments"]
        fields = self._desk.tools[named["tool"].lower()].request.model_fields
        return not arguments or (isinstance(arguments, dict) and set(arguments) <= set(fields))


async def in_daemon(work: Callable[[], str]) -> str:
    """``work`` in a thread that the process does not wait for when it ends, as it does for those of a pool: a person
    may never answer."""
    done: Future[str] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="kernellab-agent", daemon=True).start()
    return await asyncio.wrap_future(done)


def _size(update: Any) -> int:
    """Characters of an update; one that cannot be written as JSON (half of a surrogate pair) counts as a long one."""
    try:
        return len(update.model_dump_json())
    except ValueError:
        return _UNWRITTEN


def _difference(diff: Any, folder: Path | None) -> str:
    import difflib

    before, after, path = (diff.old_text or "").splitlines(), diff.new_text.splitlines(), Path(diff.path)
    name = str(path.relative_to(folder) if folder and path.is_relative_to(folder) else path)
    if len(diff.old_text or "") + len(diff.new_text) > _COMPARED:
        return f"--- {name}\n+++ {name}\n{len(before)} lines become these {len(after)}:\n{diff.new_text}"
    return "\n".join(difflib.unified_diff(before, after, name, name, lineterm="", n=2))


def _cut(text: str, most: int) -> str:
    """The beginning and the end of a long text, and how much is left out: what is last counts as much."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]}\n... {len(text) - most} characters more ...\n{text[-end:]}"
