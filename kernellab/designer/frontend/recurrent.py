"""Recurrent layers: what their inputs give each gate as one product of all steps, then a launch that walks the steps.

The split is cuDNN's (Appleyard, Kocisky and Blunsom, "Optimizing Performance of Recurrent Neural Networks on GPUs",
2016, section 3): half of the products do not wait for the state, and run as one matrix product before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.ir import extents
from kernellab.designer.ir.expr import Expr, Index, Ix, Leaf, Num, Op
from kernellab.designer.ir.scaling import WIDE, down, in_two, largest

#: how many gates each cell has: the blocks of rows that its weights consist of
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_DTYPES = ("float32", "float64")
#: cells whose states, but for the first one, are no larger than 1; and that whose are no larger than the first and 1
WITHIN_ONE = frozenset(("lstm", "rnn_tanh"))
BOUNDED = WITHIN_ONE | {"gru"}
#: the overload of layers that run at once
AT_ONCE = ".at_once"


@dataclass(frozen=True)
class Halves:
    """How a layer's products of float32 are made of float16: what ``weights`` is the higher half of.

    ``low`` [width, gates * width] is the lower half, ``columns`` [gates * width] what both are scaled by, and ``rows``
    [rows] what the first state is, and of a GRU each. Of several layers ``low`` and ``columns`` have one such part for
    each part of ``weights``, and ``rows`` one for each layer, before.
    """

    low: str
    columns: str
    rows: str


@dataclass(frozen=True)
class Recurrence:
    """The steps of one layer in one direction, or of several such that run at once, as a separate launch.

    ``gates`` [steps, rows, gates * width] is what the inputs give, ``weights`` [width, gates * width] the state's,
    turned; ``bias`` [gates * width] is "" where there is none. ``starts`` [layers, rows, width] are the first states
    and ``made`` the states after each step, in the shape ``shape``: the output and, of an LSTM, its cells. Where
    ``backwards`` the gates are read from the last step on. ``halves``: the weights are float16, scaled.

    Several ``layers`` have their states in one tensor, each its own columns, and ``weights`` in several parts. Side by
    side each has separate ``gates``. Where they are a ``stack`` each reads what the one below made in the step
    before, so layer l is l steps late; only the first has ``gates``, and the weights of each layer's input come before
    those of its state (before the first layer's any), ``below`` [layers, gates * width] is the input's bias.
    """

    cell: str
    gates: tuple[str, ...]
    weights: str
    bias: str
    starts: tuple[str, ...]
    made: tuple[str, ...]
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
        return self.shape[2] if self.layers == 1 else int(self.shape[2]) // self.layers  # type: ignore[arg-type]


def _layer(b: Builder, node: Node, index: Index, item: int) -> Expr:
    if node.op.endswith(AT_ONCE):
        found = _at_once(b, node)
        return Leaf(found.made[item], index, found.dtype, node.line)
    found = _recurrence(b, node)
    if item == 0:
        return Leaf(found.made[0], index, found.dtype, node.line)
    rows, cols = index[1:]
    last = Ix((), extents.add(found.steps, -1))
    at = (rows, last, cols) if found.batch_first else (last, rows, cols)
    return Leaf(found.made[item - 1], at, found.dtype, node.line)


def _recurrence(b: Builder, node: Node) -> Recurrence:
    """The launch of a layer, which all of its results share; what it reads is stored before.

    Raises:
        NodeError: several layers at once, no batch, or a dtype whose states would be rounded at every step.
    """
    result = Ref(node.name, 0)
    if result in b.stored_names:
        found = b.calls[b.stored_names[result]]
        assert isinstance(found, Recurrence), found
        return found
    x, hx, weights, has_bias, layers, _, _, both, batch_first = node.args
    shape, dtype = b.shape(result), b.dtype(result)
    if layers != 1 or both or len(shape) != 3 or dtype not in _DTYPES or not isinstance(shape[2], int):
        raise b.refuse(node, f"a recurrent layer of {dtype} in {len(shape)} dimensions, or several at once")
    x, backwards = unflipped(b.nodes, x, 1 if batch_first else 0)
    gates = _gates(b, node, x, weights[0], weights[2] if has_bias else None)
    starts = tuple(_tensor(b, s) for s in (hx if isinstance(hx, (tuple, list)) else (hx,)))
    bias = _tensor(b, weights[3]) if has_bias else ""
    made = tuple(f"{node.name}_{word}" for word in ("states", "cells")[: len(starts)])
    both_ways = (shape[2], GATES[node.aten] * shape[2])
    parts: Halves | None = None
    if b.halves and dtype == WIDE and node.aten in BOUNDED:
        across, parts = _in_halves(b, node, weights[1], both_ways, starts[0])
    else:
        turned = b.axes_for(both_ways)
        across = b.store((node.name, "weights"), turned, b.value(weights[1], turned[::-1]), both_ways)
    found = Recurrence(
        node.aten, (gates,), across, bias, starts, made, shape, dtype, bool(batch_first), (backwards,), parts,
    )  # fmt: skip
    b.stored_names[result] = made[0]
    b.calls.update(dict.fromkeys(made, found))
    return found


def _in_halves(b: Builder, node: Node, weights: Ref, shape: tuple[Extent, ...], start: str) -> tuple[str, Halves]:
    """The state's weights, turned, as two float16, and what these and the first state are scaled by."""
    width, made = b.axes_for(shape)
    columns = b.store(
        (node.name, "columns"), (made,), down(largest(b.value(weights, (made, width)), width.leaves())), shape[1:]
    )
    (rows,) = b.axes_for((b.shape(Ref(node.name, 0))[0 if node.args[-1] else 1],), frozenset(width.leaves()))
    top: Expr = largest(Leaf(start, (Ix(), rows, width), WIDE), width.leaves())
    if node.aten not in WITHIN_ONE:
        top = Op("max", (top, Num(1.0, WIDE)), WIDE)
    fit = b.store((node.name, "rows"), (rows,), down(top), (rows.extent,))
    value = Op("mul", (b.value(weights, (made, width)), Leaf(columns, (made,), WIDE)), WIDE, node.line)
    high, low = (
        b.store((node.name, word), (width, made), part, shape)
        for word, part in zip(("weights", "weights_low"), in_two(value), strict=True)
    )
    return high, Halves(low, columns, fit)


def _at_once(b: Builder, node: Node) -> Recurrence:
    """The launch of several layers, as :func:`kernellab.designer.graph.layers.at_once` joined them."""
    result = Ref(node.name, 0)
    if result in b.stored_names:
        found = b.calls[b.stored_names[result]]
        assert isinstance(found, Recurrence), found
        return found
    given, starts, weights, biases, stack, batch_first = node.args
    shape, dtype = b.shape(result), b.dtype(result)
    layers = int(b.shape(starts[0])[0])  # type: ignore[arg-type]
    time, gates, turned = 1 if batch_first else 0, [], []
    for n, (x, own, bias) in enumerate(given):
        x, backwards = unflipped(b.nodes, x, time)
        gates.append(_gates(b, node, x, own, bias, f"gates_{n}" if n else "gates"))
        turned.append(backwards)
    first = tuple(_tensor(b, s) for s in starts)
    made = tuple(f"{node.name}_{word}" for word in ("states", "cells")[: len(starts)])
    outer, parts, width = b.shape(weights)
    kept = _tensor(b, weights)
    part, across, along = b.axes_for((parts, width, outer))
    value: Expr = Leaf(kept, (along, part, across), WIDE)
    columns = b.store((node.name, "columns"), (part, along), down(largest(value, across.leaves())), (parts, outer))
    value = Op("mul", (value, Leaf(columns, (part, along), WIDE)), WIDE, node.line)
    high, low = (
        b.store((node.name, word), (part, across, along), half, (parts, width, outer))
        for word, half in zip(("weights", "weights_low"), in_two(value), strict=True)
    )
    layer, row, col = b.axes_for((layers, shape[0 if batch_first else 1], width))
    top = Op("max", (largest(Leaf(first[0], (layer, row, col), WIDE), col.leaves()), Num(1.0, WIDE)), WIDE)
    rows = b.store((node.name, "rows"), (layer, row), down(top), (layer.extent, row.extent))
    found = Recurrence(
        node.aten, tuple(gates), high, _tensor(b, biases[1]) if biases else "", first, made, shape, dtype, batch_first,
        tuple(turned), Halves(low, columns, rows), layers, stack, _tensor(b, biases[0]) if biases and stack else "",
    )  # fmt: skip
    b.stored_names[result] = made[0]
    b.calls.update(dict.fromkeys(made, found))
    return found


def _gates(b: Builder, node: Node, x: Ref, weights: Ref, bias: Ref | None, word: str = "gates") -> str:
    """The tensor of what the inputs give each gate at every step: one product, and its bias."""
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
    """What lies under a flip of all steps, and whether there was one."""
    node = nodes.get(x.name)
    if node is None or node.aten != "flip" or [int(d) % len(node.shape) for d in node.args[1]] != [time]:
        return x, False
    return node.args[0], True


def _tensor(b: Builder, ref: Ref) -> str:
    """A tensor that holds ``ref`` in order: a launch that walks steps reads nothing else."""
    if ref.name in b.graph.constants:
        index = b.axes_for(b.shape(ref))
        return b.store(ref, index, b.value(ref, index), b.shape(ref))
    return b.tensor(ref) if b.is_stored(ref) else b.stored(ref)


#: left to the framework where a design may make library calls in addition to its own work, and that is faster
RECURRENT: dict[str, Handler] = dict.fromkeys(GATES, _layer)
