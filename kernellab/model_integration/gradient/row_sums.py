"""Sums along the rows of a product, taken by the product's result.

The backward of a softmax W = softmax(S) with a result O = W V needs the sum of each row of W * (G V^T), with G the
gradient of O. That is the sum of each row of G * O: of two results, without the product G V^T.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from kernellab.model_integration.gradient.nodes import SizeNodes, call, root, shape_of, word_of


def sum_by_results(graph: Graph, sizes: SizeNodes) -> None:
    """Write each sum along the rows of W times (G times V transposed) as that of G times (W times V), where W times V
    is computed: the sums that a softmax's backward takes are then of results, not of products."""
    products = [n for n in graph.nodes if word_of(n) in ("bmm", "mm")]
    sums: list[Any] = [n for n in graph.nodes if word_of(n) == "sum" and len(n.args) > 2 and n.args[2]]
    for total in sums:
        match = _match(total, products)
        if match is not None:
            _replace(graph, sizes, total, match)


class _Match(NamedTuple):
    """G, and W times V, of a sum along the rows of W times (G times V transposed)."""

    rows: Node
    result: Node


def _match(total: Any, products: Sequence[Any]) -> _Match | None:
    factors: Any = total.args[0]
    if word_of(factors) != "mul":
        return None
    rank = len(shape_of(factors))
    if [d % rank for d in total.args[1]] != [rank - 1]:
        return None
    for shares, other in (factors.args, factors.args[::-1]):
        match = _through(shares, other, products, factors) if isinstance(other, Node) else None
        if match is not None:
            return match
    return None


def _replace(graph: Graph, sizes: SizeNodes, total: Any, match: _Match) -> None:
    dtype = total.meta["val"].dtype
    with graph.inserting_before(total):
        wide = [call(graph, torch.ops.aten._to_copy.default, (n,), {"dtype": dtype}) for n in match]
        value = call(graph, torch.ops.aten.mul.Tensor, tuple(wide))
        short = call(graph, torch.ops.aten.sum.dim_IntList, (value, [-1], True))
        inputs = {n: n for n in graph.nodes if n.op == "placeholder"}
        shape = [sizes.node(graph, extent, inputs) for extent in shape_of(total.args[0])[:-1]]
        whole = graph.call_function(torch.ops.aten.view.default, (short, [*shape, 1]))
        whole.meta = dict(total.meta)
    total.replace_all_uses_with(whole)


def _through(shares: Any, other: Any, products: Sequence[Any], factors: Node) -> _Match | None:
    """G and W times V, where ``shares`` is W and ``other`` G times V transposed, both in rows as long as
    ``factors``'."""
    outer: Any = root(other)
    if not isinstance(shares, Node) or outer not in products or str(shape_of(outer)[-1]) != str(shape_of(factors)[-1]):
        return None
    rows, transposed = outer.args
    values = _untransposed(root(transposed))
    for product in products:
        left, right = product.args
        if root(left) is root(shares) and values is not None and root(right) is values and product is not outer:
            return _Match(rows, product) if products.index(product) < products.index(outer) else None
    return None


def _untransposed(node: Any) -> Node | None:
    """The root of a tensor whose last two dimensions ``node`` exchanges."""
    rank, word = len(shape_of(node)), word_of(node)
    exchanges = (
        word == "t"
        or (word == "transpose" and {d % rank for d in node.args[1:3]} == {rank - 1, rank - 2})
        or (word == "permute" and list(node.args[1]) == [*range(rank - 2), rank - 1, rank - 2])
    )
    return root(node.args[0]) if exchanges else None
