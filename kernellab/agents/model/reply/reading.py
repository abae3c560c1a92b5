"""Reading what a model, or a person who pasted its reply, has written: fenced code, bare code, JSON, files, edits.

Nothing here guesses: a reply that does not hold what was asked for raises :class:`AnswerError`, whose sentence goes
back to its author.
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
    """One fenced block: its first line after the backticks, its text, and the line before it."""

    info: str
    text: str
    before: str = ""

    @property
    def language(self) -> str:
        return re.split(r"[\s:{]", self.info.strip(), maxsplit=1)[0].lower()


@dataclass(frozen=True)
class SketchAnswer:
    sketch: str
    rationale: str = ""
    constexpr: dict[str, int | float] | None = None
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeAnswer:
    """``keep`` says that the shown code stays as it is; ``nameless`` that its one block was taken for the main file."""

    files: dict[str, str]
    edits: tuple[Edit, ...] = ()
    rationale: str = ""
    critique: str = ""
    keep: bool = False
    nameless: bool = False


_OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)$")
#: how a prompt numbers the lines of a sketch
_NUMBER = re.compile(r"^[ \t]*\d+ \|(?: |$)", re.MULTILINE)
#: the first line of a sketch
SKETCH_HEAD = re.compile(r"^[ \t]*sketch[ \t]+\w+[ \t]*\{", re.MULTILINE)


def fences(text: str) -> list[Fence]:
    """The fenced blocks of a reply, in order. A block that is never closed ends with the text."""
    found: list[Fence] = []
    lines = text.splitlines()
    at = 0
    before = ""
    while at < len(lines):
        opening = _OPENING.match(lines[at])
        if opening is None:
            before = lines[at].strip() or before
            at += 1
            continue
        ticks, body = opening["ticks"], []
        at += 1
        while at < len(lines) and lines[at].strip() != ticks:
            body.append(lines[at].removeprefix(opening["indent"]))
            at += 1
        at += 1
        found.append(Fence(opening["info"].strip(), "\n".join(body) + "\n", before))
        # the next block's line before is this one's last, where nothing stands between
        before = ticks
    return found


def outside_fences(text: str) -> str:
    """The prose of a reply."""
    kept, inside = [], ""
    for line in text.splitlines():
        opening = _OPENING.match(line)
        if not inside and opening:
            inside = opening["ticks"]
        elif inside and line.strip() == inside:
            inside = ""
        elif not inside:
            kept.append(line)
    return "\n".join(kept).strip()


# -- sketches ----------------------------------------------------------------------------------------------------------


def unnumbered(text: str) -> str:
    """``text`` without the numbers that a prompt puts before a sketch's lines, where its lines have them."""
    lines = [line for line in text.splitlines() if line.strip()]
    numbered = sum(_NUMBER.match(line) is not None for line in lines)
    return _NUMBER.sub("", text) if lines and 2 * numbered > len(lines) else text


def parse_sketch(text: str, shown: str | None = None) -> SketchAnswer:
    """The sketch of a reply: a fenced block, the whole reply, JSON with the key ``sketch``, or edits of ``shown``.

    Numbers that a prompt puts before the lines of a sketch are taken off.

    Raises:
        NoAnswer: there is none.
        AnswerError: edits that cannot be made.
    """
    edits, without = _cut(text, "sketch") if shown is not None else ([], text)
    if shown is not None and edits and not SKETCH_HEAD.search(without):
        plain = [replace(e, file="sketch", search=unnumbered(e.search), replace=unnumbered(e.replace)) for e in edits]
        stated, prose = _stated(fences(without), outside_fences(without))
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
    having = [f for f in blocks if SKETCH_HEAD.search(f.text)]
    marked = [f for f in having if f.language == "sketch"]
    rationale = outside_fences(text)
    if having:
        # a reply that thinks aloud ends with what it means
        sketch = (marked or having)[-1].text
    elif SKETCH_HEAD.search(bare := _NUMBER.sub("", text)):
        sketch, rationale = _bare(bare)
    else:
        raise NoAnswer("The reply has no sketch.", "Write it in one block that starts with ```sketch.")
    beside, rationale = _stated(blocks, rationale)
    return SketchAnswer(
        sketch=sketch.strip("\n") + "\n",
        rationale=rationale.strip(),
        constexpr=_numbers(beside.get("constexpr")),
        claims=_sentences(beside.get("claims")),
    )


def _from_json(data: dict[str, Any]) -> SketchAnswer:
    return SketchAnswer(
        sketch=str(data["sketch"]).strip("\n") + "\n",
        rationale=str(data.get("rationale", "")).strip(),
        constexpr=_numbers(data.get("constexpr")),
        claims=_sentences(data.get("claims")),
    )


def _bare(text: str) -> tuple[str, str]:
    """A sketch without a fence, from its first line to the brace that closes the last one; and the prose around it."""
    start = SKETCH_HEAD.search(text)
    assert start is not None
    end = text.rfind("\n}")
    end = len(text) if end < start.start() else end + 2
    return text[start.start() : end].strip("\n"), (text[: start.start()] + text[end:]).strip()


def _stated(blocks: Iterable[Fence], prose: str) -> tuple[dict[str, Any], str]:
    """What a reply states as JSON next to its sketch, in a block or as lines at the end of its prose; and the prose
    without such lines."""
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


# -- the end -----------------------------------------------------------------------------------------------------------


def parse_done(text: str) -> Route | None:
    """The route to FINISH that a reply ``{"done": "why"}`` states; None for a reply that states none."""
    data = json_object(text)
    why = data.get("done") if data is not None and "sketch" not in data else None
    if not isinstance(why, str) or not why.strip() or SKETCH_HEAD.search(text) or _cut(text, "")[0]:
        return None
    return finish(why.strip())


def finish(why: str) -> Route:
    """The route of a role that leaves the best kernel as it is."""
    return Route(to=RouteKind.FINISH, error_class="none", reason=why)


# -- code --------------------------------------------------------------------------------------------------------------

_MARK = re.compile(r"^[#*\s`]*(?P<kind>FILE|EDIT)\s*:\s*`?(?P<name>[\w./\-]+)`?[*\s`]*$", re.IGNORECASE)
_SEARCH, _MIDDLE, _REPLACE = re.compile(r"<{5,9} ?SEARCH"), re.compile(r"={5,9}[ \t]*$"), re.compile(r">{5,9} ?REPLACE")
_KEEP = re.compile(r"\W*KEEP\W*")
_LONGEST = 400
_NAME = re.compile(r"(?<![\w/])([\w\-][\w./\-]*\.(?:py|cpp|cc|cxx|cu|cuh|h|hpp|c|asc))(?![\w/])")


def parse_code(text: str, main_file: str, known: Iterable[str] = ()) -> CodeAnswer:
    """The files and edits of a reply. A block without a name is ``main_file``, if it is the only one.

    ``known`` are the files that the author was shown; ``main_file`` among them.

    Raises:
        AnswerError: neither code nor KEEP, a name that leaves the folder, an edit that is not complete, blocks
            without names.
    """
    edits, without = _cut(text, main_file)
    critique, prose = _critique(outside_fences(without))
    if not edits and re.search(r"^(?:<{5,9} ?SEARCH|>{5,9} ?REPLACE)", text, re.MULTILINE):
        raise AnswerError(
            "An edit is not complete.", "Each needs <<<<<<< SEARCH, =======, and >>>>>>> REPLACE on lines of their own."
        )
    files, nameless = _files(without, main_file, set(known), bool(edits))
    for name in [*files, *(e.file for e in edits)]:
        _inside(name)
    if not files and not edits:
        lines = prose.split("\n")
        if _KEEP.fullmatch(_last_line(prose)) or _KEEP.fullmatch(lines[0]):
            why = "\n".join(line for line in lines if not _KEEP.fullmatch(line)).strip()
            return CodeAnswer({}, rationale=why, critique=critique, keep=True)
        raise NoAnswer(
            "The reply has no code.", f"Write FILE: {main_file} and the file in a block, EDIT parts, or KEEP."
        )
    both = set(files) & {e.file for e in edits}
    if both:
        raise AnswerError(f"{min(both)} is given whole and also edited.", "Do one or the other.")
    return CodeAnswer(files, tuple(edits), prose, critique, nameless=nameless)


def _cut(text: str, main_file: str) -> tuple[list[Edit], str]:
    """The edits of a reply, and the reply without them. Each line is looked at a few times, however many edits there
    are and whether or not they end."""
    lines = text.split("\n")
    # by line, the first from there on that divides an edit, and that ends one
    middles, ends = _next(lines, _MIDDLE), _next(lines, _REPLACE)
    found: list[Edit] = []
    kept: list[str] = []
    name, marked, at = main_file, 0, 0
    while at < len(lines):
        middle = middles[at + 1] if _SEARCH.match(lines[at]) else None
        end = ends[middle + 1] if middle is not None else None
        if middle is None or end is None:
            kept.append(lines[at])
            at += 1
            continue
        for line in lines[marked:at]:
            mark = _MARK.match(line)
            name = mark["name"] if mark else name
        marked = at
        parts = (lines[at + 1 : middle], lines[middle + 1 : end])
        search, replace = ("".join(f"{line}\n" for line in part) for part in parts)
        found.append(Edit(name, search, replace, len(found) + 1))
        kept.append("")
        at = end + 1
    return found, "\n".join(kept)


def _next(lines: list[str], pattern: re.Pattern[str]) -> list[int | None]:
    """For each line, and for the place after the last, the first from there on that ``pattern`` matches."""
    found: list[int | None] = [None]
    for number in range(len(lines) - 1, -1, -1):
        found.append(number if pattern.match(lines[number]) else found[-1])
    return found[::-1]


def _files(text: str, main_file: str, known: set[str], has_edits: bool) -> tuple[dict[str, str], bool]:
    """The files by name, and whether the one there is had no name."""
    found: dict[str, str] = {}
    nameless: list[Fence] = []
    for fence in fences(text):
        if not fence.text.strip() or fence.language in ("json", "text", "diff", "sketch", "console", "bash"):
            continue
        name = _name_of(fence, known)
        if name is None:
            nameless.append(fence)
        else:
            found[name] = fence.text
    if nameless and not found and not has_edits:
        if len(nameless) > 1:
            raise AnswerError(
                f"{len(nameless)} blocks of code have no file name.", "Write FILE: name on the line before each block."
            )
        return {main_file: nameless[0].text}, True
    return found, False


def _name_of(fence: Fence, known: set[str]) -> str | None:
    """The file that a block is: named on the line before, next to its language, or in its first comment."""
    mark = _MARK.match(fence.before)
    if mark:
        return mark["name"]
    # a name stands in a short line
    for place in (fence.info[:_LONGEST], fence.before[:_LONGEST]):
        named = _NAME.findall(place)
        if len(named) == 1 and (place == fence.info[:_LONGEST] or named[0] in known or _is_heading(place, named[0])):
            return str(named[0])
    first = fence.text.lstrip().split("\n", 1)[0][:_LONGEST]
    if re.match(r"(?://|#|/\*)", first):
        named = _NAME.findall(first)
        if len(named) == 1 and named[0] in known:
            return str(named[0])
    return None


def _is_heading(line: str, name: str) -> bool:
    return re.sub(r"[#*`:\s]", "", line) == name


def _critique(prose: str) -> tuple[str, str]:
    """What follows CRITIQUE:, up to an empty line, and the rest."""
    kept = "\n".join(line for line in prose.splitlines() if not _MARK.match(line))
    match = re.search(r"^[*# \t]*CRITIQUE[*\s]*:[*\s]*(?P<text>.*?)(?=\n[ \t]*\n|\Z)", kept, re.DOTALL | re.MULTILINE)
    if match is None:
        return "", kept.strip()
    return match["text"].strip(), kept.replace(match.group(), "").strip()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _inside(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise AnswerError(f"The file name {name!r} leaves the kernel's folder.", "Name files inside it.")


# -- JSON --------------------------------------------------------------------------------------------------------------


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object of a reply, fenced, bare or with prose around it; None when there is none."""
    try:
        return read_object(text)
    except NoJson:
        return None
