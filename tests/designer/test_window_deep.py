"""Groups of few channels: neighbouring taps are the depth of one product, right at edges and for infinite values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task
from tests.lowering.test_triton import call

H200 = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
INTERPRETED = Target("triton", Backend.INTERPRETER, H200.chip)
TASK = """import torch
import torch.nn.functional as F
def reference(x, w):
    return F.conv2d(x, w, {options})
def inputs():
    return torch.randn{x}.to(torch.bfloat16){last}, torch.randn{w}.to(torch.bfloat16){last}
"""
LAST = ".to(memory_format=torch.channels_last)"
#: options, input, weight, memory format
CASES: dict[str, Any] = {
    "8 channels, last": ({"padding": 1, "groups": 3}, (2, 24, 9, 37), (24, 8, 3, 3), LAST),
    "8 channels, planes": ({"padding": 1, "groups": 3}, (2, 24, 9, 37), (24, 8, 3, 3), ""),
    "4 channels": ({"padding": 1, "groups": 5}, (1, 20, 7, 11), (20, 4, 3, 3), LAST),
    "6 channels to 10": ({"padding": 2, "groups": 3}, (1, 18, 6, 35), (30, 6, 5, 5), LAST),
    "stride": ({"stride": 2, "padding": 1, "groups": 4}, (2, 32, 11, 19), (32, 8, 3, 3), LAST),
    "dilation": ({"padding": (2, 4), "dilation": (1, 2), "groups": 2}, (2, 16, 9, 21), (16, 8, 3, 3), LAST),
    "no padding": ({"stride": (1, 2), "groups": 2}, (2, 16, 9, 21), (16, 8, 3, 3), LAST),
    "one row of taps": ({"padding": (0, 1), "groups": 2}, (2, 16, 5, 21), (16, 8, 1, 3), LAST),
}


@pytest.mark.parametrize("name", CASES)
def test_neighbouring_taps_are_one_products_depth(name: str, tmp_path: Path) -> None:
    options, x, w, last = CASES[name]
    text = ", ".join(f"{key}={value}" for key, value in options.items())
    task = load_task(TASK.format(options=text, x=x, w=w, last=last), "grouped")
    reply = RulesDesigner().designs(DesignBrief(task, H200))[0]
    depth = max(16, 1 << (w[1] * w[-1] - 1).bit_length())
    assert f"arange({depth}) // {w[1]}" in reply.sketch, reply.sketch
    program = load_program(reply.sketch, constexpr=reply.constexpr)
    source = lower(program, bind(program, task, reply.constexpr, INTERPRETED), INTERPRETED)
    torch.manual_seed(3)
    given = tuple(torch.randn(shape).bfloat16() for shape in (x, w))
    # an infinite value stays in its group, and reaches no output whose taps do not read it
    given[0][(0, 0, *(n // 2 for n in x[2:]))] = float("inf")
    form = torch.channels_last if last else torch.contiguous_format
    given = tuple(t.contiguous(memory_format=form) for t in given)
    want = functional.conv2d(*(t.double() for t in given), **options)
    (got,) = call(source, tmp_path, *given)
    assert got.shape == want.shape and not want.isfinite().all()
    torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=2e-2, equal_nan=True)
