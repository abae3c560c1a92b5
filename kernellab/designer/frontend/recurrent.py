"""Recurrent layers: one product computes the inputs' share of the gates for all steps, then a launch runs the steps.

This is the split of cuDNN (Appleyard, Kocisky and Blunsom, "Optimizing Performance of Recurrent Neural Networks on
GPUs", 2016, section 3): half of the products do not depend on the state, and run first as one matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Index, Ix
from kernellab.designer.ir.expr import Expr, Leaf, Num, Op
from kernellab.designer.ir.scaling import WIDE, down, in_two, largest

#: number of gates of each cell: the blocks of rows of its weights
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_DTYPES = ("float32", "float64")
#: cells whose states after the first are at most 1 in magnitude; and with those whose states are at most max(first
#: state, 1)
WITHIN_ONE = frozenset(("lstm", "rnn_tanh"))
BOUNDED = WITHIN_ONE | {"gru"}
#: the overload of layers that run at once
AT_ONCE = ".at_once"


@dataclass(frozen=True)
class Halves:
    """The float16 representation of a layer's float32 products; ``weights`` is the higher half.

    ``low`` [width, gates * width] is the lower half, ``columns`` [gates * width] the scale of both, and ``rows`` [rows]
    the scale of the first state (of a GRU, of every state). With several layers, ``low`` and ``columns`` have one such
    part for each part of ``weights``, and ``rows`` one for each layer, as leading dimensions.
    """

    low: str
    columns: str
    rows: str


@dataclass(frozen=True)
class Recurrence:
    """The steps of one layer in one direction, or of several layers that run at once, as a separate launch.

    ``gates`` [steps, rows, gates * width] is the inputs' share, ``weights`` [width, gates * width] those of the state,
    transposed; ``bias`` [gates * width] is "" if there is none. ``starts`` [layers, rows, width] are the first states
    and ``written`` the states after each step, in the shape ``shape``: the output and, for an LSTM, its cells. If
    ``backwards``, the gates are read from the last step on. ``halves``: the weights are scaled float16.

    Several ``layers`` have their states in one tensor, each in its own columns, and ``weights`` in several parts. Side
    by side, each has separate ``gates``. In a ``stack``, each layer reads the result of the one below from the previous
    step, so layer l is l steps late; only the first has ``gates``, the weights of each layer's input precede those of
    its state (for the first layer these are arbitrary), and ``below`` [layers, gates * width] is the input's bias.
    """

    cell: str
    gates: tuple[str, ...]
    weights: str
    bias: str
    starts: tuple[str, ...]
    written: tuple[str, ...]
    shape: tuple[Extent, ...]
    dtype: str
    batch_first: bool
    backwards: tuple[bool, ...]
    halves: Halves | None = None
    layers: int = 1
    stack: bool = False
    below: str = ""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.gates, self.weights, self.bias, self.below, *self.starts)) - {""}

    @property
    def steps(self) -> Extent:
        return self.shape[1 if self.batch_first else 0]

    @property
    def rows(self) -> Extent:
        return self.shape[0 if self.batch_first else 1]

    @property
    def width(self) -> Extent:
        """The width of one layer."""
        return self.shape[2] if self.layers == 1 else int(self.shape[2]) // self.layers  # type: ignore[arg-type]


class LayerArguments(NamedTuple):
    """The arguments of ATen's recurrent layers, in their order."""

    x: Ref
    #: the first state; for an LSTM a list of the first state and cells
    states: Any
    #: for each layer and direction: of the input, of the state, and their biases
    weights: tuple[Ref, ...]
    has_bias: bool
    layers: int
    dropout: float
    training: bool
    bidirectional: bool
    batch_first: bool


def layer_arguments(node: Node) -> LayerArguments:
    """Return the arguments of a recurrent layer's node."""
    return LayerArguments(*node.args)


def first_states(layer: LayerArguments) -> tuple[Ref, ...]:
    """Return the first state and, for an LSTM, the first cells."""
    return tuple(layer.states) if isinstance(layer.states, (tuple, list)) else (layer.states,)


def _layer(b: Builder, node: Node, index: Index, item: int) -> Expr:
    if node.op.endswith(AT_ONCE):
        steps_launch = _at_once(b, node)
        return Leaf(steps_launch.written[item], index, steps_launch.dtype, node.line)
    steps_launch = _recurrence(b, node)
    if item == 0:
        return Leaf(steps_launch.written[0], index, steps_launch.dtype, node.line)
    rows, cols = index[1:]
    last = Ix((), extents.add(steps_launch.steps, -1))
    at = (rows, last, cols) if steps_launch.batch_first else (last, rows, cols)
    return Leaf(steps_launch.written[item - 1], at, steps_launch.dtype, node.line)


def _recurrence(b: Builder, node: Node) -> Recurrence:
    """Return the launch of a layer, which all of its results share; tensors that it reads are stored before.

    Raises:
        NodeError: several layers at once, no batch, or a dtype whose states would be rounded at every step.
    """
    result = Ref(node.name, 0)
    if result in b.stored_names:
        steps_launch = b.calls[b.stored_names[result]]
        assert isinstance(steps_launch, Recurrence), steps_launch
        return steps_launch
    layer = layer_arguments(node)
    shape, dtype = b.shape(result), b.dtype(result)
    if (
        layer.layers != 1
        or layer.bidirectional
        or len(shape) != 3
        or dtype not in _DTYPES
        or not isinstance(shape[2], int)
    ):
        raise b.refuse(node, f"a recurrent layer of {dtype} in {len(shape)} dimensions, or several at once")
    x, backwards = unflipped(b.nodes, layer.x, 1 if layer.batch_first else 0)
    gates = _gates(b, node, x, layer.weights[0], layer.weights[2] if layer.has_bias else None)
    starts = tuple(_tensor(b, s) for s in first_states(layer))
    bias = _tensor(b, layer.weights[3]) if layer.has_bias else ""
    state_names = tuple(f"{node.name}_{word}" for word in ("states", "cells")[: len(starts)])
    weight_shape = (shape[2], GATES[node.aten] * shape[2])
    parts: Halves | None = None
    if b.options.halves and dtype == WIDE and node.aten in BOUNDED:
        across, parts = _in_halves(b, node, layer.weights[1], weight_shape, starts[0])
    else:
        state_index = b.axes_for(weight_shape)
        across = b.store(
            (node.name, "weights"), state_index, b.value(layer.weights[1], state_index[::-1]), weight_shape
        )
    steps_launch = Recurrence(
        node.aten, (gates,), across, bias, starts, state_names, shape, dtype, bool(layer.batch_first), (backwards,),
        parts,
    )  # fmt: skip
    b.stored_names[result] = state_names[0]
    b.calls.update(dict.fromkeys(state_names, steps_launch))
    return steps_launch


def _in_halves(b: Builder, node: Node, weights: Ref, shape: tuple[Extent, ...], start: str) -> tuple[str, Halves]:
    """Return the state's weights, transposed, as two float16, and the scales of these and of the first state."""
    width, gate_columns = b.axes_for(shape)
    columns = b.store(
        (node.name, "columns"),
        (gate_columns,),
        down(largest(b.value(weights, (gate_columns, width)), width.leaves())),
        shape[1:],
    )
    (rows,) = b.axes_for(
        (b.shape(Ref(node.name, 0))[0 if layer_arguments(node).batch_first else 1],), frozenset(width.leaves())
    )
    top: Expr = largest(Leaf(start, (Ix(), rows, width), WIDE), width.leaves())
    if node.aten not in WITHIN_ONE:
        top = Op("max", (top, Num(1.0, WIDE)), WIDE)
    fit = b.store((node.name, "rows"), (rows,), down(top), (rows.extent,))
    value = Op("mul", (b.value(weights, (gate_columns, width)), Leaf(columns, (gate_columns,), WIDE)), WIDE, node.line)
    high, low = (
        b.store((node.name, word), (width, gate_columns), part, shape)
        for word, part in zip(("weights", "weights_low"), in_two(value), strict=True)
    )
    return high, Halves(low, columns, fit)


def _at_once(b: Builder, node: Node) -> Recurrence:
    """Return the launch of several layers joined by :func:`kernellab.designer.graph.layers.at_once`."""
    result = Ref(node.name, 0)
    if result in b.stored_names:
        call = b.calls[b.stored_names[result]]
        assert isinstance(call, Recurrence), call
        return call
    layer_inputs, starts, weights, biases, stack, batch_first = node.args
    shape, dtype = b.shape(result), b.dtype(result)
    layers = int(b.shape(starts[0])[0])  # type: ignore[arg-type]
    time, gates, flipped = 1 if batch_first else 0, [], []
    for n, (x, own, bias) in enumerate(layer_inputs):
        x, backwards = unflipped(b.nodes, x, time)
        gates.append(_gates(b, node, x, own, bias, f"gates_{n}" if n else "gates"))
        flipped.append(backwards)
    first = tuple(_tensor(b, s) for s in starts)
    made = tuple(f"{node.name}_{word}" for word in ("states", "cells")[: len(starts)])
    outer, parts, width = b.shape(weights)
    weight_tensor = _tensor(b, weights)
    part, across, along = b.axes_for((parts, width, outer))
    value: Expr = Leaf(weight_tensor, (along, part, across), WIDE)
    columns = b.store((node.name, "columns"), (part, along), down(largest(value, across.leaves())), (parts, outer))
    value = Op("mul", (value, Leaf(columns, (part, along), WIDE)), WIDE, node.line)
    high, low = (
        b.store((node.name, word), (part, across, along), half, (parts, width, outer))
        for word, half in zip(("weights", "weights_low"), in_two(value), strict=True)
    )
    layer, row, col = b.axes_for((layers, shape[0 if batch_first else 1], width))
    top = Op("max", (largest(Leaf(first[0], (layer, row, col), WIDE), col.leaves()), Num(1.0, WIDE)), WIDE)
    rows = b.store((node.name, "rows"), (layer, row), down(top), (layer.extent, row.extent))
    call = Recurrence(
        node.aten, tuple(gates), high, _tensor(b, biases[1]) if biases else "", first, made, shape, dtype, batch_first,
        tuple(flipped), Halves(low, columns, rows), layers, stack, _tensor(b, biases[0]) if biases and stack else "",
    )  # fmt: skip
    b.stored_names[result] = made[0]
    b.calls.update(dict.fromkeys(made, call))
    return call


def _gates(b: Builder, node: Node, x: Ref, weights: Ref, bias: Ref | None, word: str = "gates") -> str:
    """Return the tensor of the inputs' share of each gate at every step: one product and its bias."""
    *lead, features = b.shape(x)
    shape = (*lead, b.shape(weights)[0])
    index = b.axes_for(shape)
    over = Ix() if features == 1 else Ix((b.pick_axis(features, {a for ix in index for a in ix.within()}, whole=True),))
    dtype = b.dtype(x)
    left, right = Leaf(_tensor(b, x), (*index[:-1], over), dtype), b.value(weights, (index[-1], over))
    rows = index[1] if index[1].axes else index[0]
    value: Expr = Op("mul", (left, right), dtype, node.line)
    if over.axes:
        value = b.dot(left, right, over.axes[0], rows, index[-1], dtype, node.line)
    if bias is not None:
        value = Op("add", (value, b.value(bias, index[-1:])), dtype, node.line)
    return b.store((node.name, word), index, value, shape)


def unflipped(nodes: Mapping[str, Node], x: Ref, time: int) -> tuple[Ref, bool]:
    """Return the operand of a flip of all steps, and whether there was a flip."""
    node = nodes.get(x.name)
    if node is None or node.aten != "flip" or [int(d) % len(node.shape) for d in node.args[1]] != [time]:
        return x, False
    return node.args[0], True


def _tensor(b: Builder, ref: Ref) -> str:
    """Return a tensor that holds ``ref`` in order: a launch of steps reads only such tensors."""
    if ref.name in b.graph.constants:
        index = b.axes_for(b.shape(ref))
        return b.store(ref, index, b.value(ref, index), b.shape(ref))
    return b.tensor(ref) if b.is_stored(ref) else b.stored(ref)


#: left to the framework if a design may make library calls in addition to its own work, and that is faster
RECURRENT: dict[str, Handler] = dict.fromkeys(GATES, _layer)
