"""Functions that a lowered kernel may call; the lowering copies the text of those that it uses.

Only ``tl`` operations that run both on a GPU and in Triton's interpreter (``libdevice`` does not), so what is tested
without a GPU is what runs on one. For the interpreter some have other bodies, in interpreter.py.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kernellab import python_tree
from kernellab.lowering.triton.text import names_in

#: modules of functions, in the order in which a generated file has them
MODULES = ("synchronize", "arithmetic", "functions", "reductions", "casts", "sort_keys", "rows")


def library(named: frozenset[str], *, interpreter: bool) -> str:
    """Return the library functions among ``named`` and those that they call, in the library's order."""
    table: dict[str, Function] = {}
    for module in (*MODULES, *(["interpreter"] if interpreter else [])):
        table.update(_functions(module))
    wanted: set[str] = set()
    worklist = set(named)
    while worklist:
        name = worklist.pop()
        if name in table and name not in wanted:
            wanted.add(name)
            worklist |= table[name].names
    return "\n\n".join(f"{function.text}\n" for name, function in table.items() if name in wanted)


@dataclass(frozen=True)
class Function:
    """A function of the library: its text, and the names in its body."""

    text: str
    names: frozenset[str]


@cache
def _functions(module: str) -> dict[str, Function]:
    source = (files(__name__) / f"{module}.py").read_text()
    tree = python_tree.parse(source)
    lines = source.splitlines()
    return {
        node.name: Function("\n".join(lines[node.decorator_list[0].lineno - 1 : node.end_lineno]), names_in(node))
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


__all__ = ["MODULES", "library"]
