"""Stand-ins for modules that are not installed, so that a task that imports one without using it runs."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from typing import NoReturn

from kernellab import python_tree


class Absent:
    """A name from a module that is not installed; every use of it raises ImportError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> NoReturn:
        raise ImportError(f"{self._name} is not installed")

    def __getattr__(self, name: str) -> NoReturn:
        # special methods that Python looks up do not exist
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __call__(self, *args: object, **keywords: object) -> NoReturn:
        self._refuse()


def without_missing(text: str) -> str:
    """Return ``text`` with every top-level import of a module that is not installed replaced by :class:`Absent` names.

    A name that the text defines before the import stays. Lines keep their numbers; text with a syntax error is
    unchanged."""
    try:
        tree = python_tree.parse(text)
    except SyntaxError:
        return text
    lines = text.split("\n")
    defined: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        names = _missing(node)
        if names is None:
            continue
        kept = [f"{name} = Absent({source!r})" for name, source in names.items() if name not in defined]
        instead = "; ".join(["from kernellab.task.call_inputs.absent import Absent", *kept])
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        lines[first:last] = [instead, *[""] * (last - first - 1)]
    return "\n".join(lines)


def _missing(node: ast.stmt) -> dict[str, str] | None:
    """Return the names that an import of missing modules binds, with the missing names; None for any other
    statement."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
        names = {a.asname or a.name.split(".")[0]: a.name for a in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        modules = [node.module]
        names = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names if a.name != "*"}
    else:
        return None
    return names if any(find_spec(m.split(".")[0]) is None for m in modules) else None
