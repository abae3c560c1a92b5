"""A coding agent as a chat model: kernellab is its client by the Agent Client Protocol (extra ``agents``).

The agent's program works in a scratch folder with the brief, and with one turn's tools (:class:`Desk`) as an MCP
server. The reply is what it submits, else its last message. It lives as long as the turn: what is wrong with a reply
goes to the same agent; then it ends with all that it started, before the kernel is verified.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from kernellab.errors import ModelError, ModelFault, lasting
from kernellab.exchanges import Finish, Step, StepKind, Usage
from kernellab.models import THINKING, Budget, ChatReply, ChatRequest, Price, faults, scrub
from kernellab.models.loop import loop
from kernellab.options.agents import AgentOptions
from kernellab.tools.desk import SUBMIT, Desk
from kernellab.tools.mcp_server import Handlers, http_app
from kernellab.tools.skill import skill_text
from kernellab.verifier.judge import turns

_TICK_S = 0.05
#: after its answer an agent may still say something
_LAST_WORDS_S = 10.0
#: until it has started and told what it can do
_START_S = 60.0
#: characters of one message of the protocol
_MESSAGE = 64 << 20
_FINISH = {
    "end_turn": Finish.STOP, "max_tokens": Finish.TRUNCATED, "max_turn_requests": Finish.TRUNCATED,
    "refusal": Finish.FILTERED, "cancelled": Finish.CANCELLED,
}  # fmt: skip
_HOW = (
    "You have tools for this, those of the MCP server `kernellab`; the name of the task is {task}. AGENTS.md in your "
    "folder says how they are used; kernels that you write into files there can be given by their path. Look, try and "
    "correct with them. When you are done, call {submit} with the whole answer in the form that is asked for above; "
    "where you cannot, answer with it as your last message. It is judged after you have ended."
)


class AgentModel:
    """``ask`` is one prompt to the agent. ``permit`` asks a person: "once", "turn" or "never"."""

    price: Price | None = None
    free = False

    def __init__(
        self, name: str, options: AgentOptions, desk: Desk, budget: Budget, permit: Callable[[str, str], str]
    ) -> None:
        self.name = f"agent {name}"
        self._agent, self._options, self._desk, self._budget = name, options, desk, budget
        self._client = _Client(desk, permit)
        desk.before = self._client.flush
        self._run: _Run | None = None
        #: its reports take the place of a price
        self.reports_usd = "usd" in options.reports

    @turns.aside()  # a tool may verify, for which the judge takes its turn at the clock
    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """See :meth:`kernellab.models.ChatModel.ask`; ``steps`` are what it did, as far as it says."""
        began, first = time.monotonic(), len(self._desk.steps)
        self._desk.answer = self._client.last = ""
        fresh = self._run is None
        text = request.messages[-1].content if not fresh else "\n\n".join(m.content for m in request.messages)
        run = self._run = self._run or self._begin(text)
        done: Any = None
        try:
            if fresh:
                text += "\n\n" + _HOW.format(task=self._desk.task, submit=SUBMIT)
                self._wait(run.start(), _START_S, cancel, on_text, "did not start")
                self._desk.note(
                    f"{self.name} started", f"held by: {run.held or 'nothing'}\n{' '.join(self._options.command)}"
                )
            done = self._wait(run.prompt(text), self._seconds(), cancel, on_text, "did not end its turn")
            if done is None:
                # so that a later prompt does not meet this one
                loop().submit(run.cancel())
        except BaseException as error:
            self.close()
            if isinstance(error, ModelError):
                error.reply = self._reply(run, None, Finish.ERROR, began, first)
            raise
        finish = Finish.STOP if self._desk.answer or done is None else _FINISH.get(done.stop_reason, Finish.ERROR)
        reply = self._reply(run, done, finish, began, first)
        for what, told in (("tokens", reply.usage.input_tokens), ("usd", reply.usage.usd)):
            if self._budget.left(what) is not None and not told:
                raise ModelError(
                    ModelFault.BUDGET, f"The budget limits {what}, and the {self.name} told none.",
                    "Limit minutes or tool_calls instead.", reply=reply,
                )  # fmt: skip
        return reply

    def close(self) -> None:
        """End the agent and all that it started."""
        atexit.unregister(self.close)
        if self._run is not None:
            self._run.end()
            self._run = None

    def _begin(self, brief: str) -> _Run:
        for package in ("acp", "mcp"):
            if find_spec(package) is None:
                raise ModelError(
                    ModelFault.CONFIG, f"An agent needs the package {package}.", "pip install 'kernellab[agents]'"
                )
        folder = self._desk.context.folder
        assert folder is not None
        (folder / "BRIEF.md").write_text(brief, encoding="utf-8")
        (folder / "AGENTS.md").write_text(skill_text(), encoding="utf-8")
        loop()  # begun here, so that at the end of the process the agent ends before it
        atexit.register(self.close)
        return _Run(self._agent, self._options, self._desk, self._client, folder)

    def _seconds(self) -> float:
        left = self._budget.left("minutes")
        return 60 * (self._options.minutes if left is None else min(self._options.minutes, left))

    def _wait(
        self, work: Any, most: float, cancel: threading.Event | None, on_text: Callable[[str], None] | None, late: str
    ) -> Any:
        """The work's result within ``most`` seconds, those not counted in which a person is asked; None where the agent
        submitted and then said nothing more."""
        future, shown, submitted = loop().submit(work), "", 0.0
        until = looked = time.monotonic()
        until += most
        try:
            while not future.done():
                time.sleep(_TICK_S)
                now = time.monotonic()
                until, looked = until + (now - looked if self._client.asks else 0.0), now
                text = "\n\n".join(filter(None, (self._desk.shown(), self._client.speaking())))
                if on_text is not None and text != shown:
                    shown = text
                    on_text(text)
                if cancel is not None and cancel.is_set():
                    raise faults.cancelled()
                spent, left = self._client.new_usd, self._budget.left("usd")
                if spent is not None and left is not None and spent > left:
                    raise ModelError(ModelFault.BUDGET, f"The {self.name} spent {spent:.3g} dollars, which are more "
                                     "than are left.", "Raise the budget and resume.")  # fmt: skip
                if self._desk.answer and not submitted:
                    submitted = now
                if submitted and now - submitted > _LAST_WORDS_S:
                    return None
                if now > until:
                    raise ModelError(
                        ModelFault.STALLED, f"The {self.name} {late} in {lasting(most)}.",
                        f"Resume to ask again, or raise minutes under [agents.{self._agent}].", resumable=True,
                    )  # fmt: skip
            return future.result()
        finally:
            future.cancel()

    def _reply(self, run: _Run, done: Any, finish: Finish, began: float, first: int) -> ChatReply:
        self._client.flush()
        steps = tuple(self._desk.steps[first:])
        seconds = time.monotonic() - began
        told = getattr(done, "usage", None)
        # the protocol counts what was cached apart from the rest of the input
        cached = (told.cached_read_tokens or 0) if told else 0
        rest = told.input_tokens + (told.cached_write_tokens or 0) if told else 0
        usage = Usage(
            input_tokens=rest + cached, output_tokens=told.output_tokens if told else 0,
            cached_tokens=cached,
            reasoning_tokens=(told.thought_tokens or 0) if told else 0, usd=self._client.take_usd(), seconds=seconds,
            tool_calls=sum(step.kind == "tool" for step in steps),
        )  # fmt: skip
        thoughts = "\n".join(step.text for step in steps if step.kind == "thought")
        return ChatReply(
            text=scrub(self._desk.answer or self._client.last), reasoning=scrub(thoughts), finish=finish, usage=usage,
            model=self.name, seconds=seconds, attempts=1, steps=steps, shared_machine=not run.apart,
        )  # fmt: skip


class _Run:
    """The agent's process, its connection and its tools' server. All coroutines run on the models' loop."""

    def __init__(self, name: str, options: AgentOptions, desk: Desk, client: _Client, folder: Path) -> None:
        self._name, self._options, self._desk, self._client, self._folder = name, options, desk, client, folder
        self._connection: Any = None
        self._session = ""
        self._server: Any = None
        self._process: asyncio.subprocess.Process | None = None
        #: level words of what holds the agent
        self.held = ""

    @property
    def apart(self) -> bool:
        """Can the agent neither read the judge's memory nor write its files?"""
        return "landlock" in self.held

    async def start(self) -> None:
        from acp import PROTOCOL_VERSION
        from acp.client import ClientSideConnection
        from acp.schema import (
            ClientCapabilities,
            EnvVariable,
            HttpHeader,
            HttpMcpServer,
            Implementation,
            McpServerStdio,
        )

        url, token = await self._serve(), self._token
        process = await self._launch()
        assert process.stdin is not None and process.stdout is not None
        client: Any = self._client  # of the protocol's methods it has those that are used
        self._connection = ClientSideConnection(client, process.stdin, process.stdout)
        hello = await self._alive(self._connection.initialize(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="kernellab", version="1"),
        ))  # fmt: skip
        able = hello.agent_capabilities
        over_http = bool(able and able.mcp_capabilities and able.mcp_capabilities.http)
        server: Any
        if over_http:
            header = HttpHeader(name="Authorization", value=f"Bearer {token}")
            server = HttpMcpServer(type="http", name="kernellab", url=url, headers=[header])
        else:
            server = McpServerStdio(
                name="kernellab", command=sys.executable, args=["-m", "kernellab", "mcp", "--relay", url],
                env=[EnvVariable(name="KERNELLAB_MCP_TOKEN", value=token)],
            )  # fmt: skip
        created = await self._alive(self._connection.new_session(cwd=str(self._folder), mcp_servers=[server]))
        self._session = created.session_id

    async def prompt(self, text: str) -> Any:
        from acp import text_block

        return await self._alive(self._connection.prompt(session_id=self._session, prompt=[text_block(text)]))

    async def cancel(self) -> None:
        with contextlib.suppress(Exception):  # an agent that is gone has nothing to cancel
            await self._connection.cancel(session_id=self._session)

    def end(self) -> None:
        """From any thread: kill what was started. The namespace's first process takes all others along."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(psutil.Error):
                started = psutil.Process(self._process.pid)
                for one in (*started.children(recursive=True), started):
                    with contextlib.suppress(psutil.Error):
                        one.kill()
        with contextlib.suppress(Exception):
            loop().submit(self._close()).result(2)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        if self._connection is not None:
            await self._connection.close()
        if self._process is not None:
            await self._process.wait()
        if self._server is not None:
            await asyncio.wait({self._serving}, timeout=1)

    async def _serve(self) -> str:
        """The turn's tools on a free port of loopback; their address."""
        import uvicorn

        self._token = secrets.token_urlsafe(24)
        app = http_app(Handlers(self._desk.context, self._desk), self._token)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[listening]))
        while not self._server.started:
            await asyncio.sleep(_TICK_S)
        return f"http://127.0.0.1:{listening.getsockname()[1]}/mcp/"

    async def _launch(self) -> asyncio.subprocess.Process:
        program = shutil.which(self._options.command[0])
        assert program is not None
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        variables = {**os.environ, **self._options.env, "TMPDIR": str(temporary)}
        writable = json.dumps([str(self._folder), "/dev", *self._own_folders(variables.get("HOME", ""))])
        script = Path(__file__).with_name("confine.py")
        told, report = os.pipe()
        with (self._folder / "stderr.txt").open("wb") as errors:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, str(script), str(report), writable, program, *self._options.command[1:],
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, limit=_MESSAGE,
                cwd=self._folder, env=variables, start_new_session=True, pass_fds=[report],
            )  # fmt: skip
        os.close(report)
        with os.fdopen(told, encoding="utf-8") as words:
            self.held = await _in_daemon(words.read)
        return process

    def _own_folders(self, home: str) -> list[str]:
        """Where the agent keeps its settings, of what is there: what it may write to."""
        usual = [f".{self._name}", *(f"{place}/{self._name}" for place in (
            ".config", ".cache", ".local/share", ".local/state"
        ))]  # fmt: skip
        folders = [Path(home, path) if home else Path(path).expanduser() for path in self._options.writes or usual]
        return [str(folder.expanduser()) for folder in folders if folder.expanduser().exists()]

    async def _alive(self, answer: Any) -> Any:
        """The agent's answer. Raises ModelError: it ended, or refused."""
        from acp import RequestError

        assert self._process is not None
        asked, ended = asyncio.ensure_future(answer), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise ConnectionError
        except RequestError as error:
            raise ModelError(
                ModelFault.SERVER, f"The agent {self._name} refused: {scrub(str(error))}.",
                "Log in with its own command line first, then resume.", resumable=True,
            ) from None  # fmt: skip
        except (ConnectionError, EOFError):
            await asyncio.wait({ended}, timeout=1)
            how = f"ended by itself (exit code {ended.result()})" if ended.done() else "broke off"
            raise ModelError(
                ModelFault.SERVER, f"The agent {self._name} {how}.{self._last_words()}",
                f"Try it in a shell: {' '.join(self._options.command)}.", resumable=True,
            ) from None  # fmt: skip
        finally:
            asked.cancel()
            ended.cancel()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            text = (self._folder / "stderr.txt").read_text(encoding="utf-8", errors="replace")
            return f" It wrote: {scrub(' '.join(text.split())[-300:])}" if text.strip() else ""
        return ""


class _Client:
    """What the agent tells its client, as steps of the turn."""

    def __init__(self, desk: Desk, permit: Callable[[str, str], str]) -> None:
        self._desk, self._permit = desk, permit
        self._said: list[str] = []
        self._kind: StepKind = "message"
        self._calls: dict[str, Any] = {}
        self._always = ""
        self._one_at_a_time = asyncio.Lock()
        #: is a person asked now?
        self.asks = False
        #: its last message
        self.last = ""
        self.usd: float | None = None
        self._taken = 0.0

    def speaking(self) -> str:
        text = "".join(self._said)
        return (THINKING if self._kind == "thought" and text else "") + text

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
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            wanted: StepKind = "message" if kind == "agent_message_chunk" else "thought"
            if wanted != self._kind:
                self.flush()
                self._kind = wanted
            self._said.append(getattr(update.content, "text", ""))
        elif kind == "plan":
            self.flush()
            lines = (f"{'x' if e.status == 'completed' else '>' if e.status == 'in_progress' else ' '} {e.content}"
                     for e in update.entries)  # fmt: skip
            self._desk.add(Step(kind="plan", text="\n".join(lines), started=time.time()))
        elif kind in ("tool_call", "tool_call_update"):
            self._called(update)
        elif kind == "usage_update" and update.cost is not None and update.cost.currency == "USD":
            self.usd = update.cost.amount

    def _called(self, update: Any) -> None:
        """A tool of the agent's: one step when it is over. Those of kernellab have their steps from the desk."""
        known = self._calls.setdefault(update.tool_call_id, {"started": time.time()})
        for name in ("title", "kind", "raw_input", "content"):
            known[name] = getattr(update, name, None) or known.get(name)
        if update.status not in ("completed", "failed"):
            return
        del self._calls[update.tool_call_id]
        title = str(known["title"] or "")
        if self._is_ours(title):
            return
        self.flush()
        diffs = [c for c in known["content"] or () if getattr(c, "type", "") == "diff"]
        texts = [c.content.text for c in known["content"] or () if hasattr(getattr(c, "content", None), "text")]
        self._desk.add(Step(
            kind="edit" if diffs else "tool", title=title,
            text="\n".join(_difference(d) for d in diffs) or json.dumps(known["raw_input"] or {}, default=str),
            result="\n".join(texts), failed=update.status == "failed", started=known["started"],
            seconds=time.time() - known["started"],
        ))  # fmt: skip

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        title = tool_call.title or "a tool"
        detail = json.dumps(tool_call.raw_input, default=str)[:2000] if tool_call.raw_input else ""
        answer = "turn" if self._is_ours(title) else await self._asked(title, detail)
        # what is allowed for a turn is remembered here: an agent may remember it for ever
        kinds = ("reject_once", "reject_always") if answer == "never" else ("allow_once", "allow_always")
        chosen = next((o.option_id for kind in kinds for o in options if o.kind == kind), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def _asked(self, title: str, detail: str) -> str:
        """A person's answer. An agent may ask for several things at once: each waits for the one before it."""
        async with self._one_at_a_time:
            answer, self.asks = self._always, not self._always
            try:
                answer = answer or await _in_daemon(lambda: self._permit(scrub(title), scrub(detail)))
            finally:
                self.asks = False
            if answer in ("turn", "never"):
                self._always = answer
        self._desk.add(Step(
            kind="permission", title=title, text=detail, result=answer, failed=answer == "never", started=time.time(),
        ))  # fmt: skip
        return answer

    def _is_ours(self, title: str) -> bool:
        """Does a title name a tool of the turn, in one of the ways in which agents name those of an MCP server?"""
        before, after = r"(tool: *)?(mcp[_.: ]*)?(kernellab[_./: -]*)?", r"( \(kernellab[\w ]*\))?"
        return re.fullmatch(f"{before}({'|'.join(self._desk.tools)}){after}", title, re.IGNORECASE) is not None


async def _in_daemon(work: Callable[[], str]) -> str:
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


def _difference(diff: Any) -> str:
    import difflib

    before, after = (diff.old_text or "").splitlines(), diff.new_text.splitlines()
    return "\n".join(difflib.unified_diff(before, after, diff.path, diff.path, lineterm="", n=2))
