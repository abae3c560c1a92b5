"""Rows in C++: scans and sorts where they lie in memory, elements that are looked up, and halves a strip at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind

from .test_cpp import TARGET, compare, load, source_of

#: lengths around a vector, a block and a strip
LENGTHS = (1, 7, 8, 33, 512, 1030)

SCAN = """sketch scanned {{
    symbols: M, N;
    tensors: X[M, N]: {dtype}; Y[M, N]: {dtype} out;
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:N] -> x)
        y = {scan}
        store({stored} -> Y[m, 0:N])
}}
"""


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


def agrees(text: str, folder: Path, *inputs: dict[str, torch.Tensor], rtol: float = 1e-5) -> None:
    """One build beside the interpreter on each of ``inputs``."""
    program = load_program(text)
    binding = bind(program, None, None, TARGET)
    kernel = load(lower(program, binding, TARGET), folder).kernel
    for given in inputs:
        compare(program, binding, kernel, given, rtol)


def rows(columns: int, dtype: torch.dtype, count: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(columns)
    if not dtype.is_floating_point:
        return torch.randint(-9, 9, (count, columns), generator=generator).to(dtype)
    return torch.randn(count, columns, generator=generator).to(dtype)


SCANS = [
    ("f32", "cumsum(x, axis=0)"),
    ("f64", 'associative_scan("add", x, axis=0, reverse=true)'),
    ("f32", 'associative_scan("mul", x, axis=0, reverse=true)'),
    ("f32", "cummax(x, axis=0)"),
    ("f64", 'associative_scan("min", x, axis=0)'),
    ("i64", "cumsum(x, axis=0)"),
]


@pytest.mark.parametrize(("dtype", "scan"), SCANS)
def test_a_row_is_scanned_from_tensor_to_tensor(dtype: str, scan: str, tmp_path: Path) -> None:
    text = SCAN.format(dtype=dtype, scan=scan, stored="y")
    assert ">(Y + m * N, X + m * N, 1, N, 1);" in source_of(text).files["kernel.cpp"]
    kind = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64}[dtype]
    inputs = [rows(n, kind) for n in LENGTHS]
    if kind.is_floating_point:
        inputs[3][1, 5], inputs[3][2, 7] = float("nan"), float("inf")
    agrees(text, tmp_path, *({"X": x} for x in inputs), rtol=1e-4)


def test_a_scan_that_is_used_again_or_lies_apart_stays_a_tile(tmp_path: Path) -> None:
    exclusive = SCAN.format(dtype="f32", scan="cumsum(x, axis=0)", stored="y - x")
    assert ">(y, X + m * N, 1, N, 1);" in source_of(exclusive).files["kernel.cpp"].replace(" * const", "")
    ragged = """sketch scanned {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    @llm_hint("parallel")
    for n in range(0, N, 8):
        load(X[0:M, n:n+8] -> x)
        y = cumsum(x, axis=0)
        store(y -> Y[0:M, n:n+8])
}
"""
    assert "kl::scan<kl::Add, false>(y, x, 1, M, 8);" in source_of(ragged).files["kernel.cpp"]
    agrees(exclusive, tmp_path, {"X": rows(33, torch.float32)})
    agrees(ragged, tmp_path, {"X": rows(13, torch.float32)})


def test_a_tensor_that_the_kernel_changes_is_scanned_from_a_copy(tmp_path: Path) -> None:
    text = SCAN.replace("Y[M, N]: {dtype} out", "Y[M, N]: {dtype} inout").replace("load(X", "load(Y")
    text = text.replace(" X[M, N]: {dtype};", "").format(dtype="f32", scan="cumsum(x, axis=0)", stored="y")
    assert "kl::scan<kl::Add, false>(y, x, 1, N, 1);" in source_of(text).files["kernel.cpp"]
    agrees(text, tmp_path, {"Y": rows(40, torch.float32)})


LOOKED_UP = """sketch looked_up {
    symbols: M, N, K;
    tensors: X[M, N]: f32; P[M, K]: i64; Y[M, K]: f32 out;
    @llm_hint("parallel")
    for m in range(M):
        load(P[m, 0:K] -> at)
        gather(X[m, at] -> x)
        store(exp(x) -> Y[m, 0:K])
}
"""


def test_elements_are_looked_up_one_by_one_and_computed_with_in_vectors(tmp_path: Path) -> None:
    text = source_of(LOOKED_UP).files["kernel.cpp"]
    assert "kl::lone(X, " in text
    assert text.index("kl::lone") < text.index("kl::exp") and text[: text.index("kl::exp")].count("for (int64_t") == 3
    places = torch.tensor([[0, 6, 3, -1, 7, 2], [5, 5, 5, 0, 1, 400]])
    agrees(LOOKED_UP, tmp_path, {"X": rows(7, torch.float32, 2), "P": places})


SHORT = """sketch short {{
    symbols: M;
    tensors: X[M, {n}]: f32; K[M, {n}]: i32; S[M]: f32 out; T[M]: f32 out; U[M]: f32 out; V[M]: i32 out;
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:{n}] -> x)
        load(K[m, 0:{n}] -> k)
        store(reduce_sum(x, axis=0) -> S[m])
        store(reduce_max(x, axis=0) -> T[m])
        store(reduce_min(where(logical_and(k, x > 0.0), x, 4.0), axis=0) -> U[m])
        store(reduce_min(cast(where(logical_or(isnan(x), k), arange({n}), {n}), i32), axis=0) -> V[m])
}}
"""


@pytest.mark.parametrize("columns", [2, 8, 9])
def test_a_few_elements_are_joined_as_a_long_row_is(columns: int, tmp_path: Path) -> None:
    """Whole numbers are conditions by being other than zero, so that 2 and 1 are both true."""
    x, k = rows(columns, torch.float32, 40), rows(columns, torch.int32, 40) % 3
    x[3, 1], x[4, 0], x[5] = float("nan"), float("inf"), -float("inf")
    agrees(SHORT.format(n=columns), tmp_path, {"X": x, "K": k})


LARGEST = """sketch largest {{
    symbols: M, N;
    tensors: X[M, N]: {dtype}; Y[M]: {dtype} out; I[M]: i64 out;
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:N] -> x)
        best = reduce_max(x, axis=0)
        at = argmax(x, axis=0)
        store(best -> Y[m])
        store(at -> I[m])
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_the_largest_and_its_place_are_found_in_vectors(dtype: str, tmp_path: Path) -> None:
    text = LARGEST.format(dtype=dtype)
    assert "kl::find_best<kl::Max>" in source_of(text).files["kernel.cpp"]
    inputs = [rows(n, torch.float16 if dtype == "f16" else torch.float32) for n in LENGTHS]
    inputs[4][1, 500], inputs[5][0, 3] = float("nan"), float("inf")
    inputs[5][2] = 1.0
    agrees(text, tmp_path, *({"X": x} for x in inputs))


# -- halves ------------------------------------------------------------------------------------------------------------

#: rows in blocks, of which the last is ragged; what lies past the edge is the pad, and it counts
PADDED = """sketch padded {
    symbols: M, N;
    tensors: X[M, N]: f16; W[N]: f16; Y[M, N]: f16 out; Z[M]: f16 out;
    @llm_hint("parallel")
    for m in range(M):
        best = full([], -inf, f32)
        for n in range(0, N, 600):
            load(X[m, n-1:n+599] -> x, pad=2)
            load(W[n:n+600] -> w)
            best = max(best, reduce_max(x, axis=0))
            store(x * w + 0.5 -> Y[m, n:n+600])
        store(best -> Z[m])
}
"""
CHANGED = """sketch changed {
    symbols: M, N;
    tensors: X[M, N]: f16; Y[M, N]: f16 inout;
    @llm_hint("parallel")
    for m in range(M):
        load(X[m, 0:N] -> x)
        load(Y[m, 0:N] -> y)
        store(y * 0.5 + x -> Y[m, 0:N])
}
"""


#: a row that every iteration reads, and one that the kernel changes
WEIGHTED = """sketch weighted {
    symbols: M, N;
    tensors: X[M, N]: f16; W[N]: f16; B[N]: f16 inout; Y[M, N]: f16 out;
    for m in range(M):
        load(X[m, 0:N] -> x)
        load(W[0:N] -> w)
        load(B[0:N] -> b)
        store(x * w + b -> Y[m, 0:N])
        store(b * 0.5 -> B[0:N])
}
"""


def test_weights_of_rows_are_converted_once_before_them(tmp_path: Path) -> None:
    text = source_of(WEIGHTED).files["kernel.cpp"]
    assert text.index("kl::widen(w_strip, W") < text.index("for (int64_t m = ") < text.index("kl::widen(x_strip, X")
    inputs = [{k: rows(n + (k == "B"), torch.float16)[0, :n].contiguous() for k in "WB"} for n in LENGTHS]
    agrees(WEIGHTED, tmp_path, *({**w, "X": rows(len(w["W"]), torch.float16)} for w in inputs), rtol=1e-3)


def test_strips_of_halves_end_where_rows_do(tmp_path: Path) -> None:
    assert "kl::widen" in source_of(PADDED).files["kernel.cpp"]
    inputs = [{"X": rows(n, torch.float16), "W": rows(n, torch.float16, 1)[0]} for n in (*LENGTHS, 599, 600, 601)]
    agrees(PADDED, tmp_path, *inputs, rtol=1e-3)


def test_halves_that_a_loop_changes_are_read_as_they_are_then(tmp_path: Path) -> None:
    text = source_of(CHANGED).files["kernel.cpp"]
    assert "kl::widen(x_strip" in text and "y_strip" not in text
    inputs = [{"X": rows(n, torch.float16), "Y": rows(n + 1, torch.float16)[:, :n].contiguous()} for n in LENGTHS]
    agrees(CHANGED, tmp_path, *inputs, rtol=1e-3)
