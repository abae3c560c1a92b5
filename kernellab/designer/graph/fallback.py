"""Nodes without a rule: each becomes a call of the framework between our own launches, like Inductor's fallbacks.

A reference of forty operations is thus not refused because of one. Values that a sketch's tensors cannot hold (complex
numbers) stay inside one call, whose text includes the calls that compute them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kernellab.capture import Graph, Node, Ref, Sym
from kernellab.capture.graph import BITS, LOOP
from kernellab.designer.frontend.build import Builder
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.frontend.table import HANDLERS
from kernellab.designer.frontend.views import VIEWS
from kernellab.designer.graph.library import CallKind, LibraryCall, Operand
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.errors import DesignError, NodeError
from kernellab.operations.aten import Role, named
from kernellab.sketch.program.aten import BadCall, read_call
from kernellab.sketch.program.library import MOST_OPERANDS

#: arguments for the placement of a tensor, which a call between a kernel's launches must not have
_PLACE = frozenset(("device", "pin_memory", "layout", "memory_format", "non_blocking"))
#: nodes that create or move values without computing any
_IDLE = frozenset(VIEWS) | named(Role.SAME, Role.CAST, Role.FILL, Role.QUERY)


@dataclass(frozen=True)
class Fallback:
    """``calls``: nodes that the framework computes; ``stored``: nodes that our own launch stores for a view to read."""

    calls: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()

    def after(self, graph: Graph, error: DesignError) -> Fallback:
        """Return the next attempt after ``error`` refused the graph.

        Raises:
            DesignError: ``error`` itself, if nothing remains to try.
        """
        return self.beyond(graph, error) if isinstance(error, NodeError) else self.apart(graph, error)

    def beyond(self, graph: Graph, error: NodeError) -> Fallback:
        """Return the next attempt after ``error`` refused a node: a view gets its operand stored, another node becomes
        a call.

        Raises:
            NodeError: ``error`` itself, if the node already is a call or cannot be one.
        """
        node = next((n for n in graph.nodes if n.name == error.node), None)
        if node is None or node.name in self.calls or not node.op.startswith("aten.") or node.op in (BITS, LOOP):
            raise error
        under = {r.name for r in node.refs() if r.item is None} & {n.name for n in graph.nodes}
        if node.aten in VIEWS and not under <= self.stored | self.calls:
            return replace(self, stored=self.stored | under)
        same = {n.name for n in graph.nodes if n.aten == node.aten}
        more = same if node.aten not in HANDLERS else {node.name}
        names = {n.name for n in graph.nodes if n.name in more and _held(n)}
        if node.name not in names:
            names |= _readers(graph, node)
        if not names or names <= self.calls:
            raise error
        return replace(self, calls=self.calls | names)

    def apart(self, graph: Graph, error: DesignError) -> Fallback:
        """Return the next attempt if no launch can hold the joined work: first only pointwise operations are joined,
        then each operation gets its own launch, then each view too.

        Raises:
            DesignError: ``error`` itself, if all of that was tried.
        """
        tensor_nodes = [n for n in graph.nodes if _held(n)]
        each = frozenset(n.name for n in tensor_nodes if n.aten not in _IDLE)
        for names in (each & _ends(graph), each, frozenset(n.name for n in tensor_nodes)):
            if not names <= self.stored:
                return replace(self, stored=self.stored | names)
        raise error

    def leaves_work(self, graph: Graph) -> bool:
        """Return whether our own launches have anything left to compute."""
        return any(n.name not in self.calls and n.aten not in _IDLE and _held(n) for n in graph.nodes)


def aten_call(b: Builder, ref: Ref, tensor: str) -> LibraryCall:
    """Return the ATen call for a node; operands that must be stored are stored before.

    Raises:
        DesignError: a call of a sketch cannot state an argument of the node.
    """
    node = b.nodes[ref.name]
    read: list[Ref] = []
    text = _picked(_text(b, node, read), ref)
    if len(read) > MOST_OPERANDS:
        raise b.refuse(node, f"it reads {len(read)} tensors")
    try:
        read_call(text)
    except BadCall as error:
        raise b.refuse(node, error.what.rstrip(".").lower()) from None
    operands = tuple(_operand(b, r) for r in read)
    why = f"No rule designs {node.aten}: one call of the framework makes it; what is around it is our own."
    return LibraryCall(CallKind.ATEN, node, tensor, b.shape(ref), operands, b.dtype(ref), why, text)


def fallen(graph: Graph, calls: Iterable[str]) -> list[str]:
    """Return the distinct operation names of ``calls``."""
    kinds = (n.aten for n in graph.nodes if n.name in set(calls))
    return list(dict.fromkeys(kinds))


def _ends(graph: Graph) -> frozenset[str]:
    """Return the operands and results of operations that are not pointwise, through views."""
    ends, through = set[str](), set[str]()
    for node in reversed(graph.nodes):
        kind = node.aten
        is_view = kind in VIEWS
        if not is_view and kind not in OPERATIONS:
            ends.add(node.name)
        if (not is_view and kind not in OPERATIONS) or (is_view and node.name in through):
            through |= {r.name for r in node.refs()}
    return frozenset(ends | through)


def _held(node: Node) -> bool:
    """Return whether a sketch's tensors can hold all results of the node."""
    dtypes = [dtype for _, dtype in node.results] or [node.dtype]
    return all(dtype in DTYPES for dtype in dtypes)


def _readers(graph: Graph, node: Node) -> set[str]:
    """Return the first nodes after ``node`` whose values a tensor can hold."""
    readers: set[str] = set()
    inside = {node.name}
    for reader in graph.nodes:
        if any(r.name in inside for r in reader.refs()):
            (readers if _held(reader) else inside).add(reader.name)
    return readers


def _operand(b: Builder, ref: Ref) -> Operand:
    shape = b.shape(ref)
    if ref.name in b.graph.constants:
        index = b.axes_for(shape)
        tensor = b.store(ref, index, b.value(ref, index), shape)
    else:
        tensor = b.tensor(ref) if b.is_stored(ref) else b.stored(ref)
    shape = shape or (1,)
    return Operand(tensor, shape, tuple(range(len(shape))), b.dtype(ref))


def _picked(text: str, ref: Ref) -> str:
    return text if ref.item is None else f"{text}[{ref.item}]"


def _text(b: Builder, node: Node, read: list[Ref]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, Ref):
            if b.dtype(value) not in DTYPES:
                if value.name in b.inputs:
                    raise b.refuse(node, f"{value.name!r} is {b.dtype(value)}, which no sketch's tensor holds")
                return _picked(_text(b, b.nodes[value.name], read), value)
            if value not in read:
                read.append(value)
            name = f"x{read.index(value)}"
            return name if b.shape(value) else f"reshape.default({name}, [])"
        if isinstance(value, Sym):
            if value.is_float:
                raise b.refuse(node, "it takes a number that is known only when the kernel runs")
            return f"({value.expr})"
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(text, value))}]"
        if isinstance(value, float) and not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return repr(value)

    if not node.op.startswith("aten."):
        raise b.refuse(node, "it is no operation of ATen")
    keywords = [f"{k}={text(v)}" for k, v in node.kwargs if k not in _PLACE and v is not None]
    return f"{node.op.removeprefix('aten.')}({', '.join([*map(text, node.args), *keywords])})"


__all__ = ["DesignError", "Fallback", "aten_call", "fallen"]
