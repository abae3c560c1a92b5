"""The tools over the Model Context Protocol: ``kernellab mcp``, on the official SDK (extra ``agents``).

Tools come with input and output schemas; documents, sessions' tasks, sketches and verdicts are resources, the roles'
briefs prompts. Progress is sent while a kernel is judged; a cancelled request ends the judge. The SDK's versions 1.24
and 2.x differ in how handlers are registered and in the names of Python fields, so what is sent is made as the wire has
it and checked by whichever is installed.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from kernellab.content import installed
from kernellab.dsls.spec import whose
from kernellab.errors import KernellabError
from kernellab.tools.context import Context
from kernellab.tools.desk import Desk
from kernellab.tools.documents import documents, text_of
from kernellab.tools.records import ToolError
from kernellab.tools.tool import Tool, call, failed, tools
from kernellab.verifier.protocol.sanitize import shown

if TYPE_CHECKING:
    import anyio

INSTRUCTIONS = (
    "kernellab designs, checks and judges compute kernels. Work in this order: describe_task, read_document "
    "language/overview.md, write a sketch, check_sketch, gate_sketch, cost_sketch, then lower_sketch or code by hand, "
    "verify_source, lens. The verdict comes from a judge in another process: a kernel that is fast only when it is "
    "watched fails."
)
Wire = dict[str, Any]
#: reports progress: the number of steps so far, and a sentence
Report = Callable[[float, str], Coroutine[Any, Any, None]]
_DOCUMENT = "kernellab://documents/"
_SESSION = "kernellab://sessions/"
#: parts of a session that are resources
_PARTS = ("task", "sketch", "source", "verdict")
_PLAIN = "text/plain"
_ROLES = ("designer", "coder", "conductor")
_PORT = "Name another with --port, or end what has it: another `kernellab mcp --http`?"


class Handlers:
    """What the server answers, as the wire has it; nothing of an SDK's version."""

    def __init__(self, context: Context, desk: Desk | None = None) -> None:
        """With a ``desk`` an agent's turn is served: its tools, each call on its record."""
        self.context, self.desk = context, desk

    async def list_tools(self) -> Wire:
        return {"tools": [_described(one) for one in (self.desk.tools if self.desk else tools()).values()]}

    async def call_tool(self, name: str, arguments: Mapping[str, Any], report: Report) -> Wire:
        """The result with its text; what a tool cannot do is a result that says so, with the remedy."""
        import anyio

        loop = asyncio.get_running_loop()
        cancel = threading.Event()
        steps = 0

        def progress(sentence: str) -> None:
            nonlocal steps
            steps += 1
            if not cancel.is_set():
                # from whichever thread works, which does not wait for the client
                asyncio.run_coroutine_threadsafe(report(float(steps), sentence), loop)

        context, work = self.context.of_call(progress, cancel), self.desk.call if self.desk else call
        news = self.desk.news if self.desk else str
        try:
            result = await anyio.to_thread.run_sync(lambda: work(name, arguments, context), abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            cancel.set()
            raise
        except KernellabError as error:
            words = "\n-> ".join(filter(None, (error.message, error.remedy)))
            return {"content": _texts(words, news()), "isError": True}
        except Exception as error:  # the server outlives a fault of one tool
            return {"content": [_text(failed(name, error))], "isError": True}
        texts = _texts(result.model_dump_json(), news())
        return {"content": texts, "structuredContent": result.model_dump(mode="json"), "isError": False}

    async def list_resources(self) -> Wire:
        from kernellab.session import sessions

        if self.desk:
            return {"resources": []}
        folder = self.context.workspace
        rows = [
            {"uri": _DOCUMENT + quote(name), "name": shown(name), "mimeType": _mime(name)}
            | ({"description": told} if (told := whose(path, folder)) else {})
            for name, path in documents(folder).items()
        ]
        for session in sessions(self.context.workspace)[-20:]:
            rows += [
                {"uri": f"{_SESSION}{session}/{part}", "name": f"{session}: {part}", "mimeType": _PLAIN}
                for part in _PARTS
            ]
        return {"resources": rows}

    async def list_resource_templates(self) -> Wire:
        """None: each resource is listed. A client that asks all lists at its start gets an answer."""
        return {"resourceTemplates": []}

    async def read_resource(self, uri: str) -> Wire:
        """Raises ToolError: there is no such resource."""
        if self.desk:
            raise ToolError("A turn has no resources.", "read_document gives the documents.")
        if uri.startswith(_DOCUMENT):
            name = unquote(uri.removeprefix(_DOCUMENT))
            path = documents(self.context.workspace).get(name)
            if path is not None:
                return _contents(uri, text_of(name, path), _mime(uri))
        if uri.startswith(_SESSION):
            name, _, part = uri.removeprefix(_SESSION).rpartition("/")
            if part not in _PARTS:
                raise ToolError(f"{uri!r} names no part of a session.", f"{_SESSION}NAME/{'|'.join(_PARTS)}")
            text = _of_session(self.context, name, part)
            if text:
                return _contents(uri, text)
        raise ToolError(f"There is no resource {uri!r}.", "resources/list names them all.")

    async def list_prompts(self) -> Wire:
        if self.desk:
            return {"prompts": []}
        argument = {"name": "session", "description": "A session's name.", "required": True}
        return {
            "prompts": [
                {"name": role, "description": f"The brief of the {role}'s next turn.", "arguments": [argument]}
                for role in _ROLES
            ]
        }

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Wire:
        """Raises ToolError: there is no such role, or no session is named. SessionError: it has nothing to work on."""
        import anyio

        if self.desk or name not in _ROLES or "session" not in arguments:
            raise ToolError(f"The prompt {name!r} needs a role and a session.", f"Roles: {', '.join(_ROLES)}.")
        session = self.context.session(arguments["session"])
        brief = await anyio.to_thread.run_sync(lambda: session.brief(name))
        return {"messages": [{"role": "user", "content": _text(brief)}]}


def _described(one: Tool) -> Wire:
    return {
        "name": one.name,
        "description": one.description,
        "inputSchema": one.request.model_json_schema(),
        "outputSchema": one.result.model_json_schema(),
        # by these a client decides what it asks a person for
        "annotations": {"readOnlyHint": not one.changes, "destructiveHint": False, "openWorldHint": one.opens},
    }


def _texts(*texts: str) -> list[Wire]:
    return [_text(text) for text in texts if text]


def _text(text: str) -> Wire:
    return {"type": "text", "text": shown(text)}


def _mime(name: str) -> str:
    """The kind of a document, by its name's end: listed and read alike."""
    return "text/markdown" if name.endswith(".md") else _PLAIN


def _contents(uri: str, text: str, mime: str = _PLAIN) -> Wire:
    return {"contents": [{"uri": uri, "mimeType": mime, "text": shown(text)}]}


def _of_session(context: Context, name: str, part: str) -> str:
    from kernellab.tools.results.verdict import verdict_result

    session = context.session(name)
    state = session.state
    candidate = state.candidate()
    if part == "task":
        return state.created.text
    if part == "sketch":
        turn = state.sketch_turn()
        return (turn.sketch or "") if turn else ""
    if part == "source" and candidate is not None:
        return "\n".join(f"==== {file}\n{text}" for file, text in candidate.source.files.items())
    if part == "verdict":
        found = next((t.verdict for t in reversed(state.path()) if t.verdict), None)
        return verdict_result(context.task(name), found).model_dump_json(indent=1) if found else ""
    return ""


# -- the SDK -----------------------------------------------------------------------------------------------------------


def make_server(handlers: Handlers) -> Any:
    """A server of the installed SDK.

    Raises:
        ToolError: the SDK is not installed, or too old.
    """
    found = installed("mcp")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < (1, 24):
        state = f"mcp {found} is too old" if found else "The package mcp is not installed"
        raise ToolError(f"{state}; `kernellab mcp` needs 1.24 or newer.", "pip install 'kernellab[agents]'")
    return (_server_of_2 if numbers >= (2, 0) else _server_of_1)(_answers(handlers))


def _answers(handlers: Handlers) -> dict[str, Callable[[Any, Report], Awaitable[Wire]]]:
    """What is answered to each kind of request, by its name in the SDK."""
    return {
        "list_tools": lambda params, report: handlers.list_tools(),
        "call_tool": lambda params, report: handlers.call_tool(params.name, params.arguments or {}, report),
        "list_resources": lambda params, report: handlers.list_resources(),
        "list_resource_templates": lambda params, report: handlers.list_resource_templates(),
        "read_resource": lambda params, report: handlers.read_resource(str(params.uri)),
        "list_prompts": lambda params, report: handlers.list_prompts(),
        "get_prompt": lambda params, report: handlers.get_prompt(params.name, params.arguments or {}),
    }


def _camel(kind: str) -> str:
    return kind.title().replace("_", "")


def _server_of_2(answers: Mapping[str, Callable[[Any, Report], Awaitable[Wire]]]) -> Any:
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError

    def handler(kind: str) -> Any:
        async def handle(ctx: Any, params: Any) -> Any:
            async def report(steps: float, sentence: str) -> None:
                await ctx.session.report_progress(steps, None, sentence)

            try:
                answer = await answers[kind](params, report)
            except KernellabError as error:  # any other exception is logged with its traceback
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
            return getattr(types, f"{_camel(kind)}Result").model_validate(answer)

        return handle

    asked: Any = {f"on_{kind}": handler(kind) for kind in answers}
    return Server("kernellab", version=version("kernellab"), instructions=INSTRUCTIONS, **asked)


def _server_of_1(answers: Mapping[str, Callable[[Any, Report], Awaitable[Wire]]]) -> Any:
    from importlib import import_module

    from mcp.server.lowlevel import Server

    # its Python types have other names than those of 2.x, by which this is checked
    types: Any = import_module("mcp.types")
    server: Any = Server("kernellab", version=version("kernellab"), instructions=INSTRUCTIONS)

    async def report(steps: float, sentence: str) -> None:
        context = server.request_context
        token = context.meta.progressToken if context.meta else None
        if token is not None:
            await context.session.send_progress_notification(token, steps, None, sentence)

    def register(kind: str) -> None:
        async def handle(message: Any) -> Any:
            answer = await answers[kind](message.params, report)
            return types.ServerResult(getattr(types, f"{_camel(kind)}Result").model_validate(answer))

        server.request_handlers[getattr(types, f"{_camel(kind)}Request")] = handle

    for kind in answers:
        register(kind)
    return server


# -- transports --------------------------------------------------------------------------------------------------------


def serve_stdio(context: Context) -> None:
    """Serves one client on the standard streams until it closes them. What tasks print goes to stderr.

    Raises:
        ToolError: the SDK is not installed.
    """
    import anyio

    server = make_server(Handlers(context))

    async def serve() -> None:
        from mcp.server.stdio import stdio_server

        # a print of a task's file would break the protocol, and what reads would take a request: the client's streams
        # are known to the server alone
        wire, asked = os.dup(1), os.dup(0)
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
        out = anyio.wrap_file(
            io.TextIOWrapper(os.fdopen(wire, "wb", buffering=0), encoding="utf-8", write_through=True)
        )
        # the transport of either SDK only iterates over it
        lines: Any = _lines(os.fdopen(asked, "rb"), out)
        async with stdio_server(lines, out) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    try:
        _until_the_client_goes(serve)
    finally:
        context.close()


def _until_the_client_goes(serve: Callable[[], Awaitable[None]]) -> None:
    """Runs it; a client that was killed has no end of its streams to read. What fails alone in a group is raised."""
    import anyio

    try:
        anyio.run(serve)
    except Exception as error:
        first: BaseException = error
        while len(within := list(getattr(first, "exceptions", []))) == 1:
            first = within[0]
        if not isinstance(first, BrokenPipeError):
            raise first from None


#: what JSON-RPC answers where no request can be read
_NO_TEXT = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "The line is not UTF-8."}}


async def _lines(stream: IO[bytes], out: anyio.AsyncFile[str]) -> AsyncIterator[str]:
    """The client's lines; one that is not UTF-8 is answered with a parse error and left out."""
    import anyio

    async for line in anyio.wrap_file(stream):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            await out.write(f"{json.dumps(_NO_TEXT)}\n")


_NO_TOKEN = "The bearer token that `kernellab mcp --http` printed is missing."
_ANOTHER_TOKEN = "This is another bearer token than `kernellab mcp --http` printed; started again, it prints a new one."


def http_app(handlers: Handlers, token: str) -> Any:
    """The server as an ASGI application at ``/mcp``, for requests with the bearer ``token``."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount

    local = ["127.0.0.1:*", "localhost:*", "[::1]:*"]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=local, allowed_origins=[f"http://{host}" for host in local]
    )
    manager = StreamableHTTPSessionManager(app=make_server(handlers), security_settings=security)

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        sent = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, given = sent.partition(b" ")  # whose case does not count
        bearer = scheme.lower() == b"bearer"
        if not bearer or not hmac.compare_digest(given.strip(), token.encode()):
            await PlainTextResponse(_ANOTHER_TOKEN if bearer else _NO_TOKEN, 401)(scope, receive, send)
            return
        await manager.handle_request(scope, receive, send)

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        async with manager.run():
            yield
        handlers.context.close()

    return Starlette(routes=[Mount("/mcp", app=guarded)], lifespan=lifespan)


def serve_http(context: Context, port: int, token: str, ready: Callable[[], None] = lambda: None) -> None:
    """Serves clients on loopback until it is interrupted; ``ready`` is called when they can connect.

    Raises:
        ToolError: the SDK is not installed, or the port is not free.
    """
    app = http_app(Handlers(context), token)
    import uvicorn

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
            listening.listen()
        except OSError as error:
            raise ToolError(f"Port {port} of this machine cannot be used: {error.strerror}.", _PORT) from None
        ready()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


def relay(url: str, token: str) -> None:
    """Carries messages between the standard streams and a server over HTTP: for agents that start servers alone."""
    import anyio
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def carry(source: Any, to: Any) -> None:
        async with to:
            async for message in source:
                await to.send(message)

    async def serve() -> None:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as client,
            streamable_http_client(url, http_client=client) as (read, write, *_),
            stdio_server() as (wire_in, wire_out),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(carry, read, wire_out)
            await carry(wire_in, write)
            tasks.cancel_scope.cancel()

    _until_the_client_goes(serve)
