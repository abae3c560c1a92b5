"""The interpreter gives every statement of a sketch its exact meaning."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import NotRunnable, SketchError
from kernellab.sketch.check import load_program
from kernellab.sketch.run import execute, run
from kernellab.sketch.run.confined import OutOfTime
from kernellab.sketch.run.interpreter import interpret, prepared

RMS_NORM = """
sketch rms_norm {
    symbols: M, N;
    tensors: X[M, N]: f32; W[N]: f32; Y[M, N]: f32 out;
    constexpr: eps = 1e-6; BLOCK = 1024 in {4, 256, 1024};

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


def row_sketch(body: str, out: str = "Y[M, N]: f32 out", inputs: str = "X[M, N]: f32", constexpr: str = "") -> str:
    """A sketch over rows of X; ``body`` sees the row as tile x."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return (
        f"sketch s {{\n    symbols: M, N;\n    tensors: {inputs}; {out};\n{constexpr}\n"
        f'    @llm_hint("parallel", "grididx")\n    for m in range(M):\n        load(X[m, 0:N] -> x)\n{lines}\n}}\n'
    )


def run_rows(body: str, x: torch.Tensor, out: str = "Y[M, N]: f32 out", f64: bool = False) -> torch.Tensor:
    return run(load_program(row_sketch(body, out)), {"X": x}, f64=f64)["Y"]


@settings(max_examples=40, deadline=None)
@given(m=st.integers(0, 9), n=st.integers(1, 40), block=st.sampled_from([4, 256]), seed=st.integers(0, 99))
def test_the_rms_norm_of_the_paper_is_right_at_ragged_sizes(m: int, n: int, block: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, w = torch.randn(m, n, generator=generator), torch.rand(n, generator=generator)
    got = run(load_program(RMS_NORM), {"X": x, "W": w}, constexpr={"BLOCK": block}, f64=True)["Y"]
    x64, w64 = x.double(), w.double()
    want = x64 * torch.rsqrt(x64.pow(2).mean(-1, keepdim=True) + 1e-6) * w64
    assert torch.allclose(got, want, rtol=1e-12, atol=1e-12)


def test_inputs_are_not_changed_and_numpy_arrays_serve() -> None:
    x = torch.randn(3, 5)
    before = x.clone()
    got = run(load_program(row_sketch("store(x * 2 -> Y[m, 0:N])")), {"X": x.numpy()})["Y"]
    assert torch.equal(x, before) and torch.equal(got, x * 2)


def test_reading_past_an_edge_gives_the_pad_and_negative_indices_are_outside() -> None:
    text = """
sketch s {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out; Z[N]: f32 out;
    constexpr: T = 4;
    @llm_hint("parallel", "grididx")
    for n in range(0, N, T):
        load(X[n-1:n-1+T] -> left, pad=-inf)
        load(X[n+1:n+1+T] -> right, pad=7)
        store(left -> Y[n:n+T])
        store(right -> Z[n:n+T])
}
"""
    x = torch.arange(6.0)
    got = run(load_program(text), {"X": x})
    assert got["Y"].tolist() == [-inf, 0, 1, 2, 3, 4]
    assert got["Z"].tolist() == [1, 2, 3, 4, 5, 7]


def test_nothing_is_written_outside_and_an_inout_tensor_starts_with_the_callers_contents() -> None:
    text = """
sketch s {
    symbols: N;
    tensors: X[N]: f32; Y[N+5]: f32 inout;
    constexpr: T = 4;
    @llm_hint("parallel", "grididx")
    for n in range(0, N, T):
        load(X[n:n+T] -> x)
        store(x -> Y[n:n+T])
}
"""
    y = torch.full((11,), 100.0)
    got = run(load_program(text), {"X": torch.arange(6.0), "Y": y})
    # the second tile spans 4..7: X has 6 elements, so the pad fills what lies beyond
    assert got["Y"].tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 100, 100, 100]
    assert y.tolist() == [100.0] * 11


def test_unwritten_outputs_and_undefined_tiles_are_poison() -> None:
    from dataclasses import replace

    from kernellab.sketch.program.program import Alloc, Loop

    program = load_program(row_sketch("store(x -> Y[m, 0:N])"))
    kernel = program.kernels[0]
    silent = replace(kernel, body=tuple(replace(s, body=()) if isinstance(s, Loop) else s for s in kernel.body))
    outcome = execute(replace(program, kernels=(silent,)), {"X": torch.ones(2, 3)})
    assert outcome.outputs["Y"].isnan().all() and not outcome.written["Y"].any()

    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    load, store = loop.body
    undefined = replace(loop, body=(Alloc(load.tile, init_zero=False), store))  # type: ignore[union-attr]
    got = run(replace(program, kernels=(replace(kernel, body=(undefined,)),)), {"X": torch.ones(2, 3)})
    assert got["Y"].isnan().all()


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        ("reduce_sum(x, axis=0)", lambda x: x.sum(-1)),
        ("reduce_mean(x, axis=0)", lambda x: x.mean(-1)),
        ("reduce_max(x, axis=0)", lambda x: x.amax(-1)),
        ("reduce_min(x, axis=0)", lambda x: x.amin(-1)),
        ("reduce_prod(x, axis=0)", lambda x: x.prod(-1)),
    ],
)
def test_reductions_agree_with_torch_and_propagate_nan(operation: str, reference) -> None:  # type: ignore[no-untyped-def]
    x = torch.randn(5, 13, dtype=torch.float64)
    x[2, 7] = nan
    text = f"r = {operation}\nstore(r -> Y[m])"
    got = run_rows(text, x, "Y[M]: f32 out", f64=True)
    assert torch.allclose(got, reference(x), rtol=1e-12, equal_nan=True)
    assert got[2].isnan()


def test_argmax_and_argmin_take_the_first_and_nan_wins() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0], [nan, 3.0, 3.0, nan], [1.0, 9.0, nan, 9.0], [5.0, 1.0, 1.0, 5.0]])
    assert run_rows("store(argmax(x, axis=0) -> Y[m])", x, "Y[M]: i64 out").tolist() == [1, 0, 2, 0]
    assert run_rows("store(argmin(x, axis=0) -> Y[m])", x, "Y[M]: i64 out").tolist() == [0, 0, 2, 1]


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        ("cumsum(x, axis=0)", lambda x: x.cumsum(-1)),
        ("cumprod(x, axis=0)", lambda x: x.cumprod(-1)),
        ("cummax(x, axis=0)", lambda x: x.cummax(-1).values),
        ("cumsum(x, axis=0, reverse=true)", lambda x: x.flip(-1).cumsum(-1).flip(-1)),
        ("cumprod(x, axis=0, reverse=true)", lambda x: x.flip(-1).cumprod(-1).flip(-1)),
        ("associative_scan(\"min\", x, axis=0, reverse=true)", lambda x: x.flip(-1).cummin(-1).values.flip(-1)),
        ("softmax(x, axis=0)", lambda x: x.softmax(-1)),
        ("associative_scan(\"max\", x, axis=0)", lambda x: x.cummax(-1).values),
        ("max(x, 0)", lambda x: x.clamp_min(0)),
        ("clamp(x, -1, 1)", lambda x: x.clamp(-1, 1)),
        ("gelu(x)", torch.nn.functional.gelu),
        ("silu(x)", torch.nn.functional.silu),
        ("where(x > 0, x, exp(x) - 1)", lambda x: torch.nn.functional.elu(x)),
        ("round(x * 2)", lambda x: (x * 2).round()),
        ("x // 2", lambda x: x // 2),
        ("x % 2", lambda x: x % 2),
    ],
)  # fmt: skip
def test_operations_agree_with_torch_in_float64(operation: str, reference) -> None:  # type: ignore[no-untyped-def]
    x = torch.randn(5, 13, dtype=torch.float64)
    got = run_rows(f"store({operation} -> Y[m, 0:N])", x, f64=True)
    assert torch.allclose(got, reference(x), rtol=1e-9, atol=1e-12)


def test_linear_scan_is_a_recurrence() -> None:
    a, b = torch.rand(3, 7, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    text = row_sketch(
        'load(B[m, 0:N] -> b)\nh = associative_scan("linear", x, b, axis=0)\nstore(h -> Y[m, 0:N])',
        inputs="X[M, N]: f64; B[M, N]: f64",
        out="Y[M, N]: f64 out",
    )
    got = run(load_program(text), {"X": a, "B": b})["Y"]
    state, want = torch.zeros(3, dtype=torch.float64), []
    for t in range(7):
        state = a[:, t] * state + b[:, t]
        want.append(state)
    assert torch.allclose(got, torch.stack(want, 1))


def test_welford_gives_mean_and_population_variance() -> None:
    x = torch.randn(4, 9, dtype=torch.float64)
    got = run_rows("mean, var = welford(x, axis=0)\nstore((x - mean) * rsqrt(var) -> Y[m, 0:N])", x, f64=True)
    want = (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True, unbiased=False).sqrt()
    assert torch.allclose(got, want)


def test_narrow_floats_round_only_where_they_are_written() -> None:
    text = row_sketch("y = x * x\nstore(y + 1 -> Y[m, 0:N])", "Y[M, N]: bf16 out", "X[M, N]: bf16")
    x = torch.randn(4, 64).bfloat16()
    got = run(load_program(text), {"X": x})["Y"]
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, (x.float() * x.float() + 1).bfloat16())
    wide = run(load_program(text), {"X": x}, f64=True)["Y"]
    assert wide.dtype == torch.float64 and torch.equal(wide, x.double() * x.double() + 1)


def test_a_cast_rounds_in_the_declared_dtypes_and_not_in_float64() -> None:
    body = "h = cast(x, bf16)\nstore(cast(h, f32) -> Y[m, 0:N])"
    x = torch.randn(4, 64)
    assert torch.equal(run_rows(body, x), x.bfloat16().float())
    assert torch.equal(run_rows(body, x, f64=True), x.double())


MATMUL = """
sketch mm {
    symbols: M, N, K;
    tensors: A[M, K]: DTYPE; B[K, N]: DTYPE; C[M, N]: f32 out;
    constexpr: BM = 8; BN = 4; BK = 16;
    @llm_hint("parallel", "grididx.x")
    for m in range(0, M, BM):
        @llm_hint("parallel", "grididx.y")
        for n in range(0, N, BN):
            acc = alloc([BM, BN], f32, llm_hint=["accumulator", "init_zero"])
            for k in range(0, K, BK):
                load(A[m:m+BM, k:k+BK] -> a)
                load(B[k:k+BK, n:n+BN] -> b)
                gemm(a, b, acc)
            store(acc -> C[m:m+BM, n:n+BN])
}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 4, 16), (13, 7, 37), (9, 5, 0)])
def test_gemm_accumulates_over_ragged_tiles(dtype: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    torch_dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    a, b = torch.randn(m, k).to(torch_dtype), torch.randn(k, n).to(torch_dtype)
    program = load_program(MATMUL.replace("DTYPE", dtype))
    exact = run(program, {"A": a, "B": b}, f64=True)["C"]
    assert torch.allclose(exact, a.double() @ b.double(), rtol=1e-12, atol=1e-12)
    assert torch.allclose(run(program, {"A": a, "B": b})["C"].double(), exact, rtol=1e-4, atol=1e-4)


def test_eight_bit_floats_are_loaded_and_stored() -> None:
    text = row_sketch("store(x * 2 -> Y[m, 0:N])", "Y[M, N]: f8e4m3 out", "X[M, N]: f8e4m3")
    x = torch.randn(3, 10).to(torch.float8_e4m3fn)
    got = run(load_program(text), {"X": x})["Y"]
    assert got.dtype == torch.float8_e4m3fn and torch.equal(
        got.float(), (x.float() * 2).to(torch.float8_e4m3fn).float()
    )


def test_atomic_add_sums_over_all_iterations() -> None:
    text = """
sketch s {
    symbols: M, N;
    tensors: X[M, N]: f64; Y[1]: f64 inout; Z[N]: f64 inout;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        atomic_add(reduce_sum(x, axis=0) -> Y[0])
        atomic_add(x -> Z[0:N])
}
"""
    x = torch.randn(17, 5, dtype=torch.float64)
    start = torch.ones(5, dtype=torch.float64)
    got = run(load_program(text), {"X": x, "Y": torch.zeros(1, dtype=torch.float64), "Z": start})
    assert torch.allclose(got["Y"], x.sum()[None]) and torch.allclose(got["Z"], start + x.sum(0))


def test_an_output_that_is_only_added_to_starts_at_zero_and_one_that_is_stored_too_does_not() -> None:
    text = """
sketch s {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[N]: f32 out; Z[N]: f32 out;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        atomic_add(x -> Y[0:N])
        if m < 0:
            store(x -> Z[0:N])
        atomic_add(x -> Z[0:N])
}
"""
    x = torch.randn(17, 5)
    got = run(load_program(text), {"X": x})
    torch.testing.assert_close(got["Y"], x.sum(0))
    assert bool(got["Z"].isnan().all())


def test_several_kernels_share_a_temporary_tensor() -> None:
    text = """
sketch first {
    symbols: M, N;
    tensors: X[M, N]: f32; P[M]: f32 temp;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(reduce_sum(x, axis=0) -> P[m])
}
sketch second {
    symbols: M;
    tensors: P[M]: f32 temp; Y[1]: f32 out;
    load(P[0:M] -> p)
    store(reduce_max(p, axis=0) -> Y[0])
}
"""
    x = torch.randn(6, 4, dtype=torch.float64)
    assert torch.allclose(run(load_program(text), {"X": x}, f64=True)["Y"], x.sum(1).max()[None])


def test_a_loop_bound_that_depends_on_a_parallel_iteration() -> None:
    text = """
sketch triangle {
    symbols: N;
    tensors: X[N, N]: f64; Y[N]: f64 out;
    @llm_hint("parallel", "grididx")
    for i in range(N):
        acc = alloc([1], f64, llm_hint=["accumulator", "init_zero"])
        for j in range(i + 1):
            load(X[i, j:j+1] -> x)
            if j % 2 == 0:
                acc = acc + x
            else:
                acc = acc - x
        store(reduce_sum(acc, axis=0) -> Y[i])
}
"""
    x = torch.randn(9, 9, dtype=torch.float64)
    sign = torch.tensor([1.0, -1.0] * 5)[:9].double()
    assert torch.allclose(run(load_program(text), {"X": x})["Y"], (x.tril() * sign).sum(1))


@settings(max_examples=25, deadline=None)
@given(sizes=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20)))
def test_iterations_computed_together_equal_those_run_one_by_one(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    inputs = {"A": torch.randn(m, k, dtype=torch.float64), "B": torch.randn(k, n, dtype=torch.float64)}
    program = load_program(MATMUL.replace("DTYPE", "f32"))
    together = execute(program, inputs, f64=True)
    given = prepared(program, inputs, f64=True)
    alone = given.outcome(interpret(given, watch=_Nothing()))
    assert torch.allclose(together.outputs["C"], alone.outputs["C"], rtol=1e-13, atol=1e-13)
    assert together.written["C"].all() and alone.written["C"].all()


class _Nothing:
    def access(self, *_: object) -> None: ...
    def step(self, *_: object) -> None: ...


def test_a_sample_of_iterations_writes_only_its_part() -> None:
    x = torch.randn(40, 8)
    program = load_program(row_sketch("store(x * 2 -> Y[m, 0:N])"))
    outcome = execute(program, {"X": x}, keep=3)
    rows = outcome.written["Y"].all(1)
    assert int(rows.sum()) == 3 and rows[0] and rows[-1]
    assert torch.equal(outcome.outputs["Y"][rows], (x * 2)[rows]) and outcome.outputs["Y"][~rows].isnan().all()


def test_a_deadline_ends_a_run() -> None:
    with pytest.raises(OutOfTime):
        execute(load_program(row_sketch("store(x -> Y[m, 0:N])")), {"X": torch.ones(2, 2)}, seconds=0.0)


@pytest.mark.parametrize(
    ("body", "constexpr"),
    [
        ("for k in range(1000000000000):\n    store(x -> Y[m, 0:N])", ""),
        ("for k in range(1000000000000):\n    if k < 0:\n        store(x -> Y[m, 0:N])", ""),
        ("load(X[m, 0:BLOCK] -> z, pad=0)\nstore(x -> Y[m, 0:N])", "    constexpr: BLOCK = 2000000000;"),
    ],
    ids=["turns", "empty turns", "tile"],
)  # fmt: skip
def test_a_sketch_of_any_size_ends_within_its_time_and_memory(body: str, constexpr: str) -> None:
    program = load_program(row_sketch(body, constexpr=constexpr))
    with pytest.raises(OutOfTime):
        execute(program, {"X": torch.ones(2, 2)}, seconds=0.3)


def test_what_cannot_run_names_what_is_missing() -> None:
    program = load_program(row_sketch("store(x * scale -> Y[m, 0:N])", constexpr="    constexpr: scale;"))
    with pytest.raises(NotRunnable, match="scale has no value"):
        run(program, {"X": torch.ones(2, 2)})
    with pytest.raises(NotRunnable, match="input X has no value"):
        run(program, {}, constexpr={"scale": 2})
    assert torch.equal(run(program, {"X": torch.ones(2, 2)}, constexpr={"scale": 2})["Y"], torch.full((2, 2), 2.0))


def test_inputs_that_do_not_fit_are_refused() -> None:
    program = load_program(RMS_NORM)
    with pytest.raises(SketchError, match="symbol N is 4 and 5"):
        run(program, {"X": torch.ones(3, 4), "W": torch.ones(5)})
    with pytest.raises(SketchError, match="declared"):
        run(program, {"X": torch.ones(12), "W": torch.ones(4)}, symbols={"M": 2, "N": 4})


def test_an_extent_without_a_value_takes_the_smallest_legal_one() -> None:
    text = """
sketch s {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    constexpr: T;
    require: T >= 16;
    @llm_hint("parallel", "grididx")
    for n in range(0, N, T):
        load(X[n:n+T] -> x)
        store(x + 1 -> Y[n:n+T])
}
"""
    outcome = execute(load_program(text), {"X": torch.ones(20)})
    assert outcome.constexpr["T"] == 16 and torch.equal(outcome.outputs["Y"], torch.full((20,), 2.0))
    with pytest.raises(NotRunnable, match="require"):
        execute(load_program(text), {"X": torch.ones(20)}, constexpr={"T": 8})


def test_a_view_of_the_input_is_taken_with_its_symbols() -> None:
    text = """
sketch s {
    symbols: B, D;
    tensors: X[B*4, D]: f32; Y[B*4, D]: f32 out;
    @llm_hint("parallel", "grididx")
    for i in range(B*4):
        load(X[i, 0:D] -> x)
        store(x + 1 -> Y[i, 0:D])
}
"""
    x = torch.randn(3, 4, 5)
    got = run(load_program(text), {"X": x}, symbols={"B": 3, "D": 5})["Y"]
    assert torch.equal(got, (x + 1).reshape(12, 5))
