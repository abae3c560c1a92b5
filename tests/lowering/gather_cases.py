"""Sketches whose indices are tiles: the text, inputs at given sizes, and what PyTorch makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Inputs = Mapping[str, torch.Tensor]

EMBEDDING = """sketch embedding {
    symbols: V, D, N;
    tensors: ids[N]: i64; W[V, D]: f32; Y[N, D]: f32 out;
    constexpr: BN = 4; BD = 16;
    @llm_hint("parallel")
    for n in range(0, N, BN):
        load(ids[n:n+BN] -> at, pad=-1)
        for d in range(0, D, BD):
            gather(W[at, d:d+BD] -> rows)
            store(rows * 2.0 -> Y[n:n+BN, d:d+BD])
}
"""

ALONG_A_DIMENSION = """sketch along {
    symbols: M, N, K;
    tensors: I[M, K]: i32; X[M, N]: f32; Y[M, K]: f32 out;
    constexpr: BM = 4; BK = 8;
    @llm_hint("parallel")
    for m in range(0, M, BM):
        rows = m + arange(BM)
        for k in range(0, K, BK):
            load(I[m:m+BM, k:k+BK] -> at)
            gather(X[rows[:, None], at] -> v)
            store(v -> Y[m:m+BM, k:k+BK])
}
"""

PICKED_ROW = """sketch picked {
    symbols: V, D, N;
    tensors: ids[N]: i64; W[V, D]: bf16; Y[N]: f32 out;
    constexpr: BD = 16;
    @llm_hint("parallel")
    for n in range(N):
        load(ids[n] -> at)
        total = 0.0
        for d in range(0, D, BD):
            gather(W[at, d:d+BD] -> row, pad=0)
            total = total + reduce_sum(row)
        store(total -> Y[n])
}
"""

INDEX_ADD = """sketch index_add {
    symbols: V, D, N;
    tensors: ids[N]: i64; S[N, D]: f32; B[V, D]: f32 inout;
    constexpr: BN = 4; BD = 16;
    @llm_hint("parallel")
    for n in range(0, N, BN):
        load(ids[n:n+BN] -> at, pad=-1)
        for d in range(0, D, BD):
            load(S[n:n+BN, d:d+BD] -> s)
            atomic_add(s -> B[at, d:d+BD])
}
"""

IN_ORDER = """sketch in_order {
    symbols: V, D, N;
    tensors: ids[N]: i64; S[N, D]: f32; B[V, D]: f32 inout;
    constexpr: BD = 16;
    @llm_hint("parallel")
    for d in range(0, D, BD):
        for n in range(N):
            load(ids[n] -> at)
            load(S[n, d:d+BD] -> s)
            atomic_add(s -> B[at, d:d+BD])
}
"""

PUT = INDEX_ADD.replace("sketch index_add", "sketch put").replace(
    "atomic_add(s -> B[at, d:d+BD])", "scatter(s -> B[at, d:d+BD], unique=true)"
)

COUNTS = """sketch counts {
    symbols: V, N;
    tensors: ids[N]: i64; Start[V]: i32 inout;
    constexpr: BN = 8;
    @llm_hint("parallel")
    for n in range(0, N, BN):
        load(ids[n:n+BN] -> at, pad=-1)
        atomic_add(1 -> Start[at])
}
"""


@dataclass(frozen=True)
class Pick:
    """``inputs`` for (rows of the table, columns, places); ``outside`` makes every third index miss the table."""

    text: str
    inputs: Callable[[int, int, int], Inputs]
    expected: Callable[[Inputs], torch.Tensor]
    outside: bool = False


def _ids(count: int, size: int) -> torch.Tensor:
    return torch.randint(0, size, (count,))


def _table(v: int, d: int, n: int) -> Inputs:
    return {"ids": _ids(n, v), "W": torch.randn(v, d)}


def _missing(v: int, d: int, n: int) -> Inputs:
    ids = _ids(n, v)
    ids[::3] = v
    ids[1::3] = -1
    return {"ids": ids, "W": torch.randn(v, d)}


def _or_zero(given: Inputs) -> torch.Tensor:
    ids, table = given["ids"], given["W"]
    real = (ids >= 0) & (ids < table.shape[0])
    return torch.where(real[:, None], 2 * table[torch.where(real, ids, 0)], 0.0)


def _sums(v: int, d: int, n: int) -> Inputs:
    return {"ids": _ids(n, v), "S": torch.randn(n, d), "B": torch.randn(v, d)}


def _permuted(v: int, d: int, n: int) -> Inputs:
    n = min(n, v)
    return {"ids": torch.randperm(v)[:n], "S": torch.randn(n, d), "B": torch.randn(v, d)}


def _added(given: Inputs) -> torch.Tensor:
    return given["B"].index_add(0, given["ids"], given["S"])


PICKS = {
    "embedding": Pick(EMBEDDING, _table, lambda g: 2 * g["W"][g["ids"]]),
    "indices outside": Pick(EMBEDDING, _missing, _or_zero),
    "along a dimension": Pick(
        ALONG_A_DIMENSION,
        lambda v, d, n: {"I": torch.randint(0, v, (n, d)).int(), "X": torch.randn(n, v)},
        lambda g: g["X"].gather(1, g["I"].long()),
    ),
    "a row at a time": Pick(
        PICKED_ROW,
        lambda v, d, n: {"ids": _ids(n, v), "W": torch.randn(v, d).bfloat16()},
        lambda g: g["W"].float()[g["ids"]].sum(1),
    ),
    "index_add": Pick(INDEX_ADD, _sums, _added),
    "in order": Pick(IN_ORDER, _sums, _added),
    "index_copy": Pick(PUT, _permuted, lambda g: g["B"].index_copy(0, g["ids"], g["S"])),
    "counts": Pick(
        COUNTS,
        lambda v, d, n: {"ids": _ids(n, v), "Start": torch.zeros(v, dtype=torch.int32)},
        lambda g: torch.bincount(g["ids"], minlength=len(g["Start"])).int(),
    ),
}
#: rows of the table, columns, places: one element, none, about a tile, several tiles and a rest
SIZES = [(1, 1, 1), (5, 16, 0), (7, 17, 5), (3, 15, 4), (19, 33, 13)]
