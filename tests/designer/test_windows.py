"""Convolution and pooling by rule: right in the sketch gate on both kinds of chip, and free of work on zeros."""

from __future__ import annotations

import re

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer.tile import why
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.designer.test_designer import CPU, GPU
from tests.designer.window_cases import WINDOWS


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpp", "triton"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_pass_the_sketch_gate(name: str, target: Target) -> None:
    task = load_task(WINDOWS[name], "windows")
    text = RulesDesigner().design(DesignBrief(task, target)).sketch
    result = gate(text, task, seconds=0.3)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("name", ["depthwise, zeros before", "zeros of any number on each side"])
def test_zeros_around_a_window_are_read_past_the_edges_and_stored_nowhere(name: str) -> None:
    for target in (CPU, GPU):
        text = RulesDesigner().design(DesignBrief(load_task(WINDOWS[name], "windows"), target)).sketch
        assert "constant_pad" not in text


#: a chip whose rates make a copy of the input worth while even where it is small
H200 = Target(
    "triton",
    Backend.CUDA,
    Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536, bandwidth=4.28e12,
         peak_flops={"tf32": 3.57e11, "bf16": 7e11}),
)  # fmt: skip
CONVOLUTIONS = [n for n in WINDOWS if not any(w in n for w in ("max", "mean", "adaptive", "depthwise"))]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_windows_over_a_copy_pass_the_sketch_gate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # so few channels are summed directly otherwise
    monkeypatch.setattr("kernellab.designer.reading._DIRECT_PAIRS", 0)
    task = load_task(WINDOWS[name], "windows")
    copied = [d.sketch for d in RulesDesigner().designs(DesignBrief(task, H200)) if "_last" in d.sketch]
    assert copied
    for text in copied:
        result = gate(text, task, seconds=0.3)
        assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("more", ["", ", stride=2, padding=2", ", dilation=2, padding=4"])
def test_few_positions_of_many_taps_are_a_product_with_the_bias(more: str) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n"
        f"def reference(x, w, b):\n    return F.conv2d(x, w, b{more})\n"
        "def inputs():\n"
        "    x, w = torch.randn(16, 4, 9, 9).bfloat16(), 0.05 * torch.randn(16, 4, 8, 8)\n"
        "    return x, w.bfloat16(), torch.randn(16).bfloat16()\n"
    )
    task = load_task(text, "few")
    sketch = RulesDesigner().design(DesignBrief(task, H200)).sketch
    assert why.GRADIENT in sketch
    result = gate(sketch, task, seconds=0.3)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{sketch}"


def test_few_channels_take_taps_beside_them() -> None:
    one = WINDOWS["plain"].replace("2, 5, 9, 11", "2, 3, 9, 11").replace("7, 5, 3, 3", "7, 3, 3, 3")
    text = RulesDesigner().design(DesignBrief(load_task(one, "windows"), H200)).sketch
    copy = next(t for t in load_program(text).tensors if t.name == "x_last")
    # three channels take four places; with the taps of one dimension beside them a row is three times as long
    assert copy.shape[-1].evaluate({}) == 3 * 4
    result = gate(text, load_task(one, "windows"), seconds=0.3)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


def test_a_row_takes_in_the_dimension_that_the_window_does_not_move_along() -> None:
    task = load_task(WINDOWS["flat volume"], "windows")
    text = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    assert "y[2, 7, 5, 18]" in text
    assert gate(text, task, seconds=0.3).state is GateState.RIGHT


def test_a_pointwise_window_streams_its_input_past_the_weights() -> None:
    one = WINDOWS["pointwise"].replace("2, 6, 7, 9", "2, 6, 900, 900")
    text = RulesDesigner().design(DesignBrief(load_task(one, "windows"), GPU)).sketch
    assert "_last" not in text and "RUN" in text
    small = load_task(WINDOWS["pointwise"].replace("2, 6, 7, 9", "2, 6, 70, 90"), "windows")
    result = gate(text.replace("900, 900", "70, 90").replace("810000", "6300"), small, seconds=0.3)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


def test_a_transposed_window_multiplies_no_zeros() -> None:
    one = WINDOWS["transposed by phases"].replace("1, 6, 5, 6", "1, 6, 16, 18")
    task = load_task(one, "windows")
    program = load_program(RulesDesigner().design(DesignBrief(task, CPU)).sketch)
    spent = sum(cost(program, symbols={}, constexpr=bind(program, task, {}).constexpr).flops.values())
    useful = 2 * (16 * 18) * (6 * 5) * (3 * 5)
    assert spent < 1.5 * useful


def test_a_dense_window_on_a_cpu_leaves_no_row_of_its_last_tile_idle() -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n"
        "def reference(x, w):\n    return F.conv2d(x, w)\n"
        "def inputs():\n    return torch.randn(1, 8, 31, 29), torch.randn(64, 8, 3, 3)\n"
    )
    chip = Chip("a CPU", "cpu", 4, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 19)
    task = load_task(text, "dense")
    sketch = RulesDesigner().designs(DesignBrief(task, Target("cpp", Backend.CPU, chip)))[0].sketch
    high = int(re.search(r"BH = (\d+)", sketch).group(1))  # type: ignore[union-attr]
    # seven rows of 27 would fit; five tiles of them would cover 35 rows of 29
    assert -(-29 // high) * high <= 30


_LARGE = """
import torch
import torch.nn.functional as F

def reference(x, w, b):
    return {formula}

def inputs():
    return torch.randn({x}), torch.randn({w}), torch.randn({b})
"""


@pytest.mark.parametrize(
    "case",
    [
        ("F.mish(F.conv2d(x, w, b))", "16, 64, 128, 128", "128, 64, 3, 3", "128"),
        ("F.conv_transpose2d(x, w, b, stride=2, padding=1).clamp(min=0.0)", "8, 64, 64, 64", "64, 128, 4, 4", "128"),
        ("F.conv_transpose3d(x, w, b, stride=2, padding=1)", "4, 64, 12, 24, 24", "64, 128, 3, 3, 3", "128"),
        ("F.conv2d(x, w, b)", "8, 64, 128, 128", "256, 64, 1, 1", "256"),
    ],
    ids=["3x3", "transposed", "transposed volume", "1x1"],
)
def test_every_design_of_a_large_convolution_fits_the_memory_of_a_cuda_c_block(case: tuple[str, ...]) -> None:
    target = Target("cuda_c", H200.backend, H200.chip)
    formula, x, w, b = case
    task = load_task(_LARGE.format(formula=formula, x=x, w=w, b=b), "convolution")
    designs = RulesDesigner().designs(DesignBrief(task, target))
    assert designs
    for design in designs:
        program = load_program(design.sketch)
        # raises where the tiles are too large
        assert "__shared__" in str(lower(program, bind(program, task, dict(design.constexpr), target), target).files)


@pytest.mark.parametrize("name", ["plain", "transposed"])
def test_a_launch_that_packs_weights_is_called_so(name: str) -> None:
    text = RulesDesigner().design(DesignBrief(load_task(WINDOWS[name], "windows"), CPU)).sketch
    assert "sketch windows_pack {" in text
