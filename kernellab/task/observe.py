"""Runs a task's reference once at concrete sizes, and records what it takes and returns.

A run uses tensors without memory; a reference that needs values, and NumPy, runs for real. The module learns from it
whether it needs values, works on NumPy arrays, or writes into its arguments, and which.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Union, overload

from kernellab.errors import TaskError
from kernellab.task.call_inputs.cases import CHOSEN
from kernellab.task.call_inputs.fit import Sizes
from kernellab.task.call_inputs.slots import is_array
from kernellab.task.dims import Extent, TaskForm
from kernellab.task.dtypes import channels_last
from kernellab.task.task import OutputSpec

if TYPE_CHECKING:
    from kernellab.task.module import TaskModule

#: most bytes of a listed case's inputs that are drawn to find its shapes
_MOST_REAL = 1 << 30


class StateSpec(NamedTuple):
    """A parameter of a Model (``learnt``) or a buffer."""

    shape: tuple[Extent, ...]
    dtype: str
    learnt: bool


class Observed(NamedTuple):
    """A tensor of one run; ``last``: channels last."""

    shape: tuple[int, ...]
    dtype: str
    last: bool


@dataclass(frozen=True)
class Observation:
    """One run at concrete ``sizes``; numbers among the inputs are themselves."""

    sizes: Sizes
    inputs: tuple[Union[Observed, bool, int, float], ...]
    outputs: tuple[Observed, ...]
    state: Mapping[str, StateSpec]


def accepts(module: TaskModule, sizes: Mapping[str, int], outputs: Sequence[OutputSpec]) -> bool:
    """Does the task run at ``sizes`` with its stated ``outputs``? (Some tasks need multiples of a number, and a row of
    one element has no second half.)"""
    at = {**module.default_sizes(), **sizes}
    try:
        seen = observe(module, at)
    except TaskError:
        return False
    return [output.shape for output in seen.outputs] == [output.extents(at) for output in outputs]


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
    _check_arity(module, count, model)
    args = [*inputs_given, *(p.default for p in module.trailing_scalars(count)), *state.values()]
    # shapes are taken before the call: a reference may change its arguments in place
    inputs = tuple(_observed(v) if is_array(v) else v for v in inputs_given)
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
        tuple(map(_observed, outputs)),
        {k: StateSpec(tuple(v.shape), dtype_name(v.dtype), k in learnt) for k, v in state.items()},
    )


def _check_arity(module: TaskModule, count: int, model: Any) -> None:
    """Raise TaskError if the reference does not take ``count`` values."""
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


#: torch's exceptions for fake tensors without values or a kernel
_OF_FAKE_TENSORS = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "UnsupportedMutationAliasingException",
    "GuardOnDataDependentSymNode",
)


def _needs_values(error: BaseException | None) -> bool:
    """Did the run fail because fake tensors have no values (or no kernel), and not because of the task?"""
    while error is not None:
        if type(error).__name__ in _OF_FAKE_TENSORS:
            return True
        if any(word in str(error) for word in ("FakeTensor", "fake tensor", "meta tensor", ".numpy()")):
            return True
        if isinstance(error, (TypeError, AttributeError)) and "numpy" in _raising_file(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _raising_file(error: BaseException) -> str:
    """Return the file of the innermost frame."""
    trace, file = error.__traceback__, ""
    while trace:
        file = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return file


def dtype_name(dtype: Any) -> str:
    """Return ``float32`` for torch.float32 and for NumPy's."""
    return str(dtype).removeprefix("torch.")


def _observed(value: Any) -> Observed:
    return Observed(tuple(int(n) for n in value.shape), dtype_name(value.dtype), _is_last(value))


def _is_last(value: Any) -> bool:
    """Return whether the channels of a tensor lie last in memory."""
    # complex numbers are pairs, along the last dimension
    return hasattr(value, "movedim") and not value.is_complex() and channels_last(value)
