"""Families that break kernels which all milder inputs let pass; honest kernels are right on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from kernellab.records import Stage
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family, families, redraw
from kernellab.verifier.cases import cases, statics
from kernellab.verifier.compare.compare import Limits, compare
from kernellab.verifier.protocol.rules import ERROR

from .kit import QUICK_LOOK, Judge

SOFTMAX = """
import torch
from kernellab import Dim
M = Dim("M", 1, 4096)
N = Dim("N", 1, 4096)
def reference(x):
    return torch.softmax(x, -1)
def inputs(M=64, N=256):
    return torch.randn(M, N)
"""
LAYER_NORM = """
import torch
def reference(x):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],))
def inputs():
    return torch.randn(64, 2048)
"""
ONE_PASS = """
import torch
def kernel(x):
    m = x.mean(-1, keepdim=True)
    v = (x * x).mean(-1, keepdim=True) - m * m
    return (x - m) * torch.rsqrt(v + 1e-5)
"""
TWO_PASS = """
import torch
def kernel(x):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) * torch.rsqrt(v + 1e-5)
"""
#: the plainest honest sum: one after the other in f32
SEQUENTIAL = """
import torch
def kernel(x):
    t = torch.zeros(x.shape[0], 1)
    for i in range(x.shape[1]):
        t = t + x[:, i:i + 1]
    m = t / x.shape[1]
    s = torch.zeros(x.shape[0], 1)
    for i in range(x.shape[1]):
        s = s + (x[:, i:i + 1] - m) ** 2
    return (x - m) * torch.rsqrt(s / x.shape[1] + 1e-5)
"""
NAIVE = "import torch\ndef kernel(x):\n    e = torch.exp(x)\n    return e / e.sum(-1, keepdim=True)\n"
STABLE = (
    "import torch\ndef kernel(x):\n    e = torch.exp(x - x.amax(-1, keepdim=True))\n"
    "    return e / e.sum(-1, keepdim=True)\n"
)


def test_a_softmax_without_its_maximum_overflows_and_is_refused(judge: Judge) -> None:
    task = load_task(SOFTMAX, "softmax")
    verdict = judge(NAIVE, task)
    assert (verdict.passed, verdict.stage) == (False, Stage.CORRECT), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.family in ("large", "offset")
    assert judge(STABLE, task, QUICK_LOOK).passed


def test_one_pass_variance_cancels_and_is_refused(judge: Judge) -> None:
    task = load_task(LAYER_NORM, "norm")
    verdict = judge(ONE_PASS, task)
    assert (verdict.passed, verdict.stage) == (False, Stage.CORRECT), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.family == "offset"
    for honest in (TWO_PASS, SEQUENTIAL):
        assert judge(honest, task, QUICK_LOOK).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_wide_families_keep_type_shape_and_support(dtype: torch.dtype) -> None:
    body = f"import torch\ndef reference(x, p):\n    return x * p\ndef inputs():\n    d = {dtype}\n"
    task = load_task(body + "    return torch.rand(40, 33).to(d) * 5, torch.rand(40, 33).to(d)\n", "support")
    assert {Family.LARGE, Family.OFFSET} <= set(families(task))
    args = task.module().sample(seed=1)
    for family in (Family.LARGE, Family.OFFSET):
        x, p = redraw(task, args, family, 3)
        assert (x.dtype, x.shape) == (args[0].dtype, args[0].shape)
        assert bool((x >= 0).all()) and bool(((p >= 0) & (p <= 1)).all())
        assert bool(x.isfinite().all())
    x = redraw(task, args, Family.OFFSET, 3)[0].double()
    assert float(x.mean()) > 10 * float(x.std())


def test_values_that_overflow_a_reference_are_no_legal_family() -> None:
    task = load_task(
        "import torch\ndef reference(x):\n    return torch.exp(x)\ndef inputs():\n    return torch.randn(64)\n"
    )
    assert Family.LARGE not in families(task) and Family.OFFSET not in families(task)


def test_what_a_task_marks_static_keeps_its_values_while_held() -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 64)\nSTATIC = ['w']\n"
        "def reference(x, w):\n    return x * w\ndef inputs(M=8, N=9):\n    return torch.randn(M, N), torch.randn(N)\n",
        "static",
    )

    def args(rows: int, columns: int, family: Family) -> tuple[torch.Tensor, ...]:
        return cases.case(task, {"M": rows, "N": columns}, family).with_change(("scale", -1, 2.0)).args

    with statics.static_held():
        (x, w), (y, v), (_, other) = args(8, 16, Family.OWN), args(5, 16, Family.HEAVY), args(8, 7, Family.OWN)
        assert torch.equal(w, v) and other.shape == (7,)
        assert not torch.equal(x[:5], y)
    assert not torch.equal(args(8, 16, Family.OWN)[1], w)


NORMS = {
    "rms": (
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)",
        lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-6),
        lambda x: x / (torch.sqrt((x * x).mean(-1, keepdim=True)) + 1e-6),
    ),
    "layer": (
        "torch.nn.functional.layer_norm(x, (x.shape[-1],))",
        lambda x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5),
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0),
    ),
}
#: what loses digits of a small x, and is written everywhere
PLAIN = {
    "elu": ("torch.nn.functional.elu(x)", lambda x: torch.where(x > 0, x, torch.exp(x) - 1)),
    "log1p": ("torch.log1p(x.abs())", lambda x: torch.log(1 + x.abs())),
    "cos": ("1 - torch.cos(x)", lambda x: 1 - torch.cos(x)),
    "tanh": ("torch.tanh(x)", lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
    "sinh": ("torch.sinh(x)", lambda x: (torch.exp(x) - torch.exp(-x)) / 2),
    "var": (
        "x.var(-1)",
        lambda x: ((x * x).sum(-1) - x.sum(-1) ** 2 / x.shape[-1]) / (x.shape[-1] - 1),
    ),
}


def _refusals(reference: str, kernel: Callable[[torch.Tensor], torch.Tensor], shape: str) -> list[bool]:
    task = load_task(f"import torch\ndef reference(x):\n    return {reference}\ndef inputs():\n    return {shape}\n")
    assert Family.SMALL in families(task)
    limits = replace(Limits.of(task.outputs[0].dtype), share=ERROR.small_share)
    found = []
    for seed in range(6):
        case = cases.Case(task, (), Family.SMALL, seed)
        wrong = [compare(kernel(case.args[0]), among[0], limits)[0] for among in (case.references, case.nudged)]
        found.append(all(w is not None for w in wrong))
    return found


@pytest.mark.parametrize("shape", ["torch.randn(96, 64)", "torch.randn(8, 3, 40, 40)", "torch.rand(96, 64)"])
@pytest.mark.parametrize("name", NORMS)
def test_an_epsilon_at_the_wrong_place_shows_in_small_rows(name: str, shape: str) -> None:
    reference, right, wrong = NORMS[name]
    assert not any(_refusals(reference, right, shape))
    assert all(_refusals(reference, wrong, shape))


@pytest.mark.parametrize("shape", ["torch.randn(96, 64)", "torch.randn(8, 3, 40, 40)"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_formulas_are_right_on_small_rows_too(name: str, shape: str) -> None:
    assert not any(_refusals(*PLAIN[name], shape))
