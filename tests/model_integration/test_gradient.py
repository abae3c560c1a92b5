"""The backward of a task: derived, designed and checked with its forward."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.capture import capture
from kernellab.capture.capture import run_graph
from kernellab.errors import CaptureError, SwapError
from kernellab.model_integration.gradient import said_true
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.model_integration.gradient.pair import Pair, check
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.program import Apply
from kernellab.sketch.program.walk import statements, subvalues
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

TASK = """
import torch
from kernellab import Dim

GRAD = True

def reference({names}):
    return {body}

M, N = Dim("M", 1, 4096), Dim("N", 16, 4096)

def inputs(M=64, N=96):
    return ({given},)
"""
NORM = "torch.randn(M, N), torch.rand(N) + 0.5"
FAMILIES = {
    "layer_norm": (
        "x, w, b", "torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)", f"{NORM}, torch.randn(N)"
    ),
    "rms_norm": ("x, w", "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w", NORM),
    "softmax": ("x", "torch.softmax(x, -1)", "torch.randn(M, N)"),
    "gelu": ("x", "torch.nn.functional.gelu(x)", "torch.randn(M, N)"),
    "cross_entropy": (
        "x, t", "torch.nn.functional.cross_entropy(x, t)", "torch.randn(M, N), torch.randint(0, N, (M,))"
    ),
    "attention": (
        "q, k, v", "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        "torch.randn(M, N, 32), torch.randn(M, N, 32), torch.randn(M, N, 32)",
    ),
}  # fmt: skip


def task_of(name: str) -> str:
    names, body, given = FAMILIES[name]
    return TASK.format(names=names, body=body, given=given)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_backward_is_one_graph_over_the_tasks_dims_that_agrees_with_autograd(name: str) -> None:
    task = load_task(task_of(name), name)
    assert said_true(task.text, "GRAD")
    backward = load_task(backward_text(task), f"{name}_backward")
    assert not said_true(backward.text, "GRAD") and backward.dims == task.dims
    # capture compares its graph with the reference, which is autograd, at other sizes
    graph = capture(backward)
    assert len(graph.outputs) == sum("float" in a.dtype for a in task.tensors)
    assert not any("backward" in node.op for node in graph.nodes)
    args = backward.module().sample({"M": 7, "N": 19})
    wanted = backward.module().reference(args)
    plain = backward.module().namespace["plain"](*args)
    for made, want in zip(plain if isinstance(plain, tuple) else (plain,), wanted, strict=True):
        assert torch.allclose(made, want, atol=1e-5)


CONVOLUTION = """
import torch

GRAD = True

def reference(x, w, b):
    return torch.nn.functional.{call}

def inputs():
    return {given}
"""
CONVOLUTIONS = {
    "padded": ("conv2d(x, w, b, padding=1)", "torch.randn(3, 4, 8, 9), torch.randn(5, 4, 3, 3), torch.randn(5)"),
    "apart": ("conv2d(x, w, b, stride=2)", "torch.randn(3, 4, 8, 9), torch.randn(5, 4, 3, 2), torch.randn(5)"),
    "dilated": (
        "conv2d(x, w, b, padding=(2, 0), dilation=2)",
        "torch.randn(3, 4, 8, 9), torch.randn(5, 4, 3, 3), torch.randn(5)",
    ),
    "depthwise": (
        "conv2d(x, w, b, padding=(2, 1), stride=2, dilation=(2, 1), groups=6)",
        "torch.randn(2, 6, 12, 11), torch.randn(6, 1, 3, 3), torch.randn(6)",
    ),
    "wide": (
        "conv2d(x, w, b, padding=2, groups=3)",
        "torch.randn(2, 3, 6, 7), torch.randn(3, 1, 5, 5), torch.randn(3)",
    ),
    "grouped": (
        "conv2d(x, w, b, stride=2, padding=1, groups=3)",
        "torch.randn(2, 6, 10, 8), torch.randn(9, 2, 3, 3), torch.randn(9)",
    ),
    "transposed": (
        "conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1, groups=2)",
        "torch.randn(2, 6, 5, 4), torch.randn(6, 2, 3, 3), torch.randn(4)",
    ),
    "line": ("conv1d(x, w, b, stride=3)", "torch.randn(3, 4, 20), torch.randn(5, 4, 3), torch.randn(5)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolutions_backward_is_two_convolutions_and_a_sum_which_the_rules_design(name: str) -> None:
    call, given = CONVOLUTIONS[name]
    task = load_task(backward_text(load_task(CONVOLUTION.format(call=call, given=given), "forward")), name)
    args = task.module().sample(seed=3)
    plain = task.module().namespace["plain"](*args)
    for made, want in zip(plain, task.module().reference(args), strict=True):
        torch.testing.assert_close(made, want, rtol=1e-4, atol=1e-4)
    target = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
    sketch = RulesDesigner().design(DesignBrief(task, target)).sketch
    assert gate(sketch, task, seconds=0.2).state is GateState.RIGHT, sketch


def test_launches_share_out_more_sums_than_a_program_carries_in_registers() -> None:
    """A sum for each of 25 taps: 49 of them in one launch took 1.93 ms on an H200, most of it spilled registers."""
    call, given = CONVOLUTIONS["wide"]
    task = load_task(backward_text(load_task(CONVOLUTION.format(call=call, given=given), "forward")), "wide")
    target = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
    program = load_program(RulesDesigner().design(DesignBrief(task, target)).sketch)
    sums = [
        sum(
            isinstance(v, Apply) and v.op == "reduce_sum"
            for s in statements(k.body)
            for r in s.values
            for v in subvalues(r)
        )
        for k in program.kernels
    ]
    assert sum(sums) >= 25 and max(sums) <= 8, sums


LAYER = """
import torch

GRAD = True

def reference(x, h, wi, wh, bi, bh):
    return torch.gru(x, h, [wi, wh, bi, bh], True, 1, 0.0, False, False, True)[0]

def inputs():
    gates = torch.randn(12, 3), torch.randn(12, 4) / 2, torch.randn(12), torch.randn(12)
    return torch.randn(2, 20, 3), torch.randn(1, 2, 4), *gates
"""


def test_a_recurrent_layers_gradient_takes_all_its_steps() -> None:
    """A layer of more than 16 steps is one operation without a gradient: differentiated, it is unrolled."""
    task = load_task(backward_text(load_task(LAYER, "layer")), "layer_backward")
    args = task.module().sample(seed=3)
    wanted = task.module().reference(args)
    assert len(wanted) == 6 and all(float(w.abs().max()) > 0.1 for w in wanted)
    for made, want in zip(run_graph(capture(task), args), wanted, strict=True):
        torch.testing.assert_close(made, want, rtol=1e-4, atol=1e-5)


def test_a_pairs_gradients_are_compared_with_float64_and_a_wrong_one_is_named() -> None:
    task = load_task(task_of("rms_norm"), "rms_norm")

    def fused(x, w):
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, 1e-6)

    assert "gradients right on 3 hidden draws" in check(task, fused).text

    class Forgetful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return fused(x, w)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            rate = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return grad * w * rate, (grad * x * rate).sum(0)

    with pytest.raises(SwapError, match="the gradient of x is off by"):
        check(task, Forgetful.apply)


def test_a_second_derivative_of_a_pair_is_the_references() -> None:
    """A kernel's gradients have no graph: a penalty of their size was dropped without a word."""
    task = load_task(task_of("gelu"), "gelu")

    def session(kernel):
        return SimpleNamespace(best=SimpleNamespace(check_allowed=lambda: None, quick=kernel))

    def forward(x):
        return torch.nn.functional.gelu(x.detach())

    def backward(grad, x):
        return torch.ops.aten.gelu_backward(grad.detach(), x.detach())

    function = Pair(task, session(forward), session(backward)).function
    x = torch.randn(3, 16).requires_grad_()
    found = []
    for call in (function, torch.nn.functional.gelu):
        (first,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum() + x.sum(), x)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\ndef reference(x): return torch.argmax(x, -1)\n"
         "def inputs(): return torch.randn(4, 4)\n", "traced"),
        ("import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
         "def get_inputs(): return [torch.randn(4)]\n", "not a function of torch"),
        ("import torch\ndef reference(x, y): return x * 2 + y.detach()\n"
         "def inputs(): return torch.randn(4), torch.randn(4)\n", "depends smoothly on 'y'"),
    ],
)  # fmt: skip
def test_a_task_without_a_backward_says_why(text: str, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        backward_text(load_task(text, "odd"))


def test_a_task_that_asks_for_gradients_gets_both_kernels(tmp_path, capsys, monkeypatch) -> None:
    from kernellab.cli.main import main

    (tmp_path / "kernellab.toml").touch()
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "gelu.py"
    # three verdicts, which take half as long without Dims
    fixed = task_of("gelu").replace('Dim("M", 1, 4096), Dim("N", 16, 4096)', "64, 96").replace("M=64, N=96", "")
    file.write_text(fixed)
    assert main(["design", str(file), "--dsl", "cpp", "--json", "--out", "made"]) == 0
    said = json.loads(capsys.readouterr().out)["backward"]
    assert said["passed"] and said["speedup"] > 0 and said["pair_speedup"] > 0
    assert "backward of its gradients" in (tmp_path / "made" / "gelu.py").read_text()
