"""Rows longer than a tile: a mean and the squares about it, a maximum and the exponentials below it, in one read."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task

#: one core: a few rows are enough for it, and none is shared out among programs
GPU = Target("triton", Backend.CUDA, Chip("test GPU", "gpu", 1))
LENGTH = 20001

TASKS = {
    "normalised": "torch.nn.functional.layer_norm(x, [{length}])",
    "softmax": "torch.softmax(x, 1)",
    "log_softmax": "torch.log_softmax(x, 1)",
    "variance": "x.var(1)",
    "logsumexp": "torch.logsumexp(x, 1)",
    "planes": "torch.nn.functional.group_norm(x.reshape(4, 3, {length} // 3), 1).reshape(4, {length})",
}
TEXT = """
import torch

def reference(x):
    return {body}

def inputs():
    return [torch.randn(4, {length})]
"""


def _rows() -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(4, LENGTH)
    x[1] += 1e4  # a mean that is far from 0
    x[2, :9000] = 0.0  # the elements that each lane meets first are unlike the others
    x[2, 9000:] += 300.0
    x[3, ::7] *= 30.0
    return x


@pytest.mark.parametrize("name", TASKS)
def test_two_reductions_take_one_read_of_a_long_row(name: str, tmp_path: Path) -> None:
    from tests.lowering.test_triton import call

    task = load_task(TEXT.format(body=TASKS[name].format(length=LENGTH), length=LENGTH), "rows")
    sketch = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    reads = 1 if name in ("variance", "logsumexp") else 2
    assert sketch.count("load(x[") == reads, sketch
    program = load_program(sketch)
    x = _rows()
    (got,) = call(lower(program, bind(program, task, {}, GPU), GPU), tmp_path, x)
    (want,), (exact,) = (task.module().results([given]) for given in (x, x.double()))
    far, eager = ((found.double() - exact).norm(dim=-1) / exact.norm(dim=-1) for found in (got, want))
    assert bool((far <= eager.clamp(min=1e-6) * 4).all()), (far, eager)


@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_what_is_not_finite_stays_so(name: str, tmp_path: Path) -> None:
    from tests.lowering.test_triton import call

    task = load_task(TEXT.format(body=TASKS[name], length=LENGTH), "rows")
    sketch = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    program = load_program(sketch)
    x = _rows()
    x[0, :15000] = -math.inf
    x[1] = -math.inf
    x[2, 17000] = math.inf
    x[3, 100] = math.nan
    (got,) = call(lower(program, bind(program, task, {}, GPU), GPU), tmp_path, x)
    torch.testing.assert_close(got, task.module().results([x])[0], equal_nan=True)


def test_narrow_rows_off_16_bytes_take_one_read_for_both(tmp_path: Path) -> None:
    """They are read element by element; of rows on 16 bytes the longest do, others take a pass for each reduction."""
    from tests.lowering.test_triton import call

    def designed(length: int, target: Target) -> tuple[str, Task]:
        text = TEXT.format(body="torch.log_softmax(x, 1)", length=length)
        task = load_task(text.replace(f"{length})]", f"{length}).to(torch.bfloat16)]"), "rows")
        return RulesDesigner().design(DesignBrief(task, target)).sketch, task

    # one core: a few rows are enough for it
    h200 = Target("triton", Backend.CUDA, replace(find_chip("h200"), cores=1))
    (odd, task), (even, _), (short, _) = (designed(n, h200) for n in (50257, 50304, 32768))
    assert odd.count("load(x[") == even.count("load(x[") == 2 and short.count("load(x[") == 3
    assert f"4 * {load_program(even).constexprs[0].name}" in even
    lanes = load_program(odd).constexprs[0]
    assert f"8 * {lanes.name}" in odd and "reduce_sum(exp(parts" in odd, "a lane's elements share one exponential"
    program = load_program(odd)
    x = torch.randn(4, 50257).to(torch.bfloat16)
    x[1, :9000] = -torch.inf
    x[2, 9000:] += 300.0
    x[3, 40000] = torch.nan
    (got,) = call(lower(program, bind(program, task, {}, h200), h200), tmp_path, x)
    exact = torch.log_softmax(x.double(), 1)
    finite = exact.isfinite()
    assert torch.equal(got.isfinite(), finite)
    assert float((got.double() - exact)[finite].norm() / exact[finite].norm()) < 4e-3


def test_the_gradient_of_long_narrow_rows_has_one_exponential_for_several_elements(tmp_path: Path) -> None:
    from tests.lowering.test_triton import call

    body = "((torch.softmax(x.float(), 1) - 0.5) / 4).to(x.dtype)"
    text = TEXT.format(body=body, length=50304).replace("50304)]", "50304).to(torch.bfloat16)]")
    h200 = Target("triton", Backend.CUDA, replace(find_chip("h200"), cores=1, l2_bytes=1 << 16))
    task = load_task(text, "rows")
    sketch = RulesDesigner().design(DesignBrief(task, h200)).sketch
    assert "reduce_sum(exp(parts" in sketch and sketch.count("load(x[") == 2, sketch
    program = load_program(sketch)
    x = torch.randn(4, 50304).to(torch.bfloat16)
    x[1, :9000] = -torch.inf
    x[2, 9000:] += 300.0
    (got,) = call(lower(program, bind(program, task, {}, h200), h200), tmp_path, x)
    exact = (torch.softmax(x.double(), 1) - 0.5) / 4
    assert float((got.double() - exact).norm() / exact.norm()) < 4e-3
