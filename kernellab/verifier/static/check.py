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

from kernellab.dsls.base import Finding
from kernellab.dsls.text import parsed
from kernellab.records import CompilerLine, Source
from kernellab.verifier.static import autotuned, channels, surroundings
from kernellab.verifier.static import native as static_native
from kernellab.verifier.static.dates import dates
from kernellab.verifier.static.names import Names
from kernellab.verifier.static.reached import reached

#: names that end, attach to or walk a process; no kernel needs them, not even for inspection
_FATAL_NAMES = {
    "os._exit": "ends the process without an answer",
    "os.abort": "ends the process without an answer",
    "os.kill": "signals a process",
    "os.killpg": "signals processes",
    "signal.raise_signal": "signals a process",
    "signal.pthread_kill": "signals a process",
    "sys._getframe": "walks the stack of its caller",
    "sys._current_frames": "walks the stacks of the process",
    "inspect.currentframe": "walks the stack of its caller",
    "inspect.stack": "walks the stack of its caller",
    "gc.get_objects": "searches the process for others' tensors",
    "gc.get_referrers": "searches the process for others' tensors",
    "sys.settrace": "watches its caller",
    "sys.setprofile": "watches its caller",
    "sys.monitoring": "watches its caller",
    "threading.settrace": "watches its caller",
    "threading.setprofile": "watches its caller",
    "threading.settrace_all_threads": "watches its caller",
    "threading.setprofile_all_threads": "watches its caller",
    "torch.set_num_threads": "changes what the baseline is compared under",
    "torch.set_num_interop_threads": "changes what the baseline is compared under",
    "os.sched_setaffinity": "changes what the baseline is compared under",
}
_FATAL_IMPORTS = {"kernellab": "imports the verifier", "__main__": "imports the program that runs it"}
_FLAGGED_IMPORTS = {
    "threading": "thread", "_thread": "thread", "concurrent": "thread", "multiprocessing": "process",
    "subprocess": "process", "socket": "network", "urllib": "network", "requests": "network", "http": "network",
    "gc": "introspection", "inspect": "introspection", "marshal": "hidden-code", "base64": "hidden-code",
    "pickle": "hidden-code", "atexit": "deferred",
}  # fmt: skip
#: modules whose attributes only cheats replace
_PROTECTED = ("torch", "time", "builtins", "numpy", "np", "triton", "sys", "os", "tvm_ffi", "gc")
#: settings that honest code changes; these are not patches
_SETTINGS = (
    ".config.", ".knobs.", "torch.backends.", "sys.path", "sys.argv", "sys.stdout", "sys.stderr",
    "sys.dont_write_bytecode",
)  # fmt: skip
#: methods that read a tensor, and attributes that define an object's behaviour
_READ_BY = ("data_ptr", "untyped_storage", "__class__", "__code__")
_FRAMES = ("f_back", "f_globals", "f_locals", "f_builtins", "tb_frame", "gi_frame", "cr_frame")
_FLAGGED_CALLS = {
    "exec": "hidden-code", "eval": "hidden-code", "__import__": "hidden-code", "importlib.import_module": "hidden-code",
    "importlib.machinery.SourceFileLoader": "hidden-code", "importlib.util.spec_from_file_location": "hidden-code",
    "runpy.run_path": "hidden-code",
    "os.fork": "process", "os.system": "process", "os.popen": "process", "mmap.mmap": "introspection",
    "torch.set_flush_denormal": "precision", "torch.set_float32_matmul_precision": "precision",
    # ways to distinguish a judge's process from a user's
    **dict.fromkeys((
        "os.getppid", "os.getlogin", "os.getuid", "os.geteuid", "os.getcwd", "os.isatty", "os.uname",
        "platform.uname", "resource.getrlimit", "socket.gethostname", "getpass.getuser", "datetime.datetime.now",
        "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today", "time.localtime", "time.gmtime",
        "time.strftime", "time.ctime", "torch.is_grad_enabled", "torch.is_inference_mode_enabled",
        "torch.is_anomaly_enabled", "torch.are_deterministic_algorithms_enabled",
        "torch.is_autocast_enabled", "torch.is_autocast_cpu_enabled", "torch.get_autocast_dtype", "torch.initial_seed",
        "torch.get_rng_state", "torch.random.initial_seed", "torch.random.get_rng_state", "signal.getsignal",
        "os.memfd_create", "os.eventfd", "os.pidfd_open", "sys.getrefcount", "sys.getrecursionlimit", "sys.gettrace",
        "sys.getprofile", "sys.getswitchinterval", "sys.getallocatedblocks", "gc.get_count", "gc.get_stats",
        "threading.active_count", "threading.enumerate", "hash",
        "torch.cuda.device_count", "torch.cuda.is_available", "torch.xpu.is_available",
        "torch.utils.data.get_worker_info",
        # what is drawn at random may decide in which processes a kernel is right
        "os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", *(f"random.{name}" for name in (
            "random", "randint", "randrange", "getrandbits", "choice", "uniform", "shuffle", "sample", "SystemRandom",
        )), *(f"secrets.{name}" for name in ("randbits", "randbelow", "choice", "token_bytes", "token_hex")),
        *(f"traceback.{name}_stack" for name in ("extract", "walk", "format", "print")), "inspect.stack",
        "inspect.currentframe", *(f"asyncio.{name}" for name in (
            "get_event_loop", "get_running_loop", "_get_running_loop", "current_task", "all_tasks",
        )),
    ), "surroundings"),
}  # fmt: skip
#: bidirectional controls: marks, which text in some languages needs, and those that reorder the following text
_TURNED = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKS = "\u061c\u200e\u200f"
_DECODERS = ("base64.", "marshal.", "zlib.", "bz2.", "lzma.", "binascii.", "codecs.decode", "bytes.fromhex", "urllib.")
#: products of other libraries, which the watch over the framework's operators does not see
_BLAS = tuple(f"{m}.{f}" for m in ("numpy", "np") for f in ("matmul", "dot", "einsum", "tensordot", "inner", "vdot"))
_BLAS_MODULES = ("numpy.linalg.", "np.linalg.", "scipy.linalg.", "numpy.fft.", "np.fft.", "scipy.fft.")
_COMPUTE = frozenset({
    "matmul", "mm", "bmm", "addmm", "einsum", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear", "softmax",
    "log_softmax", "layer_norm", "group_norm", "batch_norm", "rms_norm", "instance_norm", "relu", "gelu", "silu",
    "sigmoid", "tanh", "exp", "log", "sum", "mean", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "sqrt",
    "rsqrt", "pow", "scaled_dot_product_attention", "cross_entropy", "mse_loss", "dot", "mv", "outer", "baddbmm",
    "norm", "var", "std",
})  # fmt: skip


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
        cookie = _encoding(text)
        if cookie is not None:
            message = f"declares the encoding {cookie[1]!r}; write the source in UTF-8"
            findings.append(Finding("hidden-code", message, name, cookie[0], fatal=True))
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


def _once(found: Iterable[Finding]) -> list[Finding]:
    findings: dict[tuple[str, int | None, bool], Finding] = {}
    for finding in found:
        findings.setdefault((finding.rule, finding.line, finding.fatal), finding)
    return list(findings.values())


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
        for name, line in surroundings.counters(self.tree):
            yield self._flag("surroundings", f"counts its calls in {name}", line)
        for name, line in channels.growing(self.tree):
            yield self._flag("surroundings", f"may count its calls by {name}", line)
        for line in dates(self.tree, self.names):
            yield self._flag("surroundings", "reads the date", line)
        for name, pointer, line in autotuned.updated_in_place(self.tree, self.names):
            message = f"measures {name}, which updates {pointer} in place, without restore_value or reset_to_zero"
            yield self._flag("autotune", message, line)
        for node in ast.walk(self.tree):
            kept = channels.asked_in_calls(node, self.names) if id(node) in self.called else None
            if kept is not None and isinstance(node, ast.expr):
                yield self._flag("surroundings", kept, node.lineno)
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
            if name in _FATAL_NAMES and not (isinstance(node, ast.Name) and node.id == name):
                rule = "process" if name.startswith(("os._", "os.a", "os.k", "signal.")) else "introspection"
                yield self._fatal(rule, f"uses {name}, which {_FATAL_NAMES[name]}", node.lineno)
            attribute = node.attr if isinstance(node, ast.Attribute) else self._attribute_fetched(node)
            if attribute in _FRAMES:
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
        if root in _FATAL_IMPORTS:
            yield self._fatal("patch" if root == "__main__" else "verifier", _FATAL_IMPORTS[root], line)
        elif root in _FLAGGED_IMPORTS:
            yield self._flag(_FLAGGED_IMPORTS[root], f"imports {module}", line)

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
        elif name in _FLAGGED_CALLS:
            yield self._flag(_FLAGGED_CALLS[name], f"calls {name}", node.lineno)
        elif name.split(".")[-1] in ("setattr", "delattr", "__setattr__", "__delattr__") and node.args:
            yield from self._set(node)
        elif name.endswith((".__dict__.update", ".__dict__.pop", ".__dict__.setdefault")) and self._guarded(name):
            yield self._fatal("patch", f"writes into the dictionary of {name.split('.__dict__')[0]}", node.lineno)
        elif name.startswith(("unittest.mock.patch", "mock.patch")):
            yield self._fatal("patch", f"calls {name}", node.lineno)
        elif name in _BLAS or name.startswith(_BLAS_MODULES):
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
        elif attribute in _READ_BY:
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
            elif target.attr in _READ_BY and self.names.of(target.value) not in ("self", "cls", "ctx"):
                yield self._fatal("patch", f"replaces {target.attr}", target.lineno)
        elif isinstance(target, ast.Subscript):
            base = self.names.of(target.value)
            if (base.endswith(".__dict__") and self._guarded(base)) or base == "__builtins__":
                yield self._fatal("patch", f"writes into the dictionary of {base.split('.__dict__')[0]}", target.lineno)

    def _modules(self, node: ast.Subscript) -> Iterator[Finding]:
        key = self.names.text(node.slice)
        if key is not None and key.split(".")[0] in (*_PROTECTED, "kernellab", "__main__"):
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
        yield from self._result_cache(node)

    def _result_cache(self, node: ast.FunctionDef) -> Iterator[Finding]:
        """Find returns of a value that a container outliving the call stores under a digest of the inputs' contents.

        In an entry function that is the result itself. Another function may return weights that were packed once;
        whether its value is a result shows at run time.
        """
        inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        keys = {
            t.id
            for a in ast.walk(node) if isinstance(a, ast.Assign) and self._digests(a.value)
            for t in a.targets if isinstance(t, ast.Name)
        }  # fmt: skip
        for statement in ast.walk(node):
            if not isinstance(statement, ast.Return) or statement.value is None:
                continue
            returned = self._given_back(statement.value)
            for part in ast.walk(statement.value):
                if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id not in inside:
                    used = {n.id for n in ast.walk(part.slice) if isinstance(n, ast.Name)}
                    if used & keys or self._digests(part.slice):
                        message = f"returns a result that {part.value.id} holds under a digest of the inputs"
                        # an argument of a kernel is not a result
                        fatal = node.name in self.entries and part in returned
                        yield Finding("result-cache", message, self.file, statement.lineno, fatal=fatal)

    def _given_back(self, value: ast.expr) -> list[ast.expr]:
        """The expressions that give ``value``: itself, and the operands of methods or framework functions that copy or
        view them, in a tuple or not."""
        expressions, pending = list[ast.expr](), [value]
        while pending:
            node = pending.pop()
            expressions.append(node)
            match node:
                case ast.Call(func=ast.Attribute(value=held)) if not self.names.of(node.func).startswith("torch."):
                    pending.append(held)
                case ast.Call(args=[held, *_]) if self.names.of(node.func).startswith(("torch.", "copy.", "tuple")):
                    pending.append(held)
                case ast.Attribute(value=held) | ast.Subscript(value=ast.Subscript() as held) | ast.Starred(value=held):
                    pending.append(held)
                case ast.Tuple(elts=items) | ast.List(elts=items) | ast.BoolOp(values=items):
                    pending += items
                case ast.IfExp(body=then, orelse=other):
                    pending += [then, other]
        return expressions

    # -- predicates

    def _digests(self, node: ast.AST) -> bool:
        """Does it compute a key from a tensor's whole contents? ``x.shape`` and a few elements are not a digest."""
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        names = [self.names.of(c.func) for c in calls]
        methods = [c.func.attr for c in calls if isinstance(c.func, ast.Attribute)]
        hashed = any(n.startswith(("hashlib.", "zlib.crc32", "zlib.adler32", "xxhash.")) or n == "hash" for n in names)
        return hashed and any(m in ("tobytes", "tolist", "numpy") for m in methods)

    def _decoded(self, node: ast.expr) -> bool:
        """Does the expression, or the single binding of its name, come from a decoder?"""
        visited: set[str] = set()
        pending: list[ast.AST] = [node]
        while pending:
            for part in ast.walk(pending.pop()):
                if isinstance(part, ast.Call) and self.names.of(part.func).startswith(_DECODERS):
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
        return "." in name and name.split(".")[0] in _PROTECTED

    def _computes(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self.names.of(node.func)
        return name.startswith("torch.") and name.split(".")[-1] in _COMPUTE

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
    return any(part in name for part in _SETTINGS)


#: PEP 263: in either of the first two lines
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8 = ("utf-8", "utf8", "utf_8", "ascii", "us-ascii")


def _encoding(text: str) -> tuple[int, str] | None:
    """Line and name of a declared encoding that is not UTF-8."""
    # only the importer's line ends count
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"), maxsplit=2)[:2], 1):
        match = _COOKIE.match(line)
        if match and match[1].lower() not in _UTF8:
            return number, match[1]
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
