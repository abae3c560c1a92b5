"""C++ on the CPU: OpenMP and vector code, compiled by the system's compiler and called through apache-tvm-ffi."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from kernellab.dsls.base import Adapter, Finding, Readiness, is_importable
from kernellab.dsls.text import QuotedError, placed, quoted_after, texts
from kernellab.records import CompilerLine, Source
from kernellab.target import Backend


class CppAdapter(Adapter):
    """C++ kernels: kernel.py builds kernel.cpp with tvm_ffi.cpp when it is imported."""

    name = "cpp"
    makes_code = False
    backends = (Backend.CPU,)
    preload = ("torch", "tvm_ffi", "tvm_ffi.cpp")
    built_in = (".cache/tvm-ffi", ".cache/torch_extensions")

    def readiness(self) -> Readiness:
        for package, pip in (("torch", "torch"), ("tvm_ffi", "apache-tvm-ffi")):
            if not is_importable(package):
                return Readiness(
                    False, f"C++ needs the Python package {pip}, which is not installed.", f"pip install {pip}."
                )
        if compiler() is None:
            named = os.environ.get("CXX")
            reason = f"CXX names {named!r}, which is not found." if named else "No C++ compiler is found on PATH."
            return Readiness(False, reason, _install_compiler())
        if ninja() is None:
            reason = "C++ builds need ninja, which is found neither on PATH nor in this Python's environment."
            return Readiness(False, reason, "pip install ninja.")
        return Readiness(True, backend=Backend.CPU)

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        """Return variables that put built libraries under ``scratch``, since libraries there are loaded; builds call
        ninja by its name."""
        return {"TVM_FFI_CACHE_DIR": str(scratch / "tvm-ffi"), **ninja_path()}

    def recognises(self, source: Source) -> bool:
        """Is there C++ in files or strings, and no CUDA?"""
        return bool(texts(source).code)

    def static(self, source: Source) -> list[Finding]:
        """Require C++ that exports a function, and Python that names it outside a string."""
        parts = texts(source)
        if parts.broken is not None:
            file, error = parts.broken
            return [Finding("syntax", f"{error.msg}.", file, error.lineno, fatal=True)]
        if all(piece.header for piece in parts.code):
            what = "There is no C++ source: it computes in Python, with what it imports."
            return [Finding("no-kernel", what, source.entry_file, fatal=True)]
        exported = parts.exported
        if not exported:
            # a macro of the source may export; whether it is called is checked at run time
            return [Finding("no-kernel", "No function that the C++ source exports was found.", source.entry_file)]
        if not exported.keys() & parts.used:
            # a header of a library is not at fault: the message names one of the source's files
            own = {piece.file for piece in parts.code if not piece.header}
            file, line = next((place for place in exported.values() if place[0] in own), (min(own), None))
            return [Finding("no-launch", "No function of the C++ source is called.", file, line, fatal=True)]
        return []

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        """Return errors of g++ and clang (``file:line:col: error: text``) and of the linker, each once."""
        errors = list(dict.fromkeys(line for line, _ in gcc_errors(log, files)))
        names = {PurePath(f).name for f in files}
        errors.sort(key=lambda d: bool(names) and d.file not in names)
        return errors + linker_errors(log, files)

    def explain(self, log: str, source: Source) -> list[CompilerLine]:
        """As :meth:`diagnostics`, with C++ in a Python string at the string's lines."""
        files = tuple(source.files)
        return placed(list(gcc_errors(log, files)), source) + linker_errors(log, files)


def gcc_errors(log: str, files: tuple[str, ...]) -> Iterator[QuotedError]:
    """Yield each error of compiler and assembler, with the source line that the compiler quotes below it."""
    names = dict.fromkeys(PurePath(f).name for f in files)
    for match in _DIAGNOSTIC.finditer(log):
        if "error" in match["kind"].lower():
            name = PurePath(match["file"]).name
            # for assembly at file scope the assembler knows only lines of a temporary file
            is_temporary = name.endswith(".s") and name not in names
            line = CompilerLine(
                file=name if name in names or not names else next(iter(names)) if is_temporary else match["file"],
                line=None if is_temporary else int(match["line"]),
                message=f"{match['kind']}: {match['text'].strip()}",
            )
            yield QuotedError(line, quoted_after(log, match.start()))


def linker_errors(log: str, files: tuple[str, ...]) -> list[CompilerLine]:
    """Return errors of the linker, the loader or the compiler's driver, which have no line."""
    name = PurePath(files[0]).name if files else ""
    return [CompilerLine(file=name, line=None, message=match[0].strip()) for match in _LINKER.finditer(log)]


def compiler() -> str | None:
    """Return the compiler that builds will use: ``CXX``, else ``c++``."""
    return shutil.which(os.environ.get("CXX", "c++"))


def ninja() -> str | None:
    """Return the ninja that builds will use: the program on PATH, else that of the environment of this process.

    An environment need not be activated, and older wheels put a script on PATH that needs their interpreter."""
    on_path = shutil.which("ninja")
    if on_path and not _is_script(on_path):
        return on_path
    places = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    for home in {Path(on_path).parent.parent if on_path else Path(sys.prefix), Path(sys.prefix)}:
        places += home.glob("lib/python*/site-packages/ninja/data/bin")
    for folder in places:
        program = shutil.which("ninja", path=str(folder))
        if program and not _is_script(program):
            return program
    return on_path


def ninja_path() -> dict[str, str]:
    """Return ``PATH`` with the folder of :func:`ninja` first, if PATH has another one or none."""
    program = ninja()
    if program is None or program == shutil.which("ninja"):
        return {}
    return {"PATH": os.pathsep.join([os.path.dirname(program), os.environ.get("PATH", os.defpath)])}


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _install_compiler() -> str:
    if sys.platform == "darwin":
        return "Install one with `xcode-select --install`."
    return "Install one, on Debian or Ubuntu with `sudo apt install g++`, or set CXX."


_DIAGNOSTIC = re.compile(
    # an assembler's have capitals
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<kind>fatal error|error|warning|Fatal error|Error): "
    r"(?P<text>.*)$",
    re.MULTILINE,
)
_LINKER = re.compile(
    r"^.*(?:undefined reference to|Undefined symbols|symbol lookup error|undefined symbol|multiple definition of"
    r"|duplicate symbol|cannot find -l|library not found|virtual memory exhausted).*$"
    # a program's message, without those that only repeat the end of another
    r"|^(?:\S*/)?(?:\S*-)?(?:cc1plus|cc1|g\+\+|gcc|c\+\+|cc|clang(?:\+\+)?|ld|as|lld)(?:[-.]\S+)?: (?:fatal )?error: "
    r"(?!linker command failed).*$",
    re.MULTILINE,
)
