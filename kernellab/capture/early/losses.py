"""Losses in which torch branches on or sizes by a tensor's values, rewritten so that they can be traced."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: number of steps of a sequence up to which they are unrolled: each is traced, checked and designed
_MOST_STEPS = 64
#: torch's numbers for how a loss is reduced
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Return (log v + (x - target)^2 / v) / 2 for a variance v of at least ``eps``; torch reads its values."""
    spread = var if isinstance(var, torch.Tensor) else torch.full_like(x, var)
    if spread.shape != x.shape and spread.shape == x.shape[:-1]:
        spread = spread.unsqueeze(-1)
    spread = spread.clamp(min=eps)
    loss = 0.5 * (torch.log(spread) + (x - target) ** 2 / spread)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: Any = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Return -log of the sum over all alignments of a row of labels with T steps; log_probs [T, N, C], targets [N, S].

    The forward recursion runs over labels with blanks between: at each step a state is kept, comes from the previous
    state, or skips a blank between different labels. Source: A. Graves and others, "Connectionist temporal
    classification", ICML 2006, equations 6 to 8.
    """
    steps = log_probs.shape[0]
    if log_probs.dim() != 3 or targets.dim() != 2 or not isinstance(steps, int) or steps > _MOST_STEPS:
        return NotImplemented
    rows, labels = targets.shape
    place = log_probs.device
    ends, counts = (torch.as_tensor(n, device=place).reshape(rows, 1) for n in (input_lengths, target_lengths))
    state = torch.arange(2 * labels + 1, device=place)
    is_label = state % 2 == 1
    labels_of_states = targets.to(torch.int64).index_select(1, (state // 2).clamp(max=labels - 1))
    states = torch.where(is_label, labels_of_states, blank)
    two_before = torch.cat((states[:, :1], states[:, :1], states[:, :-2]), 1)
    skips = is_label & (state > 1) & (states != two_before)
    scores = log_probs.gather(2, states.unsqueeze(0).expand(steps, rows, 2 * labels + 1))
    none = torch.full((rows, 1), -math.inf, dtype=log_probs.dtype, device=place)
    reached = torch.where(state < 2, scores[0], -math.inf)
    last = reached
    for step in range(1, steps):
        once = torch.cat((none, reached[:, :-1]), 1)
        twice = torch.where(skips, torch.cat((none, none, reached[:, :-2]), 1), -math.inf)
        reached = _log_sum(reached, once, twice) + scores[step]
        last = torch.where(ends == step + 1, reached, last)
    final = torch.where((state == 2 * counts) | (state == 2 * counts - 1), last, -math.inf)
    loss = -torch.logsumexp(final, 1)
    if zero_infinity:
        loss = torch.where(loss == math.inf, 0.0, loss)
    how = _REDUCTIONS.get(reduction, reduction)
    return _reduced(loss / counts.reshape(rows).clamp(min=1) if how == "mean" else loss, how)


def _log_sum(*terms: Tensor) -> Tensor:
    """Return the log of the sum of exponentials, term by term; -inf if all are -inf."""
    top = terms[0]
    for term in terms[1:]:
        top = torch.maximum(top, term)
    shift = torch.where(top == -math.inf, 0.0, top)
    total = torch.exp(terms[0] - shift)
    for term in terms[1:]:
        total = total + torch.exp(term - shift)
    return torch.log(total) + shift


def _reduced(loss: Tensor, how: str) -> Tensor:
    return loss.mean() if how == "mean" else loss.sum() if how == "sum" else loss


#: function of torch, by name -> function that is called instead
LOSSES: dict[str, Callable[..., Any]] = {"gaussian_nll_loss": gaussian_nll_loss, "ctc_loss": ctc_loss}
