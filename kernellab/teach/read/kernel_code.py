"""What the jitted functions of an answer in Triton may name: Triton's language, each other, and their own values.

Triton's interpreter runs any Python, and its compiler only what it can compile. A branch that tells the two apart would
have another kernel counted than the one that is judged: what a kernel may name is listed, and read from its text before
anything runs. A name of Triton's that is not listed is one more entry here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernellab.teach.read.host_code import Fault, is_jitted

_TYPES = frozenset(
    ("bfloat16", "constexpr", "float16", "float32", "float64", "float8e4nv", "float8e5", "int1", "int16", "int32",
     "int64", "int8", "uint16", "uint32", "uint64", "uint8")
)  # fmt: skip
#: functions of ``tl.math``
_MATH = frozenset(
    ("abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "rsqrt", "sin",
     "sqrt", "sqrt_rn", "umulhi")
)  # fmt: skip
#: what is a function of ``tl`` and a method of a tile
_METHODS = frozenset(
    ("abs", "argmax", "argmin", "associative_scan", "atomic_add", "atomic_and", "atomic_cas", "atomic_max",
     "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor", "broadcast_to", "cast", "cdiv", "ceil", "cos",
     "cumprod", "cumsum", "erf", "exp", "exp2", "expand_dims", "flip", "floor", "gather", "histogram", "load",
     "log", "log2", "max", "min", "permute", "ravel", "reduce", "reduce_or", "reshape", "rsqrt", "sigmoid", "sin",
     "softmax", "sort", "split", "sqrt", "sqrt_rn", "store", "sum", "trans", "view", "xor_sum")
)  # fmt: skip
LANGUAGE = _TYPES | _MATH | _METHODS | frozenset(
    ("advance", "arange", "assume", "broadcast", "cat", "clamp", "debug_barrier", "device_assert", "dot",
     "dot_scaled", "full", "interleave", "join", "load_tensor_descriptor", "make_block_ptr",
     "make_tensor_descriptor", "max_constancy", "max_contiguous", "maximum", "minimum", "multiple_of",
     "num_programs", "philox", "program_id", "rand", "randint", "randn", "range", "squeeze", "static_assert",
     "static_range", "store_tensor_descriptor", "swizzle2d", "topk", "unsqueeze", "where", "zeros", "zeros_like")
)  # fmt: skip
#: attributes of a tile, a pointer or a descriptor
_OF_VALUES = _METHODS | {"T", "advance", "dtype", "element_ty", "logical_and", "logical_or", "shape", "to", "value"}
#: `bool` of a tile is one thing for the interpreter, and true for the compiler
_PYTHON = frozenset(("range", "min", "max", "abs", "int", "float", "len"))
_OF_TRITON = frozenset(("cdiv", "next_power_of_2"))
_ANNOTATIONS = frozenset(("int", "float", "bool", "str"))
#: characters of a name that a sentence quotes, at most
_SHOWN = 80
_DECORATORS = frozenset(("jit", "autotune", "Config"))
_SYNTAX = (
    ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Return, ast.Expr, ast.Pass, ast.Assert,
    ast.IfExp, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.Slice, ast.Tuple, ast.List,
    ast.Constant, ast.Name, ast.Attribute,
)  # fmt: skip


def kernel_fault(module: ast.Module) -> Fault | None:
    """The first place of a jitted function that names what no kernel of an exercise may, its line and a sentence; None
    for none. Of a module in which :func:`~kernellab.teach.read.host_code.host_fault` finds nothing."""
    jitted = [s for s in module.body if isinstance(s, ast.FunctionDef) and is_jitted(s)]
    names = _Names(module, {function.name for function in jitted})
    for function in jitted:
        if found := next(names.faults(function), None):
            line, name = found
            return Fault(line, f"It uses {name[:_SHOWN]}, which a kernel in this exercise may not.")
    return None


class _Names:
    """What a module's names stand for: ``modules`` is a path for each name of one, ``constants`` are numbers."""

    def __init__(self, module: ast.Module, jitted: set[str]) -> None:
        self.modules: dict[str, str] = {}
        self.functions, self.constants = set(jitted), set[str]()
        for statement in module.body:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    first = alias.name.partition(".")[0]
                    self.modules[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    self._import(f"{statement.module}.{alias.name}", alias.asname or alias.name)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
                self.constants |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} - {*self.modules}

    def _import(self, path: str, name: str) -> None:
        if path in ("triton.language", "triton.language.math"):
            self.modules[name] = path
        elif _allowed(path):
            self.functions.add(name)

    def faults(self, function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
        """Lines and names that the function may not use."""
        parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        set_here = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local = parameters | set_here
        yield from self._of_signature(function, local)
        yield from self._of_body(function, local)

    def _of_signature(self, function: ast.FunctionDef, local: set[str]) -> Iterator[tuple[int, str]]:
        """Faults of the function's local names, variable arguments, decorators and defaults."""
        own = function.args
        if clash := local & {*self.modules}:
            yield function.lineno, f"{min(clash)} as the name of a value"
        if own.vararg or own.kwarg:
            yield function.lineno, "*" if own.vararg else "**"
        for part in function.decorator_list:
            for node in ast.walk(part):
                path = self._path(node)
                if isinstance(node, ast.Attribute) and path not in {f"triton.{name}" for name in _DECORATORS}:
                    yield node.lineno, f"{path or '.' + node.attr} in a decorator"
                if isinstance(node, ast.Name) and node.id not in self.constants | {"triton"}:
                    yield node.lineno, f"{node.id} in a decorator"
                if isinstance(node, ast.keyword) and node.arg == "noinline":  # what it loads would stand once
                    yield part.lineno, "noinline in a decorator"
        for default in (*own.defaults, *own.kw_defaults):
            if isinstance(default, ast.Name) and default.id not in self.constants:
                yield default.lineno, default.id

    def _of_body(self, function: ast.FunctionDef, local: set[str]) -> Iterator[tuple[int, str]]:
        """Faults of the statements and annotations, in the order of the text."""
        annotations = [n.annotation for n in ast.walk(function) if isinstance(n, (ast.arg, ast.AnnAssign))]
        typed = {node for part in (*annotations, function.returns) if part for node in ast.walk(part)}
        calls = {node.func for node in ast.walk(function) if isinstance(node, ast.Call)}
        #: parts of a path that begins with a module: the whole path was looked at
        looked_at: set[ast.AST] = set()
        for node in _preorder([*function.body, *typed]):
            line = getattr(node, "lineno", function.lineno)
            if node in typed and isinstance(node, ast.Name) and node.id in {*_ANNOTATIONS, *self.modules}:
                continue
            if not isinstance(node, _SYNTAX):
                yield line, f"Python's {type(node).__name__}"
            elif isinstance(node, ast.Compare):
                if _asks_identity(node):
                    yield line, "`is`"
            elif isinstance(node, ast.Attribute):
                if path := self._path(node):
                    looked_at |= {n for n in ast.walk(node) if n is not node}
                    may = _allowed(path) or (node in typed and path == "torch.Tensor")
                    if not may and node not in looked_at:
                        yield line, path
                elif node.attr not in _OF_VALUES:
                    yield line, f".{node.attr}"
            elif isinstance(node, ast.Name) and node not in looked_at:
                known = (self.functions | _PYTHON) - local if node in calls else self.functions | local | self.constants
                if node.id not in known:
                    yield line, f"{node.id} as a function" if node.id in local else node.id

    def _path(self, node: ast.AST) -> str:
        """``triton.language.exp`` of ``tl.exp``; "" where it does not begin with a module."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.modules or not parts:
            return ""
        return ".".join((self.modules[node.id], *reversed(parts)))


def _asks_identity(node: ast.Compare) -> bool:
    """Does it compare by ``is``, but with None?"""
    by_identity = any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
    return by_identity and not any(isinstance(part, ast.Constant) and part.value is None for part in node.comparators)


def _allowed(path: str) -> bool:
    """Is it a name of Triton's that a kernel may use?"""
    module, _, name = path.rpartition(".")
    held = {"triton": _OF_TRITON, "triton.language": LANGUAGE, "triton.language.math": _MATH}
    return name in held.get(module, ())


def _preorder(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Each node before its parts, in the order of the text."""
    left = list(reversed(nodes))
    while left:
        node = left.pop()
        yield node
        left.extend(reversed(list(ast.iter_child_nodes(node))))
