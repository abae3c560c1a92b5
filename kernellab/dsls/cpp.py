"""C++ on the CPU: OpenMP and vector code, compiled by the system's compiler and called through apache-tvm-ffi."""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePath

from kernellab.dsls.base import Adapter, Finding, Readiness
from kernellab.records import CompilerLine, Source
from kernellab.target import Backend


class CppAdapter(Adapter):
    """C++ kernels: kernel.py builds kernel.cpp with tvm_ffi.cpp when it is imported."""

    name = "cpp"
    backends = (Backend.CPU,)
    preload = ("torch", "tvm_ffi", "tvm_ffi.cpp")

    def readiness(self) -> Readiness:
        for package, pip in (("torch", "torch"), ("tvm_ffi", "apache-tvm-ffi")):
            if find_spec(package) is None:
                return Readiness(
                    False, f"C++ needs the Python package {pip}, which is not installed.", f"pip install {pip}."
                )
        if compiler() is None:
            named = os.environ.get("CXX")
            reason = f"CXX names {named!r}, which is not found." if named else "No C++ compiler is found on PATH."
            return Readiness(False, reason, _install_compiler())
        if shutil.which("ninja") is None:
            return Readiness(False, "C++ builds need ninja, which is not found on PATH.", "pip install ninja.")
        return Readiness(True, backend=Backend.CPU)

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        """Built libraries lie under ``scratch``: what is found there is loaded."""
        return {"TVM_FFI_CACHE_DIR": str(scratch / "tvm-ffi")}

    def static(self, source: Source) -> list[Finding]:
        """C++ that exports a function, and Python that names it outside a string."""
        exported: dict[str, tuple[str, int]] = {}
        used: set[str] = set()
        has_code = False
        for file, text in source.files.items():
            if file.endswith(_CPP_ENDINGS):
                has_code = has_code or not file.endswith((".h", ".hpp"))
                exported |= {name: (file, line) for name, line in _exports(text)}
            elif file.endswith(".py"):
                try:
                    tree = ast.parse(text)
                except SyntaxError as error:
                    return [Finding("syntax", f"{error.msg}.", file, error.lineno, fatal=True)]
                inline = _inline_code(tree)
                has_code = has_code or bool(inline)
                for code, first in inline:
                    exported |= {name: (file, first + line - 1) for name, line in _exports(code)}
                exported |= {name: (file, line) for name, line in _named_functions(tree)}
                used |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} | _subscripts(tree)
        if not has_code:
            return [Finding("no-kernel", "There is no C++ source.", source.entry_file, fatal=True)]
        if not exported:
            return [Finding("no-kernel", "The C++ source exports no function.", source.entry_file, fatal=True)]
        if not exported.keys() & used:
            file, line = next(iter(exported.values()))
            return [Finding("no-launch", "No function of the C++ source is called.", file, line, fatal=True)]
        return []

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        """``file:line:col: error: text`` of g++ and clang, what the linker misses, and the first of each once."""
        names = {PurePath(f).name for f in files}
        found: list[CompilerLine] = []
        for match in _DIAGNOSTIC.finditer(log):
            name = PurePath(match["file"]).name
            own = name in names or not names
            line = CompilerLine(
                file=name if own else match["file"],
                line=int(match["line"]),
                message=f"{match['kind']}: {match['text'].strip()}",
            )
            if line not in found and "error" in match["kind"]:
                found.append(line)
        found.sort(key=lambda d: bool(names) and d.file not in names)
        for match in _LINKER.finditer(log):
            found.append(
                CompilerLine(file=PurePath(files[0]).name if files else "", line=None, message=match[0].strip())
            )
        return found


def compiler() -> str | None:
    """The compiler that builds will use: ``CXX``, else ``c++``."""
    return shutil.which(os.environ.get("CXX", "c++"))


def _install_compiler() -> str:
    if sys.platform == "darwin":
        return "Install one with `xcode-select --install`."
    return "Install one, on Debian or Ubuntu with `sudo apt install g++`, or set CXX."


_CPP_ENDINGS = (".cpp", ".cc", ".cxx", ".h", ".hpp")
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<kind>fatal error|error|warning): (?P<text>.*)$", re.MULTILINE
)
_LINKER = re.compile(
    r"^.*(?:undefined reference to|Undefined symbols|symbol lookup error|undefined symbol).*$", re.MULTILINE
)
_EXPORT = re.compile(
    r"^[ \t]*(?:KL_EXPORT\((\w+)\)|TVM_FFI_DLL_EXPORT_TYPED_FUNC\((\w+)|.*\bextern\s+\"C\".*?\b(\w+)\s*\()",
    re.MULTILINE,
)


def _exports(text: str) -> Iterator[tuple[str, int]]:
    """Exported function names with their lines, from 1; macros' own definitions are not uses."""
    for match in _EXPORT.finditer(text):
        if match[0].lstrip().startswith("#"):
            continue
        name = next(g for g in match.groups() if g)
        yield name.removeprefix("__tvm_ffi_"), text.count("\n", 0, match.start()) + 1


def _inline_code(tree: ast.AST) -> list[tuple[str, int]]:
    """String literals that hold C++: they include something, or define a function's body."""
    return [
        (node.value, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ("#include" in node.value or ("{" in node.value and ";" in node.value and "(" in node.value))
    ]


def _named_functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names in ``functions=`` of tvm_ffi's load_inline and torch's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "functions":
            for constant in ast.walk(node.value):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield constant.value, constant.lineno


def _subscripts(tree: ast.AST) -> set[str]:
    """``module["name"]`` and ``get_function("name")`` name a function too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            names.add(str(node.slice.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_function":
            names |= {str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant)}
    return names
