"""An HTTP server on the loopback that speaks chat completions, well or badly: one act a request.

Acts are played in order and the last one again and again. What was asked is kept in ``requests``.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {
    "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 5},
}  # fmt: skip


@dataclass
class Asked:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass
class FakeServer:
    """``with FakeServer(answer("hi")) as server: ... server.url``. ``released`` ends every stall."""

    acts: list[Act]
    requests: list[Asked] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    #: requests that were being served at the same time, at most
    most_at_once: int = 0
    at_once: int = 0

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.requests, self.released = [], threading.Event()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with server._lock:
                    act = server.acts[min(len(server.requests), len(server.acts) - 1)]
                    server.requests.append(
                        Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                    )
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                try:
                    act(Connection(self, body, server))
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client hung up, as a cancellation does
                finally:
                    with server._lock:
                        server.at_once -= 1

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """A client that hangs up is what many tests are about."""

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> FakeServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()


@dataclass
class Connection:
    """One request being answered."""

    handler: BaseHTTPRequestHandler
    body: dict[str, Any]
    server: FakeServer

    def send(self, status: int, content: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer with its length."""
        self.handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()
        self.handler.wfile.write(content)

    def open_stream(self) -> None:
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()

    def event(self, data: Any) -> None:
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.handler.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.handler.wfile.flush()

    def delta(self, finish: str | None = None, **delta: Any) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.event({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-1", "choices": [choice]})

    def usage(self, usage: Mapping[str, Any]) -> None:
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-1", "choices": []}
        self.event({**chunk, "usage": usage})

    def done(self) -> None:
        self.event("[DONE]")
        self.handler.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Hang up without a goodbye."""
        linger = struct.pack("ii", 1, 0)
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.handler.close_connection = True
        self.handler.connection.close()


Act = Callable[[Connection], None]


def answer(
    text: str = "", *, finish: str | None = "stop", usage: Mapping[str, Any] | None = USAGE, reasoning: str = "",
    field: str = "reasoning_content", pieces: int = 3, **delta: Any,
) -> Act:  # fmt: skip
    """A streamed reply in ``pieces``; ``delta`` goes into the first chunk."""

    def act(link: Connection) -> None:
        link.open_stream()
        link.delta(role="assistant", content="", **delta)
        for piece in _split(reasoning, pieces):
            link.delta(**{field: piece})
        for piece in _split(text, pieces):
            link.delta(content=piece)
        link.delta(finish=finish)
        if usage is not None:
            link.usage(usage)
        link.done()

    return act


def whole(text: str, finish: str = "stop") -> Act:
    """A server that does not stream."""

    def act(link: Connection) -> None:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "fake-1", "choices": [choice]}
        link.send(200, json.dumps({**body, "usage": USAGE}).encode(), "application/json")

    return act


def status(number: int, message: str = "", headers: Mapping[str, str] | None = None, /, **error: Any) -> Act:
    def act(link: Connection) -> None:
        body = {"error": {"message": message, **error}}
        link.send(number, json.dumps(body).encode(), "application/json", headers)

    return act


def raw(content: str, kind: str, code: int = 200) -> Act:
    return lambda link: link.send(code, content.encode(), kind)


def events(data: Iterable[Any]) -> Act:
    """A stream of whatever is given."""

    def act(link: Connection) -> None:
        link.open_stream()
        for each in data:
            link.event(each)
        link.done()

    return act


def silent(before: str = "") -> Act:
    """Says ``before`` and then nothing until the test ends."""

    def act(link: Connection) -> None:
        if before:
            link.open_stream()
            link.delta(content=before)
        link.server.released.wait()
        link.reset()

    return act


def cut(before: str, hard: bool = False) -> Act:
    """A stream that ends in the middle: without a finish, or with the connection."""

    def act(link: Connection) -> None:
        link.open_stream()
        link.delta(content=before)
        link.reset() if hard else link.done()

    return act


def endless(piece: str) -> Act:
    def act(link: Connection) -> None:
        link.open_stream()
        while not link.server.released.is_set():
            link.delta(content=piece)

    return act


def refusing(part: Callable[[dict[str, Any]], bool], refusal: Act, otherwise: Act) -> Act:
    """``refusal`` for requests of which ``part`` is true."""
    return lambda link: (refusal if part(link.body) else otherwise)(link)


def _split(text: str, pieces: int) -> list[str]:
    step = max(-(-len(text) // pieces), 1)
    return [text[at : at + step] for at in range(0, len(text), step)]
