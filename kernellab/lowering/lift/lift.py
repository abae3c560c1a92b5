"""Recovers the sketch of a source that a lowering wrote: migration between DSLs without a model.

A lowered source carries its sketch, which is accepted only if lowering it gives the source's code again, token by
token. So a wrong sketch, or code that a person has changed, is never accepted. If single numbers, names or operators
were changed, the sketch is changed likewise and proved in the same way; any other edit is refused with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernellab.errors import KernellabError, LoweringError
from kernellab.lowering.embedded_sketch import carried, with_values
from kernellab.lowering.lift.proof import Difference, difference
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.task import Task

_DSLS = ("triton", "cpp", "cuda_c")
_REMEDY = "Lift it by a model (--roles designer=model --lift), or write the sketch by hand."


def lift(source: Source, task: Task) -> str:
    """Return the sketch of what ``source`` computes, in canonical form.

    Raises:
        LoweringError: no lowering of kernellab wrote it for this task, it does not carry its sketch, or its code was
        changed in a way that no sketch expresses; the message names the line.
    """
    from kernellab.lowering.lift.proof import difference, refusal, unreadable
    from kernellab.sketch.syntax.printer import format as format_sketch

    if source.dsl not in _DSLS:
        raise LoweringError(f"A {source.dsl} source cannot be lifted by rules.", _REMEDY)
    sketch = carried(source)
    if sketch is None:
        raise LoweringError("The source does not carry the sketch that it was written from.", _REMEDY)
    text = sketch.text
    try:
        text = format_sketch(text)
        place = difference(text, source, task)
    except KernellabError as error:
        raise unreadable(source, error, text) from None
    if place is None:
        return text
    followed = fixed(text, place, source, task)
    if followed is None:
        raise refusal(place, source, text)
    return format_sketch(followed)


# -- sketches for a source whose code was edited -----------------------------------------------------------------------
# The statement's text is changed as the code was, and proved again.

#: most edits that are followed, one after another
_MOST_EDITS = 4
#: names of the language's operations in the lowerings' libraries
_WORDS = {"maximum": "max", "minimum": "min", "imax": "max", "imin": "min"}
_SUFFIX = re.compile(r"(?<=[\d.])[fFlLuU]+$")
_OPERATORS = ("<=", ">=", "==", "!=", "+", "-", "*", "/", "<", ">", "%")


def fixed(text: str, place: Difference, source: Source, task: Task) -> str | None:
    """Return the sketch of the edited code, if the edits are changes of single numbers, names or operators."""
    for _ in range(_MOST_EDITS):
        best: tuple[str, Difference] | None = None
        for candidate in _candidates(text, place):
            try:
                left = difference(candidate, source, task)
            except KernellabError:
                continue
            if left is None:
                return candidate
            if left.equal_tokens > (best[1] if best else place).equal_tokens:
                best = candidate, left
        if best is None:
            return None
        text, place = best
    return None


def _candidates(text: str, place: Difference) -> Iterator[str]:
    """Yield ``text`` with one or all occurrences changed in the statement of the difference, or with a constexpr
    changed that has the old value."""
    lines = text.split("\n")
    at = place.sketch_line - 1
    line = lines[at] if 0 <= at < len(lines) else ""
    for pattern, new in _changes(place) if line else ():
        spots = list(re.finditer(pattern, line))
        every = [re.sub(pattern, new, line)] if len(spots) > 1 else []
        for changed in (*(line[: m.start()] + new + line[m.end() :] for m in spots), *every):
            if changed != line:
                yield "\n".join([*lines[:at], changed, *lines[at + 1 :]])
    yield from _revalued(text, place)


def _revalued(text: str, place: Difference) -> Iterator[str]:
    if not (_is_number(place.expected) and _is_number(place.actual)):
        return
    old, new = float(place.expected), float(place.actual)
    for constant in load_program(text).constexprs:
        if constant.value == old:
            yield with_values(text, {constant.name: int(new) if new.is_integer() else new})


def _changes(place: Difference) -> Iterator[tuple[str, str]]:
    """Yield texts to replace in a statement, and their replacements."""
    old, new = (_SUFFIX.sub("", t) if t[:1].isdigit() else t for t in (place.expected, place.actual))
    if _is_number(old) and _is_number(new):
        spelled = {old, old.removesuffix(".0"), old.removesuffix("."), repr(float(old))}
        for word in sorted(spelled):
            short = new.removesuffix(".0") if "." not in word else new
            yield rf"(?<![\w.]){re.escape(word)}(?![\w.])", short
    elif old.isidentifier() and new.isidentifier():
        yield rf"\b{re.escape(_WORDS.get(old, old))}\b", _WORDS.get(new, new)
    elif _plain(old) in _OPERATORS and _plain(new) in _OPERATORS:
        yield rf"(?<![-+*/%<>=!]){re.escape(_plain(old))}(?![-+*/%<>=])", _plain(new)


def _plain(operator: str) -> str:
    """Return the operator of an augmented assignment: ``+`` for ``+=``."""
    return operator if operator in _OPERATORS else operator.removesuffix("=")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+\.?\d*(?:e[-+]?\d+)?", text) is not None
