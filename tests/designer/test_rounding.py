"""Factors of TF32 products are rounded to the nearest, not cut off: where they are stored, or where they are read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer.eager import as_asked, rounded
from kernellab.dsls.machine import named_chip
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.sketch.run.values import meaning
from kernellab.target import Backend, Target
from kernellab.task import load_task

CHIP = named_chip("h200")
TEXT = """import torch
import torch.nn.functional as F

{precision}
def inputs():
    return torch.randn(1, 16, 5, 6), torch.randn(8, 16, 3, 3)


def reference(x, w):
    return F.conv2d(x, w)
"""


def _design(precision: str, fidelity: str = "") -> tuple[str, torch.Tensor, torch.Tensor]:
    target = Target("triton", Backend.CUDA, CHIP)
    task = replace(load_task(TEXT.format(precision=precision), "rounded"), fidelity=fidelity)
    text = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
    program = load_program(text)
    binding = bind(program, task, {}, target)
    x, w = task.module().sample({}, 1)
    given = {name: (x, w)[i] for name, i in binding.tensors.items()}
    got = run(program, given, constexpr=binding.constexpr)[binding.outputs[0].tensor]
    return text, got, task.module().reference((x.double(), w.double()))[0]


def test_tf32_factors_are_rounded_to_the_nearest() -> None:
    text, got, want = _design("")
    assert "round_tf32(" in text
    # the interpreter multiplies exactly: what is off is the rounding of the factors
    error = (got.reshape(want.shape) - want).norm() / want.norm()
    assert 2e-5 < error < 5e-4


def test_exact_products_keep_their_factors() -> None:
    text, got, want = _design('PRECISION = {"conv": "ieee"}\n')
    assert "round_tf32" not in text
    assert (got.reshape(want.shape) - want).norm() < 1e-6 * want.norm()


@pytest.mark.parametrize("precision", ["", 'PRECISION = {"conv": "tf32", "matmul": "tf32"}\n'])
def test_strict_products_are_split_whatever_the_flags_allow(precision: str) -> None:
    text, got, want = _design(precision, "strict")
    assert re.findall(r'gemm\(.*precision="(\w+)"', text) in (["tf32x3"], ["bf16x6"])
    assert (got.reshape(want.shape) - want).norm() < 1e-6 * want.norm()
    # as the framework: what the flags allow
    assert 'precision="tf32"' in _design(precision, "framework")[0]


@pytest.mark.parametrize(("fidelity", "seen"), [("framework", ""), ("strict", "w")])
def test_every_schedule_rounds_as_eager_does(fidelity: str, seen: str) -> None:
    """In place and over a copy: the exact product of rounded factors, as cuDNN's is. A strict kernel does where eager
    was seen to, and the gate lets it."""
    target = Target("triton", Backend.CUDA, CHIP)
    task = replace(load_task(TEXT.format(precision=""), "rounded"), fidelity=fidelity, rounded=frozenset({seen} - {""}))
    x, w = task.module().sample({}, 1)
    want = F.conv2d(meaning("round_tf32")(x).double(), meaning("round_tf32")(w).double())
    forms = set()
    for reply in RulesDesigner().designs(DesignBrief(task, target)):
        assert re.findall(r'gemm\(.*precision="(\w+)"', reply.sketch) == ["tf32"]
        program = load_program(reply.sketch)
        binding = bind(program, task, {}, target)
        given = {name: (x, w)[i] for name, i in binding.tensors.items()}
        got = run(program, given, constexpr=binding.constexpr)[binding.outputs[0].tensor]
        assert (got.reshape(want.shape) - want).norm() < 1e-6 * want.norm()
        assert gate(program, task, chip=CHIP).state is GateState.RIGHT
        forms.add("_last" in reply.sketch)
    assert forms == {False, True}


def test_copies_for_a_transposed_convolution_round_halves_to_even() -> None:
    """As cuDNN does there; every factor here lies halfway between two TF32."""
    text = TEXT.format(precision="").replace("conv2d", "conv_transpose2d").replace("randn(8, 16", "randn(16, 8")
    target = Target("triton", Backend.CUDA, CHIP)
    task = load_task(text, "turned")
    (sketch, *_) = [d.sketch for d in RulesDesigner().designs(DesignBrief(task, target)) if "_last" in d.sketch]
    program = load_program(sketch)
    binding = bind(program, task, {}, target)
    draw = torch.Generator().manual_seed(0)
    x, w = (1 + (2 * torch.randint(0, 512, a.shape, generator=draw) + 1) / 2048 for a in task.module().sample({}, 1))
    given = {name: (x, w)[i] for name, i in binding.tensors.items()}
    got = run(program, given, constexpr=binding.constexpr)[binding.outputs[0].tensor]
    # half precision has as many bits of mantissa, and casts round to even
    want = F.conv_transpose2d(x.half().double(), w.half().double())
    assert (got.reshape(want.shape) - want).norm() < 1e-6 * want.norm()


def test_what_eager_rounds_is_rounded_beside_what_it_does_not() -> None:
    """Each convolution of a reference by itself."""
    text = TEXT.format(precision="").replace("randn(8, 16, 3, 3)", "randn(16, 16, 3, 3), torch.randn(8, 16, 1, 1)")
    text = text.replace("x, w)", "x, w, v)", 1).replace("F.conv2d(x, w)", "F.conv2d(F.conv2d(x, w).relu(), v)")
    task = replace(load_task(text, "both"), fidelity="strict", rounded=frozenset({"v"}))
    for reply in RulesDesigner().designs(DesignBrief(task, Target("triton", Backend.CUDA, CHIP))):
        *first, second = re.findall(r'gemm\(.*precision="(\w+)"', reply.sketch)
        assert first in (["tf32"] * 3, ["tf32x3"], ["bf16x6"]) and second == "tf32"


@pytest.mark.parametrize("chip", ["h200", "a100", "rtx4090"])
def test_both_parts_of_a_row_fit_a_chip(chip: str) -> None:
    """Those of a tile's image and weights, in every stage of the loop."""
    text = TEXT.replace("1, 16, 5, 6", "16, 64, 65536").replace("8, 16, 3, 3", "128, 64, 3").replace("conv2d", "conv1d")
    target = Target("triton", Backend.CUDA, named_chip(chip))
    task = replace(load_task(text.format(precision=""), "row"), fidelity="strict")
    sketches = [d.sketch for d in RulesDesigner().designs(DesignBrief(task, target)) if "_low" in d.sketch]
    assert {"f16 temp" in sketch for sketch in sketches} == {True, False}
    for sketch in sketches:
        values = {c.name: int(c.value) for c in load_program(sketch).constexprs if c.value is not None}
        staged = 2 * (2 if "f16 temp" in sketch else 4) * (values["BW"] + values["BN"]) * values["BC"]
        assert 2 <= values["num_stages"] <= target.chip.shared_bytes // staged


def test_what_eager_does_is_seen_on_the_device_itself() -> None:
    """A CPU takes float32, whatever the flags allow; no convolution, or one in whole numbers, has nothing to round."""
    assert not rounded(load_task(TEXT.format(precision=""), "rounded"), "cpu")
    plain = "import torch\ndef reference(x):\n    return x * 2\ndef inputs():\n    return torch.randn(4, 4)\n"
    assert not rounded(load_task(plain, "plain"), "cpu")
    cpu = Target("cpp", Backend.CPU, None)
    assert as_asked(load_task(plain, "plain"), "strict", cpu).strict


@pytest.mark.gpu
def test_eager_takes_tf32_for_wide_convolutions_on_a_gpu() -> None:
    """Each convolution by itself: one with a channel a group has no products for tensor cores."""
    text = """import torch
import torch.nn.functional as F
{precision}
def inputs():
    return torch.randn(16, 64, 56, 56), torch.randn(64, 1, 3, 3), torch.randn(128, 64, 3, 3)


def reference(x, each, wide):
    return F.conv2d(F.conv2d(x, each, groups=64), wide)
"""
    assert rounded(load_task(text.format(precision=""), "wide")) == {"wide"}
    assert not rounded(load_task(text.format(precision='PRECISION = {"conv": "ieee"}\n'), "ieee"))


def test_each_lowering_is_asked_for_the_precision_that_it_has() -> None:
    """Triton splits in place and over a copy, or multiplies parts that the copy stores; CUDA-C multiplies scalars."""
    task = replace(load_task(TEXT.format(precision=""), "rounded"), fidelity="strict")
    for dsl, wanted in (("triton", {"tf32", "tf32x3", "bf16x6"}), ("cuda_c", {"ieee"})):
        target = Target(dsl, Backend.CUDA, CHIP)
        found = set()
        for reply in RulesDesigner().designs(DesignBrief(task, target)):
            program = load_program(reply.sketch)
            words = set(re.findall(r'precision="(\w+)"', reply.sketch)) or {"ieee"}
            if any(k for k in program.kernels) and "gemm(" in reply.sketch:
                found |= words
                if dsl == "triton":
                    source = lower(program, bind(program, task, dict(reply.constexpr), target), target)
                    text = "".join(source.files.values())
                    assert all(f'input_precision="{word}"' in text for word in words)
        assert found == wanted, dsl
