"""A softmax by the logarithm of each row's sum, from which the backward computes its shares again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def softmax(x: Any, dim: int, wide: bool) -> Any:
    """``aten._softmax``: shares are exp(x - log of the row's sum)."""
    value = _wide(x)
    shares = torch.exp(value - torch.logsumexp(value, [dim], True))
    return shares if wide else shares.to(x.dtype)


def safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """``aten._safe_softmax``: the same, and 0 in a row of -inf."""
    value = _wide(x)
    logs = torch.logsumexp(value, [dim], True)
    shares = torch.exp(value - torch.where(logs == -math.inf, 0.0, logs))
    return shares.to(dtype or x.dtype)


def _wide(x: Any) -> Any:
    return x.float() if x.element_size() == 2 else x


class Attention(TorchFunctionMode):
    """While active, torch's attention is products around a softmax, with scores in float32 for halves and shares in
    the values' dtype, as its fused kernels have them."""

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p or query.is_complex():
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = _wide(query) @ _repeated(_wide(key), groups).transpose(-2, -1) * scale
    if is_causal:
        rows, columns = (torch.arange(t.shape[-2], device=query.device) for t in (query, key))
        attn_mask = rows[:, None] >= columns[None, :]
    if attn_mask is not None:
        # added, so that a gradient passes: where a score is -inf its share is 0
        hides = attn_mask.dtype == torch.bool
        scores = scores + (torch.where(attn_mask, 0.0, -math.inf) if hides else attn_mask.to(scores.dtype))
    shares = torch._safe_softmax(scores, -1)
    return _Weighted.apply(shares, value, groups)  # type: ignore[no-untyped-call]


def _repeated(x: Any, groups: int) -> Any:
    return x if groups == 1 else x.repeat_interleave(groups, -3)


class _Weighted(torch.autograd.Function):
    """Shares, rounded to the values' dtype, times values, each of which serves ``groups`` heads; gradients are rounded
    at the end."""

    @staticmethod
    def forward(ctx: Any, shares: Tensor, values: Tensor, groups: int) -> Any:
        repeated = _repeated(values, groups)
        ctx.save_for_backward(shares, repeated)
        ctx.groups = groups
        return shares.to(values.dtype) @ repeated

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        shares, repeated = ctx.saved_tensors
        above, groups = _wide(grads[0]), ctx.groups
        to_values = shares.transpose(-2, -1) @ above
        if groups > 1:
            to_values = to_values.unflatten(-3, (to_values.shape[-3] // groups, groups)).sum(-3)
        to_shares = above @ _wide(repeated).transpose(-2, -1)
        return to_shares, to_values.to(repeated.dtype), None
