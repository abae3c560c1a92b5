"""The places of a pooling's largest elements, and its gradient: each element reads the windows in which it lies."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.capture.decompositions.pooling import max_pool, max_pool_backward
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.sketch.check import load_program
from kernellab.sketch.run import run
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

H200 = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
#: kernel, stride, padding, dilation
WINDOWS = [(3, 2, 1, 1), (2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 2), (2, 3, 0, 1), (5, 2, 2, 1)]
#: an element of a volume lies in up to 27 of these windows, more than its gradient reads
MANY = [(3, 1, 1, 1), (3, 2, 1, 2), (5, 2, 2, 1)]


def _image(rank: int) -> torch.Tensor:
    """Equal elements, a slice of -inf and a NaN."""
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (2, 3, *(13, 12, 9)[:rank])).float()
    x[0, 0].fill_(-torch.inf)
    x[0, 1].view(-1)[5] = torch.nan
    return x


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("numbers", WINDOWS)
def test_places_and_gradients_are_the_framework_s(numbers: tuple[int, ...], rank: int) -> None:
    aten: Any = torch.ops.aten
    forward, backward = (getattr(aten, f"max_pool{rank}d_with_indices{end}") for end in ("", "_backward"))
    x, given = _image(rank), [[n] * rank for n in numbers]
    value, places = forward(x, *given)
    ours = max_pool(rank)(x, *given)
    torch.testing.assert_close(ours[0], value, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(ours[1], places)
    grad = torch.randn_like(value)
    got = max_pool_backward(rank)(grad, x, *given, False, places)
    if rank == 3 and numbers in MANY:
        assert got is NotImplemented
    else:
        torch.testing.assert_close(got, backward(grad, x, *given, False, places), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("sizes", "kernel"),
    [((6, 9), (2, 3)), ((4, 6, 9), (2, 2, 3)), ((6, 8), (1, 4)), ((7, 9), (2, 3)), ((5, 7, 9), (2, 2, 2))],
)
def test_windows_side_by_side_give_the_same_gradients(
    sizes: tuple[int, ...], kernel: tuple[int, ...], ceil: bool
) -> None:
    rank = len(sizes)
    forward = getattr(torch.ops.aten, f"max_pool{rank}d_with_indices")
    backward = getattr(torch.ops.aten, f"max_pool{rank}d_with_indices_backward")
    torch.manual_seed(1)
    x = torch.randint(-3, 3, (2, 3, *sizes)).float()
    x[0, 0].fill_(-torch.inf)
    x[1, 1].view(-1)[7] = torch.nan
    given = [list(kernel), [], [0] * rank, [1] * rank, ceil]
    value, places = forward(x, *given)
    grad = torch.randn_like(value)
    got = max_pool_backward(rank)(grad, x, *given, places)
    assert torch.equal(got, backward(grad, x, *given, places))


@pytest.mark.parametrize(("numbers", "launches"), [("3, 2, 1", 2), ("2", 1)])
def test_a_gradient_is_one_launch_behind_that_of_its_places(numbers: str, launches: int) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n\nGRAD = True\n\n"
        f"def reference(x):\n    return F.max_pool2d(x, {numbers})\n\n"
        "def inputs():\n    return (torch.randn(2, 3, 14, 12),)\n"
    )
    task = load_task(backward_text(load_task(text, "forward")), "gradient")
    sketch = RulesDesigner().design(DesignBrief(task, H200)).sketch
    program = load_program(sketch)
    assert len(program.kernels) == launches and "library" not in sketch and "atomic_add" not in sketch
    x = torch.randint(-3, 3, (2, 3, 14, 12)).float().requires_grad_()
    out = torch.nn.functional.max_pool2d(x, *map(int, numbers.split(", ")))
    grad = torch.randn_like(out)
    (want,) = torch.autograd.grad(out, x, grad)
    got = run(program, {"grad": grad, "x": x.detach()})["y"]
    torch.testing.assert_close(got.reshape(want.shape), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("numbers", "warps"), [("3, 2, 1", 1), ("2", 2)])
def test_tiles_of_many_picked_elements_are_small(numbers: str, warps: int) -> None:
    """Nine places of a window, or four and a gradient: 4 rows and 8 elements a thread, where other tiles hold 1024."""
    size = 113 if warps == 2 else 112  # windows of 2 leave an element out
    gradient = "GRAD = True\n\n" if warps == 2 else ""
    more = "" if gradient else ", return_indices=True"
    text = (
        f"import torch\nimport torch.nn.functional as F\n\n{gradient}"
        f"def reference(x):\n    return F.max_pool2d(x, {numbers}{more})\n\n"
        f"def inputs():\n    return (torch.randn(64, 64, {size}, {size}, dtype=torch.bfloat16),)\n"
    )
    task = load_task(text, "forward")
    task = load_task(backward_text(task), "gradient") if gradient else task
    sketch = RulesDesigner().design(DesignBrief(task, H200)).sketch
    assert "ROWS = 4 in" in sketch and f"num_warps = {warps} in" in sketch, sketch


@pytest.mark.parametrize(("sizes", "kernel"), [((14, 12), (2, 2)), ((4, 6, 10), (2, 2, 2)), ((6, 40), (1, 4))])
def test_a_window_s_elements_are_axes_of_its_gradient_and_read_it_once(
    sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> None:
    rank = len(sizes)
    text = (
        "import torch\nimport torch.nn.functional as F\n\nGRAD = True\n\n"
        f"def reference(x):\n    return F.max_pool{rank}d(x, {kernel})\n\n"
        f"def inputs():\n    return (torch.randn(2, 3, *{sizes}),)\n"
    )
    task = load_task(backward_text(load_task(text, "forward")), "gradient")
    sketch = RulesDesigner().design(DesignBrief(task, H200)).sketch
    loops = [line for line in sketch.splitlines() if line.strip().startswith("for ")]
    stored = next(line for line in sketch.splitlines() if "-> y[" in line)
    assert all(f"0:{k}" in stored for k in kernel if k > 1), stored
    assert sketch.count("gather(x[") == math.prod(kernel) and not any(f"range({k})" in f for k in kernel for f in loops)
    x = torch.randint(-3, 3, (2, 3, *sizes)).float()
    x[0, 0].fill_(-torch.inf)
    x[1, 1].view(-1)[7] = torch.nan
    x.requires_grad_()
    out = getattr(torch.nn.functional, f"max_pool{rank}d")(x, kernel)
    grad = torch.randn_like(out)
    (want,) = torch.autograd.grad(out, x, grad)
    got = run(load_program(sketch), {"grad": grad, "x": x.detach()})["y"]
    torch.testing.assert_close(got.reshape(want.shape), want, rtol=0, atol=0)
