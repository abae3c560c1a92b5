"""The static stage: does the text parse and define its entry, and does it do what no honest kernel does?

Syntax trees, never regular expressions over Python. Only what cannot be honest is fatal; the rest is a flag with its
line, and the later stages decide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernellab.dsls.base import Finding
from kernellab.records import CompilerLine, Source

#: calls that end, attach to or walk a process; no kernel needs one
_FATAL_CALLS = {
    "os._exit": "ends the process without an answer",
    "os.abort": "ends the process without an answer",
    "os.kill": "signals a process",
    "os.killpg": "signals processes",
    "sys._getframe": "walks the stack of its caller",
    "inspect.currentframe": "walks the stack of its caller",
    "inspect.stack": "walks the stack of its caller",
    "gc.get_objects": "searches the process for others' tensors",
    "gc.get_referrers": "searches the process for others' tensors",
    "sys.settrace": "watches its caller",
    "sys.setprofile": "watches its caller",
    "torch.set_num_threads": "changes what the baseline is compared under",
    "torch.set_num_interop_threads": "changes what the baseline is compared under",
}
_FATAL_IMPORTS = {"kernellab": "imports the verifier"}
_FLAGGED_IMPORTS = {
    "threading": "thread", "_thread": "thread", "concurrent": "thread", "multiprocessing": "process",
    "subprocess": "process", "socket": "network", "urllib": "network", "requests": "network", "http": "network",
    "gc": "introspection", "inspect": "introspection", "marshal": "hidden-code", "base64": "hidden-code",
    "pickle": "hidden-code", "atexit": "deferred",
}  # fmt: skip
#: modules whose attributes only a cheat replaces
_PROTECTED = ("torch", "time", "builtins", "numpy", "np", "triton", "sys", "os", "tvm_ffi")
_FLAGGED_CALLS = {"exec": "hidden-code", "eval": "hidden-code", "__import__": "hidden-code"}
_COMPUTE = frozenset(
    [
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "einsum",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose2d",
        "linear",
        "softmax",
        "log_softmax",
        "layer_norm",
        "group_norm",
        "batch_norm",
        "rms_norm",
        "instance_norm",
        "relu",
        "gelu",
        "silu",
        "sigmoid",
        "tanh",
        "exp",
        "log",
        "sum",
        "mean",
        "max",
        "min",
        "argmax",
        "argmin",
        "cumsum",
        "cumprod",
        "sqrt",
        "rsqrt",
        "pow",
        "scaled_dot_product_attention",
        "cross_entropy",
        "mse_loss",
        "dot",
        "mv",
        "outer",
        "baddbmm",
        "norm",
        "var",
        "std",
    ]
)


@dataclass(frozen=True)
class StaticResult:
    findings: tuple[Finding, ...]
    errors: tuple[CompilerLine, ...]

    @property
    def fatal(self) -> Finding | None:
        return next((f for f in self.findings if f.fatal), None)

    @property
    def flags(self) -> list[str]:
        return [f"{f.rule}: {f.message} ({f.file}:{f.line})" if f.line else f"{f.rule}: {f.message}" for f in
                self.findings if not f.fatal]  # fmt: skip


def check(source: Source) -> StaticResult:
    """Findings of every Python file, and syntax errors with their lines."""
    findings: list[Finding] = []
    errors: list[CompilerLine] = []
    for name, text in source.files.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text, name)
        except SyntaxError as error:
            errors.append(CompilerLine(file=name, line=error.lineno, message=f"SyntaxError: {error.msg}"))
            continue
        except ValueError as error:
            errors.append(CompilerLine(file=name, line=None, message=f"ValueError: {error}"))
            continue
        findings += _Rules(name, tree).findings()
        if name == source.entry_file and not _defines(tree, (source.entry, "ModelNew")):
            message = f"{name} defines neither {source.entry}(...) nor ModelNew"
            findings.append(Finding("entry", message, name, None, fatal=True))
    if source.entry_file not in source.files:
        findings.append(Finding("entry", f"the source has no file {source.entry_file}", source.entry_file, fatal=True))
    return StaticResult(tuple(findings), tuple(errors))


class _Rules:
    def __init__(self, file: str, tree: ast.Module) -> None:
        self.file = file
        self.tree = tree
        self.aliases = dict(_aliases(tree))

    def findings(self) -> list[Finding]:
        found = list(self._walk())
        unique: dict[tuple[str, int | None], Finding] = {}
        for finding in found:
            unique.setdefault((finding.rule, finding.line), finding)
        return list(unique.values())

    def _walk(self) -> Iterator[Finding]:
        for node in ast.walk(self.tree):
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
                case ast.Subscript(value=value) if self._name(value) == "sys.modules":
                    yield from self._modules(node)
                case ast.Attribute(attr="f_back" | "f_globals" | "f_locals" | "tb_frame" as attr):
                    yield self._fatal("introspection", f"reads .{attr} of a frame", node.lineno)
                case ast.ExceptHandler() if any(self._computes(n) for n in ast.walk(node)):
                    yield self._flag("fallback", "computes with the framework when its kernel raises", node.lineno)
                case ast.Constant(value=str() as text) if _secret_path(text):
                    yield self._fatal("process-memory", f"opens {text}", node.lineno)
                case ast.FunctionDef(name=name) if name in ("__torch_function__", "__torch_dispatch__"):
                    yield self._flag("lazy", f"defines {name}", node.lineno)

    def _import(self, module: str, line: int) -> Iterator[Finding]:
        root = module.split(".")[0]
        if root in _FATAL_IMPORTS:
            yield self._fatal("verifier", _FATAL_IMPORTS[root], line)
        elif root in _FLAGGED_IMPORTS:
            yield self._flag(_FLAGGED_IMPORTS[root], f"imports {module}", line)

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        name = self._name(node.func)
        if name in _FATAL_CALLS:
            yield self._fatal("process" if name.startswith("os.") else "introspection",
                              f"calls {name}, which {_FATAL_CALLS[name]}", node.lineno)  # fmt: skip
        elif name in _FLAGGED_CALLS:
            yield self._flag(_FLAGGED_CALLS[name], f"calls {name}", node.lineno)
        elif name in ("setattr", "delattr") and node.args and self._protected(node.args[0]):
            yield self._fatal("patch", f"replaces an attribute of {self._name(node.args[0])}", node.lineno)
        elif name in ("torch.compile", "torch.jit.script", "torch.jit.trace"):
            yield self._flag("library", f"calls {name}", node.lineno)
        elif self._computes(node):
            yield self._flag("library", f"computes with {name}", node.lineno)
        elif name.endswith(("cuda.Stream", "cuda.stream", "cuda.graph", "cuda.CUDAGraph")):
            yield self._flag("stream", f"uses {name}", node.lineno)

    def _assign(self, target: ast.expr) -> Iterator[Finding]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                yield from self._assign(item)
        elif isinstance(target, ast.Attribute) and self._protected(target.value):
            name = f"{self._name(target.value)}.{target.attr}"
            if name.startswith("torch.backends."):
                yield self._flag("precision", f"sets {name}", target.lineno)
            elif name not in ("sys.path", "sys.argv"):
                yield self._fatal("patch", f"replaces {name}", target.lineno)
        elif isinstance(target, ast.Attribute) and target.attr in ("__class__", "__code__"):
            yield self._fatal("patch", f"replaces {target.attr}", target.lineno)

    def _modules(self, node: ast.Subscript) -> Iterator[Finding]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if key == "__main__" or (isinstance(key, str) and key.split(".")[0] in (*_PROTECTED, "kernellab")):
            yield self._fatal("patch", f"reaches for sys.modules[{key!r}]", node.lineno)
        else:
            yield self._flag("introspection", "uses sys.modules", node.lineno)

    def _protected(self, node: ast.expr) -> bool:
        return self._name(node).split(".")[0] in _PROTECTED

    def _computes(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self._name(node.func)
        return name.startswith("torch.") and name.split(".")[-1] in _COMPUTE

    def _name(self, node: ast.expr) -> str:
        """The dotted name with import aliases put back; empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])

    def _fatal(self, rule: str, message: str, line: int) -> Finding:
        return Finding(rule, message, self.file, line, fatal=True)

    def _flag(self, rule: str, message: str, line: int) -> Finding:
        return Finding(rule, message, self.file, line)


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    yield alias.asname, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


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
