"""Windows as matrix products: at each tap, the input under a tile of outputs times that tap's weights.

An implicit product, without unfolding in memory. Its sums are [positions, output channels], or the transpose if the
tiling has the output channels first; the positions of several axes are one dimension.
"""

from __future__ import annotations

from kernellab.designer.emit.nodes import Value, accumulator, call, let, listed, multiply, product
from kernellab.designer.emit.windows.merged_tap import MergedTap
from kernellab.designer.emit.windows.one_loop import one_loop
from kernellab.designer.emit.windows.taps import load_at_taps, moving_taps, sum_dtype, tap_loops, with_axes
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.expr import Expr, Op
from kernellab.sketch.syntax.tree import Binary, Name
from kernellab.sketch.syntax.tree import Expr as Node


class Matrices:
    """The sums of a tile of outputs in one accumulator."""

    def __init__(self, w: Writer, weights: Value | None = None) -> None:
        """``weights``: those of the only tap, if they are already on chip."""
        self._w, self._win, self._loaded_weights = w, w.k.window, weights
        self._positions_first = w.t.window.positions_first
        self._axes = w.tile.axes(w.free(self._win))
        (self._c,) = self._win.sums
        (self._co,) = [a for a in self._axes if a in w.free(self._win.b)]
        self._positions = tuple(a for a in self._axes if a is not self._co)
        self._name = w.names.fresh("acc")
        positions, channels = product(w.tile.shape(self._positions)), w.tile.extent(self._co)
        self._shape = [positions, channels] if self._positions_first else [channels, positions]

    def sums(self) -> Value:
        """Write the products of all taps and channels and return their sum, along the axes of the outputs."""
        w, tiling = self._w, self._w.t.window
        w.scopes[0].body.append(accumulator(self._name, self._shape, sum_dtype(w)))
        if self._loaded_weights is not None:
            self._add_product()
        elif tiling.merged_tap is not None:
            merged = MergedTap(w, tiling.merged_tap, self._positions, self._co)
            other_taps = [tap for tap in moving_taps(w) if tap is not tiling.merged_tap]
            one_loop(w, other_taps, lambda: w.body.extend(merged.product(self._name)))
        elif w.t.core == "grididx":
            one_loop(w, moving_taps(w), self._add_product)
        else:
            tap_loops(w, moving_taps(w), self._add_product)
        return self._in_order()

    def _in_order(self) -> Value:
        """Return the accumulator with its axes in the launch's order."""
        w, positions, result = self._w, self._positions, Name(self._name)
        if self._positions_first and self._axes == (*positions, self._co):
            shape = listed(w.tile.shape(self._axes))
            return Value(call("reshape", result, shape) if len(positions) > 1 else result, self._axes)
        axes = (self._co, *positions)
        turned: Node = call("transpose", result) if self._positions_first else result
        if len(positions) > 1:
            turned = call("reshape", turned, listed(w.tile.shape(axes)))
        sums = Value(turned, axes)
        if w.uses.get(id(self._win), 0) > 1 or axes != self._axes:
            sums = w.named(sums, "sums")
        return with_axes(w, sums, self._axes)

    def _add_product(self) -> None:
        """Add the product of the current taps and channels to the accumulator."""
        w, win = self._w, self._win
        x, weights = self._input(win.a), self._weights(win.b, self._loaded_weights)
        if not win.parts:
            self._multiply(x, weights, self._name)
            return
        x_low, weights_low = self._input(win.parts[0]), self._weights(win.parts[1])
        # summed separately from the accumulator: in a long chain tensor cores round towards zero
        step = w.names.fresh("step_sums")
        w.body.append(accumulator(step, self._shape, sum_dtype(w)))
        self._multiply(x_low, weights, step)
        self._multiply(x, weights_low, step)
        self._multiply(x, weights, step)
        w.body.append(let(self._name, Binary("+", Name(self._name), Name(step))))

    def _input(self, factor: Expr) -> Node:
        """Return the input under the tile, as one side of the product; a packed copy has its channels last."""
        w, channels_last = self._w, self._win.last
        axes = (*self._positions, self._c) if channels_last else (self._c, *self._positions)
        x = with_axes(w, load_at_taps(w, before_rounding(factor)), axes)
        positions, channels = product(w.tile.shape(self._positions)), w.tile.extent(self._c)
        flat = [positions, channels] if channels_last else [channels, positions]
        matrix = x.tree if len(self._positions) == 1 else call("reshape", x.tree, listed(flat))
        return _rounded(factor, matrix if channels_last == self._positions_first else call("transpose", matrix))

    def _weights(self, factor: Expr, loaded: Value | None = None) -> Node:
        """Return the weights, as the other side."""
        tile = loaded or load_at_taps(self._w, before_rounding(factor))
        matrix = with_axes(self._w, tile, (self._co, self._c)).tree
        return _rounded(factor, call("transpose", matrix) if self._positions_first else matrix)

    def _multiply(self, x: Node, weights: Node, sums: str) -> None:
        pair = (x, weights) if self._positions_first else (weights, x)
        precision = self._w.t.product.precision
        self._w.body.append(multiply(*pair, sums, "" if precision == "ieee" else precision))


def before_rounding(factor: Expr) -> Expr:
    """Return the element that a factor is read from, before rounding."""
    return factor.args[0] if isinstance(factor, Op) else factor


def _rounded(factor: Expr, tile: Node) -> Node:
    """Round a tile of a factor if the factor is rounded; last, so that a load in the product's shape stays a load."""
    return call(factor.op, tile) if isinstance(factor, Op) else tile
