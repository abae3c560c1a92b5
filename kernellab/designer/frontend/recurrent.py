"""Recurrent layers: what their inputs give each gate as one product of all steps, then a launch that walks the steps.

The split is cuDNN's (Appleyard, Kocisky and Blunsom, "Optimizing Performance of Recurrent Neural Networks on GPUs",
2016, section 3): half of the products do not wait for the state, and run as one matrix product before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
_BOUNDED = WITHIN_ONE | {"gru"}


@dataclass(frozen=True)
class Halves:
    """How a layer's products of float32 are made of float16: what ``weights`` is the higher half of.

    ``low`` [width, gates * width] is the lower half, ``columns`` [gates * width] what both are scaled by, and ``rows``
    [rows] what the first state is, and of a GRU each.
    """

    low: str
    columns: str
    rows: str


@dataclass(frozen=True)
class Recurrence:
    """The steps of one layer in one direction, as a separate launch.

    ``gates`` [steps, rows, gates * width] is what the inputs give, ``weights`` [width, gates * width] the state's,
    turned; ``bias`` [gates * width] is "" where there is none. ``starts`` [1, rows, width] are the first states and
    ``made`` the states after each step, in the shape ``shape``: the output and, of an LSTM, its cells. ``backwards``:
    the gates are read from the last step on. ``halves``: the weights are float16, scaled.
    """

    cell: str
    gates: str
    weights: str
    bias: str
    starts: tuple[str, ...]
    made: tuple[str, ...]
    shape: tuple[Extent, ...]
    dtype: str
    batch_first: bool
    backwards: bool
    halves: Halves | None = None

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((self.gates, self.weights, self.bias, *self.starts)) - {""}

    @property
    def steps(self) -> Extent:
        return self.shape[1 if self.batch_first else 0]

    @property
    def rows(self) -> Extent:
        return self.shape[0 if self.batch_first else 1]

    @property
    def width(self) -> Extent:
        return self.shape[2]


def _layer(b: Builder, node: Node, index: Index, item: int) -> Expr:
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
    x, backwards = _unflipped(b, x, 1 if batch_first else 0)
    gates = _gates(b, node, x, weights, bool(has_bias))
    starts = tuple(_tensor(b, s) for s in (hx if isinstance(hx, (tuple, list)) else (hx,)))
    bias = _tensor(b, weights[3]) if has_bias else ""
    made = tuple(f"{node.name}_{word}" for word in ("states", "cells")[: len(starts)])
    both_ways = (shape[2], GATES[node.aten] * shape[2])
    parts: Halves | None = None
    if b.halves and dtype == WIDE and node.aten in _BOUNDED:
        across, parts = _in_halves(b, node, weights[1], both_ways, starts[0])
    else:
        turned = b.axes_for(both_ways)
        across = b.store((node.name, "weights"), turned, b.value(weights[1], turned[::-1]), both_ways)
    found = Recurrence(
        node.aten, gates, across, bias, starts, made, shape, dtype, bool(batch_first), backwards, parts,
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


def _gates(b: Builder, node: Node, x: Ref, weights: Any, has_bias: bool) -> str:
    """The tensor of what the inputs give each gate at every step: one product, and its bias."""
    *lead, features = b.shape(x)
    shape = (*lead, b.shape(weights[0])[0])
    index = b.axes_for(shape)
    over = Ix() if features == 1 else Ix((b.pick_axis(features, {a for ix in index for a in ix.within()}, whole=True),))
    dtype = b.dtype(x)
    left, right = Leaf(_tensor(b, x), (*index[:-1], over), dtype), b.value(weights[0], (index[-1], over))
    rows = index[1] if index[1].axes else index[0]
    value: Expr = Op("mul", (left, right), dtype, node.line)
    if over.axes:
        value = b.dot(left, right, over.axes[0], rows, index[-1], dtype, node.line)
    if has_bias:
        value = Op("add", (value, b.value(weights[2], index[-1:])), dtype, node.line)
    return b.store((node.name, "gates"), index, value, shape)


def _unflipped(b: Builder, x: Ref, time: int) -> tuple[Ref, bool]:
    """What lies under a flip of all steps, and whether there was one."""
    node = b.nodes.get(x.name)
    rank = len(b.shape(x))
    if node is None or node.aten != "flip" or [int(d) % rank for d in node.args[1]] != [time]:
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
