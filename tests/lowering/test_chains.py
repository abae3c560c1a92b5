"""The backward of attention as chains of products: right at odd shapes and behind masks, whoever wrote it down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task

from .test_triton import call

_CHIP = find_chip("NVIDIA H100")
assert _CHIP is not None
INTERPRETER = Target("triton", Backend.INTERPRETER, _CHIP)
GPU = Target("triton", Backend.CUDA, _CHIP)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

_FORWARD = """import math
import torch
import torch.nn.functional as F

GRAD = True

def reference(q, k, v):
    return {result}

def inputs():
    return {given}
"""
#: backward from the saved output and logarithms, as flash attention's is written
_BY_HAND = """import math
import torch

def reference(q, k, v, o, g, l):
    s = q.float() @ k.float().transpose(-1, -2) / math.sqrt({width})
    m, n = torch.arange(q.shape[-2], device=q.device), torch.arange(k.shape[-2], device=q.device)
    p = torch.exp({mask} - l[..., None])
    d = (g.float() * o.float()).sum(-1, keepdim=True)
    ds = p * (g.float() @ v.float().transpose(-1, -2) - d) / math.sqrt({width})
    return ({order})

def inputs():
    q, k, v, o, g = {given}
    return q, k, v, o, g, torch.rand(q.shape[:-1]) + 3.0
"""
_Q = "(ds @ k.float()).to(q.dtype)"
_K = "(ds.transpose(-1, -2) @ q.float()).to(q.dtype)"
_V = "(p.transpose(-1, -2) @ g.float()).to(q.dtype)"
_CAUSAL = "s.masked_fill(m[:, None] < n[None, :], float('-inf'))"


_WINDOW = (
    "torch.softmax((q @ k.transpose(-2, -1) / math.sqrt(32)).masked_fill((r := torch.arange(200, device=q.device))"
    "[:, None] - r > 40, float('-inf')), -1) @ v"
)
#: the heads of a group and their rows are one axis of the products
_MERGED = """import math
import torch

def reference(q, k, v, g, o, l):
    s = q.float() @ k.float().transpose(-1, -2) / math.sqrt(32)
    p = torch.exp(s - l[..., None])
    d = (g.float() * o.float()).sum(-1, keepdim=True)
    ds = p * (g.float() @ v.float().transpose(-1, -2) - d) / math.sqrt(32)
    dk = ds.reshape(2, 210, 50).transpose(-1, -2) @ q.reshape(2, 210, 32).float()
    dv = p.reshape(2, 210, 50).transpose(-1, -2) @ g.reshape(2, 210, 32).float()
    return (ds @ k.float()).to(q.dtype), dk.reshape(k.shape).to(q.dtype), dv.reshape(v.shape).to(q.dtype)

def inputs():
    q, g, o = (torch.randn(2, 3, 70, 32).to(torch.bfloat16) for _ in range(3))
    k, v = (torch.randn(2, 1, 50, 32).to(torch.bfloat16) for _ in range(2))
    return q, k, v, g, o, torch.rand(2, 3, 70) + 3.0
"""


def _drawn(rows: int, keys: int, width: int, dtype: str, *more: int) -> str:
    shapes = [(2, rows, width), (2, keys, width), (2, keys, width), *((2, n, width) for n in more)]
    return ", ".join(f"torch.randn{shape}.to(torch.{dtype})" for shape in shapes)


def _by_hand(mask: str, rows: int, keys: int, dtype: str = "bfloat16", order: str = f"{_Q}, {_K}, {_V}") -> str:
    given = _drawn(rows, keys, 32, dtype, rows, rows)
    return _BY_HAND.format(mask=mask, width=32, given=given, order=order)


def _derived(result: str, rows: int, keys: int, dtype: str = "bfloat16") -> str:
    return backward_text(load_task(_FORWARD.format(result=result, given=_drawn(rows, keys, 32, dtype)), "forward"))


def _grouped(result: str, rows: int = 70, keys: int = 70, heads: int = 4, shared: int = 2, more: str = "") -> str:
    """The backward of an attention of ``heads`` heads of which several read the same keys."""
    sides = (heads, rows), (shared, keys), (shared, keys)
    if ".transpose(1, 2), k" in result:
        sides = tuple(side[::-1] for side in sides)
    given = ", ".join(f"torch.randn(1, {n}, {size}, 32).to(torch.bfloat16)" for n, size in sides)
    text = _FORWARD.format(result=result, given=given + more)
    if more:
        text = text.replace("(q, k, v)", "(q, k, v, seen)", 1)
    return backward_text(load_task(text, "forward"))


def _grouped_texts() -> dict[str, str]:
    sdpa = "F.scaled_dot_product_attention(q, k, v, enable_gqa=True{})"
    row, key = "torch.arange(q.shape[2])[:, None]", "torch.arange(k.shape[2])[None, :]"
    seen = ", torch.rand(70, 70) + torch.eye(70) > 0.4"
    rows_first = sdpa.replace("q, k, v", "q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)") + ".transpose(1, 2)"
    capped = "5 * torch.tanh(q.float() @ k.float().repeat_interleave(2, 1).transpose(-1, -2) / 30)"
    return {
        "grouped_causal": _grouped(sdpa.format(", is_causal=True")),
        "grouped_full_fewer_keys": _grouped(sdpa.format(""), keys=90),
        "grouped_window": _grouped(sdpa.format(f", attn_mask=({key} <= {row}) & ({key} > {row} - 20)")),
        "grouped_mask_given": _grouped(sdpa.format(", attn_mask=seen"), more=seen),
        "grouped_one_head_of_keys": _grouped(sdpa.format(", is_causal=True"), shared=1),
        "grouped_by_repeating": _grouped(
            "F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True)"
        ),
        "grouped_rows_before_heads": _grouped(rows_first.format(", is_causal=True")),
        "grouped_merged": _MERGED,
        "grouped_softcap": _grouped(f"(torch.softmax({capped}, -1) @ v.float().repeat_interleave(2, 1)).to(q.dtype)"),
    }


def _texts() -> dict[str, str]:
    sdpa = "F.scaled_dot_product_attention(q, k, v{})"
    hidden = "s.masked_fill((m[:, None] < n[None, :]) | (m[:, None] > n[None, :] + 40), float('-inf'))"
    return {
        "saved_causal": _by_hand(_CAUSAL, 150, 150),
        "saved_full": _by_hand("s", 150, 90),
        "saved_causal_fewer_keys": _by_hand(_CAUSAL, 150, 90),
        "saved_causal_more_keys": _by_hand(_CAUSAL, 90, 150),
        "saved_window": _by_hand(hidden, 200, 200),
        "saved_values_first": _by_hand(_CAUSAL, 150, 150, order=f"{_V}, {_K}, {_Q}"),
        "saved_f16": _by_hand(_CAUSAL, 150, 150, "float16"),
        "derived_causal": _derived(sdpa.format(", is_causal=True"), 150, 150),
        "derived_full": _derived(sdpa.format(""), 150, 90),
        "derived_window": _derived(_WINDOW, 200, 200),
        "derived_by_hand": _derived("torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(32), -1) @ v", 150, 90),
    }


def designed(text: str, name: str, target: Target) -> tuple[Task, str, Source]:
    """The first design whose chains are on chip, and its source."""
    task = load_task(text, name)
    sketch = next(r.sketch for r in RulesDesigner().designs(DesignBrief(task, target)) if "_chain" in r.sketch)
    program = load_program(sketch)
    return task, sketch, lower(program, bind(program, task, {}, target), target)


def _exact(task: Task, args: tuple[object, ...]) -> tuple[torch.Tensor, ...]:
    """The same in float64."""
    text = task.text.replace(".float()", ".double()").replace(".to(q.dtype)", "")
    wide = tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    namespace: dict[str, object] = {}
    exec(compile(text, "exact", "exec"), namespace)
    return tuple(namespace["reference"](*wide))  # type: ignore[operator]


@pytest.mark.parametrize("name", [*_texts(), *_grouped_texts()])
def test_gradients_are_those_of_float64(name: str, tmp_path: Path) -> None:
    task, sketch, source = designed((_texts() | _grouped_texts())[name], name, INTERPRETER)
    # two reshapes of merged heads are two axes, and two loops
    assert sketch.count(f"sketch {name}_chain") == (3 if name == "grouped_merged" else 2), sketch
    args = task.module().sample(seed=3)
    found = call(source, tmp_path, *args)
    for got, want, eager in zip(found, _exact(task, args), task.module().reference(args), strict=True):
        scale = want.norm()
        error, known = (float((x.double() - want).norm() / scale) for x in (got, eager))
        assert error <= max(2 * known, 5e-3 if got.dtype == torch.bfloat16 else 1e-3), (name, error, known)


def test_hidden_blocks_are_not_computed() -> None:
    _, sketch, _ = designed(_by_hand(_CAUSAL, 150, 150), "hidden", GPU)
    assert "min(150, j + ROWS)" in sketch and "range(j // STEP * STEP, 150, STEP)" in sketch, sketch


def test_shares_that_are_rounded_before_their_product_are_made_again_for_it() -> None:
    _, sketch, _ = designed(_texts()["derived_window"], "rounded", GPU)
    titles = [line for line in sketch.splitlines() if line.startswith("sketch ")]
    # the attention, what its rows come to, and two launches of chains: no launch stores scores
    assert len(titles) == 4 and sum("_chain" in title for title in titles) == 2, titles
    assert sketch.count(" // STEP * STEP, ") == 1 and sketch.count("min(200, j + ROWS + 40)") == 1, sketch


def test_hidden_blocks_of_grouped_heads_are_not_computed() -> None:
    _, sketch, _ = designed(_grouped_texts()["grouped_window"], "hidden", GPU)
    kept = [line.strip() for line in sketch.splitlines() if "STEP):" in line or ", BN):" in line]
    assert len(kept) == 3 and all("min(70, " in line and "//" in line for line in kept), kept


@pytest.mark.parametrize("grouped", [False, True])
def test_what_rows_have_is_stored_once(grouped: bool) -> None:
    plain = "F.scaled_dot_product_attention(q, k, v)"
    text = _grouped_texts()["grouped_full_fewer_keys"] if grouped else _derived(plain, 150, 90)
    _, sketch, _ = designed(text, "once", GPU)
    assert sketch.count("sketch once_attention") == 1 and sketch.count("sketch once_statistics") == 1, sketch
    tensors = [line for line in sketch.splitlines() if line.strip().startswith("tensors:")]
    assert not any(" 90]: f32" in line for line in tensors), "no matrix of scores is stored"


@pytest.mark.parametrize("name", ["grouped_causal", "grouped_rows_before_heads"])
def test_one_program_sums_over_the_heads_that_share_keys(name: str) -> None:
    _, sketch, _ = designed(_grouped_texts()[name], "shared", GPU)
    chain = sketch.split("sketch shared_chain2")[1]
    over_heads = re.search(r'for \w+ in range\(2\):\n +@llm_hint\("pipeline"', chain)
    assert over_heads is not None and chain.index("-> v_tile") < over_heads.start() < chain.index("store("), chain
    assert "range(0, 70, BM)" in sketch and "range(0, 70, ROWS" in sketch, "rows, not heads, are tiled"


def test_a_sum_over_rows_or_columns_is_no_sum_over_groups(tmp_path: Path) -> None:
    order = "(ds @ k.float()).sum(-1).to(q.dtype), (ds @ k.float()).sum(1).to(q.dtype)"
    task = load_task(_by_hand("s", 40, 30, order=order), "summed")
    sketch = RulesDesigner().designs(DesignBrief(task, INTERPRETER))[0].sketch
    program = load_program(sketch)
    args = task.module().sample(seed=3)
    found = call(lower(program, bind(program, task, {}, INTERPRETER), INTERPRETER), tmp_path, *args)
    for got, want in zip(found, _exact(task, args), strict=True):
        assert float((got.double() - want).norm() / want.norm()) <= 5e-3, sketch


@pytest.mark.parametrize("chip", ["NVIDIA H100", "NVIDIA B200"])
def test_chains_come_before_stored_scores(chip: str) -> None:
    sdpa = "F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"
    given = ", ".join(f"torch.randn(2, {n}, 1024, 128).to(torch.bfloat16)" for n in (8, 2, 2))
    task = load_task(backward_text(load_task(_FORWARD.format(result=sdpa, given=given), "forward")), "first")
    reply = RulesDesigner().designs(DesignBrief(task, Target("triton", Backend.CUDA, find_chip(chip))))[0]
    assert "sketch first_chain2" in reply.sketch


def test_results_in_float32_keep_their_precision() -> None:
    text = _by_hand(_CAUSAL, 150, 150).replace(".to(q.dtype)", "")
    replies = RulesDesigner().designs(DesignBrief(load_task(text, "wide"), GPU))
    assert all("wide_chain" not in r.sketch for r in replies)


@pytest.mark.parametrize("grouped", [False, True])
def test_tensor_cores_multiply_and_nothing_spills(grouped: bool, tmp_path: Path) -> None:
    text = _by_hand(_CAUSAL, 512, 512).replace("32)", "128)")
    if grouped:
        sdpa = "F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"
        given = ", ".join(f"torch.randn(2, {n}, 512, 128).to(torch.bfloat16)" for n in (8, 2, 2))
        text = backward_text(load_task(_FORWARD.format(result=sdpa, given=given), "forward"))
    task, _, source = designed(text, "sass", GPU)
    path = tmp_path / "sass.py"
    path.write_text(source.files["kernel.py"])
    torch.save(task.module().sample(seed=1), path.with_suffix(".pt"))
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("sass_for_hopper.py")
    run = subprocess.run([sys.executable, script, path], capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout)[str(path)]
    for kernel in ("sass_chain_asynchronous", "sass_chain2_asynchronous"):
        assert facts[kernel]["HGMMA"] > 0 and facts[kernel]["STL"] == facts[kernel]["stack"] == 0, facts[kernel]
        assert facts[kernel]["shared"] <= 232448


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("num_stages = 2", "num_stages = 3"),
        ("descriptors = 0", "descriptors = 1"),
        (r"(range\([^\n]*), STEP\):", r"\1, 2 * STEP):"),
        (r"if (\w+ \+ STEP) > ", r"if \1 >= "),
    ],
    ids=["stages", "descriptors", "step", "mask"],
)
def test_each_hint_and_statement_of_a_chain_is_in_its_source(written: str, instead: str) -> None:
    """No template of a whole kernel: the source follows the sketch's words."""
    task, sketch, source = designed(_by_hand(_CAUSAL, 150, 150), "hints", GPU)
    changed, count = re.subn(written, instead, sketch)
    assert count, sketch
    program = load_program(changed)
    other = lower(program, bind(program, task, {}, GPU), GPU)
    code = [text.files["kernel.py"].split("#| sketch")[0] for text in (source, other)]
    assert code[0] != code[1]
