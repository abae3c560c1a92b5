"""The steps of a recurrent layer as one sketch: the state goes through memory, so that a wide one is made in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Template

from kernellab.designer.emit.nodes import Names
from kernellab.designer.frontend.recurrent import GATES, WITHIN_ONE, Halves, Recurrence
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
#: of each cell: what is done with its gates, each the sum of what inputs and state give, and the tiles that are stored;
#: ``$`` marks the names of tiles, which are others where a tensor has such a name
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
#: how many of the states one step reads element by element, in addition to the products: the last of them
_READS = {"lstm": (1,), "gru": (0,)}


def steps_sketch(
    k: Recurrence, name: str, t: StepTiles, tunables: Iterable[str], roles: Mapping[str, str | None], task: Task
) -> Sketch:
    """The sketch ``name``; ``tunables`` are the declarations of its tiles, ``roles`` as in a library call's sketch."""
    taken = {*RESERVED, *DTYPES, *(a.name for a in task.args), *(d.name for d in task.dims), *roles, *k.made, *k.starts}
    parts = () if k.halves is None else (k.halves.low, k.halves.columns, k.halves.rows)
    names = Names({*taken, k.gates, k.weights, k.bias, *parts})
    row, step, col, at = (names.fresh(word) for word in ("b", "t", "j", "k"))
    rows, made, summed = f"{row}:{row}+{t.rows}", f"{col}:{col}+{t.made}", f"{at}:{at}+{t.summed}"
    steps, width, gates, dtype = k.steps, k.width, range(GATES[k.cell]), DTYPES[k.dtype]
    now = f"{steps} - 1 - {step}" if k.backwards else step

    def place(when: str, cols: str) -> str:
        return f"{rows}, {when}, {cols}" if k.batch_first else f"{when}, {rows}, {cols}"

    def before(n: int, cols: str, tile: str) -> list[str]:
        """The state of the step before, at the first step the one that was given."""
        return [
            f"load({k.made[n]}[{place(f'{step}-1', cols)}] -> ${tile})",
            f"load({k.starts[n]}[0, {rows}, {cols}] -> ${tile}_first)",
            f"${tile} = where({step} < 1, ${tile}_first, ${tile})",
        ]

    def indented(depth: int, lines: Iterable[str]) -> list[str]:
        return [" " * 4 * depth + line for line in lines]

    given = [f"load({k.gates}[{place(now, f'{g}, {made}')}] -> $in_{g})" for g in gates]
    biased = [line for g in gates if k.bias for line in (
        f"load({k.bias}[{g}, {made}] -> $bias_{g})", f"$sum_{g} = $sum_{g} + $bias_{g}",
    )]  # fmt: skip
    products = _products(k, t, summed, made) if k.halves is None else _of_halves(k, k.halves, summed, made)
    back = [] if k.halves is None else [line for g in gates for line in (
        f"load({k.halves.columns}[{g}, {made}] -> $columns_{g})",
        f"$sum_{g} = $sum_{g} / ($scale[:, None] * $columns_{g})",
    )]  # fmt: skip
    sums = [f'$sum_{g} = alloc([{t.rows}, {t.made}], {dtype}, llm_hint=["fastest", "accumulator", "init_zero"])'
            for g in gates]  # fmt: skip
    stored = [f"store(${tile} -> {tensor}[{place(step, made)}])"
              for tile, tensor in zip(("state", "cell")[: len(k.made)], k.made, strict=True)]  # fmt: skip
    lead = f"{k.rows}, {steps}" if k.batch_first else f"{steps}, {k.rows}"
    shapes = {k.gates: f"{lead}, {len(gates)}, {width}", k.weights: f"{width}, {len(gates)}, {width}"}
    dtypes: dict[str, str] = {}
    fit, each = [], []
    if k.halves is not None:
        shapes |= {k.halves.low: shapes[k.weights], k.halves.columns: f"{len(gates)}, {width}"}
        shapes[k.halves.rows] = str(k.rows)
        dtypes = dict.fromkeys((k.weights, k.halves.low), "f16")
        fit = [f"load({k.halves.rows}[{rows}] -> $first)"]
        each = [f"$scale = where({step} < 1, $first, {2.0**TOP})" if k.cell in WITHIN_ONE else "$scale = $first"]
    shapes |= {k.bias: f"{len(gates)}, {width}"} if k.bias else {}
    shapes |= dict.fromkeys(k.starts, f"1, {k.rows}, {width}") | dict.fromkeys(k.made, f"{lead}, {width}")
    tensors = [f"{tensor}[{shape}]: {dtypes.get(tensor, dtype)}{_role(roles.get(tensor, 'temp'))};"
               for tensor, shape in shapes.items()]  # fmt: skip
    named = {name for length in k.shape for name in extents.names(length)}
    symbols = ", ".join(d.name for d in task.dims if d.name in named)
    lines = [
        f"sketch {name} {{",
        *indented(1, [
            f"# {_WHY}",
            *([f"# {why.TWO_HALVES}"] if k.halves is not None else []),
            *([f"symbols: {symbols};"] if symbols else []),
            f"tensors: {' '.join(tensors)}",
            f"constexpr: {' '.join(tunables)}",
            f'@llm_hint("parallel", "{t.core}")',
            f"for {row} in range(0, {k.rows}, {t.rows}):",
        ]),
        *indented(2, [*fit, f"for {step} in range({steps}):"]),
        *indented(3, each),
        *indented(3, ['@llm_hint("team")'] if t.team else []),
        *indented(3, [f"for {col} in range(0, {width}, {t.made}):"]),
        *indented(4, [*sums, f"for {at} in range(0, {width}, {t.summed}):"]),
        *indented(5, [*before(0, summed, "state_before"), *products]),
        *indented(4, [*back, *biased, *given]),
        *indented(4, [line for n in _READS.get(k.cell, ()) for line in before(n, made, f"before_{n}")]),
        *indented(4, [*_CELLS[k.cell], *stored]),
        "}",
    ]  # fmt: skip
    template = Template("\n".join(lines) + "\n")
    words = _Words()
    template.substitute(words)
    return parse(template.substitute({word: names.fresh(word) for word in sorted(words)})).sketches[0]


class _Words(dict[str, str]):
    """Keeps which words a template asks for."""

    def __missing__(self, word: str) -> str:
        return self.setdefault(word, "")


def _products(k: Recurrence, t: StepTiles, summed: str, made: str) -> list[str]:
    return [line for g in range(GATES[k.cell]) for line in (
        f"load({k.weights}[{summed}, {g}, {made}] -> $weights_{g})",
        f'gemm($state_before, $weights_{g}, $sum_{g}, precision="{t.precision}")',
    )]  # fmt: skip


def _of_halves(k: Recurrence, halves: Halves, summed: str, made: str) -> list[str]:
    """The same of the two halves of each factor; those of the state are made as it is read."""
    split = [
        "$scaled = $state_before * $scale[:, None]",
        "$high = cast($scaled, f16)",
        "$low = cast($scaled - cast($high, f32), f16)",
    ]
    return split + [line for g in range(GATES[k.cell]) for line in (
        f"load({k.weights}[{summed}, {g}, {made}] -> $weights_{g})",
        f"load({halves.low}[{summed}, {g}, {made}] -> $weights_low_{g})",
        f"gemm($low, $weights_{g}, $sum_{g})",
        f"gemm($high, $weights_low_{g}, $sum_{g})",
        f"gemm($high, $weights_{g}, $sum_{g})",
    )]  # fmt: skip


def _role(role: str | None) -> str:
    return f" {role}" if role else ""
