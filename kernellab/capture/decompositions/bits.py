"""The bits of numbers: a fraction and an exponent, and views of memory as another dtype."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fraction in [0.5, 1) and the exponent of 2 of a number; zeros, infinities and NaN are their own
    fraction."""
    size = x.abs()
    is_special = (size == 0) | (size == math.inf) | (x != x)
    exponent = torch.floor(torch.log2(torch.where(is_special, 1.0, size))) + 1
    # in two steps: the inverse of the smallest number does not exist
    half = torch.floor(exponent * 0.5)
    fraction = torch.where(is_special, 1.0, x) * torch.exp2(-half) * torch.exp2(half - exponent)
    # a rounded logarithm may cross a power of 2
    above, below = fraction.abs() >= 1, fraction.abs() < 0.5
    fraction = torch.where(above, fraction * 0.5, torch.where(below, fraction * 2, fraction))
    exponent = exponent + above.to(exponent.dtype) - below.to(exponent.dtype)
    return torch.where(is_special, x, fraction), torch.where(is_special, 0.0, exponent).to(torch.int32)


def view_as(x: Tensor, dtype: torch.dtype) -> Any:
    """Reinterpret the bits of one dtype as another: bytes by numbers that differ by 256, wider or narrower elements by
    shifts; other dtypes of the same size stay whole."""
    if (x.dtype, dtype) == (torch.int8, torch.uint8):
        return torch.where(x < 0, x.to(torch.int32) + 256, x.to(torch.int32)).to(dtype)
    if (x.dtype, dtype) == (torch.uint8, torch.int8):
        return torch.where(x > 127, x.to(torch.int32) - 256, x.to(torch.int32)).to(dtype)
    if (x.dtype, dtype) == (torch.bool, torch.uint8):
        return x.to(dtype)
    if x.dim() == 0 or x.dtype == dtype or x.dtype.itemsize == dtype.itemsize or x.is_complex() or dtype.is_complex:
        return NotImplemented
    return _parts(x, dtype) if x.dtype.itemsize > dtype.itemsize else _joined(x, dtype)


def _parts(x: Tensor, dtype: torch.dtype) -> Any:
    """Split each element into several of ``dtype``, the lowest bits first."""
    size = 8 * dtype.itemsize
    shifts = torch.arange(0, 8 * x.dtype.itemsize, size, device=x.device, dtype=_integer_of(x.dtype))
    parts = (_as(x, _integer_of(x.dtype)).unsqueeze(-1) >> shifts) & ((1 << size) - 1)
    # a number beyond the signed range would not convert: subtract the sign bit's weight
    signed = parts if size == 8 else torch.where(parts >> (size - 1) != 0, parts - (1 << size), parts)
    return _as(signed.to(_integer_of(dtype)).reshape(*x.shape[:-1], -1), dtype)


def _joined(x: Tensor, dtype: torch.dtype) -> Any:
    """Join several neighbours into one element of ``dtype``, with the first one's bits the lowest."""
    size, wide = 8 * x.dtype.itemsize, _integer_of(dtype)
    count = dtype.itemsize // x.dtype.itemsize
    parts = _as(x, _integer_of(x.dtype)).reshape(*x.shape[:-1], -1, count).to(wide) & ((1 << size) - 1)
    joined = parts[..., 0]
    for n in range(1, count):
        joined = joined | (parts[..., n] << (n * size))
    return _as(joined, dtype)


def _integer_of(dtype: torch.dtype) -> torch.dtype:
    """The integer dtype of the same size."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.view(dtype)


#: operation of ATen -> function that is traced instead
BITS: dict[str, Callable[..., Any]] = {"frexp.Tensor": frexp, "view.dtype": view_as}
