"""What only a GPU can show of the Triton lowering: tensor cores' precision, offsets past 2**31, 16-byte accesses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target

pytestmark = pytest.mark.gpu

TARGET = Target("triton", Backend.CUDA, Chip("GPU", "gpu", 132))

MATMUL = """sketch matmul {
    symbols: M, N, K;
    tensors: A[M, K]: f32; B[K, N]: f32; C[M, N]: f32 out;
    constexpr: BM = 64, BN = 64, BK = 32;
    @llm_hint("parallel", "swizzle", 8)
    for m in range(0, M, BM):
        @llm_hint("parallel")
        for n in range(0, N, BN):
            acc = alloc([BM, BN], f32, llm_hint=["accumulator", "init_zero"])
            @llm_hint("pipeline", 3)
            for k in range(0, K, BK):
                load(A[m:m+BM, k:k+BK] -> a)
                load(B[k:k+BK, n:n+BN] -> b)
                gemm(a, b, acc, precision="PRECISION")
            store(acc -> C[m:m+BM, n:n+BN])
}
"""

DOUBLE = """sketch double {
    symbols: M, N;
    tensors: X[M, N]: i8; Y[M, N]: i8 out;
    constexpr: B = 4096;
    @llm_hint("parallel")
    for m in range(M):
        @llm_hint("parallel")
        for n in range(0, N, B):
            load(X[m, n:n+B] -> x)
            store(x + 1 -> Y[m, n:n+B])
}
"""


def kernel_of(text: str, folder: Path) -> Any:
    program = load_program(text)
    source = lower(program, bind(program, None, None, TARGET), TARGET)
    path = folder / f"kernel_{source.hash}.py"
    path.write_text(source.files["kernel.py"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize(
    ("precision", "error"), [("ieee", 2e-6), ("tf32x3", 2e-6), ("bf16x6", 4e-6), ("tf32", 2e-3), ("bf16", 1e-2)]
)
@pytest.mark.parametrize("size", [(256, 256, 256), (130, 71, 99)])
def test_matmul_has_the_precision_that_the_sketch_asks_for(
    precision: str, error: float, size: tuple[int, int, int], tmp_path: Path
) -> None:
    m, n, k = size
    generator = torch.Generator("cuda").manual_seed(0)
    a = torch.randn(m, k, device="cuda", generator=generator)
    b = torch.randn(k, n, device="cuda", generator=generator)
    got = kernel_of(MATMUL.replace("PRECISION", precision), tmp_path)(a, b)
    exact = a.double() @ b.double()
    assert float((got - exact).norm() / exact.norm()) < error


def test_offsets_past_two_to_the_31_are_reached(tmp_path: Path) -> None:
    rows, columns = 3, 1 << 30
    if torch.cuda.mem_get_info()[0] < 3 * rows * columns:
        pytest.skip("needs 9 GB of GPU memory")
    x = torch.zeros(rows, columns, dtype=torch.int8, device="cuda")
    x[2, -5:] = 7
    y = kernel_of(DOUBLE, tmp_path)(x)
    assert bool((y[2, -5:] == 8).all())
    assert int(y[2, :-5].max()) == 1 and int(y[:2].min()) == 1
