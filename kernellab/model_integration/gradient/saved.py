"""What a forward saves for its backward: tensors that cost less to store and load than products to repeat.

The joint graph of outputs and gradients is cut in two (as AOTAutograd's partitioner does). Of the forward's values
that the backward reads, pointwise ones are computed again from the inputs; a product is saved if its FLOPs cost more
than its bytes, and else repeated; a sum along a repeated product's rows is saved, which is small. For attention that
leaves the result and the logarithm of each row's sum (Dao 2023, arXiv:2307.08691).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Graph, Node
from torch.utils._sympy.functions import FloorDiv

from kernellab.operations.aten import role_of
from kernellab.operations.aten_row import Role
from kernellab.task import Task
from kernellab.task.dims import extent

#: FLOPs of a product in the time of a byte to and from memory, about a GPU's
_BALANCE = 128
#: saved tensors besides the outputs, above which the forward is computed again
_MOST_SAVED = 8
#: a value of at most this share of its operand's elements is a statistic of its rows
_STATISTIC = 1 / 16
_PRODUCTS = (Role.PRODUCT, Role.CONVOLUTION)
#: the same elements in the same order, if their number is the same
_IN_ORDER = (Role.RESHAPE, Role.SAME, Role.CAST)
#: operations of sizes, as sympy names them
_SIGNS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Mul: operator.mul, sympy.Add: operator.add, FloorDiv: operator.floordiv,
}  # fmt: skip
_TURNED = ("transpose", "t", "permute")


@dataclass(frozen=True)
class Cut:
    """A forward that saves and a backward that reads: ``forward`` gives the outputs and the ``extra`` saved tensors;
    ``backward``'s arguments are the gradients, the inputs, then the forward's results at ``saved``."""

    forward: Graph
    backward: Graph
    extra: int
    saved: tuple[int, ...]


def cut(task: Task, graph: Graph, outputs: int, above: int) -> Cut | None:
    """Cut the joint graph ``graph`` of ``task``, whose arguments are ``above`` gradients and the tensors, and whose
    results are ``outputs`` outputs and the gradients. None where nothing is worth saving, or an operation writes into a
    tensor: a part of the graph would not have it."""
    if any(map(_writes, graph.nodes)):
        return None
    try:
        return _Cutting(task, graph, outputs, above).cut()
    except _NoNumber:
        return None


def results_alone(graph: Graph, first: int) -> Graph:
    """``graph`` with its results from ``first`` on, and what they need."""
    copy, env = Graph(), dict[Node, Node]()
    results = copy.graph_copy(graph, env)
    assert isinstance(results, tuple)
    copy.output(results[first:])
    copy.eliminate_dead_code()
    return copy


class _Cutting:
    def __init__(self, task: Task, graph: Graph, outputs: int, above: int) -> None:
        self.task, self.graph, self.count = task, graph, outputs
        self.places = [n for n in graph.nodes if n.op == "placeholder"]
        self.above, self.given = self.places[:above], self.places[above:]
        self.numbers = _Numbers(self.given)
        _sum_by_results(graph, self.numbers)
        graph.eliminate_dead_code()
        results = next(n for n in graph.nodes if n.op == "output").args[0]
        self.outputs, self.gradients = list(results[:outputs]), list(results[outputs:])
        self.of_gradients: set[Node] = set(self.above)
        self.costly: set[Node] = set()
        for node in graph.nodes:
            if any(a in self.of_gradients for a in node.all_input_nodes):
                self.of_gradients.add(node)
            elif _is_product(node) or any(a in self.costly for a in node.all_input_nodes):
                self.costly.add(node)
        #: a node as the output that holds it, and how it is taken out of it
        self.held = self._held()

    def cut(self) -> Cut | None:
        extra: list[Node] = []
        used: list[int] = []
        visited: set[Node] = set()
        # no recursion: a loop of many steps is a deep graph
        left = [a for n in self.graph.nodes if n in self.of_gradients for a in n.all_input_nodes][::-1]
        while left:
            node = left.pop()
            if node in visited or node not in self.costly or not _is_tensor(node):
                continue
            visited.add(node)
            if node in self.held:
                used.append(self.held[node][0])
            elif self._pays(node) if _is_product(node) else self._is_statistic(node):
                extra.append(self._finished(node))
            else:
                left += node.all_input_nodes[::-1]
        if not extra or len(extra) > _MOST_SAVED:
            return None
        backward, saved = self._backward(extra, [*dict.fromkeys(used), *range(self.count, self.count + len(extra))])
        return Cut(self._copied([], [*self.outputs, *extra]), backward, len(extra), saved)

    def _backward(self, extra: Sequence[Node], saved: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
        """The backward, and which of ``saved`` it reads."""
        by_result = dict(enumerate([*self.outputs, *extra]))

        def start(copy: Graph, env: dict[Node, Node]) -> None:
            for at in saved:
                place = copy.placeholder(f"saved{at}")
                place.meta = dict(by_result[at].meta)
                env[by_result[at]] = place
            for node, (at, steps) in self.held.items():
                if by_result[at] in env:
                    env.setdefault(node, self._taken(copy, env, by_result[at], steps))

        graph = self._copied(self.above, self.gradients, start)
        places = [n for n in graph.nodes if n.op == "placeholder"][len(self.places) :]
        for place in places:
            if not place.users:
                graph.erase_node(place)
        return graph, tuple(at for at, place in zip(saved, places, strict=True) if place.users)

    def _copied(
        self, above: Sequence[Node], results: Sequence[Node],
        start: Callable[[Graph, dict[Node, Node]], None] = lambda *_: None,
    ) -> Graph:  # fmt: skip
        """The part of the graph that gives ``results``, from what ``start`` puts into ``env``."""
        copy, env = Graph(), dict[Node, Node]()
        for node in (*above, *self.given):
            env[node] = copy.node_copy(node)
        start(copy, env)

        left = list(results)[::-1]
        while left:
            node = left[-1]
            value = node.meta.get("val")
            missing = [a for a in node.all_input_nodes if a not in env]
            if node in env:
                left.pop()
            elif isinstance(value, (int, torch.SymInt)):
                env[node] = self.numbers.node(copy, value, env)
            elif missing:
                left += missing[::-1]
            else:
                env[node] = copy.node_copy(node, env.__getitem__)
        copy.output(tuple(env[n] for n in results))
        copy.eliminate_dead_code()
        return copy

    def _held(self) -> dict[Node, tuple[int, list[Node]]]:
        held: dict[Node, tuple[int, list[Node]]] = {}
        for at, output in enumerate(self.outputs):
            node, steps = output, list[Node]()
            held.setdefault(node, (at, []))
            while _keeps_order(node) or _word(node) in _TURNED:
                steps = [*steps, node]
                node = node.all_input_nodes[0]
                held.setdefault(node, (at, steps))
        return {n: h for n, h in held.items() if n not in self.places}

    def _taken(self, graph: Graph, env: Mapping[Node, Node], output: Node, steps: Sequence[Node]) -> Node:
        """What ``steps``, from the output on towards its operands, made the output of."""
        node = env[output]
        for step in steps:
            source = step.all_input_nodes[0]
            if _word(step) == "permute":
                dims: Any = step.args[1]
                order = [d % len(dims) for d in dims]
                node = graph.call_function(step.target, (node, [order.index(d) for d in range(len(order))]))  # type: ignore[arg-type]
            elif _word(step) in _TURNED:
                node = graph.call_function(step.target, (node, *step.args[1:]))  # type: ignore[arg-type]
            elif str(_shape(step)) != str(_shape(source)):
                shape = [self.numbers.node(graph, e, env) for e in _shape(source)]
                node = graph.call_function(torch.ops.aten.reshape.default, (node, shape))
            if source.meta["val"].dtype != step.meta["val"].dtype:
                dtype = source.meta["val"].dtype
                node = graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
            node.meta = {**node.meta, "val": source.meta["val"]}
        return node

    # -- costs

    def _pays(self, product: Node) -> bool:
        """Does a product cost more than its bytes, which are no more than those that the task holds anyway?"""
        # a tensor may be both factors
        factors = [n for n in product.args if isinstance(n, Node) and _is_tensor(n)]
        if role_of(_word(product)) is Role.CONVOLUTION:
            terms = self._size(factors[1]) / max(1, self._extents(product)[1])
        else:
            terms = self._extents(factors[-2])[-1]
        value = product.meta["val"]
        kept = [*self.given, *self.outputs]
        fits = self._bytes(product) <= sum(self._bytes(n) for n in kept if _is_tensor(n))
        return fits and terms >= _BALANCE * value.element_size()

    def _is_statistic(self, node: Node) -> bool:
        largest = max((self._size(n) for n in node.all_input_nodes if _is_tensor(n)), default=0)
        return self._size(node) <= largest * _STATISTIC

    def _finished(self, node: Node) -> Node:
        """The last of the pointwise values of ``node`` alone that stand for it wherever it is read: work of a row that
        the backward would repeat for each tile."""
        values, last = {node}, node
        for each in self.graph.nodes:
            operands = [n for n in each.all_input_nodes if n in self.costly]
            if _is_tensor(each) and operands and values.issuperset(operands) and self._size(each) == self._size(node):
                values.add(each)
                behind = all(user in values for n in values if n is not each for user in n.users)
                if behind and each.meta["val"].dtype == node.meta["val"].dtype and each not in self.of_gradients:
                    last = each
        return last

    def _bytes(self, node: Node) -> float:
        return self._size(node) * float(node.meta["val"].element_size())

    def _size(self, node: Node) -> float:
        return math.prod(self._extents(node))

    def _extents(self, node: Node) -> list[float]:
        """A value's extents at the task's own sizes."""
        return [e if isinstance(e, int) else float(e.node.expr.subs(self._own())) for e in _shape(node)]

    def _own(self) -> Mapping[Any, int]:
        sizes = self.task.module().default_sizes()
        own: dict[Any, int] = {}
        for place, spec in zip(self.given, self.task.tensors, strict=True):
            for size, stated in zip(_shape(place), spec.shape, strict=True):
                if isinstance(size, torch.SymInt):
                    own.setdefault(size.node.expr, extent(stated, sizes))
        return own


class _Numbers:
    """Numbers of a graph, written by the sizes of its inputs: no other value is computed for its size."""

    def __init__(self, given: Sequence[Node]) -> None:
        self.sizes: dict[Any, tuple[Node, int, Any]] = {}
        for place in given:
            for dim, size in enumerate(_shape(place)):
                if isinstance(size, torch.SymInt):
                    self.sizes.setdefault(size.node.expr, (place, dim, size))

    def node(self, graph: Graph, value: Any, env: Mapping[Node, Node]) -> Any:
        """``value`` in ``graph``, where ``env`` has the inputs. Raises _NoNumber."""
        return value if isinstance(value, int) else self._of(graph, value.node.expr, env)

    def _of(self, graph: Graph, expr: Any, env: Mapping[Node, Node]) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr in self.sizes:
            place, dim, size = self.sizes[expr]
            made = graph.call_function(torch.ops.aten.sym_size.int, (env[place], dim))
            made.meta["val"] = size
            return made
        sign = _SIGNS.get(expr.func)
        if sign is None:
            raise _NoNumber(str(expr))

        def both(one: Any, other: Any) -> Any:
            if isinstance(one, int) and isinstance(other, int):
                return sign(one, other)
            made = graph.call_function(sign, (one, other))
            made.meta["val"] = sign(*(n.meta["val"] if isinstance(n, Node) else n for n in (one, other)))
            return made

        return reduce(both, (self._of(graph, part, env) for part in expr.args))


class _NoNumber(Exception):
    """A size that is not a sum, product or quotient of the inputs' sizes."""


# -- rows of a product, by its result --------------------------------------------------------------------------------


def _sum_by_results(graph: Graph, numbers: _Numbers) -> None:
    """Write each sum along the rows of W times (G times V transposed) as that of G times (W times V), where W times V
    is computed: the sums that a softmax's backward takes are then of results, not of products."""
    products = [n for n in graph.nodes if _word(n) in ("bmm", "mm")]
    kept: list[Any] = [n for n in graph.nodes if _word(n) == "sum" and len(n.args) > 2 and n.args[2]]
    for total in kept:
        times: Any = total.args[0]
        if _word(times) != "mul" or [d % len(_shape(times)) for d in total.args[1]] != [len(_shape(times)) - 1]:
            continue
        for shares, other in (times.args, times.args[::-1]):
            match = _through(shares, other, products, times) if isinstance(other, Node) else None
            if match is None:
                continue
            rows, result = match
            dtype = total.meta["val"].dtype
            with graph.inserting_before(total):
                wide = [_call(graph, torch.ops.aten._to_copy.default, (n,), {"dtype": dtype}) for n in (rows, result)]
                value = _call(graph, torch.ops.aten.mul.Tensor, tuple(wide))
                short = _call(graph, torch.ops.aten.sum.dim_IntList, (value, [-1], True))
                inputs = {n: n for n in graph.nodes if n.op == "placeholder"}
                shape = [numbers.node(graph, e, inputs) for e in _shape(times)[:-1]]
                whole = graph.call_function(torch.ops.aten.view.default, (short, [*shape, 1]))
                whole.meta = dict(total.meta)
            total.replace_all_uses_with(whole)
            break


def _through(shares: Any, other: Any, products: Sequence[Any], times: Node) -> tuple[Node, Node] | None:
    """G and W times V, where ``shares`` is W and ``other`` G times V transposed, both in rows as long as ``times``'."""
    outer: Any = _root(other)
    if not isinstance(shares, Node) or outer not in products or str(_shape(outer)[-1]) != str(_shape(times)[-1]):
        return None
    rows, turned = outer.args
    values = _untransposed(_root(turned))
    for product in products:
        left, right = product.args
        if _root(left) is _root(shares) and values is not None and _root(right) is values and product is not outer:
            return (rows, product) if products.index(product) < products.index(outer) else None
    return None


def _untransposed(node: Any) -> Node | None:
    """The root of a tensor whose last two dimensions ``node`` exchanges."""
    rank, word = len(_shape(node)), _word(node)
    exchanges = (
        word == "t"
        or (word == "transpose" and {d % rank for d in node.args[1:3]} == {rank - 1, rank - 2})
        or (word == "permute" and list(node.args[1]) == [*range(rank - 2), rank - 1, rank - 2])
    )
    return _root(node.args[0]) if exchanges else None


def _root(node: Node) -> Node:
    """The value whose elements ``node`` has in the same order, perhaps rounded."""
    while _keeps_order(node):
        node = node.all_input_nodes[0]
    return node


def _keeps_order(node: Node) -> bool:
    if node.op != "call_function" or not _is_tensor(node) or not _word(node):
        return False
    known = role_of(_word(node)) in _IN_ORDER or _word(node) in ("clone", "expand", "_to_copy")
    return known and bool(node.all_input_nodes) and _same_number(node, node.all_input_nodes[0])


def _same_number(one: Node, other: Node) -> bool:
    if not _is_tensor(other):
        return False
    # by the sizes of the trace, which are distinct primes: two forms of one number are then equal
    first, second = (math.prod(e if isinstance(e, int) else e.node.hint for e in _shape(n)) for n in (one, other))
    return bool(first == second)


def _call(graph: Graph, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Node:
    node = graph.call_function(target, args, dict(kwargs or {}))
    values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
    node.meta["val"] = target(*values, **(kwargs or {}))
    return node


def _word(node: Any) -> str:
    target: Any = getattr(node, "target", None)
    return str(target._schema.name.split("::")[1]) if hasattr(target, "_schema") else ""


def _writes(node: Node) -> bool:
    target: Any = node.target
    return hasattr(target, "_schema") and bool(target._schema.is_mutable)


def _is_product(node: Node) -> bool:
    return node.op == "call_function" and bool(_word(node)) and role_of(_word(node)) in _PRODUCTS


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)
