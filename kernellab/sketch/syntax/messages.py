"""Every diagnostic of the sketch language in one table: rule word -> code, severity, sentence, remedy.

Rules are stable words that other rooms depend on; codes are for people who look them up. To add one, add a row and call
:func:`diagnostic` with its rule and the fields that its sentence names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from kernellab.records import Diagnostic, Fix
from kernellab.sketch.syntax.tree import Span


@dataclass(frozen=True)
class Message:
    code: str
    sentence: str
    remedy: str
    severity: str = "error"


def _error(code: int, sentence: str, remedy: str) -> Message:
    return Message(f"SK{code:03d}", sentence, remedy)


def _warning(code: int, sentence: str, remedy: str) -> Message:
    return Message(f"SK{code:03d}", sentence, remedy, "warning")


# ruff: noqa: E501 - one entry a line reads as a table
MESSAGES: dict[str, Message] = {
    # -- text: 0xx
    "syntax": _error(1, "{what}", "{remedy}"),
    "bracket": _error(2, "{what}.", "Balance the brackets of this statement."),
    "indent": _error(3, "This line is indented, and no line above it opens a block.", "Align it with the line before."),
    "dedent": _error(
        4, "The indentation matches no block around this line.", "Align the line with a statement above it."
    ),
    "no-sketch": _error(5, "The text has no sketch.", "Write sketch name {{ ... }}."),
    "layout": _error(6, "{what}", "{remedy}"),
    "misplaced": _error(7, "{what}", "{remedy}"),
    "keyword-order": _warning(
        8, "A positional argument of '{name}' comes after a keyword.", "Write positional arguments first."
    ),
    "too-deep": _error(9, "This statement is nested too deeply to be read.", "Split it into several statements."),
    # -- names and declarations: 1xx
    "unknown-name": _error(101, "Unknown name '{name}'.", "{remedy}"),
    "unknown-operation": _error(102, "Unknown operation '{name}'.", "{remedy}"),
    "unknown-dtype": _error(103, "Unknown dtype '{name}'.", "{remedy}"),
    "unknown-hint": _warning(104, "Unknown hint \"{name}\".", "{remedy}"),
    "declared-twice": _error(105, "'{name}' is already {what}.", "Use another name."),
    "unknown-role": _error(106, "Unknown role '{name}' of tensor '{tensor}'.", "Write in, out, inout or temp."),
    "conflicting-declaration": _error(
        107, "'{name}' is declared differently in sketch '{other}'.", "Declare it the same way in every sketch."
    ),
    "role": _error(108, "Tensor '{name}' is declared {role}, and is {what} here.", "{remedy}"),
    "constexpr-value": _error(109, "{what}", "{remedy}"),
    "unused-output": _error(110, "Output '{name}' is never written.", "Store to it, or drop its declaration."),
    "unused-name": _warning(111, "Nothing reads '{name}'.", "Remove the statement that sets it, or use it."),
    # -- types and shapes: 2xx
    "arguments": _error(201, "{what}", "{remedy}"),
    "shape-mismatch": _error(202, "{what}", "{remedy}"),
    "new-name": _error(
        203, "'{name}' is a tile of shape {old}; this value has shape {new}.", "Use a new name for the new shape."
    ),
    "alloc-visible": _error(204, "'{name}' is already a tile here.", "Use a new name, or drop this alloc."),
    "not-index": _error(205, "{what} is not an index expression.", "{remedy}"),
    "rank": _error(206, "'{name}' has {rank}, and {given} given.", "Write one index or slice for each dimension."),
    "extent-varies": _error(
        207, "The extent {extent} changes with loop variable '{var}'.", "Use a fixed extent; the edge rule cuts it."
    ),
    "axis": _error(208, "{what}", "{remedy}"),
    "gemm-assign": _error(
        209, "gemm adds to its third argument and gives no value.", "Write {target} = dot({a}, {b}), or gemm({a}, {b}, {target})."
    ),
    "tensor-as-value": _error(
        210, "Tensor '{name}' is used as a value.", "Load it first: load({name}[...] -> tile)."
    ),
    "tile-logic": _error(
        211, "'{op}' works on conditions only.", "For tiles write logical_{op}(...)."
    ),
    "dtype": _error(212, "{what}", "{remedy}"),
    "tile-index": _error(213, "A tile cannot be indexed.", "Load the part that is needed; {name}[:, None] and {name}[None, :] alone are allowed."),
    "not-index-condition": _error(
        215, "The condition of 'if' must be of indices and constexprs.", "For tiles write where(condition, a, b)."
    ),
    # -- memory: 3xx
    "tile-index-as-offset": _error(
        301,
        "'{tensor}' is sliced in elements, but {counted}.",
        "Write {slice}, or step the loop by elements: {loop}.",
    ),
    "out-of-range": _error(302, "{what}", "{remedy}"),
    "not-covered": _error(303, "Output '{name}' is not fully written: {what}.", "{remedy}"),
    "race": _error(
        304,
        "Two iterations of parallel loop '{var}' write the same elements of '{tensor}'.",
        "Index {tensor} by {var}, use atomic_add, or make '{var}' a plain loop.",
    ),
    "carried": _error(
        305,
        "Parallel loop '{var}' writes tile '{tile}', which is from outside it: iterations would depend on each other.",
        "Allocate '{tile}' inside the loop, or drop the parallel hint.",
    ),
    "parallel-tail": _error(
        306, "A statement follows parallel loop '{var}'.", "{remedy}"
    ),
    "second-nest": _error(
        307, "This is a second nest of loops in one sketch.", "Start a second sketch: each nest is one launch."
    ),
    "side-effect": _error(
        308, "A statement before parallel loop '{var}' writes memory.", "Move it into the loop, or into a second sketch."
    ),
    "split": _error(309, "Loop '{var}' has a split hint and cannot be reassociated: {what}.", "Drop the split hint."),
    "footprint": _error(
        310, "The tiles of one iteration take {bytes} bytes; {chip} has room for {limit}.", "Make {names} smaller."
    ),
    "pad-identity": _warning(
        311,
        "Past the edge '{tile}' has come to {pad}, and {op} has the identity {identity}: the edge changes the result.",
        "{remedy}",
    ),
    "pad-mean": _error(
        312,
        "'{tile}' may be padded, and {op} counts the padding.",
        "Sum, and divide by the real extent.",
    ),
    "undefined-read": _error(313, "'{name}' is read before it is written.", "Add \"init_zero\", or write it first."),
    "nested-parallel": _warning(
        314, "Parallel loop '{var}' is inside plain loop '{outer}' and runs in sequence.", "Drop the hint, or make '{outer}' parallel."
    ),
    "parallel-dependence": _error(
        315,
        "Parallel loop '{var}' reads elements of '{tensor}' that another iteration writes.",
        "Drop the parallel hint, or write to another tensor.",
    ),
    "scatter-collides": _error(
        316,
        "Two indices of this scatter may name one element of '{tensor}', and which value stays is not defined.",
        "Add with atomic_add, or write unique=true where no index repeats.",
    ),
    "scatter-meets": _error(
        317,
        "'{tensor}' is {way} and {other} in one sketch, and which elements an index reaches is not known before it runs.",
        "Start a second sketch: what one launch writes, the next may read.",
    ),
    "unordered-add": _warning(
        318,
        "Parallel iterations may add to one element of '{tensor}' in any order: the last bits of an {dtype} sum differ from run to run.",
        "Where runs must agree bit for bit, let the parallel loops run over slices of {tensor} and the indices in sequence.",
    ),
    "scatter-pad": _error(
        319,
        "'{tile}' is padded with {pad}, and {op} takes the padding for indices of '{tensor}'.",
        "Load it with pad=-1: an index outside the tensor writes nothing.",
    ),
    "library": _error(320, "{what}", "{remedy}"),
    "library-hint": _warning(
        321,
        "The hint \"library\" is no longer read: these loops run as they are written.",
        "For a call of the framework write a sketch with the one statement y = library.mm(x, w).",
    ),
    "team": _warning(
        322, "Loop '{var}' is hinted \"team\" and runs whole in each program: {what}.", "Drop the hint, or make its iterations independent."
    ),
    # -- constraints: 4xx
    "require": _error(401, "The constraint {what} does not hold: {values}.", "Choose values that keep it."),
    "require-scope": _error(402, "A constraint may not use {what} '{name}'.", "Constrain constexprs; bound a symbol by its Dim."),
    "pin": _error(403, "The revision changes or unpins a pinned line: {what}.", "Keep the line as it is, or ask to have it unpinned."),
    "pin-mark": _error(406, "{what} is as it was, but its mark `#: pin` is missing.", "Write `#: pin` at the end of that line."),
    "require-author": _error(404, "Only a person may change the constraint {what}.", "Write it as it was, or ask a person to change it."),
    "opaque": _warning(
        405, "'{name}' is opaque: the sketch can be neither run nor lowered by rules.", "Let a model or a person be the Coder, or write it with operations of the language."
    ),
}  # fmt: skip


def diagnostic(
    rule: str, line: int, col: int, *, end_line: int | None = None, end_col: int | None = None, **fields: object
) -> Diagnostic:
    """Return the diagnostic of ``rule`` at a place; ``fields`` fill its sentence and remedy; ``fix`` is one of them if
    the remedy is an edit."""
    message = MESSAGES[rule]
    remedy, fix = fields.get("remedy"), fields.get("fix")
    return Diagnostic(
        line=max(line, 1),
        col=max(col, 1),
        code=message.code,
        message=message.sentence.format(**fields),
        remedy=message.remedy.format(**{"remedy": "", **fields}),
        severity=message.severity,
        end_line=end_line or None,
        end_col=end_col or None,
        rule=rule,
        fix=remedy.fix if isinstance(remedy, Nearest) else fix if isinstance(fix, Fix) else None,
    )


def diagnostic_at(rule: str, span: Span, **fields: object) -> Diagnostic:
    """Return the diagnostic of ``rule`` that covers ``span``; ``fields`` as for :func:`diagnostic`."""
    return diagnostic(rule, span.line, span.col, end_line=span.end_line, end_col=span.end_col, **fields)


@dataclass(frozen=True)
class Nearest:
    """A known name that is similar to ``name``; its text is the remedy."""

    name: str
    known: str

    @property
    def fix(self) -> Fix:
        return Fix(replaces=self.name, text=self.known)

    def __str__(self) -> str:
        return f"Did you mean '{self.known}'?"


def nearest(name: str, names: Iterable[str]) -> Nearest | None:
    """Return the most similar known name, or None if none is similar."""
    match = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return Nearest(name, match[0]) if match else None
