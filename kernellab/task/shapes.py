"""Symbolic shapes of a task's arguments and outputs, found by running it at a few distinct sizes.

Each run is an :class:`Observation`: an output of [10, 15] at N = 5, M = 3, and of [14, 15] at N = 7, M = 3, is fitted
as [2*N, 5*M] once M varies too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import TYPE_CHECKING, NamedTuple, Union

from kernellab.errors import TaskError
from kernellab.task.call_inputs.fit import Sizes, fit, is_stepped
from kernellab.task.dims import Dim, Extent
from kernellab.task.observe import Observation, Observed, StateSpec, observe
from kernellab.task.task import OutputSpec

if TYPE_CHECKING:
    from kernellab.task.module import TaskModule


class InputSpec(NamedTuple):
    """A tensor among the inputs; ``last``: channels last."""

    shape: tuple[Extent, ...]
    dtype: str
    last: bool


@dataclass(frozen=True)
class Shapes:
    """The shapes over Dims; numbers among the inputs are themselves, ``state`` is by the key of the state_dict."""

    inputs: tuple[Union[InputSpec, bool, int, float], ...]
    state: Mapping[str, StateSpec]
    outputs: tuple[OutputSpec, ...]


def infer(module: TaskModule) -> Shapes:
    """Return argument and output shapes of ``module`` over its Dims; sets ``module.numpy`` and ``module.mutates``.

    Raises:
        TaskError: the reference raises, inputs do not fit it, or a shape is not an expression over the Dims.
    """
    # default sizes may be large: with Dims they run only without memory
    seen = observe(module, module.default_sizes(), real=not module.dims)
    if seen is not None and not module.dims:
        inputs = tuple(InputSpec(*v) if isinstance(v, Observed) else v for v in seen.inputs)
        return Shapes(inputs, seen.state, tuple(OutputSpec(*o) for o in seen.outputs))
    if module.listed and module.needs_values:
        raise TaskError("The reference needs values, and those of listed cases are known at their own sizes only.", "")
    first: TaskError | None = None
    for step in (*_STEPS, 0):
        try:
            runs = [*([seen] if seen else []), *(_stepped(module, step) if step else _grown(module))]
        except TaskError as error:
            first = first or error
            continue
        try:
            if module.listed:
                _vary(runs, module.dims)
                # a split into pieces of a fixed size: their number may differ between the cases
                runs += [run for sizes in module.listed.sizes if (run := observe(module, sizes, real=False))]
            return _fitted([*runs, *_steps_of_extents(module, runs)], module)
        except TaskError as error:
            first = first or error
            # fewer sizes, or sizes in one ratio, would fit a rule that the first step's sizes refute
            if step == 1:
                break
    assert first is not None
    raise TaskError(
        f"The task does not hold over the ranges of its Dims: {first.message}",
        f"{first.remedy} Or narrow the Dims' ranges to sizes at which it runs.",
    ) from first


def _vary(runs: Sequence[Observation], dims: Sequence[Dim]) -> None:
    """Raise TaskError if the task ran at only one size of a Dim: nothing is known about others."""
    for dim in dims:
        if len({run.sizes[dim.name] for run in runs}) < 2:
            raise TaskError(f"The reference runs at one size of {dim.name} only.", "Fix that extent.")


def _fitted(runs: Sequence[Observation], module: TaskModule) -> Shapes:
    base, dims = runs[0], module.dims
    names = dict(enumerate(p.name for p in module.parameters()))
    _same_structure(runs)
    inputs: list[InputSpec | bool | int | float] = []
    for i, value in enumerate(base.inputs):
        if not isinstance(value, Observed):
            inputs.append(value)
            continue
        shapes = [tensor.shape for run in runs if isinstance(tensor := run.inputs[i], Observed)]
        shape = _fit_shape(names.get(i, f"argument {i}"), shapes, runs, dims, _SEPARATE_DIM)
        inputs.append(InputSpec(shape, value.dtype, False))
    outputs = tuple(
        OutputSpec(_fit_shape(f"output {i}", [run.outputs[i].shape for run in runs], runs, dims, _RULE), output.dtype)
        for i, output in enumerate(base.outputs)
    )
    return Shapes(tuple(inputs), base.state, outputs)


# -- sizes to observe --------------------------------------------------------------------------------------------------


#: some tasks run only at multiples of a number
_STEPS = (1, 2, 8, 16, 64, 128, 256, 1024)


def _stepped(module: TaskModule, step: int) -> list[Observation]:
    return [observe(module, sizes) for sizes in size_sets(module.dims, step)]


def _grown(module: TaskModule) -> list[Observation]:
    """Return runs at multiples of the default sizes, for a task whose sizes depend on each other."""
    base = module.default_sizes()
    scaled = [{d.name: base[d.name] * k for d in module.dims} for k in (1, 2, 3, 4)]
    return [observe(module, s) for s in scaled if all(d.min <= s[d.name] <= d.max for d in module.dims)]


class _Place(NamedTuple):
    """A dimension of an output."""

    output: int
    axis: int

    def extent(self, run: Observation) -> int:
        return run.outputs[self.output].shape[self.axis]


def _steps_of_extents(module: TaskModule, runs: Sequence[Observation]) -> list[Observation]:
    """Return runs on both sides of the next two steps of each output extent that grows by steps (number of windows),
    which determine its stride and start; none if all extents are polynomials, if the task does not run at all sizes
    between, and for listed cases."""
    names, base = [d.name for d in module.dims], runs[-1].sizes
    _same_structure(runs)
    places = [_Place(i, axis) for i, output in enumerate(runs[0].outputs) for axis in range(len(output.shape))]
    stepped = [p for p in places if is_stepped([p.extent(r) for r in runs], [r.sizes for r in runs], names)]
    if module.listed or not stepped:
        return []
    more: dict[tuple[str, int], Observation] = {}

    def extent_at(dim: Dim, size: int, place: _Place) -> int:
        if (dim.name, size) not in more:
            more[dim.name, size] = observe(module, {**base, dim.name: size})
        return place.extent(more[dim.name, size])

    try:
        for dim, place in product(module.dims, stepped):
            low = base[dim.name]
            top = min(dim.max, low + _FARTHEST)
            least = extent_at(dim, low, place)
            for _ in range(2):
                wanted = least + 1
                # from near to far: a reference that loops over pairs of rows takes minutes at a far size
                high, reach = low, 1
                while high < top and extent_at(dim, high, place) < wanted:
                    high, reach = min(top, high + reach), 4 * reach
                while low + 1 < high and extent_at(dim, high, place) >= wanted:
                    middle = (low + high) // 2
                    low, high = (low, middle) if extent_at(dim, middle, place) >= wanted else (middle, high)
                least = extent_at(dim, high, place)
    except TaskError:
        return []
    return list(more.values())


#: how far beyond an observed size the next two steps of an extent are sought
_FARTHEST = 1 << 13


def size_sets(dims: Sequence[Dim], step: int) -> list[Sizes]:
    """Return sizes that are multiples of ``step``, at least 2 and distinct over the Dims if the ranges allow."""
    ladder = {d.name: list(_ladder(d, step, i, len(dims))) for i, d in enumerate(dims)}
    base = {name: steps[0] for name, steps in ladder.items()}
    sets = [base]
    for d in dims:
        sets.extend({**base, d.name: n} for n in ladder[d.name][1:])
    depth = max(len(s) for s in ladder.values())
    for k in range(1, depth):
        sets.append({name: steps[min(k, len(steps) - 1)] for name, steps in ladder.items()})
    for k, (a, b) in enumerate(islice(combinations(ladder, 2), 6)):
        pick = 1 + k % 2
        sets.append({**base, a: ladder[a][min(pick, len(ladder[a]) - 1)], b: ladder[b][-1]})
    unique: list[Sizes] = []
    for sizes in sets:
        if sizes not in unique:
            unique.append(sizes)
    return unique


_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)


def _ladder(dim: Dim, step: int, position: int, count: int) -> list[int]:
    """Return four sizes of one Dim, with a stride that distinguishes the Dims."""
    low = max(dim.min, 2)
    start = -(-low // step) * step
    wanted = [start + step * _PRIMES[(position + count * k) % len(_PRIMES)] for k in range(4)]
    inside = [n for n in wanted if low <= n <= dim.max]
    if len(inside) < 2:
        span = [n for n in range(low, min(dim.max, low + 4 * step) + 1) if n % step == 0]
        inside = span[position % 2 :][:4] or [dim.max]
    return sorted(set(inside))


# -- fitting -----------------------------------------------------------------------------------------------------------


def _same_structure(runs: Sequence[Observation]) -> None:
    """Raise TaskError if more than extents differ between the runs."""
    base = runs[0]
    for run in runs[1:]:
        if any(
            [_form(value) for value in these] != [_form(value) for value in those]
            for these, those in ((run.inputs, base.inputs), (run.outputs, base.outputs))
        ):
            raise TaskError(
                f"Number, rank or dtype of the task's tensors change between the sizes {base.sizes} and {run.sizes}.",
                "Keep them the same at all sizes, and let only extents vary.",
            )


def _form(value: Observed | bool | int | float) -> tuple[int, str] | None:
    """Return the rank and dtype of a tensor; None for a number."""
    return (len(value.shape), value.dtype) if isinstance(value, Observed) else None


#: what can be done about an extent of an argument, and of an output, that follows no rule
_SEPARATE_DIM = "Give that extent a separate Dim, or fix it."
_RULE = "Make it a sum, product, quotient, min or max of Dims, or fix the Dim that it comes from."


def _fit_shape(
    what: str, shapes: Sequence[tuple[int, ...]], runs: Sequence[Observation], dims: Sequence[Dim], remedy: str
) -> tuple[Extent, ...]:
    names = [d.name for d in dims]
    fitted = []
    for axis, values in enumerate(zip(*shapes, strict=True)):
        expr = fit(values, [r.sizes for r in runs], names)
        if expr is None:
            first, other = next((i, k) for i, k in combinations(range(len(runs)), 2) if values[i] != values[k])
            raise TaskError(
                f"The extent of {what} in dimension {axis} (from 0) follows no simple rule of the Dims: "
                f"{values[first]} at {runs[first].sizes}, {values[other]} at {runs[other].sizes}.",
                remedy,
            )
        fitted.append(expr)
    return tuple(fitted)
