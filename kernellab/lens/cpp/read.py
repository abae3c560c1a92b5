"""The compiler's texts as rows: assembly without directives, GIMPLE without declarations."""

from __future__ import annotations

import re

from kernellab.lens.cpp.build import Compiled, demangled
from kernellab.lens.read import llvm
from kernellab.lens.read.rows import Row, place

_LABEL = re.compile(r"^(?!\.L)(\S[^:]*(?::{2}[^:]+)*):")
_LOCAL = re.compile(r"^(\.L\w+):")
_USED = re.compile(r"\.L\w+")
_CODE = re.compile(r"^\s+[a-z]")
_LINE = re.compile(r"\[([^\[\]\s]+?):(\d+):\d+(?: discrim \d+)?\] ")


def assembly_rows(made: Compiled, main: str) -> list[Row]:
    """Functions that hold a line of ``main``; those that only libraries brought are left out, and directives."""
    raw = made.assembly.splitlines()
    shown = demangled(made.assembly).splitlines()
    functions: list[list[Row]] = []
    body: list[Row] = []
    for number, (line, named) in enumerate(zip(raw, shown, strict=False), 1):
        if _LABEL.match(line):
            functions.append(body)
            body = [Row(named)]
        elif _LOCAL.match(line):
            body.append(Row(named))
        elif _CODE.match(line) and not line.lstrip().startswith("."):
            body.append(Row(named.rstrip(), frozenset(made.places.get(number, ()))))
    functions.append(body)
    owned = [b for b in functions if any(file == main for row in b for file, _ in row.places)]
    rows = [row for body in owned for row in [*body, Row("")]]
    targets = {name for row in rows if not _LOCAL.match(row.text) for name in _USED.findall(row.text)}
    return [row for row in rows if not (label := _LOCAL.match(row.text)) or label[1] in targets]


def middle_rows(made: Compiled, main: str) -> list[Row]:
    """The last text before the assembly: of GCC the functions that hold a line of ``main``, of clang all of LLVM IR."""
    if made.kind == "llir":
        return llvm.rows(made.middle)
    found: list[Row] = []
    for part in re.split(r"^;; Function ", made.middle, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        start = next((n for n, line in enumerate(lines) if line == "{"), None)
        rows = [_gimple(line) for line in lines[(start or 1) - 1 :]]
        if start is None or not any(file == main for row in rows for file, _ in row.places):
            continue
        first = next((n for n, row in enumerate(rows) if row.text.lstrip().startswith("<bb ")), 0)
        found += [*rows[:2], *rows[first:]]
    names = demangled("\n".join(row.text for row in found)).split("\n")
    return [Row(text, row.places) for text, row in zip(names, found, strict=True)]


def _gimple(line: str) -> Row:
    at = frozenset(place(file, number) for file, number in _LINE.findall(line))
    return Row(_LINE.sub("", line), at)
