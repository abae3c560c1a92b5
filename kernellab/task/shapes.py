"""Symbolic shapes of a task's arguments and outputs, found by running it at a few distinct sizes.

The runs use fake tensors (shapes without memory); a reference that needs values, and NumPy, runs for real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import TYPE_CHECKING, Any, Union, overload

from kernellab.errors import TaskError
from kernellab.task.call_inputs.cases import CHOSEN
from kernellab.task.call_inputs.slots import is_array
from kernellab.task.dims import Dim, Extent, TaskForm
from kernellab.task.dtypes import channels_last
from kernellab.task.fit import Sizes, fit, is_stepped
from kernellab.task.task import OutputSpec

if TYPE_CHECKING:
    from kernellab.task.module import TaskModule

#: one argument: (shape, dtype, channels last), or a number
Given = Union[tuple[tuple[Extent, ...], str, bool], bool, int, float]


@dataclass(frozen=True)
class Shapes:
    """``state``: state_dict key -> (shape, dtype, whether it is a parameter)."""

    inputs: tuple[Given, ...]
    state: Mapping[str, tuple[tuple[Extent, ...], str, bool]]
    outputs: tuple[OutputSpec, ...]


@dataclass(frozen=True)
class Observation:
    """One run at concrete ``sizes``."""

    sizes: Sizes
    inputs: tuple[Any, ...]
    outputs: tuple[tuple[tuple[int, ...], str, bool], ...]
    state: Mapping[str, tuple[tuple[int, ...], str, bool]]


def infer(module: TaskModule) -> Shapes:
    """Return argument and output shapes of ``module`` over its Dims; sets ``module.numpy`` and ``module.mutates``.

    Raises:
        TaskError: the reference raises, inputs do not fit it, or a shape is not an expression over the Dims.
    """
    # default sizes may be large: with Dims they run only without memory
    seen = observe(module, module.default_sizes(), real=not module.dims)
    if seen is not None and not module.dims:
        return Shapes(tuple(_fixed(v) for v in seen.inputs), seen.state, tuple(OutputSpec(*o) for o in seen.outputs))
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
    inputs: list[Given] = []
    for i, value in enumerate(base.inputs):
        if not _is_shaped(value):
            inputs.append(value)
            continue
        shapes = [run.inputs[i][0] for run in runs]
        inputs.append((_fit_shape(names.get(i, f"argument {i}"), shapes, runs, dims, _APART), value[1], False))
    outputs = tuple(
        OutputSpec(_fit_shape(f"output {i}", [run.outputs[i][0] for run in runs], runs, dims, _RULE), dtype)
        for i, (_, dtype, _) in enumerate(base.outputs)
    )
    return Shapes(tuple(inputs), base.state, outputs)


def accepts(module: TaskModule, sizes: Mapping[str, int], outputs: Sequence[OutputSpec]) -> bool:
    """Does the task run at ``sizes`` with its stated ``outputs``? (Some tasks need multiples of a number, and a row of
    one element has no second half.)"""
    at = {**module.default_sizes(), **sizes}
    try:
        seen = observe(module, at)
    except TaskError:
        return False
    return [shape for shape, *_ in seen.outputs] == [output.extents(at) for output in outputs]


@overload
def observe(module: TaskModule, sizes: Sizes) -> Observation: ...
@overload
def observe(module: TaskModule, sizes: Sizes, real: bool) -> Observation | None: ...
def observe(module: TaskModule, sizes: Sizes, real: bool = True) -> Observation | None:
    """Run the reference once at ``sizes``: without memory if values are not needed, else for real.

    Without ``real``, returns None if a real run is needed."""
    seen = None if module.needs_values else _observe_fake(module, sizes)
    if seen is not None or not real:
        return seen
    cases = module.listed
    if cases and cases.bytes[cases.main] > _MOST_REAL:
        raise TaskError(
            f"The reference needs values, and those of case {cases.main} take {cases.bytes[cases.main] / 1e9:.0f} GB.",
            f"Choose a smaller case, for example {CHOSEN} = 0 in the task's text.",
        )
    module.needs_values = True
    try:
        return _observe_real(module, sizes)
    except TaskError as error:
        if module.numpy or not isinstance(error.__cause__, (TypeError, AttributeError)):
            raise
        # a NumPy reference whose inputs() returns tensors
        module.numpy = True
        try:
            return _observe_real(module, sizes)
        except TaskError:
            module.numpy = False
            raise error from None


def _observe_fake(module: TaskModule, sizes: Sizes) -> Observation | None:
    import torch

    from kernellab.task.faking import without_memory
    from kernellab.task.values import seeded

    def run() -> Observation | None:
        with seeded(0):
            inputs = module.raw_inputs(sizes)
            if any(is_array(v) and not isinstance(v, torch.Tensor) for v in inputs):
                module.numpy = module.needs_values = True
                return None
            return _run(module, sizes, inputs)

    try:
        return without_memory(run)
    except TaskError as error:
        if _needs_values(error.__cause__):
            return None
        raise


def _observe_real(module: TaskModule, sizes: Sizes) -> Observation:
    import torch

    from kernellab.task.values import as_tensor, seeded

    with seeded(0), torch.no_grad():
        return _run(module, sizes, [as_tensor(v) for v in module.raw_inputs(sizes)])


def _run(module: TaskModule, sizes: Sizes, inputs_given: list[Any]) -> Observation:
    import torch

    model = module.new_model() if module.form is TaskForm.KERNELBENCH else None
    state = model.state_dict() if model is not None else {}
    learnt = {name for name, _ in model.named_parameters(remove_duplicate=False)} if model is not None else set()
    count = len(module.placed())
    _fit_arity(module, count, model)
    args = [*inputs_given, *(p.default for p in module.trailing_scalars(count)), *state.values()]
    # shapes are taken before the call: a reference may change its arguments in place
    inputs = tuple((*_shaped(v), _is_last(v)) if is_array(v) else v for v in inputs_given)
    # NumPy's writes do not change a tensor's version; its runs are real and small
    copies = [a.clone() if module.numpy and isinstance(a, torch.Tensor) else None for a in args]
    versions = {i: a._version for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
    result = module.call(args, model)
    changed = {i for i, version in versions.items() if args[i]._version != version}
    changed |= {i for i, copy in enumerate(copies) if copy is not None and not torch.equal(copy, args[i])}
    module.mutates = module.mutates or bool(changed)
    inputs_only = range(len(args) - len(state))
    module.written = tuple(sorted({*module.written, *(i for i in changed if i in inputs_only)}))
    outputs = module.flatten(result)
    return Observation(
        dict(sizes),
        inputs,
        tuple((*_shaped(o), _is_last(o)) for o in outputs),
        {k: (tuple(v.shape), dtype_name(v.dtype), k in learnt) for k, v in state.items()},
    )


def _fit_arity(module: TaskModule, count: int, model: Any) -> None:
    import inspect

    function = model.forward if model is not None else module.namespace["reference"]
    what = "Model.forward" if model is not None else "reference"
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return
    needed = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind is not p.VAR_KEYWORD]
    if not len(needed) <= count <= len(parameters):
        names = ", ".join(p.name for p in parameters)
        raise TaskError(
            f"The inputs are {count} and {what} takes {len(needed)} ({names}).",
            "Give one value for each of its arguments, in order.",
        )


def _needs_values(error: BaseException | None) -> bool:
    """Did the run fail because fake tensors have no values (or no kernel), and not because of the task?"""
    while error is not None:
        if type(error).__name__ in (
            "DataDependentOutputException",
            "DynamicOutputShapeException",
            "UnsupportedFakeTensorException",
            "UnsupportedOperatorException",
            "UnsupportedMutationAliasingException",
            "GuardOnDataDependentSymNode",
        ):
            return True
        if any(word in str(error) for word in ("FakeTensor", "fake tensor", "meta tensor", ".numpy()")):
            return True
        if isinstance(error, (TypeError, AttributeError)) and "numpy" in _raising_file(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _raising_file(error: BaseException) -> str:
    trace, file = error.__traceback__, ""
    while trace:
        file = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return file


#: most bytes of a listed case's inputs that are drawn to find its shapes
_MOST_REAL = 1 << 30


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


def _steps_of_extents(module: TaskModule, runs: Sequence[Observation]) -> list[Observation]:
    """Return runs on both sides of the next two steps of each output extent that grows by steps (number of windows),
    which determine its stride and start; none if all extents are polynomials, if the task does not run at all sizes
    between, and for listed cases."""
    names, base = [d.name for d in module.dims], runs[-1].sizes
    _same_structure(runs)
    places = [(i, axis) for i, (shape, *_) in enumerate(runs[0].outputs) for axis in range(len(shape))]
    stepped = [
        (i, axis) for i, axis in places
        if is_stepped([r.outputs[i][0][axis] for r in runs], [r.sizes for r in runs], names)
    ]  # fmt: skip
    if module.listed or not stepped:
        return []
    more: dict[tuple[str, int], Observation] = {}

    def extent_at(dim: Dim, size: int, place: tuple[int, int]) -> int:
        if (dim.name, size) not in more:
            more[dim.name, size] = observe(module, {**base, dim.name: size})
        return more[dim.name, size].outputs[place[0]][0][place[1]]

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
    base = runs[0]
    for run in runs[1:]:
        same = (
            len(run.inputs) == len(base.inputs)
            and len(run.outputs) == len(base.outputs)
            and all(len(a[0]) == len(b[0]) and a[1] == b[1] for a, b in zip(run.outputs, base.outputs, strict=True))
            and all(
                _is_shaped(a) == _is_shaped(b) and (not _is_shaped(a) or (len(a[0]) == len(b[0]) and a[1] == b[1]))
                for a, b in zip(run.inputs, base.inputs, strict=True)
            )
        )
        if not same:
            raise TaskError(
                f"Number, rank or dtype of the task's tensors change between the sizes {base.sizes} and {run.sizes}.",
                "Keep them the same at all sizes, and let only extents vary.",
            )


#: what can be done about an extent of an argument, and of an output, that follows no rule
_APART = "Give that extent a separate Dim, or fix it."
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


# -- values ------------------------------------------------------------------------------------------------------------


def dtype_name(dtype: Any) -> str:
    """Return ``float32`` for torch.float32 and for NumPy's."""
    return str(dtype).removeprefix("torch.")


def _shaped(value: Any) -> Any:
    return (tuple(int(n) for n in value.shape), dtype_name(value.dtype)) if is_array(value) else value


def _is_last(value: Any) -> bool:
    # complex numbers are pairs, along the last dimension
    return hasattr(value, "movedim") and not value.is_complex() and channels_last(value)


def _is_shaped(value: Any) -> bool:
    return isinstance(value, tuple)


def _fixed(value: Any) -> Given:
    return value  # type: ignore[no-any-return]
