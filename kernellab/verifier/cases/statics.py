"""Static arguments, of which a worker sees one value for each shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Key of a model's constructor parameters in the statics.
_BUILT = ("built",)

#: Values of static arguments that a worker has received, by position, shape and dtype.
Statics = dict[tuple[Any, ...], Any]
_statics: ContextVar[Statics | None] = ContextVar("statics", default=None)


def current_statics() -> Statics | None:
    """Return the values that :func:`static_held` holds; None outside of it."""
    return _statics.get()


@contextmanager
def static_held() -> Iterator[None]:
    """Hold the values of static arguments of a function task inside the context, for each shape.

    A kernel can pack them once; the first values it receives stay for the lifetime of its worker.
    """
    token = _statics.set({})
    try:
        yield
    finally:
        _statics.reset(token)


def hold_parameters(values: tuple[Tensor, ...]) -> None:
    """Use these model parameters and buffers in all later cases, inside :func:`static_held`."""
    statics = _statics.get()
    assert statics is not None
    statics[_BUILT] = values


def with_statics(task: Task, args: tuple[Any, ...], statics: Statics) -> tuple[Any, ...]:
    """Return ``args`` with the values of ``statics`` where there are some, and note the others there."""
    import torch

    def value(position: int, drawn: Any) -> Any:
        spec = task.args[position]
        if _BUILT in statics and spec.kind in (ArgKind.PARAMETER, ArgKind.BUFFER):
            built = statics[_BUILT]
            return built[position - len(task.args) + len(built)].to(drawn.device)
        # The model's parameters are reloaded into the candidate for each call, which it detects by their versions.
        if not spec.static or spec.kind is not ArgKind.TENSOR or not isinstance(drawn, torch.Tensor):
            return drawn
        # Integers can be indices into another argument.
        shape_key = () if drawn.is_floating_point() else shapes
        return statics.setdefault((position, tuple(drawn.shape), drawn.dtype, *shape_key), drawn)

    shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
    return tuple(value(i, drawn) for i, drawn in enumerate(args))
