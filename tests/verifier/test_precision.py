"""The precision class that a verdict names, and kernels looser than their task."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import KernellabError
from kernellab.options.design import VerificationOptions
from kernellab.records import Stage, Trust
from kernellab.task import load_task
from kernellab.verifier.compare.close import not_close
from kernellab.verifier.compare.records import Reference
from kernellab.verifier.protocol.option_words import verify_options
from kernellab.verifier.stages.precision import Precision, allowed, classify

from .kit import MATMUL, QUICK, TF32, Judge

KERNELS = {
    "fp32-strict": "import torch\ndef kernel(x, y):\n    return x @ y\n",
    "tf32": TF32 + "def kernel(x, y):\n    return tf32(x) @ tf32(y)\n",
    "fp16-like": "import torch\ndef kernel(x, y):\n    return x.half().float() @ y.half().float()\n",
    "bf16-like": "import torch\ndef kernel(x, y):\n    return x.bfloat16().float() @ y.bfloat16().float()\n",
}


@pytest.mark.parametrize(
    ("relative", "dtype", "expected"),
    [
        (3e-7, "float32", Precision.FP32_STRICT),
        (2.9e-4, "float32", Precision.TF32),
        (2.4e-3, "float32", Precision.BF16_LIKE),
        (3e-2, "float32", Precision.FP8_LIKE),
        (1e-15, "float64", Precision.FP64),
        (3e-7, "float64", Precision.FP32_STRICT),
        (1e-4, "bfloat16", Precision.BF16_LIKE),
        (0.5, "float32", Precision.NONE),
    ],
)
def test_the_gaps_between_the_classes(relative: float, dtype: str, expected: Precision) -> None:
    assert classify(relative, dtype) is expected


def test_the_class_is_the_loosest_of_what_an_output_depends_on() -> None:
    strict = load_task(MATMUL.format(policy=""), "strict")
    loose = load_task(MATMUL.format(policy="PRECISION = {'matmul': 'tf32'}"), "loose")
    assert allowed(strict, "float32", ["matmul"], "cuda") is Precision.FP32_STRICT
    assert allowed(loose, "float32", ["matmul"], "cpu") is Precision.TF32
    assert allowed(loose, "float32", [], "cpu") is Precision.FP32_STRICT
    assert allowed(strict, "float32", ["conv"], "cuda") is Precision.TF32
    assert allowed(strict, "float32", ["conv"], "cpu") is Precision.FP32_STRICT


def test_a_verdict_names_the_class(judge: Judge) -> None:
    task = load_task(MATMUL.format(policy=""), "strict")
    verdict = judge(KERNELS["fp32-strict"], task)
    assert verdict.passed and verdict.precision == "fp32-strict", verdict.reason
    for name in ("tf32", "fp16-like", "bf16-like"):
        refused = judge(KERNELS[name], task)
        assert not refused.passed and refused.stage in (Stage.CORRECT, Stage.HONEST)


@pytest.mark.parametrize("name", ["fp32-strict", "tf32", "fp16-like"])
def test_a_looser_task_takes_a_looser_kernel_and_says_so(judge: Judge, name: str) -> None:
    policy = "PRECISION = {'matmul': 'f16'}\nTOLERANCE = {'floor': 2e-3, 'tau': 5e-2}"
    verdict = judge.parts("precision_class", KERNELS[name], load_task(MATMUL.format(policy=policy), "loose"))
    assert verdict.passed, verdict.reason
    assert verdict.precision == name


def test_tf32_passes_as_the_framework_and_fails_where_kernels_have_to_be_strict(judge: Judge) -> None:
    """The flags let eager take TF32, and on this machine it does not: the case in which a TF32 kernel is farther from
    float64 than eager. Three products of TF32 parts are strict."""
    task = load_task(MATMUL.format(policy="PRECISION = {'matmul': 'tf32'}"), "flags")
    split = TF32 + (
        "def kernel(x, y):\n    a, b = tf32(x), tf32(y)\n    return a @ b + (a @ tf32(y - b) + tf32(x - a) @ b)\n"
    )
    strict, framework = (QUICK.model_copy(update={"precision": word}) for word in ("strict", "framework"))
    loose = judge.parts("precision_class", KERNELS["tf32"], task, framework)
    assert loose.passed and loose.precision == "tf32", loose.reason
    refused = judge(KERNELS["tf32"], task, strict.model_copy(update={"level": Trust.T1}))
    assert not refused.passed and refused.stage is Stage.CORRECT
    assert judge.parts("precision_class", split, task, strict).precision == "fp32-strict"


def test_a_precision_that_is_not_known_is_named() -> None:
    with pytest.raises(KernellabError, match="--precision 'loose' is not known"):
        verify_options(VerificationOptions(precision="loose"))
    assert verify_options(VerificationOptions(precision="strict")).precision == "strict"
    assert verify_options().precision == ""


def test_kernelbenchs_own_check_holds_on_the_tasks_inputs_and_excuses_what_eager_itself_breaks() -> None:
    exact = torch.linspace(-1, 1, 101, dtype=torch.float64).reshape(1, 1, -1)
    eager = exact.float()
    assert not_close(eager + 9e-5, Reference(eager, exact)) is None
    off = not_close(eager + 3e-4, Reference(eager, exact))
    assert off is not None and off.rule == "close" and off.wrong is not None and bool(off.wrong.all())
    # eager in TF32: what is nearer float64 is right though it is far from eager, what is as far on the other side not
    tf32 = eager + 3e-4
    assert not_close(eager, Reference(tf32, exact), 1 / 8) is None
    assert not_close(eager, Reference(tf32, None), 1 / 8) is not None
    assert not_close(eager - 3.5e-4, Reference(tf32, exact), 1 / 8) is not None


def test_another_order_of_a_long_cancelling_sum_of_float32_is_strict_and_tf32_is_not() -> None:
    a, b = torch.randn(64, 8192), torch.randn(8192, 64)
    reference = Reference(a @ b, a.double() @ b.double())
    other = sum(p @ q for p, q in zip(a.split(64, 1), b.split(64, 0), strict=True))
    assert not torch.allclose(other, reference.native, rtol=1e-6, atol=1e-6)
    assert not_close(other, reference) is None
    half = not_close(a.half().float() @ b.half().float(), reference)
    assert half is not None and half.rule == "close"


BFLOAT = """import torch
def {name}(x):
    y = torch.exp(x.float())
    return {result}
"""
CUT = "(y.contiguous().view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()"


@pytest.mark.parametrize(("result", "cut"), [("y.bfloat16()", False), (CUT, True)])
def test_a_verdict_tells_of_results_that_are_cut_off(result: str, cut: bool, judge: Judge) -> None:
    inputs = "def inputs():\n    return torch.randn(24, 40).bfloat16()\n"
    task = load_task(BFLOAT.format(name="reference", result="y.bfloat16()") + inputs, "bfloat")
    verdict = judge.parts("precision_class", BFLOAT.format(name="kernel", result=result), task)
    assert verdict.passed and verdict.marked("results-cut-off") is cut, (verdict.reason, verdict.label)
