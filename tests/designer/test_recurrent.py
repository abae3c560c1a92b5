"""Recurrent layers that are not unrolled: own launches walk their steps, right in the gate and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from tests.designer.coverage import CPU
from tests.designer.practice import compare

GPU = Target("triton", Backend.CUDA, Chip("test GPU", "gpu", 132))

LAYERS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = {layer}

    def forward(self, *given):
        return self.inner(*given){picked}

def get_init_inputs():
    return []

def get_inputs():
    return [{given}]
"""
#: layer, what of its results is returned, its inputs
CASES = {
    "both ways, two deep": ("nn.GRU(5, 6, 2, bidirectional=True)", "", "torch.randn(4, 3, 5), torch.randn(4, 3, 6)"),
    "cells at the end": ("nn.LSTM(5, 6, bidirectional=True)", "[1][1]", "torch.randn(4, 3, 5)"),
    "rows first": ("nn.RNN(5, 6, batch_first=True)", "[0]", "torch.randn(3, 4, 5)"),
    "no bias, relu": ("nn.RNN(5, 6, bias=False, nonlinearity='relu')", "[1]", "torch.randn(4, 3, 5)"),
    "float64, one row": ("nn.GRU(5, 6, dtype=torch.float64)", "[0]", "torch.randn(4, 1, 5, dtype=torch.float64)"),
}


@pytest.fixture(autouse=True)
def _few_steps_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of steps take the gate tens of seconds."""
    monkeypatch.setattr("kernellab.task.recurrent._MOST_STEPS", 2)


def _task(name: str) -> Task:
    layer, picked, given = CASES[name]
    return load_task(LAYERS.format(layer=layer, picked=picked, given=given), "layer")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_steps_are_walked_by_own_launches(name: str) -> None:
    task = _task(name)
    reply = RulesDesigner().design(DesignBrief(task, CPU))
    assert "_steps" in reply.sketch and "library." not in reply.sketch and not reply.library_calls
    result = gate(reply.sketch, task, seconds=2.0)
    assert result.state is GateState.RIGHT, result.reason
    program = load_program(reply.sketch)
    compare(task, lower(program, bind(program, task, {}, CPU), CPU))


@pytest.mark.filterwarnings("ignore")
def test_a_gpu_s_threads_wait_for_the_state_of_the_step_before(tmp_path: Path) -> None:
    task = _task("both ways, two deep")
    sketch = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    assert "tl.debug_barrier()" in _interpreted(task, sketch, tmp_path)


def _interpreted(task: Task, sketch: str, folder: Path) -> str:
    """The Triton kernel of a sketch, which gives what the layer does."""
    from tests.lowering.test_triton import call

    program = load_program(sketch)
    source = lower(program, bind(program, task, {}, GPU), GPU)
    args = task.module().sample(seed=1)
    found = call(source, folder, *args)
    found = found if isinstance(found, tuple) else (found,)
    for got, want in zip(found, task.module().results(args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    return source.files["kernel.py"]


SCALED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.{cell}(5, 20, batch_first=True)

    def forward(self, x, *first):
        out = self.inner(x, first if len(first) > 1 else first[0])
        return out[0]

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(3, 6, 5), *[torch.randn(1, 3, 20) for _ in range({states})]]
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("cell", "states"), [("LSTM", 2), ("GRU", 1), ("RNN", 1)])
@pytest.mark.parametrize(("first", "weights"), [(1.0, 1.0), (1e7, 1e-6), (1e-3, 3e5)])
def test_a_gpu_s_steps_are_of_halves_and_as_near_as_float32(
    cell: str, states: int, first: float, weights: float, tmp_path: Path
) -> None:
    from tests.lowering.test_triton import call

    task = load_task(SCALED.format(cell=cell, states=states), "layer")
    sketch = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    program = load_program(sketch)
    assert "gemm(high, weights_low_0, sum_0)" in sketch
    args = list(task.module().sample(seed=1))
    args[1] = args[1] * first
    # every second column of the weights by itself: each has a scale of its own
    across = next(n for n, a in enumerate(args) if a.ndim == 2 and a.shape[1] == 20)
    args[across] = args[across].clone()
    args[across][::2] *= weights
    want, exact = (task.module().results(given)[0] for given in (args, [a.double() for a in args]))
    found = call(lower(program, bind(program, task, {}, GPU), GPU), tmp_path, *args)
    got = found[0] if isinstance(found, tuple) else found
    far = (want - exact).norm() / exact.norm()
    assert (got - exact).norm() / exact.norm() < max(8 * far, 1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", [GPU, CPU], ids=["gpu", "cpu"])
def test_arguments_may_have_the_names_that_tiles_have(target: Target) -> None:
    text = SCALED.format(cell="GRU", states=1).replace("x, *first", "scale, state").replace(
        "self.inner(x, first if len(first) > 1 else first[0])", "self.inner(scale, state)"
    )  # fmt: skip
    task = load_task(text, "layer")
    sketch = RulesDesigner().design(DesignBrief(task, target)).sketch
    assert "_steps" in sketch
    load_program(sketch)


@pytest.mark.filterwarnings("ignore")
def test_beside_own_work_a_gpu_leaves_layers_to_the_framework(tmp_path: Path) -> None:
    text = LAYERS.format(layer="nn.GRU(5, 6)", picked="[0].relu().sum(0)", given="torch.randn(4, 3, 5)")
    task = load_task(text, "layer")
    reply = RulesDesigner().design(DesignBrief(task, GPU))
    assert "gru.input" in reply.sketch and reply.library_calls
    _interpreted(task, reply.sketch, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_short_layers_of_halves_are_designed_step_by_step() -> None:
    """One launch of all steps would round their states at every step, so it takes float32 and float64 alone."""
    half = "nn.RNN(5, 6, dtype=torch.float16)", "[0]", "torch.randn(4, 1, 5, dtype=torch.float16)"
    task = load_task(LAYERS.format(layer=half[0], picked=half[1], given=half[2]), "layer")
    sketch = next(iter(RulesDesigner().designs(DesignBrief(task, CPU)))).sketch
    assert len(load_program(sketch).kernels) >= 4
