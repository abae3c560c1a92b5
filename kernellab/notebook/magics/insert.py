"""Cells that a view offers: a kernel can put a cell into the notebook only in answer to a cell that is run.

``set_next_input`` travels in the reply to an execution (Jupyter's messaging protocol, "payloads"), so from a click it
would appear below whatever is run next. Instead the text waits here for ``%kernel_insert``.
"""

from __future__ import annotations

import threading

_LOCK = threading.Lock()
_offered: list[str] = []


def offer(text: str) -> str:
    """Keep ``text`` for %kernel_insert; the note says how it gets into the notebook."""
    with _LOCK:
        _offered[:] = [text]
    return "Copied: paste it into a new cell, or run %kernel_insert."


def offered() -> str | None:
    with _LOCK:
        return _offered[0] if _offered else None
