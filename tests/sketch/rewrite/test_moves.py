"""Moves that change the algorithm: launches joined across reductions and orders, factors taken out of sums."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.check import check
from kernellab.sketch.gate import gate
from kernellab.sketch.rewrite import rewrites
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))

TOP_TWO = """import torch


def reference(x):
    values, index = torch.topk(x, 2, dim=-1)
    return torch.softmax(values, dim=-1), index


def inputs(seed: int = 0):
    return torch.randn({rows}, 64, generator=torch.Generator().manual_seed(seed))
"""
SCALED = """import torch


def reference(w, scale, x):
    return (w.float() * scale[:, None]) @ x


def inputs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    w = torch.randint(-127, 128, (64, 256), generator=g, dtype=torch.int8)
    return w, torch.rand(64, generator=g), torch.randn(256, generator=g)
"""


def moved(text: str, name: str) -> list[str]:
    """What the move makes of the rules' designs; each is right by the gate."""
    task = load_task(text, "moved")
    found = []
    for reply in RulesDesigner().designs(DesignBrief(task, CPU)):
        for variant in rewrites(reply.sketch, CPU, {name}):
            assert gate(variant.text, task, seconds=0.3).state is GateState.RIGHT, variant.text
            found.append(variant.text)
    return found


@pytest.mark.parametrize("rows", [4096, 300, 7])
def test_an_order_and_the_softmax_of_what_it_kept_are_one_launch(rows: int) -> None:
    """Rows that no tile divides read padding, which stays in its own row."""
    found = moved(TOP_TWO.format(rows=rows), "join")
    assert found
    for text in found:
        program = check(text, chip=CPU.chip).program
        assert program is not None and len(program.kernels) == 1
        assert "topk(" in text and "reduce_sum(exps, axis=1)" in text


def test_a_rows_scale_is_multiplied_once_a_row() -> None:
    found = moved(SCALED, "factor")
    assert found and all(", axis=0) * scale_here" in text for text in found)


SUM = """sketch total {{
    tensors: x[64, 256]: {dtype}; s[64]: {scale}; y[64]: {out} out;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        load(x[i, 0:256] -> x_tile)
        load(s[i] -> s_here)
        store(reduce_sum({terms}, axis=0) -> y[i])
}}
"""


@pytest.mark.parametrize(
    ("dtype", "scale", "terms"),
    [
        ("i32", "i32", "x_tile * s_here"),  # an integer's sum may run over where the product did not
        ("f16", "f16", "x_tile * s_here"),  # and so may a narrow one
        ("f32", "f32", "x_tile + s_here"),  # no product
        ("f32", "f32", "x_tile * x_tile"),  # nothing that all terms share
    ],
)
def test_no_factor_is_taken_out_where_the_sum_would_be_another(dtype: str, scale: str, terms: str) -> None:
    text = SUM.format(dtype=dtype, scale=scale, out=dtype, terms=terms)
    assert check(text, chip=CPU.chip).program is not None
    assert rewrites(text, CPU, {"factor"}) == []


def test_a_factor_that_all_terms_share_is_taken_out_of_a_plain_sum() -> None:
    text = SUM.format(dtype="f32", scale="f32", out="f32", terms="x_tile * s_here")
    (found,) = rewrites(text, CPU, {"factor"})
    assert "reduce_sum(x_tile, axis=0) * s_here" in found.text


COLUMNS = """sketch first {
    tensors: x[64, 256]: f32; t[64, 256]: f32 temp;
    constexpr: ROWS = 16 in {8, 16};

    @llm_hint("parallel", "coreidx")
    for i in range(0, 64, ROWS):
        load(x[i:i+ROWS, 0:256] -> a)
        store(exp(a) -> t[i:i+ROWS, 0:256])
}

sketch second {
    tensors: t[64, 256]: f32 temp; y[64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        load(t[%s, 0:256] -> b)
        store(reduce_sum(b, axis=0) -> y[i])
}
"""


@pytest.mark.parametrize(("row", "joins"), [("i", True), ("63 - i", False), ("0", False)])
def test_a_row_of_another_iteration_keeps_launches_apart(row: str, joins: bool) -> None:
    text = COLUMNS % row
    assert check(text, chip=CPU.chip).program is not None
    assert bool(rewrites(text, CPU, {"join"})) is joins
