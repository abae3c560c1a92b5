"""The steps of a recurrent layer as one sketch: the state goes through memory, so that a wide one is computed in
blocks.

The sketch is written as text and parsed: for one layer of an RNN it is

    for b in range(0, rows, BM):
        for t in range(steps):
            for j in range(0, width, BN):
                sum_0 = ...                            # the state times the weights, in blocks of BK
                load(gates[t, b:b+BM, 0, j:j+BN] -> in_0)
                state = tanh(in_0 + sum_0)
                store(state -> states[t, b:b+BM, j:j+BN])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Template

from kernellab.designer.emit.nodes import Names
from kernellab.designer.frontend.recurrent import GATES, WITHIN_ONE, Recurrence
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.scaling import TOP
from kernellab.designer.tile import why
from kernellab.designer.tile.recurrent import StepTiles
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.tree import Sketch
from kernellab.sketch.syntax.words import RESERVED
from kernellab.task import Task

TITLE = "steps"
_WHY = "One program walks all steps of its rows; what the inputs give the gates was one product for all steps before."
#: for each cell: the computation on its gates, each the sum of the inputs' and the state's share, and the stored tiles;
#: ``$`` marks the names of tiles, which change if a tensor has such a name
_CELLS: Mapping[str, tuple[str, ...]] = {
    "lstm": (
        "$cell = sigmoid($in_1 + $sum_1) * $before_1 + sigmoid($in_0 + $sum_0) * tanh($in_2 + $sum_2)",
        "$state = sigmoid($in_3 + $sum_3) * tanh($cell)",
    ),
    "gru": (
        "$update = sigmoid($in_1 + $sum_1)",
        "$offer = tanh($in_2 + sigmoid($in_0 + $sum_0) * $sum_2)",
        "$state = $offer + $update * ($before_0 - $offer)",
    ),
    "rnn_tanh": ("$state = tanh($in_0 + $sum_0)",),
    "rnn_relu": ("$state = relu($in_0 + $sum_0)",),
}
#: indices of the states that a step reads element by element, in addition to the products
_READS = {"lstm": (1,), "gru": (0,)}


def steps_sketch(
    k: Recurrence, name: str, t: StepTiles, tunables: Iterable[str], roles: Mapping[str, str | None], task: Task
) -> Sketch:
    """Return the sketch ``name``.

    ``tunables`` are the declarations of its tiles, ``roles`` those of a library call's sketch.
    """
    task_names = {*(a.name for a in task.args), *(d.name for d in task.dims)}
    halves = () if k.halves is None else (k.halves.low, k.halves.columns, k.halves.rows)
    tensors = {*roles, *k.written, *k.starts, *k.gates, k.weights, k.bias, k.below, *halves}
    names = Names({*RESERVED, *DTYPES, *task_names, *tensors})
    lines = _Steps(k, t, names).lines(name, tunables, roles, task)
    template = Template("\n".join(lines) + "\n")
    tiles = _Words()
    template.substitute(tiles)
    return parse(template.substitute({tile: names.fresh(tile) for tile in sorted(tiles)})).sketches[0]


class _Words(dict[str, str]):
    """Collects the words that a template uses."""

    def __missing__(self, word: str) -> str:
        return self.setdefault(word, "")


class _Steps:
    """Writes a sketch's lines, in which ``$`` marks the names of tiles.

    The loops are over a program's rows, the steps, the blocks of the state's columns and the state's elements that a
    product sums. Several layers have their columns side by side: a block of columns is within one layer.
    """

    def __init__(self, k: Recurrence, t: StepTiles, names: Names) -> None:
        self.k, self.t = k, t
        #: the variables of the loops
        self.row, self.step, self.col, self.at = (names.fresh(word) for word in ("b", "t", "j", "k"))
        self.gates, self.dtype = range(GATES[k.cell]), DTYPES[k.dtype]
        self.several = k.layers > 1

    # -- indices: those of a layer are for the layer of the current block of columns

    @property
    def layer(self) -> str:
        return f"{self.col} // {self.k.width}" if self.several else "0"

    @property
    def layer_start(self) -> str:
        """The first column of the layer."""
        return f"{self.layer} * {self.k.width}" if self.several else "0"

    @property
    def layer_step(self) -> str:
        """The layer's step; in a stack, layer l is l steps late."""
        return f"{self.step} - {self.layer}" if self.k.stack else self.step

    @property
    def state_part(self) -> str:
        """The part of the weights that the layer's state is multiplied by."""
        return f"{self.layer} * 2 + 1" if self.k.stack else self.layer

    @property
    def rows(self) -> str:
        return _range(self.row, self.t.rows)

    @property
    def summed(self) -> str:
        return _range(self.at, self.t.summed)

    @property
    def columns(self) -> str:
        """The block of columns among those of all layers."""
        return _range(self.col, self.t.columns)

    @property
    def layer_columns(self) -> str:
        """The block of columns within its layer."""
        return _range(f"{self.col} % {self.k.width}", self.t.columns) if self.several else self.columns

    def lines(self, name: str, tunables: Iterable[str], roles: Mapping[str, str | None], task: Task) -> list[str]:
        """Return the whole sketch's lines."""
        k, t, several = self.k, self.t, self.several
        size_names = {dim for length in k.shape for dim in extents.names(length)}
        symbols = ", ".join(d.name for d in task.dims if d.name in size_names)
        # with several layers, the scales are those of a block's layer
        first_scale, scale = self._state_scale()
        return [
            f"sketch {name} {{",
            *_indented(1, [
                f"# {_WHY}",
                *([f"# {why.TWO_HALVES}"] if k.halves is not None else []),
                *([f"symbols: {symbols};"] if symbols else []),
                f"tensors: {' '.join(self._tensors(roles))}",
                f"constexpr: {' '.join(tunables)}",
                f'@llm_hint("parallel", "{t.core}")',
                f"for {self.row} in range(0, {k.rows}, {t.rows}):",
            ]),
            *_indented(2, [*([] if several else first_scale), f"for {self.step} in range({k.steps}):"]),
            *_indented(3, [] if several else scale),
            *_indented(3, ['@llm_hint("team")'] if t.team else []),
            *_indented(3, [f"for {self.col} in range(0, {k.shape[2]}, {t.columns}):"]),
            *_indented(4, [*first_scale, *scale] if several else []),
            *_indented(4, self._block()),
            "}",
        ]  # fmt: skip

    def _tensors(self, roles: Mapping[str, str | None]) -> list[str]:
        """Return the declarations of the tensors."""
        k, count = self.k, len(self.gates)
        gate_steps = extents.add(k.steps, 1 - k.layers) if k.stack else k.steps
        lead, ends = ((f"{k.rows}, {n}" if k.batch_first else f"{n}, {k.rows}") for n in (gate_steps, k.steps))
        layers, parts = (f"{k.layers}, ", f"{k.layers * (2 if k.stack else 1)}, ") if self.several else ("", "")
        shapes = dict.fromkeys(k.gates, f"{lead}, {count}, {k.width}")
        shapes[k.weights] = f"{parts}{k.width}, {count}, {k.width}"
        dtypes: dict[str, str] = {}
        if k.halves is not None:
            shapes |= {k.halves.low: shapes[k.weights], k.halves.columns: f"{parts}{count}, {k.width}"}
            shapes[k.halves.rows] = f"{layers}{k.rows}"
            dtypes = dict.fromkeys((k.weights, k.halves.low), "f16")
        shapes |= {bias: f"{layers}{count}, {k.width}" for bias in (k.bias, k.below) if bias}
        shapes |= dict.fromkeys(k.starts, f"{k.layers}, {k.rows}, {k.width}")
        shapes |= dict.fromkeys(k.written, f"{ends}, {k.shape[2]}")
        return [
            f"{tensor}[{shape}]: {dtypes.get(tensor, self.dtype)}{_role(roles.get(tensor, 'temp'))};"
            for tensor, shape in shapes.items()
        ]

    def _state_scale(self) -> tuple[list[str], list[str]]:
        """Return the lines that load the scale of the first state, and those that compute the scale of a step's."""
        k = self.k
        if k.halves is None:
            return [], []
        first = [f"load({k.halves.rows}[{self._of_layer()}{self.rows}] -> $first)"]
        is_bounded = k.cell in WITHIN_ONE
        scale = f"where({self.layer_step} < 1, $first, {2.0**TOP})" if is_bounded else "$first"
        return first, [f"$scale = {scale}"]

    def _block(self) -> list[str]:
        """Return the lines of one block of columns in one step."""
        k, t = self.k, self.t
        state_columns = _range(f"{self.layer_start} + {self.at}", t.summed) if self.several else self.summed
        part = f"{self.state_part}, " if self.several else ""
        if k.halves is None:
            products = self._products()
        else:
            products = self._products_of_halves(f"{part}{self.summed}", "state_before", "scale", "sum")
        stored = zip(("state", "cell")[: len(k.written)], k.written, strict=True)
        return [
            *(self._accumulator(f"sum_{g}", self.dtype) for g in self.gates),
            f"for {self.at} in range(0, {k.width}, {t.summed}):",
            *_indented(1, [*self._state_before(0, state_columns, self.summed, "state_before"), *products]),
            *([] if k.halves is None else self._unscaled("sum", "scale", part)),
            *(line for g in self.gates if k.bias for line in self._biased(g)),
            *(line for g in self.gates for line in self._inputs_share(g)),
            *(self._share_of_layer_below() if k.stack else []),
            *(line for n in _READS.get(k.cell, ())
              for line in self._state_before(n, self.columns, self.layer_columns, f"before_{n}")),
            *_CELLS[k.cell],
            *(f"store(${tile} -> {tensor}[{self._place(self.step, self.columns)}])" for tile, tensor in stored),
        ]  # fmt: skip

    def _place(self, step: str, columns: str) -> str:
        """Return the index of a program's rows at ``step`` in a tensor of all steps."""
        return f"{self.rows}, {step}, {columns}" if self.k.batch_first else f"{step}, {self.rows}, {columns}"

    def _of_layer(self) -> str:
        """Return the leading index of a tensor that has one part for each layer."""
        return f"{self.layer}, " if self.several else ""

    def _accumulator(self, tile: str, dtype: str) -> str:
        hint = '["fastest", "accumulator", "init_zero"]'
        return f"${tile} = alloc([{self.t.rows}, {self.t.columns}], {dtype}, llm_hint={hint})"

    def _state_before(self, n: int, columns: str, first_columns: str, tile: str) -> list[str]:
        """Return the loads of the ``n``-th state of the previous step into ``tile``; at the first step, of the given
        one, whose columns are ``first_columns``."""
        k = self.k
        return [
            f"load({k.written[n]}[{self._place(f'{self.step}-1', columns)}] -> ${tile})",
            f"load({k.starts[n]}[{self.layer}, {self.rows}, {first_columns}] -> ${tile}_first)",
            f"${tile} = where({self.layer_step} < 1, ${tile}_first, ${tile})",
        ]

    def _biased(self, g: int) -> list[str]:
        return [
            f"load({self.k.bias}[{self._of_layer()}{g}, {self.layer_columns}] -> $bias_{g})",
            f"$sum_{g} = $sum_{g} + $bias_{g}",
        ]

    def _inputs_share(self, g: int) -> list[str]:
        """Return the loads of the inputs' share of gate ``g``: zeros in the columns of other layers, which are out of
        bounds."""
        k = self.k
        lines = []
        for n, (tensor, backwards) in enumerate(zip(k.gates, k.backwards, strict=True)):
            now = f"{k.steps} - 1 - {self.step}" if backwards else self.step
            start = f"{self.col} - {n * int(k.width)}" if n else self.col  # type: ignore[arg-type]
            tile = f"$in_{g}_{n}" if n else f"$in_{g}"
            lines.append(f"load({tensor}[{self._place(now, f'{g}, {_range(start, self.t.columns)}')}] -> {tile})")
            lines += [f"$in_{g} = $in_{g} + {tile}"] if n else []
        if k.below:
            lines += [
                f"load({k.below}[{self._of_layer()}{g}, {self.layer_columns}] -> $below_bias_{g})",
                f"$in_{g} = $in_{g} + $below_bias_{g}",
            ]
        return lines

    # -- products ------------------------------------------------------------------------------------------------------

    def _products(self) -> list[str]:
        """Return the products of the state with the weights of each gate."""
        part = f"{self.state_part}, " if self.several else ""
        return [line for g in self.gates for line in (
            f"load({self.k.weights}[{part}{self.summed}, {g}, {self.layer_columns}] -> $weights_{g})",
            f'gemm($state_before, $weights_{g}, $sum_{g}, precision="{self.t.precision}")',
        )]  # fmt: skip

    def _products_of_halves(self, weights_rows: str, state: str, scale: str, sums: str) -> list[str]:
        """Return the products of the two halves of each factor; the halves of the state are computed as it is read.

        ``weights_rows`` is the index of the summed rows of the weights; ``state``, ``scale`` and ``sums`` name the
        tiles of the factor, of its scale and of the accumulators.
        """
        assert self.k.halves is not None
        split = [
            f"$scaled = ${state} * ${scale}[:, None]",
            "$high = cast($scaled, f16)",
            "$low = cast($scaled - cast($high, f32), f16)",
        ]
        return split + [line for g in self.gates for line in (
            f"load({self.k.weights}[{weights_rows}, {g}, {self.layer_columns}] -> $weights_{g})",
            f"load({self.k.halves.low}[{weights_rows}, {g}, {self.layer_columns}] -> $weights_low_{g})",
            f"gemm($low, $weights_{g}, ${sums}_{g})",
            f"gemm($high, $weights_low_{g}, ${sums}_{g})",
            f"gemm($high, $weights_{g}, ${sums}_{g})",
        )]  # fmt: skip

    def _unscaled(self, sums: str, scale: str, part: str) -> list[str]:
        """Return the division of the sums by the scales of both factors; ``part`` is the index of the weights' part."""
        assert self.k.halves is not None
        return [line for g in self.gates for line in (
            f"load({self.k.halves.columns}[{part}{g}, {self.layer_columns}] -> $columns_{g})",
            f"${sums}_{g} = ${sums}_{g} / (${scale}[:, None] * $columns_{g})",
        )]  # fmt: skip

    def _share_of_layer_below(self) -> list[str]:
        """Return the share of the layer below, from the previous step; below the lowest layer (out of bounds) it is
        zero."""
        k, t = self.k, self.t
        assert k.halves is not None
        start = f"({self.layer} - 1) * {k.width} + {self.at}"
        weights_rows = f"{self.layer} * 2, {self.summed}"
        scale = [f"$lower_scale = full([{t.rows}], {2.0**TOP}, f32)"]
        if k.cell not in WITHIN_ONE:
            scale = [
                f"load({k.halves.rows}[{self.layer} - 1, {self.rows}] -> $lower_scale)",
                f"$lower_scale = where({self.layer} < 1, {2.0**TOP}, $lower_scale)",
            ]
        return [
            *scale,
            *(self._accumulator(f"below_{g}", "f32") for g in self.gates),
            f"for {self.at} in range(0, {k.width}, {t.summed}):",
            *_indented(1, [
                f"load({k.written[0]}[{self._place(f'{self.step}-1', _range(start, t.summed))}] -> $lower)",
                *self._products_of_halves(weights_rows, "lower", "lower_scale", "below"),
            ]),
            *self._unscaled("below", "lower_scale", f"{self.layer} * 2, "),
            *(f"$in_{g} = $in_{g} + $below_{g}" for g in self.gates),
        ]  # fmt: skip


def _range(start: str, length: str) -> str:
    return f"{start}:{start}+{length}"


def _indented(depth: int, lines: Iterable[str]) -> list[str]:
    return [" " * 4 * depth + line for line in lines]


def _role(role: str | None) -> str:
    return f" {role}" if role else ""
