"""What a library call means: the framework's own operation, on whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.sketch.program.library import LIBRARY, PREFIX
from kernellab.sketch.program.program import LibraryCall

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


def called(call: LibraryCall, given: Sequence[Tensor], wanted: tuple[int, ...]) -> Tensor:
    """The result of ``call`` for operands of its shapes, in a dtype of at least f32 (in float64 where they are).

    Raises:
        ValueError: the result has not the shape ``wanted``.
    """
    import torch

    least = getattr(torch, call.out.dtype.compute.torch_name)
    operands = [x if x.dtype == torch.float64 else x.to(least) for x in given]
    settings = {name: value for name, value in call.settings if value is not None}
    made = function(LIBRARY[call.op].torch)(*operands, **settings)
    if tuple(made.shape) != wanted:
        name = f"{PREFIX}{call.op}"
        raise ValueError(f"{name} makes {list(made.shape)} and '{call.out.name}' is declared {list(wanted)}")
    return made


@lru_cache(maxsize=64)
def function(dotted: str) -> Callable[..., Tensor]:
    """The function of torch with that dotted name."""
    import torch

    found: Any = torch
    for name in dotted.split(".")[1:]:
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


__all__ = ["called", "function"]
