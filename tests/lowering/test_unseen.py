"""Tiles that a mask of values hides whole: they are not loaded, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering.unseen import with_walks
from kernellab.sketch.check import load_program
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

from .test_attention import TRITON, close, lowered
from .test_triton import call

KEYS = 300


def _task(mask: str, given: str, heads: int = 4, more: str = "") -> str:
    shape = f"torch.randn(1, {heads}, {KEYS}, 16{more})"
    return (
        "import torch\nimport torch.nn.functional as F\n\n\ndef reference(q, k, v, m):\n"
        f"    n = torch.arange({KEYS}, device=q.device)\n    keep = {mask}\n"
        "    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)\n\n\n"
        f"def inputs():\n    return {shape}, {shape}, {shape}, {given}\n"
    )


DOCUMENTS = _task("(m[:, None] == m[None, :]) & (n[None, :] <= n[:, None])", f"torch.arange({KEYS}) // 40")
BLOCKS = _task(
    "m[n[:, None] // 50, n[None, :] // 50]",
    "torch.tensor([[(7 * i + 5 * j) % 3 == 0 and i != 2 for j in range(6)] for i in range(6)])",
)
LONG = DOCUMENTS.replace("16)", "64, dtype=torch.bfloat16)").replace(str(KEYS), "2048")
HOPPER = Target("triton", Backend.CUDA, find_chip("NVIDIA H100"))
BATCHES = _task("m[:, None, :, None] == m[:, None, None, :]", f"torch.arange({KEYS})[None] // 40")


@pytest.mark.parametrize("text", [DOCUMENTS, BLOCKS, BATCHES], ids=["documents", "blocks", "batches"])
def test_hidden_tiles_are_left_out_and_results_stay(text: str, tmp_path: Path) -> None:
    """A row of the blocks sees nothing at all, and the last tile reaches past the last key."""
    task, source = lowered(text, TRITON)
    assert "_walk_kernel" in source.files["kernel.py"]
    args = task.module().sample(seed=3)
    close(call(source, tmp_path, *args)[0], task, args)


def test_what_no_row_of_a_tile_sees_is_not_loaded(tmp_path: Path) -> None:
    task, source = lowered(DOCUMENTS, TRITON)
    q, k, v, documents = task.module().sample(seed=3)
    want = call(source, tmp_path, q, k, v, documents)[0]
    # keys of the first tile, whose documents no row of the second one is of: a product with them would be NaN
    spoilt = v.clone()
    spoilt[:, :, :40] = float("nan")
    got = call(source, tmp_path, q, k, spoilt, documents)[0]
    assert got[:, :, 128:256].equal(want[:, :, 128:256]) and got[:, :, :40].isnan().all()


@pytest.mark.parametrize(
    "text",
    [
        _task("(n[None, :] <= n[:, None]) & (n[None, :] % 2 == m)", "1"),
        _task("m[:, :, None] == m[:, None, :]", f"torch.arange({KEYS})[None, :].expand(4, -1).contiguous()"),
    ],
    ids=["places alone", "a mask of each head"],
)
def test_no_launch_where_none_pays(text: str) -> None:
    assert "_walk_kernel" not in lowered(text, TRITON)[1].files["kernel.py"]


@pytest.mark.parametrize(
    "line, other",
    [
        ("row_total = row_total * keep + reduce_sum(weights, axis=1)", "row_total = row_total + keep"),
        ("keep = exp2(row_max - base)", "keep = exp2(row_max - base - 1)"),
        ("scores, -inf)", "scores, -1000.0)"),
        ("row_total = full([BM], 0, f32)", "row_total = full([BM], 1, f32)"),
        ("acc = acc * keep[:, None]", "acc = acc * keep[:, None] + 1"),
    ],
)
def test_a_loop_that_a_hidden_step_would_change_takes_every_step(line: str, other: str) -> None:
    designs = RulesDesigner().designs(DesignBrief(load_task(LONG, "attention"), HOPPER))
    sketch = next(design.sketch for design in designs if "online" in design.sketch)
    assert with_walks(load_program(sketch), {"BM": 128, "BN": 128})[1]
    assert line in sketch
    assert not with_walks(load_program(sketch.replace(line, other)), {"BM": 128, "BN": 128})[1]


def _online(text: str) -> str:
    designs = RulesDesigner().designs(DesignBrief(load_task(text, "attention"), TRITON))
    return next(design.sketch for design in designs if "online" in design.sketch)


def _is_walked(sketch: str) -> bool:
    return bool(with_walks(load_program(sketch), {"BM": 64, "BN": 64})[1])


def test_a_loop_that_may_take_no_step_takes_those_it_has() -> None:
    sketch = _online(DOCUMENTS)
    assert _is_walked(sketch) and "min(300, j + BM)" in sketch
    assert not _is_walked(sketch.replace("min(300, j + BM)", "min(300, j)"))


def test_a_tile_that_was_loaded_before_is_carried_too() -> None:
    sketch, first = _online(DOCUMENTS), "load(m[j:j+BM] -> m_tile)"
    counted = sketch.replace(first, f"{first}\n            load(m[j:j+BM] -> trips)", 1)
    assert counted != sketch and _is_walked(counted)
    assert not _is_walked(counted.replace("row_max = top", "row_max = top\n                trips = trips + 1"))


def test_a_walk_takes_names_that_are_free() -> None:
    sketch = _online(DOCUMENTS)
    for old, new in ((" BN", " attention_seen"), ("+BN", "+attention_seen"), ("(BN", "(attention_seen")):
        sketch = sketch.replace(old, new)
    (walk,) = with_walks(load_program(sketch), {"BM": 64, "attention_seen": 64})[1].values()
    assert walk.test not in ("attention_seen", walk.count, walk.steps)


def test_the_warp_that_loads_and_those_that_multiply_walk_one_list() -> None:
    source = lowered(LONG, HOPPER)[1].files["kernel.py"]
    loads, multiplies = source.split("_loads(q_source")[1].split("_multiplies(m, y")
    assert "_steps + walked + t)" in loads and "_steps + walked + t)" in multiplies.split("_asynchronous(")[0]


def test_bits_are_the_same_each_time(tmp_path: Path) -> None:
    task, source = lowered(BLOCKS, TRITON)
    args = task.module().sample(seed=5)
    first, again = (call(source, tmp_path, *args)[0] for _ in range(2))
    assert torch.equal(first.view(torch.int32), again.view(torch.int32))
