"""Convolution and pooling by rule: right in the sketch gate on both kinds of chip, and free of work on zeros."""

from __future__ import annotations

import pytest

from kernellab import sketch
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.bind import bind
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.target import Target
from kernellab.task import load_task
from tests.agents.test_designer import CPU, GPU
from tests.agents.window_cases import WINDOWS


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpp", "triton"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_pass_the_sketch_gate(name: str, target: Target) -> None:
    task = load_task(WINDOWS[name], "windows")
    text = RulesDesigner().design(DesignBrief(task, target)).sketch
    result = sketch.gate(text, task, seconds=0.3)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


def test_a_transposed_window_multiplies_no_zeros() -> None:
    one = WINDOWS["transposed by phases"].replace("1, 6, 5, 6", "1, 6, 16, 18")
    task = load_task(one, "windows")
    program = load_program(RulesDesigner().design(DesignBrief(task, CPU)).sketch)
    spent = sum(cost(program, symbols={}, constexpr=bind(program, task, {}).constexpr).flops.values())
    useful = 2 * (16 * 18) * (6 * 5) * (3 * 5)
    assert spent < 1.5 * useful
