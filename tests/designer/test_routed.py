"""Rows multiplied by matrices that an index picks: each matrix is read once, and its rows alone are stored."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import KernellabError
from kernellab.lowering import lower
from kernellab.lowering.triton.source import why_not_asynchronous
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task
from tests.designer.test_designer import CPU
from tests.lowering.test_triton import call

_FOUND = find_chip("NVIDIA H200")
assert _FOUND is not None
H200 = Target("triton", Backend.CUDA, _FOUND)
INTERPRETED = Target("triton", Backend.INTERPRETER, H200.chip)
TASK = """import torch
import torch.nn.functional as F
def reference(x, i, w, u, v, b):
    {body}
def inputs():
    made = lambda *shape: (torch.randn(*shape) * 0.3).to(torch.{dtype})
    i = torch.randint(0, {matrices}, ({rows},))
    many = {matrices}
    return made({rows}, 72), i, made(many, 72, 88), made(many, 72, 88), made(many, 88, 40), made(many, 88)
"""
PLAIN = "return (x[:, None] @ w[i])[:, 0]"
BODIES = {
    "picked": PLAIN,
    "turned": "return torch.bmm(torch.index_select(w, 0, i).transpose(1, 2), x[:, :, None])[:, :, 0]",
    "sums": "return (x[:, :, None] * w[i]).sum(1)",
    "counted from the end": "return (x[:, None] @ w[i - 5])[:, 0]",
    "epilogue": "return F.relu(torch.einsum('td,tdf->tf', x, w[i]) + b[i])",
    "layers": "h = F.silu(torch.einsum('td,tdf->tf', x, w[i])) * torch.einsum('td,tdf->tf', x, u[i])\n"
    "    return torch.einsum('tf,tfd->td', h, v[i])",
    "norm": "y = torch.einsum('td,tdf->tf', x, w[i]).float()\n    return y / y.square().mean(-1, keepdim=True).sqrt()",
    "two matrices a row": "j = torch.stack((i, (i * 3 + 1) % w.shape[0]), 1)\n"
    "    return torch.einsum('td,tkdf->tkf', x, w[j])",
    "matrices from the end": "return (x[:, None] @ w[i.flip(0)])[:, 0]",
    "gathered rows": "return torch.einsum('td,tdf->tf', x[i * 7 % x.shape[0]], w[i])",
}


def text_of(name: str, dtype: str = "bfloat16", rows: int = 37, matrices: int = 5) -> str:
    return TASK.format(body=BODIES[name], dtype=dtype, rows=rows, matrices=matrices)


def sketch_of(text: str, target: Target = H200) -> str:
    return RulesDesigner().designs(DesignBrief(load_task(text), target))[0].sketch


@pytest.mark.parametrize("name", BODIES)
def test_each_matrix_is_multiplied_by_all_rows_and_the_values_are_right(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    task, sketch = load_task(text), sketch_of(text)
    products = 3 if name == "layers" else 1
    assert sketch.count("whole=true") == sketch.count("gemm(") == products, sketch
    judged = gate(sketch, task, chip=H200.chip)
    assert judged.state is GateState.RIGHT, judged.reason
    args = task.module().sample(seed=3)
    program = load_program(sketch_of(text, INTERPRETED))
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    (want,) = task.module().reference(tuple(a.double() if a.is_floating_point() else a for a in args))
    assert float((got.double() - want).norm() / want.norm()) < 1e-2


@pytest.mark.parametrize("body", ["x.flip(0) @ w[0]", "(x @ w[0]).flip(0)", "x.flip(1) @ w[0] + b[0].flip(0)"])
def test_a_product_reads_from_the_end_of_an_axis(body: str) -> None:
    text = TASK.format(body=f"return {body}", dtype="bfloat16", rows=37, matrices=5)
    judged = gate(sketch_of(text), load_task(text), chip=H200.chip)
    assert judged.state is GateState.RIGHT, judged.reason


def test_weights_are_read_once_each_and_not_once_a_row() -> None:
    text = text_of("picked", rows=64, matrices=8).replace("72", "512").replace("88", "1024")
    read = cost(load_program(sketch_of(text)), {}, chip=H200.chip).bytes_slow
    assert read < 1.3 * 8 * 512 * 1024 * 2


@pytest.mark.parametrize(("rows", "matrices"), [(12, 2), (37, 30), (512, 128)])
def test_few_rows_for_each_matrix_read_their_own(rows: int, matrices: int) -> None:
    assert "whole=true" not in sketch_of(text_of("picked", rows=rows, matrices=matrices))


def test_float32_is_multiplied_at_its_precision() -> None:
    text = text_of("picked", "float32")
    sketch = sketch_of(text)
    assert "whole=true" in sketch and "bf16x6" in sketch
    judged = gate(sketch, load_task(text), chip=H200.chip)
    assert judged.state is GateState.RIGHT, judged.reason


def test_a_promise_that_is_not_kept_is_found() -> None:
    """A row that no matrix stores: the gate sees that it is not written."""
    text = text_of("picked")
    right = sketch_of(text)
    wrong = right.replace(" == i2, ", " == i2 + 1, ")
    assert wrong != right and gate(wrong, load_task(text), chip=H200.chip).state is not GateState.RIGHT


GROUPS = """import torch
def reference(x, w, ends):
    return torch._grouped_mm(x, w, offs=ends)
def inputs():
    made = lambda *shape: (torch.randn(*shape) * 0.3).to(torch.bfloat16)
    return made({rows}, 64), made(4, 64, 48), torch.tensor({ends}, dtype=torch.int32)
"""


@pytest.mark.parametrize(("rows", "ends"), [(40, [8, 8, 24, 40]), (304, [160, 160, 168, 304])])
def test_rows_of_a_group_are_multiplied_by_its_own_matrix(rows: int, ends: list[int]) -> None:
    """Many rows lie in whole blocks first, of which each has one matrix. A group may be empty."""
    text = GROUPS.format(rows=rows, ends=ends)
    sketch = sketch_of(text)
    assert ("gather(w[" in sketch) == (rows > 256)
    judged = gate(sketch, load_task(text), chip=H200.chip)
    assert judged.state is GateState.RIGHT, judged.reason


@pytest.mark.parametrize("ends", [[160, 160, 168, 304], [0, 0, 300, 304], [128, 257, 303, 304], [0, 304, 304, 304]])
def test_a_copy_engine_s_blocks_are_read_and_written_where_their_rows_lie(ends: list[int], tmp_path: Path) -> None:
    """Ragged and empty groups: rows past a group's end are not written by its block."""
    text = GROUPS.format(rows=304, ends=ends).replace("48)", "128)")
    task, sketch = load_task(text), sketch_of(text)
    assert "in_turn" in sketch and "whole=true" in sketch and "_rows[" not in sketch
    assert (
        why_not_asynchronous(load_program(sketch), bind(load_program(sketch), task, {}, H200), H200)["task_finish"]
        == ""
    )
    judged = gate(sketch, task, chip=H200.chip)
    assert judged.state is GateState.RIGHT, judged.reason
    args, program = task.module().sample(seed=3), load_program(sketch)
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    x, w, stops = args
    want = torch.cat([x[a:b].double() @ w[g].double() for g, (a, b) in enumerate(pairwise([0, *stops.tolist()]))])
    assert float((got.double() - want).norm() / want.norm()) < 1e-2


def test_what_a_product_of_groups_has_stored_is_read_by_the_next_one() -> None:
    """Its tensor was copied once more."""
    text = GROUPS.format(rows=304, ends=[160, 160, 168, 304]).replace("48)", "128), made(4, 128, 64)")
    text = text.replace("(x, w, ends)", "(x, w, v, ends)").replace(
        "return torch._grouped_mm(x, w, offs=ends)",
        "return torch._grouped_mm(torch._grouped_mm(x, w, offs=ends), v, offs=ends)",
    )
    sketch = sketch_of(text)
    assert sketch.count("-> _grouped_mm_rows[") == 1 and "gather(_grouped_mm_rows[" in sketch
    assert "_all" not in sketch
    judged = gate(sketch, load_task(text), chip=H200.chip)
    assert judged.state is GateState.RIGHT, judged.reason


def test_rows_along_a_dim_are_refused_as_that() -> None:
    text = GROUPS.format(rows="M", ends="[M // 4, M // 2, 3 * M // 4, M]").replace("inputs()", "inputs(M)")
    text = text.replace("import torch\n", 'import torch\nfrom kernellab import Dim\nM = Dim("M", 64, 4096)\n')
    with pytest.raises(KernellabError, match="fixed number of rows"):
        sketch_of(text)


@pytest.mark.parametrize("ends", [[160, 160, 168, 304], [0, 0, 300, 304], [128, 256, 304, 304]])
def test_groups_are_right_on_a_cpu(ends: list[int]) -> None:
    task = load_task(GROUPS.format(rows=304, ends=ends))
    sketch = RulesDesigner().designs(DesignBrief(task, CPU))[0].sketch
    judged = gate(load_program(sketch), task)
    assert judged.state is GateState.RIGHT, judged.reason


EXPERTS = """import torch
import torch.nn.functional as F
def reference(x, up, down, rows, ends):
    a, b = torch._grouped_mm(x[rows], up, offs=ends).chunk(2, -1)
    y = torch._grouped_mm(F.silu(a) * b, down, offs=ends)
    return torch.zeros_like(x).index_add(0, rows, y)
def inputs():
    made = lambda *shape: (torch.randn(*shape) * 0.3).to(torch.bfloat16)
    rows = torch.cat([torch.randperm(150), torch.randperm(150)])
    return made(150, 64), made(3, 64, 96), made(3, 48, 64), rows, torch.tensor([150, 150, 300], dtype=torch.int32)
"""


@pytest.mark.parametrize("target", [CPU, H200], ids=["cpu", "gpu"])
def test_groups_follow_each_other(target: Target) -> None:
    """What a product of groups makes is read as rows again."""
    task = load_task(EXPERTS)
    sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
    judged = gate(load_program(sketch), task, chip=target.chip)
    assert judged.state is GateState.RIGHT, judged.reason
