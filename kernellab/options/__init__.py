"""Options of commands, magics, ``%config`` and ``kernellab.toml``: each is one field of a request."""

from __future__ import annotations

from kernellab.options.entry import (
    CALL,
    EVERYWHERE,
    REQUEST,
    Entry,
    Option,
    Request,
    Surface,
    build,
    entries,
    given,
    is_request,
    signature_of,
)

__all__ = [
    "CALL",
    "EVERYWHERE",
    "REQUEST",
    "Entry",
    "Option",
    "Request",
    "Surface",
    "build",
    "entries",
    "given",
    "is_request",
    "signature_of",
]
