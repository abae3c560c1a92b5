"""Text to tree: the layout is cut into logical lines, each is read by the grammar, and the grammar puts them together.

A fault in one line does not hide the others: every line that cannot be read gives its own diagnostic.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark, Token
from lark.common import LexerConf
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError
from lark.lexer import Lexer, PatternStr

from kernellab.errors import SketchError
from kernellab.records import Diagnostic
from kernellab.sketch import tree
from kernellab.sketch.layout import LineKind, LogicalLine, cut
from kernellab.sketch.messages import diagnostic
from kernellab.sketch.reader import Head, LineReader, Misplaced, constants_inside
from kernellab.sketch.syntax import explain, explain_layout
from kernellab.sketch.walk import is_written

#: the reader of lines and its cache are shared by all threads
_LOCK = threading.RLock()
#: a long session edits a few hundred lines
_CACHE_LINES = 16384


def parse(text: str) -> tree.SketchFile:
    """The tree of ``text``. Raises SketchError, whose ``diagnostics`` name every line that cannot be read."""
    result, faults = parse_with_faults(text)
    if result is None or faults:
        first = faults[0]
        raise SketchError(f"Line {first.line}: {first.message}", first.remedy, tuple(faults))
    return result


def parse_with_faults(text: str) -> tuple[tree.SketchFile | None, list[Diagnostic]]:
    """The tree as far as it can be read (None when the layout is broken), and the faults in order of line."""
    with _LOCK:
        try:
            return _parse(text)
        except RecursionError:
            return None, [too_deep(text)]


def too_deep(text: str) -> Diagnostic:
    """The diagnostic of a text whose longest statement is nested beyond what can be read."""
    longest = max(cut(text).lines, key=lambda line: len(line.text))
    return diagnostic("too-deep", longest.line, longest.indent + 1)


def _parse(text: str) -> tuple[tree.SketchFile | None, list[Diagnostic]]:
    layout = cut(text)
    faults = [diagnostic("bracket", line, col, what=what) for line, col, what in layout.faults]
    read = [(line, _read_line(line, faults)) for line in layout.lines]
    try:
        sketches: Any = _file_parser().parse(_Layer(read, faults))
    except UnexpectedToken as error:
        faults.append(explain_layout(error.token, text))
        return None, _in_order(faults)
    if not sketches and not faults:
        faults.append(diagnostic("no-sketch", 1, 1))
    result = tree.SketchFile(tuple(sketches), layout.trailing)
    return result, _in_order(faults)


def _in_order(faults: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(faults, key=lambda d: (d.line, d.col))


# -- lines ------------------------------------------------------------------------------------------------------------


def _read_line(line: LogicalLine, faults: list[Diagnostic]) -> Any:
    """What the line says, from the cache when its text was read before; None (and a fault) when it cannot be read."""
    place = (line.text, line.line)
    node = _cache.get(place)
    if node is not None:
        return node
    seen = _seen.get(line.text)
    if seen is not None:
        # written before, on another line
        at, node = seen
        node = _shift(node, line.line - at)
        _keep(place, node)
        return node
    if line.kind is LineKind.CLOSE:
        return ()
    _reader.base = line.line - 1
    try:
        node = _line_parser().parse(line.text)
    except (UnexpectedToken, UnexpectedCharacters) as error:
        faults.append(explain(error, line))
        return None
    except Misplaced as error:
        faults.append(_misplaced(error))
        return None
    except VisitError as error:
        if not isinstance(error.orig_exc, Misplaced):
            raise
        faults.append(_misplaced(error.orig_exc))
        return None
    except UnexpectedInput as error:
        faults.append(diagnostic("syntax", line.line, 1, what=str(error)))
        return None
    _keep(place, node)
    return node


def _keep(place: tuple[str, int], node: Any) -> None:
    _cache[place] = node
    _seen[place[0]] = (place[1], node)
    if len(_cache) > _CACHE_LINES:
        _cache.clear()
        _seen.clear()


def _misplaced(error: Misplaced) -> Diagnostic:
    span = error.span
    return diagnostic("misplaced", span.line, span.col, what=error.message, remedy=error.remedy)


#: what a line at a place says, and where its text was read last
_cache: dict[tuple[str, int], Any] = {}
_seen: dict[str, tuple[int, Any]] = {}
_LEAVES = (str, int, float, bool, type(None))


def _shift(node: Any, lines: int) -> Any:
    """``node`` as if it were written ``lines`` further down."""
    kind = type(node)
    if kind in _LEAVES:
        return node
    if kind is tree.Span:
        return (
            node
            if node is tree.NOWHERE
            else tree.Span(node.line + lines, node.col, node.end_line + lines, node.end_col)
        )
    if kind is tuple:
        return tuple([_shift(part, lines) for part in node])
    if kind is Head:
        return Head(_shift(part, lines) for part in node)
    moved: Any = object.__new__(kind)
    values = moved.__dict__
    for name, value in node.__dict__.items():
        values[name] = value if type(value) in _LEAVES else _shift(value, lines)
    return moved


# -- files ------------------------------------------------------------------------------------------------------------

_HEAD_TOKENS = {"for": "L_FOR", "if": "L_IF", "elif": "L_ELIF", "else": "L_ELSE", "sketch": "L_SKETCH"}


class _LineLexer(Lexer):
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
        line, bol, at = 1, 0, 0
        make = Token
        last: Token | None = None
        while at < size:
            match = scan(text, at)
            if match is None:
                raise UnexpectedCharacters(text, at, line, at - bol + 1)  # type: ignore[no-untyped-call]
            end = match.end()
            kind = match.lastgroup
            if kind is None:
                newlines = text.count("\n", at, end)
                if newlines:
                    line += newlines
                    bol = text.rindex("\n", at, end) + 1
            else:
                value = match[0]
                if kind == "NAME":
                    kind = words.get(value, kind)
                last = make(kind, value, at, line, at - bol + 1, line, end - bol + 1, end)
                state.last_token = last
                yield last
            at = end


_HEADER = re.compile(r"\s*(?:for|if|elif|else|while|def)\b|.*:\s*$", re.DOTALL)


class _Layer:
    """The lines of one file, as the file rule's lexer takes them."""

    def __init__(self, read: list[tuple[LogicalLine, Any]], faults: list[Diagnostic]) -> None:
        self.read = read
        self.faults = faults


class _LayoutLexer(Lexer):
    """Tokens of the file rule: one a line, with INDENT and DEDENT where the indentation changes."""

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]
        levels: list[int] = []
        faults: list[Diagnostic] = data.faults
        opened = False
        for line, node in data.read:
            kind = line.kind
            if kind is LineKind.SKETCH or kind is LineKind.CLOSE:
                for _ in levels[1:]:
                    yield _token("DEDENT", line, None)
                levels = []
                opened = False
                yield _token("L_SKETCH" if kind is LineKind.SKETCH else "L_CLOSE", line, node)
                continue
            if kind is LineKind.CODE and levels and line.indent > levels[0] and _is_declaration(node):
                faults.append(_misplaced(constants_inside(node[0].span)))
                node = ()
            if kind is LineKind.DECLARATIONS or _is_declaration(node):
                if len(levels) > 1:
                    for _ in levels[1:]:
                        yield _token("DEDENT", line, None)
                    levels = levels[:1]
                yield _token("L_DECLS", line, node)
                continue
            deeper = not levels or line.indent > levels[-1]
            if not levels:
                levels = [line.indent]
            elif deeper:
                if opened:
                    levels.append(line.indent)
                    yield _token("INDENT", line, None)
                else:
                    faults.append(diagnostic("indent", line.line, line.indent + 1))
            while len(levels) > 1 and line.indent < levels[-1]:
                levels.pop()
                yield _token("DEDENT", line, None)
            if line.indent < levels[-1] or (line.indent > levels[-1] and not deeper):
                faults.append(diagnostic("dedent", line.line, line.indent + 1))
            opened = False
            if isinstance(node, Head):
                yield _token(_HEAD_TOKENS[node[0]], line, node)
                if node[2]:
                    yield _token("L_INLINE", line, node)
                else:
                    opened = True
            elif isinstance(node, tree.Hint):
                yield _token("L_HINT", line, node)
            elif node is None and _HEADER.match(line.text):
                # an unreadable header still opens a block
                yield _token("L_IF", line, Head(("if", tree.Bool(True), ())))
                opened = True
            else:
                yield _token("L_SIMPLE", line, node or ())
        for _ in levels[1:]:
            yield _token("DEDENT", data.read[-1][0], None)


def _is_declaration(node: Any) -> bool:
    return isinstance(node, tuple) and len(node) > 0 and all(isinstance(n, tree.Declaration) for n in node)


def _token(kind: str, line: LogicalLine, node: Any) -> Token:
    token = Token(kind, "", line=line.line, column=line.indent + 1)
    token.value = (line, node)
    return token


class _FileReader(LineReader):
    """Adds the file rule's methods: lines to blocks, with comments and pins put on the nodes."""

    def file(self, children: list[tree.Sketch]) -> list[tree.Sketch]:
        return children

    def sketch(self, children: list[Any]) -> tree.Sketch:
        head, *middle, close = children
        line, node = head.value
        declarations: list[tree.Declaration] = []
        body: list[tree.Stmt] = []
        for child in middle:
            if isinstance(child, Token) and child.type == "L_DECLS":
                declarations.extend(_dressed(d, child.value[0], i) for i, d in enumerate(child.value[1] or ()))
            elif isinstance(child, Token):
                body.extend(_simple(child))
            else:
                body.append(child)
        end = close.value[0]
        name = node[1] if node is not None else "_"
        span = tree.Span(line.line, line.indent + 1, end.line, end.indent + 2)
        declared, rest = _leading_constants(tuple(declarations), tuple(body))
        comments = tree.Comments(line.before, line.behind)
        return tree.Sketch(name, declared, rest, comments, _with_behind(end), span)

    def block(self, children: list[Any]) -> tuple[tree.Stmt, ...]:
        body: list[tree.Stmt] = []
        for child in children:
            if not isinstance(child, Token):
                body.append(child)
            elif child.type == "L_SIMPLE":
                body.extend(_simple(child))
            elif child.type == "L_INLINE":
                body.extend(child.value[1][2])
        return tuple(body)

    def for_block(self, children: list[Any]) -> Any:
        *hints, head, body = children
        line, node = head.value
        found = []
        for hint in hints:
            at, value = hint.value
            found.append(dataclasses.replace(value, comments=tree.Comments(at.before, at.behind)))
        pinned = line.pinned or any(h.value[0].pinned for h in hints)
        comments = tree.Comments(line.before, line.behind)
        return dataclasses.replace(node[1], body=body, hints=tuple(found), comments=comments, pinned=pinned)

    def if_block(self, children: list[Any]) -> tree.If:
        return self._if(children[0], children[1], children[2:])

    def _if(self, head: Token, body: tuple[tree.Stmt, ...], rest: list[Any]) -> tree.If:
        line, node = head.value
        orelse: tuple[tree.Stmt, ...] = ()
        if rest:
            token, block = rest[0]
            is_elif = token.type == "L_ELIF"
            orelse = (self._if(token, block, rest[1:]),) if is_elif else _after(token.value[0], block)
        span = tree.Span(line.line, line.indent + 1, line.line, line.indent + len(line.text.strip()) + 1)
        comments = tree.Comments(line.before, line.behind)
        return tree.If(node[1], body, orelse, comments, line.pinned, span)

    def elif_block(self, children: list[Any]) -> tuple[Token, tuple[tree.Stmt, ...]]:
        return children[0], children[1]

    def else_block(self, children: list[Any]) -> tuple[Token, tuple[tree.Stmt, ...]]:
        return children[0], children[1]


def _with_behind(line: LogicalLine) -> tuple[str, ...]:
    return line.before if line.behind is None else (*line.before, line.behind)


def _dressed(node: Any, line: LogicalLine, index: int, last: bool = True) -> Any:
    before = line.before if index == 0 else ()
    behind = line.behind if last else None
    if not before and behind is None and not line.pinned:
        return node
    return dataclasses.replace(node, comments=tree.Comments(before, behind), pinned=line.pinned)


def _simple(token: Token) -> list[tree.Stmt]:
    line, nodes = token.value
    return [_dressed(n, line, i, i == len(nodes) - 1) for i, n in enumerate(nodes)]


def _after(line: LogicalLine, body: tuple[tree.Stmt, ...]) -> tuple[tree.Stmt, ...]:
    """``body`` with the comments of its ``else`` line on its first statement: the tree has no other place."""
    comments = _with_behind(line)
    if not comments or not body:
        return body
    first = body[0]
    kept = dataclasses.replace(first.comments, before=comments + first.comments.before)
    return (dataclasses.replace(first, comments=kept), *body[1:])


def _leading_constants(
    declarations: tuple[tree.Declaration, ...], body: tuple[tree.Stmt, ...]
) -> tuple[tuple[tree.Declaration, ...], tuple[tree.Stmt, ...]]:
    """AKG's ``tile = 128`` before the first loop is a constexpr unless something assigns to it again."""
    count = 0
    found = list(declarations)
    for stmt in body:
        constant = (
            isinstance(stmt, tree.Assign)
            and len(stmt.targets) == 1
            and isinstance(stmt.value, tree.Num)
            and not is_written(stmt.targets[0].id, body[count + 1 :])
        )
        if not constant or not isinstance(stmt, tree.Assign):
            break
        item = tree.ConstDecl(stmt.targets[0].id, stmt.value, span=stmt.span)
        found.append(tree.Declaration("constexpr", (item,), stmt.comments, stmt.pinned, stmt.span))
        count += 1
    return tuple(found), body[count:]


_reader = _FileReader()


@lru_cache(maxsize=1)
def _grammar() -> str:
    return resources.files("kernellab.sketch").joinpath("grammar.lark").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _line_parser() -> Lark:
    return Lark(_grammar(), parser="lalr", lexer=_LineLexer, start="line", maybe_placeholders=True, transformer=_reader)


@lru_cache(maxsize=1)
def _file_parser() -> Lark:
    return Lark(_grammar(), parser="lalr", lexer=_LayoutLexer, start="file", transformer=_reader)
