"""Results of the steps of a loop that are put side by side: ``torch.stack([layer(h) for h in states])``.

What every step does alike to its own rows, with the same weights, is done once to all rows: one product instead of one
a step. What is left to put side by side is written where it belongs when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.ir import extents

#: fewer parts are told apart where they are read
_MANY = 8
#: position of the operand whose rows are joined
_ROWS = {"mm": 0, "addmm": 1}


@dataclass(frozen=True)
class Stack:
    """A concatenation of ``parts`` of one shape, and where each of them lies among them."""

    name: str
    places: Mapping[str, int]
    shape: tuple[Extent, ...]


def joined(graph: Graph) -> Graph:
    """``graph`` with what many parts of a concatenation have in common behind it."""
    nodes = {n.name: n for n in graph.nodes}
    readers: dict[str, int] = {}
    for ref in [r for n in graph.nodes for r in n.refs()] + list(graph.outputs):
        readers[ref.name] = readers.get(ref.name, 0) + 1
    ranks = {i.name: len(i.shape) for i in graph.inputs} | {n.name: len(n.shape) for n in graph.nodes}
    names = set(ranks)
    found: list[Node] = []
    dropped: set[str] = set()
    for node in graph.nodes:
        chain = [node]
        while (behind := _behind(chain[0], nodes, readers, ranks, names)) is not None:
            dropped |= {r.name for r in _parts(chain[0])}
            chain = [*behind, *chain[1:]]
        found += chain
    return replace(graph, nodes=tuple(n for n in found if n.name not in dropped)) if dropped else graph


def stacks(graph: Graph, stored: frozenset[str]) -> dict[str, Stack]:
    """The concatenations all of whose many parts are ``stored``, by the names of their parts."""
    nodes = {n.name: n for n in graph.nodes}
    found: dict[str, Stack] = {}
    for node in graph.nodes:
        parts = _parts(node)
        if len(parts) < _MANY or len({p.name for p in parts}) < len(parts):
            continue
        if any(p.name not in stored or p.name in found or nodes[p.name].results for p in parts):
            continue
        first = nodes[parts[0].name]
        if all((nodes[p.name].shape, nodes[p.name].dtype) == (first.shape, node.dtype) for p in parts):
            places = {p.name: at for at, p in enumerate(parts)}
            found |= dict.fromkeys(places, Stack(node.name, places, (len(parts), *first.shape)))
    return found


def _parts(node: Node) -> list[Ref]:
    """What ``node`` puts side by side."""
    if node.aten != "cat" or not all(isinstance(p, Ref) and p.item is None for p in node.args[0]):
        return []
    return list(node.args[0])


def _behind(
    node: Node, nodes: Mapping[str, Node], readers: Mapping[str, int], ranks: Mapping[str, int], names: set[str]
) -> list[Node] | None:
    """``node``, a concatenation, as one of what its parts are made of, and their common operation behind that."""
    refs = _parts(node)
    parts = [nodes[r.name] for r in refs if r.name in nodes]
    if len(refs) < _MANY or len(parts) < len(refs) or any(readers[p.name] != 1 for p in parts):
        return None
    first = parts[0]
    if any((p.op, p.kwargs, p.shape, p.dtype) != (first.op, first.kwargs, first.shape, first.dtype) for p in parts):
        return None
    at = _joint(node, first, ranks)
    if at is None or any((*p.args[:at], *p.args[at + 1 :]) != (*first.args[:at], *first.args[at + 1 :]) for p in parts):
        return None
    rows = [p.args[at] for p in parts]
    if len({r.name for r in rows}) < len(rows) or any(r.item is not None or r.name not in nodes for r in rows):
        return None
    made = nodes[rows[0].name]
    if any((nodes[r.name].shape, nodes[r.name].dtype) != (made.shape, made.dtype) for r in rows):
        return None
    dim = _along(node)
    total = extents.times([len(rows), made.shape[dim]])
    inner = replace(
        node, name=_fresh(f"{node.name}_rows", names), args=(rows, dim), kwargs=(), dtype=made.dtype,
        shape=(*made.shape[:dim], total, *made.shape[dim + 1 :]),
    )  # fmt: skip
    args = (*first.args[:at], Ref(inner.name), *first.args[at + 1 :])
    return [inner, replace(first, name=node.name, args=args, shape=node.shape, line=node.line)]


def _joint(node: Node, part: Node, ranks: Mapping[str, int]) -> int | None:
    """Which operand of ``part`` has the rows that ``node`` joins, if the operation does the same to each of them."""
    operands = [n for n, a in enumerate(part.args) if isinstance(a, Ref)]
    if part.aten in OPERATIONS and not part.results:
        same = len(operands) == 1 and not any(True for _, v in part.kwargs if isinstance(v, Ref))
        return operands[0] if same and ranks[part.args[operands[0]].name] == len(part.shape) else None
    if part.aten not in _ROWS or _along(node) != 0:
        return None
    # a bias of rows would have to be repeated
    one_row = part.aten == "mm" or ranks[part.args[0].name] == 1
    return _ROWS[part.aten] if one_row else None


def _along(node: Node) -> int:
    return int(node.args[1] if len(node.args) > 1 else node.keyword("dim", 0)) % len(node.shape)


def _fresh(name: str, names: set[str]) -> str:
    while name in names:
        name += "_"
    names.add(name)
    return name


__all__ = ["Stack", "joined", "stacks"]
