"""A lowered sketch computes what the sketch means: on the GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime.interpreter import InterpreterBuilder  # type: ignore[import-untyped]

from kernellab.dsls.triton import has_cuda_device
from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import Program
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target

from .triton_cases import CASES, MATMUL, RMS_NORM, SOFTMAX, Case, normal

HAS_GPU = has_cuda_device()
GPU = Chip("test GPU", "gpu", 132)
TARGET = Target("triton", Backend.CUDA if HAS_GPU else Backend.INTERPRETER, GPU)
DEVICE = "cuda" if HAS_GPU else "cpu"

# the interpreter computes with NumPy, which warns where IEEE arithmetic is meant
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def source_of(text: str, *, target: Target = TARGET, constexpr: Mapping[str, int | float] | None = None) -> Source:
    program = load_program(text)
    return lower(program, bind(program, None, constexpr, target), target)


def call(source: Source, folder: Path, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
    path = folder / f"kernel_{source.hash}.py"
    path.write_text(source.files["kernel.py"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = module.kernel(*(a.to(DEVICE) for a in args))
    return tuple(t.cpu() for t in (result if isinstance(result, tuple) else (result,)))


def check(program: Program, inputs: Mapping[str, torch.Tensor], folder: Path, rtol: float) -> None:
    binding = bind(program, None, None, TARGET)
    got = call(lower(program, binding, TARGET), folder, *(inputs[t.name] for t in program.inputs))
    want = run(program, inputs, constexpr=binding.constexpr)
    for output, value in zip(binding.outputs, got, strict=True):
        expected = want[output.tensor]
        assert value.shape == expected.shape
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_lowered_kernel_computes_what_the_sketch_means(case: Case, tmp_path: Path) -> None:
    check(load_program(case.text), case.inputs(), tmp_path, case.rtol)


@pytest.mark.parametrize("columns", [1, 7, 64, 1024, 1025])
@pytest.mark.parametrize("text", [RMS_NORM, SOFTMAX], ids=["looped", "whole row"])
def test_sizes_around_the_block(text: str, columns: int, tmp_path: Path) -> None:
    inputs = {"X": normal(2, columns), "W": normal(columns, seed=1)}
    check(load_program(text), inputs, tmp_path, 1e-5)


def test_empty_tensors_give_empty_outputs(tmp_path: Path) -> None:
    (y,) = call(source_of(SOFTMAX), tmp_path, torch.empty(0, 5))
    assert y.shape == (0, 5)


def test_code_for_the_gpu_also_runs_in_the_interpreter(tmp_path: Path) -> None:
    source = source_of(SOFTMAX, target=Target("triton", Backend.CUDA, GPU))
    x = normal(2, 9)
    (y,) = call(source, tmp_path, x)
    torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "dtype"), [("bf16", torch.bfloat16), ("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]
)
def test_a_narrow_store_rounds_half_to_even(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    text = f"""sketch narrow {{
    symbols: N;
    tensors: X[N]: f32; Y[N]: {name} out;
    load(X[0:N] -> x)
    store(x -> Y[0:N])
}}
"""
    ties = [1.00390625, 1.01171875, 1.0625, 1.1875, 1.125, 1.375, 0.0009765625, 0.0029296875, float("nan")]
    x = torch.cat([normal(500) * 8, normal(100) * 1e-3, torch.tensor(ties)])
    (y,) = call(source_of(text), tmp_path, x)
    torch.testing.assert_close(y.float(), x.to(dtype).float(), rtol=0, atol=0, equal_nan=True)


def test_host_function_refuses_a_wrong_dtype_and_shape(tmp_path: Path) -> None:
    source = source_of(RMS_NORM)
    with pytest.raises(TypeError, match="X must be float32"):
        call(source, tmp_path, normal(2, 8).double(), normal(8))
    with pytest.raises(ValueError, match="W must hold"):
        call(source, tmp_path, normal(2, 8), normal(9))


def test_inputs_that_are_not_contiguous_are_read_rightly(tmp_path: Path) -> None:
    x = normal(9, 4).T
    (y,) = call(source_of(SOFTMAX), tmp_path, x)
    torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-5, atol=1e-6)


def test_text_keeps_names_tunables_and_the_sketch_lines() -> None:
    source = source_of(RMS_NORM, constexpr={"BLOCK": 512})
    text = source.files["kernel.py"]
    assert "BLOCK = 512  # one of 256, 512, 1024, 2048" in text
    assert "acc = acc + x * x" in text
    lines = text.splitlines()
    sketch = RMS_NORM.splitlines()
    mapped = source.line_map["kernel.py"]
    (store,) = [n for n, line in enumerate(lines, 1) if "tl.store(" in line]
    assert sketch[mapped[store] - 1].strip().startswith("store(x * rms * w")
    assert "store(x * rms * w" in lines[store - 1]


def test_a_mask_is_written_only_where_it_is_needed() -> None:
    text = source_of(RMS_NORM).files["kernel.py"]
    assert "EVEN_N = N % BLOCK == 0" in text
    assert "m < M" not in text


SUMS = """sketch sums {
    tensors: x[40, 16]: f32; y[40, 16]: f32 out;
    constexpr: B = 4 in {4, 8};
    @llm_hint("parallel", "grididx")
    for i in range(40):
        @llm_hint("parallel", "grididx")
        for j in range(0, 16, B):
            acc = full([B], 0.0, f32)
            for a in range(FIRST, LAST, B):
                load(x[i, a:a+B] -> x_tile)
                acc = acc + x_tile
            store(acc -> y[i, j:j+B])
}
"""


@pytest.mark.skipif(DEVICE != "cpu", reason="the interpreter's programs run in turn")
@pytest.mark.parametrize(("first", "last", "order"), [("0", "j + B", [3, 2, 1, 0]), ("j", "16", [0, 1, 2, 3])])
def test_programs_with_the_most_steps_run_first(
    first: str, last: str, order: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernellab.lowering.triton.grid._CACHED_ITERATIONS", 16 * 16)
    stored: list[int] = []
    store = InterpreterBuilder.create_masked_store

    def noted(self: Any, pointers: Any, *rest: Any) -> Any:
        stored.append(int(pointers.data.flat[0]))
        return store(self, pointers, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", noted)
    check(load_program(SUMS.replace("FIRST", first).replace("LAST", last)), {"x": torch.randn(40, 16)}, tmp_path, 1e-5)
    places = [(address - min(stored)) // 4 for address in stored]
    expected = [(i, 4 * j) for rows in (range(20), range(20, 40)) for j in order for i in rows]
    assert [divmod(place, 16) for place in places] == expected


def test_programs_whose_steps_go_up_and_down_keep_their_places() -> None:
    # phases of a transposed convolution, whose stores share lines of memory: 5.08 ms on an H200 in turns, and wrong
    for last in ("B * ((j + B) % 3)", "max(0, ceil(8 - (j + 1) * 3 % 5, 5)) * B", "j * j"):
        assert "turn = " not in source_of(SUMS.replace("FIRST", "0").replace("LAST", last)).files["kernel.py"], last
    assert "turn = " in source_of(SUMS.replace("FIRST", "0").replace("LAST", "min(j + B, 16)")).files["kernel.py"]


def test_hint_for_grouped_order_swizzles_the_grid() -> None:
    text = MATMUL.replace("TYPE", "f32")
    assert "tl.swizzle2d(" in source_of(text).files["kernel.py"]
    assert "tl.swizzle2d(" not in source_of(text.replace(', "swizzle", 4', "")).files["kernel.py"]


def test_a_tile_beyond_triton_names_its_line() -> None:
    text = """sketch big {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    constexpr: B = 4194304;
    @llm_hint("parallel")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store(x -> Y[n:n+B])
}
"""
    with pytest.raises(LoweringError, match=r"Line 7: .*'x'.*4194304 elements"):
        source_of(text)


def test_a_tunable_may_be_edited_in_the_lowered_text(tmp_path: Path) -> None:
    text = RMS_NORM.replace("M, N;", "M;", 1).replace(", N]", ", 1536]").replace("W[N]", "W[1536]").replace("N", "1536")
    source = source_of(text, constexpr={"BLOCK": 512})
    edited = source.files["kernel.py"].replace("BLOCK = 512", "BLOCK = 1024")
    assert edited != source.files["kernel.py"]
    x, w = normal(3, 1536), normal(1536, seed=1)
    (got,) = call(source.model_copy(update={"files": {"kernel.py": edited}}), tmp_path, x, w)
    want = run(load_program(text), {"X": x, "W": w})["Y"]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
