"""From text to tree: the text is cut into logical lines, and the grammar reads each line and then the blocks.

A fault in one line does not hide others: each line that cannot be read has a diagnostic."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from kernellab.errors import SketchError
from kernellab.records import Diagnostic
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.file_reader import FileReader
from kernellab.sketch.syntax.layout import LineKind, LogicalLine, cut
from kernellab.sketch.syntax.lexers import LayoutLexer, LineLexer, LineNodes, Lines, misplaced
from kernellab.sketch.syntax.messages import diagnostic, nearest
from kernellab.sketch.syntax.reader import Head, Misplaced
from kernellab.sketch.syntax.words import DECLARATION, DECLARATIONS

#: all threads share the reader of lines and its cache
_LOCK = threading.RLock()
#: cached lines: those of three schedules of a network of two hundred layers, each of which is read more than once
_CACHE_LINES = 1 << 16
#: how deep a line's expressions, and blocks in each other, may be: printing, resolving and running recurse into them,
#: with up to six frames for a level of calls and four for one of operators, and Python allows 1,000 in all
_MOST_DEPTH = 400
#: the depth that a level of calls and a level of operators count
_CALL_DEPTH, _OPERATOR_DEPTH = 3, 2
_MOST_BLOCKS = 60


def parse(text: str) -> tree.SketchFile:
    """Return the tree of ``text``. Raises SketchError, whose ``diagnostics`` name every line that cannot be read."""
    result, faults = parse_with_faults(text)
    if result is None or faults:
        first = faults[0]
        raise SketchError(f"Line {first.line}: {first.message}", first.remedy, tuple(faults))
    return result


def parse_with_faults(text: str) -> tuple[tree.SketchFile | None, list[Diagnostic]]:
    """Return the tree as far as it can be read (None if the layout is broken), and the faults in order of line."""
    with _LOCK:
        try:
            return _parse(text)
        except RecursionError:
            return None, [too_deep(text)]


def too_deep(text: str) -> Diagnostic:
    """Return the diagnostic of a text with a statement that is nested too deep."""
    longest = max(cut(text).lines, key=lambda line: len(line.text))
    return diagnostic("too-deep", longest.line, longest.indent + 1)


def _parse(text: str) -> tuple[tree.SketchFile | None, list[Diagnostic]]:
    layout = cut(text)
    if all(line.kind is not LineKind.SKETCH for line in layout.lines):
        # faults inside its lines follow from this one
        first = layout.lines[0].line if layout.lines else 1
        return tree.SketchFile((), layout.trailing), [diagnostic("no-sketch", first, 1)]
    faults = [diagnostic("bracket", fault.line, fault.col, what=fault.what) for fault in layout.faults]
    if (deep := _deep_block(layout.lines)) is not None:
        return None, [diagnostic("too-deep", deep.line, deep.indent + 1)]
    read = [LineNodes(line, _read_line(line, faults)) for line in layout.lines]
    try:
        sketches: Any = _file_parser().parse(Lines(read, faults))
    except UnexpectedToken as error:
        outside = _outside(layout.lines)
        faults = [fault for fault in faults if fault.line not in outside]
        faults.append(explain_layout(error.token, text, outside))
        return None, _in_order(faults)
    result = tree.SketchFile(tuple(sketches), layout.trailing)
    return result, _in_order(faults)


def _outside(lines: Sequence[LogicalLine]) -> set[int]:
    """Return the numbers of the lines outside sketches."""
    numbers, inside = set(), False
    for line in lines:
        if line.kind is LineKind.SKETCH:
            inside = True
        elif not inside:
            numbers.add(line.line)
        elif line.kind is LineKind.CLOSE:
            inside = False
    return numbers


def _in_order(faults: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(faults, key=lambda d: (d.line, d.col))


# -- lines -------------------------------------------------------------------------------------------------------------


def _read_line(line: LogicalLine, faults: list[Diagnostic]) -> Any:
    """Return the nodes of a line, from the cache if its text was read before; None (and a fault) if it cannot be
    read."""
    place = (line.text, line.line)
    node = _cache.get(place)
    if node is not None:
        return node
    elsewhere = _latest.get(line.text)
    if elsewhere is not None:
        node = _shift(elsewhere.nodes, line.line - elsewhere.line)
        _keep(line, node)
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
    if _depth(node) > _MOST_DEPTH:
        faults.append(diagnostic("too-deep", line.line, line.indent + 1))
        return None
    _keep(line, node)
    return node


def _depth(node: Any) -> int:
    """Return how deep the parts of a line lie in each other, weighed by what recursion into them takes."""
    deepest, worklist = 0, [(node, 0)]
    while worklist:
        part, depth = worklist.pop()
        if isinstance(part, tuple | list):
            worklist += [(inner, depth) for inner in part]
        elif hasattr(part, "__dict__"):
            depth += _CALL_DEPTH if isinstance(part, tree.Call) else _OPERATOR_DEPTH
            deepest = max(deepest, depth)
            worklist += [(inner, depth) for inner in vars(part).values()]
    return deepest


def _deep_block(lines: Sequence[LogicalLine]) -> LogicalLine | None:
    """Return the first line inside more blocks than are read; None without one."""
    around: list[int] = []
    for line in lines:
        while around and around[-1] >= line.indent:
            around.pop()
        around.append(line.indent)
        if len(around) > _MOST_BLOCKS:
            return line
    return None


def _keep(line: LogicalLine, nodes: Any) -> None:
    _cache[line.text, line.line] = nodes
    _latest[line.text] = _Reading(line.line, nodes)
    if len(_cache) > _CACHE_LINES:
        _cache.clear()
        _latest.clear()


class _Reading(NamedTuple):
    line: int
    nodes: Any


#: (text, number) of a line -> its nodes
_cache: dict[tuple[str, int], Any] = {}
#: text of a line -> where it was read last: its nodes elsewhere differ only in their spans
_latest: dict[str, _Reading] = {}
#: types of node parts that have no span inside
_LEAVES = (str, int, float, bool, type(None))


def _shift(node: Any, lines: int) -> Any:
    """Return ``node`` moved down by ``lines``."""
    kind = type(node)
    if kind in _LEAVES:
        return node
    if kind is tree.Span:
        is_place = node is not tree.NOWHERE
        return tree.Span(node.line + lines, node.col, node.end_line + lines, node.end_col) if is_place else node
    if kind is tuple:
        return tuple([_shift(part, lines) for part in node])
    if kind is Head:
        return Head(*(_shift(part, lines) for part in node))
    moved: Any = object.__new__(kind)
    values = moved.__dict__
    for name, value in node.__dict__.items():
        values[name] = value if type(value) in _LEAVES else _shift(value, lines)
    return moved


# -- the grammar -------------------------------------------------------------------------------------------------------

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


# -- diagnostics of the grammar's errors: one sentence and a remedy for a line that cannot be read ---------------------

_WORDS = {
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'", "COMMA": "','",
    "COLON": "':'", "EQUAL": "'='", "ARROW": "'->'", "NAME": "a name", "NUMBER": "a number", "STRING": "a string",
    "COMPARE": "a comparison", "PLUS_MINUS": "'+' or '-'", "TIMES": "'*', '/', '//' or '%'", "POWER": "'**'", "SHIFT": "'<<' or '>>'", "BIT_OR": "'|'", "BIT_XOR": "'^'",
    "BIT_AND": "'&'", "BIT_NOT": "'~'",
    "IN": "'in'", "ROLE_IN": "'in'", "RANGE": "'range'", "_SEMI": "';'", "SEMICOLON": "';'", "$END": "the end of the line",
    "AT": "'@'", "FOR": "'for'", "IF": "'if'", "ELSE": "'else'", "ELIF": "'elif'", "NONE": "'None'",
}  # fmt: skip
#: the order in which an expected token is named; operators are always possible and not named
_TELLING = (
    "COLON",
    "RPAR",
    "RSQB",
    "RBRACE",
    "ARROW",
    "EQUAL",
    "IN",
    "RANGE",
    "LPAR",
    "LBRACE",
    "LSQB",
    "NAME",
    "NUMBER",
)

#: text of other languages that a line may begin with, the sentence that it causes, and the remedy
_FOREIGN = (
    (re.compile(rf"\s*(?:{'|'.join(DECLARATIONS)})\b(?!\s*[:=(.\[])"), "The declaration has no colon.", "Write one after its first word, as in symbols: M; N;"),
    (re.compile(r"\s*sketch\s+\w+\s*[(\[<]"), "A sketch's header has its name alone.", "Write sketch name {, and its arguments in the body: tensors: x[M, N]: f32; y[M, N]: f32 out;"),
    (re.compile(r"\s*while\b"), "There is no while loop in a sketch.", "Write for i in range(...)."),
    (re.compile(r"\s*def\b"), "There are no functions in a sketch.", "Write the statements out, or start a second sketch."),
    (re.compile(r"\s*(?:import|from)\b"), "A sketch imports nothing.", "Drop the line."),
    (re.compile(r"\s*return\b"), "A sketch returns nothing.", "Write store(tile -> Y[...])."),
    (re.compile(r"\s*(?:break|continue|pass)\b"), "Loops run to their end.", "Use if on an index condition."),
    (re.compile(r"[^=!<>]*(?:[-+*/&|^]|<<|>>)=[^=]"), "There is no in-place operator in a sketch.", "Write x = x + ... instead."),
    (
        re.compile(r"\s*(?:symbols|tensors|constexpr)\s*:.*\b[^\W\d]\w*\s*:\s*[^\W\d]"), "A name without a shape has a type.",
        "A tensor has its shape in brackets: X[M, N]: f32. A number among the arguments is a constexpr of its name, without a type and a value: constexpr: eps;",
    ),
    (re.compile(r".*\w\.m?T\b(?!\s*\()"), "A tile has no attributes.", "Write transpose(tile)."),
    (re.compile(r".*[\w\])]\s*@\s*(?!llm_hint)\w"), "There is no operator '@' in a sketch.", "Write gemm(a, b, acc), or dot(a, b)."),
    (re.compile(r"\s*for\b(?!.*\brange\b)"), "A loop runs over range(...).", "Write for i in range(start, stop, step):."),
    (re.compile(r"\s*for\b.*\)\s*$"), "The loop's header has no colon.", "End the line with ':'."),
    (re.compile(r"\s*(?:if|elif)\b[^:]*$"), "The header has no colon.", "End the line with ':'."),
    (re.compile(r"\s*else\b[^:]*$"), "The header has no colon.", "Write else:."),
    (re.compile(r"\s*(?:load|store|atomic_add|gather|scatter)\s*\((?!.*->)"), "The move has no '->'.", "Write load(X[...] -> tile) or store(tile -> Y[...])."),
    (re.compile(r"\s*\w+\s*\[[^\]]*\]\s*="), "A part of a tensor or tile is assigned.", "Write store(value -> Y[...])."),
)  # fmt: skip


def explain(error: UnexpectedToken | UnexpectedCharacters, line: LogicalLine) -> Diagnostic:
    """Return the diagnostic of a line that lark refused."""
    row, col = _place(error, line)
    for pattern, sentence, remedy in _FOREIGN:
        if pattern.match(line.text):
            return diagnostic("syntax", row, col, what=sentence, remedy=remedy)
    if isinstance(error, UnexpectedCharacters):
        char = error.char
        return diagnostic("syntax", row, col, what=f"The character '{char}' has no meaning here.", remedy="Drop it.")
    actual = "the line ends" if error.token.type == "$END" else f"'{error.token}' stands"
    expected = _wanted(error, bool(DECLARATION.match(line.text)))
    what = f"Expected {expected}, but {actual} here." if expected else f"'{error.token}' is not expected here."
    if error.token.type == "$END" and not expected:
        what = "The statement is not complete."
    keywords = ("sketch", "for", *DECLARATIONS)
    first = line.text.split()[0].rstrip(":")
    near = nearest(first, keywords) if first not in keywords else None
    return diagnostic("syntax", row, col, what=what, remedy=str(near or "Complete or correct this statement."))


def _place(error: UnexpectedToken | UnexpectedCharacters, line: LogicalLine) -> tuple[int, int]:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        last = line.text.rstrip().split("\n")
        return line.line + len(last) - 1, len(last[-1]) + 1
    row, col = error.line, error.column
    return line.line + max(row, 1) - 1, max(col, 1)


def _wanted(error: UnexpectedToken, declares: bool) -> str:
    expected = set(error.accepts or error.expected)
    if {"NAME", "NUMBER"} <= expected:
        return "a value"
    # between statements a semicolon is always possible, between declarations it is missing
    telling = (*_TELLING, "_SEMI") if declares else _TELLING
    words = [_WORDS[name] for name in telling if name in expected]
    return " or ".join(words[:2])


def explain_layout(token: Token, text: str, outside: Collection[int]) -> Diagnostic:
    """Return the diagnostic of a valid line in the wrong place. ``outside`` has the numbers of the lines outside
    sketches."""
    if token.type == "$END":
        last = text.rstrip().count("\n") + 1
        return diagnostic(
            "layout", last, 1, what="The text ends inside a sketch or a block.", remedy="Close the sketch with '}'."
        )
    line = token.line or 1
    if line in outside:
        what, remedy = _CLOSES_NOTHING if token.type == "L_CLOSE" else _OUTSIDE
        return diagnostic("layout", line, token.column or 1, what=what, remedy=remedy)
    what, remedy = _LAYOUT.get(token.type, ("This line is not allowed here.", "Move it into a sketch's body."))
    if token.type in ("DEDENT", "L_CLOSE", "L_SIMPLE"):
        what = "The block or hint before this line has no statement."
        remedy = "Indent a statement under the header, and put hints right before a for."
    return diagnostic("layout", line, token.column or 1, what=what, remedy=remedy)


_OUTSIDE = ("This line stands outside of a sketch.", "Move it between the braces of sketch name { ... }, or drop it.")
_CLOSES_NOTHING = ("This '}' closes no sketch.", "Drop it.")
_LAYOUT = {
    "L_SKETCH": ("A sketch starts inside another.", "Close the one before with '}'."),
    "L_ELSE": ("This else has no if.", "Align it with its if."),
    "L_ELIF": ("This elif has no if.", "Align it with its if."),
    "L_HINT": ("A hint is not allowed here.", "Put it right before a for, inside a sketch."),
    "L_FOR": ("A loop is not allowed here.", "Put it inside a sketch, with its body indented."),
    "L_IF": ("An if is not allowed here.", "Put it inside a sketch; hints belong to loops."),
    "L_DECLS": ("A declaration is not allowed here.", "Declare before the first loop of a sketch."),
    "INDENT": ("This line is indented, and no line above it opens a block.", "Align it with the line before."),
}
