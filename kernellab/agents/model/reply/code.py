"""Reads whole files, edits or KEEP from a reply."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from kernellab.agents.model.reply.answers import AnswerError, Edit, NoAnswer
from kernellab.agents.model.reply.blocks import MARK, Fence, cut_edits, fences, outside_fences


@dataclass(frozen=True)
class CodeAnswer:
    """``keep``: the shown code is unchanged; ``nameless``: its single block was read as the main file."""

    files: dict[str, str]
    edits: tuple[Edit, ...] = ()
    rationale: str = ""
    critique: str = ""
    keep: bool = False
    nameless: bool = False


_KEEP = re.compile(r"\W*KEEP\W*")
#: Maximum length of a line that may name a file.
_LONGEST = 400
_NAME = re.compile(r"(?<![\w/])([\w\-][\w./\-]*\.(?:py|cpp|cc|cxx|cu|cuh|h|hpp|c|asc))(?![\w/])")


def parse_code(text: str, main_file: str, known: Iterable[str] = ()) -> CodeAnswer:
    """Return the files and edits of a reply. A block without a name is ``main_file``, if it is the only one.

    ``known`` are the files that the author saw, including ``main_file``.

    Raises:
        AnswerError: neither code nor KEEP, a name outside the folder, an incomplete edit, or blocks without names.
    """
    edits, remainder = cut_edits(text, main_file)
    critique, prose = _split_critique(outside_fences(remainder))
    if not edits and re.search(r"^(?:<{5,9} ?SEARCH|>{5,9} ?REPLACE)", text, re.MULTILINE):
        raise AnswerError(
            "An edit is not complete.", "Each needs <<<<<<< SEARCH, =======, and >>>>>>> REPLACE on lines of their own."
        )
    files, nameless = _files(remainder, main_file, set(known), bool(edits))
    for name in [*files, *(e.file for e in edits)]:
        _check_inside(name)
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


class _Files(NamedTuple):
    """Files by name, and whether the only one had no name."""

    files: dict[str, str]
    nameless: bool


def _files(text: str, main_file: str, known: set[str], has_edits: bool) -> _Files:
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
        return _Files({main_file: nameless[0].text}, True)
    return _Files(files, False)


def _name_of(fence: Fence, known: set[str]) -> str | None:
    """The name of a block's file: on the line before, next to its language, or in its first comment."""
    mark = MARK.match(fence.before)
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


class _Prose(NamedTuple):
    """The text after CRITIQUE:, up to an empty line, and the rest."""

    critique: str
    rest: str


def _split_critique(prose: str) -> _Prose:
    plain = "\n".join(line for line in prose.splitlines() if not MARK.match(line))
    match = re.search(r"^[*# \t]*CRITIQUE[*\s]*:[*\s]*(?P<text>.*?)(?=\n[ \t]*\n|\Z)", plain, re.DOTALL | re.MULTILINE)
    if match is None:
        return _Prose("", plain.strip())
    return _Prose(match["text"].strip(), plain.replace(match.group(), "").strip())


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _check_inside(name: str) -> None:
    """Raise AnswerError for a file outside of the kernel's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise AnswerError(f"The file name {name!r} leaves the kernel's folder.", "Name files inside it.")
