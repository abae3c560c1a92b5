"""Products of float32 by stored bfloat16 parts."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.syntax.printer import format
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

#: so fast a memory that storing the parts always pays
CHIP = Chip("test", "gpu", 4, bandwidth=1e18, shared_bytes=228 << 10, peak_flops={"f32": 1e12, "bf16": 1e14})
TARGET = Target("triton", Backend.CUDA, CHIP)


def product(expression: str, *shapes: tuple[int, ...], extra: str = "") -> Task:
    names = "abc"[: len(shapes)]
    drawn = ", ".join(f"torch.randn{shape}" for shape in shapes)
    text = (
        f"import torch\n{extra}\ndef reference({', '.join(names)}):\n    return {expression}\n"
        f"def inputs():\n    return {drawn}\n"
    )
    return load_task(text, "product")


def design(task: Task, target: Target = TARGET) -> str:
    return RulesDesigner().designs(DesignBrief(task=task, target=target))[0].sketch


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("a @ b", ((70, 100), (100, 90))),
        ("a.T @ b", ((100, 70), (100, 90))),
        ("a @ b.T", ((70, 100), (90, 100))),
        ("torch.relu(torch.bmm(a, b) + 1)", ((3, 33, 70), (3, 70, 40))),
        ("torch.exp(a) @ b", ((70, 100), (100, 90))),
        ("a @ a", ((70, 70),)),
    ],
)
def test_the_sketch_is_right_at_odd_shapes(expression: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    task = product(expression, *shapes)
    text = design(task)
    assert text.count("gemm(") == 6 and "_hi[" in text
    assert format(text) == text
    result = gate(load_program(text), task)
    assert result.state is GateState.RIGHT, result


def test_rows_of_parts_are_whole_lines() -> None:
    text = design(product("a @ b", (70, 100), (100, 90)))
    assert "a_hi[70, 128]: bf16 temp" in text and "b_hi[100, 128]: bf16 temp" in text


@pytest.mark.parametrize("extra", ["PRECISION = {'matmul': 'tf32'}", "PRECISION = {'matmul': 'ieee'}"])
def test_a_stated_precision_is_kept(extra: str) -> None:
    assert "_hi[" not in design(product("a @ b", (70, 100), (100, 90), extra=extra))


def test_small_factors_are_split_on_the_fly() -> None:
    h200 = Chip("h200", "gpu", 132, bandwidth=4.2e12, peak_flops={"f32": 51e12, "tf32": 357e12, "bf16": 701e12})
    target = Target("triton", Backend.CUDA, h200)
    assert "_hi[" in design(product("a @ b", (4096, 4096), (4096, 4096)), target)
    assert "_hi[" not in design(product("a @ b", (4096, 64), (64, 64)), target)


def test_what_an_epilogue_shares_is_computed_once() -> None:
    text = design(product("(a @ b + c) * torch.sigmoid(a @ b + c)", (70, 50), (50, 90), (90,)))
    assert text.count("acc + c_tile") == 1
