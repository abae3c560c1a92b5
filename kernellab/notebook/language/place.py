"""Where in a sketch's text a cursor stands: the word under it, what kind of place it is, which names are in sight."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernellab.sketch.program.library import PREFIX
from kernellab.sketch.syntax.layout import LineKind, cut
from kernellab.sketch.syntax.words import DECLARATION, STRING, code_of, comment_start

_WORD = re.compile(r"[A-Za-z_][\w.]*")
_ASSIGNED = re.compile(r"^\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=(?!=)")
_LOADED = re.compile(r"->\s*([A-Za-z_]\w*)\s*(?:[,)]|$)")
_SKETCH = re.compile(r"\s*sketch\b")
_LOOP = re.compile(r"^\s*for\s+([A-Za-z_]\w*)\s+in\b")
_NAMES = {
    "symbols": re.compile(r"([A-Za-z_]\w*)\s*(?=(?:=[^,;]*)?(?:[,;]|$))"),
    "tensors": re.compile(r"(?:^|[;])\s*([A-Za-z_]\w*)\s*(?=\[)"),
    "constexpr": re.compile(r"(?:^|[;,])\s*([A-Za-z_]\w*)\s*(?=[=;,]|in\b|$)"),
    "opaque": re.compile(r"(?:^|[;])\s*([A-Za-z_]\w*)\s*(?=\()"),
}


@dataclass(frozen=True)
class Word:
    """``start`` and ``end`` are columns from 1, ``end`` behind the last character."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Name:
    """A name in sight: ``kind`` is symbol, tensor, constexpr, opaque, tile or index; ``line`` where it was made."""

    text: str
    kind: str
    line: int


def line_at(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1] if 1 <= line <= len(lines) else ""


def word_at(text: str, line: int, col: int) -> Word | None:
    """The word that holds the character at ``col`` (from 1); None in a comment or between words."""
    row = line_at(text, line)
    comment = comment_start(row)
    for match in _WORD.finditer(row):
        if match.start() < col <= match.end() and (comment is None or match.start() < comment):
            # grididx.x is one word only as a hint, library.mm is one everywhere
            word = match[0]
            if "." in word and not word.startswith(PREFIX) and not _in_string(row[: match.start()]):
                word = word.split(".")[0]
            return Word(word, match.start() + 1, match.start() + 1 + len(word))
    return None


def before(text: str, line: int, col: int) -> str:
    """The line up to the cursor, which stands before the character at ``col``."""
    return line_at(text, line)[: max(col - 1, 0)]


def in_comment(head: str) -> bool:
    return comment_start(head) is not None


def open_string(head: str) -> str | None:
    """What stands before the string that the cursor is in; None outside a string."""
    for match in STRING.finditer(head):
        quote = match[0][0]
        if match.end() == len(head) and (len(match[0]) == 1 or not match[0].endswith(quote)):
            return head[: match.start()]
    return None


def names_in_sight(text: str, line: int, with_own: bool = False) -> list[Name]:
    """Names that line ``line`` may use, newest first: its sketch's declarations and the blocks around it.

    ``with_own``: those that the line itself makes too.
    """
    cursor_row = line_at(text, line)
    names: dict[str, Name] = {}
    if with_own:
        _add_made(cursor_row, line, names, is_around=True)
    # a block is in sight until a line above is less indented than it. An empty line's own spaces say which block is
    # meant; without any, the line may stand in the block above it, or in that which its header opens
    level = _indent(cursor_row) if cursor_row else None
    rows = text.split("\n")
    for number in range(min(line - 1, len(rows)), 0, -1):
        code = code_of(rows[number - 1])
        if not code.strip():
            continue
        if _SKETCH.match(code):
            break
        indent, is_declaration = _indent(code), DECLARATION.match(code) is not None
        if level is None:
            level = indent + 1 if code.rstrip().endswith(":") and not is_declaration else indent
        if indent <= level or is_declaration:
            _add_made(code, number, names, is_around=indent < level)
            level = min(level, indent)
    for name in declarations(text):
        names.setdefault(name.text, name)
    return list(names.values())


def _add_made(code: str, number: int, names: dict[str, Name], is_around: bool) -> None:
    """Add the names that a line makes: a loop's index only where the loop is around the place."""
    loop = _LOOP.match(code)
    if loop:
        if is_around:
            names.setdefault(loop[1], Name(loop[1], "index", number))
        return
    if code.rstrip().endswith(":") or DECLARATION.match(code):
        return
    tiles = [name for group in _ASSIGNED.findall(code) for name in re.split(r"\s*,\s*", group)]
    tiles += _LOADED.findall(code) if "load" in code or "gather" in code else []
    for name in tiles:
        names.setdefault(name, Name(name, "tile", number))


def declarations(text: str) -> list[Name]:
    """What the declarations of the file name."""
    names: list[Name] = []
    for line in cut(text).lines:
        if line.kind is not LineKind.DECLARATIONS:
            continue
        kind = ""
        for number, row in enumerate(line.text.split("\n"), line.line):
            declared = DECLARATION.match(row)
            kind, rest = declared.groups() if declared else (kind, row)
            pattern = _NAMES.get(kind)
            plain = re.sub(r"\{[^}]*\}?", "", rest) if kind == "constexpr" else rest
            for name in pattern.findall(plain.strip()) if pattern else ():
                names.append(Name(name, {"symbols": "symbol", "tensors": "tensor"}.get(kind, kind), number))
    return names


def _in_string(head: str) -> bool:
    return open_string(head) is not None


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())
