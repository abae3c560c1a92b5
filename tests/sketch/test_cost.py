"""FLOPs, bytes, footprint and roofline of a sketch, counted by hand."""

from __future__ import annotations

import pytest

from kernellab.errors import NotRunnable
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.target import Chip

CHIP = Chip(
    "chip", "cpu", 2, 512, l2_bytes=1 << 20, l3_bytes=8 << 20, bandwidth=20e9, peak_flops={"f32": 100e9, "bf16": 400e9}
)

ADD = """
sketch add {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32; Z[N]: f32 out;
    constexpr: T = 64;
    @llm_hint("parallel", "coreidx")
    for n in range(0, N, T):
        load(X[n:n+T] -> x)
        load(Y[n:n+T] -> y)
        store(x + y -> Z[n:n+T])
}
"""

MATMUL = """
sketch mm {
    symbols: M, N, K;
    tensors: A[M, K]: DTYPE; B[K, N]: DTYPE; C[M, N]: f32 out;
    constexpr: BM = 64; BN = 64; BK = 32;
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


def test_a_pointwise_sketch_moves_each_element_once() -> None:
    result = cost(load_program(ADD), {"N": 6400}, chip=CHIP)
    assert result.bytes_unique == result.bytes_total == result.bytes_slow == 3 * 6400 * 4
    assert result.flops == {"f32": 6400}
    assert result.bound == "memory"
    assert result.time_ms == pytest.approx(1e3 * 3 * 6400 * 4 / 20e9)
    assert result.intensity == pytest.approx(1 / 12)
    assert result.parallelism == 100


def test_whole_tiles_are_counted_exactly_and_a_cut_off_one_is_not_taken_for_whole() -> None:
    """Of 5,003 iterations not all are looked at: an average of some would be off in its last digits."""
    program = load_program(ADD)
    assert cost(program, {"N": 64 * 5003}).bytes_total == 3 * 64 * 5003 * 4
    assert cost(program, {"N": 64 * 5003 - 10}).bytes_total == pytest.approx(3 * (64 * 5003 - 10) * 4, rel=1e-12)


INTERLEAVED = """
sketch twice {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[2*M, 2*N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x -> Y[2*m, 0:2*N:2])
        store(x -> Y[2*m, 1:2*N+1:2])
        store(x -> Y[2*m+1, 0:2*N:2])
        store(x -> Y[2*m+1, 1:2*N+1:2])
}
"""


def test_stores_that_interleave_move_each_line_of_the_output() -> None:
    result = cost(load_program(INTERLEAVED), {"M": 1000, "N": 2000}, chip=CHIP)
    assert result.bytes_slow == pytest.approx(4 * (1000 * 2000 + 2000 * 4000), rel=0.01)


def test_one_strided_load_moves_whole_lines() -> None:
    every_other = """
sketch half {
    symbols: M, N;
    tensors: X[M, 2*N]: f32; Y[M, N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(X[m, 0:2*N:2] -> x)
        store(x -> Y[m, 0:N])
}
"""
    result = cost(load_program(every_other), {"M": 1000, "N": 2000}, chip=CHIP)
    assert result.bytes_slow == pytest.approx(4 * 1000 * (4000 + 2000), rel=0.01)


def test_bytes_beyond_the_edge_do_not_count() -> None:
    result = cost(load_program(ADD), {"N": 6401})
    assert result.bytes_total == pytest.approx(3 * 6401 * 4)
    assert result.time_ms is None


def test_matmul_counts_two_flops_and_the_reuse_of_its_tiles() -> None:
    sizes = {"M": 2048, "N": 1024, "K": 512}
    result = cost(load_program(MATMUL.replace("DTYPE", "f32")), sizes, chip=CHIP)
    assert result.flops == {"f32": 2 * 2048 * 1024 * 512}
    assert result.bytes_unique == 4 * (2048 * 512 + 512 * 1024 + 2048 * 1024)
    loads = 4 * (2048 * 512 * (1024 // 64) + 512 * 1024 * (2048 // 64))
    assert result.bytes_total == loads + 4 * 2048 * 1024
    assert result.bound == "compute"
    assert result.time_ms == pytest.approx(1e3 * result.flops["f32"] / 100e9)
    # the accumulator and one tile of each operand
    assert result.footprint == 4 * (64 * 64 + 64 * 32 + 32 * 64)


def test_stored_dtype_decides_the_precision_class() -> None:
    sizes = {"M": 128, "N": 128, "K": 128}
    assert set(cost(load_program(MATMUL.replace("DTYPE", "bf16")), sizes).flops) == {"bf16"}
    tf32 = MATMUL.replace("DTYPE", "f32").replace("gemm(a, b, acc)", 'gemm(a, b, acc, precision="tf32")')
    assert set(cost(load_program(tf32), sizes).flops) == {"tf32"}


def test_a_factor_that_is_rounded_is_multiplied_in_what_it_is_rounded_to() -> None:
    sizes = {"M": 128, "N": 128, "K": 128}
    rounded = MATMUL.replace("DTYPE", "f32").replace("gemm(a, b, acc)", "gemm(cast(a, bf16), cast(b, bf16), acc)")
    assert set(cost(load_program(rounded), sizes).flops) == {"bf16"}
    widened = MATMUL.replace("DTYPE", "bf16").replace("gemm(a, b, acc)", "gemm(cast(a, f32), cast(b, f32), acc)")
    assert set(cost(load_program(widened), sizes).flops) == {"bf16"}


def test_what_does_not_fit_the_cache_is_fetched_again() -> None:
    program = load_program(MATMUL.replace("DTYPE", "f32"))
    sizes = {"M": 2048, "N": 1024, "K": 512}
    large = cost(program, sizes, chip=CHIP).bytes_slow
    small = Chip("small", "cpu", 2, l2_bytes=1 << 12, bandwidth=20e9, peak_flops={"f32": 100e9})
    without = cost(program, sizes, chip=small)
    assert large < without.bytes_slow <= without.bytes_total
    assert large >= cost(program, sizes).bytes_unique


def test_each_loop_has_its_row_and_each_tensor_its_line() -> None:
    result = cost(load_program(MATMUL.replace("DTYPE", "f32")), {"M": 128, "N": 128, "K": 64})
    rows = {row.line: row for row in result.loops}
    kernel, m, n, k = (rows[line] for line in sorted(rows))
    assert (kernel.iterations, m.iterations, n.iterations, k.iterations) == (1, 2, 4, 8)
    assert m.parallel and n.parallel and not k.parallel
    assert kernel.flops == m.flops == n.flops == k.flops == 2 * 128 * 128 * 64
    assert k.bytes_total == kernel.bytes_total - 4 * 128 * 128
    tensors = {t.tensor: t for t in result.tensors}
    lines = MATMUL.replace("DTYPE", "f32").splitlines()
    assert "load(A" in lines[tensors["A"].line - 1] and "store(acc" in lines[tensors["C"].line - 1]


def test_a_bound_that_depends_on_an_outer_loop_is_averaged() -> None:
    text = """
sketch triangle {
    symbols: N;
    tensors: X[N, N]: f32; Y[N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for i in range(N):
        acc = alloc([1], f32, llm_hint=["accumulator", "init_zero"])
        for j in range(i + 1):
            load(X[i, j:j+1] -> x)
            acc = acc + x
        store(acc -> Y[i:i+1])
}
"""
    result = cost(load_program(text), {"N": 100})
    assert result.flops["f32"] == pytest.approx(100 * 101 / 2, rel=0.02)
    assert result.bytes_total == pytest.approx(4 * (100 * 101 / 2 + 100), rel=0.02)


def test_too_few_iterations_leave_cores_idle() -> None:
    text = ADD.replace('    @llm_hint("parallel", "coreidx")\n', "").replace("x + y", "exp(exp(exp(x + y)))")
    alone = cost(load_program(text), {"N": 64000}, chip=Chip("c", "cpu", 8, bandwidth=1e12, peak_flops={"f32": 1e9}))
    shared = cost(
        load_program(ADD.replace("x + y", "exp(exp(exp(x + y)))")),
        {"N": 64000},
        chip=Chip("c", "cpu", 8, bandwidth=1e12, peak_flops={"f32": 1e9}),
    )
    assert alone.time_ms is not None and shared.time_ms is not None
    assert alone.time_ms == pytest.approx(8 * shared.time_ms)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(NotRunnable, match="scale has no value"):
        text = ADD.replace("T = 64;", "T = 64; scale;").replace("x + y", "x * scale + y")
        cost(load_program(text), {"N": 64})


ADDED = """
sketch add_rows {
    symbols: M, N;
    tensors: I[M]: i64; X[M, N]: f32; Y[M, N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(I[m] -> at)
        load(X[m, 0:N] -> row)
        atomic_add(row -> Y[PLACE, 0:N])
}
"""


@pytest.mark.parametrize("place", ["at", "m"])
def test_atomic_adds_of_cores_take_their_time_and_those_of_one_iteration_do_not(place: str) -> None:
    program = load_program(ADDED.replace("PLACE", place))
    sizes = {"M": 1000, "N": 1000}
    many, plain = cost(program, sizes, chip=CHIP), cost(program, {"M": 1, "N": 1000}, chip=CHIP)
    assert many.time_ms == pytest.approx(1e3 * 1_000_000 * 3e-9 / CHIP.cores) and many.bound == "compute"
    assert plain.bound == "memory"
    assert many.flops == {} or sum(many.flops.values()) == 0
    gpu = cost(program, sizes, chip=Chip("g", "gpu", 100, bandwidth=20e9, peak_flops={"f32": 100e9}))
    assert gpu.bound == "memory"
