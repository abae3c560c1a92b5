"""Small references of every family that the rules Designer must design: (name, task text)."""

# ruff: noqa: E501 - a table: one case a line
from __future__ import annotations

_HEAD = """import math
import numpy as np
import torch
import torch.nn.functional as F
from kernellab import Dim
{dims}

def reference({parameters}):
    return {result}

def inputs({keywords}):
    return ({given},)
"""


def _task(parameters: str, result: str, given: str, **dims: int) -> str:
    lines = "\n".join(f'{name} = Dim("{name}", 1, 4096)' for name in dims)
    keywords = ", ".join(f"{name}={size}" for name, size in dims.items())
    return _HEAD.format(dims=lines, parameters=parameters, result=result, keywords=keywords, given=given)


def _rows(parameters: str, result: str) -> str:
    names = [p.split(":")[0].split("=")[0].strip() for p in parameters.split(",") if "=" not in p]
    return _task(parameters, result, ", ".join("torch.randn(M, N)" for _ in names), M=24, N=40)


_IMAGE = "torch.randn(2, 6, 5, 7)"

MODEL = """import torch

class Model(torch.nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)
        self.linear = torch.nn.Linear(features, out)

    def forward(self, x):
        return torch.relu(self.linear(self.norm(x)))

def get_inputs():
    return [torch.randn(9, 12)]

def get_init_inputs():
    return [12, 10]
"""

CASES: dict[str, str] = {
    # pointwise
    "chain": _rows("x, b", "torch.sigmoid(x) * torch.tanh(b) + torch.exp(-x.abs())"),
    "scalars": _rows("x, low: float = -0.5, scale: float = 2.0", "torch.clamp(x * scale, low, 1.0) / (1 + scale)"),
    "compare": _rows("x, b", "torch.where((x > b) & (x > 0), x, b * 0.5)"),
    "masked_assignment": _rows("x, b", "x.index_put((x > b,), torch.tensor(0.5)).index_put((b.sum(1) < 0,), torch.tensor(-0.5))"),
    "several_outputs": _rows("x, b", "(x + b, x - b, (x * b).relu())"),
    "broadcast_row_and_column": _task("x, r, c", "x * r + c", "torch.randn(M, N), torch.randn(N), torch.randn(M, 1)", M=9, N=17),
    "broadcast_middle": _task("x, w", "x * w[None, :, None]", "torch.randn(B, C, 11), torch.randn(C)", B=3, C=5),
    "scalar_broadcast": _task("x, s", "x / s", "torch.randn(M, N), torch.rand(()) + 1", M=9, N=17),
    "activations": _rows("x", "F.gelu(x) + F.silu(x) + F.softplus(x) + F.elu(x) + F.hardswish(x) + F.leaky_relu(x)"),
    "gelu_tanh": _rows("x", "F.gelu(x, approximate='tanh')"),
    "powers": _rows("x", "x ** 2 + x ** 3 + (x * x + 1) ** -0.5 + (x.abs() + 1) ** 1.5"),
    "transposed_sum": _task("x, b", "x + b.t()", "torch.randn(M, N), torch.randn(N, M)", M=9, N=17),
    "own_transpose": _task("x", "x + x.t()", "torch.randn(N, N)", N=13),
    "causal_mask": _task("x", "torch.tril(x) * 2", "torch.randn(N, N)", N=13),
    "attention": _task("q, k, v", "F.scaled_dot_product_attention(q, k, v)", "torch.randn(2, 3, 9, 8), torch.randn(2, 3, 11, 8), torch.randn(2, 3, 11, 5)"),
    "causal_attention": _task("q, k, v", "F.scaled_dot_product_attention(q, k, v, is_causal=True)", "torch.randn(2, 9, 8), torch.randn(2, 9, 8), torch.randn(2, 9, 8)"),
    "masked_attention": _task("q, k, v, m", "F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.5)", "torch.randn(2, 9, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8), torch.randn(9, 7)"),
    "upper_product": _task("x, y", "torch.triu(x @ y)", "torch.randn(N, N), torch.randn(N, N)", N=70),
    "lower_product": _task("x, y", "torch.tril(x @ y, -2) * 3", "torch.randn(37, 50), torch.randn(50, 41)"),
    "exclusive_cumsum": _task("x", "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1)", "torch.randn(6, 19)"),
    "exclusive_cumprod": _task("x", "torch.cat((torch.ones_like(x[:1]), torch.cumprod(x, 0)), 0)[:-1]", "torch.rand(9, 6) + 0.5"),
    "flip": _task("x", "torch.flip(x, (1,)) - x", "torch.randn(6, 9)"),
    "slices": _task("x", "x[:, 2:] - x[:, :-2]", "torch.randn(6, 19)"),
    "concatenation": _task("x, b", "torch.cat((x, b), 1) * 2", "torch.randn(6, 9), torch.randn(6, 4)"),
    "half": _task("x", "F.gelu(x) * 2", "torch.randn(6, 40).to(torch.bfloat16)"),
    "numpy": _task("x, s", "np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))) * s",
                   "np.linspace(-3, 3, N, dtype=np.float32), np.linspace(0, 1, N, dtype=np.float32)", N=50),
    # reductions
    "row_sum": _rows("x", "x.sum(-1)"),
    "row_mean_kept": _rows("x", "x.mean(-1, keepdim=True)"),
    "column_sum": _rows("x", "x.sum(0)"),
    "column_max": _rows("x", "x.amax(0)"),
    "middle_sum": _task("x", "x.sum(1)", "torch.randn(B, 5, 9)", B=4),
    "outer_axes": _task("x", "x.sum((0, 2))", "torch.randn(4, 5, 9)"),
    "full_sum": _rows("x", "x.sum()"),
    "full_max": _rows("x", "x.max()"),
    "row_min": _rows("x", "x.amin(-1) * 2"),
    "product": _task("x", "x.prod(-1)", "torch.rand(6, 9) + 0.5"),
    "any_positive": _rows("x", "(x > 1).any(-1)"),
    "all_small": _rows("x", "(x < 1).all(0)"),
    "argmax_row": _rows("x", "x.argmax(-1)"),
    "argmin_column": _rows("x", "x.argmin(0)"),
    "max_with_position": _rows("x", "torch.max(x, -1)"),
    "variance": _task("x", "x.var(-1)", "torch.randn(M, 40)", M=24),
    "deviation": _task("x", "x.std(0, correction=0)", "torch.randn(24, 40)"),
    "norms": _rows("x", "x.norm(dim=-1) + x.norm(p=1, dim=-1)"),
    "integer_sum": _task("x", "x.sum(-1)", "torch.randint(-9, 9, (6, 11))"),
    # softmax family
    "softmax": _rows("x", "torch.softmax(x, -1)"),
    "softmax_columns": _rows("x", "torch.softmax(x, 0)"),
    "softmax_middle": _task("x", "torch.softmax(x, 1)", "torch.randn(3, 6, 11)"),
    "log_softmax": _rows("x", "torch.log_softmax(x, -1)"),
    "logsumexp": _rows("x", "torch.logsumexp(x, -1)"),
    "scaled_masked_softmax": _rows("x, mask, scale: float = 0.25", "torch.softmax(x * scale + mask, -1) + 1"),
    "attention_scores": _task("x, mask", "torch.softmax(x + mask, -1)", "torch.randn(2, 3, 5, 7), torch.randn(2, 1, 5, 7)"),
    # normalisations
    "layer_norm": _task("x, w, b, eps: float = 1e-5", "F.layer_norm(x, (x.shape[-1],), w, b, eps)",
                        "torch.randn(M, N), torch.rand(N), torch.randn(N)", M=9, N=40),
    "layer_norm_gelu": _task("x", "F.gelu(F.layer_norm(x, (x.shape[-1],)))", "torch.randn(M, 40)", M=9),
    "rms_norm": _task("x, w", "F.rms_norm(x, (x.shape[-1],), w, 1e-6)", "torch.randn(M, N), torch.rand(N)", M=9, N=40),
    "group_norm": _task("x, w, b", "F.group_norm(x, 3, w, b)", f"{_IMAGE}, torch.rand(6), torch.randn(6)"),
    "group_norm_by_hand": _task(
        "x, w", "(lambda g: ((g - g.mean(-1, keepdim=True)) / g.std(-1, keepdim=True)).view(2, 6, 5, 7) * w[:, None, None])"
        "(x.view(2, 3, 70))", f"{_IMAGE}, torch.rand(6)"),
    "instance_norm": _task("x", "F.instance_norm(x)", _IMAGE),
    "batch_norm": _task("x, m, v, w, b", "F.batch_norm(x, m, v, w, b)",
                        f"{_IMAGE}, torch.randn(6), torch.rand(6), torch.rand(6), torch.randn(6)"),
    "l1_norm": _rows("x", "x / x.abs().sum(-1, keepdim=True)"),
    "l2_normalise": _rows("x", "F.normalize(x, dim=-1)"),
    "frobenius": _rows("x", "x / torch.norm(x)"),
    "add_norm_two_outputs": _rows("x, r", "(F.rms_norm(x + r, (x.shape[-1],), None, 1e-6), x + r)"),
    # losses
    "mse": _rows("a, b", "F.mse_loss(a, b)"),
    "l1": _rows("a, b", "F.l1_loss(a, b)"),
    "huber": _rows("a, b", "F.huber_loss(a, b) + F.smooth_l1_loss(a, b)"),
    "bce": _rows("a, b", "F.binary_cross_entropy(torch.sigmoid(a), torch.sigmoid(b))"),
    "bce_with_logits": _rows("a, b", "F.binary_cross_entropy_with_logits(a, torch.sigmoid(b))"),
    "kl_div": _rows("a, b", "F.kl_div(torch.log_softmax(a, -1), torch.softmax(b, -1), reduction='batchmean')"),
    "hinge": _task("x, t", "torch.mean(torch.clamp(1 - x * t[:, None], min=0))", "torch.randn(9, 17), torch.randn(9)"),
    "cosine": _rows("a, b", "torch.mean(1 - F.cosine_similarity(a, b, dim=1))"),
    "triplet": _rows("a, p, n", "F.triplet_margin_loss(a, p, n)"),
    "cross_entropy": _task("x, t", "F.cross_entropy(x, t)", "torch.randn(9, 17), torch.randint(0, 17, (9,))"),
    # scans
    "cumsum": _rows("x", "torch.cumsum(x, -1)"),
    "cumsum_columns": _rows("x", "torch.cumsum(x * 2, 0) + 1"),
    "cumprod": _task("x", "torch.cumprod(x, -1)", "torch.rand(6, 19) + 0.5"),
    "reverse_cumsum": _task("x", "torch.flip(torch.cumsum(torch.flip(x, (1,)), 1), (1,))", "torch.randn(6, 19)"),
    "masked_cumsum": _task("x, m", "torch.cumsum(x * m, 1)", "torch.randn(6, 19), torch.rand(6, 19) > 0.5"),
    "cummax": _task("x", "torch.cummax(x, -1).values", "torch.randn(6, 19)"),
    # matrix products
    "matmul": _task("a, b", "a @ b", "torch.randn(M, K), torch.randn(K, N)", M=17, N=19, K=23),
    "matmul_transposed": _task("a, b", "a.t() @ b.t()", "torch.randn(23, 17), torch.randn(19, 23)"),
    "linear_gelu": _task("x, w, b", "F.gelu(F.linear(x, w, b))", "torch.randn(5, 3, 18), torch.randn(20, 18), torch.randn(20)"),
    "batched": _task("a, b", "torch.bmm(a, b) * 0.5", "torch.randn(3, 17, 8), torch.randn(3, 8, 9)"),
    "four_dimensional": _task("q, k", "q @ k.transpose(-1, -2)", "torch.randn(2, 3, 9, 8), torch.randn(2, 3, 7, 8)"),
    "prologue_and_epilogue": _task("a, b, c", "torch.relu(torch.exp(a) @ b + c)",
                                   "torch.randn(17, 9), torch.randn(9, 18), torch.randn(18)"),
    "two_products": _task("x, w, v", "F.gelu(x @ w) @ v", "torch.randn(17, 9), torch.randn(9, 18), torch.randn(18, 5)"),
    "product_then_softmax": _task("x, w", "torch.softmax(x @ w, -1)", "torch.randn(17, 9), torch.randn(9, 18)"),
    "matvec": _task("a, v", "a @ v", "torch.randn(17, 9), torch.randn(9)"),
    "outer_product": _task("a, b", "a[:, None] @ b[None, :]", "torch.randn(17), torch.randn(9)"),
    "model": MODEL,
}  # fmt: skip
