"""Choosing, moving, ordering and scattering: designed by rule, right in the gate, in C++ and in Triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer.tile import why
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import check, load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.syntax.parse import parse
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.designer.gather_cases import PICKS
from tests.lowering.test_cpp import load
from tests.lowering.test_triton import call

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
GPU = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
TRITON = Target("triton", Backend.INTERPRETER, GPU.chip)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


@pytest.mark.parametrize("name", PICKS)
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_the_first_schedule_passes_the_gate(name: str, target: Target) -> None:
    task = load_task(PICKS[name], name)
    text = RulesDesigner().design(DesignBrief(task, target)).sketch
    result = gate(text, task, seconds=0.2)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("name", PICKS)
def test_cpp_and_triton_compute_what_torch_does(name: str, tmp_path: Path) -> None:
    task = load_task(PICKS[name], name)
    args = task.module().sample(seed=3)
    want = task.module().reference(args)
    for target in (CPU, TRITON):
        program = load_program(RulesDesigner().design(DesignBrief(task, target)).sketch)
        source = lower(program, bind(program, task, {}, target), target)
        if target is CPU:
            got = load(source, tmp_path).kernel(*args)
            got = got if isinstance(got, tuple) else (got,)
        else:
            got = call(source, tmp_path, *args)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3, msg=lambda m, t=target: f"{t.dsl}: {m}")


def test_what_chooses_elements_costs_no_launch_of_its_own() -> None:
    for name in ("embedding_normalised", "product_of_gathered", "interleaved_rotation", "roll", "half_rotation"):
        text = RulesDesigner().design(DesignBrief(load_task(PICKS[name], name), CPU)).sketch
        assert len(parse(text).sketches) == 1, text


def test_a_cpu_adds_in_an_order_that_is_the_same_in_every_run() -> None:
    task = load_task(PICKS["index_add"], "index_add")
    for target, differs in ((CPU, False), (GPU, True)):
        text = RulesDesigner().design(DesignBrief(task, target)).sketch
        assert ("unordered-add" in {d.rule for d in check(text).diagnostics}) is differs, text


@pytest.mark.parametrize("indices", ["torch.randint(-40, 40, (1111,)).sort().values", "torch.randint(0, 40, (1111,))"])
def test_a_program_adds_neighbouring_rows_of_one_index_before_it_adds_to_memory(indices: str, tmp_path: Path) -> None:
    task = load_task(
        "import torch\ndef reference(s, i):\n    return torch.zeros(40, 100).index_add(0, i % 40, s * 2)\n"
        f"def inputs():\n    return torch.randn(1111, 100), {indices}\n",
        "rows",
    )
    few = replace(TRITON, chip=replace(TRITON.chip, cores=1))
    text = RulesDesigner().design(DesignBrief(task, few)).sketch
    assert gate(text, task, seconds=0.2).state is GateState.RIGHT, text
    program = load_program(text)
    assert {c.name: c.value for c in program.constexprs}["RUN"] == 16, text
    source = lower(program, bind(program, task, {}, few), few)
    args = task.module().sample(seed=3)
    for one, other in zip(call(source, tmp_path, *args), task.module().reference(args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_what_a_program_adds_ends_where_narrower_indices_end(tmp_path: Path) -> None:
    # torch itself writes past the end of an expanded index (2.13, CPU)
    task = load_task(
        "import torch\ndef reference(s, i):\n"
        "    return torch.zeros(40, 200).scatter_add(0, i[:, None].repeat(1, 100), s.exp())\n"
        "def inputs():\n    return torch.randn(1111, 100), torch.randint(0, 40, (1111,))\n",
        "narrower",
    )
    few = replace(TRITON, chip=replace(TRITON.chip, cores=1))
    text = RulesDesigner().design(DesignBrief(task, few)).sketch
    assert gate(text, task, seconds=0.2).state is GateState.RIGHT, text
    program = load_program(text)
    source = lower(program, bind(program, task, {}, few), few)
    args = task.module().sample(seed=3)
    for one, other in zip(call(source, tmp_path, *args), task.module().reference(args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpp", "triton"])
def test_a_tile_is_hardly_longer_than_a_short_axis_beside_a_shorter_one(target: Target) -> None:
    """Rows of 32 pairs had tiles of 8192 rows, nearly all of them masked: 41 ms on a CPU, 0.5 ms since."""
    task = load_task(
        "import torch\ndef reference(x, y):\n    even, odd = x[..., ::2], x[..., 1::2]\n"
        "    return torch.stack((even * y - odd, even + odd * y), -1).flatten(-2)\n"
        "def inputs():\n    return torch.randn(16, 512, 64), torch.randn(512, 32)\n",
        "pairs",
    )
    program = load_program(RulesDesigner().design(DesignBrief(task, target)).sketch)
    rows = {c.name: c.value for c in program.constexprs}["ROWS"]
    assert isinstance(rows, int) and rows < 64


def test_a_scatter_of_repeated_indices_has_a_schedule_in_which_the_last_one_stays(tmp_path: Path) -> None:
    text = (
        "import torch\ndef reference(x, i, s):\n    return x.scatter(1, i, s)\n"
        "def inputs():\n    return torch.randn(6, 9), torch.randint(0, 9, (4, 12)), torch.randn(5, 12)\n"
    )
    task = load_task(text, "repeated")
    found = [(reply, gate(reply.sketch, task)) for reply in RulesDesigner().designs(DesignBrief(task, CPU))]
    assert "twice" in found[0][1].reason, "the first trusts that no index repeats"
    reply = next(reply for reply, result in found if result.state is GateState.RIGHT)
    program = load_program(reply.sketch)
    args = task.module().sample(seed=3)
    got = load(lower(program, bind(program, task, {}, CPU), CPU), tmp_path).kernel(*args)
    assert torch.equal(got, task.module().reference(args)[0])


@pytest.mark.parametrize("length", [10, 100])
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_is_no_number_is_placed_behind_all_sorted_elements(target: Target, length: int) -> None:
    task = load_task(
        "import torch\ndef reference(s, v):\n    return torch.searchsorted(s, v), torch.bucketize(v, s, right=True)\n"
        f"def inputs():\n    return torch.arange({length}.0), torch.tensor([3.0, float('nan'), float('inf'), -1.0])\n",
        "places",
    )
    result = gate(RulesDesigner().design(DesignBrief(task, target)).sketch, task)
    assert result.state is GateState.RIGHT, result.reason


@pytest.mark.parametrize("name", ["five_points", "padded_twice"])
def test_what_an_edge_reads_as_needs_no_mask(name: str) -> None:
    text = RulesDesigner().design(DesignBrief(load_task(PICKS[name], name), CPU)).sketch
    assert "gather(" not in text, text
    assert ("where(" in text) == (name == "padded_twice"), text


@pytest.mark.parametrize(
    ("formula", "drawn", "once"),
    [
        ("x.exp() * y", "torch.randn(64, 32), torch.randn(64, 32)", True),
        ("x.T.exp()", "torch.randn(64, 32), torch.randn(1)", True),
        ("x.gather(1, y).exp()", "torch.randn(64, 32), torch.randint(0, 32, (64, 32))", False),
        ("x.repeat(2, 1).exp()", "torch.randn(64, 32), torch.randn(1)", False),
        ("x[:, None].exp() * y", "torch.randn(32), torch.randn(32, 8)", False),
        ("x.exp() * x.flip(0)", "torch.randn(64, 32), torch.randn(1)", False),
    ],
)
def test_elements_are_read_once_is_said_only_where_they_are(formula: str, drawn: str, once: bool) -> None:
    task = load_task(
        f"import torch\ndef reference(x, y):\n    return {formula}\ndef inputs():\n    return {drawn}\n", "reads"
    )
    for target in (CPU, GPU):
        text = RulesDesigner().design(DesignBrief(task, target)).sketch or ""
        assert (why.POINTWISE[0] in text) is once, text
