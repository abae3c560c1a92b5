"""Graphs in which the library computes products, convolutions and attention, and our own kernels everything around
them.

A product whose value one of our launches reads becomes one call. It reads its factors as they are in memory (a view or
a transpose is free), with nothing fused into it. Biases are split off first, so that they are fused with the other
work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kernellab.capture import Graph, Input, Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder
from kernellab.designer.frontend.convolutions import CONVOLUTIONS, numbers_of
from kernellab.designer.frontend.reductions import argument
from kernellab.designer.frontend.views import VIEWS
from kernellab.errors import DesignError
from kernellab.operations.aten import Role, named

_PRODUCTS = frozenset(("mm", "bmm"))
ATTENTION = "scaled_dot_product_attention"
_WITH_BIAS = {"addmm": "mm", "baddbmm": "bmm"}
_DTYPES = frozenset(("float64", "float32", "float16", "bfloat16"))
_TURNS = named(Role.TURN) & VIEWS.keys()
_SAME = named(Role.SAME)
_RESHAPES = (named(Role.RESHAPE) & VIEWS.keys()) - {"expand"}


@dataclass(frozen=True)
class Operand:
    """A tensor, the shape in which it is read, and the tensor dimension for each dimension of the operand."""

    tensor: str
    shape: tuple[Extent, ...]
    order: tuple[int, ...]
    #: its dtype; "" for the dtype of the call's result
    dtype: str = ""


class CallKind(Enum):
    """The kind of a library launch, set by the function that creates it."""

    PRODUCT = "product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    #: an ATen operation without a rule
    ATEN = "aten"


@dataclass(frozen=True)
class LibraryCall:
    """A launch of the library, which computes ``tensor`` of ``shape`` and ``dtype`` by the operation ``node``.

    ``why`` is the comment above its sketch, and ``title`` the suffix of the sketch's name. ``text`` is the call of an
    ATEN in a sketch's spelling.
    """

    kind: CallKind
    node: Node
    tensor: str
    shape: tuple[Extent, ...]
    operands: tuple[Operand, ...]
    dtype: str
    why: str
    text: str = ""
    title: str = "library"

    @property
    def op(self) -> str:
        """The ATen operation's name."""
        return self.node.aten

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(o.tensor for o in self.operands)


@dataclass(frozen=True)
class AttentionTold:
    """The arguments of an attention other than its tensors."""

    mask: Any
    dropout: float
    is_causal: bool
    scale: float | None
    grouped: bool


def attention_told(node: Node) -> AttentionTold:
    """Return the arguments of a ``scaled_dot_product_attention`` after q, k and v, given by position or by name."""
    names = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    mask, dropout, is_causal, scale, grouped = (argument(node, 3 + n, name) for n, name in enumerate(names))
    return AttentionTold(mask, dropout or 0.0, bool(is_causal), scale, bool(grouped))


#: calls by operation; all other calls are convolutions
_CALLS = {"mm": CallKind.PRODUCT, "bmm": CallKind.PRODUCT, ATTENTION: CallKind.ATTENTION}


def biases_apart(graph: Graph) -> Graph:
    """Return ``graph`` with the bias of each product or convolution added by separate nodes."""
    nodes: list[Node] = []
    names = {n.name for n in graph.nodes} | {i.name for i in graph.inputs}
    for node in graph.nodes:
        nodes += _apart(node, graph, names)
    return replace(graph, nodes=tuple(nodes))


def library_nodes(graph: Graph) -> frozenset[str]:
    """Return the products and convolutions of ``graph`` (without biases) that calls compute for our own kernels to
    read."""
    outputs = {ref.name for ref in graph.outputs}
    nodes = {n.name: n for n in graph.nodes}
    users: dict[str, list[str]] = {}
    for node in graph.nodes:
        for ref in node.refs():
            users.setdefault(ref.name, []).append(node.name)

    def leaves(name: str) -> bool:
        """Return whether the value is an output itself or through views."""
        if name in outputs:
            return True
        return any(nodes[u].aten in VIEWS and leaves(u) for u in users.get(name, []))

    return frozenset(n.name for n in graph.nodes if _is_call(n) and n.dtype in _DTYPES and not leaves(n.name))


def with_library(graph: Graph) -> tuple[Graph, frozenset[str]]:
    """Return ``graph`` with separate biases, and the nodes that are calls.

    Raises:
        DesignError: no product or convolution is followed by more than its bias.
    """
    graph = biases_apart(graph)
    calls = library_nodes(graph)
    if not rests(graph, calls):
        raise DesignError(
            "The graph has no library product with other work around it.", "Choose a schedule without library calls."
        )
    return graph, calls


def rests(graph: Graph, calls: frozenset[str]) -> bool:
    """Return whether our own kernels have more to do than add biases."""
    biases = {n.name for n in graph.nodes if n.aten == "add" and any(r.name in calls for r in n.refs())}
    work = [n for n in graph.nodes if n.name not in calls | biases and n.aten not in VIEWS]
    return bool(calls) and bool(work)


def given(graph: Graph, calls: frozenset[str]) -> Graph:
    """Return ``graph`` with the library's values as inputs: the graph of our own launches."""
    inputs = [Input(n.name, -1, n.shape, n.dtype) for n in graph.nodes if n.name in calls]
    own_nodes = tuple(n for n in graph.nodes if n.name not in calls)
    return replace(graph, inputs=(*graph.inputs, *inputs), nodes=own_nodes)


def call_of(b: Builder, ref: Ref, tensor: str) -> LibraryCall:
    """Return the call for a node; operands that must be stored are stored before.

    Raises:
        DesignError: a call does not accept its numbers or its operands.
    """
    node = b.nodes[ref.name]
    if not _is_call(node):
        raise AssertionError(node)
    call_args = node.args[: 3 if node.aten == ATTENTION else 2]
    operands = tuple(_operand(b, a) for a in call_args)
    if node.aten in CONVOLUTIONS:
        if any(o.order != tuple(range(len(o.shape))) for o in operands):
            operands = tuple(_as_it_is(b, a) for a in call_args)
        numbers_of(b, node)
    shapes: dict[str, tuple[Extent, ...]] = {}
    for operand in operands:
        if shapes.setdefault(operand.tensor, operand.shape) != operand.shape:
            raise DesignError("A call of the library would read one tensor in two shapes.", "Pass it twice.")
    kind = _CALLS.get(node.aten, CallKind.CONVOLUTION)
    why = f"One call of the framework's library makes this {kind.value}; what is around it is our own."
    return LibraryCall(kind, node, tensor, b.shape(ref), operands, node.dtype, why)


def _operand(b: Builder, ref: Any) -> Operand:
    order = list(range(len(b.shape(ref))))
    while not b.is_stored(ref):
        node = b.nodes[ref.name]
        kind = node.aten
        if kind in _TURNS:
            permutation = _permutation(node, len(order))
            order = [permutation[d] for d in order]
        elif not _is_same(b, ref):
            break
        ref = node.args[0]
    transposed = _turned_under(b, ref)
    if transposed is not None:
        return Operand(transposed.tensor, transposed.shape, tuple(transposed.order[d] for d in order))
    base = ref
    while not b.is_stored(base) and (_is_same(b, base) or b.nodes[base.name].aten in _RESHAPES):
        base = b.nodes[base.name].args[0]
    if base.name in b.graph.constants:
        raise DesignError("A call of the library would need a constant of the reference.", "Pass it as an input.")
    tensor = b.tensor(base) if b.is_stored(base) else b.stored(ref)
    return Operand(tensor, b.shape(ref), tuple(order))


def _turned_under(b: Builder, ref: Ref) -> Operand | None:
    """Match a reshape of only the batches over transposed matrices: the transpose can follow the reshape, and is then
    free."""
    if b.is_stored(ref) or b.nodes[ref.name].aten not in _RESHAPES:
        return None
    inner = b.nodes[ref.name].args[0]
    while not b.is_stored(inner) and _is_same(b, inner):
        inner = b.nodes[inner.name].args[0]
    if b.is_stored(inner) or b.nodes[inner.name].aten not in _TURNS:
        return None
    rank, shape = len(b.shape(inner)), b.shape(ref)
    matrices = [*range(rank - 2), rank - 1, rank - 2]
    if rank < 3 or len(shape) < 3 or _permutation(b.nodes[inner.name], rank) != matrices:
        return None
    base = b.nodes[inner.name].args[0]
    while not b.is_stored(base) and _is_same(b, base):
        base = b.nodes[base.name].args[0]
    if not b.is_stored(base) or shape[-2:] != b.shape(inner)[-2:] or base.name in b.graph.constants:
        return None
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return Operand(b.tensor(base), (*shape[:-2], shape[-1], shape[-2]), order)


def _is_same(b: Builder, ref: Ref) -> bool:
    """Return whether it is a copy, or an expansion that adds nothing."""
    node = b.nodes[ref.name]
    same = node.aten == "expand" and node.shape == b.shape(node.args[0])
    return same or node.aten in _SAME


def _as_it_is(b: Builder, ref: Ref) -> Operand:
    """Return the operand of a convolution, which accepts no transpose: it is stored in order if necessary."""
    operand = _operand(b, ref)
    if operand.order == tuple(range(len(operand.shape))):
        return operand
    return Operand(b.stored(ref), b.shape(ref), tuple(range(len(b.shape(ref)))))


def _permutation(node: Node, rank: int) -> list[int]:
    kind = node.aten
    if kind == "permute":
        return [int(d) % rank for d in node.args[1]]
    order = list(range(rank))
    first, second = (0, rank - 1) if kind == "t" else (int(node.args[1]) % rank, int(node.args[2]) % rank)
    order[first], order[second] = order[second], order[first]
    return order


def _apart(node: Node, graph: Graph, names: set[str]) -> list[Node]:
    kind = node.aten
    if kind in _WITH_BIAS:
        bias, left, right = node.args[:3]
        product = replace(
            node, name=fresh(f"{node.name}_product", names), op=f"aten.{_WITH_BIAS[kind]}.default",
            args=(left, right), kwargs=(),
        )  # fmt: skip
        nodes, sides = [product], [Ref(product.name), bias]
        for n, word in enumerate(("alpha", "beta")):
            factor = node.keyword(word, 1)
            if factor != 1:
                shape = node.shape if n == 0 else _shape_of(graph, nodes, bias)
                scaled = Node(
                    fresh(f"{node.name}_{word}", names), "aten.mul.Tensor", (sides[n], factor), (), shape, node.dtype,
                    node.line,
                )  # fmt: skip
                nodes.append(scaled)
                sides[n] = Ref(scaled.name)
        return [*nodes, replace(node, op="aten.add.Tensor", args=tuple(sides), kwargs=())]
    if kind not in CONVOLUTIONS or len(node.args) < 3 or node.args[2] is None:
        return [node]
    product = replace(node, name=fresh(f"{node.name}_product", names), args=(*node.args[:2], None, *node.args[3:]))
    along: tuple[Extent, ...] = (node.shape[1], *[1] * (len(node.shape) - 2))
    view = Node(
        fresh(f"{node.name}_bias", names), "aten.view.default", (node.args[2], along), (), along, node.dtype, node.line
    )
    return [product, view, replace(node, op="aten.add.Tensor", args=(Ref(product.name), Ref(view.name)), kwargs=())]


def _shape_of(graph: Graph, more: list[Node], ref: Ref) -> tuple[Extent, ...]:
    shape = next((i.shape for i in graph.inputs if i.name == ref.name), None)
    return shape if shape is not None else next(n.shape for n in (*graph.nodes, *more) if n.name == ref.name)


def fresh(name: str, names: set[str]) -> str:
    """Return ``name``, with underscores until it is not in ``names``, and add it to ``names``."""
    while name in names:
        name += "_"
    names.add(name)
    return name


def _is_call(node: Node) -> bool:
    """Return whether the node is a product, a convolution without a bias, or attention without a mask and dropout."""
    kind = node.aten
    if kind in _PRODUCTS:
        return True
    if kind == ATTENTION:
        arguments = attention_told(node)
        return arguments.mask is None and not arguments.dropout and not arguments.grouped and len(node.shape) in (3, 4)
    return kind in CONVOLUTIONS and (len(node.args) < 3 or node.args[2] is None) and len(node.shape) > 2
