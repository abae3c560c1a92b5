"""Kernels move between DSLs through their sketch, and the Verifier passes what arrives."""

from __future__ import annotations

import pytest

from kernellab.lowering.lift import lift
from kernellab.lowering.lift.retarget import move
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.verifier import Verifier, VerifyOptions

from .lifting import INTERPRETER, TARGETS, lowered, task_of

VERIFIED = [
    ("loss/mse", "cuda_c", "cpp"),
    ("reduction/argmax", "triton", "cpp"),
    ("softmax/logsumexp", "cpp", "triton"),
    pytest.param("scan/cumsum", "cuda_c", "cpp", marks=pytest.mark.slow),
    pytest.param("order/topk", "triton", "cpp", marks=pytest.mark.slow),
    pytest.param("indexing/gather_along_rows", "triton", "cpp", marks=pytest.mark.slow),
    pytest.param("convolution/depthwise_conv2d", "triton", "cpp", marks=pytest.mark.slow),
    pytest.param("softmax/softmax", "cuda_c", "triton", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "first", "second"), VERIFIED)
def test_a_kernel_that_moved_is_passed_by_the_verifier(name: str, first: str, second: str, verifier: Verifier) -> None:
    task = task_of(name)
    target = INTERPRETER if second == "triton" else TARGETS[second]
    text, moved = move(lift(lowered(name, first), task), task, target, {})
    assert moved.dsl == second and ("coreidx" in text) == (second == "cpp") and ("grididx" in text) == (second != "cpp")
    verdict = verifier.verify(task, moved, target, options=VerifyOptions(threads=2, budget=0.05, deadline=300.0))
    assert verdict.passed, f"{verdict.stage}: {verdict.reason}"


@pytest.mark.parametrize("second", ["triton", "cuda_c"])
def test_tiles_of_a_cpu_are_made_to_fit_a_gpu(second: str) -> None:
    """A CPU's panels are far past a block's shared memory; its rows of 112 are no power of two."""
    task = task_of("matmul/linear_relu")
    text, moved = move(lift(lowered("matmul/linear_relu", "cpp"), task), task, TARGETS[second], {})
    assert moved.dsl == second
    for tunable in load_program(text).tunables:
        assert tunable.value in tunable.choices
        if second == "cuda_c":
            assert isinstance(tunable.value, int) and tunable.value & (tunable.value - 1) == 0
    assert gate(text, task, seconds=0.5).state.value == "right"


def test_windows_of_odd_width_move_to_triton() -> None:
    task = task_of("convolution/conv2d")
    text, _ = move(lift(lowered("convolution/conv2d", "cpp"), task), task, TARGETS["triton"], {})
    assert "112 in" not in text
