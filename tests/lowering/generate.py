"""Random well-formed sketches for hypothesis: what a lowering computes must be what the interpreter computes.

Values stay tame (no overflow, no cancellation to noise), so that outputs can be compared closely; shapes, blocks,
slices past both edges, dtypes and nesting are free.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}
_UNARY = (
    "tanh({0})", "sigmoid({0})", "abs({0})", "-({0})", "exp(-abs({0}))", "relu({0})", "sin({0})", "sqrt(abs({0}) + 1)",
    "round({0})", "sign({0})", "log1p(abs({0}))", "gelu(clamp({0}, -4, 4))",
)  # fmt: skip
_BINARY = (
    "({0} + {1})", "({0} - {1})", "({0} * {1})", "max({0}, {1})", "min({0}, {1})", "where({0} > {1}, {0}, 2 - {1})",
    "({0} / (abs({1}) + 1))",
)  # fmt: skip
_INTEGER = ("({0} + {1})", "({0} - {1})", "({0} * 3)", "max({0}, {1})", "min({0}, {1})", "({0} % 7)", "({0} // 3)")


@dataclass(frozen=True)
class Generated:
    """A sketch's text, inputs by tensor name, and how closely outputs must agree."""

    text: str
    inputs: dict[str, torch.Tensor]
    tolerance: float

    def __repr__(self) -> str:
        shapes = {name: f"{tuple(x.shape)} {x.dtype}" for name, x in self.inputs.items()}
        return f"{self.text}\n{shapes}"


@st.composite
def expressions(draw: st.DrawFn, leaves: tuple[str, ...], depth: int = 3, integer: bool = False) -> str:
    """An expression over ``leaves``; shapes broadcast as theirs do."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(leaves))
    template: str = draw(st.sampled_from(_INTEGER if integer else _UNARY + _BINARY))
    operands = [draw(expressions(leaves, depth - 1, integer)) for _ in range(2)]
    return template.format(*operands)


def values(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not dtype.startswith(("f", "bf")):
        return torch.randint(-50, 50, shape, generator=generator, dtype=DTYPES[dtype])
    return torch.randn(shape, generator=generator).to(DTYPES[dtype])


@st.composite
def pointwise(draw: st.DrawFn) -> Generated:
    """One dimension in blocks, read with shifts past both ends, under a condition on the index."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    integer = dtype == "i32"
    length, block = draw(st.integers(1, 70)), draw(st.integers(1, 24))
    shift, stride = draw(st.integers(-3, 3)), draw(st.sampled_from((1, 1, 2)))
    pad = draw(st.sampled_from(("0", "1"))) if integer else draw(st.sampled_from(("0", "1.5")))
    value = draw(expressions(("a", "b", "n", "(N - n * 2)"), integer=integer))
    other = draw(expressions(("a", "b"), integer=integer))
    text = f"""sketch random {{
    symbols: N;
    tensors: A[N]: {dtype}; B[N]: {dtype}; Y[N]: {dtype} out;
    constexpr: T = {block};
    @llm_hint("parallel")
    for n in range(0, N, T):
        load(A[n:n+T] -> a)
        load(B[{stride}*n + {shift}:{stride}*n + {shift} + {stride}*T:{stride}] -> b, pad={pad})
        y = a * 0 + {value}
        if n >= T and n + T < N:
            y = b * 0 + {other}
        store(y -> Y[n:n+T])
}}
"""
    inputs = {"A": values((length,), dtype, 1), "B": values((length,), dtype, 2)}
    return Generated(text, inputs, _tolerance(dtype))


@st.composite
def rows(draw: st.DrawFn) -> Generated:
    """Tiles of rows: a reduction over blocks of columns, then a second pass that uses it."""
    dtype = draw(st.sampled_from(("f32", "f64", "bf16")))
    m, n = draw(st.integers(1, 9)), draw(st.integers(1, 50))
    bm, bn = draw(st.sampled_from((1, 2, 3, 4))), draw(st.sampled_from((4, 5, 8, 16, 64)))
    inner = draw(expressions(("x", "w"), 2))
    name, start, combine, pad = draw(
        st.sampled_from((("reduce_sum", "0 *", "{0} + {1}", "0"), ("reduce_max", "-inf +", "max({0}, {1})", "-inf"),
                         ("reduce_min", "inf +", "min({0}, {1})", "inf")))
    )  # fmt: skip
    masked = f"where(n + arange(BN) < N, {inner}, {pad})"
    outer = draw(expressions(("x", "w", "tanh(s[:, None])"), 2))
    text = f"""sketch random {{
    symbols: M, N;
    tensors: X[M, N]: {dtype}; W[N]: {dtype}; Y[M, N]: {dtype} out; S[M]: f64 out;
    constexpr: BM = {bm}, BN = {bn};
    @llm_hint("parallel")
    for m in range(0, M, BM):
        s = alloc([BM], {"f64" if dtype == "f64" else "f32"}, llm_hint=["init_zero"])
        s = {start} (s + 1)
        for n in range(0, N, BN):
            load(X[m:m+BM, n:n+BN] -> x)
            load(W[n:n+BN] -> w)
            r = x * 0 + {masked}
            s = {combine.format("s", f"{name}(r, axis=1)")}
        store(s -> S[m:m+BM])
        for n in range(0, N, BN):
            load(X[m:m+BM, n:n+BN] -> x)
            load(W[n:n+BN] -> w)
            y = x * 0 + {outer}
            store(y -> Y[m:m+BM, n:n+BN])
}}
"""
    return Generated(text, {"X": values((m, n), dtype, 1), "W": values((n,), dtype, 2)}, _tolerance(dtype))


@st.composite
def matmuls(draw: st.DrawFn) -> Generated:
    """A tiled product with an epilogue; either side may be stored transposed."""
    dtype = draw(st.sampled_from(("f32", "f16", "bf16", "f64")))
    m, n, k = (draw(st.integers(1, 20)) for _ in range(3))
    bm, bn, bk = (draw(st.sampled_from((1, 4, 8, 16))) for _ in range(3))
    turned = draw(st.booleans())
    epilogue = draw(expressions(("acc", "b"), 1))
    load_b = "load(B[n:n+BN, k:k+BK] -> t)\n                gemm(a, transpose(t), acc)" if turned else (
        "load(B[k:k+BK, n:n+BN] -> t)\n                gemm(a, t, acc)"
    )  # fmt: skip
    text = f"""sketch random {{
    symbols: M, N, K;
    tensors: A[M, K]: {dtype}; B[{"N, K" if turned else "K, N"}]: {dtype}; V[N]: {dtype}; C[M, N]: {dtype} out;
    constexpr: BM = {bm}, BN = {bn}, BK = {bk};
    @llm_hint("parallel")
    for m in range(0, M, BM):
        @llm_hint("parallel")
        for n in range(0, N, BN):
            acc = alloc([BM, BN], llm_hint=["accumulator", "init_zero"])
            for k in range(0, K, BK):
                load(A[m:m+BM, k:k+BK] -> a)
                {load_b}
            load(V[n:n+BN] -> b)
            c = acc * 0.125 + {epilogue}
            store(c -> C[m:m+BM, n:n+BN])
}}
"""
    inputs = {
        "A": values((m, k), dtype, 1),
        "B": values((n, k) if turned else (k, n), dtype, 2),
        "V": values((n,), dtype, 3),
    }
    return Generated(text, inputs, 10 * _tolerance(dtype))


def _tolerance(dtype: str) -> float:
    return {"f64": 1e-9, "f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}.get(dtype, 0)
