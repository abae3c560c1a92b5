"""The process of a coding agent: its connection by the Agent Client Protocol, and the server of its turn's tools.

All coroutines run on the models' loop; :meth:`AgentProcess.end` is called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from kernellab.errors import ModelError, ModelFault
from kernellab.models import scrub
from kernellab.models.loop import loop
from kernellab.options.agents import AgentOptions
from kernellab.tools.acp import confinement
from kernellab.tools.acp.client import MOST_SAID, Client, in_daemon
from kernellab.tools.acp.confinement import commanding_places, inherited_variables, is_apart, own_folders
from kernellab.tools.acp.wire import connection
from kernellab.tools.desk import Desk
from kernellab.tools.mcp.handlers import Handlers
from kernellab.tools.mcp.transports import http_app
from kernellab.verifier.protocol.sanitize import shown as escaped

_TICK_S = 0.05
#: bytes of its standard error that are read when it ends by itself
_LAST_BYTES = 4096
#: until what an agent detached is killed, where it starts other processes meanwhile
_LAST_SWEEP_S = 2.0
#: bytes that are read at a time of what an ended agent had written
_UNREAD = 1 << 20
#: characters of an error's message that a person sees
_ERROR = 300


class _Served(NamedTuple):
    """The address of the turn's tools, and the token that a client sends; as a server of the agent's session."""

    url: str
    token: str

    def over_http(self) -> Any:
        from acp import schema

        header = schema.HttpHeader(name="Authorization", value=f"Bearer {self.token}")
        return schema.HttpMcpServer(type="http", name="kernellab", url=self.url, headers=[header])

    def over_stdio(self) -> Any:
        """A process of kernellab carries the streams to the address."""
        from acp import schema

        return schema.McpServerStdio(
            name="kernellab", command=sys.executable, args=["-m", "kernellab", "mcp", "--relay", self.url],
            env=[schema.EnvVariable(name="KERNELLAB_MCP_TOKEN", value=self.token)],
        )  # fmt: skip


class AgentProcess:
    """The agent's process, its connection and its tools' server. All coroutines run on the models' loop."""

    def __init__(self, name: str, options: AgentOptions, desk: Desk, client: Client, folder: Path) -> None:
        self._name, self._options, self._desk, self._client, self._folder = name, options, desk, client, folder
        self._connection: Any = None
        self._session = ""
        #: the server of the turn's tools, and the task that it runs in
        self._server: Any = None
        self._serving: asyncio.Future[None] | None = None
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
        """Start the program with the turn's tools, and begin a session of its protocol."""
        from acp import PROTOCOL_VERSION, schema

        served = await self._serve()
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
        takes_http = bool(able and able.mcp_capabilities and able.mcp_capabilities.http)
        server = served.over_http() if takes_http else served.over_stdio()
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
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=1)

    async def _serve(self) -> _Served:
        """The turn's tools on a free port of loopback."""
        import uvicorn

        token = secrets.token_urlsafe(24)
        app = http_app(Handlers(self._desk.context, self._desk), token)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[listening]))
        while not self._server.started:
            await asyncio.sleep(_TICK_S)
        return _Served(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp/", token)

    async def _launch(self) -> asyncio.subprocess.Process:
        program = shutil.which(self._options.command[0])
        assert program is not None
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        variables = {**inherited_variables(), **self._options.env, "TMPDIR": str(temporary)}
        own = own_folders(self._name, self._options, self._desk.context.workspace, variables)
        writable = json.dumps([str(self._folder), *own.writable])
        told, report = os.pipe()
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(confinement.CONFINE), str(report), writable, json.dumps(commanding_places()), program,
            *self._options.command[1:],
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._errors, limit=MOST_SAID,
            cwd=self._folder, env=variables | own.variables, start_new_session=True, pass_fds=[report],
        )  # fmt: skip
        os.close(report)
        with os.fdopen(told, encoding="utf-8") as words:
            self.held = await in_daemon(words.read)
        return process

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


def _alive_below(first: psutil.Process) -> list[psutil.Process]:
    return [one for one in first.children(recursive=True) if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
