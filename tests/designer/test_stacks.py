"""What the steps of a loop have in common is done once to all of them, and each writes its part where it belongs."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.capture import capture
from kernellab.designer.graph.stacks import joined
from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

H200 = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
STEPS = """import torch
def inputs():
    return torch.rand(9, 5, 20), torch.rand(5, 24), torch.rand(24, 44), torch.rand(16, 24), torch.rand(16)
def reference(x, h, w, out, bias):
    outputs = []
    for t in range(x.shape[0]):
        h = torch.tanh(torch.cat((x[t], h), dim=1) @ w.t())
        outputs.append({each})
    return torch.stack(outputs, dim={dim})
"""


@pytest.mark.parametrize(
    ("each", "dim", "launches"),
    [
        ("torch.nn.functional.linear(h, out, bias)", 0, 10),
        ("torch.relu(torch.nn.functional.linear(h, out, bias))", 0, 10),
        ("torch.nn.functional.linear(h, out, bias)", 1, None),
        ("h * 2.0", 0, 10),
        ("torch.nn.functional.linear(h, out, bias) * x[t, 0, 0]", 0, None),
    ],
)
def test_a_layer_of_each_step_is_one_launch(each: str, dim: int, launches: int | None) -> None:
    task = load_task(STEPS.format(each=each, dim=dim))
    sketch = RulesDesigner().designs(DesignBrief(task, H200))[0].sketch
    assert launches is None or sum(line.startswith("sketch ") for line in sketch.splitlines()) == launches
    found = gate(sketch, task, chip=H200.chip)
    assert found.state is GateState.RIGHT, found.reason


def test_layers_that_differ_stay_apart() -> None:
    each = "torch.nn.functional.linear(h, out * float(t), bias)"
    graph = capture(load_task(STEPS.format(each=each, dim=0)))
    assert joined(graph) == graph


GROWING = """import torch
from torch.nn.functional import batch_norm, conv2d
def inputs():
    return torch.rand(2, {first}, 7, 7), [torch.rand(8, {first} + 8 * n, 3, 3) for n in range(4)]
def reference(x, weights):
    parts = [{start}]
    for weight in weights:
        seen = torch.cat(parts, 1)
        parts.append(conv2d(torch.relu(batch_norm(seen, None, None, training=True)), weight, padding=1))
    return {end}
"""


@pytest.mark.parametrize("start", ["x", "torch.max_pool2d(x, 3, 1, 1)"])
@pytest.mark.parametrize("end", ["torch.cat(parts, 1)", "torch.cat(parts[2:4], 1).sum((2, 3)), parts[-1]"])
def test_what_each_layer_adds_is_written_once_to_where_all_of_it_is_read(start: str, end: str) -> None:
    task = load_task(GROWING.format(first=16, start=start, end=end))
    sketch = RulesDesigner().designs(DesignBrief(task, H200))[0].sketch
    assert "where(value" not in sketch
    assert not [line for line in sketch.splitlines() if line.count(": f32 temp") > 5]
    found = gate(sketch, task, chip=H200.chip)
    assert found.state is GateState.RIGHT, found.reason


def test_parts_of_no_common_size_are_told_apart_or_copied() -> None:
    task = load_task(GROWING.format(first=5, start="x", end="torch.cat(parts, 1)"))
    sketch = RulesDesigner().designs(DesignBrief(task, H200))[0].sketch
    found = gate(sketch, task, chip=H200.chip)
    assert found.state is GateState.RIGHT, found.reason
