"""The arithmetic of one operator beside products, in FLOPs as the sketch's operations are counted.

What an operator must do at least, whatever kernel does it: a function counts as the sketch language's operation of its
meaning (``OPS``), a reduction once for each element that goes in, a move nothing. An operator that is not listed counts
one FLOP for each element that comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernellab.sketch.program.ops import OPS

_FLOPS: Mapping[str, float] = {name: float(op.flops) for name, op in OPS.items()}
#: operators that only move, fill or pick elements
_MOVES = frozenset(
    (
        "clone", "copy", "_to_copy", "cat", "stack", "index", "index_put", "gather", "scatter", "embedding",
        "slice_scatter", "select_scatter", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d",
        "replication_pad1d", "replication_pad2d", "flip", "roll", "full", "full_like", "zeros", "zeros_like",
        "ones", "ones_like", "new_zeros", "new_ones", "new_full", "fill", "arange", "scalar_tensor",
        "masked_fill", "where", "tril", "triu", "repeat", "repeat_interleave", "index_select", "_unsafe_index",
        "eye", "one_hot", "linspace", "zero", "index_copy", "nonzero", "pixel_shuffle", "pixel_unshuffle",
        "channel_shuffle",
    )
)  # fmt: skip
#: operators by the sketch's operation of their meaning, where the names differ
_LIKE = {
    "maximum": "max", "minimum": "min", "clamp_min": "max", "clamp_max": "min", "hardtanh": "clamp",
    "leaky_relu": "fma", "rsub": "sub", "remainder": "mod", "fmod": "mod", "floor_divide": "floordiv",
    "reciprocal": "div", "addcmul": "fma", "addcdiv": "div", "lerp": "fma", "mish": "softplus", "elu": "exp",
    "logaddexp": "softplus", "hardswish": "clamp", "hardsigmoid": "clamp", "log_sigmoid_forward": "softplus",
    "log10": "log", "erfc": "erf", "tan": "sin", "atan2": "sin", "asin": "sin", "acos": "sin", "atan": "sin",
    "sinh": "tanh", "cosh": "tanh", "_prelu_kernel": "fma", "threshold": "max", "softshrink": "max", "selu": "exp",
    "celu": "exp", "logit": "log", "hypot": "sqrt",
}  # fmt: skip
#: FLOPs for each element that goes in
_REDUCTIONS = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "prod": 1, "any": 1, "all": 1, "argmax": 1,
    "argmin": 1, "var": 3, "std": 3, "var_mean": 3, "linalg_vector_norm": 2, "logsumexp": 11, "cumsum": 1, "cumprod": 1,
    "cummax": 1, "cummin": 1, "logcumsumexp": 11, "topk": 1, "sort": 1, "native_layer_norm": 7, "native_group_norm": 7,
    "native_batch_norm": 2, "_native_batch_norm_legit_no_training": 2, "_native_batch_norm_legit": 5,
    "_fused_rms_norm": 4, "_softmax": 13, "_log_softmax": 13, "_safe_softmax": 13, "max_pool2d_with_indices": 1,
    "max_pool3d_with_indices": 1, "avg_pool2d": 1, "avg_pool3d": 1, "_adaptive_avg_pool2d": 1,
    "_adaptive_avg_pool3d": 1, "mse_loss": 3, "smooth_l1_loss": 4, "huber_loss": 4, "nll_loss_forward": 0,
    "nll_loss2d_forward": 0, "binary_cross_entropy": 20, "index_add": 1, "scatter_add": 1, "scatter_reduce": 1,
    "_cdist_forward": 0, "bincount": 1,
}  # fmt: skip
#: FLOPs for each element that comes out
_OUT = {"upsample_bilinear2d": 7, "upsample_nearest2d": 0, "upsample_bicubic2d": 31, "upsample_linear1d": 3}


def flops_beside_products(name: str, args: Sequence[Any], given: Sequence[Any], made: Sequence[Any]) -> float:
    """FLOPs of the operator ``name`` on the tensors ``given``, which makes the tensors ``made``.

    An operator whose functional and in-place forms differ by a final underscore counts alike.
    """
    base = name.rstrip("_") if not name.startswith("__") else name.strip("_")
    if base in _MOVES or name in _MOVES:
        return 0.0
    taken = max((t.numel() for t in given), default=0)
    out = max((t.numel() for t in made), default=0)
    if base in _REDUCTIONS and (base not in ("max", "min") or len(given) == 1):
        return float(_REDUCTIONS[base] * taken)
    if base in _OUT:
        return float(_OUT[base] * out)
    if base == "pow":
        return _power(args) * out
    return _FLOPS.get(_LIKE.get(base, base), 1.0) * out


def _power(args: Sequence[Any]) -> float:
    """x**2 is one product, x**3 two; another exponent that is no whole number is a pow."""
    exponent = args[1] if len(args) > 1 else None
    if isinstance(exponent, (int, float)) and float(exponent).is_integer() and abs(exponent) <= 4:
        return max(1.0, abs(exponent) - 1)
    if exponent in (0.5, -0.5):
        return _FLOPS["sqrt"]
    return _FLOPS["pow"]
