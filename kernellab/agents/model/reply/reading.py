"""Reads the reply of a model, or of a person who pasted one: fenced code, plain code, JSON, files, edits.

Nothing is guessed: a reply without the requested content raises :class:`AnswerError`, whose message returns to its
author.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from kernellab.agents.model.reply.answers import AnswerError as AnswerError
from kernellab.agents.model.reply.answers import Edit as Edit
from kernellab.agents.model.reply.answers import NoAnswer as NoAnswer
from kernellab.agents.model.reply.edits import apply_edits
from kernellab.models import NoJson, read_object
from kernellab.records import Route, RouteKind


@dataclass(frozen=True)
class Fence:
    """One fenced block: the text after the opening backticks, its content, and the line before it."""

    info: str
    text: str
    before: str = ""

    @property
    def language(self) -> str:
        return re.split(r"[\s:{]", self.info.strip(), maxsplit=1)[0].lower()


@dataclass(frozen=True)
class SketchAnswer:
    """The sketch of a reply, with its rationale, values of tunables, and claims."""

    sketch: str
    rationale: str = ""
    constexpr: dict[str, int | float] | None = None
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeAnswer:
    """``keep``: the shown code is unchanged; ``nameless``: its single block was read as the main file."""

    files: dict[str, str]
    edits: tuple[Edit, ...] = ()
    rationale: str = ""
    critique: str = ""
    keep: bool = False
    nameless: bool = False


_OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)$")
#: The line numbers that a prompt adds to a sketch.
_NUMBER = re.compile(r"^[ \t]*\d+ \|(?: |$)", re.MULTILINE)
#: The first line of a sketch.
SKETCH_HEAD = re.compile(r"^[ \t]*sketch[ \t]+\w+[ \t]*\{", re.MULTILINE)


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


# -- sketches ----------------------------------------------------------------------------------------------------------


def unnumbered(text: str) -> str:
    """Return ``text`` without the line numbers that a prompt adds to a sketch, if most lines have them."""
    lines = [line for line in text.splitlines() if line.strip()]
    numbered = sum(_NUMBER.match(line) is not None for line in lines)
    return _NUMBER.sub("", text) if lines and 2 * numbered > len(lines) else text


def parse_sketch(text: str, shown: str | None = None) -> SketchAnswer:
    """Return the sketch of a reply: a fenced block, the whole reply, JSON with the key ``sketch``, or edits of
    ``shown``.

    Line numbers that a prompt adds to a sketch are removed.

    Raises:
        NoAnswer: the reply has no sketch.
        AnswerError: the edits cannot be applied.
    """
    edits, remainder = _cut(text, "sketch") if shown is not None else ([], text)
    if shown is not None and edits and not SKETCH_HEAD.search(remainder):
        plain = [replace(e, file="sketch", search=unnumbered(e.search), replace=unnumbered(e.replace)) for e in edits]
        stated, prose = _stated(fences(remainder), outside_fences(remainder))
        return SketchAnswer(
            sketch=apply_edits({"sketch": shown}, plain)["sketch"],
            rationale="\n".join(row for row in prose.splitlines() if not _MARK.match(row)).strip(),
            constexpr=_numbers(stated.get("constexpr")),
            claims=_sentences(stated.get("claims")),
        )
    data = json_object(text)
    if data is not None and isinstance(data.get("sketch"), str):
        return _from_json(data)
    blocks = [replace(f, text=unnumbered(f.text)) for f in fences(text)]
    sketches = [f for f in blocks if SKETCH_HEAD.search(f.text)]
    marked_sketches = [f for f in sketches if f.language == "sketch"]
    rationale = outside_fences(text)
    if sketches:
        # a reply that reasons in the text ends with its result
        sketch = (marked_sketches or sketches)[-1].text
    elif SKETCH_HEAD.search(bare := _NUMBER.sub("", text)):
        sketch, rationale = _bare(bare)
    else:
        raise NoAnswer("The reply has no sketch.", "Write it in one block that starts with ```sketch.")
    extras, rationale = _stated(blocks, rationale)
    return SketchAnswer(
        sketch=sketch.strip("\n") + "\n",
        rationale=rationale.strip(),
        constexpr=_numbers(extras.get("constexpr")),
        claims=_sentences(extras.get("claims")),
    )


def _from_json(data: dict[str, Any]) -> SketchAnswer:
    return SketchAnswer(
        sketch=str(data["sketch"]).strip("\n") + "\n",
        rationale=str(data.get("rationale", "")).strip(),
        constexpr=_numbers(data.get("constexpr")),
        claims=_sentences(data.get("claims")),
    )


def _bare(text: str) -> tuple[str, str]:
    """A sketch without a fence, from its first line to the last closing brace; and the prose around it."""
    start = SKETCH_HEAD.search(text)
    assert start is not None
    end = text.rfind("\n}")
    end = len(text) if end < start.start() else end + 2
    return text[start.start() : end].strip("\n"), (text[: start.start()] + text[end:]).strip()


def _stated(blocks: Iterable[Fence], prose: str) -> tuple[dict[str, Any], str]:
    """The JSON that a reply states next to its sketch, in a block or after its prose; and the prose without it."""
    for fence in blocks:
        if fence.language == "json" and (data := json_object(fence.text)) is not None:
            return data, prose
    begin = re.search(r"^\{[\s\S]*\}\s*\Z", prose, re.MULTILINE)
    data = json_object(begin[0]) if begin else None
    if begin is None or data is None or not {"constexpr", "claims"} & data.keys():
        return {}, prose
    return data, prose[: begin.start()].rstrip()


def _numbers(value: Any) -> dict[str, int | float]:
    if not isinstance(value, dict):
        return {}
    return {str(k): v for k, v in value.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _sentences(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    return tuple(str(v).strip() for v in value if str(v).strip()) if isinstance(value, list) else ()


# -- end of the work ---------------------------------------------------------------------------------------------------


def parse_done(text: str) -> Route | None:
    """Return the route to FINISH that a reply ``{"done": "why"}`` states; None if it states none."""
    data = json_object(text)
    reason = data.get("done") if data is not None and "sketch" not in data else None
    if not isinstance(reason, str) or not reason.strip() or SKETCH_HEAD.search(text) or _cut(text, "")[0]:
        return None
    return finish(reason.strip())


def finish(why: str) -> Route:
    """Return the route of a role that leaves the best kernel unchanged."""
    return Route(to=RouteKind.FINISH, error_class="none", reason=why)


# -- code --------------------------------------------------------------------------------------------------------------

_MARK = re.compile(r"^[#*\s`]*(?P<kind>FILE|EDIT)\s*:\s*`?(?P<name>[\w./\-]+)`?[*\s`]*$", re.IGNORECASE)
_SEARCH, _MIDDLE, _REPLACE = re.compile(r"<{5,9} ?SEARCH"), re.compile(r"={5,9}[ \t]*$"), re.compile(r">{5,9} ?REPLACE")
_KEEP = re.compile(r"\W*KEEP\W*")
_LONGEST = 400
_NAME = re.compile(r"(?<![\w/])([\w\-][\w./\-]*\.(?:py|cpp|cc|cxx|cu|cuh|h|hpp|c|asc))(?![\w/])")


def parse_code(text: str, main_file: str, known: Iterable[str] = ()) -> CodeAnswer:
    """Return the files and edits of a reply. A block without a name is ``main_file``, if it is the only one.

    ``known`` are the files that the author saw, including ``main_file``.

    Raises:
        AnswerError: neither code nor KEEP, a name outside the folder, an incomplete edit, or blocks without names.
    """
    edits, remainder = _cut(text, main_file)
    critique, prose = _critique(outside_fences(remainder))
    if not edits and re.search(r"^(?:<{5,9} ?SEARCH|>{5,9} ?REPLACE)", text, re.MULTILINE):
        raise AnswerError(
            "An edit is not complete.", "Each needs <<<<<<< SEARCH, =======, and >>>>>>> REPLACE on lines of their own."
        )
    files, nameless = _files(remainder, main_file, set(known), bool(edits))
    for name in [*files, *(e.file for e in edits)]:
        _inside(name)
    if not files and not edits:
        lines = prose.split("\n")
        if _KEEP.fullmatch(_last_line(prose)) or _KEEP.fullmatch(lines[0]):
            rationale = "\n".join(line for line in lines if not _KEEP.fullmatch(line)).strip()
            return CodeAnswer({}, rationale=rationale, critique=critique, keep=True)
        raise NoAnswer(
            "The reply has no code.", f"Write FILE: {main_file} and the file in a block, EDIT parts, or KEEP."
        )
    duplicates = set(files) & {e.file for e in edits}
    if duplicates:
        raise AnswerError(f"{min(duplicates)} is given whole and also edited.", "Do one or the other.")
    return CodeAnswer(files, tuple(edits), prose, critique, nameless=nameless)


def _cut(text: str, main_file: str) -> tuple[list[Edit], str]:
    """The edits of a reply, and the reply without them. Linear in the number of lines, also for unterminated edits."""
    lines = text.split("\n")
    # per line: the next line that divides an edit, and the next that ends one
    middles, ends = _next(lines, _MIDDLE), _next(lines, _REPLACE)
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
            mark = _MARK.match(line)
            name = mark["name"] if mark else name
        scanned = row
        parts = (lines[row + 1 : middle], lines[middle + 1 : end])
        search, replace = ("".join(f"{line}\n" for line in part) for part in parts)
        edits.append(Edit(name, search, replace, len(edits) + 1))
        remainder.append("")
        row = end + 1
    return edits, "\n".join(remainder)


def _next(lines: list[str], pattern: re.Pattern[str]) -> list[int | None]:
    """For each line, and for the end, the first line from there that ``pattern`` matches."""
    matches: list[int | None] = [None]
    for number in range(len(lines) - 1, -1, -1):
        matches.append(number if pattern.match(lines[number]) else matches[-1])
    return matches[::-1]


def _files(text: str, main_file: str, known: set[str], has_edits: bool) -> tuple[dict[str, str], bool]:
    """The files by name, and whether the only one had no name."""
    files: dict[str, str] = {}
    nameless: list[Fence] = []
    for fence in fences(text):
        if not fence.text.strip() or fence.language in ("json", "text", "diff", "sketch", "console", "bash"):
            continue
        name = _name_of(fence, known)
        if name is None:
            nameless.append(fence)
        else:
            files[name] = fence.text
    if nameless and not files and not has_edits:
        if len(nameless) > 1:
            raise AnswerError(
                f"{len(nameless)} blocks of code have no file name.", "Write FILE: name on the line before each block."
            )
        return {main_file: nameless[0].text}, True
    return files, False


def _name_of(fence: Fence, known: set[str]) -> str | None:
    """The name of a block's file: on the line before, next to its language, or in its first comment."""
    mark = _MARK.match(fence.before)
    if mark:
        return mark["name"]
    # only a short line can be a file name
    for place in (fence.info[:_LONGEST], fence.before[:_LONGEST]):
        names = _NAME.findall(place)
        if len(names) == 1 and (place == fence.info[:_LONGEST] or names[0] in known or _is_heading(place, names[0])):
            return str(names[0])
    first = fence.text.lstrip().split("\n", 1)[0][:_LONGEST]
    if re.match(r"(?://|#|/\*)", first):
        names = _NAME.findall(first)
        if len(names) == 1 and names[0] in known:
            return str(names[0])
    return None


def _is_heading(line: str, name: str) -> bool:
    return re.sub(r"[#*`:\s]", "", line) == name


def _critique(prose: str) -> tuple[str, str]:
    """The text after CRITIQUE:, up to an empty line, and the rest."""
    plain = "\n".join(line for line in prose.splitlines() if not _MARK.match(line))
    match = re.search(r"^[*# \t]*CRITIQUE[*\s]*:[*\s]*(?P<text>.*?)(?=\n[ \t]*\n|\Z)", plain, re.DOTALL | re.MULTILINE)
    if match is None:
        return "", plain.strip()
    return match["text"].strip(), plain.replace(match.group(), "").strip()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _inside(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise AnswerError(f"The file name {name!r} leaves the kernel's folder.", "Name files inside it.")


# -- JSON --------------------------------------------------------------------------------------------------------------


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object of a reply, fenced, plain or with prose around it; None if there is none."""
    try:
        return read_object(text)
    except NoJson:
        return None
