"""The static stage: does the source parse and define its entry, and does it contain what no honest kernel contains?

Uses syntax trees for Python, tokens for C++ and CUDA (:mod:`kernellab.verifier.static.native`). Only what cannot be
honest is fatal; the rest is a flag with its line, and later stages decide. Names are followed through aliases, getattr
and strings composed of constants (:mod:`kernellab.verifier.static.names`). Code under ``if __name__ == "__main__":``,
and functions that only that code calls, never run here and are not checked
(:mod:`kernellab.verifier.static.reached`). The bytes that are parsed are exactly those that will be imported: a source
that declares another encoding than UTF-8 means something else to the importer than to its reader.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kernellab.dsls.base import Finding
from kernellab.dsls.text import parsed
from kernellab.records import CompilerLine, Source
from kernellab.verifier.static import autotuned, call_counts, channels, listed, surroundings
from kernellab.verifier.static import native as static_native
from kernellab.verifier.static.dates import dates
from kernellab.verifier.static.names import Names
from kernellab.verifier.static.reached import reached
from kernellab.verifier.static.result_cache import cached_results

#: bidirectional controls: marks, which text in some languages needs, and those that reorder the following text
_TURNED = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKS = "\u061c\u200e\u200f"


@dataclass(frozen=True)
class StaticResult:
    """Findings of the rules, and syntax errors."""

    findings: tuple[Finding, ...]
    errors: tuple[CompilerLine, ...]
    #: does the entry file define ModelNew, and no function that would be called instead?
    model: bool = False

    @property
    def fatal(self) -> Finding | None:
        return next((f for f in self.findings if f.fatal), None)

    @property
    def flags(self) -> list[str]:
        return [f"{f.rule}: {f.message} ({f.file}:{f.line})" if f.line else f"{f.rule}: {f.message}" for f in
                self.findings if not f.fatal]  # fmt: skip


def check(source: Source) -> StaticResult:
    """Check every Python and C++ file. Returns findings, and syntax errors with their lines."""
    findings: list[Finding] = []
    errors: list[CompilerLine] = []
    trees: dict[str, ast.Module] = {}
    for name, text in source.files.items():
        turned = max(_TURNED.finditer(text), key=lambda match: match[0] not in _MARKS, default=None)
        if turned:
            message = f"has the control U+{ord(turned[0]):04X}, which shows its reader another text"
            line = text.count("\n", 0, turned.start()) + 1
            findings.append(Finding("hidden-code", message, name, line, fatal=turned[0] not in _MARKS))
        if name.endswith(static_native.ENDINGS):
            findings += _once(static_native.in_file(text, name))
        if not name.endswith(".py"):
            continue
        encoding = _encoding(text)
        if encoding is not None:
            message = f"declares the encoding {encoding.name!r}; write the source in UTF-8"
            findings.append(Finding("hidden-code", message, name, encoding.line, fatal=True))
            continue
        try:
            trees[name] = parsed(text)
        except SyntaxError as error:
            errors.append(CompilerLine(file=name, line=error.lineno, message=f"SyntaxError: {error.msg}"))
        except ValueError as error:
            errors.append(CompilerLine(file=name, line=None, message=f"ValueError: {error}"))
    entry = trees.get(source.entry_file)
    model = entry is not None and _is_model(entry, source.entry)
    if entry is not None and not _defines(entry, (source.entry, "ModelNew")):
        message = f"neither {source.entry}(...) nor ModelNew is defined in {source.entry_file}"
        findings.append(Finding("entry", message, source.entry_file, None, fatal=True))
    own = static_native.own_functions(trees.values(), source.files)
    for name, tree in reached(trees, (source.entry,)).items():
        entries = (source.entry, "forward") if name == source.entry_file else ()
        findings += _once([*_Rules(name, tree, entries, own, source.dsl).walk(), *static_native.in_strings(tree, name)])
    if source.entry_file not in source.files:
        findings.append(Finding("entry", f"the source has no file {source.entry_file}", source.entry_file, fatal=True))
    return StaticResult(tuple(findings), tuple(errors), model)


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """The first finding of each rule in a line."""
    firsts: dict[tuple[str, int | None, bool], Finding] = {}
    for finding in findings:
        firsts.setdefault((finding.rule, finding.line, finding.fatal), finding)
    return list(firsts.values())


class _Rules:
    """The rules over one file. ``entries`` are its functions that are called for a result, ``own`` the names that the
    source's C++ defines."""

    def __init__(self, file: str, tree: ast.Module, entries: tuple[str, ...], own: frozenset[str], dsl: str) -> None:
        self.file = file
        self.dsl = dsl
        self.tree = tree
        self.entries = entries
        self.own = own
        #: nodes that run in each call
        self.called = {id(part) for function in _called(tree, entries) for part in ast.walk(function)}
        self.names = Names(tree)
        self.strings = {s for n in ast.walk(tree) if isinstance(n, ast.expr) and (s := self.names.text(n)) is not None}

    def walk(self) -> Iterator[Finding]:
        for name, line in call_counts.counters(self.tree):
            yield self._flag("surroundings", f"counts its calls in {name}", line)
        for name, line in channels.growing(self.tree):
            yield self._flag("surroundings", f"may count its calls by {name}", line)
        for line in dates(self.tree, self.names):
            yield self._flag("surroundings", "reads the date", line)
        for name, pointer, line in autotuned.updated_in_place(self.tree, self.names):
            message = f"measures {name}, which updates {pointer} in place, without restore_value or reset_to_zero"
            yield self._flag("autotune", message, line)
        for node in ast.walk(self.tree):
            channel = channels.asked_in_calls(node, self.names) if id(node) in self.called else None
            if channel is not None and isinstance(node, ast.expr):
                yield self._flag("surroundings", channel, node.lineno)
            if isinstance(node, ast.expr):
                yield from self._expression(node)
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        yield from self._import(alias.name, node.lineno)
                case ast.ImportFrom(module=module) if module:
                    yield from self._import(module, node.lineno)
                case ast.Call():
                    yield from self._call(node)
                case ast.Assign(targets=targets):
                    for target in targets:
                        yield from self._assign(target)
                case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                    yield from self._assign(target)
                case ast.Subscript(value=value) if self.names.of(value) == "sys.modules":
                    yield from self._modules(node)
                case ast.ExceptHandler() if any(self._computes(n) for n in ast.walk(node)):
                    yield self._flag("fallback", "computes with the framework when its kernel raises", node.lineno)
                case ast.FunctionDef():
                    yield from self._function(node)

    # -- the meaning of a name, wherever it occurs

    def _expression(self, node: ast.expr) -> Iterator[Finding]:
        if isinstance(node, (ast.Attribute, ast.Name, ast.Call, ast.Subscript)):
            name = self.names.of(node)
            if name in listed.FATAL_NAMES and not (isinstance(node, ast.Name) and node.id == name):
                rule = "process" if name.startswith(("os._", "os.a", "os.k", "signal.")) else "introspection"
                yield self._fatal(rule, f"uses {name}, which {listed.FATAL_NAMES[name]}", node.lineno)
            attribute = node.attr if isinstance(node, ast.Attribute) else self._attribute_fetched(node)
            if attribute in listed.FRAMES:
                yield self._fatal("introspection", f"reads .{attribute} of a frame", node.lineno)
            if attribute in ("ptrace", "process_vm_readv", "process_vm_writev"):
                yield self._fatal("process-memory", f"calls {attribute}", node.lineno)
            if static_native.LIBRARY.fullmatch(attribute) and attribute not in self.own:
                yield self._fatal("library-call", f"calls {attribute} of a library", node.lineno)
            if attribute in static_native.CLOCKS and "mprotect" in self._reached:
                yield self._fatal("patch", f"unprotects memory and names {attribute}", node.lineno)
        text = self.names.text(node)
        if text is not None and _secret_path(text):
            yield self._fatal("process-memory", f"opens {text}", node.lineno)
        surrounding = surroundings.read_by(node, self.names, self.dsl)
        if surrounding is not None:
            yield self._flag("surroundings", surrounding, node.lineno)

    @cached_property
    def _reached(self) -> set[str]:
        attributes = {n.attr for n in ast.walk(self.tree) if isinstance(n, ast.Attribute)}
        return attributes | self.strings

    def _attribute_fetched(self, node: ast.expr) -> str:
        """The attribute that ``getattr(anything, "na" + "me")`` reads."""
        if isinstance(node, ast.Call) and self.names.of(node.func) == "getattr" and len(node.args) >= 2:
            return self.names.text(node.args[1]) or ""
        return ""

    # -- statements and calls

    def _import(self, module: str, line: int) -> Iterator[Finding]:
        root = module.split(".")[0]
        if root in listed.FATAL_IMPORTS:
            yield self._fatal("patch" if root == "__main__" else "verifier", listed.FATAL_IMPORTS[root], line)
        elif root in listed.FLAGGED_IMPORTS:
            yield self._flag(listed.FLAGGED_IMPORTS[root], f"imports {module}", line)

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.names.of(node.func)
        if name in ("importlib.import_module", "__import__") and self.names.of(node):
            yield from self._import(self.names.of(node), node.lineno)
        elif name in ("exec", "eval", "compile") and node.args and self._decoded(node.args[0]):
            yield self._fatal("hidden-code", f"hands decoded text to {name}", node.lineno)
        elif name in ("marshal.loads", "marshal.load", "types.CodeType"):
            yield self._fatal("hidden-code", f"builds code with {name}", node.lineno)
        elif self._installs(name, node):
            yield self._fatal("network", "installs a package", node.lineno)
        elif name in listed.FLAGGED_CALLS:
            yield self._flag(listed.FLAGGED_CALLS[name], f"calls {name}", node.lineno)
        elif name.split(".")[-1] in ("setattr", "delattr", "__setattr__", "__delattr__") and node.args:
            yield from self._set(node)
        elif name.endswith((".__dict__.update", ".__dict__.pop", ".__dict__.setdefault")) and self._guarded(name):
            yield self._fatal("patch", f"writes into the dictionary of {name.split('.__dict__')[0]}", node.lineno)
        elif name.startswith(("unittest.mock.patch", "mock.patch")):
            yield self._fatal("patch", f"calls {name}", node.lineno)
        elif name in listed.BLAS or name.startswith(listed.BLAS_MODULES):
            # elsewhere it may build a table; at run time it shows whose product an answer is
            finding = self._fatal if id(node) in self.called else self._flag
            yield finding("library-call", f"computes with {name}", node.lineno)
        elif name in ("torch.compile", "torch.jit.script", "torch.jit.trace", "torch._dynamo.optimize"):
            yield self._fatal("library-call", f"asks {name} for its kernel", node.lineno)
        elif self._computes(node):
            yield self._flag("library", f"computes with {name}", node.lineno)
        elif name.endswith(("cuda.Stream", "cuda.stream", "cuda.graph", "cuda.CUDAGraph")):
            yield self._flag("stream", f"uses {name}", node.lineno)

    def _set(self, node: ast.Call) -> Iterator[Finding]:
        """setattr and similar functions."""
        target = self.names.of(node.args[0])
        attribute = self.names.text(node.args[1]) if len(node.args) > 1 else None
        full = f"{target}.{attribute or '?'}"
        if target and self._guarded(full) and not _is_setting(full):
            yield self._fatal("patch", f"replaces an attribute of {target}", node.lineno)
        elif attribute in listed.READ_BY:
            yield self._fatal("patch", f"replaces {attribute}", node.lineno)

    def _assign(self, target: ast.expr) -> Iterator[Finding]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                yield from self._assign(item)
        elif isinstance(target, ast.Attribute):
            name = self.names.of(target)
            if self._guarded(name):
                if name.startswith("torch.backends."):
                    yield self._flag("precision", f"sets {name}", target.lineno)
                elif not _is_setting(name):
                    yield self._fatal("patch", f"replaces {name}", target.lineno)
            elif target.attr in listed.READ_BY and self.names.of(target.value) not in ("self", "cls", "ctx"):
                yield self._fatal("patch", f"replaces {target.attr}", target.lineno)
        elif isinstance(target, ast.Subscript):
            base = self.names.of(target.value)
            if (base.endswith(".__dict__") and self._guarded(base)) or base == "__builtins__":
                yield self._fatal("patch", f"writes into the dictionary of {base.split('.__dict__')[0]}", target.lineno)

    def _modules(self, node: ast.Subscript) -> Iterator[Finding]:
        key = self.names.text(node.slice)
        if key is not None and key.split(".")[0] in (*listed.PROTECTED, "kernellab", "__main__"):
            yield self._fatal("patch", f"reaches for sys.modules[{key!r}]", node.lineno)
        else:
            yield self._flag("introspection", "uses sys.modules", node.lineno)

    def _function(self, node: ast.FunctionDef) -> Iterator[Finding]:
        if node.name in ("__torch_function__", "__torch_dispatch__"):
            yield self._flag("lazy", f"defines {node.name}", node.lineno)
        if any(self.names.of(d) == "torch.compile" for d in node.decorator_list):
            yield self._fatal("library-call", "asks torch.compile for its kernel", node.lineno)
        rest = surroundings.swallowed(node) if node.name in self.entries else None
        if rest is not None:
            yield self._flag("surroundings", f"takes **{rest} and reads none: numbers by keyword are lost", node.lineno)
        for name, line, is_result in cached_results(node, self.names):
            message = f"returns a result that {name} holds under a digest of the inputs"
            # an argument of a kernel is not a result
            yield Finding("result-cache", message, self.file, line, fatal=is_result and node.name in self.entries)

    # -- predicates

    def _decoded(self, node: ast.expr) -> bool:
        """Does the expression, or the single binding of its name, come from a decoder?"""
        visited: set[str] = set()
        pending: list[ast.AST] = [node]
        while pending:
            for part in ast.walk(pending.pop()):
                if isinstance(part, ast.Call) and self.names.of(part.func).startswith(listed.DECODERS):
                    return True
                value = self.names.bound(part.id) if isinstance(part, ast.Name) and part.id not in visited else None
                if value is not None and isinstance(part, ast.Name):
                    visited.add(part.id)
                    pending.append(value)
        return False

    def _installs(self, name: str, node: ast.Call) -> bool:
        if name.startswith(("pip.", "ensurepip.")):
            return True
        if not name.startswith(("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn")):
            return False
        words = " ".join(t for n in ast.walk(node) if isinstance(n, ast.expr) and (t := self.names.text(n))).split()
        return "install" in words and any(w in ("pip", "pip3", "uv", "conda", "apt", "apt-get") for w in words)

    def _guarded(self, name: str) -> bool:
        return "." in name and name.split(".")[0] in listed.PROTECTED

    def _computes(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self.names.of(node.func)
        return name.startswith("torch.") and name.split(".")[-1] in listed.COMPUTE

    def _fatal(self, rule: str, message: str, line: int) -> Finding:
        return Finding(rule, message, self.file, line, fatal=True)

    def _flag(self, rule: str, message: str, line: int) -> Finding:
        return Finding(rule, message, self.file, line)


def _called(tree: ast.Module, entries: tuple[str, ...]) -> list[ast.FunctionDef]:
    """The functions that a call may run: ``entries``, decorated functions, and the functions that these name."""
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    reachable: list[ast.FunctionDef] = []
    pending = [f for fs in functions.values() for f in fs if f.name in entries or f.decorator_list]
    while pending:
        function = pending.pop()
        if function not in reachable:
            reachable.append(function)
            names = {getattr(n, "id", None) or getattr(n, "attr", None) for n in ast.walk(function)}
            pending += [f for name in names if name in functions for f in functions[name]]
    return reachable


def _is_setting(name: str) -> bool:
    return any(part in name for part in listed.SETTINGS)


#: PEP 263: in either of the first two lines
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8 = ("utf-8", "utf8", "utf_8", "ascii", "us-ascii")


class _Encoding(NamedTuple):
    line: int
    name: str


def _encoding(text: str) -> _Encoding | None:
    """A declared encoding that is not UTF-8."""
    # only the importer's line ends count
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"), maxsplit=2)[:2], 1):
        match = _COOKIE.match(line)
        if match and match[1].lower() not in _UTF8:
            return _Encoding(number, match[1])
    return None


def _is_model(tree: ast.Module, entry: str) -> bool:
    """Is a class ModelNew the thing to call?"""
    own = any(isinstance(n, ast.ClassDef) and n.name == "ModelNew" for n in tree.body)
    return own and not _defines(tree, (entry,))


def _defines(tree: ast.Module, names: tuple[str, ...]) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names:
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id in names for t in targets):
                return True
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any((a.asname or a.name) in names for a in node.names):
            return True
    return False


def _secret_path(text: str) -> bool:
    return text.startswith("/proc/") and text.rsplit("/", 1)[-1] in ("mem", "environ", "maps", "cmdline")
