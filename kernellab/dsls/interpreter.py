"""Triton's interpreter, made to run with the NumPy that is installed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def accept_one_element_bounds() -> None:
    """Lets ``range(0, n)`` of an interpreted kernel take an ``n`` that the kernel computed, in this process.

    Triton 3.6 gives int() an array of one element there, which NumPy refuses from 2.4 on; later releases of Triton take
    the element themselves.
    """
    from triton.runtime import interpreter  # type: ignore[import-untyped]

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched
