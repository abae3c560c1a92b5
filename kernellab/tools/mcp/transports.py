"""How clients reach the server: the standard streams, HTTP on loopback, and a relay from the one to the other."""

from __future__ import annotations

import hmac
import io
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any

from kernellab.tools.context import Context
from kernellab.tools.mcp.handlers import Handlers
from kernellab.tools.mcp.sdk import make_server
from kernellab.tools.records import ToolError

if TYPE_CHECKING:
    import anyio

_PORT_REMEDY = "Name another with --port, or end what has it: another `kernellab mcp --http`?"


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
            raise ToolError(f"Port {port} of this machine cannot be used: {error.strerror}.", _PORT_REMEDY) from None
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
