"""A C++ source under the lens."""

from __future__ import annotations

import re

from kernellab.dsls.machine import cpu_facts
from kernellab.errors import SessionError
from kernellab.lens.cpp.build import Compiled, compiled, demangled, flags_of, main_cpp
from kernellab.lens.cpp.facts import facts
from kernellab.lens.read import llvm
from kernellab.lens.read.rows import Row, Shown, level, place
from kernellab.lens.records import Lens
from kernellab.records import Source

_MIDDLE = {
    "gimple": ("c", "GCC's last text before the assembly (GIMPLE)"),
    "llir": ("llvm", "LLVM IR, clang's last text before the assembly"),
}


def look_cpp(source: Source) -> Lens:
    """Return assembly and the text before it, with facts. Blocks for a compiler's seconds.

    Raises:
        SessionError: there is no C++ file or no compiler, or the compiler refuses.
    """
    main = main_cpp(source)
    if main is None:
        raise SessionError(
            "The lens found no single C++ file that a compiler of this machine accepts.",
            "It reads sources with one .cpp file; `kernellab doctor` says whether there is a compiler.",
        )
    built = compiled(tuple(sorted(source.files.items())), main, flags_of(source))
    shown = Shown(main, source.files[main], {main: 0})
    rows = assembly_rows(built, main)
    language, title = _MIDDLE[built.kind]
    levels = [level("asm", [rows], shown, "asm", "the functions of this file in assembly")]
    if built.middle:
        levels.insert(0, level(built.kind, [middle_rows(built, main)], shown, language, title))
    listed, notes = facts(built, rows, main)
    notes.append("No counter of the CPU was read: cycles are a model's, and the hottest loop is a guess from the text.")
    return Lens(main, shown.text, f"C++ on {cpu_facts().name}", tuple(levels), tuple(listed), tuple(notes))


# -- reading -----------------------------------------------------------------------------------------------------------


_LABEL = re.compile(r"^(?!\.L)(\S[^:]*(?::{2}[^:]+)*):")
_LOCAL = re.compile(r"^(\.L\w+):")
_USED = re.compile(r"\.L\w+")
_CODE = re.compile(r"^\s+[a-z]")
_LINE = re.compile(r"\[([^\[\]\s]+?):(\d+):\d+(?: discrim \d+)?\] ")


def assembly_rows(built: Compiled, main: str) -> list[Row]:
    """Return the functions with a line of ``main``, without those of libraries and without directives."""
    raw = built.assembly.splitlines()
    shown = demangled(built.assembly).splitlines()
    functions: list[list[Row]] = []
    body: list[Row] = []
    for number, (line, named) in enumerate(zip(raw, shown, strict=False), 1):
        if _LABEL.match(line):
            functions.append(body)
            body = [Row(named)]
        elif _LOCAL.match(line):
            body.append(Row(named))
        elif _CODE.match(line) and not line.lstrip().startswith("."):
            body.append(Row(named.rstrip(), frozenset(built.places.get(number, ()))))
    functions.append(body)
    owned = [b for b in functions if any(file == main for row in b for file, _ in row.places)]
    rows = [row for body in owned for row in [*body, Row("")]]
    targets = {name for row in rows if not _LOCAL.match(row.text) for name in _USED.findall(row.text)}
    return [row for row in rows if not (label := _LOCAL.match(row.text)) or label[1] in targets]


def middle_rows(built: Compiled, main: str) -> list[Row]:
    """Return the last text before the assembly: for GCC the functions with a line of ``main``, for clang all of LLVM
    IR."""
    if built.kind == "llir":
        return llvm.rows(built.middle)
    result: list[Row] = []
    for part in re.split(r"^;; Function ", built.middle, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        start = next((n for n, line in enumerate(lines) if line == "{"), None)
        rows = [_gimple(line) for line in lines[(start or 1) - 1 :]]
        if start is None or not any(file == main for row in rows for file, _ in row.places):
            continue
        first = next((n for n, row in enumerate(rows) if row.text.lstrip().startswith("<bb ")), 0)
        result += [*rows[:2], *rows[first:]]
    names = demangled("\n".join(row.text for row in result)).split("\n")
    return [Row(text, row.places) for text, row in zip(names, result, strict=True)]


def _gimple(line: str) -> Row:
    at = frozenset(place(file, number) for file, number in _LINE.findall(line))
    return Row(_LINE.sub("", line), at)
