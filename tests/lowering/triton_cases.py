"""Sketches for the lowerings' tests: each operation, edge and dtype once, with inputs that reach the edges."""

# ruff: noqa: E501 - one case a line reads as a table
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Inputs = Callable[[], Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    inputs: Inputs
    rtol: float = 1e-5


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(*shape: int, dtype: torch.dtype = torch.int32, low: int = -20, high: int = 20) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def special() -> torch.Tensor:
    x = normal(61)
    x[3], x[20], x[41], x[42] = float("nan"), float("inf"), -float("inf"), 0.0
    return x


RMS_NORM = """sketch rms_norm {
    symbols: M, N;
    tensors: X[M, N]: f32; W[N]: f32; Y[M, N]: f32 out;
    constexpr: eps = 1e-6; BLOCK = 1024 in {256, 512, 1024, 2048};

    @llm_hint("parallel", "grididx")
    for m in range(M):
        acc = alloc([BLOCK], f32, llm_hint=["fastest", "accumulator", "init_zero"])
        @llm_hint("pipeline")
        for n in range(0, N, BLOCK):
            x = alloc([BLOCK], llm_hint=["fast", "input_cache"])
            load(X[m, n:n+BLOCK] -> x, pad=0)
            acc = acc + x * x
        rms = rsqrt(reduce_sum(acc, axis=0) / N + eps)
        for n in range(0, N, BLOCK):
            x = alloc([BLOCK]); w = alloc([BLOCK])
            load(X[m, n:n+BLOCK] -> x); load(W[n:n+BLOCK] -> w)
            store(x * rms * w -> Y[m, n:n+BLOCK])
}
"""

SOFTMAX = """sketch softmax_rows {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:N] -> x, pad=-inf)
        e = exp(x - reduce_max(x, axis=0))
        store(e / reduce_sum(e, axis=0) -> Y[m, 0:N])
}
"""

MATMUL = """sketch matmul {
    symbols: M, N, K;
    tensors: A[M, K]: TYPE; B[K, N]: TYPE; C[M, N]: TYPE out;
    constexpr: BM = 16, BN = 32, BK = 8;
    @llm_hint("parallel", "swizzle", 4)
    for m in range(0, M, BM):
        @llm_hint("parallel")
        for n in range(0, N, BN):
            acc = alloc([BM, BN], llm_hint=["accumulator", "init_zero"])
            @llm_hint("pipeline", 3)
            for k in range(0, K, BK):
                load(A[m:m+BM, k:k+BK] -> a)
                load(B[k:k+BK, n:n+BN] -> b)
                gemm(a, b, acc)
            store(acc -> C[m:m+BM, n:n+BN])
}
"""


def _pointwise(
    name: str, expression: str, inputs: Inputs, block: int = 16, dtype: str = "f32", rtol: float = 1e-5
) -> Case:
    return Case(
        name,
        f"""sketch point {{
    symbols: N;
    tensors: X[N]: {dtype}; Y[N]: {dtype} out;
    constexpr: B = {block};
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store({expression} -> Y[n:n+B])
}}
""",
        inputs,
        rtol,
    )


def _row(name: str, body: str, outs: str, inputs: Inputs, rtol: float = 1e-5) -> Case:
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    text = f"""sketch rows {{
    symbols: M, N;
    tensors: X[M, N]: f32; {outs};
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:N] -> x)
{lines}
}}
"""
    return Case(name, text, inputs, rtol)


_UNARY = (
    "-x", "abs(x)", "sign(x)", "floor(x)", "ceil(x)", "round(3 * x)", "trunc(2 * x)", "exp(x)", "exp2(x)",
    "log(abs(x) + 1)", "log2(abs(x) + 1)", "log1p(abs(x))", "expm1(x)", "sqrt(abs(x))", "rsqrt(abs(x) + 0.5)",
    "sin(x)", "cos(x)", "tanh(x)", "erf(x)", "sigmoid(x)", "relu(x)", "silu(x)", "gelu(x)", "gelu_tanh(x)",
    "softplus(x)", "x / 3 + 2 * x - 1", "min(x, 0.5)", "max(x, -0.5)", "clamp(x, -1, 0.5)", "fma(x, x, 2)",
    "where(x > 0, x, 0.1 * x)", "pow(abs(x) + 0.1, 1.7)", "mod(x, 0.75)", "pow(x - 1, 2) + pow(x, 3) * pow(abs(x), 0.5)", "where(isnan(x), 0, x)",
    "where(logical_and(x > -1, logical_not(x > 1)), 1, 0)", "where(logical_or(n < 16, x > 0), x, -1)", "x / (N - 1) * (N * 2)",
)  # fmt: skip

CASES = (
    Case("figure 2 of the AKG paper", RMS_NORM, lambda: {"X": normal(3, 1500), "W": normal(1500, seed=1)}),
    Case("softmax over a whole row", SOFTMAX, lambda: {"X": normal(5, 37)}),
    *(_pointwise(f"pointwise {e}", e, lambda: {"X": normal(61)}, rtol=3e-6) for e in _UNARY),
    *(
        _pointwise(f"not a number through {e}", e, lambda: {"X": special()})
        for e in ("max(x, 0)", "min(x, 0)", "relu(x)", "tanh(x)", "sigmoid(x)", "clamp(x, -1, 1)", "expm1(x)", "log1p(x)")
    ),
    *(
        _pointwise(f"dtype {t}", "x * 2 + 1", lambda d=d: {"X": normal(61, dtype=d)}, dtype=t)  # type: ignore[misc]
        for t, d in (("f64", torch.float64), ("f16", torch.float16), ("bf16", torch.bfloat16))
    ),
    *(
        _pointwise(f"dtype {t}", "x * 2 + 1", lambda d=d: {"X": integers(61, dtype=d)}, dtype=t)  # type: ignore[misc]
        for t, d in (("i64", torch.int64), ("i32", torch.int32), ("i16", torch.int16), ("i8", torch.int8))
    ),
    _pointwise("a block that is no power of two", "x * n", lambda: {"X": normal(61)}, block=12),
    _pointwise("f64 keeps its literals", "tanh(x * 0.1) + log1p(abs(x) / 3)", lambda: {"X": normal(61, dtype=torch.float64)},
               dtype="f64", rtol=1e-14),
    Case(
        "transposed store with ragged edges both ways",
        """sketch turn {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[N, M]: f32 out;
    constexpr: B = 8;
    @llm_hint("parallel")
    for m in range(0, M, B):
        @llm_hint("parallel")
        for n in range(0, N, B):
            load(X[m:m+B, n:n+B] -> x)
            store(transpose(x) -> Y[n:n+B, m:m+B])
}
""",
        lambda: {"X": normal(19, 21)},
    ),
    Case(
        "concatenation and reshape",
        """sketch join {
    tensors: X[8, 4]: f32; Z[12, 4]: f32 out; Q[32]: f32 out;
    load(X[0:8, 0:4] -> x)
    load(X[2:6, 0:4] -> y)
    store(concat(x, y, axis=0) -> Z[0:12, 0:4])
    store(reshape(x, [32]) -> Q[0:32])
}
""",
        lambda: {"X": normal(8, 4)},
    ),
    _row("mean and variance", "mean, var = welford(x, axis=0)\nstore((x - mean) * rsqrt(var + 1e-5) -> Y[m, 0:N])",
         "Y[M, N]: f32 out", lambda: {"X": normal(5, 37) + 100}, 2e-4),
    _row("reductions over padded lanes",
         "store(reduce_sum(x, axis=0) -> A[m])\nstore(reduce_max(x, axis=0) -> B[m])\nstore(reduce_min(x, axis=0) -> C[m])\n"
         "store(reduce_mean(x, axis=0) -> D[m])\nstore(reduce_prod(x, axis=0) -> E[m])\nstore(argmax(x, axis=0) -> F[m])\n"
         "store(argmin(x, axis=0) -> G[m])\nstore(reduce_any(x > 2, axis=0) -> H[m])",
         "A[M]: f32 out; B[M]: f32 out; C[M]: f32 out; D[M]: f32 out; E[M]: f32 out; F[M]: i64 out; G[M]: i64 out; "
         "H[M]: bool out", lambda: {"X": normal(6, 21) - 3}),
    _row("reductions with not a number",
         "store(reduce_max(x, axis=0) -> B[m])\nstore(reduce_min(x, axis=0) -> C[m])\nstore(argmax(x, axis=0) -> F[m])\n"
         "store(argmin(x, axis=0) -> G[m])",
         "B[M]: f32 out; C[M]: f32 out; F[M]: i64 out; G[M]: i64 out", lambda: {"X": special()[None].repeat(2, 1)}),
    _row("first index among equals", "store(argmax(floor(x), axis=0) -> F[m])", "F[M]: i64 out", lambda: {"X": normal(9, 40)}),
    _row("scans", "store(cumsum(x, axis=0) -> A[m, 0:N])\nstore(cumprod(x, axis=0) -> B[m, 0:N])\n"
         "store(cummax(x, axis=0) -> C[m, 0:N])\nstore(associative_scan(\"min\", x, axis=0) -> D[m, 0:N])",
         "A[M, N]: f32 out; B[M, N]: f32 out; C[M, N]: f32 out; D[M, N]: f32 out", lambda: {"X": normal(3, 21)}),
    _row("scans from the end", "store(cumsum(x, axis=0, reverse=true) -> A[m, 0:N])\n"
         "store(cumprod(x, axis=0, reverse=true) -> B[m, 0:N])\nstore(cummax(x, axis=0, reverse=true) -> C[m, 0:N])\n"
         "store(associative_scan(\"min\", x, axis=0, reverse=true) -> D[m, 0:N])\na = sigmoid(x)\n"
         "store(associative_scan(\"linear\", a, x, axis=0, reverse=true) -> E[m, 0:N])",
         "A[M, N]: f32 out; B[M, N]: f32 out; C[M, N]: f32 out; D[M, N]: f32 out; E[M, N]: f32 out",
         lambda: {"X": normal(3, 21)}),
    Case(
        "scans down columns from the end",
        """sketch down {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out; Z[M, N]: i32 out;
    constexpr: R = 5; C = 8;
    @llm_hint("parallel")
    for n in range(0, N, C):
        c = full([C], 0.0, f32)
        for m in range(0, M, R):
            load(X[ceil(M, R)*R - R - m : ceil(M, R)*R - m, n:n+C] -> x)
            store(cumsum(x, axis=0, reverse=true) + c -> Y[ceil(M, R)*R - R - m : ceil(M, R)*R - m, n:n+C])
            store(cummin(cast(x, i32), axis=1, reverse=true) -> Z[ceil(M, R)*R - R - m : ceil(M, R)*R - m, n:n+C])
            c = c + reduce_sum(x, axis=0)
}
""",
        lambda: {"X": 5 * normal(23, 16)},
    ),
    _row("a linear recurrence", "a = sigmoid(x)\nstore(associative_scan(\"linear\", a, x, axis=0) -> Y[m, 0:N])",
         "Y[M, N]: f32 out", lambda: {"X": normal(3, 21)}),
    Case(
        "scan with a carry over blocks",
        """sketch carry {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: B = 8;
    @llm_hint("parallel")
    for m in range(M):
        c = alloc([1], f32, llm_hint=["init_zero"])
        for n in range(0, N, B):
            load(X[m, n:n+B] -> x)
            store(cumsum(x, axis=0) + c -> Y[m, n:n+B])
            c = c + reduce_sum(x, axis=0, keepdims=true)
}
""",
        lambda: {"X": normal(3, 29)},
    ),
    Case(
        "argmax over blocks of a bf16 matrix",
        """sketch best_column {
    symbols: M, N;
    tensors: X[M, N]: bf16; Y[M]: f32 out; Z[M]: i64 out;
    constexpr: BM = 4, BN = 24;
    @llm_hint("parallel")
    for m in range(0, M, BM):
        best = alloc([BM], f32, llm_hint=["init_zero"])
        best = best - inf
        at = alloc([BM], i64, llm_hint=["init_zero"])
        for n in range(0, N, BN):
            load(X[m:m+BM, n:n+BN] -> x, pad=-inf)
            here = reduce_max(x, axis=1)
            at = where(here > best, argmax(x, axis=1) + n, at)
            best = max(best, here)
        store(best -> Y[m:m+BM])
        store(at -> Z[m:m+BM])
}
""",
        lambda: {"X": normal(11, 61, dtype=torch.bfloat16)},
    ),
    Case("matmul with ragged tiles", MATMUL.replace("TYPE", "f32"), lambda: {"A": normal(33, 41), "B": normal(41, 70)}),
    Case("matmul of f16 tiles smaller than a dot", MATMUL.replace("TYPE", "f16").replace("BM = 16, BN = 32", "BM = 4, BN = 8"),
         lambda: {"A": normal(9, 11, dtype=torch.float16), "B": normal(11, 10, dtype=torch.float16)}, 2e-3),
    Case("matmul of bf16", MATMUL.replace("TYPE", "bf16"),
         lambda: {"A": normal(9, 11, dtype=torch.bfloat16), "B": normal(11, 10, dtype=torch.bfloat16)}, 2e-2),
    Case("matmul of f64", MATMUL.replace("TYPE", "f64"),
         lambda: {"A": normal(9, 11, dtype=torch.float64), "B": normal(11, 10, dtype=torch.float64)}, 1e-12),
    Case("matmul of one row", MATMUL.replace("TYPE", "f32").replace("BM = 16", "BM = 1"),
         lambda: {"A": normal(3, 41), "B": normal(41, 35)}),
    Case(
        "a convolution's windows reach over the edges",
        """sketch windows {
    symbols: H, W;
    tensors: X[H, W]: f32; K[3, 3]: f32; Y[(H - 1)//2 + 1, (W - 1)//2 + 1]: f32 out;
    constexpr: B = 8;
    @llm_hint("parallel")
    for h in range((H - 1)//2 + 1):
        @llm_hint("parallel")
        for w in range(0, (W - 1)//2 + 1, B):
            acc = alloc([B], f32, llm_hint=["init_zero"])
            for i in range(3):
                for j in range(3):
                    load(X[h*2 - 1 + i, w*2 - 1 + j : w*2 - 1 + j + 2*B : 2] -> x)
                    load(K[i, j] -> k)
                    acc = acc + x * k
            store(acc -> Y[h, w:w+B])
}
""",
        lambda: {"X": normal(9, 21), "K": normal(3, 3, seed=1)},
    ),
    Case(
        "two launches through a temp tensor that is added to",
        """sketch clear {
    tensors: T[1]: f32 temp;
    store(0 -> T[0:1])
}
sketch total {
    symbols: N;
    tensors: X[N]: f32; T[1]: f32 temp;
    constexpr: B = 16;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        atomic_add(reduce_sum(x * x, axis=0, keepdims=true) -> T[0:1])
}
sketch scale {
    symbols: N;
    tensors: X[N]: f32; T[1]: f32 temp; Y[N]: f32 out;
    constexpr: B = 16;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        load(T[0] -> t)
        store(x * rsqrt(t) -> Y[n:n+B])
}
""",
        lambda: {"X": normal(75)},
    ),
    Case(
        "conditions on indices, integer division that floors, bool output",
        """sketch parts {
    symbols: N;
    tensors: X[N]: i32; Y[N]: i64 out; Z[N]: bool out; Q[N]: i32 out;
    constexpr: B = 8;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        y = alloc([B], i64)
        if n > 8 and n < N - 8:
            y = cast(x, i64) * 2
        else:
            y = cast(x, i64) // 3
        store(y -> Y[n:n+B])
        store(logical_not(x > 2) -> Z[n:n+B])
        store(x % 5 + n -> Q[n:n+B])
}
""",
        lambda: {"X": integers(37)},
    ),
    Case(
        "a tile of three dimensions, reduced in the middle",
        """sketch middle {
    symbols: B, M, N;
    tensors: X[B, M, N]: f32; Y[B, N]: f32 out;
    constexpr: BB = 2, BN = 8;
    @llm_hint("parallel")
    for b in range(0, B, BB):
        @llm_hint("parallel")
        for n in range(0, N, BN):
            load(X[b:b+BB, 0:M, n:n+BN] -> x)
            store(reduce_mean(x, axis=1) -> Y[b:b+BB, n:n+BN])
}
""",
        lambda: {"X": normal(3, 5, 11)},
    ),
    Case(
        "broadcasting a row and a column",
        """sketch outer {
    symbols: M, N;
    tensors: A[M]: f32; B[N]: f32; Y[M, N]: f32 out;
    constexpr: BM = 4, BN = 8;
    @llm_hint("parallel")
    for m in range(0, M, BM):
        @llm_hint("parallel")
        for n in range(0, N, BN):
            load(A[m:m+BM] -> a)
            load(B[n:n+BN] -> b)
            store(a[:, None] * b + arange(BN) -> Y[m:m+BM, n:n+BN])
}
""",
        lambda: {"A": normal(7), "B": normal(19, seed=1)},
    ),
    Case(
        "loops that depend on loops",
        """sketch triangle {
    symbols: N;
    tensors: X[N, N]: f32; Y[N]: f32 out;
    @llm_hint("parallel")
    for i in range(N):
        s = alloc([1], f32, llm_hint=["init_zero"])
        for j in range(i + 1):
            load(X[i, j] -> x)
            s = s + x
        store(s -> Y[i:i+1])
}
""",
        lambda: {"X": normal(9, 9)},
    ),
)  # fmt: skip
