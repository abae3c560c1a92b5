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
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from glob import escape, glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from kernellab.errors import ModelError, ModelFault, lasting
from kernellab.models import Budget, ChatReply, ChatRequest, Price, faults, scrub
from kernellab.models.exchanges import Finish, Usage
from kernellab.models.loop import loop
from kernellab.options.agents import AgentOptions
from kernellab.tools.acp_client import MOST_SAID, Client, in_daemon
from kernellab.tools.acp_wire import connection
from kernellab.tools.desk import MOST_STEPS, SUBMIT, Desk
from kernellab.tools.documents import documents
from kernellab.tools.mcp_server import Handlers, http_app
from kernellab.tools.skill import skill_text
from kernellab.tools.tool import CODE
from kernellab.verifier.judge import turns
from kernellab.verifier.protocol.sanitize import shown as escaped

_TICK_S = 0.05
#: bytes of its standard error that are read when it ends by itself
_LAST_BYTES = 4096
#: until what an agent detached is killed, where it starts other processes meanwhile
_LAST_SWEEP_S = 2.0
#: after its answer an agent may still say something: silence that ends its turn, and all of its last words together;
#: both longer on a machine with more to run than cores
_LAST_WORDS_S, _ALL_LAST_WORDS_S = 10.0, 60.0
#: until it has started and told what it can do
_START_S = 180.0
#: bytes that are read at a time of what an ended agent had written
_UNREAD = 1 << 20
#: characters of an error's message that a person sees
_ERROR = 300
#: variables that say where a program keeps its files: the usual folder of the home, and its name in the workspace's
_OWN = {
    "XDG_CONFIG_HOME": (".config", "config"), "XDG_CACHE_HOME": (".cache", "cache"),
    "XDG_DATA_HOME": (".local/share", "data"), "XDG_STATE_HOME": (".local/state", "state"),
}  # fmt: skip
#: beginnings of variables with tokens of Jupyter's servers or ours, or with places that the agent does not see
_LEFT_OUT = (
    "JPY_", "JUPYTER_TOKEN", "JUPYTERHUB_", "KERNELLAB_", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
)  # fmt: skip
#: where programs of the person listen that would run a command outside of what confines the agent
_LISTENING = (
    "/run/user/*", "/tmp/tmux-*", "/tmp/emacs*", "/run/screen", "/run/docker.sock", "/run/podman", "/run/containerd",
    "/tmp/.X11-unix", "/tmp/.ICE-unix", "/tmp/dbus-*", "~/.docker/*/docker.sock",
)  # fmt: skip
_CONFINE = Path(__file__).with_name("confine.py")
_FINISH = {
    "end_turn": Finish.STOP, "max_tokens": Finish.TRUNCATED, "max_turn_requests": Finish.TRUNCATED,
    "refusal": Finish.FILTERED, "cancelled": Finish.CANCELLED,
}  # fmt: skip
_HOW = (
    "You have tools for this, those of the MCP server `kernellab`; the name of the task is {task}. AGENTS.md in your "
    "folder says how they are used, DOCUMENTS.md which documents there are; kernels that you write into files there "
    "can be given by their path. Look, try and correct with them. When you are done, call {submit} with the whole "
    "answer in the form that is asked for above; where you cannot, answer with it as your last message. It is judged "
    "after you have ended."
)
_CODE = (
    " The code so far lies in `{code}/`: change it there and give tools path='{code}', or give them the changed files "
    "alone."
)
_SEVERAL = (
    " You may call {submit} more than once, with a different answer each time: each is judged. End your turn when you "
    "have no better one."
)


class AgentModel:
    """``ask`` is one prompt to the agent. ``permit`` asks a person: "once", "turn" or "never"; "": no one is asked."""

    price: Price | None = None
    free = False

    def __init__(
        self, name: str, options: AgentOptions, desk: Desk, budget: Budget, permit: Callable[[str, str], str]
    ) -> None:
        self.name = f"agent {name}"
        self._agent, self._options, self._desk, self._budget = name, options, desk, budget
        self._client = Client(desk, permit, options.permission)
        desk.before = self._client.flush
        self._run: _Run | None = None
        #: steps that earlier replies hold
        self._told = 0
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
        began = time.monotonic()
        self._desk.answers.clear()
        self._client.last = ""
        fresh = self._run is None
        text = request.messages[-1].content if not fresh else "\n\n".join(m.content for m in request.messages)
        run = self._run = self._run or self._begin(text)
        done: Any = None
        try:
            if fresh:
                how = _HOW + (_CODE if self._desk.context.base else "") + (_SEVERAL if self._desk.several else "")
                text += "\n\n" + how.format(task=self._desk.task, submit=SUBMIT, code=CODE)
                self._wait(run.start(), min(_START_S, self._seconds()), cancel, on_text, "did not start")
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
                error.reply = self._reply(run, None, Finish.ERROR, began)
            raise
        finish = Finish.STOP if self._desk.answers or done is None else _FINISH.get(done.stop_reason, Finish.ERROR)
        reply = self._reply(run, done, finish, began)
        if finish is Finish.TRUNCATED:
            raise ModelError(
                ModelFault.TRUNCATED, f"The {self.name} stopped at its own limit ({done.stop_reason}).",
                "Raise that limit in the agent's settings, then resume.", resumable=True, reply=reply,
            )  # fmt: skip
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
        (folder / "DOCUMENTS.md").write_text("\n".join(documents(self._desk.context.workspace)), encoding="utf-8")
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
        submitted and did not end its turn in time."""
        future, shown, submitted = loop().submit(work), "", 0.0
        until = looked = heard = time.monotonic()
        until += most
        length = self._client.length
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
                if self._client.too_long:
                    raise ModelError(
                        ModelFault.BUDGET,
                        f"The {self.name} said more than {MOST_SAID / 1e6:.0f} MB in a turn or did {MOST_STEPS} steps "
                        "(what is no message of the protocol counts more than its length).",
                        "Ask again; its steps say what it repeats.",
                    )  # fmt: skip
                spent, left = self._client.new_usd, self._budget.left("usd")
                if spent is not None and left is not None and spent > left:
                    raise ModelError(ModelFault.BUDGET, f"The {self.name} spent {spent:.3g} dollars, which are more "
                                     "than are left.", "Raise the budget and resume.")  # fmt: skip
                if self._desk.answers and not self._desk.several and not submitted:
                    submitted = now
                if self._client.length != length:
                    length, heard = self._client.length, now
                if submitted:
                    scale = _share_of_load()
                    silent = now - max(submitted, heard) > scale * _LAST_WORDS_S
                    if silent or now - submitted > scale * _ALL_LAST_WORDS_S:
                        return None
                if now > until and self._desk.answers:
                    return None
                if now > until:
                    raise ModelError(
                        ModelFault.STALLED, f"The {self.name} {late} in {lasting(most)}.",
                        f"Resume to ask again, or raise minutes under [agents.{self._agent}].", resumable=True,
                    )  # fmt: skip
            return future.result()
        finally:
            future.cancel()

    def _reply(self, run: _Run, done: Any, finish: Finish, began: float) -> ChatReply:
        self._client.flush()
        steps = tuple(self._desk.steps[self._told :])
        self._told += len(steps)
        seconds = time.monotonic() - began
        tokens = run.new_tokens(getattr(done, "usage", None), self._client.in_context)
        calls = sum(step.kind == "tool" for step in steps)
        spent = {"usd": self._client.take_usd(), "seconds": seconds, "tool_calls": calls}
        usage = Usage().model_copy(update={**tokens, **spent, "untold": int(not tokens)})
        thoughts = "\n".join(step.text for step in steps if step.kind == "thought")
        return ChatReply(
            text=scrub((self._desk.answers or [self._client.last])[-1]), reasoning=scrub(thoughts), finish=finish,
            usage=usage, model=self.name, seconds=seconds, attempts=1, steps=steps, by_agent=True,
            shared_machine=not run.apart, others=tuple(map(scrub, self._desk.answers[:-1])),
        )  # fmt: skip


class _Run:
    """The agent's process, its connection and its tools' server. All coroutines run on the models' loop."""

    def __init__(self, name: str, options: AgentOptions, desk: Desk, client: Client, folder: Path) -> None:
        self._name, self._options, self._desk, self._client, self._folder = name, options, desk, client, folder
        self._connection: Any = None
        self._session = ""
        self._server: Any = None
        self._process: asyncio.subprocess.Process | None = None
        #: what it writes to its standard error; without a name, so that it puts nothing in its place
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        #: level words of what holds the agent
        self.held = ""
        self._counted: dict[str, int] = {}

    @property
    def apart(self) -> bool:
        return is_apart(self.held)

    def new_tokens(self, told: Any, in_context: int) -> dict[str, int]:
        """The tokens that are new in what the agent reports at the end of a prompt; nothing where it reports none, or
        zeros, as where its model's server counted none.

        The protocol's figures are those of all prompts so far (``Usage`` of its schema), and some agents give those of
        one prompt alone, or of its last request (OpenCode 1.18). The two differ by ``in_context``, the tokens
        that the agent's context holds (0: not reported): each prompt sends at least that much, so a sum grows by it.
        """
        if told is None or not told.total_tokens:
            return {}
        # the protocol counts what was cached apart from the rest of the input
        cached = told.cached_read_tokens or 0
        tokens = {
            "input_tokens": told.input_tokens + (told.cached_write_tokens or 0) + cached,
            "output_tokens": told.output_tokens, "cached_tokens": cached,
            "reasoning_tokens": told.thought_tokens or 0,
        }  # fmt: skip
        before, self._counted = self._counted, tokens
        new = {name: count - before.get(name, 0) for name, count in tokens.items()}
        is_sum = min(new.values()) >= 0 and new["input_tokens"] + new["output_tokens"] >= in_context
        return new if is_sum else tokens

    async def start(self) -> None:
        from acp import PROTOCOL_VERSION, schema

        url, token = await self._serve(), self._token
        process = await self._launch()
        assert process.stdin is not None and process.stdout is not None
        client: Any = self._client  # of the protocol's methods it has those that are used
        self._connection = connection(client, process.stdout, process.stdin, self._client)
        hello = await self._alive(self._connection.initialize(
            protocol_version=PROTOCOL_VERSION, client_capabilities=schema.ClientCapabilities(),
            client_info=schema.Implementation(name="kernellab", version="1"),
        ))  # fmt: skip
        if hello.protocol_version != PROTOCOL_VERSION:
            raise ModelError(
                ModelFault.CONFIG,
                f"The agent {self._name} speaks version {hello.protocol_version} of the Agent Client Protocol, "
                f"kernellab version {PROTOCOL_VERSION}.",
                "Install a version of the agent that speaks it.",
            )
        able = hello.agent_capabilities
        over_http = bool(able and able.mcp_capabilities and able.mcp_capabilities.http)
        server: Any
        if over_http:
            header = schema.HttpHeader(name="Authorization", value=f"Bearer {token}")
            server = schema.HttpMcpServer(type="http", name="kernellab", url=url, headers=[header])
        else:
            server = schema.McpServerStdio(
                name="kernellab", command=sys.executable, args=["-m", "kernellab", "mcp", "--relay", url],
                env=[schema.EnvVariable(name="KERNELLAB_MCP_TOKEN", value=token)],
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
        """From any thread: kill what was started. The namespace's first process takes all others along; without one
        the first process inherits those that detached, so that it is the last to be killed."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(psutil.Error):
                started = psutil.Process(self._process.pid)
                until = time.monotonic() + _LAST_SWEEP_S
                while (below := _alive_below(started)) and time.monotonic() < until:
                    for one in below:
                        with contextlib.suppress(psutil.Error):
                            one.kill()
                started.kill()
        with contextlib.suppress(Exception):
            loop().submit(self._close()).result(2)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        if self._connection is not None:
            await self._connection.close()
        if self._process is not None:
            # a stream with text that no one read is not seen to be closed
            while self._process.stdout is not None and await self._process.stdout.read(_UNREAD):
                pass
            await self._process.wait()
        self._errors.close()
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
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        variables = {**kept, **self._options.env, "TMPDIR": str(temporary)}
        own, moved = self._own_folders(variables)
        writable = json.dumps([str(self._folder), *own])
        variables |= moved
        told, report = os.pipe()
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(_CONFINE), str(report), writable, json.dumps(_commanding()), program,
            *self._options.command[1:],
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._errors, limit=MOST_SAID,
            cwd=self._folder, env=variables, start_new_session=True, pass_fds=[report],
        )  # fmt: skip
        os.close(report)
        with os.fdopen(told, encoding="utf-8") as words:
            self.held = await in_daemon(words.read)
        return process

    def _own_folders(self, variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """The folders that the agent may write to, and variables that name those of the workspace.

        What a person's own use of the agent has made in the home stays in use, with its login. Where there is nothing
        of a kind (settings, cache, data, state), it lies in ``.kernellab/agents/NAME`` of the workspace and is kept for
        the next turn. Folders that ``writes`` names are made.
        """
        home = Path(variables.get("HOME") or Path.home())
        folders, moved = [home / f".{self._name}"], dict[str, str]()
        for variable, (usual, name) in _OWN.items():
            theirs = Path(variables.get(variable) or home / usual) / self._name
            if not theirs.exists() and variable not in self._options.env and not self._options.writes:
                moved[variable] = str(self._desk.context.workspace / ".kernellab" / "agents" / self._name / name)
                theirs = Path(moved[variable])
                theirs.mkdir(parents=True, exist_ok=True)
                # whatever modes it gives its files, other users of the machine do not get at them
                theirs.parent.chmod(0o700)
            folders.append(theirs)
        if self._options.writes:
            # relative ones are of the home, as the usual ones are
            folders = [home / Path(path).expanduser() for path in self._options.writes]
        # below another one the agent could put a link that the next turn would follow
        folders = [folder for folder in folders if not set(folder.parents) & set(folders)]
        if self._options.writes:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
        return [str(folder) for folder in folders if folder.exists()], moved

    async def _alive(self, answer: Any) -> Any:
        """The agent's answer. Raises ModelError: it ended, refused, or answered in another form than the protocol's."""
        from acp import RequestError
        from pydantic import ValidationError

        assert self._process is not None
        asked, ended = asyncio.ensure_future(answer), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise ConnectionError
        except RequestError as error:
            raise ModelError(
                ModelFault.SERVER, f"The agent {self._name} refused: {escaped(scrub(str(error))[:_ERROR])}.",
                "Log in with its own command line first, then resume.", resumable=True,
            ) from None  # fmt: skip
        except ValidationError as error:
            where = ".".join(str(step) for step in error.errors()[0]["loc"]) or "the whole"
            raise ModelError(
                ModelFault.SERVER,
                f"The agent {self._name} gave an answer that is none of the Agent Client Protocol: {where} is wrong.",
                "Resume to ask again; another version of the agent may do better.", resumable=True,
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
        with contextlib.suppress(OSError, ValueError):
            file = self._errors.fileno()
            # the agent writes at the descriptor's place, which stays
            text = os.pread(file, _LAST_BYTES, max(0, os.fstat(file).st_size - _LAST_BYTES)).decode(errors="replace")
            return f" It wrote: {escaped(scrub(' '.join(text.split()))[-300:])}" if text.strip() else ""
        return ""


def is_apart(held: str) -> bool:
    """Can an agent that is held so neither read the judge's memory, write its files, nor command the notebook?"""
    return "mnt" in held and "landlock" in held


def holds() -> str:
    """What would hold an agent on this machine, in level words; asked of a short process."""
    told, report = os.pipe()
    with tempfile.TemporaryDirectory() as folder, os.fdopen(told, encoding="utf-8") as words:
        command = [sys.executable, str(_CONFINE), str(report), json.dumps([folder]), json.dumps(_commanding())]
        try:
            subprocess.run(
                [*command, "true"], pass_fds=[report], cwd=folder, capture_output=True, timeout=30, check=False
            )
        finally:
            os.close(report)
        return words.read()


def _share_of_load() -> float:
    """How much longer than alone a process takes on this machine now; from 1 to 4."""
    return min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def _commanding() -> list[str]:
    """Folders and sockets by which the agent could command the notebook, a Jupyter server or the person's programs."""
    from jupyter_core.paths import jupyter_config_dir, jupyter_runtime_dir

    # what is not there cannot be hidden, and a server may begin while an agent works
    with contextlib.suppress(OSError):
        os.makedirs(jupyter_runtime_dir(), 0o700, exist_ok=True)
    application = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    kernel = application.instance().abs_connection_file if application and application.initialized() else ""
    given = os.environ.get
    docker = given("DOCKER_HOST", "")
    docker = docker.removeprefix("unix://") if docker.startswith("unix://") else ""
    patterns = [*map(os.path.expanduser, _LISTENING), os.path.join(escape(given("TMUX_TMPDIR") or "/tmp"), "tmux-*")]
    places = [jupyter_runtime_dir(), jupyter_config_dir(), kernel, given("XDG_RUNTIME_DIR"), docker]
    return list(dict.fromkeys([*filter(None, places), *(path for pattern in patterns for path in glob(pattern))]))


def _alive_below(first: psutil.Process) -> list[psutil.Process]:
    return [one for one in first.children(recursive=True) if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
