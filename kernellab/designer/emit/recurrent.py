"""The steps of a recurrent layer as one sketch: the state goes through memory, so that a wide one is computed in
blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    used_names = {
        *RESERVED,
        *DTYPES,
        *(a.name for a in task.args),
        *(d.name for d in task.dims),
        *roles,
        *k.made,
        *k.starts,
    }
    parts = () if k.halves is None else (k.halves.low, k.halves.columns, k.halves.rows)
    names = Names({*used_names, *k.gates, k.weights, k.bias, k.below, *parts})
    row, step, col, at = (names.fresh(word) for word in ("b", "t", "j", "k"))
    rows, col_range, summed = f"{row}:{row}+{t.rows}", f"{col}:{col}+{t.made}", f"{at}:{at}+{t.summed}"
    steps, width, gates, dtype = k.steps, k.width, range(GATES[k.cell]), DTYPES[k.dtype]
    several = k.layers > 1
    # the start of a layer's columns, its number, its step, and its columns within the layer
    base, layer = (f"{col} // {width} * {width}", f"{col} // {width}") if several else ("0", "0")
    late = f"{step} - {layer}" if k.stack else step
    inner = f"{col} % {width}:{col} % {width}+{t.made}" if several else col_range
    of = f"{layer}, " if several else ""
    part = f"{layer} * 2 + 1" if k.stack else layer

    def place(when: str, cols: str) -> str:
        return f"{rows}, {when}, {cols}" if k.batch_first else f"{when}, {rows}, {cols}"

    def before(n: int, cols: str, first: str, tile: str) -> list[str]:
        """Return the loads of the previous step's state; at the first step, the given one."""
        return [
            f"load({k.made[n]}[{place(f'{step}-1', cols)}] -> ${tile})",
            f"load({k.starts[n]}[{layer}, {rows}, {first}] -> ${tile}_first)",
            f"${tile} = where({late} < 1, ${tile}_first, ${tile})",
        ]

    def indented(depth: int, lines: Iterable[str]) -> list[str]:
        return [" " * 4 * depth + line for line in lines]

    input_lines = [line for g in gates for line in _given(k, g, place, step, col, t.made, f"{of}{g}, {inner}")]
    biased = [line for g in gates if k.bias for line in (
        f"load({k.bias}[{of}{g}, {inner}] -> $bias_{g})", f"$sum_{g} = $sum_{g} + $bias_{g}",
    )]  # fmt: skip
    held_range, at_own = (
        (f"{part}, {summed}", f"{base} + {at}:{base} + {at}+{t.summed}") if several else (summed, summed)
    )
    products = _products(k, t, held_range, inner) if k.halves is None else _of_halves(k, k.halves, held_range, inner)
    scales = f"{part}, " if several else ""
    back = [] if k.halves is None else _scaled_back(k.halves, "sum", "scale", scales, gates, inner)
    lower = _lower(k, step, layer, rows, summed, inner, place, at, t) if k.stack else []
    sums = [f'$sum_{g} = alloc([{t.rows}, {t.made}], {dtype}, llm_hint=["fastest", "accumulator", "init_zero"])'
            for g in gates]  # fmt: skip
    stored = [f"store(${tile} -> {tensor}[{place(step, col_range)}])"
              for tile, tensor in zip(("state", "cell")[: len(k.made)], k.made, strict=True)]  # fmt: skip
    gate_steps = extents.add(steps, 1 - k.layers) if k.stack else steps
    lead, ends = ((f"{k.rows}, {n}" if k.batch_first else f"{n}, {k.rows}") for n in (gate_steps, steps))
    count, many = (f"{k.layers}, ", f"{k.layers * (2 if k.stack else 1)}, ") if several else ("", "")
    shapes = dict.fromkeys(k.gates, f"{lead}, {len(gates)}, {width}")
    shapes[k.weights] = f"{many}{width}, {len(gates)}, {width}"
    dtypes: dict[str, str] = {}
    fit, each = [], []
    if k.halves is not None:
        shapes |= {k.halves.low: shapes[k.weights], k.halves.columns: f"{many}{len(gates)}, {width}"}
        shapes[k.halves.rows] = f"{count}{k.rows}"
        dtypes = dict.fromkeys((k.weights, k.halves.low), "f16")
        fit = [f"load({k.halves.rows}[{of}{rows}] -> $first)"]
        each = [f"$scale = where({late} < 1, $first, {2.0**TOP})" if k.cell in WITHIN_ONE else "$scale = $first"]
    shapes |= {bias: f"{count}{len(gates)}, {width}" for bias in (k.bias, k.below) if bias}
    shapes |= dict.fromkeys(k.starts, f"{k.layers}, {k.rows}, {width}")
    shapes |= dict.fromkeys(k.made, f"{ends}, {k.shape[2]}")
    tensors = [f"{tensor}[{shape}]: {dtypes.get(tensor, dtype)}{_role(roles.get(tensor, 'temp'))};"
               for tensor, shape in shapes.items()]  # fmt: skip
    size_names = {name for length in k.shape for name in extents.names(length)}
    symbols = ", ".join(d.name for d in task.dims if d.name in size_names)
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
        *indented(2, [*([] if several else fit), f"for {step} in range({steps}):"]),
        *indented(3, [] if several else each),
        *indented(3, ['@llm_hint("team")'] if t.team else []),
        *indented(3, [f"for {col} in range(0, {k.shape[2]}, {t.made}):"]),
        *indented(4, [*fit, *each] if several else []),
        *indented(4, [*sums, f"for {at} in range(0, {width}, {t.summed}):"]),
        *indented(5, [*before(0, at_own, summed, "state_before"), *products]),
        *indented(4, [*back, *biased, *input_lines, *lower]),
        *indented(4, [line for n in _READS.get(k.cell, ()) for line in before(n, col_range, inner, f"before_{n}")]),
        *indented(4, [*_CELLS[k.cell], *stored]),
        "}",
    ]  # fmt: skip
    template = Template("\n".join(lines) + "\n")
    words = _Words()
    template.substitute(words)
    return parse(template.substitute({word: names.fresh(word) for word in sorted(words)})).sketches[0]


class _Words(dict[str, str]):
    """Collects the words that a template uses."""

    def __missing__(self, word: str) -> str:
        return self.setdefault(word, "")


def _products(k: Recurrence, t: StepTiles, summed: str, made: str) -> list[str]:
    return [line for g in range(GATES[k.cell]) for line in (
        f"load({k.weights}[{summed}, {g}, {made}] -> $weights_{g})",
        f'gemm($state_before, $weights_{g}, $sum_{g}, precision="{t.precision}")',
    )]  # fmt: skip


def _of_halves(
    k: Recurrence,
    halves: Halves,
    summed: str,
    made: str,
    state: str = "state_before",
    scale: str = "scale",
    sums: str = "sum",
) -> list[str]:
    """Return the products of the two halves of each factor; the halves of the state are computed as it is read."""
    split = [
        f"$scaled = ${state} * ${scale}[:, None]",
        "$high = cast($scaled, f16)",
        "$low = cast($scaled - cast($high, f32), f16)",
    ]
    return split + [line for g in range(GATES[k.cell]) for line in (
        f"load({k.weights}[{summed}, {g}, {made}] -> $weights_{g})",
        f"load({halves.low}[{summed}, {g}, {made}] -> $weights_low_{g})",
        f"gemm($low, $weights_{g}, ${sums}_{g})",
        f"gemm($high, $weights_low_{g}, ${sums}_{g})",
        f"gemm($high, $weights_{g}, ${sums}_{g})",
    )]  # fmt: skip


def _scaled_back(halves: Halves, sums: str, scale: str, part: str, gates: range, made: str) -> list[str]:
    return [line for g in gates for line in (
        f"load({halves.columns}[{part}{g}, {made}] -> $columns_{g})",
        f"${sums}_{g} = ${sums}_{g} / (${scale}[:, None] * $columns_{g})",
    )]  # fmt: skip


def _given(
    k: Recurrence, g: int, place: Callable[[str, str], str], step: str, col: str, made: str, bias: str
) -> list[str]:
    """Return the loads of the inputs' share of a gate: zeros in the columns of other layers, which are out of
    bounds."""
    lines = []
    for n, (tensor, backwards) in enumerate(zip(k.gates, k.backwards, strict=True)):
        now = f"{k.steps} - 1 - {step}" if backwards else step
        at = f"{col} - {n * int(k.width)}" if n else col  # type: ignore[arg-type]
        tile = f"$in_{g}_{n}" if n else f"$in_{g}"
        lines.append(f"load({tensor}[{place(now, f'{g}, {at}:{at}+{made}')}] -> {tile})")
        lines += [f"$in_{g} = $in_{g} + {tile}"] if n else []
    if k.below:
        lines += [f"load({k.below}[{bias}] -> $below_bias_{g})", f"$in_{g} = $in_{g} + $below_bias_{g}"]
    return lines


def _lower(
    k: Recurrence, step: str, layer: str, rows: str, summed: str, made: str, place: Callable[[str, str], str], at: str,
    t: StepTiles,
) -> list[str]:  # fmt: skip
    """Return the share of the layer below, from the previous step; below the lowest layer (out of bounds) it is
    zero."""
    assert k.halves is not None
    gates, width = range(GATES[k.cell]), k.width
    cols = f"({layer} - 1) * {width} + {at}"
    loop = [
        f"load({k.made[0]}[{place(f'{step}-1', f'{cols}:{cols}+{t.summed}')}] -> $lower)",
        *_of_halves(k, k.halves, f"{layer} * 2, {summed}", made, "lower", "lower_scale", "below"),
    ]
    fit = [f"$lower_scale = full([{t.rows}], {2.0**TOP}, f32)"]
    if k.cell not in WITHIN_ONE:
        fit = [
            f"load({k.halves.rows}[{layer} - 1, {rows}] -> $lower_scale)",
            f"$lower_scale = where({layer} < 1, {2.0**TOP}, $lower_scale)",
        ]
    return [
        *fit,
        *(f'$below_{g} = alloc([{t.rows}, {t.made}], f32, llm_hint=["fastest", "accumulator", "init_zero"])'
          for g in gates),
        f"for {at} in range(0, {width}, {t.summed}):",
        *(f"    {line}" for line in loop),
        *_scaled_back(k.halves, "below", "lower_scale", f"{layer} * 2, ", gates, made),
        *(f"$in_{g} = $in_{g} + $below_{g}" for g in gates),
    ]  # fmt: skip


def _role(role: str | None) -> str:
    return f" {role}" if role else ""
