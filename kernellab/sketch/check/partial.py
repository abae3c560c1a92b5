"""What can still be said of a text that has errors: each finding that does not follow from another one.

A line that cannot be read may hold a declaration, an assignment or a loop. So after such a line only findings about
names and shapes are reported, and none of a line that uses what the unread line writes. Where every line was read but
some statements are wrong, the accesses of the others are checked; what a missing statement might have done (write an
output, for example) is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernellab.records import Diagnostic
from kernellab.sketch.check.memory import check_memory
from kernellab.sketch.check.values import check_values
from kernellab.sketch.program.program import Program
from kernellab.sketch.syntax.words import DECLARATION

#: rules about one statement, which hold whatever stands in lines that could not be read
_OF_A_LINE = frozenset((
    "unknown-name", "unknown-operation", "unknown-dtype", "unknown-hint", "unknown-role", "declared-twice",
    "constexpr-value", "arguments", "shape-mismatch", "rank", "axis", "dtype", "gemm-assign", "tensor-as-value",
    "tile-logic", "tile-index", "not-index", "not-index-condition",
))  # fmt: skip
#: rules about everything that a sketch does: a statement that is missing may be what they ask for
_OF_THE_WHOLE = frozenset(("not-covered", "unused-output"))

_WRITES = (
    re.compile(r"^\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=(?!=)"),
    re.compile(r"->\s*([A-Za-z_]\w*)"),
    re.compile(r"^\s*for\s+([A-Za-z_]\w*)"),
)
_WORD = re.compile(r"[A-Za-z_]\w*")


def beside_unread(text: str, unread: Sequence[Diagnostic], found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Those of ``found`` that hold whatever the lines of ``unread`` should have said."""
    lines = text.split("\n")
    bad = {d.line for d in unread}
    missing = {name for number in bad for name in _written(_line(lines, number))}
    return [
        d
        for d in found
        if d.rule in _OF_A_LINE and d.line not in bad and not missing & set(_WORD.findall(_line(lines, d.line)))
    ]


def beside_wrong(program: Program) -> list[Diagnostic]:
    """What is wrong with the statements of ``program`` that could be resolved, others being left out."""
    values = {c.name: c.value for c in program.constexprs if c.value is not None}
    found = [*check_memory(program, values), *check_values(program, values)]
    return [d for d in found if d.rule not in _OF_THE_WHOLE]


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _written(line: str) -> set[str]:
    """The names that a line declares or writes, by its text alone."""
    declared = DECLARATION.match(line)
    if declared and declared[1] != "require":
        return set(_WORD.findall(declared[2]))
    return {name for pattern in _WRITES for group in pattern.findall(line) for name in _WORD.findall(group)}
