"""Readable Python: names that do not clash, index expressions, no redundant parentheses."""

from __future__ import annotations

import ast
import keyword
import re
from functools import lru_cache

from kernellab import python_tree
from kernellab.sketch.program.ints import IntExpr, IntKind

_RESERVED = frozenset(keyword.kwlist) | {
    "tl", "triton", "torch", "range", "float", "int", "bool", "min", "max", "abs", "len", "print", "pid", "INDEX",
    "sum", "grid", "isinstance", "getattr", "list", "device", "kernel", "num_warps", "num_stages", "num_ctas",
}  # fmt: skip


class Names:
    """Python names for keys; a key keeps its name, and no two live keys have the same."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken: set[str] = set(taken) | _RESERVED
        self._by_key: dict[object, str] = {}

    def of(self, key: object, preferred: str) -> str:
        """Return the name of ``key``: the preferred one, with a number if that is taken."""
        if key not in self._by_key:
            self._by_key[key] = self.fresh(preferred)
        return self._by_key[key]

    def fresh(self, preferred: str) -> str:
        """Return a new name: the preferred one as an identifier, with a number if that is taken."""
        base = re.sub(r"\W", "_", preferred) or "v"
        base = f"v{base}" if base[0].isdigit() else base
        name, n = base, 2
        while name in self._taken:
            name, n = f"{base}_{n}", n + 1
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Allow ``name`` for another key: its key is out of scope."""
        self._taken.discard(name)


def python_int(expr: IntExpr, cdiv: str = "-(-({}) // ({}))") -> str:
    """Return an index expression as Python, whose ``//`` and ``%`` floor as the language's do; ``cdiv`` spells ceil(p,
    q).

    Python's operators take 0.05 us of each call, ``triton.cdiv`` would take 0.9 us."""
    if expr.kind is IntKind.NUM:
        return str(expr.value)
    if expr.kind is not IntKind.OP:
        return expr.name
    args = [python_int(a, cdiv) for a in expr.args]
    if expr.op == "cdiv":
        return cdiv.format(*args)
    if expr.op in ("min", "max"):
        return f"{expr.op}({', '.join(args)})"
    return f"({expr.op} {args[0]})" if len(args) == 1 else f"({args[0]} {expr.op} {args[1]})"


@lru_cache(maxsize=1 << 14)
def tidy(expression: str) -> str:
    """Return ``expression`` without redundant parentheses."""
    return ast.unparse(python_tree.parse(expression, mode="eval")).replace("'", '"')


__all__ = ["Names", "python_int", "tidy"]
