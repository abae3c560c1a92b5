"""What a library call means: the framework's own operation, on whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from kernellab.sketch.program.aten import evaluate, read_call
from kernellab.sketch.program.library import LIBRARY, PREFIX
from kernellab.sketch.program.program import LibraryCall

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def called(
    call: LibraryCall, given: Sequence[Tensor], wanted: tuple[int, ...], sizes: Mapping[str, int], f64: bool
) -> Tensor:
    """The result of ``call`` for operands of its shapes, in a dtype of at least f32 (in float64 where they are).

    Raises:
        ValueError: the result has not the shape ``wanted``, or is of another kind of dtype than is declared.
    """
    import torch

    op = LIBRARY[call.op]
    least = getattr(torch, call.out.dtype.compute.torch_name)
    settings = {name: value for name, value in call.settings if value is not None}
    if op.free:
        widened = [x.float() if x.is_floating_point() and x.element_size() < 4 else x for x in given]
        made = evaluate(read_call(str(settings["call"])), widened, lambda name: int(sizes[name]), f64)
        made = made.reshape(wanted) if made.dim() == 0 and wanted == (1,) else made
        if made.is_floating_point() != call.out.dtype.is_float or made.is_complex():
            raise ValueError(f"{PREFIX}{call.op} makes {made.dtype} and '{call.out.name}' is {call.out.dtype.value}")
    else:
        operands = [x if x.dtype == torch.float64 else x.to(least) for x in given]
        made = function(op.torch)(*operands, **settings)
    if tuple(made.shape) != wanted:
        name = f"{PREFIX}{call.op}"
        raise ValueError(f"{name} makes {list(made.shape)} and '{call.out.name}' is declared {list(wanted)}")
    return cast("Tensor", made)


@lru_cache(maxsize=64)
def function(dotted: str) -> Callable[..., Tensor]:
    """The function of torch with that dotted name."""
    import torch

    found: Any = torch
    for name in dotted.split(".")[1:]:
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


__all__ = ["called", "function"]
