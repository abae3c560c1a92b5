"""Search/replace edits: all are applied, or none.

A search text must occur once in its file. It is matched exactly, then with trailing whitespace ignored, then with the
indentation ignored too (the new text is moved to the indentation in the file). A text that does not match is
reported with the most similar place, for its author to copy from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from kernellab.agents.model.reply.answers import AnswerError, Edit

#: Similarity from which the most similar lines are shown: chosen, not measured.
_NEAR = 0.5


def apply_edits(files: Mapping[str, str], edits: Sequence[Edit], unseen: Collection[str] = ()) -> dict[str, str]:
    """Return the files after the edits, which apply to the shown texts; the author saw no text of ``unseen`` files.

    Raises:
        AnswerError: an edit's text occurs nowhere or twice, or edits overlap; ``findings`` has a sentence for each.
            Then no file is changed.
    """
    findings: list[str] = []
    changes_by_file: dict[str, list[_Change]] = {}
    for edit in edits:
        text = files.get(edit.file)
        if text is None:
            findings.append(f"Edit {edit.number}: there is no file {edit.file}; there are {', '.join(sorted(files))}.")
            continue
        change = _find(text, edit)
        if isinstance(change, _Change):
            changes_by_file.setdefault(edit.file, []).append(change)
        elif edit.file in unseen:
            findings.append(
                f"Edit {edit.number}: {edit.file} was not shown to you, and has no such lines. Leave it as it is, or "
                "write the whole file."
            )
        else:
            findings.append(change)
    for file, changes in changes_by_file.items():
        changes.sort()
        for first, second in pairwise(changes):
            if second.start < first.end:
                findings.append(f"Edits {first.number} and {second.number} of {file} overlap: make one of them.")
    if findings:
        raise AnswerError("The edits could not be made.", "Copy the SEARCH text from the file.", tuple(findings))
    result = dict(files)
    for file, changes in changes_by_file.items():
        text = files[file]
        for change in reversed(changes):
            text = text[: change.start] + change.replacement + text[change.end :]
        result[file] = text
    if result == dict(files):
        raise AnswerError("The edits change nothing.", "Answer KEEP if the code needs no change.")
    return result


class _Change(NamedTuple):
    """The characters that an edit replaces, and its number in the reply."""

    start: int
    end: int
    replacement: str
    number: int


def _find(text: str, edit: Edit) -> _Change | str:
    """Return the edit's change of ``text``; otherwise a sentence about the error."""
    if not edit.search.strip():
        return f"Edit {edit.number}: its SEARCH text is empty; copy the lines that it replaces or that are next to it."
    unchanged: Callable[[str], str] = lambda line: line  # noqa: E731
    for normal_form in (unchanged, str.rstrip, _without_indentation):
        places = _places(text, edit.search, normal_form)
        if len(places) > 1:
            rows = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in places[:5])
            return (
                f"Edit {edit.number}: its SEARCH text occurs {len(places)} times in {edit.file} (lines {rows}); "
                "add lines around it until it is unique."
            )
        if places:
            start, end = places[0]
            is_moved = normal_form is _without_indentation
            replacement = _indented(edit, text[start:end]) if is_moved else edit.replace
            if end == len(text) and not text.endswith("\n"):
                replacement = replacement.removesuffix("\n")
            return _Change(start, end, replacement, edit.number)
    piece = edit.search.strip("\n")
    if text.count(piece) == 1:  # part of a line
        start = text.index(piece)
        return _Change(start, start + len(piece), edit.replace.strip("\n"), edit.number)
    return _not_found(text, edit)


def _places(text: str, search: str, normal_form: Callable[[str], str]) -> list[tuple[int, int]]:
    """The spans of whole lines of ``text`` that equal the search's lines in their normal form."""
    lines = text.splitlines(keepends=True)
    search_lines = [normal_form(line) for line in search.strip("\n").splitlines()]
    text_lines = [normal_form(line.rstrip("\n")) for line in lines]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return [
        (starts[i], starts[i + len(search_lines)])
        for i in range(len(text_lines) - len(search_lines) + 1)
        if text_lines[i : i + len(search_lines)] == search_lines
    ]


def _without_indentation(line: str) -> str:
    return " ".join(line.split())


def _indented(edit: Edit, matched: str) -> str:
    """The replacement, indented by the difference between the matched text and the search text."""
    indent, search_indent = _indent(matched), _indent(edit.search)
    if indent == search_indent:
        return edit.replace
    lines = edit.replace.splitlines(keepends=True)
    if indent.startswith(search_indent):
        extra = indent.removeprefix(search_indent)
        return "".join(extra + line if line.strip() else line for line in lines)
    excess = search_indent.removeprefix(indent) if search_indent.startswith(indent) else search_indent
    return "".join(line.removeprefix(excess) for line in lines)


def _indent(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def _not_found(text: str, edit: Edit) -> str:
    message = f"Edit {edit.number}: its SEARCH text does not occur in {edit.file}."
    search_lines, lines = edit.search.strip("\n").splitlines(), text.splitlines()
    searched = "\n".join(line.strip() for line in search_lines)
    best_ratio, position = 0.0, 0
    for i in range(max(1, len(lines) - len(search_lines) + 1)):
        window = "\n".join(line.strip() for line in lines[i : i + len(search_lines)])
        ratio = SequenceMatcher(None, window, searched, autojunk=False).quick_ratio()
        if ratio > best_ratio:
            best_ratio, position = ratio, i
    if best_ratio < _NEAR:
        return message
    nearest_lines = "\n".join(lines[position : position + len(search_lines)])
    return f"{message} The nearest lines, {position + 1} to {position + len(search_lines)}, are:\n{nearest_lines}"


def carry_lines(before: str, after: str, line_map: Mapping[int, int]) -> dict[int, int]:
    """Return the map of generated line -> sketch line after an edit, for the lines that did not change."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    moved: dict[int, int] = {}
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            if block.a + offset + 1 in line_map:
                moved[block.b + offset + 1] = line_map[block.a + offset + 1]
    return moved
