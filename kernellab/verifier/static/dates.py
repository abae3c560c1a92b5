"""Uses of a date, by which a source may distinguish the day of a verification from a later one.

A date may measure a span: it may be kept, subtracted from another number that is no constant, and compared with other
dates (a file that is older than its source). Anything else is a use. Names under which a date is kept are followed, in
the function that they are local to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from kernellab.verifier.static.names import Names, last_name

#: calls that return a date, and attributes of a file's status that do
_CALLS = frozenset((
    "time.time", "time.time_ns", "time.clock_gettime", "time.clock_gettime_ns", "os.path.getmtime", "os.path.getctime",
    "os.path.getatime", "email.utils.formatdate",
))  # fmt: skip
_STAMPS = re.compile(r"^st_(?:[mac]|birth)time(?:_ns)?$")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def dates(tree: ast.AST, names: Names) -> Iterator[int]:
    """Lines where a date is used other than to measure a span."""
    file = _File(tree, names)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and file.is_date(node) and not file.measures_span(node):
            yield node.lineno


class _Variable(NamedTuple):
    """A name that holds a date, and the function that it is local to; None for an attribute or the whole file."""

    name: str
    function: ast.AST | None


class _File:
    """One file's expressions that are dates, directly or by the name under which one is kept."""

    def __init__(self, tree: ast.AST, names: Names) -> None:
        self.names = names
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.kept: set[_Variable] = set()
        assignments = [n for n in ast.walk(tree) if isinstance(n, (ast.Assign, ast.AnnAssign, ast.NamedExpr))]
        count = -1
        while count < len(self.kept):  # a date may be kept under one name after another
            count = len(self.kept)
            for assignment in assignments:
                if assignment.value is not None and self.is_date(assignment.value):
                    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
                    self.kept |= {_Variable(last_name(t), self._home(t)) for t in targets if last_name(t)}

    def is_date(self, node: ast.AST) -> bool:
        return self._makes_date(node) or self._is_kept(node)

    def measures_span(self, node: ast.expr) -> bool:
        """Does a date's parent keep it, subtract it, or compare it with dates?"""
        match self.parents.get(node):
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.Expr() | ast.Attribute() | None:
                return True
            case ast.Call() as call:
                return self._makes_date(call)
            case ast.GeneratorExp() | ast.ListComp() as several:
                return self._makes_date(self.parents.get(several, several))
            case ast.BinOp(op=ast.Sub(), left=left, right=right):
                return not isinstance(right if left is node else left, ast.Constant)
            case ast.Compare(left=left, comparators=others):
                return all(any(map(self.is_date, ast.walk(side))) for side in (left, *others))
        return False

    def _makes_date(self, node: ast.AST) -> bool:
        if isinstance(node, ast.NamedExpr):
            return self._makes_date(node.value)
        if isinstance(node, ast.Call):  # the latest or first of some is one too
            is_choice = isinstance(node.func, ast.Name) and node.func.id in ("max", "min")
            of_dates = is_choice and any(self._makes_date(part) for a in node.args for part in ast.walk(a))
            return of_dates or self.names.of(node.func) in _CALLS
        return isinstance(node, ast.Attribute) and _STAMPS.match(node.attr) is not None

    def _is_kept(self, node: ast.AST) -> bool:
        """Does a name or attribute that is read hold a date?"""
        name = last_name(node)
        if not name or not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            return False
        homes = [None, *self._functions(node)] if isinstance(node, ast.Name) else [None]
        return any(_Variable(name, home) in self.kept for home in homes)

    def _functions(self, node: ast.AST) -> list[ast.AST]:
        """The functions around a node, the innermost first."""
        functions: list[ast.AST] = []
        while (outer := self.parents.get(node)) is not None:
            node = outer
            if isinstance(node, _FUNCTIONS):
                functions.append(node)
        return functions

    def _home(self, target: ast.AST) -> ast.AST | None:
        """The function whose local variable a target is."""
        inner = next(iter(self._functions(target)), None) if isinstance(target, ast.Name) else None
        is_shared = inner is not None and any(
            isinstance(s, (ast.Global, ast.Nonlocal)) and last_name(target) in s.names for s in ast.walk(inner)
        )
        return None if is_shared else inner
