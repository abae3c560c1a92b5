"""Loop variables of a grid are its own: a loop before an inner parallel loop, which every iteration of that runs again,
gets another variable where it has the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernellab.sketch.syntax import tree, walk
from kernellab.sketch.syntax.walk import mapped


def distinct(body: tuple[tree.Stmt, ...]) -> tuple[tree.Stmt, ...]:
    """``body`` with the variables of such loops renamed; itself where there is none."""
    grid = [loop.var for loop in walk.statements(body) if isinstance(loop, tree.For) and _is_parallel(loop)]
    if not any(isinstance(s, tree.For) and not _is_parallel(s) and s.var in grid for s in walk.statements(body)):
        return body
    taken = {s.var for s in walk.statements(body) if isinstance(s, tree.For)}
    return tuple(_distinct(stmt, taken) for stmt in body)


def _distinct(stmt: tree.Stmt, taken: set[str]) -> tree.Stmt:
    if not isinstance(stmt, tree.For) or not _is_parallel(stmt):
        return stmt
    inner = {s.var for s in walk.statements(stmt.body) if isinstance(s, tree.For) and _is_parallel(s)}
    return replace(stmt, body=tuple(_distinct(_renamed(part, inner, taken), taken) for part in stmt.body))


def _renamed(stmt: tree.Stmt, inner: set[str], taken: set[str]) -> tree.Stmt:
    """A statement whose sequential loops have none of the variables ``inner``."""
    if isinstance(stmt, tree.For) and _is_parallel(stmt):
        return stmt
    clashes = {s.var for s in walk.statements((stmt,)) if isinstance(s, tree.For)} & inner
    changes: dict[str, str] = {}
    for var in sorted(clashes):
        name = next(f"{var}_{n}" for n in range(1, len(taken) + 2) if f"{var}_{n}" not in taken)
        taken.add(name)
        changes[var] = name
    return _changed(stmt, changes) if changes else stmt


def _changed(node: Any, changes: dict[str, str]) -> Any:
    if isinstance(node, tree.Name):
        return replace(node, id=changes.get(node.id, node.id))
    made = mapped(node, lambda part: _changed(part, changes))
    return replace(made, var=changes.get(node.var, node.var)) if isinstance(node, tree.For) else made


def _is_parallel(loop: tree.For) -> bool:
    return any(hint.args[:1] == (tree.Str("parallel"),) for hint in loop.hints)
