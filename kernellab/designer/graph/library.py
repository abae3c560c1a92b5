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
from kernellab.designer.graph.uses import Uses
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
class AttentionArguments:
    """The arguments of an attention other than its tensors."""

    mask: Any
    dropout: float
    is_causal: bool
    scale: float | None
    grouped: bool


def attention_arguments(node: Node) -> AttentionArguments:
    """Return the arguments of a ``scaled_dot_product_attention`` after q, k and v, given by position or by name."""
    names = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    mask, dropout, is_causal, scale, grouped = (argument(node, 3 + n, name) for n, name in enumerate(names))
    return AttentionArguments(mask, dropout or 0.0, bool(is_causal), scale, bool(grouped))


#: calls by operation; all other calls are convolutions
_CALLS = {"mm": CallKind.PRODUCT, "bmm": CallKind.PRODUCT, ATTENTION: CallKind.ATTENTION}


def with_separate_biases(graph: Graph) -> Graph:
    """Return ``graph`` with the bias of each product or convolution added by separate nodes."""
    nodes: list[Node] = []
    names = {n.name for n in graph.nodes} | {i.name for i in graph.inputs}
    for node in graph.nodes:
        if node.aten in _WITH_BIAS:
            nodes += _product_and_bias(node, graph, names)
        elif node.aten in CONVOLUTIONS and len(node.args) > 2 and node.args[2] is not None:
            nodes += _convolution_and_bias(node, names)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def library_nodes(graph: Graph) -> frozenset[str]:
    """Return the products and convolutions of ``graph`` (without biases) that calls compute for our own kernels to
    read."""
    uses = Uses(graph)
    calls = (n.name for n in graph.nodes if _is_call(n) and n.dtype in _DTYPES)
    return frozenset(name for name in calls if not uses.is_output(name))


def with_library(graph: Graph) -> tuple[Graph, frozenset[str]]:
    """Return ``graph`` with separate biases, and the nodes that are calls.

    Raises:
        DesignError: no product or convolution is followed by more than its bias.
    """
    graph = with_separate_biases(graph)
    calls = library_nodes(graph)
    if not has_other_work(graph, calls):
        raise DesignError(
            "The graph has no library product with other work around it.", "Choose a schedule without library calls."
        )
    return graph, calls


def has_other_work(graph: Graph, calls: frozenset[str]) -> bool:
    """Return whether our own kernels have more to do than add biases."""
    biases = {n.name for n in graph.nodes if n.aten == "add" and any(r.name in calls for r in n.refs())}
    work = [n for n in graph.nodes if n.name not in calls | biases and n.aten not in VIEWS]
    return bool(calls) and bool(work)


def with_calls_as_inputs(graph: Graph, calls: frozenset[str]) -> Graph:
    """Return ``graph`` with the library's values as inputs: the graph of our own launches."""
    inputs = [Input(n.name, -1, n.shape, n.dtype) for n in graph.nodes if n.name in calls]
    nodes = tuple(n for n in graph.nodes if n.name not in calls)
    return replace(graph, inputs=(*graph.inputs, *inputs), nodes=nodes)


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
            operands = tuple(_operand_in_order(b, a) for a in call_args)
        numbers_of(b, node)
    shapes: dict[str, tuple[Extent, ...]] = {}
    for operand in operands:
        if shapes.setdefault(operand.tensor, operand.shape) != operand.shape:
            raise DesignError("A call of the library would read one tensor in two shapes.", "Pass it twice.")
    kind = _CALLS.get(node.aten, CallKind.CONVOLUTION)
    why = f"One call of the framework's library makes this {kind.value}; what is around it is our own."
    return LibraryCall(kind, node, tensor, b.shape(ref), operands, node.dtype, why)


def _operand(b: Builder, ref: Ref) -> Operand:
    """Return how a call reads a value: transposes, copies and reshapes above a stored tensor are views of it."""
    order = list(range(len(b.shape(ref))))
    while not b.is_stored(ref):
        node = b.nodes[ref.name]
        if node.aten in _TURNS:
            permutation = _permutation(node, len(order))
            order = [permutation[d] for d in order]
        elif not _is_copy(b, ref):
            break
        ref = node.args[0]
    transposed = _transpose_under_reshape(b, ref)
    if transposed is not None:
        return Operand(transposed.tensor, transposed.shape, tuple(transposed.order[d] for d in order))
    base = ref
    while not b.is_stored(base) and (_is_copy(b, base) or b.nodes[base.name].aten in _RESHAPES):
        base = b.nodes[base.name].args[0]
    if base.name in b.graph.constants:
        raise DesignError("A call of the library would need a constant of the reference.", "Pass it as an input.")
    tensor = b.tensor(base) if b.is_stored(base) else b.stored(ref)
    return Operand(tensor, b.shape(ref), tuple(order))


def _transpose_under_reshape(b: Builder, ref: Ref) -> Operand | None:
    """Match a reshape of only the batches over transposed matrices: the transpose can follow the reshape, and is then
    free."""
    if b.is_stored(ref) or b.nodes[ref.name].aten not in _RESHAPES:
        return None
    inner = _without_copies(b, b.nodes[ref.name].args[0])
    if b.is_stored(inner) or b.nodes[inner.name].aten not in _TURNS:
        return None
    rank, shape = len(b.shape(inner)), b.shape(ref)
    matrices = [*range(rank - 2), rank - 1, rank - 2]
    if rank < 3 or len(shape) < 3 or _permutation(b.nodes[inner.name], rank) != matrices:
        return None
    base = _without_copies(b, b.nodes[inner.name].args[0])
    if not b.is_stored(base) or shape[-2:] != b.shape(inner)[-2:] or base.name in b.graph.constants:
        return None
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return Operand(b.tensor(base), (*shape[:-2], shape[-1], shape[-2]), order)


def _without_copies(b: Builder, ref: Ref) -> Ref:
    """Return the stored value, or the value that is no copy, of which ``ref`` is a copy."""
    while not b.is_stored(ref) and _is_copy(b, ref):
        ref = b.nodes[ref.name].args[0]
    return ref


def _is_copy(b: Builder, ref: Ref) -> bool:
    """Return whether it is a copy, or an expansion that adds nothing."""
    node = b.nodes[ref.name]
    adds_nothing = node.aten == "expand" and node.shape == b.shape(node.args[0])
    return adds_nothing or node.aten in _SAME


def _operand_in_order(b: Builder, ref: Ref) -> Operand:
    """Return the operand of a convolution, which accepts no transpose: it is stored in order if necessary."""
    operand = _operand(b, ref)
    if operand.order == tuple(range(len(operand.shape))):
        return operand
    return Operand(b.stored(ref), b.shape(ref), tuple(range(len(b.shape(ref)))))


def _permutation(node: Node, rank: int) -> list[int]:
    """Return the operand's dimension for each dimension of a transpose or permute."""
    if node.aten == "permute":
        return [int(d) % rank for d in node.args[1]]
    order = list(range(rank))
    first, second = (0, rank - 1) if node.aten == "t" else (int(node.args[1]) % rank, int(node.args[2]) % rank)
    order[first], order[second] = order[second], order[first]
    return order


def _product_and_bias(node: Node, graph: Graph, names: set[str]) -> list[Node]:
    """Return ``alpha * (left @ right) + beta * bias`` as separate nodes; the sum has the name of ``node``."""
    bias, left, right = node.args[:3]
    product = replace(
        node, name=fresh(f"{node.name}_product", names), op=f"aten.{_WITH_BIAS[node.aten]}.default",
        args=(left, right), kwargs=(),
    )  # fmt: skip
    nodes, terms = [product], []
    bias_shape = _shape_of(graph, bias)
    for word, term, shape in (("alpha", Ref(product.name), node.shape), ("beta", bias, bias_shape)):
        factor = node.keyword(word, 1)
        if factor != 1:
            name = fresh(f"{node.name}_{word}", names)
            nodes.append(Node(name, "aten.mul.Tensor", (term, factor), (), shape, node.dtype, node.line))
            term = Ref(name)
        terms.append(term)
    return [*nodes, replace(node, op="aten.add.Tensor", args=tuple(terms), kwargs=())]


def _convolution_and_bias(node: Node, names: set[str]) -> list[Node]:
    """Return the convolution without its bias, a view of the bias along the channels, and their sum."""
    product = replace(node, name=fresh(f"{node.name}_product", names), args=(*node.args[:2], None, *node.args[3:]))
    along_channels: tuple[Extent, ...] = (node.shape[1], *[1] * (len(node.shape) - 2))
    name, args = fresh(f"{node.name}_bias", names), (node.args[2], along_channels)
    view = Node(name, "aten.view.default", args, (), along_channels, node.dtype, node.line)
    return [product, view, replace(node, op="aten.add.Tensor", args=(Ref(product.name), Ref(view.name)), kwargs=())]


def _shape_of(graph: Graph, ref: Ref) -> tuple[Extent, ...]:
    values: list[Input | Node] = [*graph.inputs, *graph.nodes]
    return next(value.shape for value in values if value.name == ref.name)


def fresh(name: str, names: set[str]) -> str:
    """Return ``name``, with underscores until it is not in ``names``, and add it to ``names``."""
    while name in names:
        name += "_"
    names.add(name)
    return name


def _is_call(node: Node) -> bool:
    """Return whether the node is a product, a convolution without a bias, or attention without a mask and dropout."""
    if node.aten in _PRODUCTS:
        return True
    if node.aten == ATTENTION:
        arguments = attention_arguments(node)
        return arguments.mask is None and not arguments.dropout and not arguments.grouped and len(node.shape) in (3, 4)
    return node.aten in CONVOLUTIONS and (len(node.args) < 3 or node.args[2] is None) and len(node.shape) > 2
