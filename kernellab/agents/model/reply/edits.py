"""Search/replace edits: all of them or none.

A search text must stand once in its file. It is looked for exactly, then with blanks at the ends of lines ignored,
then with the indentation ignored too (the new text is moved to the indentation that is found). What is not found is
reported with the nearest place, for its author to copy from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from kernellab.agents.model.reply.answers import AnswerError, Edit

_NEAR = 0.5


def apply_edits(files: Mapping[str, str], edits: Sequence[Edit], unseen: Collection[str] = ()) -> dict[str, str]:
    """The files after the edits, each made to the text that its author was shown; of ``unseen`` files no text was.

    Raises:
        AnswerError: an edit whose text stands nowhere or twice, or edits that overlap; ``findings`` has a sentence for
            each. No file is changed then.
    """
    findings: list[str] = []
    spans: dict[str, list[tuple[int, int, str, int]]] = {}
    for edit in edits:
        text = files.get(edit.file)
        if text is None:
            findings.append(f"Edit {edit.number}: there is no file {edit.file}; there are {', '.join(sorted(files))}.")
            continue
        place = _find(text, edit)
        if isinstance(place, str) and edit.file in unseen:
            findings.append(
                f"Edit {edit.number}: {edit.file} was not shown to you, and has no such lines. Leave it as it is, or "
                "write the whole file."
            )
        elif isinstance(place, str):
            findings.append(place)
        else:
            spans.setdefault(edit.file, []).append((*place, edit.number))
    for file, found in spans.items():
        found.sort()
        for (_, end, _, first), (start, _, _, second) in pairwise(found):
            if start < end:
                findings.append(f"Edits {first} and {second} of {file} overlap: make one of them.")
    if findings:
        raise AnswerError("The edits could not be made.", "Copy the SEARCH text from the file.", tuple(findings))
    result = dict(files)
    for file, found in spans.items():
        text = files[file]
        for start, end, replacement, _ in reversed(found):
            text = text[:start] + replacement + text[end:]
        result[file] = text
    if result == dict(files):
        raise AnswerError("The edits change nothing.", "Answer KEEP if the code needs no change.")
    return result


def _find(text: str, edit: Edit) -> tuple[int, int, str] | str:
    """Where the edit goes and what it writes there; else what is wrong with it."""
    if not edit.search.strip():
        return f"Edit {edit.number}: its SEARCH text is empty; copy the lines that it replaces or that are next to it."
    same: Callable[[str], str] = lambda line: line  # noqa: E731
    for normal, moved in ((same, False), (str.rstrip, False), (_blanks_apart, True)):
        places = _places(text, edit.search, normal)
        if len(places) > 1:
            rows = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in places[:5])
            return (
                f"Edit {edit.number}: its SEARCH text occurs {len(places)} times in {edit.file} (lines {rows}); "
                "add lines around it until it is unique."
            )
        if places:
            start, end = places[0]
            replacement = _moved(edit, text[start:end]) if moved else edit.replace
            if end == len(text) and not text.endswith("\n"):
                replacement = replacement.removesuffix("\n")
            return start, end, replacement
    piece = edit.search.strip("\n")
    if text.count(piece) == 1:  # part of a line
        start = text.index(piece)
        return start, start + len(piece), edit.replace.strip("\n")
    return _not_found(text, edit)


def _places(text: str, search: str, normal: Callable[[str], str]) -> list[tuple[int, int]]:
    """The spans of whole lines of ``text`` that equal the search's lines under ``normal``."""
    lines = text.splitlines(keepends=True)
    wanted = [normal(line) for line in search.strip("\n").splitlines()]
    have = [normal(line.rstrip("\n")) for line in lines]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return [
        (starts[i], starts[i + len(wanted)])
        for i in range(len(have) - len(wanted) + 1)
        if have[i : i + len(wanted)] == wanted
    ]


def _blanks_apart(line: str) -> str:
    return " ".join(line.split())


def _moved(edit: Edit, found: str) -> str:
    """The replacement, indented by as much more as the found text is than the search text."""
    have, had = _indent(found), _indent(edit.search)
    if have == had:
        return edit.replace
    lines = edit.replace.splitlines(keepends=True)
    if have.startswith(had):
        more = have.removeprefix(had)
        return "".join(more + line if line.strip() else line for line in lines)
    less = had.removeprefix(have) if had.startswith(have) else had
    return "".join(line.removeprefix(less) for line in lines)


def _indent(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def _not_found(text: str, edit: Edit) -> str:
    said = f"Edit {edit.number}: its SEARCH text does not occur in {edit.file}."
    wanted, lines = edit.search.strip("\n").splitlines(), text.splitlines()
    best, at = 0.0, 0
    for i in range(max(1, len(lines) - len(wanted) + 1)):
        window = "\n".join(line.strip() for line in lines[i : i + len(wanted)])
        ratio = SequenceMatcher(None, window, "\n".join(line.strip() for line in wanted), autojunk=False).quick_ratio()
        if ratio > best:
            best, at = ratio, i
    if best < _NEAR:
        return said
    near = "\n".join(lines[at : at + len(wanted)])
    return f"{said} The nearest lines, {at + 1} to {at + len(wanted)}, are:\n{near}"


def carry_lines(before: str, after: str, line_map: Mapping[int, int]) -> dict[int, int]:
    """The map of generated line -> sketch line after an edit: kept for the lines that did not change."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    moved: dict[int, int] = {}
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            if block.a + offset + 1 in line_map:
                moved[block.b + offset + 1] = line_map[block.a + offset + 1]
    return moved
