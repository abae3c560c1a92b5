"""Comments in lowered code quote the sketch's line; a prompt that contains the sketch shows only the line's number.

    acc[l] = acc[l] * keep[l];    // 27: acc = acc * keep[:, None]
    acc[l] = acc[l] * keep[l];    // 27

An answer is based on the numbers; :func:`in_full` restores the quotations, so other modules never see the short form.
"""

from __future__ import annotations

import re

_C = re.compile(r"// (?P<number>\d+): (?P<text>[^\n]*)$", re.MULTILINE)
_C_SHORT = re.compile(r"// (?P<number>\d+)[ \t]*$", re.MULTILINE)
_PYTHON = re.compile(r"# (?P<text>[^\n]*)$", re.MULTILINE)
_PYTHON_SHORT = re.compile(r"# (?P<number>\d+)[ \t]*$", re.MULTILINE)


def in_short(file: str, text: str, sketch: str) -> str:
    """Return ``text`` with quotations of the sketch's lines as numbers; unchanged if there are none."""
    if sketch.startswith("\n"):
        return text  # a prompt numbers its lines differently
    lines = [line.strip() for line in sketch.split("\n")]
    first = {line: number for number, line in reversed(list(enumerate(lines, start=1))) if line}

    def c(match: re.Match[str]) -> str:
        number = int(match["number"])
        return f"// {number}" if 0 < number <= len(lines) and lines[number - 1] == match["text"] else match[0]

    def python(match: re.Match[str]) -> str:
        return f"# {first[match['text']]}" if match["text"] in first else match[0]

    short = _PYTHON.sub(python, text) if file.endswith(".py") else _C.sub(c, text)
    return short if in_full(file, short, sketch) == text else text


def unmarked(file: str, text: str) -> str:
    """Return ``text`` without the comments that name lines of the sketch."""
    return text if file.endswith(".py") else _C_SHORT.sub("", _C.sub("", text))


def in_full(file: str, text: str, sketch: str) -> str:
    """Return ``text`` with the quotations of the sketch's lines whose numbers its comments contain."""
    lines = [line.strip() for line in sketch.split("\n")]
    is_python = file.endswith(".py")

    def said(match: re.Match[str]) -> str:
        number = int(match["number"])
        if not 0 < number <= len(lines) or not lines[number - 1]:
            return match[0]
        return f"# {lines[number - 1]}" if is_python else f"// {number}: {lines[number - 1]}"

    return (_PYTHON_SHORT if is_python else _C_SHORT).sub(said, text)
