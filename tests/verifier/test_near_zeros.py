"""Values next to a zero of the result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernellab.task import load_task
from kernellab.verifier.boundary_checks.near_zeros import cases_near_zeros
from kernellab.verifier.cases import selection
from kernellab.verifier.protocol.rules import EDGES

from .kit import Judge

TASK = "import torch\ndef reference({names}):\n    return {value}\ndef inputs():\n    return {inputs}\n"
LOG = TASK.format(names="x", value="torch.log(x)", inputs="torch.rand(24, 40) * 4 + 0.01")
LINE = TASK.format(names="x, w, b", value="x * w + b", inputs="torch.randn(24, 40), torch.randn(40), torch.randn(40)")
CUBIC = TASK.format(names="x", value="x * x * x - 2 * x + 0.5", inputs="torch.randn(24, 40)")
NORM = TASK.format(
    names="x, m, v, w, b", value="(x - m) / torch.sqrt(v + 1e-5) * w + b",
    inputs="torch.randn(24, 40), torch.randn(40), torch.rand(40) + 0.1, torch.randn(40), torch.randn(40)",
)  # fmt: skip


def folded(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    scale = w / torch.sqrt(v + 1e-5)
    return x * scale + (b - m * scale)


@pytest.mark.parametrize(
    ("text", "kernel", "right"),
    [
        (LOG, lambda x: torch.log(x), True),
        (LOG, lambda x: torch.log2(x) * 0.6931471805599453, True),
        (LOG, lambda x: torch.log(x) + 6e-5 * torch.sin(1e4 * x), False),
        (LINE, lambda x, w, b: torch.addcmul(b, x, w), True),
        (LINE, lambda x, w, b: (x.double() * w + b).float(), True),
        (LINE, lambda x, w, b: ((x + 1) * w + (b - w)), True),
        (LINE, lambda x, w, b: x * w * (1 + 1e-4) + b, False),
        (CUBIC, lambda x: (x * x - 2) * x + 0.5, True),
        (CUBIC, lambda x: torch.round((x * x * x - 2 * x + 0.5) * 2**14) / 2**14, False),
        (NORM, folded, True),
    ],
)  # fmt: skip
def test_an_error_next_to_a_zero_that_no_rounding_explains_is_found(
    text: str, kernel: Callable[..., torch.Tensor], right: bool
) -> None:
    near = cases_near_zeros(selection.drawn_base(load_task(text, "zeros")))
    assert near
    off = max(one.share_off([kernel(*one.case.args)]) for one in near)
    assert (off <= EDGES.near_zeros_share / 2) if right else (off > EDGES.near_zeros_share), off


@pytest.mark.parametrize(
    "value",
    ["x.softmax(-1)", "torch.round(x * 3)", "torch.relu(x - 1)", "x.abs() + 1", "torch.tanh(x)", "x.bfloat16()"],
)
def test_a_reference_without_such_a_zero_has_no_case(value: str) -> None:
    task = load_task(TASK.format(names="x", value=value, inputs="torch.randn(24, 40)"), "none")
    assert cases_near_zeros(selection.drawn_base(task)) == []


@pytest.mark.parametrize("slope", ["1.0", "1.05"])
def test_a_verdict_tells_of_a_logarithm_that_is_inexact_next_to_one(slope: str, judge: Judge) -> None:
    near = f"torch.where((x - 1).abs() < 1e-4, {slope} * torch.log1p(x - 1), torch.log(x))"
    verdict = judge.parts(
        "properties", f"import torch\ndef kernel(x):\n    return {near}\n", load_task(LOG, "logarithm")
    )
    assert verdict.passed and verdict.marked("inexact-near-zeros") is (slope != "1.0"), (verdict.reason, verdict.flags)
