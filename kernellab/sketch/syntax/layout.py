"""From text to logical lines: removes comments and pins, joins brackets and declarations, finds braces and ``;``.

A logical line is what the ``line`` rule of the grammar reads. This does not fail: what is invalid (a bracket that is
not closed) is returned as a fault in addition to the lines, so the rest of the text is still read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kernellab.sketch.syntax.words import BLOCKS, DECLARATION, DECLARATIONS


class LineKind(str, Enum):
    SKETCH = "sketch"
    CLOSE = "close"
    DECLARATIONS = "declarations"
    CODE = "code"


@dataclass
class LogicalLine:
    """``text`` keeps its indentation, so that columns in it are columns of the file; ``line`` counts from 1."""

    kind: LineKind
    text: str
    line: int
    indent: int
    before: tuple[str, ...] = ()
    behind: str | None = None
    pinned: bool = False


class BracketFault(NamedTuple):
    """A bracket that does not match, at a line and a column from 1."""

    line: int
    col: int
    what: str


@dataclass
class Layout:
    lines: list[LogicalLine] = field(default_factory=list)
    #: comments after the last line
    trailing: tuple[str, ...] = ()
    faults: list[BracketFault] = field(default_factory=list)


class _OpenBracket(NamedTuple):
    mark: str
    line: int
    col: int


_SPECIAL = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[#()\[\]{}]")
_SKETCH = re.compile(r"\s*sketch\b")
#: the start of a new statement: a bracket that is still open before it was not closed
_STARTS = re.compile(
    rf"\s*(?:@|\}}|(?:sketch|{'|'.join(BLOCKS)})\b|(?:{'|'.join(DECLARATIONS)})\s*:"
    r"|(?:load|store|atomic_add|gather|scatter)\s*\(|\w+ = )"
)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


def cut(text: str) -> Layout:
    """Return the logical lines of ``text``."""
    return _Cutter(text).run()


class _Cutter:
    """Reads physical lines one after another and joins their pieces; :meth:`_flush` ends a logical line."""

    def __init__(self, text: str) -> None:
        self._physical = text.split("\n")
        self._out = Layout()
        #: comments before the next logical line, and the one behind it
        self._comments: list[str] = []
        self._behind: str | None = None
        self._pinned = False
        #: the text of the logical line so far, and its first line
        self._pieces: list[str] = []
        self._start = 0
        #: open brackets of the logical line being joined
        self._open: list[_OpenBracket] = []
        #: is it the header of a sketch, whose brace may be on a later line?
        self._in_head = False

    def run(self) -> Layout:
        for number, raw in enumerate(self._physical, 1):
            line = raw.rstrip().expandtabs(4) if "\t" in raw else raw.rstrip()
            if self._open and _STARTS.match(line):
                self._fault_open()
            self._physical_line(line, number)
        if self._open:
            self._fault_open()
        self._flush()
        self._out.trailing = tuple(self._comments)
        return self._out

    def _physical_line(self, line: str, number: int) -> None:
        begin = 0
        for match in _SPECIAL.finditer(line):
            mark, at = match[0], match.start()
            if mark == "#":
                self._comment(line[at:], bool(line[:at].strip()) or bool(self._pieces))
                line = line[:at].rstrip()
                break
            if mark in "([{":
                if mark == "{" and not self._open and self._is_head(line[begin:at]):
                    self._piece(line, begin, at + 1, number)
                    self._flush()
                    begin = at + 1
                else:
                    self._open.append(_OpenBracket(mark, number, at + 1))
            elif mark in ")]}":
                if self._open:
                    opened = self._open.pop().mark
                    if _CLOSERS[opened] != mark:
                        self._out.faults.append(BracketFault(number, at + 1, f"'{mark}' does not close '{opened}'"))
                        self._open.clear()
                elif mark == "}":
                    self._piece(line, begin, at, number)
                    self._flush()
                    self._line(LineKind.CLOSE, "}", number, at)
                    begin = at + 1
                else:
                    self._out.faults.append(BracketFault(number, at + 1, f"'{mark}' closes nothing"))
        self._piece(line, begin, len(line), number)
        if not self._open and not self._in_head:
            self._flush()
        elif self._behind is not None and self._open:
            # a comment inside brackets moves before the statement
            self._comments.append(self._behind)
            self._behind = None

    def _is_head(self, piece: str) -> bool:
        return bool(_SKETCH.match("".join(self._pieces) or piece))

    def _piece(self, line: str, begin: int, end: int, number: int) -> None:
        piece = line[begin:end]
        if not piece.strip():
            return
        if not self._pieces:
            self._start = number
            piece = " " * begin + piece
            self._in_head = bool(_SKETCH.match(piece))
        self._pieces.append(piece)

    def _comment(self, comment: str, behind: bool) -> None:
        if behind and comment.rstrip() == "#: pin":
            self._pinned = True
            return
        words = comment[1:].strip()
        if behind:
            at = words.rfind("#: pin")
            if at >= 0 and at + len("#: pin") == len(words):
                self._pinned = True
                words = words[:at].strip()
            self._behind = words
        else:
            self._comments.append(words)

    def _flush(self) -> None:
        if not self._pieces:
            # a comment after a brace belongs to the line that the brace ended
            if self._behind is not None:
                self._attach_behind()
            self._pinned = False
            return
        text = "\n".join(self._pieces)
        indent = len(text) - len(text.lstrip())
        if _SKETCH.match(text):
            kind = LineKind.SKETCH
        elif DECLARATION.match(text):
            kind = LineKind.DECLARATIONS
        else:
            kind = LineKind.CODE
        last = self._out.lines[-1] if self._out.lines else None
        self._pieces = []
        self._in_head = False
        if kind is LineKind.CODE and last and last.kind is LineKind.DECLARATIONS and indent > last.indent:
            gap = "\n" * (self._start - last.line - last.text.count("\n"))
            last.text += gap + text
            if self._behind is not None:
                self._comments.append(self._behind)
            last.before += tuple(self._comments)
            last.pinned = last.pinned or self._pinned
            self._comments, self._behind, self._pinned = [], None, False
            return
        self._line(kind, text, self._start, indent)

    def _line(self, kind: LineKind, text: str, number: int, indent: int) -> None:
        self._out.lines.append(
            LogicalLine(kind, text, number, indent, tuple(self._comments), self._behind, self._pinned)
        )
        self._comments, self._behind, self._pinned = [], None, False

    def _attach_behind(self) -> None:
        last = self._out.lines[-1] if self._out.lines else None
        if last is not None and last.behind is None and last.kind is not LineKind.CLOSE:
            last.behind = self._behind
        elif self._behind is not None:
            self._comments.append(self._behind)
        self._behind = None

    def _fault_open(self) -> None:
        opened = self._open[0]
        self._out.faults.append(BracketFault(opened.line, opened.col, f"'{opened.mark}' is never closed"))
        self._open.clear()
        self._pieces = []
        self._in_head = False
