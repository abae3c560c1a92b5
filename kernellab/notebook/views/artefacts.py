"""What a compiler makes of a source, on demand: assembly of C++; and our library headers.

The compiler runs on the text alone; the candidate's own code is not run, nor what its flags could start.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from kernellab.dsls.cpp import compiler
from kernellab.errors import SessionError
from kernellab.notebook.protocol import Artefact
from kernellab.notebook.views.headers import is_library
from kernellab.records import Source

ASM = "asm"
_CPP = (".cpp", ".cc", ".cxx")
_SECONDS = 90
#: flags that choose code, not files or programs: -wrapper, -fplugin, -specs and the like run what they name
_HARMLESS = re.compile(
    r"-(?:O\w*|g\d?|m(?!llvm)[\w=.+-]+|std=[\w+]+|f(?!.*plugin)[\w=-]+|[DU]\w+(?:=\w*)?|W(?:no-)?[a-z][\w=-]*)"
)
_DEFAULT_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp")


def names_of(source: Source) -> list[str]:
    """What :func:`artefact` can give for ``source``."""
    headers = [name for name, text in source.files.items() if is_library(name, text)]
    return [ASM, *headers] if main_cpp(source) else headers


def artefact(source: Source, name: str) -> Artefact:
    """An ``Artefact`` of the protocol. Blocking: the assembly takes a compiler's second or two.

    Raises:
        SessionError: there is no such text for this source, or the compiler refuses.
    """
    if name in source.files:
        return {"name": name, "text": source.files[name], "language": "text", "file": "", "lines": {}}
    main = main_cpp(source)
    if name == ASM and main is not None:
        text, lines = assembly(tuple(sorted(source.files.items())), main, flags_of(source))
        return {"name": ASM, "text": text, "language": "asm", "file": main, "lines": lines}
    there = ", ".join(names_of(source)) or "none"
    raise SessionError(f"There is no {name!r} for this source.", f"There is {there}.")


def main_cpp(source: Source) -> str | None:
    """The C++ file that holds the kernel, where there is a compiler for it."""
    files = [name for name in source.files if name.endswith(_CPP)]
    return files[0] if len(files) == 1 and compiler() is not None else None


def flags_of(source: Source) -> tuple[str, ...]:
    """The flags that the entry file builds with: what is harmless of its constant FLAGS, else those of lowered code."""
    try:
        module = ast.parse(source.files.get(source.entry_file, ""))
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
    """What lowered code adds for the machine."""
    if platform.system() == "Darwin":
        return ("-Xpreprocessor", "-fopenmp")
    wide = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
    return ("-fopenmp", *wide)


@lru_cache(maxsize=16)
def assembly(files: tuple[tuple[str, str], ...], main: str, flags: tuple[str, ...]) -> tuple[str, dict[int, int]]:
    """The functions of ``main`` in assembly, and which line of it each instruction comes from.

    Raises:
        SessionError: the compiler refuses; its first line is the message.
    """
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    found = compiler()
    if found is None:
        raise SessionError("There is no C++ compiler here.", "See %kernel_doctor.")
    with tempfile.TemporaryDirectory(prefix="kernellab-asm-") as folder:
        for name, text in files:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        out = Path(folder) / "out.s"
        intel = ("-masm=intel",) if platform.machine() in ("x86_64", "AMD64") else ()
        # -g1: lines without variables; it does not change the code
        command = [
            found, "-S", "-g1", *flags, *intel, "-fPIC", "-fno-asynchronous-unwind-tables", f"-I{find_include_path()}",
            f"-I{find_dlpack_include_path()}", str(Path(folder) / main), "-o", str(out),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, env={**os.environ, "LC_ALL": "C"}
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SessionError(f"The compiler did not answer: {error}.", "Try again.") from None
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
            raise SessionError(f"The compiler refuses this source: {first}", "Its verdict lists all errors.")
        return _readable(_demangled(out.read_text(encoding="utf-8")), main)


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"^(?!\.L)(\S[^:]*(?::{2}[^:]+)*):")
_LOCAL = re.compile(r"^(\.L\w+):")
_USED = re.compile(r"\.L\w+")
_CODE = re.compile(r"^\s+[a-z]")


def _readable(text: str, main: str) -> tuple[str, dict[int, int]]:
    """Without directives and without the functions that only the libraries brought."""
    numbers: set[str] = set()
    functions: list[tuple[list[tuple[str, int | None]], bool]] = []
    body: list[tuple[str, int | None]] = []
    owned, line = False, None
    for raw in text.splitlines():
        if named := _FILE.match(raw):
            if named[2].endswith(main):
                numbers.add(named[1])
        elif placed := _LOC.match(raw):
            line = int(placed[2]) if placed[1] in numbers else None
            owned = owned or line is not None
        elif _LABEL.match(raw):
            functions.append((body, owned))
            body, owned, line = [(raw, None)], False, None
        elif _LOCAL.match(raw):
            body.append((raw, None))
        elif _CODE.match(raw) and not raw.lstrip().startswith("."):
            body.append((raw.rstrip(), line))
    functions.append((body, owned))
    rows = [row for body, owned in functions if owned for row in [*body, ("", None)]]
    targets = {name for row, _ in rows if not _LOCAL.match(row) for name in _USED.findall(row)}
    kept = [row for row in rows if not (label := _LOCAL.match(row[0])) or label[1] in targets]
    lines = {number: line for number, (_, line) in enumerate(kept, 1) if line is not None}
    return "\n".join(row for row, _ in kept), lines


def _demangled(text: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None:
        return text
    done = subprocess.run([tool], input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return done.stdout if done.returncode == 0 else text
