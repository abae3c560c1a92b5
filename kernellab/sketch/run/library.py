"""The meaning of a library call: the framework's operation on whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from kernellab.sketch.program.aten import evaluate, read_call
from kernellab.sketch.program.library import LIBRARY, PREFIX
from kernellab.sketch.program.program import LibraryCall
from kernellab.sketch.run.confined import is_here

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def called(
    call: LibraryCall, arguments: Sequence[Tensor], shape: tuple[int, ...], sizes: Mapping[str, int], f64: bool
) -> Tensor:
    """Return the result of ``call`` for operands of its shapes, in a dtype of at least f32 (float64 for float64
    operands).

    Raises:
        ValueError: the result does not have the shape ``shape``, or has another kind of dtype than declared.
    """
    import torch

    from kernellab.task.meta.ties import Tied

    if not is_here():
        raise AssertionError("a process that is no worker computes no sketch")
    op = LIBRARY[call.op]
    least = getattr(torch, call.out.dtype.compute.torch_name)
    settings = {name: value for name, value in call.settings if value is not None}
    if op.free:
        widened = [x.float() if x.is_floating_point() and x.element_size() < 4 else x for x in arguments]
        # equal elements keep their order, as in a sketch's own sorts and in the gate's reference
        with Tied(turned=False):
            result = evaluate(read_call(str(settings["call"])), widened, lambda name: int(sizes[name]), f64)
        result = result.reshape(shape) if result.dim() == 0 and shape == (1,) else result
        if result.is_floating_point() != call.out.dtype.is_float or result.is_complex():
            raise ValueError(f"{PREFIX}{call.op} makes {result.dtype} and '{call.out.name}' is {call.out.dtype.value}")
    else:
        operands = [x if x.dtype == torch.float64 else x.to(least) for x in arguments]
        result = function(op.torch)(*operands, **settings)
    if tuple(result.shape) != shape:
        name = f"{PREFIX}{call.op}"
        raise ValueError(f"{name} makes {list(result.shape)} and '{call.out.name}' is declared {list(shape)}")
    return cast("Tensor", result)


@lru_cache(maxsize=64)
def function(dotted: str) -> Callable[..., Tensor]:
    """Return the function of torch with that dotted name."""
    import torch

    member: Any = torch
    for name in dotted.split(".")[1:]:
        member = getattr(member, name)
    return member  # type: ignore[no-any-return]
