"""Sketches that put rows in order, and what PyTorch makes of them."""

from __future__ import annotations

import torch

SORT = """sketch sorted_rows {{
    symbols: M, N;
    tensors: X[M, N]: {dtype}; Y[M, N]: {dtype} out; I[M, N]: i64 out;
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:N] -> x)
        values, order = sort(x, axis=0{option})
        store(values -> Y[m, 0:N])
        store(order -> I[m, 0:N])
}}
"""

COLUMNS = """sketch sorted_columns {{
    symbols: M, N;
    tensors: X[M, N]: {dtype}; Y[M, N]: {dtype} out; I[M, N]: i64 out;
    constexpr: B = 4;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[0:M, n:n+B] -> x)
        values, order = sort(x, axis=0{option})
        store(values -> Y[0:M, n:n+B])
        store(order -> I[0:M, n:n+B])
}}
"""

TOPK = """sketch best {{
    symbols: M, N;
    tensors: X[M, N]: {dtype}; Y[M, K]: {dtype} out; I[M, K]: i64 out;
    constexpr: K = {k}; B = 2;
    @llm_hint("parallel")
    for m in range(0, M, B):
        load(X[m:m+B, 0:N] -> x)
        topk(x, K, axis=1{option}, values, order)
        store(values -> Y[m:m+B, 0:K])
        store(order -> I[m:m+B, 0:K])
}}
"""

DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32, "i64": torch.int64,
    "f64": torch.float64,
}  # fmt: skip


def rows(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Rows with ties, NaN, infinities and both zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        x = torch.randint(-9, 9, shape, generator=generator).to(dtype)
        return x * (1 << 40) + x.flip(-1) if dtype is torch.int64 else x
    x = torch.randn(shape, generator=generator).to(dtype)
    flat = x.view(-1)
    for step, value in ((7, 0.0), (11, -0.0), (13, float("nan")), (17, float("-inf")), (19, float("inf")), (5, 0.5)):
        flat[step - 1 :: step] = value
    return x


def expected(x: torch.Tensor, k: int, dim: int, down: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values, order = torch.sort(x, dim=dim, descending=down, stable=True)
    return values.narrow(dim, 0, k), order.narrow(dim, 0, k)
