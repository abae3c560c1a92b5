"""Windows of signals, by their formulas; torch computes them of a plain length only."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def hamming_window(
    length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    device: Any = None, **_: Any,
) -> Tensor:  # fmt: skip
    """Return alpha - beta cos(2 pi n / N) for n in 0..N-1; the denominator is N - 1 if it is not periodic."""
    angles = _angles(length, periodic, dtype, device)
    return angles if angles is NotImplemented else alpha - beta * torch.cos(angles)


def hann_window(length: int, periodic: bool = True, **more: Any) -> Tensor:
    """Return (1 - cos(2 pi n / N)) / 2."""
    return hamming_window(length, periodic, 0.5, 0.5, **more)


def blackman_window(length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Return 0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    angles = _angles(length, periodic, dtype, device)
    return angles if angles is NotImplemented else 0.42 - 0.5 * torch.cos(angles) + 0.08 * torch.cos(2 * angles)


def bartlett_window(length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Return 1 - |2 n / N - 1|."""
    angles = _angles(length, periodic, dtype, device)
    return angles if angles is NotImplemented else 1 - (angles / math.pi - 1).abs()


def kaiser_window(
    length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:  # fmt: skip
    """Return I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta)."""
    angles = _angles(length, periodic, dtype, device)
    if angles is NotImplemented:
        return angles
    away = (angles / math.pi - 1).square()
    return torch.i0(beta * torch.sqrt((1 - away).clamp(min=0))) / float(
        torch.i0(torch.tensor(beta, dtype=torch.float64))
    )


def _angles(length: int, periodic: bool, dtype: Any, device: Any) -> Tensor:
    """2 pi n / N for n in 0..length-1, with N the length, or one less where the window is not periodic."""
    if isinstance(length, int) and length < 2:
        return NotImplemented
    at = torch.arange(length, device=device).to(dtype or torch.get_default_dtype())
    span = length if periodic else length - 1 if isinstance(length, int) else torch.sym_max(length - 1, 1)
    return at * (2 * math.pi / span)


#: functions that are traced where torch's own table has none
SIGNAL_WINDOWS: dict[str, Callable[..., Any]] = {
    **{f"hann_window.{name}": hann_window for name in ("default", "periodic")},
    **{f"blackman_window.{name}": blackman_window for name in ("default", "periodic")},
    **{
        f"hamming_window.{name}": hamming_window
        for name in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")
    },
}
