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
from kernellab.designer.frontend.recurrent import AT_ONCE, BOUNDED, GATES, unflipped
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
        if _free(group, nodes) and _ordered([*groups, group], nodes):
            groups.append(group)
    if not groups:
        return graph
    names = {*nodes, *inputs}
    same: dict[Ref, Ref] = {}
    new_nodes: list[Node] = []
    for group in groups:
        new, replaced_refs = _joined(group, names)
        new_nodes += new
        same |= replaced_refs

    def own(value: Any) -> Any:
        if isinstance(value, Ref):
            return same.get(value, value)
        return type(value)(own(v) for v in value) if type(value) in (tuple, list) else value

    member_names = {m.name for g in groups for m in g.members}
    remaining = [n for n in (*graph.nodes, *new_nodes) if n.name not in member_names]
    renamed = [replace(n, args=own(n.args), kwargs=own(n.kwargs)) for n in remaining]
    return replace(graph, nodes=in_order(renamed), outputs=own(graph.outputs))


def _groups(graph: Graph, nodes: Mapping[str, Node]) -> Iterator[_Group]:
    able = [n for n in graph.nodes if _able(n)]
    chained: set[str] = set()
    for node in able:
        chain = [node]
        while node.name not in chained:
            successors = [n for n in able if n.args[0] == Ref(chain[-1].name, 0) and _alike(n, node)]
            if len(successors) != 1:
                break
            chain.append(successors[0])
        if len(chain) > 1:
            chained |= {n.name for n in chain}
            yield _Group(tuple(chain), True)
    pairs: dict[Any, list[Node]] = {}
    for node in able:
        if node.name not in chained:
            x, _ = unflipped(nodes, node.args[0], 1 if node.args[8] else 0)
            pairs.setdefault((x, node.aten, bool(node.args[3]), bool(node.args[8]), str(node.results)), []).append(node)
    yield from (_Group(tuple(each), False) for each in pairs.values() if len(each) > 1)


def _able(node: Node) -> bool:
    """Return whether the node is one layer in one direction with bounded states, and columns of whole tiles."""
    if node.aten not in GATES or node.aten not in BOUNDED or node.dtype != WIDE or len(node.results) < 2:
        return False
    width = node.results[0][0][-1]
    is_single = node.args[4] == 1 and not node.args[7] and len(node.results[0][0]) == 3
    return is_single and isinstance(width, int) and width % _WHOLE == 0


def _alike(one: Node, other: Node) -> bool:
    same = (3, 8)
    return one.aten == other.aten and one.results == other.results and all(one.args[k] == other.args[k] for k in same)


def _free(group: _Group, nodes: Mapping[str, Node]) -> bool:
    """Return whether no layer needs another's result, except its input from the layer below."""
    names = {m.name for m in group.members}
    side_inputs = [r for m in group.members for r in replace(m, args=m.args[1:]).refs()]
    lowest = group.members[:1] if group.stack else group.members
    return not names & _before([*side_inputs, *(m.args[0] for m in lowest)], nodes)


def _before(refs: Sequence[Ref], nodes: Mapping[str, Node]) -> Set[str]:
    """Return the names of all values that ``refs`` depend on."""
    visited: set[str] = set()
    pending = [r.name for r in refs]
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            pending += [r.name for r in nodes[name].refs()] if name in nodes else []
    return visited


def _joined(group: _Group, names: set[str]) -> tuple[list[Node], dict[Ref, Ref]]:
    """Return the nodes of one launch and of its inputs and outputs, and the replacement of each result of a layer."""
    first, count = group.members[0], len(group.members)
    new_nodes: list[Node] = []
    time, rows = (1, 0) if first.args[8] else (0, 1)
    shape = first.results[0][0]
    width, steps = shape[2], shape[time]
    assert isinstance(width, int), width
    outer = GATES[first.aten] * width

    def node(word: str, op: str, args: tuple[Any, ...], extent: tuple[Extent, ...]) -> Ref:
        new_nodes.append(Node(fresh(f"{first.name}_{word}", names), f"aten.{op}", args, (), extent, WIDE, first.line))
        return Ref(new_nodes[-1].name)

    def lined_up(word: str, refs: Sequence[Ref], dim: int, extent: tuple[Extent, ...]) -> Ref:
        return node(word, "cat.default", (tuple(refs), dim), extent)

    starts = [m.args[1] if isinstance(m.args[1], (tuple, list)) else (m.args[1],) for m in group.members]
    start_refs = [lined_up("starts", each, 0, (count, shape[rows], width)) for each in zip(*starts, strict=True)]
    parts = [m.args[2][k] for m in group.members for k in ((0, 1) if group.stack else (1,))]
    if group.stack:
        parts[0] = parts[1]  # the lowest layer has no layer below: any weights of that shape
    part_columns = [node("part", "unsqueeze.default", (p, 1), (outer, 1, width)) for p in parts]
    weights = lined_up("parts", part_columns, 1, (outer, len(parts), width))
    biases: tuple[Ref, ...] = ()
    if first.args[3]:
        biases = tuple(lined_up("bias", [m.args[2][k] for m in group.members], 0, (count * outer,)) for k in (2, 3))
    lowest = group.members[:1] if group.stack else group.members
    # the input bias of a stack belongs to the launch, for every layer
    given_x = tuple((m.args[0], m.args[2][0], m.args[2][2] if biases and not group.stack else None) for m in lowest)
    late = count - 1 if group.stack else 0
    whole: list[Extent] = [*shape[:2], count * width]
    whole[time] = extents.add(steps, late)
    results = ((tuple(whole), WIDE),) * len(start_refs)
    args = (given_x, tuple(start_refs), weights, biases, group.stack, bool(first.args[8]))
    launch = Node(fresh(f"{first.name}_layers", names), f"aten.{first.aten}{AT_ONCE}", args, (), tuple(whole), WIDE,
                  first.line, results)  # fmt: skip
    new_nodes.append(launch)
    same: dict[Ref, Ref] = {}
    for n, member in enumerate(group.members):
        begin = n if group.stack else 0

        def piece(item: int, at: Extent, long: Extent, n: int = n) -> Ref:
            inner: list[Extent] = [*whole[:2], width]
            part = node("part", "slice.Tensor", (Ref(launch.name, item), 2, n * width, (n + 1) * width), tuple(inner))
            inner[time] = long
            ends = tuple(map(sym, (at, extents.add(at, long))))
            return node("steps", "slice.Tensor", (part, time, *ends), tuple(inner))

        same[Ref(member.name, 0)] = piece(0, begin, steps)
        for item in range(len(start_refs)):
            last = piece(item, extents.add(steps, begin - 1), 1)
            last_state = (
                node("last", "permute.default", (last, (1, 0, 2)), member.results[1 + item][0]) if time else last
            )
            same[Ref(member.name, 1 + item)] = last_state
    return new_nodes, same


def _ordered(groups: Sequence[_Group], nodes: Mapping[str, Node]) -> bool:
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
