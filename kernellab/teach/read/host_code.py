"""What an answer in Triton may not do is found in its text, before anything runs: its host code allocates and launches,
and its kernels write out what the exercise asks for."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

#: what host code may call. Functions of Python, whose arguments are numbers: the name alone, as `max(x)` and
#: `x.max()` compute
_PYTHON = frozenset(("min", "max", "int", "len", "range", "tuple"))
_COUNTS = frozenset(("numel", "size", "stride", "dim", "cdiv", "next_power_of_2"))
_ALLOCATES = frozenset(("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "contiguous"))
#: attributes of a tensor that are no tensors
_FACTS = frozenset(("shape", "ndim", "dtype", "device", "is_cuda", "itemsize", "nbytes"))
#: what else of a tensor, of PyTorch and of Triton host code may read: nothing that differs between the interpreter and
#: a call for the compiler
_READ = frozenset(
    ("T", "mT", "data", "language", "constexpr", "contiguous_format", "preserve_format", "inf", "bool",
     "bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
     "uint64", "float8_e4m3fn", "float8_e5m2")
)  # fmt: skip
#: decorators of a function that Triton compiles, and what they may call
_DECORATORS = frozenset(("jit", "autotune"))
_IN_DECORATORS = frozenset((*_DECORATORS, "Config"))
#: functions of Python that give a name that does not stand in the text
_READS_NAMES = frozenset(("getattr", "vars", "globals", "locals", "eval", "exec", "dir"))
_MODULES = frozenset(("__future__", "torch", "triton", "triton.language"))
_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.For, ast.While, ast.If, ast.Return, ast.Expr, ast.Assert,
    ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
_ONLY = "it may allocate and launch, the kernel computes."


class Fault(NamedTuple):
    """What an answer's text may not do: its line, and a sentence."""

    line: int
    sentence: str


def host_fault(module: ast.Module, tensors: Collection[int] | None = None) -> Fault | None:
    """The first line of host code that is more than an allocation or a launch, and a sentence; None for none.
    ``tensors`` are the places of the task's arguments that are tensors; None: all are."""
    jitted = {s.name for s in module.body if isinstance(s, ast.FunctionDef) and is_jitted(s)} - {"kernel"}
    imported = [a for s in module.body if isinstance(s, (ast.Import, ast.ImportFrom)) for a in s.names]
    modules = {(a.asname or a.name).partition(".")[0] for a in imported if a.name in {*_MODULES, "language", "math"}}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef):
            if is_jitted(statement) and statement.name in jitted:
                if (line := _runs_at_import(statement)) is not None:
                    return Fault(line, f"A default or an annotation of {statement.name} is computed; write a constant.")
                continue
            if statement.name == "kernel":
                if fault := next(_faults(statement, jitted, tensors, modules), None):
                    return fault
                continue
        elif (
            (isinstance(statement, (ast.Import, ast.ImportFrom)) and _imports(statement, jitted))
            or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            or (isinstance(statement, (ast.Assign, ast.AnnAssign)) and _sets_constants(statement, jitted))
        ):
            continue
        sentence = "The module holds @triton.jit functions and one host function, `kernel`; this is neither."
        return Fault(statement.lineno, sentence)
    return None


def library_fault(module: ast.Module, avoids: Collection[str]) -> Fault | None:
    """The first line that names a library's function in ``avoids``, by whatever way, and a sentence; None for none. A
    function of the module's may have such a name."""
    for node in ast.walk(module):
        line = getattr(node, "lineno", 1)
        names = [node.attr] if isinstance(node, ast.Attribute) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        if avoided := next((name for name in names if name in avoids), ""):
            return Fault(line, f"It calls {avoided} of a library, and this exercise is to write it out.")
        hidden = isinstance(node, ast.Name) and node.id in _READS_NAMES
        if avoids and (hidden or any(name.startswith("__") for name in names)):
            others = ", ".join(avoids)
            sentence = f"It reads a name that only a run shows. Name each function plainly, and do without {others}."
            return Fault(line, sentence)
    return None


def _faults(
    host: ast.FunctionDef, jitted: set[str], tensors: Collection[int] | None, modules: set[str]
) -> Iterator[Fault]:
    """Everything in the host function that is more than an allocation or a launch."""
    own = host.args
    if host.decorator_list or own.posonlyargs or own.kwonlyargs or own.vararg or own.kwarg:
        yield Fault(host.lineno, "`kernel` names its arguments one by one, without a decorator, `*` or `/`.")
    yield from _statement_faults(host)
    names = _Host(host, jitted, tensors, modules)
    if clash := names.set_here & {"torch", "triton", "tl", *jitted}:
        yield Fault(host.lineno, f"Host code gives the name {min(clash)} to something else.")
    for node in ast.walk(host):
        if sentence := names.fault(node):
            yield Fault(getattr(node, "lineno", host.lineno), sentence)


def _statement_faults(host: ast.FunctionDef) -> Iterator[Fault]:
    for inner in ast.walk(host):
        if isinstance(inner, ast.stmt) and inner is not host and not isinstance(inner, _STATEMENTS):
            yield Fault(inner.lineno, f"Host code is made of assignments, branches, loops and launches: {_ONLY}")
        if isinstance(inner, ast.While) and not _names(inner.test, ast.Load) & _names(inner, ast.Store):
            sentence = "Nothing in this loop changes its condition: it may not end. Write a `for` loop."
            yield Fault(inner.lineno, sentence)


class _Host:
    """What the names and parts of a host function stand for, and what each part may not do."""

    def __init__(
        self, host: ast.FunctionDef, jitted: set[str], tensors: Collection[int] | None, modules: set[str]
    ) -> None:
        parts = list(ast.walk(host))
        inputs = {a.arg for place, a in enumerate(host.args.args) if tensors is None or place in tensors}
        #: names that the function assigns or takes as arguments
        self.set_here = {n.id for n in parts if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.set_here |= {a.arg for a in parts if isinstance(a, ast.arg)}
        self.modules = modules
        self.launches = [node for node in parts if isinstance(node, ast.Call) and _is_launch(node, jitted)]
        #: ``kernel[grid]`` of each launch
        self.grids = [call.func for call in self.launches]
        #: names that a launch was given, apart from the inputs: what may be returned
        handed = [v for call in self.launches for v in (*call.args, *(k.value for k in call.keywords))]
        self.passed = {v.id for v in handed if isinstance(v, ast.Name)} - inputs
        #: values of ``device=``
        self.devices = [k.value for k in parts if isinstance(k, ast.keyword) and k.arg == "device"]
        #: what an attribute is taken of
        self.owners = [node.value for node in parts if isinstance(node, ast.Attribute)]
        self.tensors = _tensors(host, inputs)

    def fault(self, node: ast.AST) -> str:
        """A sentence on what one part does and may not; "" where it may."""
        if isinstance(node, ast.Call):
            return "" if node in self.launches else self._call(node)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign)):
            computes = any(_is_tensor(part, self.tensors) for part in ast.iter_child_nodes(node))
            return f"Host code computes with a tensor; {_ONLY}" if computes else ""
        if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            return f"Host code writes elements; {_ONLY}"
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Name):
            as_value = node.id in self.modules and node not in self.owners
            return f"Host code takes the module {node.id} for a value; {_ONLY}" if as_value else ""
        if isinstance(node, ast.Subscript):
            gathers = node not in self.grids and _is_tensor(node.slice, self.tensors)
            return f"Host code gathers elements; {_ONLY}" if gathers else ""
        if isinstance(node, ast.Return) and node.value is not None:
            results = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if not all(isinstance(r, ast.Name) and r.id in self.passed for r in results):
                return "What is returned is no tensor that a launch of this module was given."
        return ""

    def _call(self, node: ast.Call) -> str:
        name = _called(node)
        is_plain = isinstance(node.func, ast.Name)
        allowed = (_PYTHON | _COUNTS | _ALLOCATES) - self.set_here if is_plain else _COUNTS | _ALLOCATES
        if name not in allowed:
            return f"Host code calls {name or 'something'}; {_ONLY}"
        if is_plain and name in _PYTHON - {"len"} and any(_is_tensor(part, self.tensors) for part in node.args):
            return f"Host code calls {name} on a tensor; {_ONLY}"
        return ""

    def _attribute(self, node: ast.Attribute) -> str:
        if node.attr in ("device", "is_cuda"):
            if node in self.devices and node.attr == "device":
                return ""
            return f"Host code reads {node.attr}; a kernel is the same on each: write `device=x.device` alone."
        if node.attr not in _FACTS | _COUNTS | _ALLOCATES | _READ:
            return f"Host code reads {node.attr}; {_ONLY}"
        return ""


def _names(part: ast.AST, use: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, use)}


def _tensors(host: ast.FunctionDef, inputs: set[str]) -> set[str]:
    """The names that may stand for a tensor: a name of such a name is one too."""
    known, pairs = set(inputs), list(_set(host))
    for _ in pairs:
        for target, value in pairs:
            if _is_tensor(value, known):
                known |= {t.id for t in ast.walk(target) if isinstance(t, ast.Name)}
    return known


def _set(host: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment or a loop with its value; of two tuples of equal length their parts."""
    for node in ast.walk(host):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _paired(target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield node.target, node.iter
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield node.target, node.value


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
        and not any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
    ):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _runs_at_import(function: ast.FunctionDef) -> int | None:
    """The line of a default or an annotation of a jitted function that is more than a constant or a name."""
    own = function.args
    every = (*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg)
    defaults = [d for d in (*own.defaults, *own.kw_defaults) if d is not None and not _is_constant(d)]
    named = [d for d in defaults if not isinstance(d, ast.Name)]
    annotations = [a.annotation for a in every if a is not None and a.annotation is not None]
    plain = (ast.Name, ast.Attribute, ast.Constant, ast.expr_context)
    odd = [a for a in (*annotations, function.returns) if a and not all(isinstance(n, plain) for n in ast.walk(a))]
    return min((part.lineno for part in (*named, *odd)), default=None)


def is_jitted(function: ast.FunctionDef) -> bool:
    """A function under ``@triton.jit``, below other decorators of Triton that run nothing of the module."""
    names = [_of_triton(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]
    inside = [node for d in function.decorator_list for node in ast.walk(d)]
    calls = {_of_triton(node.func) for node in inside if isinstance(node, ast.Call)}
    lambdas = any(isinstance(node, ast.Lambda) for node in inside)
    return "jit" in names and set(names) <= _DECORATORS and calls <= _IN_DECORATORS and not lambdas


def _of_triton(node: ast.AST) -> str:
    """``name`` of ``triton.name``, "" for anything else."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "triton"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def _imports(statement: ast.Import | ast.ImportFrom, jitted: set[str]) -> bool:
    """Of PyTorch and Triton alone, and nothing under the name of something else that host code may call."""
    if isinstance(statement, ast.Import):
        modules = {alias.name for alias in statement.names}
        firsts = [alias.name.partition(".")[0] for alias in statement.names]
        bound = {
            a.asname or first: a.name if a.asname else first for a, first in zip(statement.names, firsts, strict=True)
        }
    else:
        modules = {statement.module or ""}
        bound = {a.asname or a.name: f"{statement.module}.{a.name}" for a in statement.names}
    held = {"torch": "torch", "triton": "triton", "tl": "triton.language"}
    return (
        modules <= _MODULES
        and not bound.keys() & {"kernel", "*", *_PYTHON, *jitted}
        and all(held.get(name, full) == full for name, full in bound.items())
        and all(full.endswith(f".{name}") for name, full in bound.items() if name in _COUNTS | _ALLOCATES)
    )


def _sets_constants(statement: ast.Assign | ast.AnnAssign, jitted: set[str]) -> bool:
    """``B = 64``, ``B = tl.constexpr(64)``, ``B: tl.constexpr = 64``, ``B, C = 64, 2 * 32``"""
    value = statement.value
    if value is None or not (isinstance(statement, ast.Assign) or isinstance(statement.target, ast.Name)):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = {t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)}
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(map(_is_constant, parts)) and not names & {"kernel", "torch", "triton", "tl", *jitted}


def _is_constant(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "constexpr":
        return len(value.args) == 1 and isinstance(value.args[0], ast.Constant)
    if isinstance(value, ast.BinOp):
        return _is_constant(value.left) and _is_constant(value.right)
    return isinstance(value.operand if isinstance(value, ast.UnaryOp) else value, ast.Constant)


def _is_launch(node: ast.Call, jitted: set[str]) -> bool:
    """``kernel[grid](...)``"""
    called = node.func
    return isinstance(called, ast.Subscript) and isinstance(called.value, ast.Name) and called.value.id in jitted


def _is_tensor(node: ast.AST, tensors: set[str]) -> bool:
    """May it be a tensor, or hold one?"""
    if isinstance(node, ast.Call):
        return _called(node) not in _PYTHON | _COUNTS
    if isinstance(node, ast.Attribute) and node.attr in _FACTS:
        return False
    if isinstance(node, ast.Name):
        return node.id in tensors
    return any(_is_tensor(part, tensors) for part in ast.iter_child_nodes(node))


def _called(call: ast.Call) -> str:
    """The last name of what is called; "" where that is no name."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
