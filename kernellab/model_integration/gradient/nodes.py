"""What a node of a traced graph is, and nodes for the sizes that a part of the graph needs.

Each node's ``meta["val"]`` is its value over symbolic sizes: a tensor without contents, or a number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Graph, Node
from torch.utils._sympy.functions import FloorDiv

from kernellab.operations.aten import role_of
from kernellab.operations.aten_row import Role

_PRODUCTS = (Role.PRODUCT, Role.CONVOLUTION)
#: the same elements in the same order, if their number is the same
_IN_ORDER = (Role.RESHAPE, Role.SAME, Role.CAST)
#: operations of sizes, as sympy names them
_SIZE_OPERATIONS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Mul: operator.mul, sympy.Add: operator.add, FloorDiv: operator.floordiv,
}  # fmt: skip


class _InputSize(NamedTuple):
    """Where a size is found: a dimension of an input."""

    tensor: Node
    dim: int
    size: torch.SymInt


class SizeNodes:
    """Numbers of a graph, written by the sizes of its inputs: no other value is computed for its size."""

    def __init__(self, inputs: Sequence[Node]) -> None:
        self._sizes: dict[Any, _InputSize] = {}
        for tensor in inputs:
            for dim, size in enumerate(shape_of(tensor)):
                if isinstance(size, torch.SymInt):
                    self._sizes.setdefault(size.node.expr, _InputSize(tensor, dim, size))

    def node(self, graph: Graph, value: Any, copies: Mapping[Node, Node]) -> Any:
        """``value`` in ``graph``, where ``copies`` has the inputs. Raises UnknownSize."""
        return value if isinstance(value, int) else self._of(graph, value.node.expr, copies)

    def _of(self, graph: Graph, expr: Any, copies: Mapping[Node, Node]) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr in self._sizes:
            tensor, dim, size = self._sizes[expr]
            node = graph.call_function(torch.ops.aten.sym_size.int, (copies[tensor], dim))
            node.meta["val"] = size
            return node
        operation = _SIZE_OPERATIONS.get(expr.func)
        if operation is None:
            raise UnknownSize(str(expr))

        def combined(one: Any, other: Any) -> Any:
            if isinstance(one, int) and isinstance(other, int):
                return operation(one, other)
            node = graph.call_function(operation, (one, other))
            node.meta["val"] = operation(*(n.meta["val"] if isinstance(n, Node) else n for n in (one, other)))
            return node

        return reduce(combined, (self._of(graph, part, copies) for part in expr.args))


class UnknownSize(Exception):
    """A size that is not a sum, product or quotient of the inputs' sizes."""


def root(node: Node) -> Node:
    """The value whose elements ``node`` has in the same order, perhaps rounded."""
    while keeps_order(node):
        node = node.all_input_nodes[0]
    return node


def keeps_order(node: Node) -> bool:
    """Has it the elements of its first operand, in the same order?"""
    if node.op != "call_function" or not is_tensor(node) or not word_of(node):
        return False
    may_keep = role_of(word_of(node)) in _IN_ORDER or word_of(node) in ("clone", "expand", "_to_copy")
    return may_keep and bool(node.all_input_nodes) and _same_number(node, node.all_input_nodes[0])


def _same_number(one: Node, other: Node) -> bool:
    if not is_tensor(other):
        return False
    # by the sizes of the trace, which are distinct primes: two forms of one number are then equal
    first, second = (math.prod(e if isinstance(e, int) else e.node.hint for e in shape_of(n)) for n in (one, other))
    return bool(first == second)


def call(graph: Graph, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Node:
    """A new node that calls ``target``, with its value."""
    node = graph.call_function(target, args, dict(kwargs or {}))
    values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
    node.meta["val"] = target(*values, **(kwargs or {}))
    return node


def word_of(node: Any) -> str:
    """``bmm`` of ``aten::bmm``; "" of what is no operator."""
    target: Any = getattr(node, "target", None)
    return str(target._schema.name.split("::")[1]) if hasattr(target, "_schema") else ""


def writes(node: Node) -> bool:
    """Does it write into an operand?"""
    target: Any = node.target
    return hasattr(target, "_schema") and bool(target._schema.is_mutable)


def is_product(node: Node) -> bool:
    return node.op == "call_function" and bool(word_of(node)) and role_of(word_of(node)) in _PRODUCTS


def is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def shape_of(node: Node) -> tuple[Any, ...]:
    """Its extents: numbers, or symbols of the trace."""
    return tuple(node.meta["val"].shape)
