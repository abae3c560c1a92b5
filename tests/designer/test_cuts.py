"""Graphs that are cut behind a product: what follows sees the stored value in a shape of its own."""

from __future__ import annotations

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.capture import capture
from kernellab.designer.graph.cuts import cut_nodes, depth
from kernellab.dsls.machine import detect_target
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task

CHIP = find_chip("NVIDIA H200")
assert CHIP is not None
TARGETS = [Target("triton", Backend.CUDA, CHIP), detect_target("cpp")]

HEAD = "import torch\nimport torch.nn.functional as F\n\n\n"
CONV = (
    "def inputs():\n    return torch.randn(2, 4, 7, 9), torch.randn(6, 4, 3, 3), torch.randn(6), torch.randn(6)\n\n\n"
)
GEMM = "def inputs():\n    return torch.randn(5, 24), torch.randn(12, 24), torch.randn(12), torch.randn(12)\n\n\n"
BODIES = {
    "group norm after a convolution": CONV + "def reference(x, w, b, g):\n    h = F.gelu(F.conv2d(x, w, b))\n"
    "    return F.group_norm(h, 3, g, b)\n",
    "group norm after a product": GEMM + "def reference(x, w, b, g):\n"
    "    return F.hardtanh(F.group_norm(F.linear(x, w, b), 4, g, b), -2.0, 2.0)\n",
    "a product used on both sides of a norm": CONV + "def reference(x, w, b, g):\n    h = F.conv2d(x, w, b)\n"
    "    n = torch.tanh(F.group_norm(h, 3, g, b))\n"
    "    return torch.logsumexp(h + F.hardswish(n), dim=1, keepdim=True)\n",
    "pooling, scaling, pooling": CONV + "def reference(x, w, b, g):\n"
    "    h = F.max_pool2d(F.group_norm(F.conv2d(x, w, b), 2, g, b) * 2.0, 2)\n    return torch.clamp(h, 0.0, 1.0)\n",
    "pooling along features": GEMM + "def reference(x, w, b, g):\n"
    "    h = F.avg_pool1d(F.linear(x, w, b).unsqueeze(1), 4).squeeze(1)\n"
    "    return (F.gelu(h) * 2.0).amax(dim=1)\n",
    "two products": GEMM + "def reference(x, w, b, g):\n"
    "    return torch.logsumexp(torch.sigmoid(F.linear(x, w, b)) @ w, dim=1)\n",
    "mish twice": GEMM + "def reference(x, w, b, g):\n    return F.mish(F.mish(F.linear(x * 30, w, b)))\n",
    "sequences through two layers": "def inputs():\n"
    "    return torch.randn(2, 5, 24), torch.randn(12, 24), torch.randn(12), torch.randn(24)\n\n\n"
    "def reference(x, w, b, g):\n    return x + F.linear(F.gelu(F.linear(x, w, b)), w.T, g)\n",
    "attention whose heads a layer reads": "def inputs():\n"
    "    return torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4), torch.randn(12, 12), torch.randn(2, 6, 12)\n\n\n"
    "def reference(x, w, b, g):\n    y = F.scaled_dot_product_attention(x, w, w, is_causal=True)\n"
    "    return torch.relu(g + y.transpose(1, 2).reshape(2, 6, 12) @ b)\n",
    "pairs of the last axis, written apart": "def inputs():\n"
    "    return torch.randn(3, 6, 8), torch.randn(6, 4), torch.randn(6, 4), torch.randn(1)\n\n\n"
    "def reference(x, w, b, g):\n    p, y = x.view(3, 6, 4, 2), x.new_zeros(3, 6, 8)\n"
    "    y[..., 1::2] = p[..., 1] * w - p[..., 0] * b\n    y[..., 0::2] = p[..., 1] * b + p[..., 0] * w\n"
    "    return y\n",
    "the sum of a product's columns": GEMM + "def reference(x, w, b, g):\n"
    "    s = (F.linear(x, w, b) / 2 - g).sum(dim=1, keepdim=True)\n    return F.gelu(s) + x\n",
    "the mean of a product without bias": GEMM + "def reference(x, w, b, g):\n    return (x @ w.T).mean(dim=1)\n",
    "the mean of a transposed convolution": "def inputs():\n"
    "    return torch.randn(2, 4, 5, 6), torch.randn(4, 6, 3, 2), torch.randn(6), torch.rand(6) + 0.5\n\n\n"
    "def reference(x, w, b, g):\n    h = F.conv_transpose2d(x, w, b) * 2\n"
    "    h = F.batch_norm(h, b, g, g, b, False)\n    return torch.logsumexp(h.mean(dim=[2, 3]) + g, dim=1)\n",
    "mish, then the mean of a row": CONV + "def reference(x, w, b, g):\n"
    "    return F.mish(F.conv2d(x, w, b)).mean(dim=[2, 3])\n",
}  # fmt: skip


def _task(name: str) -> Task:
    return load_task(HEAD + BODIES[name], "cut")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.dsl)
@pytest.mark.parametrize("name", BODIES)
def test_every_design_means_what_the_reference_does(name: str, target: Target) -> None:
    task = _task(name)
    args = task.module().sample({}, 3)
    exact = task.module().reference(tuple(a.double() for a in args))
    for reply in RulesDesigner().designs(DesignBrief(task, target)):
        program = load_program(reply.sketch, constexpr=reply.constexpr)
        binding = bind(program, task, reply.constexpr, target)
        given = {tensor: args[i] for tensor, i in binding.tensors.items()}
        got = run(program, given, constexpr=binding.constexpr, f64=True)
        for output, want in zip(binding.outputs, exact, strict=True):
            found = got[output.tensor].reshape(want.shape)
            assert (found - want).abs().max() <= 1e-9 * (1 + want.abs().max()), reply.sketch


def test_what_goes_out_with_a_product_is_stored_behind_it() -> None:
    graph = capture(_task("mish, then the mean of a row"))
    (name,) = cut_nodes(graph)
    assert next(n for n in graph.nodes if n.name == name).op.startswith("aten.mul")


def _cut(name: str) -> list[str]:
    graph = capture(_task(name))
    return [n.aten for n in graph.nodes if n.name in cut_nodes(graph)]


def test_what_follows_a_layer_of_sequences_goes_out_with_its_product() -> None:
    """It is a product of one matrix between two views; GELU, made again for each tile of the next product's columns,
    took 470 to 823 of a GPT-2 block's 760 to 1,100 us on an H200."""
    assert _cut("sequences through two layers") == ["gelu"]


def test_pairs_of_the_last_axis_are_read_where_they_lie() -> None:
    """A rotary embedding's gradient took 0.338 ms on an H200, torch.compile's 0.065: its input was copied first."""
    task = _task("pairs of the last axis, written apart")
    sketch = RulesDesigner().designs(DesignBrief(task, TARGETS[0]))[0].sketch
    assert sketch.count("sketch cut") == 1 and " temp" not in sketch, sketch


def test_attention_is_stored_with_its_heads_side_by_side_for_a_layer() -> None:
    task = _task("attention whose heads a layer reads")
    texts = [r.sketch for r in RulesDesigner().designs(DesignBrief(task, TARGETS[0]))]
    assert _cut("attention whose heads a layer reads") in (["view"], ["reshape"], ["_unsafe_view"])
    assert any("_all[12, 12]: f32 temp" in text for text in texts)


def test_a_sum_of_a_product_is_said_to_leave_the_product_out() -> None:
    task = _task("the sum of a product's columns")
    for target in TARGETS:
        text = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
        assert "gemm(" not in text and "the product is never made" in text


def test_what_only_leaves_the_graph_is_not_cut_off() -> None:
    text = HEAD + CONV + "def reference(x, w, b, g):\n    return F.mish(F.conv2d(x, w, b))\n"
    assert not cut_nodes(capture(load_task(text, "cut")))


def test_a_mask_made_after_the_product_goes_out_with_it() -> None:
    text = (
        HEAD
        + GEMM
        + "def reference(x, w, b, g):\n    return torch.triu(F.linear(x, w) * g) + torch.arange(12)[None, :]\n"
    )
    assert not cut_nodes(capture(load_task(text, "cut")))


def test_a_view_on_the_way_out_is_no_reader() -> None:
    text = (
        HEAD
        + "def inputs():\n    return (torch.randn(2, 4, 30),)\n\n\ndef reference(x):\n    return F.max_pool1d(x, 3)\n"
    )
    assert not cut_nodes(capture(load_task(text, "cut")))


def test_what_a_residual_network_goes_on_with_is_stored() -> None:
    """Each layer reads what the layers before it come to, not the terms of all of them."""
    text = """import torch
import torch.nn.functional as F


def reference(x, w, v):
    for k in range(6):
        x = F.layer_norm(x + torch.relu(x @ w[k]) @ v[k], (32,))
    return x


def inputs():
    return torch.randn(9, 32), torch.randn(6, 32, 32), torch.randn(6, 32, 32)
"""
    task = load_task(text, "residual")
    target = Target("triton", Backend.CUDA, Chip("test", "gpu", 4))
    sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
    loads = [part.count("load(") for part in sketch.split("\nsketch ")]
    assert max(loads) <= 12, loads
    assert gate(load_program(sketch), task).state is GateState.RIGHT


#: more operations in a chain than one launch may be read from
DEEP = """def inputs():
    return torch.randn(1, 24, 32), torch.randn(32, 96) / 6, torch.randn(32, 32) / 6


def reference(x, w, o):
    for _ in range(9):
        q, k, v = (t.view(1, 24, 2, 16).transpose(1, 2) for t in (F.layer_norm(x, (32,)) @ w).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(1, 24, 32) @ o
    return x
"""


def test_attention_of_a_deep_network_stores_no_scores() -> None:
    """Twelve blocks of GPT-2 took 10.9 ms on an H200, eager 4.0: each attention's scores went through memory."""
    task = load_task(HEAD + DEEP, "deep")
    assert depth(capture(task)) > 100
    args = task.module().sample({}, 3)
    exact = task.module().reference(tuple(a.double() for a in args))[0]
    reply = RulesDesigner().designs(DesignBrief(task, TARGETS[0]))[0]
    program = load_program(reply.sketch, constexpr=reply.constexpr)
    shapes = [[e.evaluate({}) for e in t.shape] for t in program.tensors]
    assert not any(shape[-2:] == [24, 24] for shape in shapes)
    binding = bind(program, task, reply.constexpr, TARGETS[0])
    given = {tensor: args[i] for tensor, i in binding.tensors.items()}
    got = run(program, given, constexpr=binding.constexpr, f64=True)[binding.outputs[0].tensor]
    torch.testing.assert_close(got.reshape(exact.shape), exact, rtol=1e-9, atol=1e-9)


def test_an_index_that_several_gathers_read_is_computed_where_they_read_it() -> None:
    task = load_task(
        HEAD + "def inputs():\n    return torch.randn(2, 3, 9, 7), torch.rand(2, 5, 6, 2) * 2 - 1\n\n\n"
        "def reference(x, grid):\n    ys, xs = torch.meshgrid(torch.arange(5.0), torch.arange(6.0), indexing='ij')\n"
        "    grid = torch.stack((2 * (xs + 1 + grid[..., 0]) / 5 - 1, 2 * (ys - 1 + grid[..., 1]) / 4 - 1), -1)\n"
        "    return F.grid_sample(x, grid, align_corners=True)\n",
        "sampled",
    )
    assert not cut_nodes(capture(task))
    sketch = RulesDesigner().design(DesignBrief(task, TARGETS[1])).sketch
    assert sketch.count("sketch sampled") == 1
    assert gate(sketch, task).state is GateState.RIGHT


def test_distances_that_are_carried_between_places_of_extremes_are_stored() -> None:
    """Otherwise each step computes those of all steps before it again."""
    task = load_task(
        "import torch\nfrom kernellab import Dim\nB, N = Dim('B', 1, 4), Dim('N', 8, 60)\n"
        "def reference(x):\n"
        "    near, at, rows = torch.full(x.shape[:2], 1e10), x.new_zeros(x.shape[0]).long(), torch.arange(x.shape[0])\n"
        "    chosen = []\n"
        "    for _ in range(9):\n"
        "        chosen.append(at)\n"
        "        near = torch.minimum(near, ((x - x[rows, at].unsqueeze(1)) ** 2).sum(-1))\n"
        "        at = near.max(-1).indices\n"
        "    return torch.stack(chosen, 1)\n"
        "def inputs(B=2, N=16):\n    return torch.randn(B, N, 3)\n",
        "farthest",
    )
    graph = capture(task)
    stored = cut_nodes(graph)
    assert sum(n.aten == "minimum" and n.name in stored for n in graph.nodes) >= 2
    sketch = RulesDesigner().design(DesignBrief(task, TARGETS[1])).sketch
    assert gate(sketch, task).state is GateState.RIGHT
    # the distances to all points before would be read in one launch
    assert max(part.count("minimum(") for part in sketch.split("sketch ")) <= 3


@pytest.mark.parametrize("name", ["bucketize", "searchsorted"])
def test_boundaries_are_looked_up_and_values_are_read_where_they_are(name: str) -> None:
    """``bucketize`` has the values first, ``searchsorted`` the boundaries."""
    steps = "".join(f"        t = torch.sin(t * 1.5 + {k})\n" for k in range(12))
    given = {"bucketize": "x, edges", "searchsorted": "edges, x"}[name]

    def stored(computed: str) -> frozenset[str]:
        task = load_task(
            HEAD + f"def reference(x, edges):\n    def made(t):\n{steps}        return t\n"
            f"    {computed} = made({computed})\n    return torch.{name}({given}), {computed} * 2.0\n"
            "def inputs():\n    return torch.rand(4096), torch.rand(1000).sort().values\n",
            "looked_up",
        )
        return cut_nodes(capture(task))

    assert not stored("x")
    assert len(stored("edges")) == 1
