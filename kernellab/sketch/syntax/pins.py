"""Pins and constraints: the parts of a sketch that an agent's revision must not change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from kernellab.errors import SketchError
from kernellab.records import Author, Diagnostic
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.layout import LineKind, LogicalLine, cut
from kernellab.sketch.syntax.messages import diagnostic
from kernellab.sketch.syntax.parse import parse_with_faults
from kernellab.sketch.syntax.printer import format_expr, format_statement

_MARK = "#: pin"
_ELSE = re.compile(r"\s*else\b")

#: a pinned line: its canonical text, and the headers (with hints) of the loops and ifs around it
_Pin = tuple[str, tuple[str, ...]]


def check_pins(parent_text: str, child_text: str, author: Author) -> list[Diagnostic]:
    """Return diagnostics of the pins and constraints of ``parent_text`` that ``child_text`` breaks.

    The child must have a pinned line as often as the parent, pinned, inside the same loop headers; for a loop this
    covers header and hints, not the body. Only a person may change constraints; a person's revisions are
    unrestricted."""
    if author is Author.HUMAN:
        return []
    parent, _ = parse_with_faults(parent_text)
    child, faults = parse_with_faults(child_text)
    if parent is None:
        return []
    if child is None:  # a text without a layout has no pinned lines, and so the next revision would have no pins
        return faults if any(_pins(parent)) or any(_requires(parent)) else []
    diagnostics: list[Diagnostic] = []
    kept = Counter(pin for pin, _ in _pins(child))
    bare = {pin: stmt.span for pin, stmt in _all(child)}
    pins: Counter[_Pin] = Counter()
    for pin, span in _pins(parent):
        pins[pin] += 1
        if kept[pin] < pins[pin] and pin in bare and not kept[pin]:
            diagnostics.append(diagnostic("pin-mark", bare[pin].line, 1, what=f"'{pin[0]}'"))
        elif kept[pin] < pins[pin]:
            diagnostics.append(diagnostic("pin", _near(child, span), 1, what=f"'{pin[0]}' (line {span.line} before)"))
    return diagnostics + _constraints(parent, child)


def pinned_lines(text: str) -> list[tuple[int, str]]:
    """Return the pinned lines of a sketch: number (from 1) and canonical text, in order of the text."""
    file, _ = parse_with_faults(text)
    return sorted((span.line, pin[0]) for pin, span in _pins(file)) if file is not None else []


def without_pins(text: str) -> str:
    """Return ``text`` with the marks of pins as comments."""
    return text.replace(_MARK, "#")


def set_pin(text: str, line: int, on: bool = True, reason: str = "") -> str:
    """Return ``text`` with the statement at ``line`` (from 1) pinned or unpinned, and ``reason`` as its comment.

    Raises:
        SketchError: there is no statement that could be pinned at that line.
    """
    group = _statement(text, line)
    what = "pinned" if on else "unpinned"
    if not group:
        raise SketchError(
            f"Line {line} holds no statement that can be {what}.", "Choose the line of a declaration or a statement."
        )
    if any(part.pinned for part in group) == on:
        raise SketchError(f"Line {line} is {'pinned already' if on else 'not pinned'}.", "Nothing was changed.")
    lines = text.split("\n")
    if on:
        last = _last(group[-1]) - 1
        words = " ".join(reason.replace("#", " ").split())
        comment = f"  # {words}" if words and "#" not in lines[last] else ""
        lines[last] = f"{lines[last].rstrip()}{comment}  {_MARK}"
    else:
        for at in range(group[0].line - 1, _last(group[-1])):
            if lines[at].rstrip().endswith(_MARK):
                lines[at] = lines[at].rstrip().removesuffix(_MARK).rstrip()
    return "\n".join(lines)


def _statement(text: str, line: int) -> list[LogicalLine]:
    """Return the lines of code of the statement at the physical ``line``: for a loop with its hints; an else cannot be
    pinned."""
    group: list[LogicalLine] = []
    for candidate in cut(text).lines:
        group.append(candidate)
        if candidate.text.lstrip().startswith("@"):
            continue
        if line <= _last(candidate):
            code = candidate.kind in (LineKind.CODE, LineKind.DECLARATIONS) and not _ELSE.match(candidate.text)
            inside = any(part.line <= line <= _last(part) for part in group)
            return group if code and inside else []
        group = []
    return []


def _last(line: LogicalLine) -> int:
    return line.line + line.text.count("\n")


def _near(child: tree.SketchFile, span: tree.Span) -> int:
    last = max((s.span.end_line for s in child.sketches), default=1)
    return min(span.line, last)


def _constraints(parent: tree.SketchFile, child: tree.SketchFile) -> list[Diagnostic]:
    before, after = dict(_requires(parent)), dict(_requires(child))
    changed = [(text, _near(child, span)) for text, span in before.items() if text not in after]
    changed += [(text, span.line) for text, span in after.items() if text not in before]
    return [diagnostic("require-author", line, 1, what=f"'{text}'") for text, line in changed]


def _requires(file: tree.SketchFile) -> Iterator[tuple[str, tree.Span]]:
    for sketch in file.sketches:
        for declaration in sketch.declarations:
            if declaration.kind == "require":
                for item in declaration.items:
                    if not isinstance(item, (tree.SymbolDecl, tree.TensorDecl, tree.ConstDecl, tree.OpaqueDecl)):
                        yield format_expr(item), item.span


def _pins(file: tree.SketchFile) -> Iterator[tuple[_Pin, tree.Span]]:
    return ((pin, stmt.span) for pin, stmt in _all(file) if stmt.pinned)


def _all(file: tree.SketchFile) -> Iterator[tuple[_Pin, tree.Declaration | tree.Stmt]]:
    for sketch in file.sketches:
        for declaration in sketch.declarations:
            yield (format_statement(declaration), (sketch.name,)), declaration
        yield from _body(sketch.body, (sketch.name,))


def _body(body: tuple[tree.Stmt, ...], around: tuple[str, ...]) -> Iterator[tuple[_Pin, tree.Stmt]]:
    for stmt in body:
        header = _header(stmt)
        yield (header, around), stmt
        if isinstance(stmt, tree.For):
            yield from _body(stmt.body, (*around, header))
        elif isinstance(stmt, tree.If):
            yield from _body(stmt.then, (*around, header))
            yield from _body(stmt.orelse, (*around, f"else of {header}"))


def _header(stmt: tree.Stmt) -> str:
    hints = ""
    if isinstance(stmt, tree.For):
        hints = "".join(f"@llm_hint({', '.join(map(format_expr, h.args))}) " for h in stmt.hints)
    return hints + format_statement(stmt)
