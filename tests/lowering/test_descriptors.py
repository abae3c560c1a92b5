"""Tensor descriptors and persistent programs: the same results with and without, at ragged sizes, and back by lift."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import same_code
from kernellab.lowering.lift import lift
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

from .test_triton import call

CHIP = Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536)
TRITON = Target("triton", Backend.INTERPRETER, CHIP)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")

SDPA = """import torch
import torch.nn.functional as F
def reference(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal={causal})
def inputs():
    make = lambda n: torch.randn(1, 2, n, {width}, dtype=torch.{dtype})
    return make({rows}), make({keys}), make({keys})
"""
TF32 = """import torch
PRECISION = {{"matmul": "tf32"}}
def reference(a, b):
    return {product}
def inputs():
    return torch.randn({a}), torch.randn({b})
"""
ADD = """import torch
def reference(a, b):
    return a + b
def inputs():
    return torch.randn(9001), torch.randn(9001)
"""


def designed(text: str) -> tuple[Task, str]:
    task = load_task(text, "task")
    replies = RulesDesigner().designs(DesignBrief(task, TRITON))
    return task, next((r.sketch for r in replies if "online" in r.sketch), replies[0].sketch)


def lowered(sketch: str, task: Task) -> Source:
    program = load_program(sketch)
    return lower(program, bind(program, task, {}, TRITON), TRITON)


def check(sketch: str, task: Task, folder: Path, error: float) -> str:
    """The lowered text, whose result is within ``error`` of float64's (relative Frobenius)."""
    source = lowered(sketch, task)
    args = task.module().sample(seed=3)
    (got,) = call(source, folder, *args)
    want = task.module().reference(tuple(a.double() for a in args))[0]
    assert float((got.double() - want).norm() / want.norm()) < error
    assert same_code(lowered(lift(source, task), task), source)
    return source.files["kernel.py"]


@pytest.mark.parametrize("on", [0, 1])
@pytest.mark.parametrize(
    ("rows", "keys", "width", "dtype", "causal"),
    [
        (37, 37, 64, "bfloat16", True), (100, 100, 16, "float16", True), (33, 150, 64, "bfloat16", True),
        (150, 33, 64, "float16", True), (37, 101, 64, "bfloat16", False), (64, 128, 16, "float16", False),
    ],
)  # fmt: skip
def test_attention_reads_keys_and_values_by_descriptors(
    on: int, rows: int, keys: int, width: int, dtype: str, causal: bool, tmp_path: Path
) -> None:
    task, sketch = designed(SDPA.format(rows=rows, keys=keys, width=width, dtype=dtype, causal=causal))
    sketch = re.sub(r"descriptors = \d", f"descriptors = {on}", sketch)
    text = check(sketch, task, tmp_path, 6e-3)
    assert f"descriptors = {on}  # one of 0, 1" in text
    assert "k_blocks.load([" in text and "v_blocks.load([" in text
    if causal and rows == keys:
        # only tiles that the diagonal crosses are masked
        assert re.search(r"if a \+ BN > j \+ 1:\n +scores = where\(", sketch)


@pytest.mark.parametrize(
    ("product", "a", "b", "described"),
    [
        ("a @ b", "150, 72", "72, 132", True), ("a @ b.T", "150, 72", "132, 72", True),
        ("a @ b", "3, 40, 36", "3, 36, 20", True), ("a @ b", "50, 71", "71, 130", False),
    ],
)  # fmt: skip
def test_products_in_tf32(product: str, a: str, b: str, described: bool, tmp_path: Path) -> None:
    task, sketch = designed(TF32.format(product=product, a=a, b=b))
    text = check(sketch, task, tmp_path, 1e-5)
    # rows of 71 floats do not begin at multiples of 16 bytes
    assert ("a_blocks.load([" in text) == described


def test_misaligned_factors_are_read_without(tmp_path: Path) -> None:
    task, sketch = designed(TF32.format(product="a @ b", a="64, 64", b="64, 64"))
    whole = torch.randn(64 * 64 + 1)
    a, b = whole[1:].view(64, 64), torch.randn(64, 64)
    (got,) = call(lowered(sketch, task), tmp_path, a, b)
    assert a.data_ptr() % 16
    torch.testing.assert_close(got, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        TF32.format(product="a @ b", a="150, 72", b="72, 132"),
        TF32.format(product="a @ b", a="2, 90, 40", b="2, 40, 70"), ADD,
    ],
)  # fmt: skip
def test_persistent_programs_walk_over_all_tiles(text: str, tmp_path: Path) -> None:
    """The interpreter counts as four cores: fewer programs than there are tiles."""
    task, sketch = designed(text)
    old = '"swizzle", 8' if "swizzle" in sketch else '"grididx"'
    assert old in sketch
    text = check(sketch.replace(old, f'{old}, "persistent"'), task, tmp_path, 1e-5)
    assert "for pid in range(tl.program_id(0), " in text and ", _cores),)](" in text
    assert ("tl.swizzle2d(" in text) == ("swizzle" in sketch)
