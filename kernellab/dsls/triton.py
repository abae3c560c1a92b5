"""Triton: on a CUDA device if there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath

from kernellab.dsls.base import Adapter, Finding, Readiness, is_importable
from kernellab.dsls.text import parsed
from kernellab.records import CompilerLine, Source
from kernellab.target import Backend


class TritonAdapter(Adapter):
    """Triton kernels. Without a GPU they run in the interpreter, which checks correctness and is never timed."""

    name = "triton"
    backends = (Backend.CUDA, Backend.INTERPRETER)
    preload = ("torch", "triton", "triton.language")
    marks = ("triton",)
    compiles_in_calls = True

    def readiness(self) -> Readiness:
        for package in ("torch", "triton"):
            if not is_importable(package):
                return Readiness(
                    False,
                    f"Triton needs the Python package {package}, which is not installed.",
                    "Install it with `pip install triton`."
                    if sys.platform == "linux"
                    else "Triton runs on Linux; choose the DSL cpp here.",
                )
        return Readiness(True, backend=Backend.CUDA if has_cuda_device() else Backend.INTERPRETER)

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        """Return variables for a separate cache of each candidate: Triton loads what it finds there."""
        return {
            "TRITON_CACHE_DIR": str(scratch / "triton-cache"),
            "TRITON_INTERPRET": "1" if backend is Backend.INTERPRETER else "0",
        }

    def static(self, source: Source) -> list[Finding]:
        """Require a ``@triton.jit`` function that is defined, and one that is launched with ``name[grid](...)``."""
        findings: list[Finding] = []
        jitted: dict[str, tuple[str, int]] = {}
        launched: set[str] = set()
        for file, text in source.files.items():
            if not file.endswith(".py"):
                continue
            try:
                tree = parsed(text)
            except SyntaxError as error:
                return [Finding("syntax", f"{error.msg}.", file, error.lineno, fatal=True)]
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and any(_is_jit(d) for d in node.decorator_list):
                    jitted[node.name] = (file, node.lineno)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    launched.add(_last_name(node.func.value))
        if not jitted:
            return [Finding("no-kernel", "No function is decorated with @triton.jit.", source.entry_file, fatal=True)]
        if not launched & jitted.keys():
            file, line = next(iter(jitted.values()))
            findings.append(Finding("no-launch", "No @triton.jit function is launched.", file, line, fatal=True))
        return findings

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        """Return Triton's ``at line:col`` errors (lines count from the function) and Python tracebacks, at lines of
        files."""
        return _compilation_errors(log, files) or _tracebacks(log, files)


def has_cuda_device() -> bool:
    """Is there an NVIDIA device that this process may use? No CUDA context is made."""
    from kernellab.dsls.machine import gpu_products

    return bool(gpu_products())


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _last_name(target) == "jit"


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_RAISED = re.compile(r"^(?:[\w.]*\.)?(?P<kind>\w*(?:Error|Exception|Interrupt|OutOfResources))(?:: (?P<text>.*))?$")
_AT = re.compile(r"at (?P<line>\d+):(?P<col>\d+):")


def _compilation_errors(log: str, files: tuple[str, ...]) -> list[CompilerLine]:
    """Return errors such as ``CompilationError: at 12:8:``, which counts from the ``def`` line and prints the source up
    to a caret, then the reason."""
    errors: list[CompilerLine] = []
    lines = log.splitlines()
    for i, line in enumerate(lines):
        at = _AT.search(line)
        if at is None or ("CompilationError" not in line and "UnsupportedLanguageConstruct" not in line):
            continue
        rest = lines[i + 1 :]
        caret = next((k for k, text in enumerate(rest) if text.strip() == "^"), None)
        quoted = rest[:caret] if caret is not None else []
        why = [text.strip() for text in rest[(caret + 1 if caret is not None else 0) :] if text.strip()]
        file, number = _locate(quoted, files)
        message = why[0] if why else line.strip()
        errors.append(CompilerLine(file=file, line=number, message=message))
    return errors


def _locate(quoted: list[str], files: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the file and line of the last quoted source line if the files can be read, else only the file's name."""
    name = PurePath(files[0]).name if files else ""
    if not quoted:
        return name, None
    for file in files:
        path = Path(file)
        if not path.is_file():
            continue
        text = path.read_text().splitlines()
        head = quoted[0].strip()
        for start in (k for k, candidate in enumerate(text) if candidate.strip() == head):
            last = start + len(quoted) - 1
            if last < len(text) and text[last].strip() == quoted[-1].strip():
                return path.name, last + 1
        matches = [k + 1 for k, candidate in enumerate(text) if candidate.strip() == quoted[-1].strip()]
        if len(matches) == 1:
            return path.name, matches[0]
    return name, None


def _tracebacks(log: str, files: tuple[str, ...]) -> list[CompilerLine]:
    """Return the deepest frame in one of ``files``, with the exception of the traceback."""
    names = {PurePath(f).name for f in files}
    errors: list[CompilerLine] = []
    place: tuple[str, int] | None = None
    for line in log.splitlines():
        frame = _FRAME.match(line)
        if frame:
            name = PurePath(frame["path"]).name
            if not names or name in names:
                place = (name, int(frame["line"]))
            continue
        raised = _RAISED.match(line)
        if raised and place is not None:
            message = f"{raised['kind']}: {raised['text']}" if raised["text"] else raised["kind"]
            errors.append(CompilerLine(file=place[0], line=place[1], message=message))
            place = None
    return errors
