"""Draws the values of one argument: families of random numbers, mapped into the argument's support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from math import inf, log2, prod, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor
    Draw = Callable[[tuple[int, ...], "torch.Generator"], "torch.Tensor"]


class Family(str, Enum):
    """Families of float arguments; ``OWN`` is the task's ``inputs()``, unchanged."""

    OWN = "inputs"
    NORMAL = "normal"
    UNIFORM = "uniform"
    SCALED = "scaled"
    HEAVY = "heavy-tail"
    STRUCTURED = "structured"
    #: rows around 100, rows of 30 times the spread, and rows with one element around 200, in which exp overflows unless
    #: the maximum is subtracted first; half of the rows, mostly the first half, are ordinary and do not reveal the
    #: others
    LARGE = "large"
    #: a mean of a thousand spreads: the difference of two large sums loses all digits
    OFFSET = "offset"
    MIXED = "mixed"
    #: rows of about a thousandth, and of all sizes below a tenth, among ordinary rows: a constant in a root or divisor
    #: matters there
    SMALL = "small"
    #: rows at the edge of formulas: all zero, constant, a single one, tiny, one dominating element
    EDGES = "edges"


class Support(str, Enum):
    """The set of an argument's values."""

    REAL = "real"
    NONNEGATIVE = "nonnegative"
    NONPOSITIVE = "nonpositive"
    UNIT = "unit"
    PROB = "prob"
    RANGE = "range"
    DISCRETE = "discrete"
    FIXED = "fixed"


OPEN = (Support.REAL, Support.NONNEGATIVE, Support.NONPOSITIVE)
#: families that test the magnitude of values
WIDE = (Family.LARGE, Family.OFFSET)
#: largest mean of :attr:`Family.OFFSET` in spreads; less if the dtype would round the spread away
_OFFSET = 1000.0


@dataclass(frozen=True)
class Legal:
    """The legal values of one argument, from ``low`` to ``high``; ``rms`` is the samples' magnitude."""

    support: Support
    low: float = -inf
    high: float = inf
    rms: float = 1.0
    is_sorted: bool = False
    values: tuple[float, ...] = ()


def draw(like: Tensor, legal: Legal, family: Family, generator: torch.Generator) -> Tensor:
    """Return one tensor like ``like`` from ``family``, inside ``legal``."""
    import torch

    if legal.support is Support.FIXED:
        return like
    shape = tuple(like.shape)
    if legal.support is Support.DISCRETE:
        values = torch.tensor(legal.values, device=like.device)
        picked = values[torch.randint(len(legal.values), shape, generator=generator, device=like.device)]
        return _sorted(picked, legal).to(like.dtype)
    if family in WIDE and like.element_size() > 1:
        return _sorted(_wide(like, legal, family, generator), legal).to(like.dtype).contiguous()
    if family is Family.SMALL:
        return _sorted(_small(shape, legal, generator), legal).to(like.dtype).contiguous()
    z = _unconstrained(shape, family, generator)
    if family in (Family.STRUCTURED, Family.MIXED, Family.EDGES):
        # numbers of few bits stay so: the sum of a constant row is exact in any order
        legal = replace(legal, rms=2.0 ** round(log2(legal.rms)))
    if like.dtype == torch.float16:
        z = z.clamp(-60, 60)
    if like.element_size() == 1:
        # 8-bit floats end at a few hundred
        most = torch.finfo(like.dtype).max / 2
        return _sorted(_into(z, legal).clamp(-most, most), legal).to(like.dtype).contiguous()
    return _sorted(_into(z, legal), legal).to(like.dtype).contiguous()


def _sorted(x: Tensor, legal: Legal) -> Tensor:
    return x.sort(-1).values if legal.is_sorted and x.dim() else x


def _wide(like: Tensor, legal: Legal, family: Family, generator: torch.Generator) -> Tensor:
    """Return values of the family's magnitude, inside the support; random normal ones if the support does not allow
    it."""
    import torch

    shape = tuple(like.shape)
    z = torch.randn(shape, generator=generator, device=generator.device)
    first, second = torch.rand(2, generator=generator, device=generator.device).tolist()
    if family is Family.OFFSET:
        ratio = min(_OFFSET * (0.5 + first), 0.25 / torch.finfo(like.dtype).eps)
        if legal.support in (Support.UNIT, Support.RANGE):
            centre = 0.5 + 0.4 * second
            inside: Tensor = legal.low + (legal.high - legal.low) * (centre * (1 + z / ratio)).clamp(0, _most(legal))
            return inside
        sign = -1.0 if legal.support is Support.NONPOSITIVE else 1.0
        return (z + sign * ratio) * legal.rms if legal.support in OPEN else _into(z, legal)
    if legal.support not in OPEN:
        return _into(z, legal)
    # rows in turn: shifted far up, and spread; not scaled by the samples' magnitude, since exp's range is fixed
    row = torch.arange(shape[0] if len(shape) > 1 else 1, device=z.device).reshape(-1, *[1] * (len(shape) - 1)) % 3
    moved, spread = z + 95 + 15 * first, z * (30 + 10 * second)
    large = torch.where(row == 0, moved, torch.where(row == 1, spread, z)).reshape(shape)
    if len(shape) > 1:
        _spike(large[2::3], generator, 150.0, 250.0)
    if len(shape) > 1 and shape[0] >= 2 * _KINDS:
        half = shape[0] // 2
        begin = 0 if float(torch.rand(1, generator=generator, device=generator.device)) < _FIRST else shape[0] - half
        large[begin : begin + half] = z[begin : begin + half]
    return _into(large / legal.rms, legal)


#: kinds of rows of the large family, and how often the first half of the rows is ordinary
_KINDS, _FIRST = 3, 0.75


def _small(shape: tuple[int, ...], legal: Legal, generator: torch.Generator) -> Tensor:
    """Return three rows of four made small, as far as the support allows; all ordinary if there are fewer than four.

    A row is one sample: an index along the first dimension, or along the first few if that one is short."""
    import torch

    z = torch.randn(shape, generator=generator, device=generator.device)
    least = max(legal.low, -legal.high, 0.0) / legal.rms
    leading = next((i for i in range(1, len(shape)) if prod(shape[:i]) >= _ROWS), 0)
    rows = prod(shape[:leading])
    if not leading or legal.support is Support.PROB:
        return _into(z, legal)
    row = torch.arange(rows, device=z.device) % _ROWS
    any_size = 10.0 ** -(1 + 4 * torch.rand(rows, generator=generator, device=z.device))
    thousandth = 1e-3 * 2.0 ** (2 * torch.rand(rows, generator=generator, device=z.device) - 1)
    size = torch.where(row == 1, any_size, torch.where(row == _ROWS - 1, torch.ones_like(any_size), thousandth))
    # a lower bound would make these values equal
    size = size.clamp_min(min(100 * least, 1.0)).reshape(*shape[:leading], *[1] * (len(shape) - leading))
    inside: Tensor = _into(z, legal) * size
    return inside.clamp(legal.low, legal.high)


#: period of the kinds of rows in the small family
_ROWS = 4


def _unconstrained(shape: tuple[int, ...], family: Family, generator: torch.Generator) -> Tensor:
    """Return real values of magnitude about 1 (except the scaled family), float32."""
    import torch

    device = generator.device
    if family is Family.NORMAL:
        return torch.randn(shape, generator=generator, device=device)
    if family is Family.UNIFORM:
        return (torch.rand(shape, generator=generator, device=device) * 2 - 1) * sqrt(3)
    if family is Family.SCALED:
        scale, shift = torch.rand(2, generator=generator, device=device).tolist()
        spread: float = 10 ** (2 * scale - 1)
        scaled: Tensor = torch.randn(shape, generator=generator, device=device) * spread + (4 * shift - 2)
        return scaled
    if family is Family.HEAVY:
        # Student's t with two degrees of freedom, clipped so that sums and exponentials stay in range
        normal = torch.randn(shape, generator=generator, device=device)
        uniform = torch.rand(shape, generator=generator, device=device).clamp_min(1e-6)
        return (normal / (-uniform.log()).sqrt()).clamp(-50, 50)
    if family is Family.STRUCTURED:
        make: Draw = _STRUCTURES[int(torch.randint(len(_STRUCTURES), (1,), generator=generator, device=device))]
        return make(shape, generator)
    if family is Family.EDGES:
        return _edges(shape, generator)
    rows = shape[0] if len(shape) > 1 else 1
    if rows < 2:
        return torch.randn(shape, generator=generator, device=device)
    out = torch.empty(shape, device=device)
    kinds = (Family.NORMAL, Family.HEAVY, Family.UNIFORM, Family.STRUCTURED, Family.SCALED)
    for i, kind in enumerate(kinds):
        part = out[i :: len(kinds)]
        if part.numel():
            part.copy_(_unconstrained(tuple(part.shape), kind, generator))
    if rows >= 2 * _DECEPTIVE:
        _deceive(out[:_DECEPTIVE])
        _spike(out[_DECEPTIVE::3], generator)
    return out


def _edges(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return rows in turn: normal, with one dominating element, zero, tiny, constant, a single one; the first kind is
    random. A row is an index along all dimensions but the last."""
    import torch

    out = torch.randn(shape, generator=generator, device=generator.device)
    if not out.numel() or out.dim() < 2:
        _spike(out.reshape(1, -1), generator)
        return out
    rows = out.reshape(-1, shape[-1])
    first = int(torch.randint(_EDGES, (1,), generator=generator, device=generator.device))
    kinds = [rows[(first + kind) % _EDGES :: _EDGES] for kind in range(_EDGES)]
    _spike(kinds[1], generator)
    kinds[2].zero_()
    kinds[3].mul_(1e-4)
    kinds[4].copy_(_constant_rows(tuple(kinds[4].shape), generator))
    kinds[5].copy_(_one_hot(tuple(kinds[5].shape), generator))
    return out


#: kinds of rows of the family edges
_EDGES = 6


def _spike(rows: Tensor, generator: torch.Generator, least: float = 10.0, most: float = 50.0) -> None:
    """Set one element of each row, at a random place, to a magnitude from ``least`` to ``most``."""
    import torch

    if not rows.numel() or not rows.dim():
        return
    lead = (*rows.shape[:-1], 1)
    at = torch.randint(rows.shape[-1], lead, generator=generator, device=rows.device)
    size = least + (most - least) * torch.rand(lead, generator=generator, device=rows.device)
    rows.scatter_(-1, at, size.to(rows.dtype))


#: rows of a mixed batch that look simple at the beginning
_DECEPTIVE = 4


def _deceive(rows: Tensor) -> None:
    """Make rows look simple in a few elements but not in the rest: the first row of a diagonal matrix, a row with equal
    ends, one that begins sorted, one that is constant up to its last element."""
    if not rows.numel():
        return
    rows[0, ..., 1:] = 0.0
    rows[1, ..., -1] = rows[1, ..., 0]
    half = rows[2, ..., : rows.shape[-1] // 2]
    half.copy_(half.sort(-1).values)
    rows[3] = rows[3, ..., :1].clone()
    rows[3, ..., -1] += 1.0


def _one_hot(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    import torch

    out = torch.zeros(shape, device=generator.device)
    if not shape:
        return out + 1
    hot = torch.randint(shape[-1], (*shape[:-1], 1), generator=generator, device=generator.device)
    return out.scatter_(-1, hot, 3.0)


def _ramp(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    import torch

    return torch.linspace(-2, 2, prod(shape), device=generator.device).reshape(shape)


def _ties(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    import torch

    return torch.randint(-2, 3, shape, generator=generator, device=generator.device).float()


def _constant_rows(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    import torch

    rows = (*shape[:-1], 1) if shape else shape
    round_numbers = (torch.randn(rows, generator=generator, device=generator.device) * 4).round() / 4
    return round_numbers.expand(shape).contiguous()


_STRUCTURES: tuple[Draw, ...] = (_one_hot, _ramp, _ties, _constant_rows)


def _most(legal: Legal) -> float:
    """Return the largest share of a support's width: samples within [0, 1) exclude 1 (an index computed from it would
    be outside)."""
    return 1 - 2.0**-8 if legal.support is Support.UNIT else 1.0


def _into(z: Tensor, legal: Legal) -> Tensor:
    """Map real values of magnitude 1 into the support."""
    import torch

    match legal.support:
        case Support.NONNEGATIVE:
            return (z.abs() * legal.rms).clamp_min(legal.low)
        case Support.NONPOSITIVE:
            return (-z.abs() * legal.rms).clamp_max(legal.high)
        case Support.UNIT | Support.RANGE:
            low, high = legal.low, legal.high
            return low + (high - low) * torch.sigmoid(1.7 * z).clamp_max(_most(legal))
        case Support.PROB:
            return torch.softmax(z, -1).clamp_min(min(legal.low, 1e-4)) if z.dim() else z
        case _:
            return z * legal.rms
