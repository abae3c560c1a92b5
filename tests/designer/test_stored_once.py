"""Reductions that launches of different kinds read are stored once; tiles of a piece of an axis end with the piece."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import named_chip
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Target
from kernellab.task import load_task

CPU = Target("cpp", Backend.CPU, named_chip("x86-avx512"))
TEXT = """import torch
import torch.nn.functional as F

def reference(x, c):
    a = ((x[:, None, :] - c[None]) ** 2).sum(-1).argmin(1)
    return {result}

def inputs():
    return torch.randn({rows}, 32), torch.randn(64, 32)
"""
RESULTS = {
    "by a product": "F.one_hot(a, 64).to(x.dtype).t() @ x, a",
    "by a scatter": "torch.zeros_like(c).index_add(0, a, x), a",
    "by a product and a sum": "(F.one_hot(a, 64).to(x.dtype).t() @ x) / (F.one_hot(a, 64).sum(0)[:, None] + 1)",
}


def _sketch(result: str, rows: int = 4096) -> str:
    task = load_task(TEXT.format(result=RESULTS.get(result, result), rows=rows), "case")
    return RulesDesigner().designs(DesignBrief(task, CPU))[0].sketch


@pytest.mark.parametrize("result", RESULTS)
def test_the_nearest_centre_is_searched_once(result: str) -> None:
    assert _sketch(result).count("isnan(best)") == 1
    task = load_task(TEXT.format(result=RESULTS[result], rows=40), "case")
    found = gate(_sketch(result, rows=40), task, chip=CPU.chip)
    assert found.state is GateState.RIGHT, found.reason


def test_no_tile_of_a_chunk_reaches_into_the_next_one() -> None:
    program = load_program(_sketch("x.sum()", rows=65536))
    choices = {c.name: c.choices for c in program.constexprs}
    assert max(choices["BLOCK"]) <= min(choices["CHUNK"])


PIECES = """
sketch pieces {{
    tensors: x[4096]: f32; part[ceil(4096, CHUNK)]: f32 temp;
    constexpr: CHUNK = 64; BLOCK = {block};

    @llm_hint("parallel", "coreidx")
    for chunk in range(ceil(4096, CHUNK)):
        total = cast(0.0, f32)
        for k in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, 4096), BLOCK):
            load(x[k:k+BLOCK] -> tile)
            total = total + reduce_sum(where(k + arange(BLOCK) < 4096, tile, 0.0), axis=0)
        store(total -> part[chunk])
}}

sketch finish {{
    tensors: part[ceil(4096, CHUNK)]: f32 temp; y[1]: f32 out;
    constexpr: CHUNK = 64;

    @llm_hint("parallel", "coreidx")
    for i in range(1):
        load(part[0:ceil(4096, CHUNK)] -> parts)
        store(reduce_sum(parts, axis=0) -> y[i])
}}
"""


@pytest.mark.parametrize(("block", "state"), [(64, GateState.RIGHT), (4096, GateState.WRONG)])
def test_a_tile_that_reaches_into_the_next_chunk_is_wrong_at_the_own_shapes(block: int, state: GateState) -> None:
    reference = "import torch\ndef reference(x):\n    return x.sum(0, keepdim=True)\n"
    task = load_task(f"{reference}def inputs():\n    return (torch.randn(4096),)\n", "case")
    found = gate(PIECES.format(block=block), task, chip=CPU.chip)
    assert found.state is state, found.reason
    assert state is GateState.RIGHT or "own shapes" in found.reason


def test_a_scan_that_several_read_is_made_in_one_order() -> None:
    task = load_task(
        "import torch\ndef reference(x):\n    c = x.cumsum(-1)\n"
        "    return torch.exp(c[..., -1:] - c) @ torch.exp(c[..., :, None] - c[..., None, :]).sum(-2).mT\n"
        "def inputs():\n    return -torch.rand(4, 8, 32)\n",
        "case",
    )
    sketch = RulesDesigner().designs(DesignBrief(task, CPU))[0].sketch
    assert sketch.count("load(x[") == 1, sketch


GPU = Target("triton", Backend.CUDA, named_chip("h100"))
SEGMENTS = """import torch

def reference(x, n):
    at = torch.repeat_interleave(torch.arange({runs}, device=x.device), n, output_size={rows})
    return torch.zeros({runs}, 64, device=x.device).index_add(0, at, x)

def inputs():
    return torch.randn({rows}, 64), torch.full(({runs},), {rows} // {runs})
"""


@pytest.mark.parametrize(("runs", "rows"), [(64, 192), (256, 16384)])
def test_an_index_that_is_searched_for_is_found_before_rows_are_added_at_it(runs: int, rows: int) -> None:
    """Whoever adds rows reads each one's place, and looks in no sorted tensor for it."""
    task = load_task(SEGMENTS.format(runs=runs, rows=rows), "segments")
    found = RulesDesigner().designs(DesignBrief(task, GPU))[0].sketch
    (adds,) = [launch for launch in found.split("sketch ") if "atomic_add" in launch]
    assert "gather(" not in adds
    assert rows > 1000 or gate(found, task, chip=GPU.chip).state is GateState.RIGHT
