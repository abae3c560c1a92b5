"""Pins and constraints: what a revision by an agent may not change.

A line that ends with ``#: pin`` and a ``require:`` of a person stay as they are in every revision by an agent. A pin is
found in the next text by its canonical text and the headers around it, so that it may move to another line."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from kernellab.errors import SketchError
from kernellab.records import Author, Diagnostic
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.layout import LineKind, LogicalLine, cut
from kernellab.sketch.syntax.messages import diagnostic
from kernellab.sketch.syntax.parse import parse_with_faults
from kernellab.sketch.syntax.printer import format_expr, format_statement

_MARK = "#: pin"
_ELSE = re.compile(r"\s*else\b")


class Pin(NamedTuple):
    """A pinned line: its canonical text, and the sketch and the headers (hints included) of the loops and ifs around
    it."""

    text: str
    around: tuple[str, ...]


class Constraint(NamedTuple):
    """A ``require:`` in canonical text, and the name of the sketch that it restricts."""

    sketch: str
    text: str


@dataclass(frozen=True)
class Kept:
    """What a revision by an agent keeps: pinned lines with how often each stands, and constraints."""

    pins: Mapping[Pin, int] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, text: str) -> Kept | None:
        """Return all pins and constraints of a sketch; None of a text without a layout, in which none can be found."""
        return _kept_of(text)

    def by_person(self, before: Kept, now: Kept) -> Kept:
        """Return what is a person's, if this was before a revision by a person. ``before`` and ``now`` are all pins and
        constraints of its two texts: a person's are those that the person left, or added."""
        pins: dict[Pin, int] = {}
        for pin, count in now.pins.items():
            added = max(0, count - before.pins.get(pin, 0))
            pins[pin] = min(count, self.pins.get(pin, 0) + added)
        left = [one for one in now.constraints if one in self.constraints or one not in before.constraints]
        return Kept({pin: count for pin, count in pins.items() if count}, tuple(left))

    def marked(self, before: Kept, now: Kept) -> Kept:
        """Return what is a person's after the person only set or removed pins. ``before`` and ``now`` are all of the
        two texts; those need not hold what is kept: one that was refused does not."""
        every = [*self.pins, *now.pins, *before.pins]
        pins = {pin: self.pins.get(pin, 0) + now.pins.get(pin, 0) - before.pins.get(pin, 0) for pin in every}
        return Kept({pin: count for pin, count in pins.items() if count > 0}, self.constraints)

    def taking(self, text: str, line: int | None) -> Kept:
        """Return these with the pin at ``line`` of ``text`` once more; None: as it is."""
        if line is None:
            return self
        file, _ = parse_with_faults(text)
        new = next((pin for pin, span in _pins(file) if span.line == line), None) if file is not None else None
        return self if new is None else Kept({**self.pins, new: self.pins.get(new, 0) + 1}, self.constraints)

    def missing_in(self, other: Kept) -> Kept:
        """Return what of it ``other`` does not keep."""
        pins = {pin: count for pin, count in self.pins.items() if other.pins.get(pin, 0) < count}
        return Kept(pins, tuple(one for one in self.constraints if one not in other.constraints))

    def lines(self, text: str) -> list[tuple[int, str]]:
        """Return the pinned lines among these in ``text``, in order: number (from 1) and canonical text."""
        file, _ = parse_with_faults(text)
        return sorted((span.line, pin.text) for pin, span in _pins(file) if pin in self.pins)


@lru_cache(maxsize=512)  # what a line of turns holds asks for each of its sketches again
def _kept_of(text: str) -> Kept | None:
    file, _ = parse_with_faults(text)
    if file is None:
        return None
    return Kept(Counter(pin for pin, _ in _pins(file)), tuple(condition for condition, _ in _requires(file)))


def replaced(kept: Kept, before: str, after: str) -> dict[Pin, Pin]:
    """Return the kept pin of ``before`` that stood where a statement of ``after`` stands now, for each such statement.

    A statement inside a loop that has another header is another one, too.
    """
    old, new = (parse_with_faults(text)[0] for text in (before, after))
    if old is None or new is None:
        return {}
    old_lines, new_lines = [pin for pin, _ in _all(old)], [pin for pin, _ in _all(new)]
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    pins: dict[Pin, Pin] = {}
    for change, start, end, new_start, new_end in matcher.get_opcodes():
        gone = [pin for pin in old_lines[start:end] if pin in kept.pins] if change == "replace" else []
        pins |= {pin: gone[0] for pin in new_lines[new_start:new_end] if gone}
    return pins


def check_pins(parent_text: str, child_text: str, author: Author, kept: Kept | None = None) -> list[Diagnostic]:
    """Return what ``child_text`` breaks of what a revision of ``parent_text`` keeps.

    A pinned line must stand in the child as often as in the parent, pinned, inside the same loop headers; of a loop
    only header and hints are held, not the body. ``kept`` are the pins and constraints that hold; None: all of the
    parent's. A revision by a person may change everything.
    """
    if author is Author.HUMAN:
        return []
    parent, _ = parse_with_faults(parent_text)
    child, faults = parse_with_faults(child_text)
    kept = (Kept.of(parent_text) or Kept()) if kept is None else kept
    if child is None:  # in a text without a layout no line can be found, and the next revision would be held to it
        return list(faults) if kept != Kept() else []
    return [*_broken_pins(kept, parent, child), *_broken_constraints(kept, parent, child)]


def _broken_pins(kept: Kept, parent: tree.SketchFile | None, child: tree.SketchFile) -> Iterator[Diagnostic]:
    pinned = Counter(pin for pin, _ in _pins(child))
    unmarked = {pin: stmt.span.line for pin, stmt in _all(child)}
    lines_before = {pin: span.line for pin, span in _pins(parent)}
    for pin, count in kept.pins.items():
        if pinned[pin] >= count:
            continue
        before = lines_before.get(pin, 1)
        if pin in unmarked and not pinned[pin]:
            yield diagnostic("pin-mark", unmarked[pin], 1, what=f"'{pin.text}'")
        else:
            yield diagnostic("pin", _near(child, before), 1, what=f"'{pin.text}' (line {before} before)")


def _broken_constraints(kept: Kept, parent: tree.SketchFile | None, child: tree.SketchFile) -> Iterator[Diagnostic]:
    after = {constraint for constraint, _ in _requires(child)}
    lines_before = {constraint: span.line for constraint, span in _requires(parent)}
    for constraint in kept.constraints:
        if constraint not in after:
            line = _near(child, lines_before.get(constraint, 1))
            yield diagnostic("require-author", line, 1, what=f"'{constraint.text}' of sketch {constraint.sketch}")


def pinned_lines(text: str) -> list[tuple[int, str]]:
    """Return the pinned lines of a sketch: number (from 1) and canonical text, in order of the text."""
    file, _ = parse_with_faults(text)
    return sorted((span.line, pin.text) for pin, span in _pins(file))


def with_constraints(text: str, constraints: Iterable[Constraint]) -> str:
    """Return ``text`` with each of the ``constraints`` below the declarations of its sketch, if it has that sketch."""
    file, _ = parse_with_faults(text)
    missing = [one for one in constraints if one not in {here for here, _ in _requires(file)}]
    lines = text.split("\n")
    for sketch in reversed(file.sketches if file is not None else ()):
        after = max((d.span.end_line for d in sketch.declarations), default=sketch.span.line)
        lines[after:after] = [f"    require: {one.text};" for one in missing if one.sketch == sketch.name]
    return "\n".join(lines)


def without_pins(text: str) -> str:
    """Return ``text`` with the marks of pins turned into comments."""
    return text.replace(_MARK, "#")


def line_of_pin(text: str, line: int) -> int | None:
    """Return the line of the statement around ``line`` as :func:`pinned_lines` names it; None if it is not pinned."""
    group = _statement(text, line)
    first, last = (group[0].line, _last(group[-1])) if group else (0, 0)
    return next((number for number, _ in pinned_lines(text) if first <= number <= last), None)


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
    """Return the lines of code around the physical ``line``: a loop's with its hints; none for an else, which has no
    place for a pin."""
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


def _near(child: tree.SketchFile, line: int) -> int:
    """Return ``line``, or the last line of a shorter text."""
    return min(line, max((s.span.end_line for s in child.sketches), default=1))


def _requires(file: tree.SketchFile | None) -> Iterator[tuple[Constraint, tree.Span]]:
    for sketch in file.sketches if file is not None else ():
        for declaration in sketch.declarations:
            if declaration.kind == "require":
                for item in declaration.items:
                    if not isinstance(item, (tree.SymbolDecl, tree.TensorDecl, tree.ConstDecl, tree.OpaqueDecl)):
                        yield Constraint(sketch.name, format_expr(item)), item.span


def _pins(file: tree.SketchFile | None) -> Iterator[tuple[Pin, tree.Span]]:
    return ((pin, stmt.span) for pin, stmt in _all(file) if stmt.pinned) if file is not None else iter(())


def _all(file: tree.SketchFile) -> Iterator[tuple[Pin, tree.Declaration | tree.Stmt]]:
    for sketch in file.sketches:
        for declaration in sketch.declarations:
            yield Pin(format_statement(declaration), (sketch.name,)), declaration
        yield from _body(sketch.body, (sketch.name,))


def _body(body: tuple[tree.Stmt, ...], around: tuple[str, ...]) -> Iterator[tuple[Pin, tree.Stmt]]:
    for stmt in body:
        header = _header(stmt)
        yield Pin(header, around), stmt
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
