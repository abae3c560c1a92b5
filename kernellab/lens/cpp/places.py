"""Where each line of an assembly comes from: the compiler's ``.loc`` marks, and what was inlined there.

GCC's marks name the innermost place alone; the callers stand in the DWARF of the assembled object. The assembler's
listing gives each line's offset, and addr2line the chain of an offset.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from kernellab.lens.read.rows import Place, place

_SECONDS = 60
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_LISTED = re.compile(r"^\s*(\d+)\s+([0-9a-f]{4,16})\s+[0-9A-F]{2}")
_SECTION = re.compile(r"^\s*\.(?:section\s+([^,\s]+)|(text)\b)")
_CHAIN = re.compile(r"^(?:.*\bat )?(.+):(\d+|\?)(?:\s+\(discriminator \d+\))?\s*$")


def places_of(assembly: str, folder: Path) -> tuple[dict[int, tuple[Place, ...]], dict[int, int]]:
    """By line of the assembly: places, the innermost first (the marks alone where binutils are missing), and the offset
    in its section."""
    found: dict[int, tuple[Place, ...]] = {number: (at,) for number, at in _marked(assembly)}
    chains, offsets = _chains(assembly, folder)
    return {**found, **chains}, offsets


def _marked(assembly: str) -> Iterator[tuple[int, Place]]:
    files: dict[str, str] = {}
    now: Place | None = None
    for number, line in enumerate(assembly.splitlines(), 1):
        if named := _FILE.match(line):
            files[named[1]] = named[2]
        elif loc := _LOC.match(line):
            now = place(files.get(loc[1], ""), loc[2])
        elif line[:1] not in ("\t", " ", ".", ""):
            now = None
        elif now is not None:
            yield number, now


def _chains(assembly: str, folder: Path) -> tuple[dict[int, tuple[Place, ...]], dict[int, int]]:
    assembler, lister = shutil.which("as"), shutil.which("addr2line")
    if assembler is None or lister is None:
        return {}, {}
    given, out = folder / "listed.s", folder / "listed.o"
    given.write_text(assembly, encoding="utf-8")
    done = subprocess.run(
        [assembler, "-aln", str(given), "-o", str(out)], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        return {}, {}
    sections = dict(_sections(assembly))
    offsets = defaultdict[str, dict[int, str]](dict)
    for line in done.stdout.splitlines():
        if (at := _LISTED.match(line)) and (section := sections.get(int(at[1]), "")).startswith(".text"):
            offsets[section].setdefault(int(at[1]), at[2])
    found = {}
    for section, lines in offsets.items():
        command = [lister, "-i", "-a", "-e", str(out), "-j", section]
        asked = "\n".join(f"0x{offset}" for offset in lines.values())
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode != 0:
            continue
        answers = re.split(r"^0x[0-9a-f]+\n", done.stdout, flags=re.MULTILINE)[1:]
        for number, answer in zip(lines, answers, strict=False):
            chain = tuple(
                place(m[1], m[2]) for line in answer.splitlines() if (m := _CHAIN.match(line)) and m[2] != "?"
            )
            if chain:
                found[number] = chain
    return found, {number: int(at, 16) for lines in offsets.values() for number, at in lines.items()}


def _sections(assembly: str) -> Iterator[tuple[int, str]]:
    """The section of each line."""
    now = ".text"
    for number, line in enumerate(assembly.splitlines(), 1):
        if named := _SECTION.match(line):
            now = named[1] or ".text"
        yield number, now
