"""Lowered C++ computes what the interpreter of sketches computes, and reads like the sketch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target

from .triton_cases import CASES, MATMUL, RMS_NORM, SOFTMAX, normal

TARGET = Target("cpp", Backend.CPU, Chip("test CPU", "cpu", 2))


def source_of(text: str, constexpr: Mapping[str, int | float] | None = None) -> Source:
    program = load_program(text)
    return lower(program, bind(program, None, constexpr, TARGET), TARGET)


def load(source: Source, folder: Path) -> Any:
    """The module of a source written to ``folder``."""
    home = folder / source.hash
    home.mkdir(exist_ok=True)
    for name, text in source.files.items():
        (home / name).write_text(text)
    spec = importlib.util.spec_from_file_location(f"kernel_{source.hash}", home / "kernel.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


def check(text: str, inputs: Mapping[str, torch.Tensor], folder: Path, rtol: float) -> None:
    program = load_program(text)
    binding = bind(program, None, None, TARGET)
    kernel = load(lower(program, binding, TARGET), folder).kernel
    compare(program, binding, kernel, inputs, rtol)


def compare(program: Any, binding: Any, kernel: Any, inputs: Mapping[str, torch.Tensor], rtol: float) -> None:
    got = kernel(*(inputs[t.name] for t in program.inputs))
    want = run(program, inputs, constexpr=binding.constexpr)
    for output, value in zip(binding.outputs, got if isinstance(got, tuple) else (got,), strict=True):
        expected = want[output.tensor]
        assert value.shape == expected.shape
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_lowered_kernel_computes_what_the_sketch_means(case: Any, tmp_path: Path) -> None:
    check(case.text, case.inputs(), tmp_path, case.rtol)


@pytest.mark.parametrize("text", [RMS_NORM, SOFTMAX], ids=["looped", "whole row"])
def test_one_build_serves_every_size(text: str, tmp_path: Path) -> None:
    program = load_program(text)
    binding = bind(program, None, None, TARGET)
    kernel = load(lower(program, binding, TARGET), tmp_path).kernel
    for rows, columns in ((1, 1), (2, 7), (3, 64), (2, 1024), (5, 1025), (40, 2049)):
        compare(program, binding, kernel, {"X": normal(rows, columns), "W": normal(columns, seed=1)}, 1e-5)
    assert kernel(*(normal(0, 5), normal(5))[: len(program.inputs)]).shape == (0, 5)


def test_matmul_is_right_around_its_tiles(tmp_path: Path) -> None:
    program = load_program(MATMUL.replace("TYPE", "f32"))
    binding = bind(program, None, None, TARGET)
    kernel = load(lower(program, binding, TARGET), tmp_path).kernel
    for m, k, n in ((1, 1, 1), (17, 33, 65), (64, 64, 64), (130, 50, 97)):
        compare(program, binding, kernel, {"A": normal(m, k), "B": normal(k, n, seed=1)}, 2e-5)


def test_a_comment_that_ends_with_a_backslash_takes_no_line_of_code(tmp_path: Path) -> None:
    lines = SOFTMAX.splitlines()
    text = "\n".join(f"{line}  # \\" if line.startswith(" ") and line.strip() else line for line in lines) + "\n"
    assert text.count("\\\n") > 3
    check(text, {"X": normal(7, 130)}, tmp_path, 1e-5)


def test_a_sketch_may_have_the_name_of_a_tensor_or_a_constant(tmp_path: Path) -> None:
    text = """
sketch y {
    symbols: N;
    tensors: x[N]: f32; z[N]: f32 temp; y[N]: f32 out;
    constexpr: B = 16;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(x[n:n+B] -> v)
        store(v + 1.0 -> z[n:n+B])
}

sketch B {
    symbols: N;
    tensors: z[N]: f32 temp; y[N]: f32 out;
    constexpr: B = 16;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(z[n:n+B] -> v)
        store(v * 2.0 -> y[n:n+B])
}
"""
    check(text, {"x": normal(37)}, tmp_path, 1e-6)


def test_tiles_of_products_are_handed_out_one_by_one_and_streams_in_equal_parts() -> None:
    assert "schedule(dynamic)" in source_of(MATMUL.replace("TYPE", "f32")).files["kernel.cpp"]
    assert "schedule(static)" in source_of(RMS_NORM).files["kernel.cpp"]


def test_wide_tiles_use_register_blocks_of_every_height(tmp_path: Path) -> None:
    program = load_program(MATMUL.replace("TYPE", "f32"))
    for rows in (13, 29, 112):
        binding = bind(program, None, {"BM": rows, "BN": 72, "BK": 40}, TARGET)
        kernel = load(lower(program, binding, TARGET), tmp_path).kernel
        compare(program, binding, kernel, {"A": normal(150, 90), "B": normal(90, 100, seed=1)}, 2e-5)


def test_a_product_of_more_rows_and_columns_than_are_packed_at_a_time(tmp_path: Path) -> None:
    program = load_program(MATMUL.replace("TYPE", "f32"))
    binding = bind(program, None, {"BM": 300, "BN": 2100, "BK": 300}, TARGET)
    kernel = load(lower(program, binding, TARGET), tmp_path).kernel
    compare(program, binding, kernel, {"A": normal(290, 280), "B": normal(280, 2085, seed=1)}, 1e-4)


_DOUBLED = """
sketch doubled {
    tensors: x[ROWS, COLS]: f32; y[ROWS, COLS]: f32 out;
    @llm_hint("parallel", "coreidx")
    for i in range(ROWS):
        load(x[i, 0:COLS] -> tile)
        store(tile * 2.0 -> y[i, 0:COLS])
}
"""


def test_a_large_result_is_written_past_the_caches(tmp_path: Path) -> None:
    text = _DOUBLED.replace("ROWS", "1051").replace("COLS", "2001")  # rows that begin anywhere in a line
    assert "kl::stream(y + " in source_of(text).files["kernel.cpp"]
    check(text, {"x": normal(1051, 2001)}, tmp_path, 0)


@pytest.mark.parametrize(("rows", "cols"), [(100, 2001), (20000, 200)], ids=["small", "short rows"])
def test_a_small_result_or_one_of_short_rows_is_stored_as_usual(rows: int, cols: int) -> None:
    text = _DOUBLED.replace("ROWS", str(rows)).replace("COLS", str(cols))
    assert "kl::stream" not in source_of(text).files["kernel.cpp"]


def test_long_rows_are_summed_from_several_places(tmp_path: Path) -> None:
    text = """
sketch sums {
    tensors: x[3, COLS]: f32; y[3]: f32 out;
    @llm_hint("parallel", "coreidx")
    for i in range(3):
        load(x[i, 0:COLS] -> tile)
        total = reduce_sum(tile * tile, axis=0)
        store(total -> y[i])
}
"""
    for cols in (4095, 4096, 4161, 16448):
        check(text.replace("COLS", str(cols)), {"x": normal(3, cols)}, tmp_path, 1e-5)


_TURNED = """
sketch turned {
    symbols: B, M, N, K;
    tensors: A[B, M, K]: TYPE; W[N, K]: TYPE; Y[B, M, N]: f32 out;
    constexpr: BM = 64; BN = 64; BK = 32;

    @llm_hint("parallel", "coreidx")
    for b in range(B):
        @llm_hint("parallel", "coreidx")
        for m in range(0, M, BM):
            @llm_hint("parallel", "coreidx")
            for n in range(0, N, BN):
                acc = alloc([BM, BN], f32, llm_hint=["init_zero"])
                for k in range(0, K, BK):
                    load(A[b, m:m+BM, k:k+BK] -> a)
                    load(W[n:n+BN, k:k+BK] -> w)
                    turned = transpose(w, perm=[1, 0])
                    gemm(a, turned, acc)
                store(acc -> Y[b, m:m+BM, n:n+BN])
}
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_operands_of_a_product_are_read_in_place_turned_narrow_and_at_edges(dtype: torch.dtype, tmp_path: Path) -> None:
    word = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    text = _TURNED.replace("TYPE", word)
    if dtype == torch.float64:
        text = text.replace("f32", "f64")
    program = load_program(text)
    binding = bind(program, None, None, TARGET)
    source = lower(program, binding, TARGET)
    assert "kl::matrix(W + " in source.files["kernel.cpp"] and "turned[" not in source.files["kernel.cpp"]
    kernel = load(source, tmp_path).kernel
    for b, m, n, k in ((2, 64, 64, 64), (1, 1, 1, 1), (2, 67, 130, 45), (1, 15, 16, 300)):
        inputs = {"A": torch.randn(b, m, k).to(dtype), "W": torch.randn(n, k).to(dtype)}
        compare(program, binding, kernel, inputs, 1e-4)


def test_an_operand_that_the_kernel_overwrites_or_pads_otherwise_is_copied_first(tmp_path: Path) -> None:
    text = """
sketch squared {
    tensors: A[16, 16]: f32 inout; B[16, 20]: f32; Y[16, 20]: f32 out;

    @llm_hint("parallel", "coreidx")
    for once in range(1):
        acc = alloc([16, 20], f32, llm_hint=["init_zero"])
        load(A[0:16, 0:16] -> a)
        store(a * 2.0 -> A[0:16, 0:16])
        load(B[0:16, 0:24] -> b, pad=1)
        wide = alloc([16, 24], f32, llm_hint=["init_zero"])
        gemm(a, b, wide)
        load(B[0:16, 0:20] -> narrow)
        gemm(a, narrow, acc)
        store(acc + reduce_sum(wide, axis=1, keepdims=true) -> Y[0:16, 0:20])
}
"""
    check(text, {"A": torch.randn(16, 16), "B": torch.randn(16, 20)}, tmp_path, 1e-4)


def test_a_kernel_refuses_a_wrong_dtype_shape_and_kind(tmp_path: Path) -> None:
    kernel = load(source_of(RMS_NORM), tmp_path).kernel
    with pytest.raises(TypeError, match=r"X has dtype torch\.float64; this kernel was made for torch\.float32"):
        kernel(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3))
    with pytest.raises(ValueError, match=r"W has shape \(4,\)"):
        kernel(torch.zeros(2, 3), torch.zeros(4))
    with pytest.raises(TypeError, match="X must be a tensor, not list"):
        kernel([1.0], torch.zeros(3))


def test_tensors_may_have_names_that_the_language_takes(tmp_path: Path) -> None:
    norm = RMS_NORM.replace("W[", "new[").replace("X[", "int64_t[").replace("Y[", "args[")
    check(norm, {"int64_t": normal(2, 300), "new": normal(300, seed=1)}, tmp_path, 1e-5)
    product = MATMUL.replace("TYPE", "f32").replace("A[", "this[").replace("B[", "default[").replace("C[", "register[")
    check(product, {"this": normal(33, 65), "default": normal(65, 47, seed=1)}, tmp_path, 1e-4)


def test_inputs_that_are_not_contiguous_or_need_gradients_are_read_rightly(tmp_path: Path) -> None:
    kernel = load(source_of(SOFTMAX), tmp_path).kernel
    x = normal(37, 5).T.requires_grad_()
    torch.testing.assert_close(kernel(x), torch.softmax(x.detach(), -1))


def test_a_call_with_fewer_arguments_than_the_kernel_reads_says_so(tmp_path: Path) -> None:
    source = source_of(SOFTMAX)
    host = source.files["kernel.py"].replace("_ptr(), M, N)", "_ptr(), M)")
    assert host != source.files["kernel.py"]
    kernel = load(source.model_copy(update={"files": {**source.files, "kernel.py": host}}), tmp_path).kernel
    with pytest.raises(RuntimeError, match=r"argument 3 \(from 0\) and is called with 3: kernel.py and this file"):
        kernel(normal(3, 5))


def test_text_keeps_names_tunables_and_the_sketch_lines() -> None:
    source = source_of(RMS_NORM, {"BLOCK": 512})
    text = source.files["kernel.cpp"]
    assert "constexpr int64_t BLOCK = 512;  // one of 256, 512, 1024, 2048" in text
    assert "const float x = X[m * N + n + i];" in text
    line = next(n for n, t in enumerate(text.splitlines(), 1) if "acc[i] = acc[i]" in t)
    assert text.splitlines()[line - 1].endswith("acc = acc + x * x")
    sketch_line = source.line_map["kernel.cpp"][line]
    assert RMS_NORM.splitlines()[sketch_line - 1].strip() == "acc = acc + x * x"


def test_a_tile_made_and_used_in_one_loop_is_a_scalar_there() -> None:
    text = source_of(RMS_NORM).files["kernel.cpp"]
    assert "float x[" not in text and "float w[" not in text
    assert "alignas(64) float acc[BLOCK];" in text


def test_the_ragged_tail_costs_no_check_where_the_pad_is_neutral() -> None:
    text = source_of(RMS_NORM).files["kernel.cpp"]
    assert "?" not in text.split("KL_EXPORT")[0]


def test_a_quotient_that_is_rounded_to_a_step_is_divided_and_not_multiplied_by_a_reciprocal() -> None:
    sketch = """
sketch quantise {{
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(x[m, 0:N] -> row)
        step = reduce_max(abs(row), axis=0) / 127.0
        store({value} -> y[m, 0:N])
}}
"""
    rounded = source_of(sketch.format(value="round(row / step) * step")).files["kernel.cpp"]
    smooth = source_of(sketch.format(value="row / step")).files["kernel.cpp"]
    assert "inverse" not in rounded
    assert "inverse" in smooth
    later = """
sketch levels {
    symbols: M, N;
    tensors: z[M, N]: f32 temp; y[M, N]: u8 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(z[m, 0:N] -> row)
        store(cast(row, u8) -> y[m, 0:N])
}
"""
    first = sketch.format(value="row / step").replace("y[M, N]: f32 out", "z[M, N]: f32 temp").replace("-> y", "-> z")
    assert "inverse" not in source_of(first + later).files["kernel.cpp"]


def test_a_step_that_is_written_out_hundreds_of_times_is_counted_as_often() -> None:
    steps = "\n".join("        h = h * row + 1.0" for _ in range(600))
    text = f"""
sketch walk {{
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(x[m, 0:N] -> row)
        h = row
{steps}
        store(h -> y[m, 0:N])
}}
"""
    source = source_of(text).files["kernel.cpp"]
    assert "603 * N" in source


@pytest.mark.parametrize(
    ("value", "inside"),
    [("reduce_sum(abs(a - all), axis=1)", 32 * 64), ("dot(a, turned)", 32 * 64 // 8), ("reduce_max(all, axis=1)", 0)],
)
def test_what_is_computed_and_reduced_at_once_is_counted(value: str, inside: int) -> None:
    text = f"""
sketch sums {{
    symbols: M;
    tensors: x[M, 64]: f32; w[32, 64]: f32; v[64, 32]: f32; y[M, 32]: f32 out;
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(x[m:m+1, 0:64] -> a)
        load({"v[0:64, 0:32] -> turned" if "turned" in value else "w[0:32, 0:64] -> all"})
        store({value} -> {"y[m:m+1, 0:32]" if "turned" in value else "y[m, 0:32]"})
}}
"""
    assert f"if({64 + 32 * 64 + 32 + inside} * M > 32768)" in source_of(text).files["kernel.cpp"]


CIRCLE = """sketch circle {
    symbols: N;
    tensors: X[N]: f32; S[N]: f32 out; C[N]: f32 out; T[N]: f32 out;
    constexpr: B = 256;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store(sin(x) -> S[n:n+B])
        store(cos(x) -> C[n:n+B])
        store(tan(x) -> T[n:n+B])
}
"""


def test_sine_cosine_and_tangent_hold_for_every_float(tmp_path: Path) -> None:
    """Above 2^52 they were noise: whole circles were taken off by a quotient that a double cannot hold."""
    bits = torch.randint(0, 0x7F800000, (200_000,), generator=torch.Generator().manual_seed(5), dtype=torch.int32)
    x = torch.cat([bits.view(torch.float32), -bits[:1000].view(torch.float32), torch.tensor([0.0, 2.0**52, 3.4e38])])
    kernel = load(source_of(CIRCLE), tmp_path).kernel
    for got, exact in zip(kernel(x), (torch.sin, torch.cos, torch.tan), strict=True):
        torch.testing.assert_close(got.double(), exact(x.double()), rtol=1.2e-7, atol=1e-45)
    assert all(y.isnan().all() for y in kernel(torch.tensor([float("inf"), float("-inf"), float("nan")])))
    signed = torch.tensor([-0.0, 0.0])
    assert [y.signbit().tolist() for y in kernel(signed)] == [[True, False], [False, False], [True, False]]
