"""Complex outputs are judged against complex128's answer, by the limits of their parts' dtype."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import TaskError
from kernellab.task import Task, load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.judged import Comparison, Wrong
from kernellab.verifier.compare.compare import Limits, Reference, compare

FOURIER = """
import torch

def reference(x):
    return torch.fft.fft(x)

def inputs():
    return torch.randn(16, 120),
"""
PRODUCT = """
import torch

def reference(x, w):
    return x * w + w, (x @ w.mT).abs()

def inputs():
    return torch.randn(16, 20, dtype=torch.complex64), torch.randn(16, 20, dtype=torch.complex64)
"""


def wrong(task: Task, case: cases.Case, outputs: list[torch.Tensor]) -> Wrong | None:
    return Comparison(task).first_wrong(case, outputs)


@pytest.mark.parametrize("family", [Family.STRUCTURED, Family.NORMAL, Family.EDGES])
def test_a_kernel_nearer_than_the_reference_is_right(family: Family) -> None:
    task = load_task(FOURIER, name="fourier")
    case = cases.case(task, {}, family)
    assert case.references[0].double is not None and case.references[0].double.dtype == torch.complex128
    better = torch.fft.fft(case.args[0].double()).to(torch.complex64)
    assert wrong(task, case, [better]) is None
    worse = better * (1 + 1e-3j)
    assert wrong(task, case, [worse]) is not None


def test_of_complex_arguments_each_output_has_a_wide_answer() -> None:
    task = load_task(PRODUCT, name="product")
    case = cases.case(task, {}, Family.NORMAL)
    assert [r.double.dtype for r in case.nudged if r.double is not None] == [torch.complex128, torch.float64]
    assert [r.nudged.dtype for r in case.nudged if r.nudged is not None] == [torch.complex128, torch.float64]
    one, other = case.args
    assert wrong(task, case, [one * other + other, (one @ other.mT).abs()]) is None
    assert wrong(task, case, [one * other + other.conj(), (one @ other.mT).abs()]) is not None


def test_complex128_computed_in_complex64_is_wrong() -> None:
    want = torch.randn(64, 33, dtype=torch.complex128)
    rounded = want.to(torch.complex64).to(torch.complex128)
    assert compare(rounded, Reference(want, want), Limits.of("complex128"))[0] is not None
    assert compare(want * (1 + 1e-13), Reference(want, want), Limits.of("complex128"))[0] is None
    assert Limits.of("complex64") == Limits.of("float32")
    with pytest.raises(TaskError, match="dtype complex256 cannot be judged"):
        Limits.of("complex256")
