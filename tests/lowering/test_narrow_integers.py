"""Integers that 32 bits hold have 32 in Triton code; others keep 64, and no result changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.lowering.narrow_integers import narrowed
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import Assign, DType
from kernellab.sketch.program.walk import statements
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

GPU = Target("triton", Backend.CUDA, find_chip("h200"))
POOL = """import torch
import torch.nn.functional as F


def reference(x):
    return F.max_pool2d(x, 3, 2, 1, return_indices=True)


def inputs():
    return (torch.randn(2, 3, 12, 14).to(torch.bfloat16),)
"""


def test_places_of_a_pool_are_computed_in_32_bits(tmp_path: Path) -> None:
    from tests.lowering.test_triton import call

    task = load_task(POOL, "pool")
    program = load_program(RulesDesigner().design(DesignBrief(task, GPU)).sketch)
    source = lower(program, bind(program, task, {}, GPU), GPU)
    code = source.files["kernel.py"].split("@triton.jit")[-1].split("def kernel(")[0]
    assert "int64" not in code.replace(".to(tl.int64)", "", 1), "only the stored places have 64 bits"
    x = torch.randn(2, 3, 12, 14).to(torch.bfloat16)
    x[0, 0, 3] = -torch.inf
    x[1, 1, 2, 2] = torch.nan
    values, places = call(source, tmp_path, x)
    expected_values, expected_places = task.module().results([x])
    assert torch.equal(values.isnan(), expected_values.isnan())
    assert torch.equal(values.nan_to_num(), expected_values.nan_to_num())
    assert places.dtype is torch.int64 and torch.equal(places, expected_places)


SKETCH = """
sketch places {{
    tensors: x[4096]: i64; t[4096]: i64 temp; y[4096]: i64 out;
    constexpr: BLOCK = 64 in {{32, 64, 128}};

    @llm_hint("parallel", "grididx")
    for i in range(0, 4096, BLOCK):
        place = i + arange(BLOCK)
        kept = {expression}
        store(kept -> t[i:i+BLOCK])
}}

sketch taken {{
    tensors: x[4096]: i64; t[4096]: i64 temp; y[4096]: i64 out;
    constexpr: BLOCK = 64 in {{32, 64, 128}};

    @llm_hint("parallel", "grididx")
    for i in range(0, 4096, BLOCK):
        load(t[i:i+BLOCK] -> tile)
        load(x[i:i+BLOCK] -> given)
        store(where(given > tile, given, tile * 3) -> y[i:i+BLOCK])
}}
"""
TASK = """import torch


def reference(x):
    place = torch.arange(4096)
    kept = {expression}
    return torch.where(x > kept, x, kept * 3)


def inputs():
    return (torch.randint(-30000, 30000, (4096,)),)
"""


@pytest.mark.parametrize(
    ("sketch", "torch_text", "temp"),
    [
        ("(place - 2000) // 7", "(place - 2000) // 7", DType.I16),
        ("(place - 2000) % 7", "(place - 2000) % 7", DType.I16),
        ("where(place % 3 == 0, place * 11, -place)", "torch.where(place % 3 == 0, place * 11, -place)", DType.I32),
        ("min(max(place * 300 - 90, 0), 65535)", "(place * 300 - 90).clamp(0, 65535)", DType.I32),
        # the product needs more bits, though what is kept of it does not
        ("place * 1000003 % 1021", "place * 1000003 % 1021", DType.I16),
        ("place * 1000003", "place * 1000003", DType.I64),
    ],
)
def test_values_are_those_of_64_bits(sketch: str, torch_text: str, temp: DType, tmp_path: Path) -> None:
    from tests.lowering.test_triton import call

    task = load_task(TASK.format(expression=torch_text), "places")
    program = load_program(SKETCH.format(expression=sketch))
    assert narrowed(program, {}).tensor("t").dtype is temp
    x = torch.arange(4096) * 7919 % 65537 - 30000 + (torch.arange(4096) % 2) * 2**40
    (got,) = call(lower(program, bind(program, task, {}, GPU), GPU), tmp_path, x)
    assert got.dtype is torch.int64 and torch.equal(got, task.module().results([x])[0])


PADDED = """
sketch places {{
    tensors: x[10]: i64; t[10]: i64 temp; y[3]: i64 out;
    constexpr: BLOCK = 4 in {{2, 4}};

    @llm_hint("parallel", "grididx")
    for i in range(0, 10, BLOCK):
        store((i + arange(BLOCK)) * 3 -> t[i:i+BLOCK])
}}

sketch taken {{
    tensors: x[10]: i64; t[10]: i64 temp; y[3]: i64 out;

    @llm_hint("parallel", "grididx")
    for i in range(0, 3):
        load(t[4*i:4*i+4] -> tile, pad={pad})
        store(reduce_min(tile, axis=0) -> y[i])
}}
"""
MINIMA = """import torch


def reference(x):
    t = torch.arange(10) * 3
    return torch.stack([t[0:4].min(), t[4:8].min(), t[8:10].min()]) + 0 * x[:3]


def inputs():
    return (torch.randint(-9, 9, (10,)),)
"""


@pytest.mark.parametrize(
    ("pad", "temp"), [("0", DType.I16), ("100000", DType.I32), ("5000000000", DType.I64), ("inf", DType.I64)]
)
def test_what_lies_past_the_edge_counts(pad: str, temp: DType, tmp_path: Path) -> None:
    from tests.lowering.test_triton import call

    task = load_task(MINIMA, "minima")
    program = load_program(PADDED.format(pad=pad))
    assert narrowed(program, {}).tensor("t").dtype is temp
    if pad in ("100000", "5000000000"):
        (got,) = call(lower(program, bind(program, task, {}, GPU), GPU), tmp_path, torch.arange(10))
        assert got.tolist() == [0, 12, 24]


def test_a_value_that_is_no_choice_counts() -> None:
    program = load_program(PADDED.format(pad="0").replace("* 3 ->", "* BLOCK * 100 ->"))
    assert narrowed(program, {}).tensor("t").dtype is DType.I16
    assert narrowed(program, {"BLOCK": 64}).tensor("t").dtype is DType.I32


def test_what_nothing_bounds_keeps_64_bits() -> None:
    program = load_program(SKETCH.format(expression="place * 1000003"))
    first, second = narrowed(program, {}).kernels
    dtypes = {s.tile.name: s.tile.dtype for s in statements(first.body) if isinstance(s, Assign)}
    assert dtypes == {"place": DType.I32, "kept": DType.I64}
    assert all(s.tile.dtype is DType.I64 for s in statements(second.body) if hasattr(s, "tile"))
    assert narrowed(program, {}) is narrowed(program, {}), "one program for all choices of a tunable"
