"""Windows of float32 whose factors are stored as float16."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.options.fidelity import STRICT
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import execute
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

#: so slow at products, and so fast a memory, that float16 always pays
CHIP = Chip(
    "test", "gpu", 4, bandwidth=1e18, shared_bytes=228 << 10,
    peak_flops={"f32": 1e6, "tf32": 1e7, "bf16": 2e7, "f16": 2e7},
)  # fmt: skip
TARGET = Target("triton", Backend.CUDA, CHIP)
CASES = {
    "plane": ("F.conv2d(x, w).relu()", (3, 16, 14, 13), (24, 16, 3, 3)),
    "strided": ("F.conv2d(x, w, stride=2, padding=1)", (3, 16, 14, 13), (24, 16, 3, 3)),
    "row": ("F.conv1d(x, w, padding=2, dilation=2)", (3, 16, 60), (24, 16, 5)),
    "volume": ("F.conv3d(x, w)", (2, 16, 6, 7, 8), (16, 16, 2, 3, 3)),
    "grouped": ("F.conv2d(x, w, groups=2)", (3, 32, 9, 11), (24, 16, 3, 3)),
    "transposed": ("F.conv_transpose2d(x, w, stride=2, padding=1)", (3, 16, 7, 9), (16, 24, 3, 3)),
    "pointwise": ("F.conv2d(x, w)", (3, 16, 14, 13), (24, 16, 1, 1)),
    "pointwise_row": ("F.conv1d(x, w, stride=2)", (3, 16, 60), (24, 16, 1)),
    "few_channels": ("F.conv2d(x, w)", (3, 3, 14, 13), (24, 3, 3, 3)),
}


def case(name: str, rounds: bool = True) -> Task:
    """A strict task; ``rounds``: eager takes TF32 for it."""
    result, x, w = CASES[name]
    text = (
        "import torch\nimport torch.nn.functional as F\n"
        f"def reference(x, w):\n    return {result}\ndef inputs():\n    return torch.randn{x}, torch.randn{w}\n"
    )
    return replace(load_task(text, "case"), fidelity=STRICT, rounded=frozenset({"w"} if rounds else ()))


def design(task: Task) -> str:
    return RulesDesigner().designs(DesignBrief(task=task, target=TARGET))[0].sketch


def run(task: Task, text: str, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    program = load_program(text)
    binding = bind(program, task, {})
    found = execute(program, binding.inputs((x, w)), symbols={}, constexpr=binding.constexpr)
    return found.outputs["y"]


@pytest.mark.parametrize("rounds", [True, False], ids=["tf32", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_the_sketch_is_right(name: str, rounds: bool) -> None:
    task = case(name, rounds)
    text = design(task)
    assert "_last" in text and "f16 temp" in text, text
    assert text.count("gemm(") == (1 if rounds else 3)
    result = gate(load_program(text), task)
    assert result.state is GateState.RIGHT, result


@pytest.mark.parametrize("rounds", [True, False], ids=["tf32", "float32"])
def test_the_error_is_that_of_what_eager_takes(rounds: bool) -> None:
    task = case("plane", rounds)
    x, w = torch.randn(3, 16, 14, 13), torch.randn(24, 16, 3, 3)
    exact = F.conv2d(x.double(), w.double()).relu()
    got = run(task, design(task), x, w).reshape(exact.shape).double()
    apart = float((got - exact).norm() / exact.norm())
    assert (1e-4 < apart < 4e-4) if rounds else apart < 3e-7


def test_samples_and_channels_keep_the_range_of_float32() -> None:
    """A sample of 2^60 beside one of 2^-60, and weights likewise, each in its own scale."""
    task = case("plane", rounds=False)
    x, w = torch.randn(3, 16, 14, 13), torch.randn(24, 16, 3, 3)
    x = x * torch.tensor([2.0**40, 2.0**-40, 1.0])[:, None, None, None]
    w = w * torch.exp2(torch.linspace(-20, 20, 24).round())[:, None, None, None]
    exact = F.conv2d(x.double(), w.double()).relu()
    got = run(task, design(task), x, w).reshape(exact.shape).double()
    size = F.conv2d(x.double().abs(), w.double().abs())
    assert float(((got - exact).abs() / size).max()) < 1e-6


def test_what_is_not_finite_stays_where_it_is() -> None:
    task = case("transposed")
    x, w = torch.randn(3, 16, 7, 9), torch.randn(16, 24, 3, 3)
    x[1, 3, 4, 5], x[2, 0, 1, 1] = torch.inf, torch.nan
    want = F.conv_transpose2d(x, w, stride=2, padding=1)
    got = run(task, design(task), x, w).reshape(want.shape)
    assert torch.equal(got.isfinite(), want.isfinite())


def test_a_small_window_stays_as_it_is() -> None:
    """Where reading the input once more takes longer than its products."""
    h200 = Chip("h200", "gpu", 132, bandwidth=4.2e12, peak_flops={"f32": 51e12, "tf32": 357e12, "f16": 701e12})
    text = RulesDesigner().designs(DesignBrief(case("plane"), Target("triton", Backend.CUDA, h200)))[0].sketch
    assert "f16" not in text


@pytest.mark.parametrize("rounds", [True, False], ids=["tf32", "float32"])
def test_windows_in_a_row_and_side_by_side(rounds: bool) -> None:
    """Each has a copy of its own, and the scales of what it reads."""
    text = """import torch
import torch.nn.functional as F


def reference(x, w, u, v):
    y = F.conv2d(x, w).relu()
    return torch.cat([F.conv2d(y, u), F.conv2d(y, v, padding=1)], 1)


def inputs():
    weights = torch.randn(16, 16, 1, 1), torch.randn(24, 16, 1, 1), torch.randn(16, 16, 3, 3)
    return torch.randn(3, 16, 14, 13), *weights
"""
    task = replace(load_task(text, "case"), fidelity=STRICT, rounded=frozenset("wuv" if rounds else ()))
    sketch = design(task)
    assert sketch.count("gemm(") == (3 if rounds else 9) and "f16 temp" in sketch
    result = gate(load_program(sketch), task)
    assert result.state is GateState.RIGHT, result
