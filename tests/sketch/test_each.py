"""Small twins in which one number stands for several things, found launch by launch."""

from __future__ import annotations

import pytest
import torch

from kernellab.sketch.check import load_program
from kernellab.sketch.gate.twin import by_launch, twins
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import execute
from kernellab.task import load_task
from kernellab.task.sample.shrink import drawn

TASK = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.randn(512, 512) / 16) for _ in range(2))
    def forward(self, x):
        return torch.relu(x @ self.a) @ self.b
def get_inputs():
    return [torch.randn(512, 512)]
"""
LAYER = """
sketch {name} {{
    tensors: {given}[512, 512]: f32{temp}; {weight}[512, 512]: f32; {made}[512, 512]: f32 {role};
    constexpr: BLOCK = 128 in {{64, 128}};
    @llm_hint("parallel", "grididx")
    for i in range(0, 512, BLOCK):
        @llm_hint("parallel", "grididx")
        for j in range(0, 512, BLOCK):
            acc = alloc([BLOCK, BLOCK], f32, llm_hint=["init_zero"])
            for k in range(0, 512, BLOCK):
                load({given}[i:i+BLOCK, k:k+BLOCK] -> left)
                load({weight}[k:k+BLOCK, j:j+BLOCK] -> right)
                gemm(left, right, acc)
            store({value} -> {made}[i:i+BLOCK, j:j+BLOCK])
}}
"""
SKETCH = LAYER.format(name="one", given="x", temp="", weight="a", made="h", role="temp", value="relu(acc)")
SKETCH += LAYER.format(name="two", given="h", temp=" temp", weight="b", made="y", role="out", value="acc")


def test_a_batch_as_large_as_a_width_is_cut_alone() -> None:
    task, program = load_task(TASK), load_program(SKETCH)
    assert not list(twins(program, task))
    small, sizes, binding = next(iter(by_launch(program, bind(program, task), task)))
    assert {t.name: [str(e) for e in t.shape] for t in small.tensors} == {
        "x": ["2", "512"], "a": ["512", "512"], "h": ["2", "512"], "b": ["512", "512"], "y": ["2", "512"]
    }  # fmt: skip
    assert list(sizes.values()) == [2]
    # the batch, too, is a multiple of the tile that the sketch has
    assert binding.constexpr["BLOCK"] == 2


@pytest.mark.parametrize(("old", "new", "right"), [("", "", True), ("relu(acc)", "acc", False)])
def test_the_gate_runs_what_has_one_number_for_several_things(old: str, new: str, right: bool) -> None:
    task, program = load_task(TASK), load_program(SKETCH.replace(old, new) if old else SKETCH)
    small, sizes, binding = next(iter(by_launch(program, bind(program, task), task)))
    args = drawn(task, sizes, 0)
    assert args is not None
    # tiles of 2 would take long here
    run = execute(small, binding.inputs(args), constexpr={"BLOCK": 128}, f64=True)
    wanted = task.module().results([a.double() for a in args])[0]
    assert torch.allclose(run.outputs["y"], wanted) is right
