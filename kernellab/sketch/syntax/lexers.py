"""The grammar's two lexers: the words of one line, and the lines of one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lark import Token
from lark.common import LexerConf
from lark.exceptions import UnexpectedCharacters
from lark.lexer import Lexer, PatternStr

from kernellab.records import Diagnostic
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.layout import LineKind, LogicalLine
from kernellab.sketch.syntax.messages import diagnostic
from kernellab.sketch.syntax.reader import Head, Misplaced, constants_inside

_HEAD_TOKENS = {"for": "L_FOR", "if": "L_IF", "elif": "L_ELIF", "else": "L_ELSE", "sketch": "L_SKETCH"}
#: a line that opens a block, also where it cannot be read
_HEADER = re.compile(r"\s*(?:for|if|elif|else|while|def)\b|.*:\s*$", re.DOTALL)


class LineLexer(Lexer):
    """The terminals of the grammar in one regular expression: twice as fast as lark's own lexer."""

    __future_interface__ = 1

    def __init__(self, conf: LexerConf) -> None:
        terminals = [t for t in conf.terminals if t.pattern.to_regexp()]
        name = re.compile(next(t for t in terminals if t.name == "NAME").pattern.to_regexp())
        words = [t for t in terminals if isinstance(t.pattern, PatternStr) and name.fullmatch(t.pattern.value)]
        self._words = {t.pattern.value: t.name for t in words}
        rest = [t for t in terminals if t not in words]
        rest.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
        parts = [f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in rest if t.name not in conf.ignore]
        skipped = [t.pattern.to_regexp() for t in rest if t.name in conf.ignore]
        self._scan = re.compile("|".join([*parts, *(f"(?:{s})" for s in skipped)])).match

    def lex(self, state: Any, _parser: Any) -> Iterator[Token]:
        text = state.text.text
        scan, words, size = self._scan, self._words, len(text)
        line, line_start, at = 1, 0, 0
        make = Token
        last: Token | None = None
        while at < size:
            match = scan(text, at)
            if match is None:
                raise UnexpectedCharacters(text, at, line, at - line_start + 1)  # type: ignore[no-untyped-call]
            end = match.end()
            kind = match.lastgroup
            if kind is None:
                newlines = text.count("\n", at, end)
                if newlines:
                    line += newlines
                    line_start = text.rindex("\n", at, end) + 1
            else:
                value = match[0]
                if kind == "NAME":
                    kind = words.get(value, kind)
                last = make(kind, value, at, line, at - line_start + 1, line, end - line_start + 1, end)
                state.last_token = last
                yield last
            at = end


class LineNodes(NamedTuple):
    """A logical line and what the grammar has read in it; None where the line cannot be read."""

    line: LogicalLine
    nodes: Any


@dataclass
class Lines:
    """The lines of one file, the input of the file rule's lexer, which adds faults of the layout."""

    read: list[LineNodes]
    faults: list[Diagnostic]


class LayoutLexer(Lexer):
    """Tokens of the file rule: one for each line, with INDENT and DEDENT where the indentation changes."""

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]
        yield from _Blocks(data.faults).tokens(data.read)


class _Blocks:
    """Follows the indentation of one file."""

    def __init__(self, faults: list[Diagnostic]) -> None:
        self.faults = faults
        #: the indentations of the open blocks of a sketch, outermost first; empty before its first statement
        self.levels: list[int] = []
        #: does the line before open a block, or is it a hint?
        self.opened = self.hinted = False

    def tokens(self, read: list[LineNodes]) -> Iterator[Token]:
        for line, nodes in read:
            if line.kind is LineKind.SKETCH or line.kind is LineKind.CLOSE:
                yield from self._end_blocks(line)
                self.levels, self.opened = [], False
                yield _token("L_SKETCH" if line.kind is LineKind.SKETCH else "L_CLOSE", line, nodes)
                continue
            if line.kind is LineKind.CODE and self.levels and line.indent > self.levels[0] and _is_declaration(nodes):
                self.faults.append(misplaced(constants_inside(nodes[0].span)))
                nodes = ()
            if line.kind is LineKind.DECLARATIONS or _is_declaration(nodes):
                yield from self._end_blocks(line)
                self.levels = self.levels[:1]
                yield _token("L_DECLS", line, nodes)
                continue
            yield from self._indentation(line)
            yield from self._statement(line, nodes)
        yield from self._end_blocks(read[-1].line)

    def _end_blocks(self, line: LogicalLine) -> Iterator[Token]:
        for _ in self.levels[1:]:
            yield _token("DEDENT", line, None)

    def _indentation(self, line: LogicalLine) -> Iterator[Token]:
        """Yield the tokens of the change of indentation before a statement; a wrong one is a fault."""
        deeper = not self.levels or line.indent > self.levels[-1]
        if not self.levels:
            self.levels = [line.indent]
        elif deeper and self.opened:
            self.levels.append(line.indent)
            yield _token("INDENT", line, None)
        elif deeper:
            self.faults.append(diagnostic("indent", line.line, line.indent + 1))
        while len(self.levels) > 1 and line.indent < self.levels[-1]:
            self.levels.pop()
            yield _token("DEDENT", line, None)
        if line.indent < self.levels[-1] or (line.indent > self.levels[-1] and not deeper):
            self.faults.append(diagnostic("dedent", line.line, line.indent + 1))

    def _statement(self, line: LogicalLine, nodes: Any) -> Iterator[Token]:
        after_hint, self.hinted = self.hinted, isinstance(nodes, tree.Hint)
        self.opened = False
        if isinstance(nodes, Head):
            yield _token(_HEAD_TOKENS[nodes.word], line, nodes)
            if nodes.inline:
                yield _token("L_INLINE", line, nodes)
            self.opened = not nodes.inline
        elif isinstance(nodes, tree.Hint):
            yield _token("L_HINT", line, nodes)
        elif nodes is None and _HEADER.match(line.text):
            # an unreadable header still opens a block; after a hint only a loop may follow
            if after_hint:
                yield _token("L_FOR", line, Head("for", tree.For("_", (tree.Num(1),), ()), ()))
            else:
                yield _token("L_IF", line, Head("if", tree.Bool(True), ()))
            self.opened = True
        else:
            yield _token("L_SIMPLE", line, nodes or ())


def _is_declaration(nodes: Any) -> bool:
    return isinstance(nodes, tuple) and len(nodes) > 0 and all(isinstance(n, tree.Declaration) for n in nodes)


def _token(kind: str, line: LogicalLine, nodes: Any) -> Token:
    token = Token(kind, "", line=line.line, column=line.indent + 1)
    token.value = LineNodes(line, nodes)
    return token


def misplaced(error: Misplaced) -> Diagnostic:
    """Return a description of what is in the wrong place."""
    span = error.span
    return diagnostic("misplaced", span.line, span.col, what=error.message, remedy=error.remedy)
