"""A reference becomes a graph over symbolic shapes, which computes what the reference does."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from kernellab.capture import Graph, Sym, capture, export, run_graph
from kernellab.capture.decompositions import in_export
from kernellab.capture.decompositions.resize import grid_sample
from kernellab.capture.graph import LOOP
from kernellab.capture.loops import long, trace
from kernellab.errors import CaptureError
from kernellab.task import forget_modules, load_task
from kernellab.task.formula import named
from tests.designer.designer_cases import CASES

HEAD = "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 64)\n"


def graph_of(body: str, given: str = "torch.randn(M, N)", parameters: str = "x") -> Graph:
    text = f"{HEAD}def reference({parameters}):\n{body}\ndef inputs(M=8, N=6):\n    return {given}\n"
    return capture(load_task(text, "captured"))


@pytest.mark.parametrize("name", ["chain", "layer_norm", "cross_entropy", "numpy", "model", "half", "batch_norm"])
def test_a_graph_computes_what_its_reference_does(name: str) -> None:
    task = load_task(CASES[name], name)
    args = task.module().sample(seed=3)
    for got, want in zip(run_graph(capture(task), args), task.module().reference(args), strict=True):
        torch.testing.assert_close(got, want)


def test_shapes_are_over_dim_names_and_nodes_keep_their_lines() -> None:
    graph = graph_of("    y = torch.relu(x)\n    return y.sum(1) / x.shape[0]")
    relu, total, divide = graph.nodes
    m, n = named("M"), named("N")
    assert (relu.shape, relu.line) == ((m, n), 5)
    assert (total.shape, total.line) == ((m,), 6)
    assert divide.args[1] == Sym(m)


def test_what_follows_from_dims_is_a_formula_over_them() -> None:
    graph = graph_of("    y = torch.cat((x, x[:, 1:]), 1)\n    return y.reshape(-1) / (x.shape[1] // 3)")
    for node in graph.nodes:
        assert not any(isinstance(extent, str) for extent in node.shape)
    sizes = {"M": 5, "N": 7}
    assert [e if isinstance(e, int) else e.value(sizes) for e in graph.nodes[-1].shape] == [5 * 13]
    (third,) = (a for a in graph.nodes[-1].args if isinstance(a, Sym))
    assert third.expr.value(sizes) == 2


def test_families_stay_whole() -> None:
    graph = graph_of("    return torch.softmax(torch.nn.functional.layer_norm(x, (x.shape[-1],)), -1)")
    assert [n.op for n in graph.nodes] == ["aten.layer_norm.default", "aten.softmax.int"]


def test_scalar_arguments_stay_symbolic_also_inside_arithmetic() -> None:
    graph = graph_of("    return x * beta + (1 - beta)", "torch.randn(M, N), 0.9", "x, beta: float")
    assert graph.scalars == {"beta": 1}
    x = torch.randn(3, 4)
    (got,) = run_graph(graph, (x, 0.25))
    torch.testing.assert_close(got, x * 0.25 + 0.75)


def test_a_scalar_that_is_lost_in_other_arithmetic_is_fixed_at_its_value() -> None:
    graph = graph_of("    return x * (beta ** 3 + 0.125)", "torch.randn(M, N), 0.9", "x, beta: float")
    assert graph.fixed == {"beta": 0.9}


def test_a_scalar_with_a_default_is_that_number() -> None:
    graph = graph_of("    return x ** gamma", parameters="x, gamma: float = 2.0")
    assert (graph.scalars, graph.fixed) == ({}, {"gamma": 2.0})
    assert graph.nodes[0].args[1:] == (2.0,)


def test_a_loop_of_too_many_calls_is_refused_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "_MANY", 40)
    monkeypatch.setattr(long, "_MOST", 50)
    with pytest.raises(CaptureError, match=r"more than 50 calls of torch \(at line 5\)"):
        graph_of("    for i in range(60): x = x + 1 if i % 2 else x * 2\n    return x")


@pytest.mark.parametrize("steps", ["range(300)", "reversed(range(300))", "range(5, 300, 1)"])
def test_a_long_range_of_many_calls_is_one_loop(steps: str) -> None:
    """Advantages of 128 steps took 1,469 lines and 18 s written out; more than 2,500 calls were refused."""
    text = "    h, out = x[0] * 0, []\n    for t in {0}:\n        h = h * 0.9 + x[t] * 0.1\n        out.append(h)\n"
    graph = graph_of((text + "    return torch.stack(out)").format(steps), "torch.randn(300, 4)", "x")
    assert [n.op for n in graph.nodes].count(LOOP) == 1 and len(graph.nodes) < 8


def test_a_short_range_and_steps_that_multiply_matrices_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "_MANY", 50)
    text = "    for t in range({}):\n        x = {}\n    return x"
    for steps, step in ((20, "(x * 0.9).sin().cos() + 1"), (40, "(x @ x).tanh()")):
        graph = graph_of(text.format(steps, step), "torch.randn(4, 4)", "x")
        assert not any(n.op == LOOP for n in graph.nodes)


def test_a_tensor_that_a_loop_fills_piece_by_piece_is_refused_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_MOST_WRITES", 20)
    loop = "    y = torch.zeros(x.shape[0] + {0}, 4)\n    for i in range({0}): y[i] = x[0] * i\n    return y"
    assert graph_of(loop.format(20), "torch.randn(M, 4)").outputs
    with pytest.raises(CaptureError, match=r"writes 21 pieces of tensors one by one \(at line 6\)"):
        graph_of(loop.format(21), "torch.randn(M, 4)")


def test_pieces_that_a_loop_writes_are_joined_and_read_where_they_were_made() -> None:
    graph = graph_of(
        """
    y = torch.zeros(x.shape[0], 5)
    y[:, 0] = x[:, 0]
    for i in range(1, 4):
        y[:, i] = y[:, i - 1] * x[:, i]
    y[:, -1] = 7
    y[:, 1:3] += 1
    z = y.clone()
    z[:, 1] = 0
    z[2:] = z[2:] * 3
    return y, z""",
        "torch.randn(M, 4)",
    )
    first = graph.outputs[0].name
    assert graph.node(first).aten == "cat"
    # what is written once behind it is no reason to join again
    assert [n.aten for n in graph.nodes].count("cat") == 2
    x = torch.randn(6, 4)
    y = torch.cat([x.cumprod(1), torch.full((6, 1), 7.0)], 1)
    y[:, 1:3] += 1
    z = y.clone()
    z[:, 1] = 0
    z[2:] *= 3
    for got, want in zip(run_graph(graph, (x,)), (y, z), strict=True):
        torch.testing.assert_close(got, want)


def test_float64_reaches_dtypes_fixed_inside_the_reference() -> None:
    graph = graph_of("    return (x.to(torch.float16) + torch.ones(x.shape[1], dtype=torch.float16)).float()")
    x = torch.randn(3, 4, dtype=torch.float64)
    (got,) = run_graph(graph, (x,), f64=True)
    assert got.dtype is torch.float64
    torch.testing.assert_close(got, x + 1, rtol=0, atol=0)


def test_constants_that_a_module_holds_do_not_hide_its_parameters() -> None:
    graph = capture(load_task(CASES["model"], "model"))
    assert [i.name for i in graph.inputs][:1] == ["x"]
    assert {i.shape for i in graph.inputs} == {(9, 12), (12,), (10, 12), (10,)}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    if x.sum() > 0:\n        return x\n    return -x", "values"),
        ("    return x + torch.rand(x.shape)", "random"),
        ("    return x * x.max().item()", "values"),
        ("    return torch.from_numpy(x.numpy().cumsum(1))", "leaves PyTorch for NumPy"),
        ("    return x[x > 0].mean()", "picks elements by a mask: the result's size depends on the values"),
        ("    return torch.masked_select(x, x > 0).sum()", "torch.where(mask, x, 0)"),
        ("    return x[torch.combinations(torch.arange(x.shape[0]), 3)].sum()", "knows by its values only"),
        ("    return torch.unique(x).sum()", "calls unique: the result's size depends on the values"),
    ],
)
def test_what_cannot_be_captured_is_named_with_its_line(body: str, words: str) -> None:
    with pytest.raises(CaptureError, match=r"(?i)line 5") as caught:
        graph_of(body)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "lines",
    [
        "y[y < 0] = 0.5",
        "y[y.sum(1) < 0] = 0.5",
        "y[y.sum(1) < 0] = v",
        "y[:, y.sum(0) < 0] = 0.5",
        "y.masked_fill_(y < 0, 0.5)",
        "y = y.index_put((y < 0,), v[0], accumulate=True)",
        "y = torch.stack((y, y)); y[:, x < 0] = v[:2, None]",
        "y = torch.stack((y, y)); y[y.sum(2) < 0] = v[None]",
    ],
)
def test_an_assignment_by_a_mask_is_a_where(lines: str) -> None:
    graph = graph_of(f"    y = x.clone()\n    {lines}\n    return y", "torch.randn(M, N), torch.randn(N)", "x, v")
    assert "aten.where.self" in [n.op for n in graph.nodes] and not any("index_put" in n.op for n in graph.nodes)
    x, v = torch.randn(7, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    names = {"torch": torch, "x": x, "v": v, "y": x.clone()}
    exec("\n".join(part.strip() for part in lines.split(";")), names)
    (got,) = run_graph(graph, (x, v))
    torch.testing.assert_close(got, names["y"])


def test_a_value_for_each_true_of_a_mask_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"one value for each true.*torch\.where"):
        graph_of(
            "    y = x.clone()\n    y[y < 0] = v\n    return y", "torch.zeros(M, N) - 1, torch.randn(M * N)", "x, v"
        )
    with pytest.raises(CaptureError, match="a mask together with other indices"):
        graph_of("    y = x.clone()\n    y[y[:, 0] > 0, torch.arange(x.shape[0])] = 0.5\n    return y")


def test_references_are_captured_in_threads_at_once() -> None:
    def work(factor: int) -> int:
        return len(graph_of(f"    return torch.softmax(torch.relu(x) * {factor}.5, -1)").nodes)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(11, 17))) == [3] * 6


def test_a_task_of_gigabytes_is_captured_without_drawing_its_inputs() -> None:
    text = """
import torch

def reference(x, y):
    return torch.relu(x @ y)

def inputs():
    if not isinstance(torch.empty(1), torch._subclasses.FakeTensor):
        raise RuntimeError("drawn")
    return torch.empty(1 << 20, 1 << 12), torch.empty(1 << 12, 1 << 10)
"""
    graph = capture(load_task(text, "large"))
    assert [n.op for n in graph.nodes] == ["aten.mm.default", "aten.relu.default"]
    assert graph.nodes[-1].shape == (1 << 20, 1 << 10)


def test_the_trace_of_a_large_task_whose_module_was_forgotten_draws_no_inputs() -> None:
    text = """
import torch

drawn = []

def reference(x, w):
    return torch.nn.functional.layer_norm(x, (2048,), w)

def inputs():
    drawn.append(torch.randn(2048))
    return torch.randn(8192, 2048), drawn[-1]
"""
    task = load_task(text, "forgotten")
    forget_modules()
    export.export_graph(task)
    assert task.module().namespace["drawn"] == []


def test_tensors_that_the_reference_makes_are_in_float64_too() -> None:
    text = """
import torch
def reference(x, group):
    start = torch.full((4, x.shape[1]), 0.1)
    return start.scatter_reduce(0, group[:, None].expand_as(x), x, "amax")
def inputs():
    return torch.randn(32, 8), torch.randint(0, 4, (32,))
"""
    task = load_task(text)
    args = task.module().sample(seed=0)
    (y,) = run_graph(capture(task), args, True)
    x = args[0].double()
    assert y.dtype == torch.float64
    expected = torch.stack([torch.clamp(x[args[1] == g], min=0.1).amax(0) for g in range(4)])
    assert torch.equal(y, expected)


def test_a_torch_that_takes_fewer_operations_apart_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions have no decomposition of some operations, and not all operators."""
    monkeypatch.delitem(torch._decomp.decomposition_table, torch.ops.aten.adaptive_max_pool3d.default, raising=False)
    monkeypatch.setitem(in_export.APART, "no_such_operation.default", lambda x: x)
    in_export.decompositions.cache_clear()
    try:
        table = in_export.decompositions()
    finally:
        in_export.decompositions.cache_clear()
    assert torch.ops.aten.adaptive_max_pool3d.default not in table
    assert torch.ops.aten.dist.default in table


LAYERS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.{cell}(3, 4, 2, bidirectional=True)
    def forward(self, x):
        out, state = self.inner(x)
        return out, state{end}
def get_init_inputs():
    return []
def get_inputs():
    return [torch.randn(150, 2, 3)]
"""


@pytest.mark.parametrize(("cell", "end"), [("LSTM", "[1]"), ("GRU", "")])
def test_recurrent_layers_of_many_steps_are_an_operation_each(cell: str, end: str) -> None:
    task = load_task(LAYERS.format(cell=cell, end=end), "layers")
    graph = capture(task)
    assert [n.op for n in graph.nodes].count(f"aten.{cell.lower()}.input") == 4
    args = task.module().sample()
    for got, want in zip(run_graph(graph, args), task.module().results(args), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_sampled_grid_is_torchs_at_edges_and_at_places_that_are_no_number(padding: str, aligned: bool) -> None:
    grid = torch.rand(2, 5, 6, 2) * 3 - 1.5
    grid[0, 0, 0, 0], grid[0, 1, 0, 1], grid[1, 2] = math.nan, math.inf, 1.0
    image = torch.randn(2, 3, 9, 7)
    found = grid_sample(image, grid, 0, ("zeros", "border").index(padding), aligned)
    want = torch.nn.functional.grid_sample(image, grid, padding_mode=padding, align_corners=aligned)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_loop_is_known_where_python_is_seen_behind_its_instruction() -> None:
    """From Python 3.12 on the caller of a generator is at a cache of the instruction that asks it."""
    code = bytes([trace._NEXT, 0, trace._CACHE % 256, 0, trace._CACHE % 256, 0])
    frame = SimpleNamespace(f_lasti=4 if trace._CACHE >= 0 else 0, f_code=SimpleNamespace(co_code=code))
    assert trace._instruction(frame) == 0


def test_a_trace_whose_numbers_do_not_fit_other_sizes_is_refused_in_a_sentence() -> None:
    text = (
        "import torch\nfrom kernellab import Dim\nN = Dim('N', 8, 60)\n"
        "def reference(x):\n    return x[..., : len(str(x.shape[-1]))]\n"
        "def inputs(N=18):\n    return torch.randn(1, 3, N)\n"
    )
    with pytest.raises(CaptureError, match="does not agree with its reference at N = "):
        capture(load_task(text, "halves"))


@pytest.mark.parametrize("call", [
    "torch.topk(input=x, k=3)[0]", "torch.tensor_split(x, sections=2, dim=1)[0]", "torch.fft.fftshift(input=x)",
    "torch.nn.functional.pdist(input=x)",
])  # fmt: skip
def test_torchs_own_names_of_arguments_are_taken(call: str) -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM = Dim('M', 2, 64)\n"
        f"def reference(x):\n    return {call}\ndef inputs(M=8):\n    return (torch.randn(M, 16),)\n"
    )
    assert capture(task).outputs


def test_steps_that_differ_by_their_number_are_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long range is a loop by a few of its steps; where the reference does not agree with that, it is unrolled."""
    monkeypatch.setattr(long, "_MANY", 40)
    monkeypatch.setattr(long, "_LONG", 8)
    for step, loops in (("t < 99", True), ("t * t % 7 < 3", False)):
        task = load_task(
            "import torch\ndef reference(x, w):\n    h = torch.zeros_like(x[:, 0])\n    for t in range(x.shape[1]):\n"
            f"        h = torch.tanh(x[:, t] + h * w) if {step} else torch.sigmoid(x[:, t] - h * w)\n    return h\n"
            "def inputs():\n    return torch.randn(2, 20, 3), torch.rand(3)\n"
        )
        graph = capture(task)
        assert any(node.op == LOOP for node in graph.nodes) is loops
        args = task.module().sample(seed=3)
        torch.testing.assert_close(run_graph(graph, args)[0], task.module().reference(args)[0])
