"""How many threads the Designer gives a pointwise kernel on a GPU."""

from __future__ import annotations

import re

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

TEXT = """import torch
import torch.nn.functional as F
def reference(x):
    return {result}
def inputs():
    return (torch.randn(4096, 4096, dtype=torch.{dtype}),)
"""


@pytest.mark.parametrize(
    ("result", "dtype", "elements"),
    [
        ("torch.relu(x)", "float32", 4), ("F.gelu(x)", "bfloat16", 8), ("torch.tanh(x) + 1", "float16", 8),
        # a logarithm and a division for each element: more of them in flight
        ("F.softplus(x)", "float32", 16),
    ],
)  # fmt: skip
def test_a_thread_moves_16_bytes_at_a_time(result: str, dtype: str, elements: int) -> None:
    target = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10))
    sketch = RulesDesigner().design(DesignBrief(load_task(TEXT.format(result=result, dtype=dtype), "t"), target)).sketch
    block, warps = (int(re.search(rf"{name} = (\d+)", sketch)[1]) for name in ("BLOCK", "num_warps"))  # type: ignore[index]
    assert block // (32 * warps) == elements
