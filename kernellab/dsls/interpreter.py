"""Makes Triton's interpreter work with the installed NumPy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def accept_one_element_bounds() -> None:
    """Allow ``range(0, n)`` of an interpreted kernel with an ``n`` that the kernel computed, in this process.

    Triton 3.6 passes an array of one element to int(), which NumPy refuses from 2.4 on; later releases of Triton pass
    the element."""
    from triton.runtime import interpreter  # type: ignore[import-untyped]

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched
