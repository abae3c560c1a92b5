"""Lifting our own sources: the sketch that comes back is right, lowers to the same text, and moves between DSLs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernellab import sketch
from kernellab.agents.briefs import DesignBrief
from kernellab.agents.designer import RulesDesigner
from kernellab.bench.suites import BUILTIN
from kernellab.cli_lift import lifted
from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.lowering.lift import lift, retarget
from kernellab.records import GateState, Source
from kernellab.sketch.bind import bind
from kernellab.sketch.check import load_program
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21))
GPU = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
BOTH = {"triton": GPU, "cpp": CPU}
MOVED = [
    "softmax/softmax", "softmax/logsumexp", "normalisation/layer_norm", "normalisation/rms_norm",
    "normalisation/group_norm", "pointwise/adam_step", "pointwise/swiglu", "pointwise/gelu_bf16", "loss/mse",
    "loss/cross_entropy", "reduction/argmax", "reduction/column_sum", "reduction/sum_of_squares", "scan/cumsum",
    "matmul/matmul_bias_gelu", "matmul/linear_relu",
]  # fmt: skip


def _task(name: str) -> Task:
    return load_task(BUILTIN / f"{name}.py")


def _source(text: str, task: Task, target: Target) -> Source:
    program = load_program(text)
    return lower(program, bind(program, task, {}, target), target)


def _text(source: Source) -> dict[str, str]:
    """Without the numbers of the sketch's lines, which move with its comments and blank lines."""
    return {name: re.sub(r"// \d+: ", "// ", text) for name, text in source.files.items()}


@pytest.mark.parametrize("dsl", BOTH)
@pytest.mark.parametrize("name", MOVED)
def test_a_lifted_sketch_lowers_to_the_text_that_it_came_from(name: str, dsl: str) -> None:
    task = _task(name)
    source = _source(RulesDesigner().design(DesignBrief(task, BOTH[dsl])).sketch, task, BOTH[dsl])
    for text in lift(source):
        again = _source(text, task, BOTH[dsl])
        if _text(again) == _text(source):
            assert sketch.format(text) == sketch.format(sketch.format(text))
            assert next(t for t in lift(again) if _text(_source(t, task, BOTH[dsl])) == _text(source)) == text
            return
    pytest.fail("no reading of the source lowers to it")


@pytest.mark.parametrize("name", ["softmax/softmax", "loss/mse", "normalisation/layer_norm", "matmul/matmul_bias_gelu"])
@pytest.mark.parametrize(("first", "second"), [("cpp", "triton"), ("triton", "cpp")])
def test_a_kernel_moves_to_the_other_dsl_through_its_sketch(name: str, first: str, second: str) -> None:
    task = _task(name)
    source = _source(RulesDesigner().design(DesignBrief(task, BOTH[first])).sketch, task, BOTH[first])
    text, found = lifted(source, task, {})
    assert found.state is GateState.RIGHT, found.reason
    moved = sketch.format(retarget(text, gpu=second == "triton"))
    assert ("coreidx" in moved) == (second == "cpp") and ("grididx" in moved) == (second == "triton")
    assert sketch.gate(moved, task, seconds=0.2).state is GateState.RIGHT
    assert _source(moved, task, BOTH[second]).dsl == second


def test_a_foreign_source_is_refused_with_the_way_to_lift_it() -> None:
    foreign = Source(dsl="triton", files={"kernel.py": "import torch\n\ndef kernel(x):\n    return x * 2\n"})
    with pytest.raises(LoweringError, match="does not name the sketch"):
        list(lift(foreign))
    with pytest.raises(LoweringError, match="cuda_c"):
        list(lift(Source(dsl="cuda_c", files={"kernel.py": ""})))


def test_the_command_lifts_gates_and_writes_the_other_dsl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernellab.cli import main

    name = "softmax/logsumexp"
    task = _task(name)
    folder = tmp_path / "cpp"
    folder.mkdir()
    for file, text in _source(RulesDesigner().design(DesignBrief(task, CPU)).sketch, task, CPU).files.items():
        (folder / file).write_text(text)
    out = tmp_path / "triton"
    call = ["sketch", "lift", str(folder), "--task", str(BUILTIN / f"{name}.py"), "--to", "triton", "--out", str(out)]
    assert main(call) == 0
    assert "grididx" in capsys.readouterr().out
    assert "@triton.jit" in (out / "source" / "kernel.py").read_text() and (out / "logsumexp.sketch").exists()
