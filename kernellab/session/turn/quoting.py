"""Quotes the line of the task that a message names, so that a person sees their own text."""

from __future__ import annotations

import re

_LINE = re.compile(r"\b[Ll]ine (\d+)\b")


def quoted(message: str, text: str) -> str:
    """Return ``message`` with the quoted line of ``text`` that it names; unchanged if it names none."""
    line_match = _LINE.search(message)
    lines = text.splitlines()
    if line_match is None or not 1 <= int(line_match[1]) <= len(lines):
        return message
    quoted_line = lines[int(line_match[1]) - 1].strip()
    return f"{message} The line reads: `{quoted_line}`." if quoted_line and quoted_line not in message else message
