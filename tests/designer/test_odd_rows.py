"""Long rows whose length is no multiple of 16 bytes: their loop begins where a vector does, and moves whole vectors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer.tile.why import FROM_VECTOR
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task
from tests.lowering.test_triton import TARGET, call

H200 = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
_TASK = """import torch
import torch.nn.functional as F

def reference({}):
    return {}

def inputs():
    return ({},)
"""
CASES = {
    "log_softmax": ("x", "torch.log_softmax(x, -1)", "torch.randn(600, 131071, dtype=torch.bfloat16)"),
    "softmax_of_floats": ("x", "torch.softmax(x, -1)", "torch.randn(600, 33003)"),
    "softmax_of_sizes": ("x", "torch.softmax(x.abs(), -1)", "torch.randn(600, 33001)"),
    "part_of_planes": ("x", "torch.softmax(x[:, :-1], -1)", "torch.randn(600, 3, 20003)"),
    "planes": ("x", "torch.softmax(x.transpose(0, 1), -1)", "torch.randn(600, 2, 20003)"),
    "few_tiles": ("x", "torch.log_softmax(x, -1)", "torch.randn(600, 20003, dtype=torch.bfloat16)"),
    "one_tile": ("x", "F.rms_norm(x, (20001,))", "torch.randn(600, 20001, dtype=torch.bfloat16)"),
    "place": ("x", "x.argmax(-1)", "torch.randn(600, 20001, dtype=torch.bfloat16)"),
    "cross_entropy": (
        "x, t", "F.cross_entropy(x, t)", "torch.randn(600, 20001, dtype=torch.bfloat16), torch.randint(0, 9, (600,))",
    ),
}  # fmt: skip


def first(name: str) -> tuple[str, Task]:
    """The first design for many rows, and the task, both cut to three rows: few long rows would be split."""
    text = _TASK.format(*CASES[name])
    sketch = RulesDesigner().design(DesignBrief(load_task(text, name), H200)).sketch
    return cut(sketch), load_task(cut(text), name)


def cut(text: str) -> str:
    return re.sub(r"\b600\b", "3", text)


@pytest.mark.parametrize("name", CASES)
def test_a_loop_over_odd_rows_begins_where_a_vector_does(name: str, tmp_path: Path) -> None:
    text, task = first(name)
    assert "range(0 - " in text and FROM_VECTOR in text, text
    assert gate(load_program(text), task, seconds=0.5).state is GateState.RIGHT, text
    program = load_program(text)
    source = lower(program, bind(program, task, {}, TARGET), TARGET)
    assert "kl_read_row(" in source.files["kernel.py"], source.files["kernel.py"]
    torch.manual_seed(3)
    arguments = task.module().sample()
    (value,) = call(source, tmp_path, *arguments)
    wanted = task.module().reference(arguments)[0]
    near = {"rtol": 1e-4, "atol": 1e-7} if value.dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-5}
    torch.testing.assert_close(value.cpu().double(), wanted.double(), **near)


@pytest.mark.parametrize(
    "result", ["torch.softmax(x[:, 1:], -1)", "torch.softmax(x[:, 1:] - x[:, :-1], -1)", "torch.softmax(x[:, :-1], -1)"]
)
def test_a_part_of_a_row_begins_at_its_first_element(result: str) -> None:
    text = _TASK.format("x", result, "torch.randn(600, 33004)")
    sketch = cut(RulesDesigner().design(DesignBrief(load_task(text, "part"), H200)).sketch)
    assert "range(0 - " not in sketch, sketch
    assert gate(load_program(sketch), load_task(cut(text), "part"), seconds=0.5).state is GateState.RIGHT, sketch


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_lies_before_and_after_a_row_is_no_part_of_it(value: float, tmp_path: Path) -> None:
    text, task = first("log_softmax")
    program = load_program(text)
    source = lower(program, bind(program, task, {}, TARGET), TARGET)
    x = torch.randn(3, 131071, dtype=torch.bfloat16)
    x[0], x[2] = value, value
    (got,) = call(source, tmp_path, x)
    wanted = torch.log_softmax(x, -1)
    torch.testing.assert_close(got[1].float(), wanted[1].float(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2, equal_nan=True)


def _compiled(text: str, task: Task, tmp_path: Path) -> dict[str, int]:
    """What the instructions of a design for an H200 are, by name, from its PTX."""
    program = load_program(text)
    source = lower(program, bind(program, task, {}, H200), H200)
    (tmp_path / "odd.py").write_text(source.files["kernel.py"])
    torch.save(task.module().sample(), tmp_path / "odd.pt")
    script = Path(__file__).parents[1] / "lowering" / "compile_for_gpu.py"
    env = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])["odd"]
    return counts


def test_odd_rows_of_float8_have_a_pad(tmp_path: Path) -> None:
    text = _TASK.format("x", "x.float().amax(-1)", "torch.randn(600, 50257).to(torch.float8_e4m3fn)")
    sketch = RulesDesigner().design(DesignBrief(load_task(text, "bytes"), H200)).sketch
    assert "range(0 - " in sketch, sketch
    assert _compiled(cut(sketch), load_task(cut(text), "bytes"), tmp_path)


def test_only_the_ends_of_an_odd_row_move_single_elements(tmp_path: Path) -> None:
    """Compiled for an H200: each tile is one vector of 16 bytes a lane; the single elements stand under a condition."""
    counts = _compiled(*first("log_softmax"), tmp_path)
    wide = {name: n for name, n in counts.items() if ".v4.b32" in name}
    assert sum(n for name, n in wide.items() if name.startswith("ld.")) >= 2, counts
    assert sum(n for name, n in wide.items() if name.startswith("st.")) >= 1, counts


def test_rows_of_whole_vectors_begin_at_their_first_element() -> None:
    head = _TASK.format("x", "torch.log_softmax(x, -1)", "torch.randn(600, 131072, dtype=torch.bfloat16)")
    text = RulesDesigner().design(DesignBrief(load_task(head, "even"), H200)).sketch
    assert "range(0 - " not in text, text


_OF_DIMS = """import torch
from kernellab import Dim
M = Dim("M", 3, 131072)
N = Dim("N", 20001, 65537)

def reference(x):
    return torch.softmax(x, -1)

def inputs(M=65536, N=50257):
    return (torch.randn(M, N, dtype=torch.bfloat16),)
"""


def test_the_end_of_a_tensor_is_counted_in_64_bits_where_its_places_are() -> None:
    """From 2^31 elements on, sizes multiplied in 32 bits would end the tensor before its rows do."""
    task = load_task(_OF_DIMS, "of_dims")
    program = load_program(RulesDesigner().design(DesignBrief(task, H200)).sketch)
    source = lower(program, bind(program, task, {}, H200), H200).files["kernel.py"]
    reads = re.findall(r"kl_read_row\(x, ([^,]*, [^,]*), ", source)
    assert reads and set(reads) == {"tl.cast(M, INDEX) * N"}, source
