"""The parts of a source that can run on import and call: not ``__main__`` blocks, nor what only they use."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from kernellab.verifier.static.names import Names

#: ways to reach a module's functions without their names
_INDIRECT = frozenset(("globals", "locals", "vars", "exec", "eval", "compile", "__import__", "__name__"))
_INDIRECT_ATTRIBUTES = frozenset(("__dict__", "__globals__", "modules", "getmembers"))
#: functions that fetch an attribute by a name that may be computed at run time
_FETCHES = frozenset(("getattr", "attrgetter", "methodcaller"))
#: functions that run a file again, under a chosen name
_LOADERS = frozenset(("runpy", "run_path", "run_module", "SourceFileLoader", "spec_from_file_location"))


def reached(trees: Mapping[str, ast.Module], called: Collection[str]) -> dict[str, ast.Module]:
    """The trees without ``if __name__ == "__main__":`` blocks and the functions that only these call. Functions of the
    names ``called`` are called from outside.

    All trees are unchanged if a file names ``__main__`` elsewhere or may reach functions in other ways than by their
    names.
    """
    if any(_says_main(tree) for tree in trees.values()):
        return dict(trees)
    without = {file: _without_main(tree) for file, tree in trees.items()}
    words = Counter(word for tree in without.values() for word in _words(tree))
    if any(_indirect(node) for tree in without.values() for node in ast.walk(tree)) or _fetches(without):
        return without
    return {file: _without_unused(tree, trees[file], words, called) for file, tree in without.items()}


def _indirect(node: ast.AST) -> bool:
    by_name = isinstance(node, ast.Name) and node.id in _INDIRECT
    return by_name or (isinstance(node, ast.Attribute) and node.attr in _INDIRECT_ATTRIBUTES)


def _fetches(trees: Mapping[str, ast.Module]) -> bool:
    """Does a file import one of these, and does any fetch an attribute by a computed name?"""
    own = {"kernel_source", *(file.removesuffix(".py").split("/")[0] for file in trees)}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    modules = (m for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for m in _imported(n))
    return any(m.split(".")[0] in own for m in modules) and any(_is_made(n) for n in nodes)


def _is_made(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = getattr(node.func, "id", getattr(node.func, "attr", ""))
    named = node.args[1:2] if function == "getattr" else node.args[:1]
    return function in _FETCHES and not all(isinstance(a, ast.Constant) for a in named)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]


def _without_main(tree: ast.Module) -> ast.Module:
    return ast.Module(body=[n for n in tree.body if not _is_main(n)], type_ignores=[])


def _without_unused(tree: ast.Module, whole: ast.Module, words: Counter[str], called: Collection[str]) -> ast.Module:
    """Reduce functions that only ``__main__`` blocks name, at any depth, to their heads."""
    main = [n for n in whole.body if _is_main(n)]
    words, dropped = Counter(words), set[str]()
    used = {word for block in main for word in _words(block)}
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name not in called]
    while True:
        unused = [
            f for f in functions
            if f.name in used and f.name not in dropped and words[f.name] <= list(_words(f)).count(f.name)
        ]  # fmt: skip
        if not unused:
            break
        for function in unused:
            dropped.add(function.name)
            inside = Counter(word for statement in function.body for word in _words(statement))
            words -= inside
            used |= set(inside)
    return ast.Module(body=[_head(n) if getattr(n, "name", "") in dropped else n for n in tree.body], type_ignores=[])


def _head(node: ast.stmt) -> ast.stmt:
    """A function without its body: decorators and defaults run at its definition."""
    assert isinstance(node, ast.FunctionDef)
    fields = {name: getattr(node, name) for name in node._fields}
    return ast.copy_location(type(node)(**{**fields, "body": [ast.copy_location(ast.Pass(), node)]}), node)


def _words(tree: ast.AST) -> Iterator[str]:
    """Names, attributes, imported names, and strings that could be names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 100:
            yield node.value


def _says_main(tree: ast.Module) -> bool:
    """Does anything but the usual test name ``__main__`` or ``__name__`` in a string, bind it, or load a file again?"""
    tests = {id(part) for n in tree.body if _is_main(n) and isinstance(n, ast.If) for part in ast.walk(n.test)}
    names = Names(tree)
    for node in ast.walk(tree):
        if id(node) in tests:
            continue
        if isinstance(node, ast.Name) and node.id == "__name__" and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, (ast.Constant, ast.BinOp, ast.JoinedStr, ast.Call)):
            text = names.text(node)
            if text in ("__main__", "__name__"):
                return True
    return bool(_LOADERS & set(_words(tree)))


def _is_main(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If) or node.orelse:
        return False
    match node.test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return True
    return False
