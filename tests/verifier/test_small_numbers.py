"""An epsilon that a kernel adds, forgets or takes for a bound shows where arguments are of its size."""

from __future__ import annotations

import pytest

from kernellab.conditions import SmallArguments, of
from kernellab.task import load_task
from kernellab.verifier.boundary_checks.small_numbers import small_literals

from .kit import Judge

RATIO = """
import torch
from kernellab import Dim
M, N = Dim("M", 1, 512), Dim("N", 1, 512)
def reference(x):
    return x / x.square().sum(-1, keepdim=True).clamp(min=1e-22)
def inputs(M=64, N=70):
    return (torch.randn(M, N),)
"""
CLIPPED = """
import torch
from kernellab import Dim
N = Dim("N", 1, 4096)
def reference(x, most: float = 1.0):
    return x * (most / (x.norm() + 1e-6)).clamp(max=1.0)
def inputs(N=3000):
    return (torch.randn(N),)
"""
CASES = [
    (RATIO, "x", "x / (x.square().sum(-1, keepdim=True) + {})", "1e-22", "about"),
    (RATIO, "x", "x / x.square().sum(-1, keepdim=True).clamp(min={})", "1e-22", ""),
    (CLIPPED, "x, most=1.0", "x * (most / (x.norm() + {})).clamp(max=1.0)", "0.0", "with most"),
    (CLIPPED, "x, most=1.0", "x * (most / (x.norm() + {})).clamp(max=1.0)", "1e-6", ""),
]


@pytest.mark.parametrize(("text", "names", "value", "number", "words"), CASES)
def test_an_epsilon_that_decides_is_tried(
    text: str, names: str, value: str, number: str, words: str, judge: Judge
) -> None:
    verdict = judge.parts(
        "properties",
        f"import torch\ndef kernel({names}):\n    return {value.format(number)}\n",
        load_task(text, "small"),
    )
    told = [c.values for c in of(verdict.conditions, SmallArguments)]
    assert verdict.passed and bool(told) is bool(words) and all(words in one for one in told), (verdict.reason, told)


def test_small_numbers_are_literals_of_floats() -> None:
    text = "x1e-9 = 0.001 + 1e-6f + 2.5E-8 - 3 + .0005 + 0.5 + v1.e-3 + 1e-40"
    assert small_literals(text, "1e-6 7") == [0.001, 1e-6, 2.5e-8, 0.0005]
