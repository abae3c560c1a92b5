"""PTX: ``.loc`` before instructions, ``.file`` for what it names (PTX ISA, debugging directives)."""

from __future__ import annotations

import re

from kernellab.lens.read.rows import NOWHERE, Place, Row, place

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)
_SECTION = re.compile(r"^\s*\.section\s+\.debug")
_BEGIN, _END = "// begin inline asm", "// end inline asm"
_UNUSED = re.compile(r"^\$L__(?:tmp|func_(?:begin|end)|info_string)\w*:|^\s*//")
_CODE = re.compile(r"^\s*(?:@!?%\w+\s+)?[a-z][\w.:]*[\s;]")
_COMMENT = re.compile(r"\s*// [\w.<>-]+:\d+:\d+.*$")


def rows(text: str) -> list[Row]:
    """The text's rows without debug information.

    LLVM counts the lines of an inline assembly from the call's line, so only the first mark inside one is used."""
    files = {match[1]: match[2] for line in text.splitlines() if (match := _FILE.match(line))}
    chains: dict[tuple[str, ...], frozenset[Place]] = {}
    now, inside, marked, debug = NOWHERE, False, False, 0
    read: list[Row] = []
    for line in text.splitlines():
        if debug or _SECTION.match(line):
            debug = 0 if debug and line.strip() == "}" else 1
            continue
        if _FILE.match(line):
            continue
        if loc := _LOC.match(line):
            if inside and marked:
                continue
            marked = inside
            own = frozenset([place(files.get(loc[1], ""), loc[2])])
            outer = loc.group(4, 5, 6)
            if outer[0]:
                own |= chains.get(outer) or frozenset([place(files.get(outer[0], ""), outer[1])])
            chains[loc.group(1, 2, 3)] = now = own
            continue
        if line.strip() in (_BEGIN, _END):
            inside, marked = line.strip() == _BEGIN, False
            continue
        if _UNUSED.match(line):
            continue
        if line.startswith(("}", ")")):
            now = NOWHERE
        read.append(Row(_COMMENT.sub("", line.rstrip()), now if _CODE.match(line) else NOWHERE))
    return read


def relined(text: str) -> str:
    """Return the PTX without the wrong marks of inline assembly; its code is the same."""
    inside = marked = False
    kept = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped in (_BEGIN, _END):
            inside, marked = stripped == _BEGIN, False
        elif inside and _LOC.match(line):
            if marked:
                continue
            marked = True
        kept.append(line)
    return "\n".join(kept) + "\n"
