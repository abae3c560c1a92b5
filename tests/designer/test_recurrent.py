"""Recurrent layers that are not unrolled: own launches walk their steps, right in the gate and compiled."""

from __future__ import annotations

import re
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
@pytest.mark.parametrize(
    ("layer", "given"),
    [
        ("nn.GRU(5, 6, dtype=torch.float64)", "torch.randn(4, 3, 5, dtype=torch.float64)"),
        ("nn.GRU(5, 512)", "torch.randn(4, 160, 5)"),
    ],
    ids=["no halves", "more than the chip runs at once"],
)
def test_beside_own_work_a_gpu_leaves_layers_that_no_team_walks_to_the_framework(
    layer: str, given: str, tmp_path: Path
) -> None:
    task = load_task(LAYERS.format(layer=layer, picked="[0].relu().sum(0)", given=given), "layer")
    reply = RulesDesigner().design(DesignBrief(task, GPU))
    assert "gru.input" in reply.sketch and reply.library_calls
    _interpreted(task, reply.sketch, tmp_path)


#: cell, layers, both ways, rows first: how many launches walk them, and in how many steps of the four
AT_ONCE = {
    "a stack of LSTMs, rows first": ("LSTM", 3, False, True, [6]),
    "a stack of GRUs": ("GRU", 3, False, False, [6]),
    "a stack of plain cells": ("RNN", 2, False, False, [5]),
    "both ways": ("LSTM", 1, True, False, [4]),
    "both ways, two deep": ("GRU", 2, True, True, [4, 4]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AT_ONCE)
def test_layers_that_need_not_wait_are_walked_by_one_launch(name: str, tmp_path: Path) -> None:
    cell, deep, both, first, steps = AT_ONCE[name]
    ways, shape = 1 + both, "3, 4" if first else "4, 3"
    states = f"torch.randn({deep * ways}, 3, 32)"
    given = f"torch.randn({shape}, 5), " + (f"({states}, {states})" if cell == "LSTM" else states)
    layer = f"nn.{cell}(5, 32, {deep}, bidirectional={both}, batch_first={first})"
    # all that it gives: the states of the last layer, and the last ones of every layer
    task = load_task(_layered(layer, given), "layer")
    sketch = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    assert "library." not in sketch and sketch.count('@llm_hint("team")') == len(steps)
    assert re.findall(r"for \w+ in range\((\d+)\):\n +@llm_hint\(\"team\"\)", sketch) == list(map(str, steps))
    _interpreted(task, sketch, tmp_path)


def _layered(layer: str, given: str) -> str:
    """A layer and a product behind it, which takes the states and gives the last ones as well."""
    states = given.count("randn") - 1
    inputs = given.replace("(torch", "torch").replace("))", ")") if states == 2 else given
    names = ", ".join(f"s{n}" for n in range(states))
    return f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = {layer}

    def forward(self, x, {names}):
        out, last = self.inner(x, {f"({names})" if states == 2 else names})
        return (torch.relu(out) * 2, *(last if isinstance(last, tuple) else (last,)))

def get_init_inputs():
    return []

def get_inputs():
    return [{inputs}]
"""


TWO = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower, self.upper = nn.GRU(16, 16), nn.GRU(16, 16)

    def forward(self, x):
        out, last = self.lower(x)
        return self.upper({given})[0].relu()

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(4, 3, 16)]
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("given", "launches"), [("out", 1), ("out, last", 2), ("out.relu()", 2)])
def test_a_layer_that_needs_the_other_s_end_waits_for_it(given: str, launches: int, tmp_path: Path) -> None:
    task = load_task(TWO.format(given=given), "layer")
    sketch = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    assert sketch.count("_steps") == launches and "library." not in sketch
    _interpreted(task, sketch, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_short_layers_of_halves_are_designed_step_by_step() -> None:
    """One launch of all steps would round their states at every step, so it takes float32 and float64 alone."""
    half = "nn.RNN(5, 6, dtype=torch.float16)", "[0]", "torch.randn(4, 1, 5, dtype=torch.float16)"
    task = load_task(LAYERS.format(layer=half[0], picked=half[1], given=half[2]), "layer")
    sketch = next(iter(RulesDesigner().designs(DesignBrief(task, CPU)))).sketch
    assert len(load_program(sketch).kernels) >= 4


CROSSED = """
import torch


def reference(x, y, h, wi, wh, bi, bh):
    def walked(x, h):
        return torch.gru(x, h, [wi, wh, bi, bh], True, 1, 0.0, False, False, True)

    a, a_end = walked(x, h)
    c, c_end = walked(y, h)
    return walked(a, c_end)[0], walked(c, a_end)[0]


def inputs():
    steps, cell = [torch.randn(2, 20, 16) for _ in "xy"], [torch.randn(48, 16), torch.randn(48, 16) / 2]
    return (*steps, torch.randn(1, 2, 16), *cell, torch.randn(48), torch.randn(48))
"""


def test_two_stacks_that_need_each_other_s_ends_are_not_both_at_once() -> None:
    task = load_task(CROSSED, "crossed")
    designs = RulesDesigner().designs(DesignBrief(task, GPU))
    assert gate(load_program(designs[0].sketch), task).state is GateState.RIGHT
