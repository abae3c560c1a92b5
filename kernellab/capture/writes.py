"""Tensors that a reference fills in parts: a part is read where it was computed, and the parts are joined.

``out[i] = v`` in a loop is a chain of copies of the whole tensor, each with one part replaced. A read of a part is the
value written there, and the result of the chain is the concatenation of its parts.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from kernellab.capture.graph import Extent, Graph, Node, Ref

_WRITE, _COPY = "aten.slice_scatter.default", "aten.copy.default"
_PART, _PLACE = "aten.slice.Tensor", "aten.select.int"
#: an end from which a slice reaches the end of any dimension
_FAR = 1 << 62


def select_scatter(apart: Callable[..., Any]) -> Callable[..., Any]:
    """Replace one place: by a slice of one place if the length is fixed, else by ``apart``."""

    def scattered(x: Tensor, source: Tensor, dim: int, index: Any) -> Tensor:
        length: Any = x.shape[dim]
        if not isinstance(length, int) or not isinstance(index, int):
            return apart(x, source, dim, index)
        at = index % length
        return x.slice_scatter(source.unsqueeze(dim), dim, at, at + 1)

    return scattered


def joined(graph: Graph) -> Graph:
    """Replace reads of parts by the values written there, and chains of writes by concatenations."""
    writes = _Writes(graph)
    for node in graph.nodes:
        writes.take(node)
    outputs = tuple(map(writes.whole, graph.outputs))
    return replace(graph, nodes=tuple(writes.made), outputs=outputs).live()


@dataclass(frozen=True)
class _Piece:
    """Places ``start`` to ``end`` of a dimension, which are those of ``ref`` from ``offset`` on."""

    start: int
    end: int
    ref: Ref
    offset: int = 0

    def part(self, start: int, end: int) -> _Piece:
        start, end = max(start, self.start), min(end, self.end)
        return _Piece(start, end, self.ref, self.offset + start - self.start)


@dataclass(frozen=True)
class _Filled:
    """A tensor as parts along ``dim``, in order and without gaps; ``first`` is the tensor before any write."""

    dim: int
    pieces: tuple[_Piece, ...]
    first: Ref

    def between(self, start: int, end: int) -> tuple[_Piece, ...]:
        return tuple(p.part(start, end) for p in self.pieces if p.start < end and p.end > start)

    def put(self, new: _Piece) -> _Filled:
        before, behind = self.between(0, new.start), self.between(new.end, self.pieces[-1].end)
        return replace(self, pieces=(*before, new, *behind))

    @property
    def mostly_written(self) -> bool:
        unwritten = sum(p.end - p.start for p in self.pieces if p.ref == self.first)
        return 2 * unwritten <= self.pieces[-1].end


class _Writes:
    """Processes a graph's nodes in order and builds those of the joined graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: list[Node] = []
        self._nodes: dict[str, Node] = {n.name: n for n in graph.nodes}
        self._inputs = {i.name: i.shape for i in graph.inputs}
        self._same: dict[Ref, Ref] = {}
        self._filled: dict[Ref, _Filled] = {}
        self._joined: dict[Ref, Ref] = {}

    def take(self, node: Node) -> None:
        """Add ``node``, or replace its value."""
        own_ref = Ref(node.name)
        if (
            node.op == _COPY
            and node.shape == self._shape(node.args[1])
            and node.dtype == self.graph.dtype(node.args[1])
        ):
            self._same[own_ref] = self._of(node.args[1])
            return
        places = self._places(node) if node.op in (_WRITE, _PART, _PLACE) else None
        if places is not None:
            dim, start, end = places
            if node.op != _PLACE and (start, end) == (0, None):  # all of it: x[:]
                self._same[own_ref] = self._of(node.args[node.op == _WRITE])
                return
            length = self._shape(node.args[0])[dim]
            if isinstance(length, int) and end is not None:
                if node.op == _WRITE:
                    self._write(node, dim, start, end, length)
                    return
                filled = self._filled.get(self._of(node.args[0]))
                if filled is not None and filled.dim == dim:
                    self._same[own_ref] = self._join(node, filled.between(start, end), dim, single=node.op == _PLACE)
                    return
        kwargs = tuple((name, self._read(value)) for name, value in node.kwargs)
        self.made.append(replace(node, args=self._read(node.args), kwargs=kwargs))

    def whole(self, ref: Ref) -> Ref:
        """Return ``ref`` for a reader of all of it: the concatenation of its parts if most of them were written."""
        ref = self._of(ref)
        filled = self._filled.get(ref)
        if filled is None or not filled.mostly_written:
            return ref
        if ref not in self._joined:
            self._joined[ref] = self._join(self._nodes[ref.name], filled.pieces, filled.dim)
        return self._joined[ref]

    def _write(self, node: Node, dim: int, start: int, end: int, length: int) -> None:
        base, source = self._of(node.args[0]), self.whole(node.args[1])
        filled = self._filled.get(base)
        if filled is None or filled.dim != dim:
            base = self.whole(base)
            filled = _Filled(dim, (_Piece(0, length, base),), base)
        self._filled[Ref(node.name)] = filled.put(_Piece(start, end, source))
        self.made.append(replace(node, args=(base, source, *node.args[2:])))

    def _places(self, node: Node) -> tuple[int, int, int | None] | None:
        """Return dimension, start and end of the part that the node reads or replaces if they are numbers; all of it
        has no end."""
        shape = self._shape(node.args[0])
        dim, start, end, step = (*node.args[1 + (node.op == _WRITE) :], *[None] * 4)[:4]
        dim = (dim or 0) % len(shape)
        length = shape[dim]
        if node.op == _PLACE:
            at = start % length if isinstance(start, int) and isinstance(length, int) else None
            return None if at is None else (dim, at, at + 1)
        start, end = start or 0, _FAR if end is None else end
        if step not in (None, 1) or not isinstance(start, int) or not isinstance(end, int):
            return None
        if start == 0 and end >= _FAR:
            return dim, 0, None
        if not isinstance(length, int):
            return None
        start, end = (min(max(at + length if at < 0 else at, 0), length) for at in (start, end))
        return (dim, start, end) if start < end else None

    def _join(self, node: Node, pieces: tuple[_Piece, ...], dim: int, single: bool = False) -> Ref:
        """Return the concatenation of the parts, or the single place that they are, without its dimension."""
        parts = [self._cut(node, piece, dim, single) for piece in pieces]
        return parts[0] if len(parts) == 1 else self._add(node, "aten.cat.default", (tuple(parts), dim), node.shape)

    def _cut(self, node: Node, piece: _Piece, dim: int, single: bool) -> Ref:
        shape, size = self._shape(piece.ref), piece.end - piece.start
        source = self._nodes.get(piece.ref.name)
        if single:
            if source is not None and source.aten == "unsqueeze" and source.args[1] % len(shape) == dim:
                return self._of(source.args[0])
            return self._add(node, _PLACE, (piece.ref, dim, piece.offset), (*shape[:dim], *shape[dim + 1 :]))
        if shape[dim] == size:
            return piece.ref
        part = (*shape[:dim], size, *shape[dim + 1 :])
        return self._add(node, _PART, (piece.ref, dim, piece.offset, piece.offset + size), part)

    def _add(self, node: Node, op: str, args: tuple[Any, ...], shape: tuple[Extent, ...]) -> Ref:
        name = f"{node.name}_part"
        while name in self._nodes or name in self._inputs:
            name += "_"
        written = replace(node, name=name, op=op, args=args, kwargs=(), shape=shape, results=())
        self._nodes[name] = written
        self.made.append(written)
        return Ref(name)

    def _of(self, ref: Ref) -> Ref:
        return self._same.get(ref, ref)

    def _read(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.whole(value)
        return tuple(map(self._read, value)) if isinstance(value, (tuple, list)) else value

    def _shape(self, ref: Ref) -> tuple[Extent, ...]:
        if ref.name in self._inputs:
            return self._inputs[ref.name]
        node = self._nodes[ref.name]
        return node.results[ref.item or 0][0] if node.results else node.shape
