"""What a message of the front end says, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kernellab.errors import KernellabError

Body = Mapping[str, Any]
T = TypeVar("T")


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


def named(table: Mapping[str, T], body: Body, key: str, what: str) -> T:
    """What ``table`` holds under the message's ``key``. Raises KernellabError: an unknown ``what``."""
    name = body.get(key)
    entry = table.get(name) if isinstance(name, str) else None
    if entry is None:
        raise KernellabError(f"The page sent the unknown {what} {name!r}.", "Reload the page.")
    return entry
