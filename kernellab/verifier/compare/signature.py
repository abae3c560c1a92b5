"""Classify the pattern of an error by rules over the outputs and the reference, as evidence for routing.

:func:`numeric` gives one wrong output the most specific name that fits (``edge-tile``, ``transposed``, ``stale``), by
the numbers on both sides and by where they differ (:mod:`kernellab.verifier.compare.error_places`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernellab.verifier.compare.compare import Mismatch
from kernellab.verifier.compare.error_places import at_edge, scattered
from kernellab.verifier.protocol.memory import POISON

#: Distance, relative to the norm, up to which two tensors count as the same.
_MATCH = 1e-3
#: Largest share of the values' norm for errors of lost digits.
_LITTLE = 0.05
#: Largest share of the values' norm for errors of sums that are kept in too narrow a dtype.
LOST_DIGITS = 2e-2
#: Share of wrong elements from which lost digits may be the cause.
_OF_LOST_DIGITS = 0.01
#: For a factor in each row: least number of rows, so that rounding does not move all to one side, and the allowed
#: error.
_ROWS, _OF_A_ROW = 8, 0.02
#: Share of wrong elements from which an output that equals an input is a copy of it.
_OF_A_COPY = 0.5
#: Narrower dtypes that a pointer of the wrong type may store, for integers and for floats.
_NARROWER = {
    False: (torch.int32, torch.int16, torch.int8), True: (torch.float32, torch.float16, torch.bfloat16)
}  # fmt: skip
#: Number of integers with the bits of fresh memory that cannot be chance.
_FRESH = 4


def numeric(
    got: Tensor, want: Tensor, mismatch: Mismatch, *, earlier: Sequence[Tensor] = (), inputs: Sequence[Tensor] = (),
    fresh: bool = False, narrow: bool = False, edge: bool = True,
) -> str:  # fmt: skip
    """Return the most specific name that fits one wrong output.

    ``earlier`` are right answers of previous calls (a stale result equals one of them); ``inputs`` the arguments;
    ``fresh``: see :func:`holds_fresh`; ``narrow``: see :func:`stored_narrow`; ``edge``: whether a partial tile may be
    the cause.
    """
    if mismatch.rule in ("shape", "dtype", "count"):
        return mismatch.rule
    if narrow:
        return "narrow-store"
    g, w = got.double(), want.double()
    if (copied := _copied(g, w, mismatch, earlier, inputs)) is not None:
        return copied
    if mismatch.rule == "scale":
        return "off-by-scale"
    wrong = mismatch.wrong
    assert wrong is not None
    if edge and at_edge(wrong) and not of_rounding(g, w, mismatch):
        return "edge-tile"
    if mismatch.rule == "exact" and fresh:
        return "unwritten"
    if mismatch.rule == "non-finite":
        # Poison read past the end of an input reaches only the last rows.
        ends = edge and at_edge(~torch.isfinite(g) & wrong)
        return "edge-tile" if ends else "unwritten" if fresh else "nan"
    if not bool(wrong.any()):
        return "wrong-values"  # each is within its limit, but not all together
    if (whole := _of_all_values(g, w)) is not None:
        return whole
    if _lost_digits(mismatch):
        return "off-by-scale" if _scaled_rows(g, w) else "accumulate-dtype"
    return "scattered" if scattered(wrong) else "wrong-values"


def _copied(
    g: Tensor, w: Tensor, mismatch: Mismatch, earlier: Sequence[Tensor], inputs: Sequence[Tensor]
) -> str | None:
    """Return the signature of an output that is an earlier answer, zero, or an input; None if it is none of these."""
    if any(_same(g, e) for e in earlier if e.shape == g.shape and not _same(w, e)):
        return "stale"
    if bool((g == 0).all()):
        return "all-zero"
    if any(_same(g, i) and not _same(w, i) for i in inputs if i.shape == g.shape) and _mostly(mismatch.wrong):
        return "identity"
    return None


def _of_all_values(g: Tensor, w: Tensor) -> str | None:
    """Return the signature of an output that is the right one, transposed, scaled or shifted; else None."""
    if _transposed(g, w):
        return "transposed"
    if _scale(g, w) is not None:
        return "off-by-scale"
    if _constant_shift(g, w):
        return "off-by-constant"
    return "off-by-one" if _moved(g, w) else None


def _lost_digits(mismatch: Mismatch) -> bool:
    """Return whether small errors are spread over an output, as those of a sum in too narrow a dtype."""
    assert mismatch.wrong is not None
    if mismatch.rule not in ("frobenius", "tile", "tau") and (mismatch.rel_frobenius or 1) >= LOST_DIGITS:
        return False
    wrong_share = float(mismatch.wrong.double().mean()) if mismatch.rule == "elements" else 1.0
    return wrong_share > _OF_LOST_DIGITS


def _mostly(wrong: Tensor | None) -> bool:
    """Return whether most of an output is wrong. A right output may equal an input except for a few elements."""
    return wrong is None or float(wrong.double().mean()) >= _OF_A_COPY


def stored_narrow(got: Tensor, want: Tensor) -> bool:
    """Return whether the output's first bytes hold all its values packed in a narrower dtype of the same kind, and the
    rest is unwritten memory."""
    if not got.is_contiguous() or got.is_complex() or got.dtype == torch.bool or not got.numel():
        return False
    stored = got.reshape(-1).view(torch.uint8)
    for dtype in _NARROWER[got.is_floating_point()]:
        size = got.numel() * dtype.itemsize
        if dtype.itemsize < got.element_size() and bool((stored[size:] == POISON).all()):
            narrow_values, values = stored[:size].view(dtype), want.reshape(-1).to(dtype)
            # Ignore values that look like fresh memory.
            telling = values.view(torch.uint8).reshape(-1, dtype.itemsize).ne(POISON).any(-1)
            if bool(telling.any()) and bool(
                torch.isclose(narrow_values.double(), values.double(), equal_nan=True).all()
            ):
                return True
    return False


def holds_fresh(got: Tensor, wrong: Tensor) -> bool:
    """Return whether all wrong non-finite elements (for integers, all wrong elements) have the bits of fresh memory.
    Then nothing was stored there, or a processor that keeps NaN bits computed the value from unwritten memory."""
    if got.element_size() < 2 or got.is_complex():
        return False
    bad = ((~torch.isfinite(got) & wrong) if got.is_floating_point() else wrong).reshape(-1)
    stored_bytes = got.reshape(-1)[bad].contiguous().view(torch.uint8)
    few = not got.is_floating_point() and int(bad.sum()) < _FRESH  # a few integers may be -1 for another reason
    return bool(stored_bytes.numel()) and not few and bool((stored_bytes == POISON).all())


def of_rounding(got: Tensor, want: Tensor, mismatch: Mismatch) -> bool:
    """Return whether the errors are lost digits: within every element's limit, and small relative to the values at
    those places. Reads past an end and missing stores produce other numbers."""
    if mismatch.rule not in ("frobenius", "tile", "tau") or mismatch.wrong is None or not bool(mismatch.wrong.any()):
        return False
    g, w = got.double()[mismatch.wrong], want.double()[mismatch.wrong]
    return float((g - w).norm()) <= _LITTLE * float(w.norm())


def _same(a: Tensor, b: Tensor) -> bool:
    b = b if b.is_complex() else b.double()
    norm = float(b.norm())
    return norm > 0 and float((a - b).norm()) <= _MATCH * norm


def _transposed(g: Tensor, w: Tensor) -> bool:
    if g.dim() < 2 or min(g.shape[-2:]) < 2:
        return False
    if g.shape[-1] == g.shape[-2] and _same(g, w.transpose(-1, -2)):
        return True
    return _same(g, w.transpose(-1, -2).reshape(g.shape))


def _scale(g: Tensor, w: Tensor) -> float | None:
    dot = float((g * w).sum())
    square = float((w * w).sum())
    if not square or not dot:
        return None
    c = dot / square
    rest = float((g - c * w).norm()) / square**0.5
    return c if rest <= _MATCH * abs(c) and abs(c - 1) > 10 * rest else None


def _scaled_rows(g: Tensor, w: Tensor) -> bool:
    """Return whether each row is off by a factor, all to the same side. Padding in a row's normalising sum does that;
    lost digits in the sum put some factors above 1 and some below."""
    if g.dim() < 2 or g.shape[-1] < 2 or g.numel() // g.shape[-1] < _ROWS:
        return False
    square = (w * w).sum(-1)
    off = (g * w).sum(-1) / square - 1
    rest = (g - (1 + off)[..., None] * w).norm(dim=-1) / square.sqrt()
    even = bool((off > 0).all()) or bool((off < 0).all())
    return even and bool((rest <= _OF_A_ROW * off.abs()).all())


def _constant_shift(g: Tensor, w: Tensor) -> bool:
    d = g - w
    return g.numel() > 2 and float(d.mean().abs()) > 0 and float(d.std()) <= _MATCH * float(d.mean().abs())


def _moved(g: Tensor, w: Tensor) -> bool:
    for dim in range(g.dim()):
        n = g.shape[dim]
        if n >= 4:
            for step in (1, -1):
                front, back = (0, n - 1), (1, n - 1)
                a, b = (g.narrow(dim, *front), w.narrow(dim, *back)) if step > 0 else (
                    g.narrow(dim, *back), w.narrow(dim, *front)
                )  # fmt: skip
                if _same(a, b):
                    return True
    return False
