"""Compiles a C++ source from its text alone. Neither the candidate's code nor programs named in its flags run; the
compiler is confined, so that an #include or .incbin cannot read the person's files."""

from __future__ import annotations

import ast
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from kernellab import python_tree
from kernellab.dsls.cpp import compiler
from kernellab.errors import SessionError
from kernellab.lens.cpp.places import places_of
from kernellab.lens.read.rows import Place
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
class Instructions:
    """Of each instruction of a function, in order: its offset in bytes from the function's start, and its line of the
    assembly."""

    offsets: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


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
    def functions(self) -> dict[str, Instructions]:
        """The instructions of each function, by its name."""
        by_name: dict[str, Instructions] = {}
        name, start = "", 0
        for number, line in enumerate(self.lines, 1):
            if label := _FUNCTION.match(line):
                name, start = label[1], -1
            elif line.startswith("\t.size"):
                name = ""  # what follows is padding before the next
            elif name and number in self.offsets:
                start = self.offsets[number] if start < 0 else start
                instructions = by_name.setdefault(name, Instructions())
                instructions.offsets.append(self.offsets[number] - start)
                instructions.lines.append(number)
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
        reports = (
            [f"-fdump-tree-optimized-lineno={middle}", f"-fopt-info-vec={remarks}", "-fstack-usage"] if is_gcc else []
        )
        _run(
            [driver, "-S", "-g1", *intel, *reports, "-fno-asynchronous-unwind-tables", *common, "-o", str(out)], folder
        )
        if not is_gcc:
            _run([driver, "-S", "-emit-llvm", "-g1", *common, "-o", str(middle)], folder)
        assembly = out.read_text(encoding="utf-8")
        located = places_of(assembly, folder)
        return Compiled(
            assembly=assembly,
            places=located.places,
            offsets=located.offsets,
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
