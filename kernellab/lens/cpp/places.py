"""The places in the source of each line of an assembly.

GCC's marks (``.loc``) name only the innermost place of an inlined instruction; the callers are in the DWARF of the
assembled object. The assembler's listing gives each line's offset there, and addr2line the chain of an offset."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernellab.lens.read.rows import Place, place
from kernellab.sandbox.run import confined, environment

_SECONDS = 60
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_LISTED = re.compile(r"^\s*(\d+)\s+([0-9a-f]{4,16})\s+[0-9A-F]{2}")
_SECTION = re.compile(r"^\s*\.(?:section\s+([^,\s]+)|(text)\b)")
_ALIGNED = re.compile(r"^\s*\.p2align\s+(\d+)", re.MULTILINE)
_CHAIN = re.compile(r"^(?:.*\bat )?(.+):(\d+|\?)(?:\s+\(discriminator \d+\))?\s*$")


@dataclass(frozen=True)
class AssemblyPlaces:
    """By line of an assembly: its places, the innermost first, and its offset in bytes from the beginning of the
    code."""

    places: dict[int, tuple[Place, ...]]
    offsets: dict[int, int]


def places_of(assembly: str, folder: Path) -> AssemblyPlaces:
    """Return the places of each line: without binutils only the compiler's marks, and no offsets."""
    places: dict[int, tuple[Place, ...]] = {number: (at,) for number, at in _marked_places(assembly)}
    chains = _chains(assembly, folder)
    return AssemblyPlaces({**places, **chains.places}, chains.offsets)


def _marked_places(assembly: str) -> Iterator[tuple[int, Place]]:
    files: dict[str, str] = {}
    current: Place | None = None
    for number, line in enumerate(assembly.splitlines(), 1):
        if named := _FILE.match(line):
            files[named[1]] = named[2]
        elif loc := _LOC.match(line):
            current = place(files.get(loc[1], ""), loc[2])
        elif line[:1] not in ("\t", " ", ".", ""):
            current = None
        elif current is not None:
            yield number, current


def _chains(assembly: str, folder: Path) -> AssemblyPlaces:
    """Return the places of each instruction by its offset in the assembled object; none without binutils."""
    assembler, lister = shutil.which("as"), shutil.which("addr2line")
    if assembler is None or lister is None:
        return AssemblyPlaces({}, {})
    assembly_file, out = folder / "listed.s", folder / "listed.o"
    assembly_file.write_text("\n".join(_in_one_section(assembly)), encoding="utf-8")
    listed = _output_of([assembler, "-aln", str(assembly_file), "-o", str(out)], folder)
    code = {number for number, section in _sections(assembly) if section.startswith(".text")}
    all_offsets = {int(at[1]): at[2] for line in reversed(listed.splitlines()) if (at := _LISTED.match(line))}
    offsets = {number: all_offsets[number] for number in sorted(code & all_offsets.keys())}
    addresses = "\n".join(f"0x{offset}" for offset in offsets.values())
    output = _output_of([lister, "-i", "-a", "-e", str(out), "-j", ".text"], folder, addresses) if offsets else ""
    chains = {}
    answers = re.split(r"^0x[0-9a-f]+\n", output, flags=re.MULTILINE)[1:]
    for number, answer in zip(offsets, answers, strict=False):
        chain = tuple(place(m[1], m[2]) for line in answer.splitlines() if (m := _CHAIN.match(line)) and m[2] != "?")
        if chain:
            chains[number] = chain
    return AssemblyPlaces(chains, {number: int(offset, 16) for number, offset in offsets.items()})


def _output_of(command: list[str], folder: Path, text: str = "") -> str:
    """Return the output of a program of binutils; "" if it fails, and then only the marks are used."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            confined(str(folder), command), input=text, env=environment(str(folder)),
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""
    return ""


def _in_one_section(assembly: str) -> Iterator[str]:
    """Yield the lines of the assembly with all sections of code in one, so that addr2line runs once: each function of
    a template has a section, and addr2line takes 0.08 s of CPU time to start. A part begins where its section would, so
    that alignment padding stays."""
    parts: dict[str, int] = {}
    begin = max((int(most[1]) for most in _ALIGNED.finditer(assembly)), default=4)
    for line in assembly.splitlines():
        named = _SECTION.match(line)
        section = (named[1] or ".text") if named else ""
        if section.startswith(".text"):
            is_listed = section in parts
            line = f"\t.text {parts.setdefault(section, len(parts))}" + ("" if is_listed else f"; .p2align {begin}")
        yield line


def _sections(assembly: str) -> Iterator[tuple[int, str]]:
    """Yield the section of each line."""
    section = ".text"
    for number, line in enumerate(assembly.splitlines(), 1):
        if named := _SECTION.match(line):
            section = named[1] or ".text"
        yield number, section


__all__ = ["AssemblyPlaces", "places_of"]
