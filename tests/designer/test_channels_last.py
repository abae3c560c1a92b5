"""Tensors in channels_last are taken and returned as they lie: no copy, right in float64, right when interpreted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import named_chip
from kernellab.errors import SketchError
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import code_digest, same_code
from kernellab.lowering.lift import lift
from kernellab.records import GateState, Source
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task
from kernellab.verifier.cases.answers import lost_form
from kernellab.verifier.protocol.memory import lay_out
from tests.lowering.test_triton import call

H100 = Target("triton", Backend.CUDA, find_chip("NVIDIA H100"))
INTERPRETED = Target("triton", Backend.INTERPRETER, H100.chip)
CPU = Target("cpp", Backend.CPU, named_chip("x86-avx512"))
TASK = """import torch
import torch.nn.functional as F
def reference(x, w):
    return {result}
def inputs():
    last = lambda t: t.to(memory_format=torch.{form})
    return last(torch.randn{x}.to(torch.{dtype})), last(torch.randn{w}.to(torch.{dtype}))
"""
CASES = {
    "3x3": ("F.conv2d(x, w, padding=1)", (2, 64, 9, 11), (64, 64, 3, 3), "float16"),
    "bias": ("F.relu(F.conv2d(x, w, padding=1) + 1.0)", (2, 64, 9, 11), (64, 64, 3, 3), "float16"),
    "1x1": ("F.conv2d(x, w)", (3, 48, 7, 5), (24, 48, 1, 1), "float16"),
    "stride": ("F.conv2d(x, w, stride=2)", (2, 32, 9, 11), (16, 32, 3, 3), "float32"),
    "depthwise": ("F.conv2d(x, w, padding=1, groups=24)", (2, 24, 9, 11), (24, 1, 3, 3), "float32"),
    "pointwise": ("torch.relu(x) * 2 + w", (2, 24, 9, 11), (2, 24, 9, 11), "float32"),
    "spatial": ("F.conv3d(x, w, padding=1)", (1, 16, 4, 5, 6), (16, 16, 3, 3, 3), "float16"),
}


def text_of(name: str) -> str:
    result, x, w, dtype = CASES[name]
    form = "channels_last" if len(x) == 4 else "channels_last_3d"
    return TASK.format(result=result, x=x, w=w, dtype=dtype, form=form)


def _writes(sketch: str, task: Task, source: Source) -> bool:
    """Is ``source`` what the lowering writes for ``sketch``? Not every reading is a whole sketch."""
    try:
        program = load_program(sketch)
    except SketchError:
        return False
    return same_code(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), source)


def test_a_task_states_the_memory_format_of_its_arguments_and_results() -> None:
    task = load_task(text_of("3x3"))
    assert [a.last for a in task.args] == [True, True] and task.results[0].last
    assert task.args[0].held.shape == (2, 9, 11, 64) and task.args[0].shape == (2, 64, 9, 11)
    plain = load_task(text_of("3x3").replace("torch.channels_last", "torch.contiguous_format"))
    assert not any(a.last for a in plain.args) and not plain.results[0].last


def test_complex_tensors_are_taken_in_any_format_as_pairs() -> None:
    task = load_task(text_of("pointwise").replace("torch.relu(x) * 2", "x * 2").replace("float32", "complex64"))
    assert not any(a.last for a in task.args)
    judged = gate(RulesDesigner().designs(DesignBrief(task, H100))[0].sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason


@pytest.mark.parametrize("target", [H100, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_first_designs_are_right(name: str, target: Target) -> None:
    task = load_task(text_of(name))
    sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
    judged = gate(sketch, task, chip=target.chip)
    assert judged.state is GateState.RIGHT, judged.reason


@pytest.mark.parametrize("name", ["3x3", "bias", "1x1", "pointwise", "spatial"])
def test_factors_that_lie_side_by_side_are_read_in_place(name: str) -> None:
    sketch = RulesDesigner().designs(DesignBrief(load_task(text_of(name)), H100))[0].sketch
    assert sketch.count("sketch ") == 1, sketch


@pytest.mark.parametrize("name", ["3x3", "bias", "1x1", "depthwise", "pointwise"])
def test_the_result_has_the_references_values_and_format(name: str, tmp_path: Path) -> None:
    task = load_task(text_of(name))
    program = load_program(RulesDesigner().designs(DesignBrief(task, INTERPRETED))[0].sketch)
    source = lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED)
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    (want,) = task.module().reference(tuple(a.double() for a in args))
    assert float((got.double() - want).norm() / want.norm()) < 1e-3
    assert got.is_contiguous(memory_format=torch.channels_last)
    assert _writes(lift(source, task), task, source), "it can be lifted"
    (again,) = call(source, tmp_path, *(a.contiguous() for a in args))
    assert torch.equal(got, again), "any other format is right, too"


def test_an_argument_that_is_written_into_keeps_its_dimensions(tmp_path: Path) -> None:
    task = load_task(text_of("pointwise").replace("return ", "x.mul_(w)\n    return ", 1))
    program = load_program(RulesDesigner().designs(DesignBrief(task, INTERPRETED))[0].sketch)
    x, w = (torch.randn(2, 24, 9, 11).to(memory_format=torch.channels_last) for _ in range(2))
    want = x * w
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, x, w)
    assert torch.allclose(x, want) and torch.allclose(got, torch.relu(want) * 2 + w)


def test_a_cpus_source_can_be_lifted() -> None:
    task = load_task(text_of("pointwise"))
    program = load_program(RulesDesigner().designs(DesignBrief(task, CPU))[0].sketch)
    source = lower(program, bind(program, task, {}, CPU), CPU)
    again = load_program(lift(source, task))
    assert code_digest(lower(again, bind(again, task, {}, CPU), CPU)) == code_digest(source)


def test_the_verifier_hands_arguments_over_in_their_format() -> None:
    x = torch.randn(2, 8, 3, 5).to(memory_format=torch.channels_last)
    assert lay_out([x]).places[0].strides == x.stride()
    assert lay_out([x.contiguous()]).places[0].strides == x.contiguous().stride()


def test_a_result_in_another_format_than_the_references_is_a_condition() -> None:
    last = torch.empty(2, 8, 3, 5).to(memory_format=torch.channels_last)
    plain = torch.empty(2, 8, 3, 5)
    lost = lost_form(1, last.shape, last.stride(), plain.stride())
    assert lost is not None and lost.label == "output 1 not channels_last"
    assert lost_form(1, last.shape, last.stride(), last.stride()) is None
    other = lost_form(0, last.shape, plain.stride(), last.stride())
    assert other is not None and other.label == "output 0 not contiguous"
    assert lost_form(0, last.shape, plain.stride(), plain.stride()) is None
