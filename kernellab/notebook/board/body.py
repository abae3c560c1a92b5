"""What a message of the front end says, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.errors import KernellabError

Body = Mapping[str, Any]


def words(body: Body, name: str) -> str:
    """A text of the message. Raises KernellabError where it has none."""
    value = body.get(name)
    if not isinstance(value, str):
        raise KernellabError(f"The view's message has no {name!r}.", "Reload the page.")
    return value


def number(body: Body, name: str) -> int:
    """A whole number of the message. Raises KernellabError where it has none."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise KernellabError(f"The view's message has no number {name!r}.", "Reload the page.")
    return value
