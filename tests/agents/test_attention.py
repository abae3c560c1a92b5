"""Attention in one launch: recognised however it is written, right at odd shapes, and right where nothing is seen."""

from __future__ import annotations

import pytest

from kernellab import sketch
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.agents.attention_cases import ATTENTION
from tests.agents.test_designer import CPU, GPU, errors

#: so fast a memory that storing the parts of f32 always pays
PARTS = Target("triton", Backend.CUDA, Chip("test", "gpu", 4, bandwidth=1e18, peak_flops={"f32": 1e12, "bf16": 1e14}))


def fused(text: str, name: str, target: Target) -> str:
    """The first design that has one launch for both products."""
    replies = RulesDesigner().designs(DesignBrief(load_task(text, name), target))
    return next(r.sketch for r in replies if "online" in r.sketch)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("target", [CPU, GPU, PARTS], ids=["cpu", "gpu", "parts"])
def test_one_launch_is_right(name: str, target: Target) -> None:
    text = fused(ATTENTION[name], name, target)
    assert errors(text) == [], text
    assert sketch.format(text) == text
    result = sketch.gate(load_program(text), load_task(ATTENTION[name], name), seconds=0.2)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"
