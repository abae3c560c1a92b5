"""Lowered kernels pass Triton's compiler and ptxas for an H100-class chip, without a GPU, with 16-byte accesses."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target

from .triton_cases import CASES, MATMUL, RMS_NORM, SOFTMAX

TARGET = Target("triton", Backend.CUDA, Chip("test GPU", "gpu", 132))
_NAMES = (
    "matmul with ragged tiles", "matmul of f16 tiles smaller than a dot", "matmul of f64", "matmul of one row",
    "concatenation and reshape", "scans", "scans from the end", "a linear recurrence", "reductions over padded lanes",
    "a convolution's windows reach over the edges", "two launches through a temp tensor that is added to",
    "conditions on indices, integer division that floors, bool output", "dtype bf16", "f64 keeps its literals",
    "loops that depend on loops", "pointwise pow(abs(x) + 0.1, 1.7)",
)  # fmt: skip

#: its second tensor has more elements than 31 bits count, so that loop variables have 64
WIDE = """
sketch last_positive {
    tensors: X[128, 64]: f32; FAR[65536, 32768]: u8 temp; Y[64]: i32 out;

    @llm_hint("parallel", "grididx.x")
    for j in range(64):
        at = full([1], 0, i32)
        for k in range(128):
            load(X[k, j:j+1] -> x)
            at = where(x > 0.0, k, at)
        store(cast(at, u8) -> FAR[j, 0:1])
        store(at -> Y[j:j+1])
}
"""

SUMMED = """
sketch summed {
    tensors: A[32, 32]: f32; B[32, 32]: f32; C[32, 32]: f32 out; D[32, 32]: f32 out;

    @llm_hint("parallel", "grididx.x")
    for i in range(1):
        load(A[0:32, 0:32] -> a)
        load(B[0:32, 0:32] -> b)
        store(reduce_sum(a[:, :, None] * b[None, :, :], axis=1) -> C[0:32, 0:32])
        store(reduce_mean(a[:, :, None] * b[None, :, :], axis=1) -> D[0:32, 0:32])
}
"""


def _write(folder: Path, name: str, text: str, inputs: dict[str, torch.Tensor]) -> None:
    program = load_program(text)
    source = lower(program, bind(program, None, None, TARGET), TARGET)
    (folder / f"{name}.py").write_text(source.files["kernel.py"])
    torch.save([inputs[t.name] for t in program.inputs], folder / f"{name}.pt")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int] | str]:
    folder = tmp_path_factory.mktemp("compiled")
    for i, case in enumerate(CASES):
        if case.name in _NAMES:
            _write(folder, f"case_{i}", case.text, dict(case.inputs()))
    wide = {"X": torch.zeros(8, 4096), "W": torch.zeros(4096)}
    _write(folder, "rms_norm", RMS_NORM, wide)
    _write(folder, "softmax", SOFTMAX, wide)
    _write(folder, "wide", WIDE, {"X": torch.zeros(128, 64)})
    _write(folder, "summed", SUMMED, dict.fromkeys("AB", torch.zeros(32, 32)))
    matmul = MATMUL.replace("TYPE", "bf16").replace("BM = 16, BN = 32, BK = 8", "BM = 64, BN = 64, BK = 32")
    square = torch.zeros(128, 128, dtype=torch.bfloat16)
    _write(folder, "matmul", matmul, {"A": square, "B": square})
    _write(folder, "unpacked", _unpacked(matmul), {"A": square.to(torch.int8), "B": square})
    env = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "cache")}
    script = Path(__file__).parent / "compile_for_gpu.py"
    done = subprocess.run(
        [sys.executable, str(script), str(folder)], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, int] | str] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_every_construct_compiles(compiled: dict[str, dict[str, int] | str]) -> None:
    assert len(compiled) == len(_NAMES) + 6
    assert {name: error for name, error in compiled.items() if isinstance(error, str)} == {}


def test_sums_of_products_stay_sums(compiled: dict[str, dict[str, int] | str]) -> None:
    """Triton takes such a sum for a product of matrices, and 3.6 rounds its factors to TF32 (7e-4 off on an H200)."""
    summed, matmul = compiled["summed"], compiled["matmul"]
    assert isinstance(summed, dict) and isinstance(matmul, dict)
    assert (summed["dots"], matmul["dots"]) == (0, 1)


@pytest.mark.parametrize("name", ["rms_norm", "softmax"])
def test_rows_move_sixteen_bytes_at_a_time(name: str, compiled: dict[str, dict[str, int] | str]) -> None:
    counts = compiled[name]
    assert isinstance(counts, dict)
    accesses = [access for access in counts if access[:3] in ("ld.", "st.")]
    assert all("v4.b32" in access for access in accesses), accesses
    assert any(access.startswith("st") for access in accesses)


def test_tensor_cores_see_what_was_copied_ahead(compiled: dict[str, dict[str, int] | str]) -> None:
    counts = compiled["matmul"]
    assert isinstance(counts, dict)
    assert counts["fenced"] > 0
    assert counts["unfenced"] == 0


def _unpacked(matmul: str) -> str:
    """The product with a left factor that is made of bytes."""
    return matmul.replace("A[M, K]: bf16", "A[M, K]: i8").replace("gemm(a, b, acc)", "gemm(cast(a, bf16), b, acc)")


def test_a_left_factor_made_in_registers_keeps_them_until_its_product_has_landed(
    compiled: dict[str, dict[str, int] | str],
) -> None:
    """int8 weights came out wrong on an H200: the next step's were made in registers that a product still read."""
    made, plain = compiled["unpacked"], compiled["matmul"]
    assert isinstance(made, dict) and isinstance(plain, dict)
    assert made["fenced"] > 0 and made["in_flight"] == 0
    assert plain["in_flight"] > 0


@pytest.mark.parametrize("backend", [Backend.CUDA, Backend.INTERPRETER])
def test_only_what_is_made_in_the_loop_is_waited_for(backend: Backend) -> None:
    target = Target("triton", backend, TARGET.chip)
    plain = MATMUL.replace("TYPE", "bf16").replace("BK = 8", "BK = 16")
    made = plain.replace("gemm(a, b, acc)", "c = relu(a)\n                gemm(c, b, acc)")
    moved = plain.replace(
        "load(A[m:m+BM, k:k+BK] -> a)", "load(A[k:k+BK, m:m+BM] -> t)\n                a = transpose(t)"
    )
    waits = []
    for text in (plain, moved, made, _unpacked(plain)):
        program = load_program(text)
        waits.append(
            "kl_landed(acc, BM)" in lower(program, bind(program, None, None, target), target).files["kernel.py"]
        )
    assert waits == [False, False, *[backend is Backend.CUDA] * 2]


@pytest.mark.parametrize("backend", [Backend.CUDA, Backend.INTERPRETER])
def test_products_in_a_serial_loop_ask_for_the_fence_on_a_gpu(backend: Backend) -> None:
    target = Target("triton", backend, TARGET.chip)
    program = load_program(MATMUL.replace("TYPE", "f32").replace("BK = 8", "BK = 16"))
    text = lower(program, bind(program, None, None, target), target).files["kernel.py"]
    body = text[text.index("def matmul_kernel(") :].splitlines()
    before = [above.strip() for above, line in itertools.pairwise(body) if "tl.dot(" in line]
    assert [line.startswith("kl_fence(B") for line in before] == [backend is Backend.CUDA]


def test_triton_is_asked_for_its_own_fence_by_version() -> None:
    from kernellab.lowering.triton.library.synchronize import kl_unfenced

    versions = {"3.6.0": True, "3.7.1": True, "3.8.0": False, "3.9.0+git1a2b": False, "4.0": False}
    assert {version: kl_unfenced(version) for version in versions} == versions
