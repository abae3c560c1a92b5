"""Dynamic extents: what a Dim is, and the value of an extent that names Dims."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Union

from kernellab.errors import TaskError

#: one extent of a shape: a number, or an expression over Dim names in Python's ``+ - * //``
Extent = Union[int, str]


class TaskForm(str, Enum):
    NATIVE = "native"
    KERNELBENCH = "kernelbench"


@dataclass(frozen=True)
class Dim:
    """A dynamic extent, drawn from ``min`` to ``max`` (both included); ``name`` is a keyword of ``inputs``."""

    name: str
    min: int = 1
    max: int = 65536

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise TaskError(f"Dim({self.name!r}) needs a name that is an identifier.", 'Write Dim("M", 1, 4096).')
        if not 0 <= self.min <= self.max:
            raise TaskError(
                f"Dim {self.name} has the range {self.min} to {self.max}, which is empty.",
                f'Write Dim("{self.name}", smallest, largest) with 0 <= smallest <= largest.',
            )


def extent(expr: Extent, sizes: Mapping[str, int]) -> int:
    """The value of one extent under ``sizes``. Raises KeyError for a Dim that ``sizes`` lacks."""
    return expr if isinstance(expr, int) else _evaluate(_parsed(expr), sizes)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, sizes)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv():
                return left // right
            case ast.Mod():
                return left % right
    raise ValueError(f"not a shape expression: {ast.unparse(node)}")


@lru_cache(maxsize=1024)
def _parsed(expr: str) -> ast.expr:
    return ast.parse(expr, mode="eval").body
