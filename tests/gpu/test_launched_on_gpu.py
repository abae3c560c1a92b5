"""Launches by what Triton compiled before, on a GPU: ragged sizes, views off alignment, captured graphs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.task import load_task
from tests.gpu.test_triton_on_gpu import MATMUL, TARGET, kernel_of
from tests.lowering.test_team import STEPS

pytestmark = pytest.mark.gpu

SCALED = """sketch scaled {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: B = 256;
    @llm_hint("parallel")
    for m in range(M):
        @llm_hint("parallel")
        for n in range(0, N, B):
            load(X[m, n:n+B] -> x)
            store(x * 2 + 1 -> Y[m, n:n+B])
}
"""


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kernel_of(SCALED, tmp_path_factory.mktemp("scaled"))


def given(rows: int, columns: int, shift: int) -> torch.Tensor:
    """Contiguous, ``shift`` elements past an address that divides by 16."""
    return torch.randn(rows * columns + shift, device="cuda")[shift:].view(rows, columns)


def test_sizes_and_alignments_after_others(scaled: Any) -> None:
    for _ in range(2):
        for rows, columns in ((1, 1), (16, 16), (3, 17), (1, 4096), (33, 1000), (7, 1), (16, 255)):
            for shift in (0, 1, 4, 3):
                x = given(rows, columns, shift)
                torch.testing.assert_close(scaled(x), x * 2 + 1, rtol=0, atol=0)


def test_a_graph_holds_launches_that_were_known_and_new_ones(scaled: Any) -> None:
    # capturing has another stream than the calls before: a launch on another would be missing from the replay
    known, new = given(64, 1000, 0), given(64, 999, 0)
    scaled(known)
    scaled(given(5, 999, 0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, z = scaled(known), scaled(new)
    known.fill_(1.0)
    new.fill_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((y == 3.0).all()) and bool((z == 5.0).all())


def test_products_of_many_sizes(tmp_path: Path) -> None:
    kernel = kernel_of(MATMUL.replace("PRECISION", "ieee"), tmp_path)
    for _ in range(2):
        for m, n, k in ((64, 64, 64), (1, 1, 1), (100, 33, 17), (128, 256, 64), (65, 1, 16)):
            a, b = given(m, k, k % 2), given(k, n, n % 2)
            torch.testing.assert_close(kernel(a, b).double(), a.double() @ b.double(), rtol=1e-4, atol=1e-4)


def test_programs_of_a_team_wait_for_each_other_at_every_step(tmp_path: Path) -> None:
    kernel, w = kernel_of(STEPS, tmp_path), torch.randn(64, 64, device="cuda") / 8
    assert kernel.__globals__["kl_cores"](w.device) >= 8, "two blocks of rows, four programs each"
    for rows in (18, 32, 1):
        x = torch.randn(200, rows, 64, device="cuda")
        state, want = torch.zeros(rows, 64, device="cuda", dtype=torch.float64), []
        for now in x:
            state = torch.tanh(state @ w.double() + now)
            want.append(state)
        first = kernel(x, w)
        torch.testing.assert_close(first.double(), torch.stack(want), rtol=1e-4, atol=1e-5)
        assert all(torch.equal(kernel(x, w), first) for _ in range(30))


LAYERS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.{cell}(64, 96, {deep}, bidirectional={both}, batch_first=True)

    def forward(self, x):
        out, last = self.inner(x)
        return torch.relu(out), last[0] if isinstance(last, tuple) else last

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(20, 100, 64)]
"""


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
@pytest.mark.parametrize(("deep", "both"), [(3, False), (1, True), (2, True)])
def test_layers_that_run_at_once_are_as_near_as_the_framework_s(
    cell: str, deep: int, both: bool, tmp_path: Path
) -> None:
    task = load_task(LAYERS.format(cell=cell, deep=deep, both=both), "layers")
    sketch = RulesDesigner().design(DesignBrief(task, TARGET)).sketch
    assert sketch.count('@llm_hint("team")') == (1 if deep == 3 else deep)
    program = load_program(sketch)
    source = lower(program, bind(program, task, None, TARGET), TARGET)
    args = task.module().sample(seed=1)
    (path := tmp_path / "layers.py").write_text(source.files["kernel.py"])
    spec = importlib.util.spec_from_file_location("layers_at_once", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    exact = task.module().results([a.double() for a in args])
    for _ in range(5):
        for got, want in zip(module.kernel(*(a.cuda() for a in args)), exact, strict=True):
            assert float((got.cpu() - want).norm() / want.norm()) < 2e-6


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9, reason="no Hopper GPU")
def test_attention_with_maps_that_are_kept(tmp_path: Path) -> None:
    from tests.lowering.test_gluon import ATTENTION, first_sketch, lowered

    path = tmp_path / "attention.py"
    path.write_text(lowered(first_sketch(ATTENTION), ATTENTION))
    spec = importlib.util.spec_from_file_location("attention_maps", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = [torch.randn(2, heads, 1000, 128, device="cuda", dtype=torch.bfloat16) for heads in (8, 4, 4, 8, 4, 4)]
    for _ in range(3):
        for q, k, v in (made[:3], made[3:], (made[0], made[4], made[2])):
            got = module.kernel(q, k, v)
            want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True)
            assert float((got.double() - want).norm() / want.norm()) < 1e-2
