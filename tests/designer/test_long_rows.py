"""Rows longer than one program of a GPU holds: top-k, sorted rows, one element of a row, and how they are read."""

from __future__ import annotations

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.run import run
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task
from tests.designer.test_designer import errors

H100 = Target("triton", Backend.CUDA, find_chip("NVIDIA H100 80GB HBM3"))
_HEAD = """import torch
import torch.nn.functional as F

def reference({}):
    return {}

def inputs():
    return ({},)
"""

ORDERS = {
    "in_buckets": ("x", "torch.topk(x, 5, -1)", "torch.randn(2, 8448)"),
    "ragged": ("x", "torch.topk(x, 7)", "torch.randn(2, 8209)"),
    "down_columns": ("x", "torch.topk(x, 3, 0)", "torch.randn(8200, 3)"),
    "smallest_whole_numbers": ("x", "torch.topk(x, 5, largest=False)", "torch.randint(-900, 900, (2, 8209)).int()"),
    "equal_elements": ("x", "torch.topk(x, 60)[0]", "torch.randint(0, 4, (2, 8209)).float()"),
    "of_a_softmax": ("x", "torch.topk(torch.softmax(x, -1), 4)", "torch.randn(2, 8448)"),
    "narrow": ("x", "torch.topk(x, 4)[0]", "torch.randn(2, 9000, dtype=torch.bfloat16)"),
    "sort_and_slice": ("x", "torch.sort(x, -1, descending=True)[0][:, :6]", "torch.randn(2, 8448)"),
    "in_runs": ("x", "torch.sort(x, -1, descending=True)", "torch.randint(-90, 90, (2, 8448)).float()"),
    "whole_runs_of_an_odd_number": ("x", "torch.sort(x, -1)", "torch.randint(-90, 90, (1, 10240)).float()"),
    "ragged_runs_of_columns": ("x", "torch.argsort(x, dim=0, stable=True)", "torch.randn(8200, 2).round()"),
    "many_of_a_row": ("x", "torch.topk(x, 3000, -1).values", "torch.randn(1, 9000, dtype=torch.bfloat16)"),
}


def first(case: tuple[str, str, str]) -> tuple[str, Task]:
    task = load_task(_HEAD.format(*case), "rows")
    return RulesDesigner().design(DesignBrief(task, H100)).sketch, task


@pytest.mark.parametrize("name", ORDERS)
def test_long_rows_are_put_in_order_in_parts(name: str) -> None:
    text, task = first(ORDERS[name])
    assert errors(text) == [], text
    result = gate(load_program(text), task, seconds=0.5)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("count", [2, 40])
def test_equal_elements_are_taken_from_the_front(count: int) -> None:
    """Also where a bucket's best is met again in many others, and where all elements but one are the lowest."""
    text, _ = first(("x", f"torch.topk(x, {count}, -1)", "torch.randn(3, 8209)"))
    x = torch.randint(0, 3, (3, 8209)).float()
    x[1], x[1, 8208] = float("-inf"), 1.0
    _, order = torch.sort(x, dim=-1, descending=True, stable=True)
    _, places = run(load_program(text), {"x": x}).values()
    assert torch.equal(places, order[:, :count])


def test_one_element_of_a_row_that_streams_is_gathered() -> None:
    text, task = first(("x, t", "F.cross_entropy(x, t)", "torch.randn(4, 20000), torch.randint(0, 20000, (4,))"))
    assert "gather(x[" in text and "== chosen" not in text, text
    assert gate(load_program(text), task, seconds=0.5).state is GateState.RIGHT
    held, _ = first(("x, t", "F.cross_entropy(x, t)", "torch.randn(4, 2000), torch.randint(0, 2000, (4,))"))
    assert "gather(x[" not in held, held


def test_a_place_outside_of_the_row_counts_nothing() -> None:
    body = "torch.where(torch.arange(20000) == t[:, None], x * 2, 0.0).sum(-1) + x.sum(-1)"
    text, task = first(("x, t", body, "torch.randn(4, 20000), torch.tensor([3, -1, 19999, 20000])"))
    assert "gather(x[" in text, text
    result = gate(load_program(text), task, seconds=0.5)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


def test_threads_are_counted_by_what_runs_along_the_tile() -> None:
    text, _ = first(("w, i", "F.embedding(i, w)", "torch.randn(50, 4096).bfloat16(), torch.randint(0, 50, (64,))"))
    assert "BLOCK = 1024" in text and "num_warps = 4 " in text, text


@pytest.mark.parametrize(
    ("length", "block"),
    [
        (32768, "BLOCK = 16384"),
        (32776, "LANES = 4096"),
        (50304, "LANES = 4096"),
        (57344, "LANES = 8192"),
        (1 << 19, "LANES = 8192"),
    ],
)
def test_rows_that_are_read_again_stay_in_the_cache(length: int, block: str) -> None:
    """One program a core; the longest rows take a pass less, whose elements share exponentials."""
    text, _ = first(("x", "torch.softmax(x, -1)", f"torch.randn(1024, {length}, dtype=torch.bfloat16)"))
    assert f"{block} " in text, text


def test_a_factor_of_the_row_leaves_one_element_to_count() -> None:
    body = "(torch.where(torch.arange(20000) == t[:, None], -1.0, 0.0) * c[:, None]).sum(-1) + x.amax(-1)"
    text, task = first(("x, t, c", body, "torch.randn(4, 20000), torch.tensor([3, -1, 19999, 20000]), torch.randn(4)"))
    assert "arange(" not in text, text
    result = gate(load_program(text), task, seconds=0.5)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"
    given = {
        "x": torch.zeros(4, 20000),
        "t": torch.tensor([3, -1, 4, 5]),
        "c": torch.tensor([torch.inf, torch.inf, 2.0, 3.0]),
    }
    (sums,) = run(load_program(text), given).values()
    assert sums.isnan().tolist() == [True, True, False, False] and sums[2:].tolist() == [-2.0, -3.0]


def test_narrow_rows_that_stay_in_the_cache_have_a_pass_for_each_reduction() -> None:
    drawn = "torch.randn(512, 20000, dtype=torch.{})"
    text, task = first(("x", "torch.softmax(x.float(), -1).to(x.dtype)", drawn.format("bfloat16")))
    assert text.count("exp(") == 2 and "grown" not in text, text
    assert gate(load_program(text), task, seconds=0.5).state is GateState.RIGHT
    wide, _ = first(("x", "torch.softmax(x, -1)", drawn.format("float32")))
    assert "grown" in wide, wide
    long, _ = first(("x", "torch.softmax(x.float(), -1).to(x.dtype)", "torch.randn(512, 100000, dtype=torch.bfloat16)"))
    assert "grown" in long, long


def test_parts_of_a_row_and_what_is_found_for_each_leave_in_one_launch() -> None:
    scales = "x.reshape(16, 4, 64).abs().amax(-1, True)"
    body = f"(x.reshape(16, 4, 64) / {scales}).reshape(16, 256), ({scales})[..., 0]"
    text, task = first(("x", body, "torch.randn(16, 256)"))
    assert text.count("\nsketch ") + text.startswith("sketch ") == 1, text
    assert gate(load_program(text), task, seconds=0.5).state is GateState.RIGHT


def test_of_several_reduced_axes_a_long_one_is_cut_up() -> None:
    """The first of them would make four pieces."""
    text, task = first(
        ("x, c", "(x * c[:, None]).sum((0, 1, 2))", "torch.randn(4, 512, 4, 128), torch.randn(512, 128)")
    )
    assert "ceil(512, CHUNK)" in text and "ceil(4, CHUNK)" not in text, text
    result = gate(load_program(text), task, seconds=0.5)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"
