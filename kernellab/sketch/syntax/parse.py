"""Text to tree: the layout is cut into logical lines, each is read by the grammar, and the grammar puts them together.

A fault in one line does not hide the others: every line that cannot be read gives its own diagnostic.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from kernellab.errors import SketchError
from kernellab.records import Diagnostic
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.file_reader import FileReader
from kernellab.sketch.syntax.layout import LineKind, LogicalLine, cut
from kernellab.sketch.syntax.lexers import LayoutLexer, LineLexer, Lines, misplaced
from kernellab.sketch.syntax.messages import diagnostic
from kernellab.sketch.syntax.reader import Head, Misplaced
from kernellab.sketch.syntax.refusals import explain, explain_layout

#: the reader of lines and its cache are shared by all threads
_LOCK = threading.RLock()
#: the lines of three schedules of a network of two hundred layers, each of which is read more than once
_CACHE_LINES = 1 << 16


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
        sketches: Any = _file_parser().parse(Lines(read, faults))
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
        faults.append(misplaced(error))
        return None
    except VisitError as error:
        if not isinstance(error.orig_exc, Misplaced):
            raise
        faults.append(misplaced(error.orig_exc))
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


# -- the grammar ------------------------------------------------------------------------------------------------------

_reader = FileReader()


@lru_cache(maxsize=1)
def _grammar() -> str:
    return resources.files("kernellab.sketch.syntax").joinpath("grammar.lark").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _line_parser() -> Lark:
    return Lark(_grammar(), parser="lalr", lexer=LineLexer, start="line", maybe_placeholders=True, transformer=_reader)


@lru_cache(maxsize=1)
def _file_parser() -> Lark:
    return Lark(_grammar(), parser="lalr", lexer=LayoutLexer, start="file", transformer=_reader)
