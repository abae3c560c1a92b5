"""SASS as nvdisasm prints it with line information: a comment before the instructions of each place."""

from __future__ import annotations

import re

from kernellab.lens.read.rows import Place, Row, place

_AT = re.compile(r'//## File "([^"]*)", line (\d+)(?: inlined at "([^"]*)", line (\d+))?')
_CODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;\s*(?:/\*.*)?$")
_LABEL = re.compile(r"^(?:\.L_\w+|[A-Za-z_$][\w$]*):\s*$")


def rows(text: str) -> list[Row]:
    """Labels and instructions."""
    now: set[Place] = set()
    fresh = True
    read = []
    for line in text.splitlines():
        if at := _AT.search(line):
            now = set() if fresh else now
            fresh = False
            now.add(place(at[1], at[2]))
            if at[3]:
                now.add(place(at[3], at[4]))
        elif code := _CODE.match(line):
            fresh = True
            read.append(Row(f"    {code[1]}", frozenset(now)))
        elif _LABEL.match(line):
            read.append(Row(line.strip()))
    return read


def instructions(text: str) -> list[str]:
    """The instructions alone, without place or address."""
    return [match[1] for line in text.splitlines() if (match := _CODE.match(line))]
