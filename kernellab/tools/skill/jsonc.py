"""JSON with comments and trailing commas, as OpenCode, Gemini CLI and editors write it: read, and changed in place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.decoder import JSONDecoder
from typing import Any

#: a string, which is kept; a comment, or a comma before an end, which is blanked
_PIECES = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\\n])*")|,(?=\s*[}\]])', re.DOTALL)
_SPACE = re.compile(r"\s*")
_INDENT = "  "


def plain(text: str) -> str:
    """``text`` as JSON: comments and trailing commas are spaces, so that every place stays where it is."""
    for pieces in (_PIECES, _LAST_COMMA):
        text = pieces.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
    return text


def read(text: str) -> Any:
    """Raises JSONDecodeError: it is no JSON, also without comments and trailing commas."""
    return json.loads(plain(text))


def with_value(text: str, path: tuple[str, ...], value: Any) -> str:
    """``text`` with ``value`` at ``path`` of its object; objects on the way are added. All else stays as it is.

    Raises:
        ValueError: it is no JSON object, or something else lies on the way.
    """
    bare = plain(text)
    at = _next(bare, 0)
    for depth, key in enumerate(path):
        if bare[at : at + 1] != "{":
            raise ValueError(f"{'.'.join(path[:depth]) or 'it'} is no object")
        found = _members(bare, at)
        if key not in found:
            rest: Any = value
            for inner in reversed(path[depth + 1 :]):
                rest = {inner: rest}
            return _added(text, at, key, rest, depth + 1, not found)
        at, end = found[key]
    return text[:at] + _dumped(value, len(path)) + text[end:]


def with_values(text: str, path: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """As :func:`with_value` for each of ``values`` that differs in the object at ``path``."""
    for key, value in reversed([*values.items()]):
        text = with_value(text, (*path, key), value)
    return text


def _members(bare: str, at: int) -> dict[str, tuple[int, int]]:
    """Where the value of each key of the object at ``at`` begins and ends."""
    found, at = dict[str, tuple[int, int]](), _next(bare, at + 1)
    while bare[at] != "}":
        key, at = JSONDecoder().raw_decode(bare, at)
        begin = _next(bare, _next(bare, at) + 1)
        _, end = JSONDecoder().raw_decode(bare, begin)
        found[key] = begin, end
        at = _next(bare, end)
        at = _next(bare, at + 1) if bare[at] == "," else at
    return found


def _next(bare: str, at: int) -> int:
    return _SPACE.match(bare, at).end()  # type: ignore[union-attr]


def _added(text: str, at: int, key: str, value: Any, depth: int, only: bool) -> str:
    """With ``key`` as the first of the object whose ``{`` is at ``at``."""
    entry = f"\n{_INDENT * depth}{json.dumps(key)}: {_dumped(value, depth)}"
    end = f"\n{_INDENT * (depth - 1)}" if only and text[at + 1 :].lstrip()[:1] == "}" else ""
    rest = text[at + 1 :].lstrip() if end else text[at + 1 :]
    return f"{text[: at + 1]}{entry}{'' if only else ','}{end}{rest}"


def _dumped(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2).replace("\n", "\n" + _INDENT * depth)
