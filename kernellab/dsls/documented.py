"""The adapter of a DSL that only documents describe: its spec.toml defines all of it."""

from __future__ import annotations

import ast
import glob
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from kernellab.dsls.base import Adapter, Finding, Readiness, is_importable
from kernellab.dsls.spec import PLACEHOLDER, SPEC, DslSpec
from kernellab.dsls.text import NamedLine, Place, parsed
from kernellab.records import CompilerLine, Source
from kernellab.target import Backend


class DocumentedAdapter(Adapter):
    """A DSL as its :class:`~kernellab.dsls.spec.DslSpec` describes it."""

    def __init__(self, spec: DslSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.backends = spec.backends
        self.preload = spec.worker.preload
        self.runtime = spec.worker.runtime
        self.marks = tuple(
            root for root in (m.split(".")[0] for m in spec.documents.toolchain.values()) if root != "torch"
        )
        self.suffixes = (".py", *spec.suffixes)
        self.build = spec.build.command
        self.entry_file = spec.entry_file
        self.entry = spec.entry

    def readiness(self) -> Readiness:
        ready = self.spec.ready
        if ready.refuse:
            return Readiness(False, ready.refuse, ready.remedy)
        for need in ready.needs:
            if any(PLACEHOLDER.search(text) for text in (need.package, need.command, need.path, need.remedy)):
                draft = f"{self.spec.title} is a draft: its {SPEC} does not say yet what it needs."
                return Readiness(False, draft, f"Replace each FILL_IN of knowledge/dsl/{self.name}/{SPEC}.")
            missing = (
                (need.package and not is_importable(need.package) and f"the Python package {need.package}")
                or (need.command and shutil.which(need.command) is None and f"the command {need.command}")
                or (need.path and not glob.glob(need.path) and f"{need.path}")
            )
            if missing:
                return Readiness(False, f"{self.spec.title} needs {missing}, which is not found.", need.remedy)
        return Readiness(True, backend=self.backends[0])

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        variables = self.spec.worker.environment
        return {name: value.replace("{scratch}", str(scratch)) for name, value in variables.items()}

    def static(self, source: Source) -> list[Finding]:
        """Require a kernel that is defined as the spec says, and called where the spec asks for it."""
        rules = self.spec.static
        kernels: dict[str, Place] = {}
        called: set[str] = set()
        for file, text in source.files.items():
            if file.endswith(".py"):
                try:
                    tree = parsed(text)
                except SyntaxError as error:
                    return [Finding("syntax", f"{error.msg}.", file, error.lineno, fatal=True)]
                reached = _reached(tree, rules.library)
                if reached is not None:
                    return [self._library_finding(reached, file)]
                decorated = list(_decorated(tree, rules.decorators))
                kernels |= {node.name: Place(file, node.lineno) for node in decorated}
                called |= _names_used(tree, skip=decorated)
                if rules.pattern:
                    for string, line in _strings(tree):
                        kernels |= _matches(rules.pattern, string, file, line - 1)
            if rules.pattern and file.endswith(rules.files or ("\0",)):
                kernels |= _matches(rules.pattern, text, file, 0)
        if not (rules.decorators or rules.pattern):
            return []
        if not kernels:
            forms = ", ".join([*(f"@{name}" for name in rules.decorators), *filter(None, [rules.pattern])])
            return [Finding("no-kernel", f"No kernel is defined ({forms}).", source.entry_file, fatal=True)]
        if rules.called and not called & kernels.keys():
            file, line = next(iter(kernels.values()))
            return [Finding("no-launch", "No kernel is called from code outside the kernels.", file, line, fatal=True)]
        return []

    def _library_finding(self, reached: NamedLine, file: str) -> Finding:
        message = f"{reached.name} is an operator of {self.spec.title}'s own library."
        if reached.name not in self.spec.static.library:
            message = f"{reached.name} may reach an operator of {self.spec.title}'s own library: name what is used."
        return Finding("library", message, file, reached.line, fatal=True)

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        names = {PurePath(file).name: file for file in files}
        errors: list[CompilerLine] = []
        for part in self.spec.diagnostics:
            for match in re.finditer(part.pattern, log, re.MULTILINE):
                groups = match.groupdict()
                path = groups.get("file") or ""
                source_file = names.get(PurePath(path).name)
                number = groups.get("line") or ""
                line = CompilerLine(
                    file=source_file or path or (files[0] if files else ""),
                    line=int(number) if number.isdigit() and (source_file or path) else None,
                    message=" ".join(match["message"].split()),
                )
                if line not in errors:
                    errors.append(line)
        errors.sort(key=lambda line: line.file not in files)
        return errors


def _reached(tree: ast.AST, library: tuple[str, ...]) -> NamedLine | None:
    """Return the first of ``library``'s names that code reaches, and its line: as an attribute, imported, or as text;
    or the construct by which any name may be reached."""
    named = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call) and _names_a_constant(n)}
    for node in ast.walk(tree) if library else ():
        if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
            return NamedLine(f"from {node.module} import *", node.lineno)
        for name in _names_in(node):
            is_open = name in _ANY_NAME and id(node) not in named
            if name in library or is_open or (name.startswith("__") and name not in _HARMLESS and name[-2:] == "__"):
                reached = f"{name} by a made name" if name in _BY_TEXT else name
                return NamedLine(reached, getattr(node, "lineno", 1))
    return None


#: functions that reach a name in a text; allowed for a constant, which is checked separately
_BY_TEXT = {"getattr", "attrgetter", "methodcaller"}
#: other ways to reach any name: Python's functions, and attributes of modules
_BUILTINS = {"getattr", "vars", "globals", "locals", "eval", "exec", "compile", "__import__", "__builtins__"}
_ANY_NAME = _BY_TEXT | _BUILTINS | {
    "modules", "importlib", "import_module", "pkgutil", "runpy", "pickle", "marshal", "inspect", "builtins", "gc",
}  # fmt: skip
#: special attributes that reach no other name
_HARMLESS = {"__init__", "__name__", "__doc__", "__version__", "__call__", "__file__", "__all__", "__future__"}


def _names_a_constant(call: ast.Call) -> bool:
    """Does a call of one of ``_BY_TEXT`` have a constant name?"""
    name = _last_name(call.func)
    texts = call.args[1:2] if name == "getattr" else call.args
    return name in _BY_TEXT and bool(texts) and all(isinstance(part, ast.Constant) for part in texts)


def _names_in(node: ast.AST) -> list[str]:
    """Return the names that a node reaches or imports."""
    if isinstance(node, ast.Name):
        return [node.id] if node.id in _BUILTINS | _BY_TEXT else []  # otherwise it is a variable
    if isinstance(node, ast.Attribute):
        return [node.attr] if node.attr != "compile" else []  # of a pattern
    if isinstance(node, ast.MatchClass):
        return list(node.kwd_attrs)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # a text with a dot may be a path to a module
        return [part for part in node.value.split(".") if part not in _ANY_NAME]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        parts = [part for a in node.names for part in a.name.split(".")]
        return parts + (getattr(node, "module", "") or "").split(".")
    return []


def _decorated(tree: ast.AST, decorators: tuple[str, ...]) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_last_name(d) in decorators for d in node.decorator_list):
            yield node


def _last_name(node: ast.expr) -> str:
    """``a.b.c(...)[...]`` -> c."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


#: attributes that return compiled code as a pointer to call
_POINTERS = ("address", "ctypes")


def _names_used(tree: ast.AST, skip: list[ast.FunctionDef]) -> set[str]:
    """Return names that are called or passed on, or reached as an attribute or by text, outside the functions of
    ``skip``."""
    inside = {id(node) for function in skip for node in ast.walk(function)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Call):
            names.add(_last_name(node.func))
            names |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
            # a kernel that is an argument is launched by the called function: pallas_call(kernel, ...)
            names |= {a.id for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Name)}
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
            if node.attr in _POINTERS and isinstance(node.value, ast.Name):
                names.add(node.value.id)
    return names


def _strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


def _matches(pattern: str, text: str, file: str, before: int) -> dict[str, Place]:
    """Return the kernels that a pattern finds in ``text``, which begins after line ``before`` of its file."""
    places = {}
    for match in re.finditer(pattern, text, re.MULTILINE):
        name = match.groupdict().get("name") or match[0]
        places[name] = Place(file, before + text.count("\n", 0, match.start()) + 1)
    return places
