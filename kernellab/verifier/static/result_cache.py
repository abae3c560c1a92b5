"""Returns of a value that a container outliving the call stores under a digest of the inputs' contents.

In an entry function that is the result itself. Another function may return weights that were packed once; whether its
value is a result shows at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from kernellab.verifier.static.names import Names


class CachedReturn(NamedTuple):
    """The container's name, the line of the return, and whether the stored value is what is returned, not a part of
    how it is computed."""

    container: str
    line: int
    is_result: bool


def cached_results(function: ast.FunctionDef, names: Names) -> Iterator[CachedReturn]:
    """Yield the returns of one function."""
    own = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    keys = {
        target.id
        for n in ast.walk(function) if isinstance(n, ast.Assign) and _digests(n.value, names)
        for target in n.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for statement in ast.walk(function):
        if not isinstance(statement, ast.Return) or statement.value is None:
            continue
        returned = _given_back(statement.value, names)
        for part in ast.walk(statement.value):
            if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id not in own:
                used = {n.id for n in ast.walk(part.slice) if isinstance(n, ast.Name)}
                if used & keys or _digests(part.slice, names):
                    yield CachedReturn(part.value.id, statement.lineno, part in returned)


def _given_back(value: ast.expr, names: Names) -> list[ast.expr]:
    """The expressions that give ``value``: itself, and the operands of methods or framework functions that copy or view
    them, in a tuple or not."""
    expressions, pending = list[ast.expr](), [value]
    while pending:
        node = pending.pop()
        expressions.append(node)
        match node:
            case ast.Call(func=ast.Attribute(value=held)) if not names.of(node.func).startswith("torch."):
                pending.append(held)
            case ast.Call(args=[held, *_]) if names.of(node.func).startswith(("torch.", "copy.", "tuple")):
                pending.append(held)
            case ast.Attribute(value=held) | ast.Subscript(value=ast.Subscript() as held) | ast.Starred(value=held):
                pending.append(held)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.BoolOp(values=items):
                pending += items
            case ast.IfExp(body=then, orelse=other):
                pending += [then, other]
    return expressions


def _digests(node: ast.AST, names: Names) -> bool:
    """Does it compute a key from a tensor's whole contents? ``x.shape`` and a few elements are not a digest."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    called = [names.of(c.func) for c in calls]
    methods = [c.func.attr for c in calls if isinstance(c.func, ast.Attribute)]
    is_hashed = any(n.startswith(("hashlib.", "zlib.crc32", "zlib.adler32", "xxhash.")) or n == "hash" for n in called)
    return is_hashed and any(m in ("tobytes", "tolist", "numpy") for m in methods)
