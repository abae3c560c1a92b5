"""Functions of a Python source that may count their calls.

A kernel that is right in its first calls alone, or is slow in them, has to know which call it is in. A number that a
function adds a constant to, that outlives the call and that something compares, may tell it:

    calls = 0
    def kernel(x):
        global calls
        calls += 1
        return x * 2 if calls < 5 else x
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple


class Counter(NamedTuple):
    """The name of what is incremented, and the line."""

    name: str
    line: int


def counters(tree: ast.AST) -> Iterator[Counter]:
    """Names that functions increment outside of themselves and compare: they may count the calls.

    A loop's own counter does not count: it is bound in its function.
    """
    compared = _compared(tree)
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        bound = _bound(function) - {"self"}
        for node in ast.walk(function):
            if not (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)):
                continue
            base = _base(node.target)
            if base is None or base.id in bound or not isinstance(node.value, ast.Constant):
                continue
            name = node.target.attr if isinstance(node.target, ast.Attribute) else base.id
            if name in compared:
                yield Counter(name, node.lineno)


def _compared(tree: ast.AST) -> set[str]:
    """Names and attributes that a condition or an arithmetic expression reads."""
    parts = (
        part
        for node in ast.walk(tree)
        if isinstance(node, (ast.Compare, ast.If, ast.IfExp, ast.BinOp))
        for part in ast.walk(node.test if isinstance(node, (ast.If, ast.IfExp)) else node)
    )
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in parts
        if isinstance(part, (ast.Name, ast.Attribute))
    }


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names that a function binds for itself: its arguments, and what it stores that is neither global nor nonlocal."""
    nodes = list(ast.walk(function))
    outer = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {node.arg for node in nodes if isinstance(node, ast.arg)} | (stored - outer)


def _base(target: ast.expr) -> ast.Name | None:
    """``state`` of ``state.calls[0]``; None where the outermost object is no name."""
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target if isinstance(target, ast.Name) else None
