"""Recurrent layers that need not wait for each other's last step, as one node: a launch then walks them at once.

Layers one upon the other run as a wavefront (Appleyard, Kocisky and Blunsom, 2016, section 3.3): a layer's step needs
the one below to be one step ahead, not done. The two directions of one layer need nothing of each other.
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
    """``members`` from the lowest layer up where they are a ``stack``, else side by side."""

    members: tuple[Node, ...]
    stack: bool


def at_once(graph: Graph) -> Graph:
    """``graph`` with one node for layers of float32 that can run at once, and slices of its results in their places."""
    nodes = {n.name: n for n in graph.nodes}
    inputs = {i.name: i.shape for i in graph.inputs}
    groups: list[_Group] = []
    for group in _groups(graph, nodes):
        # two groups that need each other's results are each free alone
        if _free(group, nodes) and _ordered([*groups, group], nodes):
            groups.append(group)
    if not groups:
        return graph
    names = {*nodes, *inputs}
    same: dict[Ref, Ref] = {}
    made: list[Node] = []
    for group in groups:
        new, found = _joined(group, names)
        made += new
        same |= found

    def own(value: Any) -> Any:
        if isinstance(value, Ref):
            return same.get(value, value)
        return type(value)(own(v) for v in value) if type(value) in (tuple, list) else value

    gone = {m.name for g in groups for m in g.members}
    kept = [n for n in (*graph.nodes, *made) if n.name not in gone]
    turned = [replace(n, args=own(n.args), kwargs=own(n.kwargs)) for n in kept]
    return replace(graph, nodes=in_order(turned), outputs=own(graph.outputs))


def _groups(graph: Graph, nodes: Mapping[str, Node]) -> Iterator[_Group]:
    able = [n for n in graph.nodes if _able(n)]
    chained: set[str] = set()
    for node in able:
        chain = [node]
        while node.name not in chained:
            found = [n for n in able if n.args[0] == Ref(chain[-1].name, 0) and _alike(n, node)]
            if len(found) != 1:
                break
            chain.append(found[0])
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
    """One layer in one direction, whose states need no float32 to be multiplied, in columns of whole tiles."""
    if node.aten not in GATES or node.aten not in BOUNDED or node.dtype != WIDE or len(node.results) < 2:
        return False
    width = node.results[0][0][-1]
    one = node.args[4] == 1 and not node.args[7] and len(node.results[0][0]) == 3
    return one and isinstance(width, int) and width % _WHOLE == 0


def _alike(one: Node, other: Node) -> bool:
    same = (3, 8)
    return one.aten == other.aten and one.results == other.results and all(one.args[k] == other.args[k] for k in same)


def _free(group: _Group, nodes: Mapping[str, Node]) -> bool:
    """Does no layer need another's result, but for its input from the layer below?"""
    names = {m.name for m in group.members}
    given = [r for m in group.members for r in replace(m, args=m.args[1:]).refs()]
    lowest = group.members[:1] if group.stack else group.members
    return not names & _before([*given, *(m.args[0] for m in lowest)], nodes)


def _before(refs: Sequence[Ref], nodes: Mapping[str, Node]) -> Set[str]:
    """The names of all that ``refs`` are made of."""
    seen: set[str] = set()
    left = [r.name for r in refs]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += [r.name for r in nodes[name].refs()] if name in nodes else []
    return seen


def _joined(group: _Group, names: set[str]) -> tuple[list[Node], dict[Ref, Ref]]:
    """The nodes of one launch and of what it reads and gives; each result of a layer -> what it is now."""
    first, count = group.members[0], len(group.members)
    made: list[Node] = []
    time, rows = (1, 0) if first.args[8] else (0, 1)
    shape = first.results[0][0]
    width, steps = shape[2], shape[time]
    assert isinstance(width, int), width
    outer = GATES[first.aten] * width

    def node(word: str, op: str, args: tuple[Any, ...], extent: tuple[Extent, ...]) -> Ref:
        made.append(Node(fresh(f"{first.name}_{word}", names), f"aten.{op}", args, (), extent, WIDE, first.line))
        return Ref(made[-1].name)

    def lined_up(word: str, refs: Sequence[Ref], dim: int, extent: tuple[Extent, ...]) -> Ref:
        return node(word, "cat.default", (tuple(refs), dim), extent)

    starts = [m.args[1] if isinstance(m.args[1], (tuple, list)) else (m.args[1],) for m in group.members]
    given = [lined_up("starts", each, 0, (count, shape[rows], width)) for each in zip(*starts, strict=True)]
    parts = [m.args[2][k] for m in group.members for k in ((0, 1) if group.stack else (1,))]
    if group.stack:
        parts[0] = parts[1]  # the lowest layer reads no other: any weights of that shape
    apart = [node("part", "unsqueeze.default", (p, 1), (outer, 1, width)) for p in parts]
    weights = lined_up("parts", apart, 1, (outer, len(parts), width))
    biases: tuple[Ref, ...] = ()
    if first.args[3]:
        biases = tuple(lined_up("bias", [m.args[2][k] for m in group.members], 0, (count * outer,)) for k in (2, 3))
    lowest = group.members[:1] if group.stack else group.members
    # the input's bias of a stack is the launch's, of every layer
    given_x = tuple((m.args[0], m.args[2][0], m.args[2][2] if biases and not group.stack else None) for m in lowest)
    late = count - 1 if group.stack else 0
    whole: list[Extent] = [*shape[:2], count * width]
    whole[time] = extents.add(steps, late)
    results = ((tuple(whole), WIDE),) * len(given)
    args = (given_x, tuple(given), weights, biases, group.stack, bool(first.args[8]))
    launch = Node(fresh(f"{first.name}_layers", names), f"aten.{first.aten}{AT_ONCE}", args, (), tuple(whole), WIDE,
                  first.line, results)  # fmt: skip
    made.append(launch)
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
        for item in range(len(given)):
            last = piece(item, extents.add(steps, begin - 1), 1)
            turned = node("last", "permute.default", (last, (1, 0, 2)), member.results[1 + item][0]) if time else last
            same[Ref(member.name, 1 + item)] = turned
    return made, same


def _ordered(groups: Sequence[_Group], nodes: Mapping[str, Node]) -> bool:
    """Can ``groups`` run as one node each, without one that waits for itself?"""
    part = {m.name: f"group {n}" for n, g in enumerate(groups) for m in g.members}
    needs: dict[str, set[str]] = {}
    for node in nodes.values():
        own = part.get(node.name, node.name)
        needs.setdefault(own, set()).update(part.get(r.name, r.name) for r in node.refs() if r.name in nodes)
    graph = {own: found - {own} for own, found in needs.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True


__all__ = ["at_once"]
