"""Special functions in terms of operations that the rules support, traced instead of torch's own.

Each is accurate to about 1e-12 in float64, where the gate compares, over the range of floats; ``NotImplemented`` leaves
an operation whole.
"""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor


def erfinv(x: Tensor) -> Tensor:
    """Return the inverse of erf."""
    if not x.is_floating_point():
        return NotImplemented
    y = torch.copysign(_erfinv_of(x.abs(), 1 - x.abs()), x)
    return torch.where(x.abs() > 1, math.nan, y)


def ndtri(x: Tensor) -> Tensor:
    """Return the quantile of the normal distribution."""
    if not x.is_floating_point():
        return NotImplemented
    centred = 2 * x - 1
    y = torch.copysign(math.sqrt(2) * _erfinv_of(centred.abs(), 2 * torch.minimum(x, 1 - x)), centred)
    return torch.where(centred.abs() > 1, math.nan, y)


def _erfinv_of(x: Tensor, rest: Tensor) -> Tensor:
    """Return the inverse of erf for 0 <= x, by Giles' polynomials (2012, Approximating the erfinv function) and a step
    of Newton's method; ``rest`` is 1 - x without its rounding error, which the tail needs."""
    w = -torch.log(rest * (2 - rest))
    near, far = w - 2.5, torch.sqrt(w.clamp(min=5.0)) - 3.0
    y = torch.where(w < 5, _poly(near, _ERFINV_NEAR), _poly(far, _ERFINV_FAR)) * x
    off = torch.where(x < 0.5, torch.erf(y) - x, rest - torch.erfc(y))
    y = y - off * (math.sqrt(math.pi) / 2) * torch.exp(y * y)
    return torch.where(rest == 0, math.inf, y)


def digamma(x: Tensor) -> Tensor:
    """Return psi: the recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflected below
    0."""
    if not x.is_floating_point():
        return NotImplemented
    mirrored = x < 0
    z = torch.where(mirrored, 1 - x, x)
    total = torch.zeros_like(x)
    for _ in range(10):
        small = z < 10
        total = torch.where(small, total - 1 / z, total)
        z = torch.where(small, z + 1, z)
    r = 1 / (z * z)
    series = _poly(r, (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12))
    psi = total + torch.log(z) - 0.5 / z + r * series
    part = x - torch.trunc(x)
    reflected = psi - math.pi / torch.tan(math.pi * part)
    value = torch.where(mirrored, reflected, psi)
    value = torch.where(mirrored & (part == 0), math.nan, value)
    return torch.where(x == 0, torch.copysign(torch.full_like(x, math.inf), -x), value)


def bessel_i(order: int, scaled: bool) -> Callable[[Tensor], Tensor]:
    """The modified Bessel functions of order 0 and 1: polynomials through their values at Chebyshev nodes, in x up to 8
    and in 1/x beyond (the ranges of Cephes' i0.c)."""

    def bessel(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return NotImplemented
        size = x.abs()
        near = torch.minimum(size, torch.full_like(x, 8.0))
        far = torch.maximum(size, torch.full_like(x, 8.0))
        low = _split_poly(near / 4 - 1, _bessel_near(order))
        high = _split_poly(16 / far - 1, _bessel_far(order)) / torch.sqrt(far)
        value = torch.where(size <= 8, low * size if order else low, high)
        if not scaled:
            # in two factors: the result overflows later than its exponential
            half = torch.exp(size * 0.5)
            value = value * half * half
        return torch.where(x < 0, -value, value) if order else value

    return bessel


def erfcx(x: Tensor) -> Tensor:
    """Return exp(x^2) erfc(x): a polynomial in (x - 3.75) / (x + 3.75), the variable of Shepherd and Laframboise
    (1981)."""
    if not x.is_floating_point():
        return NotImplemented
    size = x.abs()
    value = _split_poly(1 - 7.5 / (size + 3.75), _erfcx_scaled()) / (1 + 2 * size)
    return torch.where(x < 0, 2 * torch.exp(x * x) - value, value)


@lru_cache(maxsize=1)
def _erfcx_scaled() -> tuple[float, ...]:
    from mpmath import erfc, exp, mpf  # type: ignore[import-untyped]

    def scaled(places: Any) -> Any:
        at = [mpf(3.75) * (1 + t) / (1 - t) for t in map(float, places)]
        return np.array([float((1 + 2 * a) * exp(a * a) * erfc(a)) for a in at])

    return _through(scaled, 34)


def trigamma(order: int, x: Tensor) -> Tensor:
    """Return the first derivative of digamma, with torch's number of steps and terms; other orders stay whole."""
    if order != 1 or not x.is_floating_point():
        return NotImplemented
    mirrored = x < 0.5
    z = torch.where(mirrored, 1 - x, x)
    total = torch.zeros_like(x)
    for step in range(6):
        total = total + 1 / ((z + step) * (z + step))
    z = z + 6
    r = 1 / (z * z)
    total = total + (1 + 1 / (2 * z) + r * (1 / 6 - r * (1 / 30 - r * (1 / 42)))) / z
    root = torch.sin(math.pi * x)
    return torch.where(mirrored, (math.pi * math.pi) / (root * root) - total, total)


def bessel_j(order: int) -> Callable[[Tensor], Tensor]:
    """The Bessel functions of the first kind of order 0 and 1: in x^2 up to 8, by amplitude and phase beyond."""

    def bessel(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return NotImplemented
        size = x.abs()
        value = torch.where(size <= 8, _bessel_small(order, size, "j"), _bessel_waves(order, size)[0])
        return torch.where(x < 0, -value, value) if order else value

    return bessel


def bessel_y(order: int) -> Callable[[Tensor], Tensor]:
    """The Bessel functions of the second kind of order 0 and 1: the logarithmic part from the first kind."""

    def bessel(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return NotImplemented
        low = (2 / math.pi) * torch.log(x) * _bessel_small(order, x, "j") + _bessel_small(order, x, "y")
        low = low - (2 / math.pi) / x if order else low
        value = torch.where(x <= 8, low, _bessel_waves(order, x)[1])
        return torch.where(x == 0, -math.inf, torch.where(x < 0, math.nan, value))

    return bessel


def bessel_k(order: int, scaled: bool) -> Callable[[Tensor], Tensor]:
    """The modified Bessel functions of the second kind of order 0 and 1: with a logarithm up to 2, in 1/x beyond."""

    def bessel(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return NotImplemented
        near, far = torch.minimum(x, torch.full_like(x, 2.0)), torch.maximum(x, torch.full_like(x, 2.0))
        sign = 1.0 if order else -1.0
        low = sign * torch.log(near / 2) * _bessel_of_two(order, near, "i") + _bessel_of_two(order, near, "k")
        low = low + 1 / near if order else low
        high = _split_poly(4 / far - 1, _bessel_far_k(order)) / torch.sqrt(far)
        low, high = (low * torch.exp(near), high) if scaled else (low, high * torch.exp(-far))
        value = torch.where(x <= 2, low, high)
        return torch.where(x == 0, math.inf, torch.where(x < 0, math.nan, value))

    return bessel


def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Return sin(x) / x."""
    return torch.where(x == 0, 1.0, torch.sin(x) / x) if x.is_floating_point() else NotImplemented


def _bessel_small(order: int, x: Tensor, kind: str) -> Tensor:
    """Return J, or Y without its logarithm and pole, for 0 <= x <= 8: even or odd in x."""
    near = torch.minimum(x, torch.full_like(x, 8.0))
    value = _split_poly(near * near / 32 - 1, _bessel_series(order, kind, 64.0))
    return value * near if order else value


def _bessel_of_two(order: int, x: Tensor, kind: str) -> Tensor:
    value = _split_poly(x * x / 2 - 1, _bessel_series(order, kind, 4.0))
    return value * x if order else value


def _bessel_waves(order: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return J and Y beyond 8: P cos(a) - Q sin(a) and P sin(a) + Q cos(a) over sqrt(pi x / 2), a = x - (1 + 2 order)
    pi / 4 (Abramowitz and Stegun 9.2.5)."""
    far = torch.maximum(x, torch.full_like(x, 8.0))
    t = 128 / (far * far) - 1
    p, q = _split_poly(t, _bessel_phase(order, False)), _split_poly(t, _bessel_phase(order, True)) / far
    cos, sin = torch.cos(far), torch.sin(far)
    phased = (sin - cos, -sin - cos) if order else (cos + sin, sin - cos)
    scale = 1 / torch.sqrt(math.pi * far)
    return (p * phased[0] - q * phased[1]) * scale, (p * phased[1] + q * phased[0]) * scale


@lru_cache(maxsize=16)
def _bessel_series(order: int, kind: str, end: float) -> tuple[float, ...]:
    """Return the coefficients of a polynomial in x^2 up to ``end``; for order 1, of the ratio to x."""
    from mpmath import besseli, besselj, besselk, bessely, log, mpf, pi, sqrt

    def plain(x: Any) -> Any:
        if kind in "ij":
            return (besseli if kind == "i" else besselj)(order, x)
        if kind == "y":
            rest = bessely(order, x) - 2 / pi * log(x) * besselj(order, x)
            return rest + 2 / (pi * x) if order else rest
        rest = besselk(order, x) + (-1 if order else 1) * log(x / 2) * besseli(order, x)
        return rest - 1 / x if order else rest

    def of_square(places: Any) -> Any:
        roots = [sqrt(mpf(end) / 2 * (1 + t)) for t in map(float, places)]
        return np.array([float(plain(x) / x**order) for x in roots])

    return _through(of_square, 22)


@lru_cache(maxsize=4)
def _bessel_phase(order: int, second: bool) -> tuple[float, ...]:
    from mpmath import besselj, bessely, cos, mpf, pi, sin, sqrt

    def value(places: Any) -> Any:
        terms = []
        for t in map(float, places):
            x = sqrt(128 / mpf(1 + t))
            angle = x - (1 + 2 * order) * pi / 4
            j, y = besselj(order, x), bessely(order, x)
            part = x * (y * cos(angle) - j * sin(angle)) if second else j * cos(angle) + y * sin(angle)
            terms.append(float(part * sqrt(pi * x / 2)))
        return np.array(terms)

    return _through(value, 18)


@lru_cache(maxsize=2)
def _bessel_far_k(order: int) -> tuple[float, ...]:
    from mpmath import besselk, exp, mpf, sqrt

    def value(places: Any) -> Any:
        at = [4 / mpf(1 + t) for t in map(float, places)]
        return np.array([float(besselk(order, x) * exp(x) * sqrt(x)) for x in at])

    return _through(value, 26)


def lcm(x: Tensor, y: Tensor) -> Tensor:
    """Return the least common multiple, from the greatest common divisor."""
    divisor = torch.gcd(x, y)
    return torch.where(
        divisor == 0, 0, torch.div(x, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc") * y
    ).abs()


@lru_cache(maxsize=4)
def _bessel_near(order: int) -> tuple[float, ...]:
    # for order 1 the ratio to x, which keeps its precision near 0
    return _through(lambda t: _bessel(order, 4 * (t + 1)) / (4 * (t + 1)) ** order, 28)


@lru_cache(maxsize=4)
def _bessel_far(order: int) -> tuple[float, ...]:
    return _through(lambda t: _bessel(order, 16 / (t + 1)) * np.sqrt(16 / (t + 1)), 20)


def _bessel(order: int, places: Any) -> Any:
    """Return the scaled function in float64 by mpmath, which torch depends on, since torch's own would be traced
    here."""
    from mpmath import besseli, exp

    return np.array([float(besseli(order, x) * exp(-x)) for x in map(float, places)])


def _through(function: Callable[[Any], Any], degree: int) -> tuple[float, ...]:
    """Return the polynomial through ``function`` at the Chebyshev nodes of [-1, 1], highest power first."""
    from numpy.polynomial import chebyshev

    return tuple(map(float, chebyshev.cheb2poly(chebyshev.chebinterpolate(function, degree))[::-1]))


def _split_poly(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Evaluate a polynomial by its even and odd parts, with half the dependency chain of Horner's rule."""
    up = coefficients[::-1]
    square = x * x
    return _poly(square, up[0::2][::-1]) + x * _poly(square, up[1::2][::-1])


_ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _poly(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Evaluate a polynomial by Horner's rule, highest power first."""
    total = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


#: operation of ATen -> function that is traced instead
SPECIAL: dict[str, Callable[..., Any]] = {
    "erfinv.default": erfinv, "special_ndtri.default": ndtri, "digamma.default": digamma,
    "special_erfcx.default": erfcx, "polygamma.default": trigamma, "lcm.default": lcm,
    "i0.default": bessel_i(0, False), "special_i0e.default": bessel_i(0, True),
    "special_i1.default": bessel_i(1, False), "special_i1e.default": bessel_i(1, True),
    "special_modified_bessel_i0.default": bessel_i(0, False), "special_modified_bessel_i1.default": bessel_i(1, False),
    "special_modified_bessel_k0.default": bessel_k(0, False), "special_modified_bessel_k1.default": bessel_k(1, False),
    "special_scaled_modified_bessel_k0.default": bessel_k(0, True),
    "special_scaled_modified_bessel_k1.default": bessel_k(1, True),
    "special_bessel_j0.default": bessel_j(0), "special_bessel_j1.default": bessel_j(1),
    "special_bessel_y0.default": bessel_y(0), "special_bessel_y1.default": bessel_y(1),
    "special_spherical_bessel_j0.default": spherical_bessel_j0,
}  # fmt: skip
