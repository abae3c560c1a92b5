"""The samples, resolved and run by the interpreter, compute what PyTorch computes, ragged edges included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernellab.sketch.check import load_program
from kernellab.sketch.run import run

FOLDER = Path(__file__).parent / "samples"


def outputs(name: str, inputs: dict[str, torch.Tensor], **constexpr: Any) -> dict[str, torch.Tensor]:
    return run(load_program((FOLDER / f"{name}.sketch").read_text(encoding="utf-8")), inputs, constexpr=constexpr)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


def test_paper_figure_2() -> None:
    x = torch.randn(2, 3, 7, 5)
    want = x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6)
    close(outputs("paper_figure_2", {"X": x}, eps=1e-6, TILE_SIZE=4)["Y"], want)


def test_rms_norm() -> None:
    x, w = torch.randn(3, 300), torch.randn(300)
    close(outputs("rms", {"X": x, "W": w})["Y"], F.rms_norm(x, (300,), w, 1e-6))


def test_akg_softmax() -> None:
    x = torch.randn(3, 37)
    close(outputs("softmax_akg", {"X": x})["Y"], x.softmax(1))


def test_online_softmax_of_narrow_floats() -> None:
    x = torch.randn(3, 300).bfloat16()
    close(outputs("softmax_online", {"X": x})["Y"], x.float().softmax(1).bfloat16())


def test_layer_norm() -> None:
    x, g, b = torch.randn(5, 300), torch.randn(300), torch.randn(300)
    close(outputs("layernorm", {"X": x, "G": g, "Bt": b})["Y"], F.layer_norm(x, (300,), g, b))


def test_cumsum_with_a_carry() -> None:
    x = torch.randn(3, 50)
    close(outputs("cumsum", {"X": x}, BLOCK=16)["Y"], x.cumsum(1))


def test_matmul() -> None:
    a, b = torch.randn(130, 70).half(), torch.randn(70, 20).half()
    close(outputs("gemm", {"A": a, "B": b}, m0=64, k0=32, n0=16)["C"], a.float() @ b.float(), 1e-4)


def test_batched_matmul_with_bias_and_gelu() -> None:
    a, w, bias = torch.randn(2, 35, 50).bfloat16(), torch.randn(2, 50, 66).bfloat16(), torch.randn(66).bfloat16()
    want = F.gelu(a.float() @ w.float() + bias.float()).bfloat16()
    close(outputs("bmm", {"A": a, "W": w, "bias": bias})["C"], want, 1e-2)


def test_column_sums() -> None:
    x = torch.randn(70, 130).half()
    close(outputs("colsum", {"X": x})["Y"], x.float().sum(0).half(), 1e-3)


def test_full_reduction_in_two_sketches() -> None:
    x = torch.randn(5000)
    close(outputs("twopass", {"X": x})["Y"], x.sum().reshape(1), 1e-4)


def test_masks() -> None:
    x, mask = torch.randn(300), torch.rand(300) > 0.5
    got = outputs("mask", {"X": x, "Mk": mask}, lo=0.5)["Y"]
    close(got, torch.where(mask & (x > 0), x.clamp(0.5, 6), x * 0.1))


def test_argmax_and_max_of_rows() -> None:
    x = torch.randn(35, 40).half()
    got = outputs("argmax", {"X": x})
    assert torch.equal(got["I"], x.argmax(1))
    assert torch.equal(got["V"], x.amax(1))


def test_max_pooling() -> None:
    x = torch.randn(1, 2, 11, 13)
    close(outputs("max_pool", {"X": x})["Y"], F.max_pool2d(x, 3, 2, 1))


def test_welford_softmax_and_a_linear_scan() -> None:
    x = torch.randn(2, 30)
    weight = F.layer_norm(x, (30,)).softmax(1)
    state, states = torch.zeros(2), []
    for t in range(30):
        state = x[:, t] * state + weight[:, t]
        states.append(state)
    close(outputs("welford", {"X": x})["Y"], torch.stack(states, 1).bfloat16().float() * 2, 1e-2)
