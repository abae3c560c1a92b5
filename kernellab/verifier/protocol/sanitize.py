"""Makes output of candidates and compilers safe to display: no character of it moves a cursor or hides another."""

from __future__ import annotations

import unicodedata
from typing import Any

#: categories of invisible characters that affect visible ones: controls, formats, lone surrogates
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_KEPT = frozenset("\n\t")


def shown(text: str) -> str:
    """``text`` with control, format and unpaired characters as escapes (``\\x1b``); keeps line breaks and tabs."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_escaped(c) if _hidden(c) else c for c in text.replace("\r\n", "\n"))


def shown_all(value: Any) -> Any:
    """The same for every string of a JSON value, including keys."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list):
        return [shown_all(item) for item in value]
    if isinstance(value, dict):
        return {shown(key): shown_all(item) for key, item in value.items()}
    return value


def _hidden(character: str) -> bool:
    return character not in _KEPT and unicodedata.category(character) in _HIDDEN


def _escaped(character: str) -> str:
    return (
        character.encode("ascii", "backslashreplace").decode() if ord(character) > 127 else f"\\x{ord(character):02x}"
    )
