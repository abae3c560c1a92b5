"""Attention in one launch: recognised however it is written, right at odd shapes, and right where nothing is seen."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.syntax.printer import format
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task
from tests.designer.attention_cases import ATTENTION, DECODE, attention_task
from tests.designer.test_designer import CPU, GPU, errors

#: so fast a memory that storing the parts of f32 always pays
PARTS = Target("triton", Backend.CUDA, Chip("test", "gpu", 4, bandwidth=1e18, peak_flops={"f32": 1e12, "bf16": 1e14}))


def fused(text: str, name: str, target: Target) -> str:
    """The first design that has one launch for both products."""
    replies = RulesDesigner().designs(DesignBrief(load_task(text, name), target))
    return next(r.sketch for r in replies if "online" in r.sketch)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("target", [CPU, GPU, PARTS], ids=["cpu", "gpu", "parts"])
def test_one_launch_is_right(name: str, target: Target) -> None:
    text = fused(ATTENTION[name], name, target)
    assert errors(text) == [], text
    assert format(text) == text
    result = gate(load_program(text), load_task(ATTENTION[name], name), seconds=0.2)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        ("sdpa_causal", "min(40, j + BM)"),
        ("by_hand_masked_fill", "min(40, j + BM)"),
        ("by_hand_triu", "min(40, j + BM)"),
        ("by_hand_window", "min(40, j + BM)"),
        ("by_hand_distance", "min(40, j + BM)"),
        ("sdpa_causal_fewer_keys", "min(23, j + BM)"),
        ("by_hand", "range(0, 37, BN)"),
        ("by_hand_finite_fill", "range(0, 23, BN)"),
    ],
)
def test_keys_that_a_mask_hides_are_not_read(name: str, stop: str) -> None:
    """-1e9 hides nothing for certain: where all of a row has it, every key counts."""
    assert stop in fused(ATTENTION[name], name, CPU).replace(" ,", ",")


def test_scores_are_stored_where_heads_are_too_wide() -> None:
    h200 = Chip(
        "h200", "gpu", 132, bandwidth=4.2e12, shared_bytes=227 << 10, registers_per_core=65536,
        peak_flops={"f32": 51e12, "tf32": 357e12, "bf16": 701e12},
    )  # fmt: skip
    target = Target("triton", Backend.CUDA, h200)
    for width, one_launch in ((64, True), (1024, False)):
        shape = f"(2, 8, 512, {width})"
        given = ", ".join(f"torch.randn{shape}" for _ in "qkv")
        text = attention_task("q, k, v", "F.scaled_dot_product_attention(q, k, v)", given)
        first = RulesDesigner().designs(DesignBrief(load_task(text, "widths"), target))[0].sketch
        assert ("online" in first) == one_launch, first


def test_scores_that_each_block_of_columns_needs_again_are_stored() -> None:
    """Decode of latent heads: keys of 576 numbers, the first 512 of which are the values."""
    given = "torch.randn(32, 128, 576).to(torch.bfloat16), torch.randn(32, 4096, 576).to(torch.bfloat16)"
    body = "torch.softmax(q @ c.transpose(-1, -2) / 13.9, -1) @ c[..., :512]"
    target = Target("triton", Backend.CUDA, find_chip("h200"))
    task = load_task(attention_task("q, c", body, given), "latent")
    assert "online" not in RulesDesigner().designs(DesignBrief(task, target))[0].sketch


def test_few_keys_of_a_decode_are_read_without_descriptors() -> None:
    """A launch allocates memory for descriptors, which costs the host more than they save where little is read."""
    target = Target("triton", Backend.CUDA, find_chip("h200"))
    for keys, default in ((4096, 0), (65536, 1)):
        given = (
            f"torch.randn(1, 32, 1, 128).to(torch.bfloat16), *[torch.randn(1, 8, {keys}, 128).to(torch.bfloat16)] * 2"
        )
        call = "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)"
        task = load_task(attention_task("q, k, v", call, given), "decode")
        sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
        assert f"descriptors = {default} in" in sketch, sketch


def test_narrow_factors_are_multiplied_as_they_are() -> None:
    text = fused(ATTENTION["sdpa_bf16"], "sdpa_bf16", GPU)
    assert "gemm(cast(weights, bf16), v_tile, acc" in text and "q_hi" not in text


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_scores_that_sum_two_products_are_stored(target: Target) -> None:
    body = "s = a @ b.transpose(-1, -2) + c @ d.transpose(-1, -2); torch.softmax(s, dim=-1) @ v"
    given = ", ".join(
        f"torch.randn(2, {rows}, {width})" for rows, width in ((19, 8), (37, 8), (19, 4), (37, 4), (37, 5))
    )
    text = attention_task("a, b, c, d, v", body, given)
    for reply in RulesDesigner().designs(DesignBrief(load_task(text, "two_parts"), target)):
        assert errors(reply.sketch) == [], reply.sketch
        result = gate(load_program(reply.sketch), load_task(text, "two_parts"), seconds=0.2)
        assert result.state is GateState.RIGHT, f"{result.reason}\n{reply.sketch}"


#: cores enough to cut the keys of a few heads into pieces
_PEAK = {"f32": 1e12, "bf16": 1e14}
MANY = Target("triton", Backend.CUDA, Chip("test", "gpu", 64, bandwidth=1e12, peak_flops=_PEAK))
#: one core, which holds one program
ONE = Target("triton", Backend.CUDA, Chip("test", "gpu", 1, bandwidth=1e12, shared_bytes=24 << 10, peak_flops=_PEAK))


@pytest.mark.parametrize("name", DECODE)
def test_few_queries_share_out_their_keys(name: str) -> None:
    """Programs make rows of pieces of the keys, and one more launch joins them."""
    text = fused(DECODE[name], name, MANY)
    assert errors(text) == [], text
    assert text.count("\nsketch ") == 1 and "log_sum" in text, text
    result = gate(load_program(text), load_task(DECODE[name], name), seconds=0.5)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("name", ["grouped_heads", "own_keys", "lengths"])
def test_heads_enough_for_the_chip_keep_their_keys_together(name: str) -> None:
    text = fused(DECODE[name], name, ONE)
    assert "sketch " in text and "\nsketch " not in text, text
    result = gate(load_program(text), load_task(DECODE[name], name), seconds=0.5)
    assert result.state is GateState.RIGHT, f"{result.reason}\n{text}"


@pytest.mark.parametrize("width", [64, 96, 128, 200])
def test_tiles_of_float32_leave_room_in_the_shared_memory(width: int) -> None:
    """Widths are padded to powers of two, and Triton keeps a tile of scores besides: 96 once took 311,304 bytes."""
    chip = find_chip("NVIDIA H100 80GB HBM3")
    shape = f"torch.randn(8, 8, 512, {width})"
    text = attention_task("q, k, v", "F.scaled_dot_product_attention(q, k, v)", ", ".join([shape] * 3))
    target = Target("triton", Backend.CUDA, chip)
    program = load_program(RulesDesigner().design(DesignBrief(load_task(text, "wide"), target)).sketch)
    tile = {c.name: c.value for c in program.constexprs}
    rows, keys, stages = (int(tile[n] or 0) for n in ("BM", "BN", "num_stages"))
    padded = 1 << (width - 1).bit_length()
    assert 4 * (2 * stages * keys * padded + rows * padded + rows * keys) <= chip.shared_bytes
