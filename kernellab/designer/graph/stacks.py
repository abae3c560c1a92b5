"""Concatenated values: results of a loop's steps, and features that each layer of a network adds to.

Work that every step does to its own rows with the same weights is done once for all rows: one product instead of one
per step. The remaining parts of a concatenation are written directly to their place, and a concatenation of the first
few parts is read from the tensor of all parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import gcd

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.graph.library import fresh
from kernellab.designer.ir import extents

#: with fewer reads of parts than this, the parts stay separate
_MANY = 8
#: number of reads of parts per part that may be copied to its place
_READS = 4
#: position of the operand whose rows are joined
_ROWS = {"mm": 0, "addmm": 1}


@dataclass(frozen=True)
class Stack:
    """The tensor of a concatenation: a first dimension of places, with ``size`` elements of the joined dimension in
    each.

    ``places`` are those of each part, ``joins`` those of each concatenation of neighbouring parts. ``copied`` are the
    parts that also have a separate tensor: those with several places, and those not computed by a separate launch.
    """

    name: str
    dim: int
    places: Mapping[str, range]
    shape: tuple[Extent, ...]
    copied: frozenset[str] = frozenset()
    joins: dict[str, range] = field(default_factory=dict)

    @property
    def size(self) -> Extent:
        """Elements of the joined dimension in one place."""
        return self.shape[1 + self.dim]


def joined(graph: Graph) -> Graph:
    """Move operations that many parts of a concatenation share behind it."""
    nodes = {n.name: n for n in graph.nodes}
    readers: dict[str, int] = {}
    for ref in [r for n in graph.nodes for r in n.refs()] + list(graph.outputs):
        readers[ref.name] = readers.get(ref.name, 0) + 1
    ranks = {i.name: len(i.shape) for i in graph.inputs} | {n.name: len(n.shape) for n in graph.nodes}
    names = set(ranks)
    new_nodes: list[Node] = []
    dropped: set[str] = set()
    for node in graph.nodes:
        chain = [node]
        while (behind := _behind(chain[0], nodes, readers, ranks, names)) is not None:
            dropped |= {r.name for r in _parts(chain[0])}
            chain = [*behind, *chain[1:]]
        new_nodes += chain
    return replace(graph, nodes=tuple(n for n in new_nodes if n.name not in dropped)) if dropped else graph


def stacks(graph: Graph, stored: frozenset[str]) -> list[Stack]:
    """Return the concatenations of many parts, most of them ``stored``; among those that share parts, the longest."""
    nodes = {n.name: n for n in graph.nodes}
    shapes = {i.name: (i.shape, i.dtype) for i in graph.inputs}
    shapes |= {n.name: n.results[0] if n.results else (n.shape, n.dtype) for n in graph.nodes}
    joins = sorted((n for n in graph.nodes if len(_joined(n)) > 1), key=lambda n: -len(_joined(n)))
    result: list[Stack] = []
    home: dict[str, Stack] = {}
    reads: dict[str, int] = {}
    for node in joins:
        names = [p.name for p in _joined(node)]
        at_home = home.get(names[0])
        stack = _stack(node, names, shapes, nodes, stored) if not any(n in home for n in names) else at_home
        if stack is None:
            continue
        order = list(stack.places)
        first = order.index(names[0]) if names[0] in stack.places else 0
        alike = (stack.dim, nodes[stack.name].dtype) == (_along(node), node.dtype)
        if not alike or order[first : first + len(names)] != names:
            continue
        if stack is not at_home:
            result.append(stack)
            home |= dict.fromkeys(names, stack)
        stack.joins[node.name] = range(stack.places[names[0]].start, stack.places[names[-1]].stop)
        reads[stack.name] = reads.get(stack.name, 0) + len(names)
    return [s for s in result if reads[s.name] >= max(_MANY, _READS * len(s.copied))]


def _stack(
    node: Node,
    names: list[str],
    shapes: Mapping[str, tuple[tuple[Extent, ...], str]],
    nodes: Mapping[str, Node],
    stored: frozenset[str],
) -> Stack | None:
    """Return the concatenation ``node`` with its parts in places of one size, if possible."""
    dim, parts = _along(node), [shapes[n][0] for n in names]
    sizes = [shape[dim] for shape in parts if len(shape) == len(node.shape)]
    if len(set(names)) < len(names) or len(sizes) < len(names) or any(shapes[n][1] != node.dtype for n in names):
        return None
    whole = [size for size in sizes if isinstance(size, int)]
    size = gcd(*whole) if len(whole) == len(sizes) else sizes[0]
    if isinstance(size, int) and len(whole) == len(sizes):
        counts = [n // size for n in whole] if size else []
    else:
        counts = [1] * len(sizes) if all(extents.same(n, size) for n in sizes) else []
    if not counts:
        return None
    stops = list(accumulate(counts))
    places = {name: range(stop - count, stop) for name, count, stop in zip(names, counts, stops, strict=True)}
    single_parts = {
        n for n, count in zip(names, counts, strict=True) if count == 1 and n in stored and not nodes[n].results
    }
    shape = (stops[-1], *node.shape[:dim], size, *node.shape[dim + 1 :])
    return Stack(node.name, dim, places, shape, frozenset(names) - single_parts)


def _joined(node: Node) -> list[Ref]:
    """Return the parts that ``node`` concatenates; for a node with several results the first."""
    if node.aten != "cat" or not all(isinstance(p, Ref) and not p.item for p in node.args[0]):
        return []
    return list(node.args[0])


def _parts(node: Node) -> list[Ref]:
    """Return the parts that ``node`` concatenates, if they are the only results of their nodes."""
    return [] if any(p.item is not None for p in _joined(node)) else _joined(node)


def _behind(
    node: Node, nodes: Mapping[str, Node], readers: Mapping[str, int], ranks: Mapping[str, int], names: set[str]
) -> list[Node] | None:
    """Rewrite a concatenation of equal operations as that operation on a concatenation of their operands."""
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
    first_operand = nodes[rows[0].name]
    if any((nodes[r.name].shape, nodes[r.name].dtype) != (first_operand.shape, first_operand.dtype) for r in rows):
        return None
    dim = _along(node)
    total = extents.times([len(rows), first_operand.shape[dim]])
    inner = replace(
        node, name=fresh(f"{node.name}_rows", names), args=(rows, dim), kwargs=(), dtype=first_operand.dtype,
        shape=(*first_operand.shape[:dim], total, *first_operand.shape[dim + 1 :]),
    )  # fmt: skip
    args = (*first.args[:at], Ref(inner.name), *first.args[at + 1 :])
    return [inner, replace(first, name=node.name, args=args, shape=node.shape, line=node.line)]


def _joint(node: Node, part: Node, ranks: Mapping[str, int]) -> int | None:
    """Return the position of the operand of ``part`` with the rows that ``node`` joins, if each row is treated
    alike."""
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


__all__ = ["Stack", "joined", "stacks"]
