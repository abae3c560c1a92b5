"""Recurrent layers that need not wait for each other's last step, joined into one node that a launch runs at once.

Stacked layers run as a wavefront (Appleyard, Kocisky and Blunsom, 2016, section 3.3): a layer's step requires only that
the layer below is one step ahead. The two directions of one layer are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Extent, in_order, sym
from kernellab.designer.frontend.recurrent import AT_ONCE, BOUNDED, GATES, first_states, layer_arguments, unflipped
from kernellab.designer.graph.library import fresh
from kernellab.designer.ir import extents
from kernellab.designer.ir.scaling import WIDE

#: each layer's columns begin at a whole tile
_WHOLE = 16


@dataclass(frozen=True)
class _Group:
    """``members``, from the lowest layer up if they are a ``stack``, else side by side."""

    members: tuple[Node, ...]
    stack: bool


def at_once(graph: Graph) -> Graph:
    """Join float32 layers that can run at once into one node; slices of its results replace theirs."""
    nodes = {n.name: n for n in graph.nodes}
    inputs = {i.name: i.shape for i in graph.inputs}
    groups: list[_Group] = []
    for group in _groups(graph, nodes):
        # two groups that need each other's results are each independent on their own, but not together
        if _is_independent(group, nodes) and _is_acyclic([*groups, group], nodes):
            groups.append(group)
    if not groups:
        return graph
    names = {*nodes, *inputs}
    same: dict[Ref, Ref] = {}
    new_nodes: list[Node] = []
    for group in groups:
        joining = _Joining(group, names)
        same |= joining.results()
        new_nodes += joining.nodes

    def own(value: Any) -> Any:
        if isinstance(value, Ref):
            return same.get(value, value)
        return type(value)(own(v) for v in value) if type(value) in (tuple, list) else value

    member_names = {m.name for g in groups for m in g.members}
    remaining = [n for n in (*graph.nodes, *new_nodes) if n.name not in member_names]
    renamed = [replace(n, args=own(n.args), kwargs=own(n.kwargs)) for n in remaining]
    return replace(graph, nodes=in_order(renamed), outputs=own(graph.outputs))


def _groups(graph: Graph, nodes: Mapping[str, Node]) -> Iterator[_Group]:
    """Yield the stacks of layers, then the layers of one input that run side by side."""
    joinable = [n for n in graph.nodes if _is_joinable(n)]
    chained: set[str] = set()
    for node in joinable:
        chain = [node]
        while node.name not in chained:
            above = Ref(chain[-1].name, 0)
            successors = [n for n in joinable if layer_arguments(n).x == above and _alike(n, node)]
            if len(successors) != 1:
                break
            chain.append(successors[0])
        if len(chain) > 1:
            chained |= {n.name for n in chain}
            yield _Group(tuple(chain), True)
    side_by_side: dict[Any, list[Node]] = {}
    for node in joinable:
        if node.name not in chained:
            layer = layer_arguments(node)
            x, _ = unflipped(nodes, layer.x, 1 if layer.batch_first else 0)
            key = (x, node.aten, bool(layer.has_bias), bool(layer.batch_first), str(node.results))
            side_by_side.setdefault(key, []).append(node)
    yield from (_Group(tuple(each), False) for each in side_by_side.values() if len(each) > 1)


def _is_joinable(node: Node) -> bool:
    """Return whether the node is one layer in one direction with bounded states, and columns of whole tiles."""
    if node.aten not in GATES or node.aten not in BOUNDED or node.dtype != WIDE or len(node.results) < 2:
        return False
    layer, shape = layer_arguments(node), node.results[0][0]
    width = shape[-1]
    is_single = layer.layers == 1 and not layer.bidirectional and len(shape) == 3
    return is_single and isinstance(width, int) and width % _WHOLE == 0


def _alike(one: Node, other: Node) -> bool:
    """Return whether two layers have the same form."""
    first, second = layer_arguments(one), layer_arguments(other)
    forms = [(layer.has_bias, layer.batch_first) for layer in (first, second)]
    return one.aten == other.aten and one.results == other.results and forms[0] == forms[1]


def _is_independent(group: _Group, nodes: Mapping[str, Node]) -> bool:
    """Return whether no layer needs another's result, except its input from the layer below."""
    names = {m.name for m in group.members}
    side_inputs = [r for m in group.members for r in replace(m, args=m.args[1:]).refs()]
    lowest = group.members[:1] if group.stack else group.members
    return not names & _dependencies([*side_inputs, *(layer_arguments(m).x for m in lowest)], nodes)


def _dependencies(refs: Sequence[Ref], nodes: Mapping[str, Node]) -> Set[str]:
    """Return the names of all values that ``refs`` depend on."""
    visited: set[str] = set()
    pending = [r.name for r in refs]
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            pending += [r.name for r in nodes[name].refs()] if name in nodes else []
    return visited


class _Joining:
    """The nodes of one launch for the layers of a group, and of its inputs and outputs."""

    def __init__(self, group: _Group, names: set[str]) -> None:
        self.nodes: list[Node] = []
        self._group, self._names, self._first = group, names, group.members[0]
        self._layers = [layer_arguments(m) for m in group.members]
        self._count = len(group.members)
        self._time = 1 if self._layers[0].batch_first else 0
        self._shape = self._first.results[0][0]
        assert isinstance(self._shape[2], int), self._shape
        self._width = self._shape[2]
        #: the columns of all gates of a layer
        self._outer = GATES[self._first.aten] * self._width

    def results(self) -> dict[Ref, Ref]:
        """Add the nodes, and return the replacement of each result of a layer."""
        launch = self._launch()
        same: dict[Ref, Ref] = {}
        steps = self._shape[self._time]
        for n, member in enumerate(self._group.members):
            # in a stack, layer n is n steps late
            begin = n if self._group.stack else 0
            same[Ref(member.name, 0)] = self._piece(launch, 0, n, begin, steps)
            for item in range(len(launch.results)):
                last = self._piece(launch, item, n, extents.add(steps, begin - 1), 1)
                if self._time:
                    last = self._node("last", "permute.default", (last, (1, 0, 2)), member.results[1 + item][0])
                same[Ref(member.name, 1 + item)] = last
        return same

    def _launch(self) -> Node:
        """Add the node that runs all layers, and those of its inputs."""
        stack, layers, first = self._group.stack, self._layers, self._first
        rows = self._shape[0 if self._time else 1]
        state_shape = (self._count, rows, self._width)
        starts = [
            self._cat("starts", states, 0, state_shape) for states in zip(*map(first_states, layers), strict=True)
        ]
        weights = self._weights()
        biases: tuple[Ref, ...] = ()
        if layers[0].has_bias:
            biases = tuple(
                self._cat("bias", [layer.weights[k] for layer in layers], 0, (self._count * self._outer,))
                for k in (2, 3)
            )
        # the input bias of a stack belongs to the launch, for every layer
        own_bias = bool(biases) and not stack
        inputs = tuple(
            (layer.x, layer.weights[0], layer.weights[2] if own_bias else None)
            for layer in (layers[:1] if stack else layers)
        )
        shape: list[Extent] = [*self._shape[:2], self._count * self._width]
        shape[self._time] = extents.add(self._shape[self._time], self._count - 1 if stack else 0)
        results = ((tuple(shape), WIDE),) * len(starts)
        args = (inputs, tuple(starts), weights, biases, stack, bool(layers[0].batch_first))
        launch = Node(
            fresh(f"{first.name}_layers", self._names), f"aten.{first.aten}{AT_ONCE}", args, (), tuple(shape), WIDE,
            first.line, results,
        )  # fmt: skip
        self.nodes.append(launch)
        return launch

    def _weights(self) -> Ref:
        """Return the weights that a step multiplies, side by side: in a stack those of each layer's input and state."""
        parts = [layer.weights[k] for layer in self._layers for k in ((0, 1) if self._group.stack else (1,))]
        if self._group.stack:
            parts[0] = parts[1]  # the lowest layer has no layer below: any weights of that shape
        columns = [self._node("part", "unsqueeze.default", (p, 1), (self._outer, 1, self._width)) for p in parts]
        return self._cat("parts", columns, 1, (self._outer, len(parts), self._width))

    def _piece(self, launch: Node, item: int, layer: int, begin: Extent, length: Extent) -> Ref:
        """Return ``length`` steps from ``begin`` of one layer's columns in a result of the launch."""
        shape: list[Extent] = [*launch.shape[:2], self._width]
        columns = (2, layer * self._width, (layer + 1) * self._width)
        part = self._node("part", "slice.Tensor", (Ref(launch.name, item), *columns), tuple(shape))
        shape[self._time] = length
        ends = tuple(map(sym, (begin, extents.add(begin, length))))
        return self._node("steps", "slice.Tensor", (part, self._time, *ends), tuple(shape))

    def _cat(self, word: str, refs: Sequence[Ref], dim: int, shape: tuple[Extent, ...]) -> Ref:
        return self._node(word, "cat.default", (tuple(refs), dim), shape)

    def _node(self, word: str, op: str, args: tuple[Any, ...], shape: tuple[Extent, ...]) -> Ref:
        name = fresh(f"{self._first.name}_{word}", self._names)
        self.nodes.append(Node(name, f"aten.{op}", args, (), shape, WIDE, self._first.line))
        return Ref(name)


def _is_acyclic(groups: Sequence[_Group], nodes: Mapping[str, Node]) -> bool:
    """Return whether ``groups`` can run as one node each without a cyclic dependency."""
    part = {m.name: f"group {n}" for n, g in enumerate(groups) for m in g.members}
    needs: dict[str, set[str]] = {}
    for node in nodes.values():
        own_name = part.get(node.name, node.name)
        needs.setdefault(own_name, set()).update(part.get(r.name, r.name) for r in node.refs() if r.name in nodes)
    graph = {own_name: found - {own_name} for own_name, found in needs.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True


__all__ = ["at_once"]
