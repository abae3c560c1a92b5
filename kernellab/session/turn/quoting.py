"""A person's own words next to what the tools call them: the line of the task that a message names."""

from __future__ import annotations

import re

_LINE = re.compile(r"\b[Ll]ine (\d+)\b")


def quoted(message: str, text: str) -> str:
    """``message`` with the line of ``text`` that it names, as it was written; the message alone where there is none."""
    found = _LINE.search(message)
    lines = text.splitlines()
    if found is None or not 1 <= int(found[1]) <= len(lines):
        return message
    words = lines[int(found[1]) - 1].strip()
    return f"{message} The line reads: `{words}`." if words and words not in message else message
