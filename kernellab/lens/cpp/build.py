"""Compiles a C++ source from its text alone. Neither the candidate's code nor programs named in its flags run; the
compiler is confined, so that an #include or .incbin cannot read the person's files."""

from __future__ import annotations

import ast
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from kernellab import python_tree
from kernellab.dsls.cpp import compiler
from kernellab.errors import SessionError
from kernellab.lens.read.rows import Place, place
from kernellab.records import Source
from kernellab.sandbox.run import confined, environment

_CPP = (".cpp", ".cc", ".cxx")
_SECONDS = 90
#: flags that affect code only, not files or programs: -wrapper, -fplugin, -specs and the like run what they name
_HARMLESS = re.compile(
    r"-(?:O\w*|g\d?|m(?!llvm)[\w=.+-]+|std=[\w+]+|f(?!.*plugin)[\w=-]+|[DU]\w+(?:=\w*)?|W(?:no-)?[a-z][\w=-]*)"
)
_FUNCTION = re.compile(r"^(?!\.L)([\w.$@]+):")
_DEFAULT_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp")


@dataclass(frozen=True)
class Compiled:
    """``assembly`` is the compiler's; ``places`` has the origins of each of its lines, the innermost first.

    ``middle`` is the last text before it ("" if there is none) and ``kind`` is gimple or llir; ``remarks`` are the
    vectoriser's lines; ``stack`` is the frame of each function in bytes."""

    assembly: str
    places: dict[int, tuple[Place, ...]]
    middle: str
    kind: str
    remarks: tuple[str, ...]
    stack: dict[str, int]
    #: bytes from the beginning of the code, by line of the assembly
    offsets: dict[int, int]

    @cached_property
    def lines(self) -> list[str]:
        """The assembly's lines."""
        return self.assembly.splitlines()

    @cached_property
    def functions(self) -> dict[str, tuple[list[int], list[int]]]:
        """For each function the offset in bytes and the line of the assembly of each instruction."""
        by_name: dict[str, tuple[list[int], list[int]]] = {}
        name, start = "", 0
        for number, line in enumerate(self.lines, 1):
            if label := _FUNCTION.match(line):
                name, start = label[1], -1
            elif line.startswith("\t.size"):
                name = ""  # what follows is padding before the next
            elif name and number in self.offsets:
                start = self.offsets[number] if start < 0 else start
                offsets, rows = by_name.setdefault(name, ([], []))
                offsets.append(self.offsets[number] - start)
                rows.append(number)
        return by_name


def main_cpp(source: Source) -> str | None:
    """Return the C++ file with the kernel, if there is a compiler for it."""
    files = [name for name in source.files if name.endswith(_CPP)]
    return files[0] if len(files) == 1 and compiler() is not None else None


def flags_of(source: Source) -> tuple[str, ...]:
    """Return the entry file's flags: the harmless ones of its constant FLAGS, else those of lowered code."""
    return _flags(source.files.get(source.entry_file, ""))


@lru_cache(maxsize=16)
def _flags(entry: str) -> tuple[str, ...]:
    try:
        module = python_tree.parse(entry)
    except SyntaxError:
        return _DEFAULT_FLAGS
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "FLAGS" for t in node.targets):
            try:
                flags = ast.literal_eval(node.value)
            except ValueError:
                continue
            if isinstance(flags, (list, tuple)) and all(isinstance(flag, str) for flag in flags):
                return (*filter(_HARMLESS.fullmatch, flags), *_usual())
    return _DEFAULT_FLAGS


def _usual() -> tuple[str, ...]:
    """Return the flags that lowered code adds for the machine."""
    if platform.system() == "Darwin":
        return ("-Xpreprocessor", "-fopenmp")
    wide = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
    return ("-fopenmp", *wide)


@lru_cache(maxsize=16)
def compiled(files: tuple[tuple[str, str], ...], main: str, flags: tuple[str, ...]) -> Compiled:
    """Return ``main`` compiled to assembly, with line information, which does not change the code.

    Raises:
        SessionError: the compiler refuses; its first line is the message.
    """
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    driver = compiler()
    if driver is None:
        raise SessionError("No C++ compiler is installed.", "`kernellab doctor` says how to install one.")
    # a stopped compiler may leave a process that still writes
    with tempfile.TemporaryDirectory(prefix="kernellab-asm-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        for name, text in files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        out, middle, remarks = folder / "out.s", folder / "out.middle", folder / "out.remarks"
        includes = [f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}"]
        is_gcc = not is_clang(driver)
        common = [*flags, "-fPIC", *includes, str(folder / main)]
        intel = ["-masm=intel"] if platform.machine() in ("x86_64", "AMD64") else []
        asked = (
            [f"-fdump-tree-optimized-lineno={middle}", f"-fopt-info-vec={remarks}", "-fstack-usage"] if is_gcc else []
        )
        _run([driver, "-S", "-g1", *intel, *asked, "-fno-asynchronous-unwind-tables", *common, "-o", str(out)], folder)
        if not is_gcc:
            _run([driver, "-S", "-emit-llvm", "-g1", *common, "-o", str(middle)], folder)
        assembly = out.read_text(encoding="utf-8")
        places, offsets = places_of(assembly, folder)
        return Compiled(
            assembly=assembly,
            places=places,
            offsets=offsets,
            middle=middle.read_text(encoding="utf-8") if middle.exists() else "",
            kind="gimple" if is_gcc else "llir",
            remarks=tuple(remarks.read_text(encoding="utf-8").splitlines()) if remarks.exists() else (),
            stack=_stack(folder),
        )


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            confined(str(folder), command), cwd=folder, capture_output=True, text=True, timeout=_SECONDS,
            env=environment(str(folder)),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SessionError(f"The compiler did not answer: {error}.", "Try again.") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        first = next((line for line in lines if "error" in line), lines[-1])
        raise SessionError(f"The compiler refuses this source: {first}", "`kernellab verify` lists all errors.")


@lru_cache(maxsize=4)
def is_clang(driver: str) -> bool:
    done = subprocess.run([driver, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    return "clang" in done.stdout


def _stack(folder: Path) -> dict[str, int]:
    """Return the bytes of each function's frame, from GCC's -fstack-usage."""
    frames = {}
    for path in folder.rglob("*.su"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, size, *_ = line.split("\t")
            frames[re.sub(r"^.*?:\d+:\d+:", "", name)] = int(size)
    return frames


def demangled(text: str) -> str:
    """Return demangled C++ names, line by line."""
    tool = shutil.which("c++filt")
    if tool is None:
        return text
    done = subprocess.run([tool], input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return done.stdout if done.returncode == 0 else text


# -- places in the source of each instruction --------------------------------------------------------------------------
# GCC's marks name only the innermost place; the callers are in the DWARF of the assembled object. The assembler's
# listing gives each line's offset, and addr2line the chain of an offset.

_PLACES_SECONDS = 60
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_LISTED = re.compile(r"^\s*(\d+)\s+([0-9a-f]{4,16})\s+[0-9A-F]{2}")
_SECTION = re.compile(r"^\s*\.(?:section\s+([^,\s]+)|(text)\b)")
_ALIGNED = re.compile(r"^\s*\.p2align\s+(\d+)", re.MULTILINE)
_CHAIN = re.compile(r"^(?:.*\bat )?(.+):(\d+|\?)(?:\s+\(discriminator \d+\))?\s*$")


def places_of(assembly: str, folder: Path) -> tuple[dict[int, tuple[Place, ...]], dict[int, int]]:
    """Return for each line of the assembly its places, the innermost first (without binutils only the marks), and its
    offset in the code."""
    places: dict[int, tuple[Place, ...]] = {number: (at,) for number, at in _marked(assembly)}
    chains, offsets = _chains(assembly, folder)
    return {**places, **chains}, offsets


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
    assembly_file, out = folder / "listed.s", folder / "listed.o"
    assembly_file.write_text("\n".join(_in_one_section(assembly)), encoding="utf-8")
    listed = _said([assembler, "-aln", str(assembly_file), "-o", str(out)], folder)
    code = {number for number, section in _sections(assembly) if section.startswith(".text")}
    lines = {int(at[1]): at[2] for line in reversed(listed.splitlines()) if (at := _LISTED.match(line))}
    lines = {number: lines[number] for number in sorted(code & lines.keys())}
    asked = "\n".join(f"0x{offset}" for offset in lines.values())
    output = _said([lister, "-i", "-a", "-e", str(out), "-j", ".text"], folder, asked) if lines else ""
    chains = {}
    answers = re.split(r"^0x[0-9a-f]+\n", output, flags=re.MULTILINE)[1:]
    for number, answer in zip(lines, answers, strict=False):
        chain = tuple(place(m[1], m[2]) for line in answer.splitlines() if (m := _CHAIN.match(line)) and m[2] != "?")
        if chain:
            chains[number] = chain
    return chains, {number: int(at, 16) for number, at in lines.items()}


def _said(command: list[str], folder: Path, text: str = "") -> str:
    """Return the output of a program of binutils; "" if it fails, and then only the marks are used."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            confined(str(folder), command), input=text, env=environment(str(folder)),
            capture_output=True, text=True, timeout=_PLACES_SECONDS, check=False,
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
    now = ".text"
    for number, line in enumerate(assembly.splitlines(), 1):
        if named := _SECTION.match(line):
            now = named[1] or ".text"
        yield number, now
