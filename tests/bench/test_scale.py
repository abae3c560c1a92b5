"""Cutting a task along its batch: the smaller problem is still the same problem."""

from __future__ import annotations

import re

import pytest
import torch

from kernellab.bench.scale import _rounded_down, scaled
from kernellab.bench.suites import load_suite
from kernellab.errors import TaskError
from kernellab.options.suite import parse_bytes
from kernellab.task import load_task
from kernellab.task.sample.sizes import input_bytes

LIMIT = 1 << 20


@pytest.mark.parametrize("suite_task", load_suite("builtin:static"), ids=lambda t: t.name)
def test_a_static_task_is_cut_to_the_limit_and_computes_the_same_on_what_is_left(suite_task) -> None:  # type: ignore[no-untyped-def]
    task = load_task(suite_task.text, suite_task.name)
    small = scaled(task, LIMIT)
    indices = any(a.is_tensor and a.dtype.startswith("int") for a in task.args)
    if input_bytes(task) <= LIMIT or (indices and not small.words):
        assert small.text == task.text and not small.words
        return
    cut = load_task(small.text, suite_task.name)
    whole = sum(a.nbytes for a, spec in zip(task.module().sample(), task.args, strict=True) if spec.key)
    # the extents that a window slides over are no batch, and stay
    least = all(int(size) <= 37 for size in re.findall(r"-> (\d+)", small.words))
    fits = input_bytes(cut) <= 2.1 * LIMIT + whole
    assert fits or least, "parameters stay whole, and no axis is cut to nothing"
    assert input_bytes(cut) < input_bytes(task)
    args = cut.module().sample()
    for mine, theirs in zip(cut.module().reference(args), task.module().reference(args), strict=True):
        assert torch.equal(mine, theirs)


def test_a_kernelbench_task_is_cut_through_its_get_inputs() -> None:
    text = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x).relu()

def get_inputs():
    return [torch.randn(16384, 64)]

def get_init_inputs():
    return [64]
"""
    cut = load_task(scaled(load_task(text, "linear"), LIMIT).text, "linear")
    rows, columns = cut.args[0].shape
    assert 1900 < rows < 2048, "x and y of a row take 512 bytes, the parameters 16 kB"
    assert columns == 64, "an axis that a parameter shares stays"


def test_axes_that_vary_together_are_cut_no_further_than_the_limit_asks() -> None:
    text = """
import torch

N = 2048

class Model(torch.nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
"""

    def extents(result: str) -> tuple[int | str, ...]:
        task = load_task(text.replace("{result}", result), "square")
        return load_task(scaled(task, LIMIT).text, "square").args[0].shape

    assert extents("x @ x") == (320, 320), "8 * 362 * 362 bytes are just below the limit; 320 keeps the power of two"
    assert extents("x.cumsum(1)") == (64, 2048), "a batch as large as the rows are long is cut alone"


def test_a_cut_extent_keeps_what_powers_of_two_cost_it_little() -> None:
    assert [_rounded_down(b, s) for b, s in ((256, 255), (4096, 362), (128, 12), (100, 37), (4095, 99))] == [
        224, 320, 12, 36, 99,
    ]  # fmt: skip


def test_a_number_in_a_tuple_is_cut_where_it_stands() -> None:
    text = """
import torch

shape = (2048,)
batch = 2048

class Model(torch.nn.Module):
    def forward(self, x):
        return x @ x

def get_inputs():
    return [torch.randn(batch, *shape)]

def get_init_inputs():
    return []
"""
    small = scaled(load_task(text, "tuple"), LIMIT)
    assert "_at_full_size" not in small.text, "nothing large is drawn to be sliced"
    assert [int(n) for n in load_task(small.text, "tuple").args[0].shape] == [320, 320]


def test_axes_under_a_window_are_cut_where_the_batch_does_not_suffice() -> None:
    text = """
import torch

height = width = 256

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(16, 16, 3)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn(8, 16, height, width)]

def get_init_inputs():
    return []
"""
    task = load_task(text, "window")
    small = scaled(task, LIMIT)
    cut = load_task(small.text, "window")
    batch, channels, height, width = (int(n) for n in cut.args[0].shape)
    assert (batch, channels) == (3, 16), "the batch first, and no axis that a parameter shares"
    assert 33 <= min(height, width) <= max(height, width) < 110
    assert input_bytes(cut) <= LIMIT and "256 -> " in small.words


def test_a_dynamic_task_stays_as_it_is() -> None:
    task = load_task(next(t.text for t in load_suite("builtin:dynamic")), "dynamic")
    assert scaled(task, 1024).text == task.text


@pytest.mark.parametrize(("text", "value"), [("64M", 64 << 20), ("1g", 1 << 30), ("4096", 4096), ("2KiB", 2048)])
def test_numbers_of_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "many", "-3M", "0"])
def test_what_is_no_number_of_bytes_says_how_to_write_one(text: str) -> None:
    with pytest.raises(TaskError, match="64M"):
        parse_bytes(text)
