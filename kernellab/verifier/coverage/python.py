"""Statements of a candidate's Python that did not run, from the places of the instructions that did."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from kernellab import python_tree
from kernellab.verifier.coverage.inside import places
from kernellab.verifier.coverage.native import Gap
from kernellab.verifier.static.reached import reached

Place = tuple[int, int, int, int]
#: what is one value on a machine, and the modules that say it
_MACHINE = frozenset(("platform.system()", "platform.machine()", "sys.platform", "os.name"))
_MODULES = frozenset(("platform", "sys", "os"))
_DTYPE = re.compile(r"(?:torch|tl|triton\.language)\.b?(?:u?int|float|complex)\w*")
_NO_MODULE = ("ImportError", "ModuleNotFoundError")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Code:
    """The Python of a candidate's ``files``, without what only a ``__main__`` block runs; ``entry`` is called."""

    def __init__(self, files: Mapping[str, str], entry: str = "kernel") -> None:
        trees, self.places = dict[str, ast.Module](), dict[str, set[Place]]()
        for name, text in files.items():
            if name.endswith(".py"):
                try:
                    trees[name] = python_tree.parse(text)
                    self.places[name] = {place for _, place in _all(compile(text, name, "exec", dont_inherit=True))}
                except (SyntaxError, ValueError, RecursionError):
                    continue
        self.entry = entry
        self.trees = reached(trees, (entry,))

    def ran(self, told: Any) -> set[tuple[Any, ...]]:
        """Return file and place of what ran, by the process's report of the places in each file."""
        found = set[tuple[Any, ...]]()
        for name, places_of in told.items() if isinstance(told, dict) else ():
            if name in self.trees and isinstance(places_of, list):
                found |= {(name, *p) for p in places_of if isinstance(p, list) and len(p) == 4 and _are_whole(p)}
        return found

    def gaps(self, ran: Collection[tuple[Any, ...]]) -> list[Gap]:
        """Return what did not run, where ``ran`` holds file and place of what did."""
        found: list[Gap] = []
        for name, tree in self.trees.items():
            known = {r[1:] for r in ran if r[0] == name}
            # a file that was never imported ran nowhere: its importer says so
            if known:
                found += _Walk(name, self.places[name], known, self.entry).gaps(tree)
        return found


def _are_whole(numbers: Collection[Any]) -> bool:
    return all(isinstance(n, int) for n in numbers)


def _all(code: CodeType) -> Iterator[tuple[int, Place]]:
    yield from places(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)


class _Walk:
    """A walk through the statements of one file."""

    def __init__(self, file: str, every: set[Place], ran: set[tuple[Any, ...]], entry: str) -> None:
        self.file, self.every, self.ran, self.entry = file, sorted(every), sorted(ran), entry
        self.found: list[Gap] = []
        self._bound: set[str] = set()

    def gaps(self, tree: ast.Module) -> list[Gap]:
        self._bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._bound |= {n.name for n in ast.walk(tree) if isinstance(n, (*_DEFINITIONS, ast.ClassDef))}
        self._bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        self._bound |= {n.asname for n in ast.walk(tree) if isinstance(n, ast.alias) and n.asname}
        self._block(tree.body, 0)
        named = {self.entry} | {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree)
            if isinstance(node, (ast.Name, ast.Attribute)) and self._did(node)
        }
        for function in (n for n in ast.walk(tree) if isinstance(n, _DEFINITIONS)):
            body = [s for s in function.body if self._has(s)]
            if body and function.name in named and not any(self._did(s) for s in body) and not _checks(function.body):
                lines = tuple(sorted({line for s in body for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}))
                self.found.append(Gap(self.file, lines, 0, False))
        return self.found

    def _inside(self, node: ast.AST, among: list[Any]) -> bool:
        """Does one of the places, in order, lie in a node?"""
        first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        places = among[bisect_left(among, (first[0],)) : bisect_left(among, (last[0] + 1,))]
        return any(first <= (p[0], p[1]) and (p[2], p[3]) <= last if p[1] >= 0 else True for p in places)

    def _did(self, node: ast.AST) -> bool:
        """Did an instruction of a node run? Of one whose columns another parser moved, the line says so."""
        return self._inside(node, self.ran)

    def _has(self, node: ast.AST) -> bool:
        """Has a node instructions?"""
        return self._inside(node, self.every)

    def _block(self, body: Sequence[ast.stmt], guard: int, whole: bool = False) -> None:
        """Look at statements, of which the first is run if the condition in the line ``guard`` decides for them.
        ``whole``: they are a function's, so that no name of theirs is read later."""
        with_code = [s for s in body if self._has(s)]
        if not with_code:
            return
        if not any(self._did(s) for s in with_code):
            if guard and not _raises(body):
                lines = {line for s in with_code for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
                self.found.append(Gap(self.file, tuple(sorted(lines)), guard, False))
            return
        for number, statement in enumerate(with_code):
            if whole and _leaves_checks(statement, with_code[number + 1 :]):
                # neither way does anything but raise
                return
            if not self._did(statement):
                # the statements before it left the block: the last condition in them decided
                rest = with_code[number:]
                if not (_checks(rest) if whole else _raises(rest)):
                    lines = {line for s in rest for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
                    before = with_code[number - 1].lineno if number else guard
                    self.found.append(Gap(self.file, tuple(sorted(lines)), before, False))
                return
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, _DEFINITIONS):
            if any(self._did(s) for s in node.body):
                self._block(node.body, 0, whole=True)
            return
        if isinstance(node, ast.ClassDef):
            self._block(node.body, 0)
            return
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                if isinstance(node, ast.If) and self._asks_machine(node.test) and not any(map(self._did, inner)):
                    continue
                if name == "body" and self._misses_module(node):
                    continue
                self._block(inner, node.lineno)
        for handler in getattr(node, "handlers", ()):
            if not _is_of_module(handler) or any(map(self._did, handler.body)):
                self._block(handler.body, handler.lineno)
        for case in getattr(node, "cases", ()):
            self._block(case.body, case.pattern.lineno)
        self._parts(node)

    def _misses_module(self, node: ast.stmt) -> bool:
        """Has a try statement ended because this machine has no such module?"""
        handlers = node.handlers if isinstance(node, ast.Try) else []
        return any(_is_of_module(handler) and any(map(self._did, handler.body)) for handler in handlers)

    def _asks_machine(self, test: ast.expr) -> bool:
        """Does a condition compare the system, the machine or a dtype with a constant? It decides in one way here: a
        verdict holds for the task's dtypes."""
        if isinstance(test, ast.Name):
            return test.id == "TYPE_CHECKING" and test.id not in self._bound
        if not isinstance(test, ast.Compare):
            return False
        if isinstance(test.left, ast.Attribute) and test.left.attr == "dtype":
            every = [c.elts if isinstance(c, ast.Tuple) else [c] for c in test.comparators]
            return all(_DTYPE.fullmatch(ast.unparse(one)) for some in every for one in some)
        if _MODULES & self._bound:
            return False
        asked, *rest = (ast.unparse(side) for side in (test.left, *test.comparators))
        constants = all(isinstance(n, (ast.Constant, ast.Tuple, ast.expr_context)) for c in test.comparators
                        for n in ast.walk(c))  # fmt: skip
        return asked in _MACHINE and bool(rest) and constants

    def _parts(self, node: ast.stmt) -> None:
        """Find the sides of a conditional expression of a statement that did not run."""
        for part in _expressions(node):
            sides: list[ast.expr] = []
            if isinstance(part, ast.IfExp):
                sides = [part.body, part.orelse]
            elif isinstance(part, ast.BoolOp):
                sides = part.values[1:]
            if self._did(part) and any(self._has(s) and not self._did(s) for s in sides):
                self.found.append(Gap(self.file, (part.lineno,), part.lineno, True))


def _is_of_module(handler: ast.ExceptHandler) -> bool:
    return handler.type is not None and ast.unparse(handler.type) in _NO_MODULE


def _expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, without its inner statements, and without conditions, whose blocks say it all."""
    waiting: list[ast.AST] = [node]
    while waiting:
        for name, value in ast.iter_fields(waiting.pop()):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr) and name != "test":
                    yield child
                if isinstance(child, ast.AST) and not isinstance(child, ast.stmt) and name not in ("test", "handlers"):
                    waiting.append(child)


def _raises(body: Sequence[ast.stmt]) -> bool:
    """Does a block do nothing but raise, where it is reached?"""
    last = body[-1] if body else None
    if isinstance(last, ast.Assert):
        return len(body) == 1
    return isinstance(last, ast.Raise)


def _checks(body: Sequence[ast.stmt]) -> bool:
    """Does a function's end do nothing but raise, or compute what a last condition needs that raises?"""
    last = body[-1] if body else None
    if isinstance(last, ast.If) and not last.orelse and _raises(last.body):
        return all(map(_computes, body[:-1]))
    return _raises(body)


def _computes(node: ast.stmt) -> bool:
    """Does a statement only assign to names, without a call?"""
    if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for n in ast.walk(node)):
        return False
    if isinstance(node, ast.For):
        return isinstance(node.target, ast.Name) and not node.orelse and all(map(_computes, node.body))
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)


def _leaves_checks(node: ast.stmt, rest: Sequence[ast.stmt]) -> bool:
    """Does a statement return nothing at once, or go on to a function's end that does nothing but raise?"""
    if not (isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse and rest and _checks(rest)):
        return False
    return isinstance(node.body[0], ast.Return) and node.body[0].value is None
