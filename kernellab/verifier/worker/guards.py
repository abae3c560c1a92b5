"""Allocations between guard zones: a kernel that writes past the end of its output damages poison, and is seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from kernellab.verifier.protocol.rules import CAPS

#: NaN where the kernel must write; the guards differ from it, since a NaN that was read may be what is written there
_POISON = 0xFF
GUARD = 0xA5


@contextlib.contextmanager
def guarded(kind: str = "cpu") -> Iterator[None]:
    """While it holds, torch's plain allocations on a device of ``kind`` (empty, zeros and their ``_like`` and ``new_``
    forms) lie between two guard zones and start poisoned."""
    import torch

    originals: dict[tuple[Any, str], Callable[..., Any]] = {
        (torch, name): getattr(torch, name) for name in ("empty", "zeros", "empty_like", "zeros_like")
    }
    originals |= {(torch.Tensor, name): getattr(torch.Tensor, name) for name in ("new_empty", "new_zeros")}
    empty = torch.empty

    def allocate(shape: tuple[int, ...], dtype: Any, zero: bool, device: Any) -> Any:
        none = empty(0, dtype=dtype)
        item = none.element_size()
        edge = CAPS.output_guard // item
        count = prod(shape)
        if kind == "cpu":
            # on this thread alone: a team that was woken to fill a megabyte spins on all cores for milliseconds
            storage = torch.UntypedStorage((count + 2 * edge) * item)  # type: ignore[no-untyped-call]
            every = none.set_(storage, 0, (len(storage) // item,), (1,))
            held = every.view(torch.uint8).numpy()
            held[: edge * item] = held[len(held) - edge * item :] = GUARD
            held[edge * item : len(held) - edge * item] = 0 if zero else _POISON
            return every[edge : edge + count].view(shape)
        whole = empty(count + 2 * edge, dtype=dtype, device=device)
        whole.view(torch.uint8).fill_(GUARD)
        inner = whole[edge : edge + count].view(shape)
        if count:
            inner.view(torch.uint8).fill_(0 if zero else _POISON)
        return inner

    def by_shape(original: Callable[..., Any], zero: bool) -> Callable[..., Any]:
        def call(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **rest: Any) -> Any:
            shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
            here = torch.get_default_device() if device is None else device
            plain = not rest and not requires_grad and _is(here, kind) and all(isinstance(n, int) for n in shape)
            if not plain or not shape:
                return original(*size, dtype=dtype, device=device, requires_grad=requires_grad, **rest)
            return allocate(shape, dtype or torch.get_default_dtype(), zero, here)

        return call

    def by_tensor(original: Callable[..., Any], zero: bool) -> Callable[..., Any]:
        def call(like: Any, *args: Any, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
            here = like.device if device is None else device
            plain = not args and not rest and _is(here, kind) and like.device.type == kind and like.is_contiguous()
            if not plain or not like.dim():
                extra = {k: v for k, v in (("dtype", dtype), ("device", device)) if v is not None}
                return original(like, *args, **extra, **rest)
            return allocate(tuple(like.shape), dtype or like.dtype, zero, here)

        return call

    def by_method(original: Callable[..., Any], zero: bool) -> Callable[..., Any]:
        def call(self: Any, *size: Any, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
            shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
            here = self.device if device is None else device
            if rest or not shape or not _is(here, kind) or self.device.type != kind:
                return original(self, *size, dtype=dtype, device=device, **rest)
            return allocate(shape, dtype or self.dtype, zero, here)

        return call

    makers = {"empty": by_shape, "zeros": by_shape, "empty_like": by_tensor, "zeros_like": by_tensor,
              "new_empty": by_method, "new_zeros": by_method}  # fmt: skip
    for (owner, name), original in originals.items():
        setattr(owner, name, makers[name](original, "zeros" in name))
    try:
        yield
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)


def _is(device: Any, kind: str) -> bool:
    return (f"cuda:{device}" if isinstance(device, int) else str(device)).split(":")[0] == kind
