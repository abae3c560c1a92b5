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


class Client:
    """What the agent tells its client, as steps of the turn."""

    def __init__(self, desk: Desk, permit: Callable[[str, str], str], permission: str = "ask") -> None:
        self._desk, self._permit = desk, permit
        self._said: list[str] = []
        self._kind: StepKind = "message"
        self._calls: dict[str, Any] = {}
        self._always = {"allow": "turn", "never": "never"}.get(permission, "")
        self._one_at_a_time = asyncio.Lock()
        #: is a person asked now?
        self.asks = False
        self._length = 0
        #: its last message
        self.last = ""
        self.usd: float | None = None
        #: tokens in its context, as it last reported; 0: not reported
        self.in_context = 0
        self._taken = 0.0

    def speaking(self) -> str:
        text = "".join(self._said)
        return (THINKING if self._kind == "thought" and text else "") + text

    @property
    def too_long(self) -> bool:
        """Has it said or done more than a turn may? What comes then is dropped."""
        return self._length > MOST_SAID or len(self._desk.steps) >= MOST_STEPS

    def heard(self, characters: int) -> None:
        """So many more characters came that are no part of a message."""
        self._length += characters

    def flush(self) -> None:
        """The message up to now becomes a step."""
        pieces, self._said = self._said, []  # the loop may append meanwhile
        if text := "".join(pieces).strip():
            self._desk.add(Step(kind=self._kind, text=text, started=time.time()))
            self.last = text if self._kind == "message" else self.last

    @property
    def new_usd(self) -> float | None:
        """Dollars since they were last taken; None where it tells none."""
        return None if self.usd is None else self.usd - self._taken

    def take_usd(self) -> float | None:
        new, self._taken = self.new_usd, self.usd or 0.0
        return new

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        kind = update.session_update
        chunk = kind in ("agent_message_chunk", "agent_thought_chunk")
        text = str(getattr(update.content, "text", "")) if chunk else ""
        self._length += _EACH + (len(text) if chunk else _size(update))
        if self.too_long:
            return
        if chunk:
            wanted: StepKind = "message" if kind == "agent_message_chunk" else "thought"
            if wanted != self._kind:
                self.flush()
                self._kind = wanted
            self._said.append(text)
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
        known = self._calls.setdefault(update.tool_call_id, {"started": time.time()})
        for name in ("title", "kind", "raw_input", "content", "locations"):
            known[name] = getattr(update, name, None) or known.get(name)
        if update.status not in ("completed", "failed"):
            return
        del self._calls[update.tool_call_id]
        title = str(known["title"] or "")
        if self._is_ours(title, known["kind"], known["raw_input"], known["content"] or ()):
            return
        self.flush()
        folder = self._desk.context.folder
        diffs = [c for c in known["content"] or () if getattr(c, "type", "") == "diff"]
        texts = [c.content.text for c in known["content"] or () if hasattr(getattr(c, "content", None), "text")]
        self._desk.add(Step(
            kind="edit" if diffs else "tool", title=title,
            text="\n".join(_difference(d, folder) for d in diffs) or json.dumps(known["raw_input"] or {}, default=str),
            result="\n".join(texts), failed=update.status == "failed", started=known["started"],
            seconds=time.time() - known["started"],
        ))  # fmt: skip

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        if self.too_long:  # its line is counted as it comes
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        # what was told of the call before may be left out here
        known = self._calls.get(tool_call.tool_call_id, {})
        content = tool_call.content or known.get("content") or ()
        given, kind = tool_call.raw_input or known.get("raw_input"), tool_call.kind or known.get("kind")
        title = tool_call.title or known.get("title") or "a tool"
        ours = self._is_ours(title, kind, given, content)
        title = f"{kind} {title}" if kind and kind not in ("other", *title.split()) else title
        title = " ".join(shown(_cut(title, _TITLE)).split())
        changes = "\n".join(
            _difference(part, self._desk.context.folder) for part in content if getattr(part, "type", "") == "diff"
        )
        # both: a harmless change would hide the command that it comes with
        arguments = json.dumps(given, default=str) if given else ""
        detail = "\n".join(shown(_cut(text, _DETAIL)) for text in (changes, arguments) if text)
        answer = "turn"
        if ours:
            self._permitted(title, detail, "a tool of kernellab")
        else:
            places = [*(tool_call.locations or known.get("locations") or ()), *content]
            paths = [str(place.path) for place in places if hasattr(place, "path")]
            own = kind in _IN_A_FOLDER and bool(paths) and all(map(self._is_own, paths))
            answer = await self._asked(title, detail, own)
        # what is allowed for a turn is remembered here: an agent may remember it for ever
        kinds = ("reject_once", "reject_always") if answer == "never" else ("allow_once", "allow_always")
        chosen = next((o.option_id for kind in kinds for o in options if o.kind == kind), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

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

    def _is_ours(self, title: str, kind: Any, given: Any, content: Any) -> bool:
        """Is a call one of a tool of the turn? Its title names it in one of the ways in which agents name those of an
        MCP server; it is of no other kind, changes no file, and has arguments of that tool alone."""
        before, after = r"(tool: *)?(mcp[_.: ]*)?(kernellab[_./: -]*)?", r"( \(kernellab[\w ]*\))?"
        named = re.fullmatch(f"{before}(?P<tool>{'|'.join(self._desk.tools)}){after}", title, re.IGNORECASE)
        if named is None or kind not in (None, "other") or any(getattr(c, "type", "") == "diff" for c in content):
            return False
        if isinstance(given, dict) and set(given) <= _OF_A_CALL and isinstance(given.get("arguments"), dict):
            tool = str(given.get("tool", named["tool"]))
            if given.get("server", "kernellab") != "kernellab" or tool.lower() != named["tool"].lower():
                return False
            given = given["arguments"]
        taken = self._desk.tools[named["tool"].lower()].request.model_fields
        return not given or (isinstance(given, dict) and set(given) <= set(taken))


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
