"""The messages between an agent's program and its client, one JSON object a line, as a transport of the ACP SDK.

The SDK's own transport joins a line of any length, starts a task for each request whether or not earlier answers are
read, and logs what it cannot read with a traceback, in the agent's own characters. An agent may fill the notebook's
memory and its output by each of these. Here a line has a longest length, only so many requests are open at a time, and
what is no message of the protocol is left out; all of it counts as said by the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from typing import Any, Protocol

#: requests of an agent that may wait for their answer; further lines are read after one is answered
MOST_OPEN = 64
#: what a message that is not used counts, in characters, in addition to its length
UNUSED = 1000
#: JSON-RPC's number of an error that names none
_INTERNAL = -32603


class Listener(Protocol):
    """Who hears what the agent says."""

    @property
    def too_long(self) -> bool: ...

    def heard(self, characters: int) -> None: ...

    async def session_update(self, session_id: str, update: Any) -> None: ...


class Wire:
    """A transport over the program's streams; ``reader`` has a limit of the bytes of one line.

    Updates go to ``listener`` at once and in their order. After too much was said nothing more is read: the turn ends.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener: Listener) -> None:
        self._reader, self._writer, self._listener = reader, writer, listener
        self._sending = asyncio.Lock()
        self._open = asyncio.Semaphore(MOST_OPEN)
        #: numbers of what was asked and is not answered
        self._asked: set[Any] = set()

    async def send(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError: the program is gone, and it was to be asked."""
        line = json.dumps(message, separators=(",", ":")) + "\n"
        try:
            async with self._sending:
                if self._writer.is_closing():
                    raise ConnectionResetError("The program is gone.")
                if "method" in message and "id" in message:
                    self._asked.add(message["id"])
                self._writer.write(line.encode())
                await self._writer.drain()
        except ConnectionError:
            if "method" in message:
                raise
        finally:
            if "method" not in message:
                self._open.release()

    async def receive(self) -> dict[str, Any] | None:
        """The next request or answer; None: the program has closed its stream."""
        while (line := await self._line()) is not None:
            message = _read(line) or {}
            method = message.get("method")
            if method == "session/update" and await self._updated(message):
                continue
            if method is None and message.get("id") in self._asked:
                self._asked.remove(message["id"])
                return message
            self._listener.heard(len(line) + UNUSED)
            if method not in (None, "session/update"):
                await self._open.acquire()
                return message
        return None

    async def close(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()

    async def _line(self) -> bytes | None:
        # what is buffered is read without a wait, and others use this loop too
        await asyncio.sleep(0)
        try:
            while not self._listener.too_long:
                if line := (await self._reader.readuntil(b"\n")).strip():
                    return line
                self._listener.heard(UNUSED)
        except asyncio.IncompleteReadError:  # its end; half of a message is none
            return None
        except asyncio.LimitOverrunError as error:
            self._listener.heard(error.consumed)
        # until the turn ends, which cancels this
        await asyncio.get_running_loop().create_future()
        return None

    async def _updated(self, message: dict[str, Any]) -> bool:
        """Was it an update that the protocol knows? Newer ones are left out."""
        from acp.schema import SessionNotification

        try:
            found = SessionNotification.model_validate(message.get("params"))
            await self._listener.session_update(found.session_id, found.update)
        except (ValueError, RecursionError):  # of another form, or it holds what cannot be written as JSON
            return False
        return True


class _Lines(asyncio.StreamReader):
    """A wire's messages as lines, for an SDK that takes streams."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        message = await self._wire.receive()
        if message is None:
            raise asyncio.IncompleteReadError(b"", None)
        return json.dumps(message).encode() + b"\n"


def connection(client: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener: Listener) -> Any:
    """The SDK's connection to a program through a :class:`Wire`. Before 0.12 the SDK takes streams and no transport."""
    from acp.client import ClientSideConnection

    wire = Wire(reader, writer, listener)
    made: Any = ClientSideConnection
    if inspect.signature(made).parameters["output_stream"].default is None:
        return made(client, wire)
    return made(client, writer, _Lines(wire), sender_factory=lambda *_: wire)


def _read(line: bytes) -> dict[str, Any] | None:
    """The message of a line, in the form that JSON-RPC gives it; None: it is none, or a notification without use."""
    try:
        message = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id", 0), (int, str)):
        return None
    if "method" in message:
        known = message["method"] == "session/update" or "id" in message
        return message if isinstance(message["method"], str) and known else None
    if "id" not in message:
        return None
    if "error" in message and "result" not in message:
        told = message["error"] if isinstance(message["error"], dict) else {}
        code, words = told.get("code"), told.get("message")
        message["error"] = {
            "code": code if isinstance(code, int) else _INTERNAL,
            "message": words if isinstance(words, str) else "Error",
        }
    return message


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
