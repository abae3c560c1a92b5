"""The rules Designer: every family is designed, checked, and right in the sketch gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernellab.agents.briefs import Attempt, DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer.schedule import Scheduled, scheduled
from kernellab.errors import DesignError
from kernellab.records import GateState, Route, RouteKind
from kernellab.sketch.check import check
from kernellab.sketch.gate import gate
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.pins import set_pin
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.designer.designer_cases import CASES

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21))
GPU = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
TO_DESIGNER = Route(to=RouteKind.DESIGNER, error_class="algorithm", reason="the sketch was wrong")


def errors(text: str) -> list[str]:
    return [f"{d.line}: {d.message}" for d in check(text).diagnostics if d.severity == "error"]


@pytest.mark.parametrize("name", CASES)
def test_every_family_passes_the_sketch_gate(name: str) -> None:
    task = load_task(CASES[name], name)
    text = RulesDesigner().design(DesignBrief(task, CPU)).sketch
    result = gate(text, task, seconds=0.2)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_checks_without_errors(name: str) -> None:
    task = load_task(CASES[name], name)
    for target in (CPU, GPU):
        for reply in RulesDesigner().designs(DesignBrief(task, target)):
            assert errors(reply.sketch) == [], reply.sketch


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "column_sum", "variance", "cosine", "matmul", "cumsum"])
def test_gpu_schedules_pass_the_gate_too(name: str) -> None:
    task = load_task(CASES[name], name)
    for reply in RulesDesigner().designs(DesignBrief(task, GPU)):
        result = gate(reply.sketch, task, seconds=0.2)
        assert result.state is GateState.RIGHT, f"{result.reason}\n{reply.sketch}"


def test_a_long_full_reduction_is_split_over_the_cores() -> None:
    text = CASES["full_sum"].replace("M=24, N=40", "M=4096, N=4096")
    reply = RulesDesigner().design(DesignBrief(load_task(text, "long_sum"), CPU))
    assert [s.name for s in parse(reply.sketch).sketches] == ["long_sum_partial", "long_sum_finish"]


@pytest.mark.parametrize(
    ("batch", "what", "columns"),
    [(8, "x.sum(dim=1)", 4096), (1, "x.sum(dim=1)", 512), (8, "x.argmax(dim=1)", 1024), (2, "x.sum(dim=1)", 4096)],
    ids=["whole rows", "every core has tiles", "places take room", "one tile a core"],
)
def test_sums_down_columns_read_long_pieces_of_rows(batch: int, what: str, columns: int) -> None:
    text = f"import torch\n\ndef reference(x):\n    return {what}\n\ndef inputs():\n"
    text += f"    return (torch.randn({batch}, 640, 4095),)\n"
    sketch = RulesDesigner().design(DesignBrief(load_task(text, "down"), CPU)).sketch
    assert f"COLS = {columns} in" in sketch


def test_a_product_with_few_tiles_and_a_long_sum_is_split_over_a_gpu() -> None:
    text = "import torch\n\ndef reference(a, b):\n    return torch.relu(a @ b)\n\n"
    text += "def inputs():\n    return torch.randn(24, 4096), torch.randn(4096, 20)\n"
    task = load_task(text, "long_product")
    reply = RulesDesigner().design(DesignBrief(task, GPU))
    parsed = parse(reply.sketch)
    assert [s.name for s in parsed.sketches] == ["long_product_product", "long_product_finish"]
    assert "relu" in reply.sketch.partition("_finish")[2], "what follows the product is done once, on the whole sum"
    result = gate(reply.sketch, task, seconds=0.2)
    assert result.state is GateState.RIGHT, result.reason


def test_tiles_outside_a_kept_triangle_are_not_multiplied() -> None:
    for name, test in (("upper_product", " > "), ("lower_product", " < ")):
        reply = RulesDesigner().design(DesignBrief(load_task(CASES[name], name), GPU))
        tested, product = reply.sketch.partition("if ")[2].partition("gemm(")[::2]
        assert test in tested.partition(":")[0] and product, reply.sketch


def test_the_designer_reads_the_graph_and_not_the_name() -> None:
    one = RulesDesigner().design(DesignBrief(load_task(CASES["softmax"], "a_name"), CPU)).sketch
    two = RulesDesigner().design(DesignBrief(load_task(CASES["softmax"], "layer_norm"), CPU)).sketch
    assert one.replace("a_name", "layer_norm") == two


def test_sent_back_it_gives_the_next_schedule_and_then_says_so() -> None:
    designer, task = RulesDesigner(), load_task(CASES["softmax"], "softmax")
    history: tuple[Attempt, ...] = ()
    seen = []
    for _ in designer.designs(DesignBrief(task, CPU)):
        route = TO_DESIGNER if history else None
        reply = designer.design(DesignBrief(task, CPU, history=history, route=route))
        seen.append(reply.sketch)
        history = (*history, Attempt(sketch=reply.sketch))
    assert len(set(seen)) == len(seen) > 1
    with pytest.raises(DesignError, match="has tried its"):
        designer.design(DesignBrief(task, CPU, history=history, route=TO_DESIGNER))


def test_require_lines_of_a_person_are_kept() -> None:
    task = load_task(CASES["chain"], "chain")
    first = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    demanding = first.replace("    @llm_hint", "    require: BLOCK >= 64;\n\n    @llm_hint", 1)
    assert "require: BLOCK >= 64;" in RulesDesigner().design(DesignBrief(task, GPU, previous=demanding)).sketch


def test_pins_that_no_schedule_keeps_are_named_by_the_line_of_the_sketch() -> None:
    task = load_task(CASES["chain"], "chain")
    mine = RulesDesigner().design(DesignBrief(task, GPU)).sketch
    line = next(number for number, text in enumerate(mine.split("\n"), 1) if "store(" in text)
    other = set_pin(mine.replace("store(", "store(2 * ", 1), line)
    with pytest.raises(DesignError, match=rf"pinned line {line} \(store\(2 \* ") as refused:
        RulesDesigner().design(DesignBrief(task, GPU, previous=other))
    assert "Unpin it in the Sketch panel" in str(refused.value.remedy)


def test_an_operator_alone_without_a_rule_is_named_with_its_line() -> None:
    """Beside other work it would be a call of the library; alone it leaves nothing to design."""
    body = "    return torch.special.zeta(x, x)\n"
    text = f"import torch\ndef reference(x):\n{body}def inputs():\n    return torch.rand(5, 8) + 2\n"
    with pytest.raises(DesignError, match="zeta") as caught:
        RulesDesigner().design(DesignBrief(load_task(text, "outside"), CPU))
    assert "line 3" in str(caught.value)


def test_a_dtype_that_no_sketch_holds_is_named() -> None:
    body = "    return x.float() * 2\ndef inputs():\n    return torch.ones(8, 8).to(torch.uint16),\n"
    text = f"import torch\ndef reference(x):\n{body}"
    with pytest.raises(DesignError, match="'x' is uint16"):
        RulesDesigner().design(DesignBrief(load_task(text, "turned"), CPU))


def test_memory_that_is_written_whole_may_begin_empty() -> None:
    body = "    y = torch.empty_like(x)\n    y[:] = x * 2\n    return y\n"
    text = f"import torch\ndef reference(x):\n{body}def inputs():\n    return torch.ones(8, 8)\n"
    assert RulesDesigner().design(DesignBrief(load_task(text, "filled"), CPU)).sketch


@pytest.mark.parametrize("rest", ["x @ w", "torch.relu(x @ w + b)", "torch.nn.functional.group_norm(x @ w, 4)"])
@pytest.mark.parametrize("l2_bytes", [256 << 10, 512 << 10, 2 << 20])
def test_the_first_design_fits_the_chip(rest: str, l2_bytes: int) -> None:
    text = (
        f"import torch\ndef reference(x, w, b):\n    return {rest}\n"
        "def inputs():\n    return torch.randn(1024, 2048), torch.randn(2048, 1024), torch.randn(1024)\n"
    )
    chip = replace(CPU.chip, l2_bytes=l2_bytes)
    first = RulesDesigner().designs(DesignBrief(load_task(text, "fits"), replace(CPU, chip=chip)))[0]
    assert [d for d in check(first.sketch, chip=chip).diagnostics if d.rule == "footprint"] == []


def test_where_no_usual_tile_fits_the_schedule_of_blocks_is_cut_into_parts() -> None:
    text = (
        "import torch\ndef reference(x, y, c, s):\n    out = []\n    for z in (x, y):\n"
        "        r = torch.empty_like(z)\n"
        "        r[:, ::2], r[:, 1::2] = z[:, ::2] * c - z[:, 1::2] * s, z[:, ::2] * s + z[:, 1::2] * c\n"
        "        out.append(r)\n    return out\n"
        "def inputs():\n    return *(torch.randn(3, 4096) for _ in 'xy'), *(torch.randn(3, 2048) for _ in 'cs')\n"
    )
    small = Target("cpp", Backend.CPU, Chip("small", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=20 << 10))
    task = load_task(text, "rotated")
    reply = RulesDesigner().designs(DesignBrief(task, small))[0]
    assert "parts" in reply.rationale
    assert gate(reply.sketch, task, chip=small.chip, seconds=0.2).state is GateState.RIGHT


SOFTMAX = """
import torch

def reference(x):
    return x.softmax(1)

def inputs():
    return [torch.randn(64, 100)]
"""


def test_a_schedule_that_a_rule_of_ours_broke_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(SOFTMAX, "soft")
    brief = DesignBrief(task, GPU)
    usual = RulesDesigner().designs(brief)
    first = []

    def broken(*args: Any, **named: Any) -> Scheduled:
        if not first:
            first.append(args)
            raise IndexError("tuple index out of range")
        return scheduled(*args, **named)

    monkeypatch.setattr("kernellab.agents.rules.designer.scheduled", broken)
    left = RulesDesigner().designs(brief)
    assert left
    assert all("a rule of ours raised IndexError (test_designer.py, line " in reply.rationale for reply in left)
    assert not any("a rule of ours" in reply.rationale for reply in usual)
