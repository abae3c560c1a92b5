"""Numbers that lie in pairs: several rows of them a tile, and both of a pair in one thread."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

from .test_attention import TRITON, close, lowered
from .test_team import _written
from .test_triton import call

HEAD = "import torch\n\n\ndef reference(x, c, s):\n"
ROTATED = (
    f"{HEAD}    a, b = x[..., 0::2].float(), x[..., 1::2].float()\n"
    "    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2).to(x.dtype)\n\n\n"
    "def inputs():\n    return torch.randn(6, 5, 32), torch.randn(6, 1, 16), torch.randn(6, 1, 16)\n"
)
UNPACKED = (
    f"{HEAD}    q = torch.stack(((x & 15).to(c.dtype), (x >> 4).to(c.dtype)), -1).reshape(40, 32)\n"
    "    return (q - s) * c\n\n\n"
    "def inputs():\n"
    "    return torch.randint(0, 256, (40, 16), dtype=torch.uint8), torch.randn(40, 1), torch.randn(40, 1)\n"
)


@pytest.mark.parametrize("text", [ROTATED, UNPACKED], ids=["rotated", "unpacked"])
def test_pairs_are_joined_and_right(text: str, tmp_path: Path) -> None:
    task, source = lowered(text, TRITON, "Pointwise")
    assert "tl.join(" in source.files["kernel.py"]
    args = task.module().sample(seed=3)
    close(call(source, tmp_path, *args)[0], task, args)


@pytest.mark.parametrize("text", [ROTATED, UNPACKED], ids=["rotated", "unpacked"])
def test_a_tile_of_pairs_has_several_rows(text: str) -> None:
    """Tiles of 64 pairs in one warp each took 2.7 and 6.6 times as long on an H200 as those with their rows."""
    task = load_task(text, "pairs")
    target = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
    sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
    program = load_program(sketch)
    sizes = bind(program, task, {}, target).constexpr
    stored = next(line for line in sketch.splitlines() if "store(" in line)
    assert "+ROWS" in stored and stored.rstrip().endswith("0:2])") and sizes["ROWS"] >= 4


def test_a_tile_that_is_written_twice_tells_no_pairs(tmp_path: Path) -> None:
    sketch = """
sketch p {
    tensors: A[32]: f32; B[32]: f32; C[32, 2]: f32 out;

    @llm_hint("parallel", "grididx.x")
    for i in range(0, 32, 16):
        load(A[i:i+16] -> a)
        load(B[i:i+16] -> b)
        h = arange(2) < 1
        h = arange(2) < 2
        store(where(h, a[:, None], b[:, None]) -> C[i:i+16, 0:2])
}
"""
    a, b = torch.randn(32), torch.randn(32)
    got = call(_written(sketch, Backend.INTERPRETER), tmp_path, a, b)[0]
    assert torch.equal(got, torch.stack((a, a), 1))
