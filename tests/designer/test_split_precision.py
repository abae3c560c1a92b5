"""Products of float32 by stored parts: two float16, or three bfloat16."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import execute
from kernellab.sketch.syntax.printer import format
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

#: so fast a memory that storing the parts always pays
CHIP = Chip("test", "gpu", 4, bandwidth=1e18, shared_bytes=228 << 10, peak_flops={"f32": 1e12, "bf16": 1e14})
TARGET = Target("triton", Backend.CUDA, CHIP)
#: and so slow at products that two more launches do, too
HALVES = Target("triton", Backend.CUDA, replace(CHIP, peak_flops={"f32": 1e7, "bf16": 1e9, "f16": 1e9}))


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


ODD = pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("a @ b", ((70, 100), (100, 90))),
        ("a.T @ b", ((100, 70), (100, 90))),
        ("a @ b.T", ((70, 100), (90, 100))),
        ("a.T @ b.T", ((100, 70), (90, 100))),
        ("torch.relu(torch.bmm(a, b) + 1)", ((3, 33, 70), (3, 70, 40))),
        ("torch.exp(a) @ b", ((70, 100), (100, 90))),
        ("a @ a", ((70, 70),)),
        ("a @ a.T", ((70, 90),)),
        ("torch.triu(a @ b)", ((70, 70), (70, 70))),
        ("a.T @ b[:, None, :].expand(100, 3, 30).exp().reshape(100, 90)", ((100, 70), (100, 30))),
    ],
)


@ODD
def test_the_sketch_is_right_at_odd_shapes(expression: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    task = product(expression, *shapes)
    text = design(task)
    assert text.count("gemm(") == 6 and "_hi[" in text
    assert format(text) == text
    result = gate(load_program(text), task)
    assert result.state is GateState.RIGHT, result


@ODD
def test_halves_are_right_at_odd_shapes(expression: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    task = product(expression, *shapes)
    text = design(task, HALVES)
    assert text.count("gemm(") in (3, 6) and "f16 temp" in text, text
    assert format(text) == text
    result = gate(load_program(text), task)
    assert result.state is GateState.RIGHT, result


@pytest.mark.parametrize("expression", ["a @ b", "a @ b.T", "a.T @ b", "a.T @ b.T"])
@pytest.mark.parametrize("spread", [0, 8, 30])
def test_halves_keep_the_range_of_float32(expression: str, spread: int) -> None:
    """Rows, and what else has a scale of its own, of magnitudes up to 2^60 apart; what has none, up to 2^16."""
    task = product(expression, (64, 64), (64, 64))
    program = load_program(design(task, HALVES))
    generator = torch.Generator().manual_seed(spread)
    a, b = (torch.randn(64, 64, generator=generator) for _ in "ab")
    rows, sums, columns = (torch.randint(-spread, spread + 1, (64,), generator=generator).float() for _ in "abc")
    turned = [".T" in part for part in expression.split("@")]
    if turned[1]:
        rows, sums, columns = columns, sums.clamp(-8, 8), rows
        rows = rows if not turned[0] else rows.clamp(-8, 8)
    else:
        columns = columns.clamp(-8, 8)
    a = (a.T if turned[0] else a) * torch.exp2(rows)[:, None] * torch.exp2(sums)
    b = (b.T if turned[1] else b) * torch.exp2(columns) * torch.exp2(-sums)[:, None]
    exact = a.double() @ b.double()
    given = [x.T.contiguous() if t else x.contiguous() for x, t in zip((a, b), turned, strict=True)]
    binding = bind(program, task, {})
    run = execute(program, binding.inputs(tuple(given)), symbols={}, constexpr=binding.constexpr)
    got = run.outputs["y"].double().reshape(64, 64)
    # each element next to the magnitudes that it sums
    apart = (got - exact).abs() / (a.double().abs() @ b.double().abs())
    assert float(apart.max()) < 1e-6, float(apart.max())


def test_what_is_not_finite_stays_where_it_is() -> None:
    task = product("a @ b", (64, 64), (64, 64))
    program = load_program(design(task, HALVES))
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    a[3, 5], b[7, 9] = torch.inf, torch.nan
    binding = bind(program, task, {})
    run = execute(program, binding.inputs((a, b)), symbols={}, constexpr=binding.constexpr)
    got = run.outputs["y"].reshape(64, 64)
    assert torch.equal(got.isfinite(), (a @ b).isfinite())


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
