"""A slice ends before its tensor does: what a tile reads behind it is no padding."""

from __future__ import annotations

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import named_chip
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

TARGETS = [
    Target("triton", Backend.CUDA, find_chip("NVIDIA H200")),
    Target("cpp", Backend.CPU, named_chip("x86-avx512")),
]
TASK = """import torch
def inputs():
    return (torch.randn({shape}),)
def reference(x):
    return {result}
"""


@pytest.mark.parametrize("target", TARGETS, ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    "result",
    [
        "x[:, 100:41000].sum(1)",
        "x.t()[100:41000].amax(0)",
        "x[:, 100:50000].sum(1)",
        "x[:, 100:1077] @ x[:, 77:1054].t()",
    ],
)
def test_what_lies_behind_a_slice_is_not_counted(result: str, target: Target) -> None:
    source = (
        f"import torch\ndef inputs():\n    return (torch.randn(40, 50000),)\ndef reference(x):\n    return {result}\n"
    )
    task = load_task(source)
    x = torch.randn(40, 50000, generator=torch.Generator().manual_seed(1))
    wanted = eval(result, {"x": x.double()})
    for design in RulesDesigner().designs(DesignBrief(task, target)):
        program = load_program(design.sketch)
        binding = bind(program, task, {})
        got = run(program, binding.inputs((x,)), symbols={}, constexpr=binding.constexpr)["y"]
        assert torch.allclose(got.double().reshape(wanted.shape), wanted, atol=1e-2)


def test_parts_of_a_slice_are_those_of_the_slice() -> None:
    result = "x[:1100, 100:1077] @ x[900:, 77:1054].t()"
    task = load_task(TASK.format(shape="2000, 1100", result=result))
    x = torch.randn(2000, 1100, generator=torch.Generator().manual_seed(1))
    program = load_program(RulesDesigner().designs(DesignBrief(task, TARGETS[0]))[0].sketch)
    assert any("split" in sketch.name for sketch in program.kernels)
    binding = bind(program, task, {})
    got = run(program, binding.inputs((x,)), symbols={}, constexpr=binding.constexpr)["y"]
    assert torch.allclose(got, eval(result, {"x": x}), atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_a_whole_number_next_to_padding_stays_whole(dtype: torch.dtype) -> None:
    """A float next to it would round it above 2^24."""
    made = f"torch.arange(64, dtype={dtype}) + 2**30"
    task = load_task(
        f"import torch\n\ndef inputs():\n    return ({made},)\n\ndef reference(x):\n"
        "    return torch.nn.functional.pad(x[:-1], (1, 0))\n",
        "padded",
    )
    x = torch.arange(64, dtype=dtype) + 2**30 + 1
    for target in TARGETS:
        sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
        assert torch.equal(run(load_program(sketch), {"x": x})["y"], torch.nn.functional.pad(x[:-1], (1, 0)))


@pytest.mark.parametrize("target", TARGETS, ids=["gpu", "cpu"])
def test_a_weight_of_zero_meets_no_infinity_past_the_last_of_joined_parts(target: Target) -> None:
    source = """import torch
import torch.nn.functional as F
def inputs():
    return torch.randn(4, 8, 2), torch.randn(4, 2, 16, 8, 16), torch.randn(4, 2, 16, 8, 16)
def reference(a, x, b):
    s = torch.einsum("bclhn,bclhp->bchpn", b, x)
    total = F.pad(a, (1, 0)).cumsum(-1)
    gap = total[..., :, None] - total[..., None, :]
    weights = gap.masked_fill(~torch.tril(torch.ones(3, 3, dtype=torch.bool)), -torch.inf).exp()
    joined = torch.cat([torch.zeros_like(s[:, :1]), s], 1)
    return torch.einsum("bhzc,bchpn->bzhpn", weights, joined)[:, -1]
"""
    task = load_task(source)
    args = task.module().sample(seed=3)
    (wanted,) = task.module().reference(args)
    for design in RulesDesigner().designs(DesignBrief(task, target)):
        program = load_program(design.sketch)
        binding = bind(program, task, {})
        got = run(program, binding.inputs(args), symbols={}, constexpr=binding.constexpr)["y"]
        assert torch.allclose(got.double().reshape(wanted.shape), wanted.double(), rtol=1e-4, atol=1e-3), design.sketch


@pytest.mark.parametrize("divisor", ["n // 2", "torch.where(c, n // 2, n)"])
def test_a_computed_divisor_is_no_zero_past_the_edge(divisor: str) -> None:
    source = f"""import torch
def reference(x, n, c):
    return x // ({divisor})
def inputs():
    return torch.randint(0, 1000, (64, 1000)), torch.randint(6, 50, (1000,)), torch.rand(64, 1) < 0.5
"""
    task = load_task(source)
    for target in TARGETS:
        program = load_program(RulesDesigner().designs(DesignBrief(task, target))[0].sketch)
        args = task.module().sample(seed=3)
        binding = bind(program, task, {})
        got = run(program, binding.inputs(args), symbols={}, constexpr=binding.constexpr)["y"]
        assert torch.equal(got, task.module().reference(args)[0])
