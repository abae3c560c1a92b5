"""Makes Triton's interpreter work with the installed NumPy, and compute what a GPU does."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


@lru_cache(maxsize=1)
def correct_interpreter() -> None:
    """Correct the interpreter in this process.

    ``range(0, n)`` is allowed with an ``n`` that the kernel computed: Triton 3.6 passes an array of one element to
    int(), which NumPy refuses from 2.4 on; later releases of Triton pass the element. bfloat16 is computed by value
    and rounded to the nearest, as on a GPU: Triton keeps it as 16 bits of an integer, multiplies, compares and converts
    those, and cuts float32 off (up to 3.9)."""
    from triton.runtime import interpreter  # type: ignore[import-untyped]

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched
    _compute_bfloat16(interpreter)


def _compute_bfloat16(interpreter: Any) -> None:
    """Compute with bfloat16 in float32 and round the result."""
    tl, handle, builder = interpreter.tl, interpreter.TensorHandle, interpreter.InterpreterBuilder
    convert, unary, binary = builder.cast_impl, builder.unary_op, builder.binary_op
    ternary, fused = builder.ternary_op, builder.create_fma

    def cast(self: Any, value: Any, to: Any) -> Any:
        kinds = (value.dtype.scalar, to.scalar)
        if kinds == (tl.float32, tl.bfloat16):
            return handle(_bits_of(value.data), tl.bfloat16)
        if kinds == (tl.bfloat16, tl.float32):
            return handle(np.asarray(value.data.astype(np.uint32) << np.uint32(16)).view(np.float32), tl.float32)
        return convert(self, value, to)

    def is_narrow(value: Any) -> bool:
        return bool(value.dtype.scalar == tl.bfloat16)

    def wide(self: Any, value: Any) -> Any:
        return cast(self, value, tl.float32) if is_narrow(value) else value

    def rounded(self: Any, value: Any) -> Any:
        if value.data.dtype == np.bool_:  # of a comparison, which has its operands' type
            return handle(value.data, tl.bfloat16)
        return cast(self, handle(value.data.astype(np.float32), tl.float32), tl.bfloat16)

    def cast_impl(self: Any, value: Any, to: Any) -> Any:
        kinds = {value.dtype.scalar, to.scalar}
        if tl.bfloat16 not in kinds or kinds <= {tl.bfloat16, tl.float32}:
            return cast(self, value, to)
        return cast(self, cast(self, value, tl.float32), to)

    def unary_op(self: Any, value: Any, op: Any) -> Any:
        return rounded(self, unary(self, wide(self, value), op)) if is_narrow(value) else unary(self, value, op)

    def binary_op(self: Any, a: Any, b: Any, op: Any) -> Any:
        if not is_narrow(a):
            return binary(self, a, b, op)
        return rounded(self, binary(self, wide(self, a), wide(self, b), op))

    def ternary_op(self: Any, a: Any, b: Any, c: Any, op: Any) -> Any:
        if not is_narrow(a):  # a condition selects bits
            return ternary(self, a, b, c, op)
        return rounded(self, ternary(self, *(wide(self, value) for value in (a, b, c)), op))

    def create_fma(self: Any, a: Any, b: Any, c: Any) -> Any:
        if not is_narrow(c):
            return fused(self, a, b, c)
        return rounded(self, fused(self, *(wide(self, value) for value in (a, b, c))))

    builder.cast_impl, builder.unary_op, builder.binary_op = cast_impl, unary_op, binary_op
    builder.ternary_op, builder.create_fma = ternary_op, create_fma


def _bits_of(values: Any) -> Any:
    """Return float32 as the bits of the nearest bfloat16, the even one of two; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, nearest).astype(np.uint16).reshape(np.shape(values))
