"""Moves that change the algorithm: launches joined, factors taken out of sums, short axes apart, first few of a row."""

from __future__ import annotations

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import named_chip
from kernellab.records import GateState
from kernellab.sketch.check import check
from kernellab.sketch.gate import gate
from kernellab.sketch.rewrite import rewrites
from kernellab.sketch.run import run
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


def moved(text: str, name: str, target: Target = CPU) -> list[str]:
    """What the move makes of the rules' designs; each is right by the gate."""
    task = load_task(text, "moved")
    found = []
    for reply in RulesDesigner().designs(DesignBrief(task, target)):
        for variant in rewrites(reply.sketch, target, {name}):
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


def test_a_factor_that_a_term_has_twice_is_taken_out_twice() -> None:
    text = SUM.format(dtype="f32", scale="f32", out="f32", terms="x_tile * s_here * s_here")
    (found,) = rewrites(text, CPU, {"factor"})
    assert "reduce_sum(x_tile, axis=0) * s_here * s_here" in found.text
    assert found.why == "took s_here out of a sum in total"


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


PACKED = """import torch


def reference(w, s, x):
    low, high = (w & 15).float() - 8, (w >> 4).float() - 8
    v = torch.stack((low, high), -1).reshape({rows}, 4, 32) * s[:, :, None]
    return v.reshape({rows}, 128) @ x


def inputs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    w = torch.randint(0, 256, ({rows}, 64), generator=g, dtype=torch.uint8)
    return w, torch.rand({rows}, 4, generator=g), torch.randn(128, generator=g)
"""


def test_what_is_packed_two_by_two_is_two_plain_tiles() -> None:
    found = moved(PACKED.format(rows=24), "apart")
    assert any("0:16, 0]" in text and "where(" not in text and "axis=[0, 1]" in text for text in found)


PAIRS = """sketch pairs {{
    tensors: x[64, 32, {places}]: {dtype}; y[64{more}]: {dtype} out;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        load(x[i, 0:32, 0:{places}] -> a)
        twice = a * (arange({places}) + 1)
        store({call} -> y[i{out}])
}}
"""


@pytest.mark.parametrize("call", ["reduce_sum(twice, axis=[0, 1])", "reduce_max(twice, axis=[0, 1])"])
@pytest.mark.parametrize("places", [2, 3, 4])
def test_an_axis_apart_gives_what_the_axis_gave(call: str, places: int) -> None:
    text = PAIRS.format(places=places, dtype="f32", more="", out="", call=call)
    (found,) = rewrites(text, CPU, {"apart"})
    given = torch.randn(64, 32, places)
    (before,), (after,) = (run(check(t).program, {"x": given}).values() for t in (text, found.text))
    torch.testing.assert_close(after, before)
    assert f"0:{places}]" not in found.text


@pytest.mark.parametrize(
    ("places", "dtype", "call", "more", "out"),
    [
        (5, "f32", "reduce_sum(twice, axis=[0, 1])", "", ""),  # too long
        (2, "f16", "reduce_sum(a, axis=[0, 1])", "", ""),  # would be rounded between its two halves
        (2, "i32", "reduce_sum(twice, axis=[0, 1])", "", ""),
        (2, "f32", "reduce_sum(twice, axis=0)", ", 2", ", 0:2"),  # the axis stays
    ],
)
def test_an_axis_stays_where_its_sum_would_be_another(places: int, dtype: str, call: str, more: str, out: str) -> None:
    text = PAIRS.format(places=places, dtype=dtype, more=more, out=out, call=call)
    assert check(text, chip=CPU.chip).program is not None
    assert rewrites(text, CPU, {"apart"}) == []


FIRST = """sketch first {{
    tensors: x[12, 16]: f32; v[12, {count}]: f32 out; p[12, {count}]: i64 out;

    @llm_hint("parallel", "coreidx")
    for i in range(0, 12, {rows}):
        load(x[{here}, 0:16] -> row)
        values, places = topk(row, {count}, axis={axis}, largest=true)
        store(values -> v[{here}, 0:{count}])
        store(places -> p[{here}, 0:{count}])
}}
"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(("rows", "here", "axis"), [(1, "i", 0), (4, "i:i+4", 1)])
def test_the_first_few_are_those_of_an_order_to_the_bit(count: int, rows: int, here: str, axis: int) -> None:
    text = FIRST.format(count=count, rows=rows, here=here, axis=axis)
    (found,) = rewrites(text, CPU, {"select"})
    inf, nan = float("inf"), float("nan")
    given = torch.randint(-3, 4, (12, 16), generator=torch.Generator().manual_seed(0)).float()
    given[0], given[1], given[2, 3:5], given[3, 7], given[4, 1:] = -inf, nan, nan, inf, -inf
    before, after = (run(check(t).program, {"x": given}) for t in (text, found.text))
    assert "topk" not in found.text
    for name in ("v", "p"):
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=0, equal_nan=True)


def test_many_of_a_row_and_the_smallest_stay_an_order() -> None:
    text = FIRST.format(count=5, rows=1, here="i", axis=0)
    assert rewrites(text, CPU, {"select"}) == []
    text = FIRST.format(count=2, rows=1, here="i", axis=0).replace("true", "false")
    assert check(text).program is not None and rewrites(text, CPU, {"select"}) == []


NARROW = """sketch narrow {
    tensors: x[64, 32, 2]: u8; y[64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        load(x[i, 0:32, 0:2] -> a)
        v = cast(a << (arange(2) * 8), f32)
        store(reduce_sum(v, axis=[0, 1]) -> y[i])
}
"""
WRITTEN_AGAIN = """sketch again {
    tensors: x[64, 32, 2]: f32; r[64, 32]: f32; y[64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        load(x[i, 0:32, 0:2] -> a)
        load(r[i, 0:32] -> b)
        scaled = a * b[:, None]
        b = b + 1
        store(reduce_sum(scaled, axis=[0, 1]) + reduce_sum(b, axis=0) -> y[i])
}
"""


def test_a_place_keeps_the_type_of_the_index_that_it_was() -> None:
    (found,) = rewrites(NARROW, CPU, {"apart"})
    given = {"x": torch.arange(64 * 32 * 2).reshape(64, 32, 2).to(torch.uint8)}
    (before,), (after,) = (run(check(t, chip=CPU.chip).program, given).values() for t in (NARROW, found.text))
    torch.testing.assert_close(after, before)


def test_what_is_written_again_is_not_read_later() -> None:
    assert check(WRITTEN_AGAIN, chip=CPU.chip).program is not None
    assert rewrites(WRITTEN_AGAIN, CPU, {"apart"}) == []
    once = WRITTEN_AGAIN.replace("        b = b + 1\n", "")
    assert len(rewrites(once, CPU, {"apart"})) == 1


DOWN = """import torch


def reference(a, b):
    return (a[:, :, None] * b[None, :, :]).sum(1)


def inputs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 9, ({rows}, 37), generator=g), torch.randint(-9, 9, (37, 80), generator=g)
"""
READS = """sketch s {
    tensors: x[5, 64, 7]: f32; y[64, 7]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(7):
        total = full([64], 0.0, f32)
        for j in range(%s):
            load(x[%s] -> a)
            total = total + a
        store(total -> y[0:64, i])
}
"""


@pytest.mark.parametrize("rows", [50, 3])
def test_an_operand_whose_lanes_lie_a_row_apart_is_copied_once(rows: int) -> None:
    """Sizes that no tile divides are padded in the copy and in its reads."""
    found = moved(DOWN.format(rows=rows), "turn")
    assert found and all("_turned[" in text and "_turn {" in text for text in found)


def test_only_what_is_read_again_and_across_its_rows_is_copied() -> None:
    (found,) = rewrites(READS % (5, "2, 0:64, i"), CPU, {"turn"})
    assert "x_turned[5, 7, 64]" in found.text and "load(x_turned[2, i, 0:64] -> a)" in found.text
    assert not rewrites(READS % (5, "j, 0:64, i"), CPU, {"turn"}), "each element is read once"
    assert not rewrites(READS.replace("[64]", "[7]") % (5, "2, i, 0:7"), CPU, {"turn"}), "lanes lie side by side"


ADDED = """import torch


def reference(x, at):
    return torch.zeros(40, 64).index_add(0, at, x)


def inputs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    at = torch.randint(0, 40, ({rows},), generator=g)
    return torch.randn({rows}, 64, generator=g), at{sort}
"""


@pytest.mark.parametrize(("rows", "sort"), [(512, ".sort().values"), (515, ".sort().values"), (515, "")])
def test_rows_of_a_run_are_added_as_one_tile_whatever_their_order(rows: int, sort: str) -> None:
    """A run that the rows do not fill, and one that holds several indices in any order."""
    small = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 2))
    found = moved(ADDED.replace("{rows}", f"{rows}").replace("{sort}", sort), "segment", small)
    assert len(found) == 1
    assert "for i_row" not in found[0] and found[0].count("atomic_add") == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("where(same, -1, ", "where(same, 0, "),
        ("total = where(same, total, 0)", "total = where(same, total, 1)"),
    ],
)
def test_a_loop_that_is_no_run_of_additions_stays(old: str, new: str) -> None:
    """What is added elsewhere, or what a total begins with, is not what the tile would give."""
    small = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 2))
    task = load_task(ADDED.replace("{rows}", "512").replace("{sort}", ""), "added")
    (text, *_) = (r.sketch for r in RulesDesigner().designs(DesignBrief(task, small)) if "i_row" in r.sketch)
    assert rewrites(text, small, {"segment"})
    assert old in text
    assert not rewrites(text.replace(old, new), small, {"segment"})


POOLED = """import torch
import torch.nn.functional as F


def reference(x):
    return F.avg_pool2d({each}, 3, 2, padding=1)


def inputs(seed: int = 0):
    return torch.randn(4, 3, 17, 17, generator=torch.Generator().manual_seed(seed))
"""
STORED = """sketch first {
    tensors: x[64, 32]: f32; t[64, 32]: f32 temp;

    @llm_hint("parallel", "coreidx")
    for i in range(64):
        load(x[i, 0:32] -> a)
        store(a * 2.0 -> t[i, 0:32])
}

sketch second {
    tensors: t[2048]: f32 temp; y[2040]: f32 out;
    constexpr: B = 64 in {32, 64};

    @llm_hint("parallel", "coreidx")
    for i in range(0, 2040, B):
        load(t[i:i+B] -> near)
        load(t[i+8:i+8+B] -> far)
        store(near + far -> y[i:i+B])
}
"""


def test_what_is_stored_of_each_element_is_computed_where_it_is_read() -> None:
    found = [v.text for v in rewrites(STORED, CPU, {"recompute"})]
    assert len(found) == 1
    assert "sketch first" not in found[0] and found[0].count("load(x[") == 2
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    before, after = (check(text, chip=CPU.chip).program for text in (STORED, found[0]))
    assert before is not None and after is not None
    assert torch.equal(run(before, {"x": x})["y"], run(after, {"x": x})["y"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a * 2.0", "a + 2.0"),  # past the edge of t there are zeros, not what it makes of zeros
        ("x[i, 0:32]", "x[63 - i, 0:32]"),  # other elements
        ("store(near + far", "store(near + far -> t[i:i+B])\n        store(near + far"),
    ],
)
def test_what_another_place_needs_stays_stored(old: str, new: str) -> None:
    assert old in STORED
    assert not rewrites(STORED.replace(old, new), CPU, {"recompute"})


def test_a_padded_window_over_squares_reads_what_they_are_made_of() -> None:
    """The reader sees the tensor in another shape, and reads past its edge."""
    found = moved(POOLED.replace("{each}", "(x * x)"), "recompute")
    assert found
    assert all(text.count("sketch ") == 1 for text in found)


BYTES = """import torch


def reference(x, w, s):
    return x @ (w.float() * s{index}){turned}


def inputs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    w = torch.randint(-127, 128, {shape}, generator=g, dtype=torch.int8)
    return torch.randn(48, 128, generator=g), w, torch.rand({scales}, generator=g)
"""


def test_a_scale_of_columns_is_multiplied_into_the_product_once_an_element() -> None:
    text = BYTES.format(index="[:, None]", turned=".T", shape="(96, 128)", scales=96)
    found = moved(text, "factor")
    assert found and all(
        "acc_scaled = acc * s_tile" in text and "gemm(x_tile, cast(w_turned, f32)" in text for text in found
    )


def test_a_scale_along_the_axis_that_is_added_up_stays_in_the_product() -> None:
    text = BYTES.format(index="[:, None]", turned="", shape="(128, 96)", scales=128)
    assert moved(text, "factor") == []


HALVES = """sketch product {{
    tensors: x[64, 64]: {dtype}; w[64, 64]: {weights}; s[64]: {dtype}; y[64, 64]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(0, 64, 16):
        acc = alloc([16, 64], f32, llm_hint=["fastest", "accumulator", "init_zero"])
        load(s[i:i+16] -> s_tile)
        for k in range(0, 64, 16):
            load(x[i:i+16, k:k+16] -> x_tile)
            load(w[k:k+16, 0:64] -> w_tile)
            {more}
            gemm({left}, cast(w_tile, {dtype}), acc)
        store(acc -> y[i:i+16, 0:64])
}}
"""


@pytest.mark.parametrize(
    ("dtype", "left", "more", "moves"),
    [
        ("f32", "x_tile * s_tile[:, None]", "last = k", True),
        ("f32", "x_tile * s_tile", "last = k", False),  # along the axis that is added up
        ("f32", "x_tile * s_tile[:, None]", "load(s[k:k+16] -> s_tile)", False),  # another in each step
        ("f16", "cast(exp(x_tile) * s_tile[:, None], f16)", "last = k", False),  # without it float16 may run over
    ],
)
def test_a_scale_of_rows_leaves_a_product_where_it_is_the_same_in_all_of_it(
    dtype: str, left: str, more: str, moves: bool
) -> None:
    text = HALVES.format(dtype=dtype, weights="i8", left=left, more=more)
    assert check(text, chip=CPU.chip).program is not None
    assert [f.why for f in rewrites(text, CPU, {"factor"})] == (
        ["took s_tile out of what a loop of product adds up"] if moves else []
    )


GROUPED = """import torch


def reference(w, s, x):
    low, high = (w & 15).float() - 8, (w >> 4).float() - 8
    v = torch.stack((low, high), -1).reshape(32, 8, 16) * s[:, :, None]
    return v.reshape(32, 128) @ x


def inputs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    w = torch.randint(0, 256, (32, 64), generator=g, dtype=torch.uint8)
    return w, torch.rand(32, 8, generator=g), torch.randn(128, generator=g)
"""


def test_a_groups_scale_is_multiplied_once_a_group_of_what_a_loop_adds_up() -> None:
    gpu = Target("triton", Backend.CUDA, named_chip("h100"))
    found = moved(GROUPED, "factor", gpu)
    # one row or several are a tile of their program
    inner = [("axis=2", "axis=1"), ("axis=1", "axis=0")]
    sums = [f"reduce_sum(reduce_sum(row_total, {a}) * s_tile, {b})" for a, b in inner]
    assert found and all(any(text in one for text in sums) for one in found)
