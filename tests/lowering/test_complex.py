"""Complex arguments and results: a sketch holds them as pairs of real numbers, a kernel takes and gives torch's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

from .emulated import kernel_of
from .test_cpp import load
from .test_triton import call

CPP = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
TRITON = Target("triton", Backend.INTERPRETER, Chip("a GPU", "gpu", 132))
CUDA = Target("cuda_c", Backend.CUDA, Chip("a GPU", "gpu", 132))

TASK = load_task(
    """import torch
from kernellab import Dim

M = Dim("M", 1, 500)

def reference(z, w):
    return z * w.conj(), z.abs()

def inputs(M=20):
    return torch.randn(M, 7, dtype=torch.complex64), torch.randn(7, dtype=torch.complex64)
""",
    "turned",
)
SKETCH = """sketch turned {
    symbols: M;
    tensors: z[M, 7, 2]: f32; w[7, 2]: f32; y0[M, 7, 2]: f32 out; y1[M, 7]: f32 out;

    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(z[m, 0:7, 0] -> a)
        load(z[m, 0:7, 1] -> b)
        load(w[0:7, 0] -> c)
        load(w[0:7, 1] -> d)
        store(a * c + b * d -> y0[m, 0:7, 0])
        store(b * c - a * d -> y0[m, 0:7, 1])
        store(hypot(a, b) -> y1[m, 0:7])
}
"""


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


def test_the_gate_compares_both_parts() -> None:
    assert gate(SKETCH, TASK).state is GateState.RIGHT
    found = gate(SKETCH.replace("b * c - a * d", "b * c + a * d"), TASK)
    assert found.state is GateState.WRONG and found.reason.startswith("y0 is wrong")


@pytest.mark.parametrize("target", [CPP, TRITON, CUDA], ids=lambda t: t.dsl)
def test_a_kernel_takes_and_gives_complex_tensors(target: Target, tmp_path: Path, monkeypatch: Any) -> None:
    program = load_program(SKETCH)
    source = lower(program, bind(program, TASK, None, target), target)
    z, w = torch.randn(30, 7, dtype=torch.complex64), torch.randn(7, dtype=torch.complex64)
    if target is CPP:
        kernel = load(source, tmp_path).kernel
    elif target is TRITON:
        kernel = lambda *args: call(source, tmp_path, *args)  # noqa: E731 - as the others are called
    else:
        kernel = kernel_of(source, tmp_path, monkeypatch)
    # a tensor that is only marked as conjugated, and one that lies otherwise
    for one, other in ((z, w), (z.conj(), w), (z.t().contiguous().t(), w.conj())):
        turned, size = kernel(one, other)
        torch.testing.assert_close(turned, one * other.conj())
        torch.testing.assert_close(size, one.abs())
    with pytest.raises(TypeError, match="complex64"):
        kernel(z.real.contiguous(), w)


def test_a_complex_argument_is_declared_as_pairs() -> None:
    found = gate(SKETCH.replace("z[M, 7, 2]: f32", "z[M, 7, 2]: f64"), TASK)
    assert found.state is GateState.WRONG
    assert "z is declared f64 and the argument z is complex64." in found.reason
    assert "Declare z[M, 7, 2]: f32, the real and the imaginary part of each number." in found.reason
