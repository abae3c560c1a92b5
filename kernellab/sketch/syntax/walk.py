"""Iteration over the syntax tree, shared by several passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kernellab.sketch.syntax import tree


def statements(body: tuple[tree.Stmt, ...]) -> Iterator[tree.Stmt]:
    """Yield every statement in ``body``, outer before inner."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, tree.For):
            yield from statements(stmt.body)
        elif isinstance(stmt, tree.If):
            yield from statements(stmt.then)
            yield from statements(stmt.orelse)


#: the fields of each kind of node that may hold nodes
_PARTS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind) if f.name not in ("span", "comments"))
    for kind in vars(tree).values()
    if isinstance(kind, type) and is_dataclass(kind) and kind not in (tree.Span, tree.Comments)
}


def nodes(node: object) -> Iterator[Any]:
    """Yield ``node`` and every node below it, in the order of the text; for a tuple, those of its parts."""
    if isinstance(node, tuple):
        for part in node:
            yield from nodes(part)
        return
    parts = _PARTS.get(type(node))
    if parts is not None:
        yield node
        for name in parts:
            yield from nodes(getattr(node, name))


def is_node(node: object) -> bool:
    """Is it a node of the tree? A tuple of nodes, a span or a word is not."""
    return type(node) in _PARTS


def mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a node with ``change`` applied to each of its parts, words and numbers included; for a tuple, to each
    item."""
    if isinstance(node, tuple):
        return tuple(map(change, node))
    parts = _PARTS.get(type(node))
    return node if parts is None else replace(node, **{name: change(getattr(node, name)) for name in parts})


def names(node: object) -> Iterator[str]:
    """Return the names that are values in ``node`` (a node or a tuple of them), without those of functions and
    subscripts."""
    return (n.id for n in nodes(node) if isinstance(n, tree.Name))


def destination(call: tree.Call) -> tree.Expr | None:
    """Return the destination of an operation in call spelling: ``dst=`` (``acc=`` of a gemm), else the last positional
    argument."""
    for keyword in call.keywords:
        if keyword.name in ("dst", "acc"):
            return keyword.value
    return call.args[-1] if call.args else None


def written(stmt: tree.Stmt) -> tuple[str, ...]:
    """Return the names of tiles that a simple statement writes."""
    if isinstance(stmt, tree.Assign):
        return tuple(t.id for t in stmt.targets)
    if isinstance(stmt, tree.Move):
        return (stmt.dest.id,) if isinstance(stmt.dest, tree.Name) else ()
    if isinstance(stmt, tree.CallStmt):
        dest = destination(stmt.call)
        return (dest.id,) if isinstance(dest, tree.Name) else ()
    return ()


def touched(stmt: tree.Stmt) -> tuple[str, ...]:
    """Return every name in a simple statement, without those of functions; for a statement with a body, those of its
    header."""
    header = stmt.range if isinstance(stmt, tree.For) else stmt.cond if isinstance(stmt, tree.If) else stmt
    named = (n for n in nodes(header) if isinstance(n, (tree.Name, tree.Subscript)))
    return tuple(dict.fromkeys(n.id if isinstance(n, tree.Name) else n.name for n in named))


def is_written(name: str, body: tuple[tree.Stmt, ...]) -> bool:
    """Does any statement in ``body`` write ``name``?"""
    return any(name in written(stmt) for stmt in statements(body))


def library_call(stmt: tree.Stmt) -> tree.Call | None:
    """Return the call of ``library.`` in ``stmt``, as a value or alone; None for any other statement."""
    call = stmt.value if isinstance(stmt, tree.Assign) else stmt.call if isinstance(stmt, tree.CallStmt) else None
    return call if isinstance(call, tree.Call) and call.func.startswith("library.") else None


def tensor_of(expr: tree.Expr) -> tree.Name | None:
    """Return the name of the tensor in a move: ``X[...]``, or ``X`` alone."""
    if isinstance(expr, tree.Subscript):
        return tree.Name(expr.name, expr.span)
    return expr if isinstance(expr, tree.Name) else None


#: most definitions of index names that are followed one into another; chosen, not measured
_MOST_DEFINITIONS = 3


def index_names(sketch: tree.Sketch) -> set[str]:
    """Return the names in places of index expressions: extents, ranges, slices, conditions of ``if``."""
    collected: set[str] = set()
    assigned: dict[str, tree.Expr] = {}
    for declaration in sketch.declarations:
        for item in declaration.items:
            if isinstance(item, tree.TensorDecl):
                collected.update(names(item.shape))
    for stmt in statements(sketch.body):
        match stmt:
            case tree.For():
                collected.update(names(stmt.range))
            case tree.If():
                collected.update(names(stmt.cond))
            case tree.Move():
                places = (e for e in (stmt.source, stmt.dest) if isinstance(e, tree.Subscript))
                collected.update(n for place in places for n in names(place))
            case tree.Assign():
                collected.update(_extents(stmt.value))
                if not isinstance(stmt.value, tree.Call):
                    assigned.update((t.id, stmt.value) for t in stmt.targets)
            case tree.CallStmt():
                collected.update(_extents(stmt.call))
    # row = pid * BLOCK: the names in the definition of an index name, and in theirs
    for _ in range(_MOST_DEFINITIONS):
        more = {n for name in collected & assigned.keys() for n in names(assigned[name])} - collected
        if not more:
            break
        collected |= more
    return collected


#: operations whose result has the shape in this argument
_SHAPED = {"alloc": 0, "full": 0, "reshape": 1, "broadcast": 1, "arange": 0, "load": 0}


def _extents(expr: tree.Expr) -> Iterator[str]:
    """Yield the names in extents of tiles that ``expr`` makes, also inside operands."""
    match expr:
        case tree.Call():
            if expr.func in _SHAPED:
                position = _SHAPED[expr.func]
                yield from names(expr.args if expr.func == "arange" else expr.args[position : position + 1])
                yield from names(tuple(k.value for k in expr.keywords if k.name == "shape"))
            for arg in expr.args:
                yield from _extents(arg)
        case tree.Binary():
            yield from _extents(expr.left)
            yield from _extents(expr.right)
        case tree.Unary():
            yield from _extents(expr.operand)
