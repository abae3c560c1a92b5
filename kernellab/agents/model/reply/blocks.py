"""The parts of a reply: fenced blocks, the prose around them, edits, and a JSON object."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernellab.agents.model.reply.answers import Edit
from kernellab.models import NoJson, read_object


@dataclass(frozen=True)
class Fence:
    """One fenced block: the text after the opening backticks, its content, and the line before it."""

    info: str
    text: str
    before: str = ""

    @property
    def language(self) -> str:
        return re.split(r"[\s:{]", self.info.strip(), maxsplit=1)[0].lower()


_OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)$")


def fences(text: str) -> list[Fence]:
    """The fenced blocks of a reply, in order. A block that is not closed ends with the text."""
    blocks: list[Fence] = []
    lines = text.splitlines()
    row = 0
    line_before = ""
    while row < len(lines):
        opening = _OPENING.match(lines[row])
        if opening is None:
            line_before = lines[row].strip() or line_before
            row += 1
            continue
        ticks, body = opening["ticks"], []
        row += 1
        while row < len(lines) and lines[row].strip() != ticks:
            body.append(lines[row].removeprefix(opening["indent"]))
            row += 1
        row += 1
        blocks.append(Fence(opening["info"].strip(), "\n".join(body) + "\n", line_before))
        # for an adjacent block, the line before is this block's last
        line_before = ticks
    return blocks


def outside_fences(text: str) -> str:
    """The prose of a reply."""
    prose, inside = [], ""
    for line in text.splitlines():
        opening = _OPENING.match(line)
        if not inside and opening:
            inside = opening["ticks"]
        elif inside and line.strip() == inside:
            inside = ""
        elif not inside:
            prose.append(line)
    return "\n".join(prose).strip()


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object of a reply, fenced, plain or with prose around it; None if there is none."""
    try:
        return read_object(text)
    except NoJson:
        return None


#: A line that names the file of the block or edit after it.
MARK = re.compile(r"^[#*\s`]*(?P<kind>FILE|EDIT)\s*:\s*`?(?P<name>[\w./\-]+)`?[*\s`]*$", re.IGNORECASE)
_SEARCH, _MIDDLE, _REPLACE = re.compile(r"<{5,9} ?SEARCH"), re.compile(r"={5,9}[ \t]*$"), re.compile(r">{5,9} ?REPLACE")


class Cut(NamedTuple):
    """The edits of a reply, and the reply without them."""

    edits: list[Edit]
    remainder: str


def cut_edits(text: str, main_file: str) -> Cut:
    """Split a reply into its edits and the rest; edits before a FILE or EDIT line are of ``main_file``. Linear in the
    number of lines, also for unterminated edits."""
    lines = text.split("\n")
    # per line: the next line that divides an edit, and the next that ends one
    middles, ends = _next_matches(lines, _MIDDLE), _next_matches(lines, _REPLACE)
    edits: list[Edit] = []
    remainder: list[str] = []
    name, scanned, row = main_file, 0, 0
    while row < len(lines):
        middle = middles[row + 1] if _SEARCH.match(lines[row]) else None
        end = ends[middle + 1] if middle is not None else None
        if middle is None or end is None:
            remainder.append(lines[row])
            row += 1
            continue
        for line in lines[scanned:row]:
            mark = MARK.match(line)
            name = mark["name"] if mark else name
        scanned = row
        parts = (lines[row + 1 : middle], lines[middle + 1 : end])
        search, replace = ("".join(f"{line}\n" for line in part) for part in parts)
        edits.append(Edit(name, search, replace, len(edits) + 1))
        remainder.append("")
        row = end + 1
    return Cut(edits, "\n".join(remainder))


def _next_matches(lines: list[str], pattern: re.Pattern[str]) -> list[int | None]:
    """For each line, and for the end, the first line from there that ``pattern`` matches."""
    matches: list[int | None] = [None]
    for number in range(len(lines) - 1, -1, -1):
        matches.append(number if pattern.match(lines[number]) else matches[-1])
    return matches[::-1]
