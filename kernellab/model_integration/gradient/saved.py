"""What a forward saves for its backward: tensors that cost less to store and load than products to repeat.

The joint graph of outputs and gradients is cut in two (as AOTAutograd's partitioner does). Of the forward's values
that the backward reads, pointwise ones are computed again from the inputs; a product is saved if its FLOPs cost more
than its bytes, and else repeated; a sum along a repeated product's rows is saved, which is small. For attention that
leaves the result and the logarithm of each row's sum (Dao 2023, arXiv:2307.08691).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from kernellab.model_integration.gradient.nodes import (
    SizeNodes,
    UnknownSize,
    is_product,
    is_tensor,
    keeps_order,
    shape_of,
    word_of,
    writes,
)
from kernellab.model_integration.gradient.row_sums import sum_by_results
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
_TRANSPOSES = ("transpose", "t", "permute")


@dataclass(frozen=True)
class Cut:
    """A forward that saves and a backward that reads: ``forward`` gives the outputs and further saved tensors;
    ``backward``'s arguments are the gradients, the inputs, then the forward's results at ``saved``."""

    forward: Graph
    backward: Graph
    saved: tuple[int, ...]


def cut(task: Task, graph: Graph, outputs: int) -> Cut | None:
    """Cut the joint graph of ``task``, whose arguments are the gradients of ``outputs`` outputs and the tensors, and
    whose results are the outputs and the tensors' gradients. None where nothing is worth saving, or an operation
    writes into a tensor: a part of the graph would not have it."""
    if any(map(writes, graph.nodes)):
        return None
    try:
        return _Cutting(task, graph, outputs).cut()
    except UnknownSize:
        return None


def results_alone(graph: Graph, first: int) -> Graph:
    """``graph`` with its results from ``first`` on, and what they need."""
    copy = Graph()
    results = copy.graph_copy(graph, {})
    assert isinstance(results, tuple)
    copy.output(results[first:])
    copy.eliminate_dead_code()
    return copy


class _Held(NamedTuple):
    """A value that an output holds: the output's number, and the steps that made the output of the value, the last
    first."""

    output: int
    steps: list[Node]


class _Cutting:
    """The joint graph, and which of its nodes are what."""

    def __init__(self, task: Task, graph: Graph, outputs: int) -> None:
        self.task, self.graph = task, graph
        self.arguments = [n for n in graph.nodes if n.op == "placeholder"]
        self.output_gradients, self.inputs = self.arguments[:outputs], self.arguments[outputs:]
        self.sizes = SizeNodes(self.inputs)
        sum_by_results(graph, self.sizes)
        graph.eliminate_dead_code()
        results = next(n for n in graph.nodes if n.op == "output").args[0]
        self.outputs, self.gradients = list(results[:outputs]), list(results[outputs:])
        #: what is computed from the outputs' gradients: the backward
        self.in_backward: set[Node] = set(self.output_gradients)
        #: products of the forward, and what is computed from them: not pointwise functions of the inputs
        self.costly: set[Node] = set()
        for node in graph.nodes:
            if any(a in self.in_backward for a in node.all_input_nodes):
                self.in_backward.add(node)
            elif is_product(node) or any(a in self.costly for a in node.all_input_nodes):
                self.costly.add(node)
        self.held = self._held_by_outputs()

    def cut(self) -> Cut | None:
        extra: list[Node] = []
        read_outputs: list[int] = []
        visited: set[Node] = set()
        # no recursion: a loop of many steps is a deep graph
        pending = [a for n in self.graph.nodes if n in self.in_backward for a in n.all_input_nodes][::-1]
        while pending:
            node = pending.pop()
            if node in visited or node not in self.costly or not is_tensor(node):
                continue
            visited.add(node)
            if node in self.held:
                read_outputs.append(self.held[node].output)
            elif self._pays(node) if is_product(node) else self._is_statistic(node):
                extra.append(self._finished(node))
            else:
                pending += node.all_input_nodes[::-1]
        if not extra or len(extra) > _MOST_SAVED:
            return None
        count = len(self.outputs)
        candidates = [*dict.fromkeys(read_outputs), *range(count, count + len(extra))]
        backward, saved = self._backward(extra, candidates)
        return Cut(self._copied([], [*self.outputs, *extra]), backward, saved)

    def _backward(self, extra: Sequence[Node], candidates: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
        """The backward, and which of the forward's results at ``candidates`` it reads."""
        results = [*self.outputs, *extra]

        def start(copy: Graph, copies: dict[Node, Node]) -> None:
            for at in candidates:
                argument = copy.placeholder(f"saved{at}")
                argument.meta = dict(results[at].meta)
                copies[results[at]] = argument
            for node, held in self.held.items():
                output = results[held.output]
                if output in copies:
                    copies.setdefault(node, self._taken(copy, copies, output, held.steps))

        graph = self._copied(self.output_gradients, self.gradients, start)
        arguments = [n for n in graph.nodes if n.op == "placeholder"][len(self.arguments) :]
        saved = tuple(at for at, argument in zip(candidates, arguments, strict=True) if argument.users)
        for argument in arguments:
            if not argument.users:
                graph.erase_node(argument)
        return graph, saved

    def _copied(
        self, gradients: Sequence[Node], results: Sequence[Node],
        start: Callable[[Graph, dict[Node, Node]], None] = lambda *_: None,
    ) -> Graph:  # fmt: skip
        """The part of the graph that computes ``results`` from ``gradients``, the inputs, and what ``start`` puts into
        the copies, which are by their originals."""
        copy, copies = Graph(), dict[Node, Node]()
        for node in (*gradients, *self.inputs):
            copies[node] = copy.node_copy(node)
        start(copy, copies)
        pending = list(results)[::-1]
        while pending:
            node = pending[-1]
            value = node.meta.get("val")
            missing = [a for a in node.all_input_nodes if a not in copies]
            if node in copies:
                pending.pop()
            elif isinstance(value, (int, torch.SymInt)):
                copies[node] = self.sizes.node(copy, value, copies)
            elif missing:
                pending += missing[::-1]
            else:
                copies[node] = copy.node_copy(node, copies.__getitem__)
        copy.output(tuple(copies[n] for n in results))
        copy.eliminate_dead_code()
        return copy

    def _held_by_outputs(self) -> dict[Node, _Held]:
        """Values that an output holds in another order, shape or dtype, so that they need not be saved again."""
        held: dict[Node, _Held] = {}
        for number, output in enumerate(self.outputs):
            node, steps = output, list[Node]()
            held.setdefault(node, _Held(number, []))
            while keeps_order(node) or word_of(node) in _TRANSPOSES:
                steps = [*steps, node]
                node = node.all_input_nodes[0]
                held.setdefault(node, _Held(number, steps))
        return {node: value for node, value in held.items() if node not in self.arguments}

    def _taken(self, graph: Graph, copies: Mapping[Node, Node], output: Node, steps: Sequence[Node]) -> Node:
        """What ``steps``, from the output on towards its operands, made the output of."""
        node = copies[output]
        for step in steps:
            source = step.all_input_nodes[0]
            if word_of(step) == "permute":
                dims: Any = step.args[1]
                order = [d % len(dims) for d in dims]
                node = graph.call_function(step.target, (node, [order.index(d) for d in range(len(order))]))  # type: ignore[arg-type]
            elif word_of(step) in _TRANSPOSES:
                node = graph.call_function(step.target, (node, *step.args[1:]))  # type: ignore[arg-type]
            elif str(shape_of(step)) != str(shape_of(source)):
                shape = [self.sizes.node(graph, e, copies) for e in shape_of(source)]
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
        factors = [n for n in product.args if isinstance(n, Node) and is_tensor(n)]
        if role_of(word_of(product)) is Role.CONVOLUTION:
            terms = self._size(factors[1]) / max(1, self._extents(product)[1])
        else:
            terms = self._extents(factors[-2])[-1]
        value = product.meta["val"]
        in_memory_anyway = [*self.inputs, *self.outputs]
        fits = self._bytes(product) <= sum(self._bytes(n) for n in in_memory_anyway if is_tensor(n))
        return fits and terms >= _BALANCE * value.element_size()

    def _is_statistic(self, node: Node) -> bool:
        largest = max((self._size(n) for n in node.all_input_nodes if is_tensor(n)), default=0)
        return self._size(node) <= largest * _STATISTIC

    def _finished(self, node: Node) -> Node:
        """The last of the pointwise values of ``node`` alone that stand for it wherever it is read: work of a row that
        the backward would repeat for each tile."""
        values, last = {node}, node
        for each in self.graph.nodes:
            operands = [n for n in each.all_input_nodes if n in self.costly]
            if is_tensor(each) and operands and values.issuperset(operands) and self._size(each) == self._size(node):
                values.add(each)
                behind = all(user in values for n in values if n is not each for user in n.users)
                if behind and each.meta["val"].dtype == node.meta["val"].dtype and each not in self.in_backward:
                    last = each
        return last

    def _bytes(self, node: Node) -> float:
        return self._size(node) * float(node.meta["val"].element_size())

    def _size(self, node: Node) -> float:
        return math.prod(self._extents(node))

    def _extents(self, node: Node) -> list[float]:
        """A value's extents at the task's own sizes."""
        return [e if isinstance(e, int) else float(e.node.expr.subs(self._task_sizes)) for e in shape_of(node)]

    @cached_property
    def _task_sizes(self) -> Mapping[Any, int]:
        """The graph's symbols at the task's own sizes."""
        defaults = self.task.module().default_sizes()
        by_symbol: dict[Any, int] = {}
        for tensor, spec in zip(self.inputs, self.task.tensors, strict=True):
            for size, stated in zip(shape_of(tensor), spec.shape, strict=True):
                if isinstance(size, torch.SymInt):
                    by_symbol.setdefault(size.node.expr, extent(stated, defaults))
        return by_symbol
