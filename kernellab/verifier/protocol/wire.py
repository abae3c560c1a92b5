"""Messages between client, judge, fork server and worker: capped JSON, never anything that executes when read."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from kernellab.sandbox.caps import CAPS

_LENGTH = struct.Struct(">I")
#: a request contains a task's and a candidate's text
_STREAM_CAP = 64 << 20
_FDS = 8


class Malformed(Exception):
    """A message that is too long, truncated, or not a JSON object."""


def send(stream: socket.socket, message: dict[str, Any]) -> None:
    """Send one length-prefixed message on a stream socket."""
    body = json.dumps(message, separators=(",", ":")).encode()
    stream.sendall(_LENGTH.pack(len(body)) + body)


def receive(stream: socket.socket) -> dict[str, Any] | None:
    """The next length-prefixed message; None if the other side has closed."""
    head = _exactly(stream, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _STREAM_CAP:
        raise Malformed(f"a message of {length} bytes")
    body = _exactly(stream, length)
    return None if body is None else _object(body)


def post(packets: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one packet on a SOCK_SEQPACKET socket, with file descriptors."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > CAPS.message:
        raise Malformed(f"a control message of {len(body)} bytes (the cap is {CAPS.message})")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    packets.sendmsg([body], rights)


def take(packets: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next packet and its file descriptors; None if the other side has closed."""
    body, ancillary, flags, _ = packets.recvmsg(CAPS.message, socket.CMSG_SPACE(_FDS * 4))
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for fd in fds:
            os.close(fd)
        raise Malformed("a control message over the cap")
    return (_object(body) if body else None), list(fds)


def _exactly(stream: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = stream.recv(min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _object(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("a message that is not JSON") from None
    if not isinstance(message, dict):
        raise Malformed("a message that is not an object")
    return message
