"""Does a right sketch need what an exercise asks it to use? It is run without it, against the task's reference."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import count, takewhile
from typing import Any, TypeVar

from kernellab import python_tree
from kernellab.sketch.cost.model import build
from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import (
    Apply,
    AtomicAdd,
    Const,
    DType,
    Kernel,
    Load,
    Loop,
    Program,
    Read,
    Statement,
    Store,
    TensorRole,
    Value,
)
from kernellab.sketch.program.walk import statements, subvalues
from kernellab.task import Task
from kernellab.teach.read.host_code import is_jitted
from kernellab.teach.wrong import ends, fails

T = TypeVar("T")


def needs(program: Program, task: Task, word: str) -> bool:
    """Is the sketch wrong without ``word``: an operation, whose last operand then stands for its result; a type, whose
    rounded values are then twice what they are; or "temp", whose stored values are then greater by 1? What is dead,
    multiplied by 0, taken away again or applied to one element is no use of it."""
    types = {dtype.value for dtype in DType}

    def change(part: Any) -> Any:
        match part:
            case Apply(op="cast") if word in types and part.type.dtype.value == word:
                return _with(part, "mul", 2)
            case Apply() if part.op == word:
                kept = part.args[-1]
                return kept if kept.type.shape == part.type.shape else Apply(part.type, "broadcast", (kept,))
            case Store() | AtomicAdd() if word == "temp" and part.region.tensor.role is TensorRole.TEMP:
                return replace(part, value=_with(part.value, "add", 1))
        return part

    other = _rebuilt(program, change)
    return other != program and (fails(other, task) or ends(other, task))


#: functions and methods of Triton that become an operation of TTIR; of those of a descriptor, methods
_CALLS: Mapping[str, frozenset[str]] = {
    "dot": frozenset(("dot", "dot_scaled")),
    "reduce": frozenset(("sum", "xor_sum", "max", "min", "reduce")),
    "descriptor_load": frozenset(("load", "load_tensor_descriptor")),
    "descriptor_store": frozenset(("store", "store_tensor_descriptor")),
}


def without(module: str, word: str) -> list[str]:
    """``module``, in Triton, changed where it calls the operation ``word`` of TTIR: with twice what it computes, loads
    or stores, of a ``dot`` twice its product; and with its first operand level, its middle in each place, which leaves
    what is computed of constants. A kernel that is right with one of them does not need the operation. Empty where no
    call becomes it."""
    texts = []
    for change in (_twice, _level) if word in ("dot", "reduce") else (_twice,):
        tree = python_tree.parse(module)
        imported = [alias for s in tree.body if isinstance(s, ast.ImportFrom) for alias in s.names]
        # the change's own names must be none of the module's
        language, operand = (next(n for n in _numbered(name) if n not in module) for name in ("language", "operand"))
        here = _twice if change is _twice else partial(_level, language=language, operand=operand)
        changing = _Changing(word, {alias.asname or alias.name: alias.name for alias in imported}, here)
        tree.body = [changing.visit(s) if isinstance(s, ast.FunctionDef) and is_jitted(s) else s for s in tree.body]
        if changing.calls:
            if change is _level:
                at = sum(1 for _ in takewhile(_comes_first, tree.body))
                tree.body.insert(at, python_tree.parse(f"import triton.language as {language}").body[0])
            texts.append(ast.unparse(ast.fix_missing_locations(tree)))
    return texts


def refilled(module: str) -> str:
    """``module``, in Triton, with what a sum ignores in each masked element that it loads, or where that is there
    already, with what a maximum does; "" where no load says what these hold."""
    tree = python_tree.parse(module)
    given = [
        keyword
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "load"
        for keyword in node.keywords
        if keyword.arg == "other"
    ]
    zero = all(isinstance(one.value, ast.Constant) and one.value.value == 0 for one in given)
    for keyword in given:
        keyword.value = python_tree.parse("-float('inf')" if zero else "0.0", mode="eval").body
    return ast.unparse(tree) if given else ""


def _comes_first(statement: ast.stmt) -> bool:
    """Is it a module's docstring, or an import from the future, before which no other may stand?"""
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    return future or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def _numbered(name: str) -> Iterator[str]:
    return (f"_{name}_{n}" for n in count())


#: the place and the names of the argument that is doubled, of a call whose result is not: a dot's third is what its
#: product is added to, and a store has none
_DOUBLED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "dot": (0, ("input", "lhs")),
    "descriptor_store": (-1, ("value",)),
}
_FIRST = (0, ("input", "lhs"))


class _Changing(ast.NodeTransformer):
    def __init__(self, word: str, imported: Mapping[str, str], change: Callable[[ast.expr], ast.expr]) -> None:
        self.word, self.imported, self.change, self.calls = word, imported, change, 0
        self.is_twice = change is _twice

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        of = getattr(node.func, "value", None)
        name = str(getattr(node.func, "attr", "") or getattr(node.func, "id", ""))
        # `tl.load` and `tl.store` take pointers
        pointers = name in ("load", "store") and getattr(of, "id", "tl") == "tl"
        if self.imported.get(name, name) not in _CALLS[self.word] or pointers:
            return node
        self.calls += 1
        if self.is_twice and self.word not in _DOUBLED:
            return _twice(node)
        place, names = _DOUBLED.get(self.word, _FIRST)
        named = next((keyword for keyword in node.keywords if keyword.arg in names), None)
        if named is not None:
            named.value = self.change(named.value)
        elif node.args:
            node.args[place] = self.change(node.args[place])
        elif isinstance(node.func, ast.Attribute):  # a method of the tile
            node.func.value = self.change(node.func.value)
        return node


def _twice(value: ast.expr) -> ast.expr:
    return ast.BinOp(value, ast.Mult(), ast.Constant(2))


def _level(value: ast.expr, language: str, operand: str) -> ast.expr:
    """The middle between the largest and the smallest element, in each place."""
    u, tl = operand, language
    text = f"({tl}.zeros_like({u} := VALUE) + ({tl}.max({u}) + {tl}.min({u})) / 2).to({u}.dtype)"
    tree = python_tree.parse(text, mode="eval").body
    named = next(node for node in ast.walk(tree) if isinstance(node, ast.NamedExpr))
    named.value = value
    return tree


def _with(value: Value, op: str, number: int) -> Apply:
    return Apply(value.type, op, (value, Const(value.type, number)))


def _rebuilt(item: T, change: Callable[[Any], Any]) -> T:
    """``item`` with ``change`` of each dataclass in it, the inner ones first."""
    if isinstance(item, tuple):
        return tuple(_rebuilt(part, change) for part in item)  # type: ignore[return-value]
    if not is_dataclass(item) or isinstance(item, (type, IntExpr)):
        return item
    parts = {f.name: _rebuilt(getattr(item, f.name), change) for f in fields(item) if f.name != "span"}
    new = replace(item, **parts)
    return change(new)  # type: ignore[no-any-return]


def moved(program: Program, names: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """The extents of what loads and stores move at the sizes and constants ``names``."""
    return tuple(
        tuple(extent.evaluate(names) for extent in region.shape)
        for kernel in program.kernels
        for stmt in statements(kernel.body)
        for region, _ in stmt.touches
    )


def pruned(program: Program) -> Program:
    """Without the loads that nothing reads."""
    every = [stmt for kernel in program.kernels for stmt in statements(kernel.body)]
    values = (value for stmt in every for root in stmt.values for value in subvalues(root))
    read = {value.tile.uid for value in values if isinstance(value, Read)}

    def change(part: Any) -> Any:
        if isinstance(part, (Kernel, Loop)):
            kept = (s for s in part.body if not isinstance(s, Load) or s.tile.uid in read)
            return replace(part, body=tuple(kept))
        return part

    return _rebuilt(program, change)


def shared(kernel: Kernel, names: Mapping[str, Any]) -> float:
    """Bytes that ``kernel`` moves at the sizes and constants ``names``, over those of the busiest of its parallel
    iterations: how many share the work. 0 where no iteration is found that moves any."""

    def bytes_of(part: Kernel) -> float:
        return build(part, names, 0).root.bytes_total

    busiest, at = kernel, dict(names)
    for loop in _parallel_loops(kernel.body):
        turns = range(*(end.evaluate(at) for end in (loop.start, loop.stop, loop.step)))
        while len(turns) > 1:
            halves = turns[: len(turns) // 2], turns[len(turns) // 2 :]
            parts = [_narrowed(busiest, loop.var, half) for half in halves]
            heavier = bytes_of(parts[1]) > bytes_of(parts[0])
            busiest, turns = parts[heavier], halves[heavier]
        if not turns:
            return 0.0
        at[loop.var] = turns[0]
    most = bytes_of(busiest)
    return bytes_of(kernel) / most if most else 0.0


def _parallel_loops(body: Sequence[Statement]) -> Iterator[Loop]:
    """The parallel loops of a nest, the outermost first."""
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.hints.parallel:
            yield stmt
            yield from _parallel_loops(stmt.body)


def _narrowed(kernel: Kernel, name: str, turns: range) -> Kernel:
    """The kernel with the parallel loop over ``name`` making ``turns`` alone."""

    def change(part: Any) -> Any:
        if isinstance(part, Loop) and part.hints.parallel and part.var == name:
            return replace(part, start=num(turns.start), stop=num(turns.stop), step=num(turns.step))
        return part

    return _rebuilt(kernel, change)
