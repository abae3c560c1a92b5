"""Scans that are used in part, reshaped before or indexed afterwards are stored, and no call of the framework."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

H200 = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))


@pytest.mark.parametrize(
    "body",
    [
        "x.cumsum(-1)[..., -1:] - x.cumsum(-1)",
        "x.cumsum(-1).reshape(6, 3, 4)[:, 1]",
        "torch.exp(x.cumsum(-1)[:, 2:7])",
        "x.cumsum(-1)[:, -1]",
        "x.cummax(-1).values[:, 3:5]",
        "torch.exp(x).reshape(-1).cumsum(0)[3:]",
        "torch.nn.functional.pad((x.reshape(-1) * 2).cumsum(0)[:-1], (1, 0))",
    ],
)
def test_a_part_of_a_scan(body: str) -> None:
    text = f"import torch\ndef inputs():\n    return torch.randn(6, 12)\ndef reference(x):\n    return {body}\n"
    task = load_task(text)
    reply = RulesDesigner().designs(DesignBrief(task, H200))[0]
    assert not reply.library_calls
    found = gate(reply.sketch, task, chip=H200.chip)
    assert found.state is GateState.RIGHT, found.reason
