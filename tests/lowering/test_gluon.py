"""Asynchronous kernels for Hopper: each hint shows in the source, limits are kept, and the SASS has what was asked."""

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
from kernellab.lowering.bounds import Bounds
from kernellab.lowering.gluon.boxes import Refused, box
from kernellab.lowering.gluon.names import unavailable
from kernellab.lowering.gluon.offsets import placed
from kernellab.lowering.gluon.padded import padded
from kernellab.lowering.gluon.planner import plan
from kernellab.lowering.triton.source import why_not_asynchronous
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import DType, Load, Loop, Point, Range, Region, Tensor, TensorRole
from kernellab.sketch.program.walk import statements
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task
from tests.breadth import asked

HOPPER = Target("triton", Backend.CUDA, find_chip("NVIDIA H100"))
AMPERE = Target("triton", Backend.CUDA, find_chip("NVIDIA A100"))
_BF16 = "dtype=torch.bfloat16"
PRODUCT = f"""
import torch
import torch.nn.functional as F

def reference(x, w, b):
    return F.gelu(F.linear(x, w, b))

def inputs():
    return torch.randn(2048, 520, {_BF16}), torch.randn(4096, 520, {_BF16}), torch.randn(4096, {_BF16})
"""
ATTENTION = f"""
import torch
import torch.nn.functional as F

def reference(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

def inputs():
    return torch.randn(2, 8, 1000, 128, {_BF16}), *(torch.randn(2, 4, 1000, 128, {_BF16}) for _ in range(2))
"""
FULL = f"""
import torch
import torch.nn.functional as F

def reference(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)

def inputs():
    return tuple(torch.randn(2, 8, 1024, 64, {_BF16}) for _ in range(3))
"""
LAYER = f"""
import torch
import torch.nn.functional as F

def reference(x, w, o):
    q, k, v = (t.view(1, 2048, 16, 64).transpose(1, 2) for t in (x @ w).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(1, 2048, 1024) @ o

def inputs():
    return tuple(torch.randn(*s, {_BF16}) for s in ((1, 2048, 1024), (1024, 3072), (1024, 1024)))
"""
FLOAT8 = """
import torch

def reference(a, b, r, s):
    return ((a.float() * r) @ (b.float() * s).t()).to(torch.bfloat16)

def inputs():
    made = lambda dtype: torch.randn(2048, 2048).to(dtype)
    return made(torch.float8_e4m3fn), made(torch.float8_e5m2), torch.rand(2048, 1), torch.rand(2048, 1)
"""
WINDOW = f"""
import torch

def reference(q, k, v):
    scores = q @ k.transpose(-1, -2) / 8.0
    n = torch.arange(q.shape[-2], device=q.device)
    away = n[:, None] - n[None, :]
    return torch.softmax(scores.masked_fill((away < 0) | (away >= 256), float("-inf")), -1) @ v

def inputs():
    return tuple(torch.randn(4, 2048, 64, {_BF16}) for _ in range(3))
"""
BLOCKS8 = """
import torch

def reference(a, b, r, s):
    x = a.float() * r.repeat_interleave(128, 1)
    return (x @ (b.float() * s.repeat_interleave(128, 0).repeat_interleave(128, 1)).t()).to(torch.bfloat16)

def inputs():
    made = lambda: torch.randn(2048, 2048).to(torch.float8_e4m3fn)
    return made(), made(), torch.rand(2048, 16), torch.rand(16, 16)
"""
CONVOLUTION = f"""
import torch
import torch.nn.functional as F

def reference(x, w, b):
    return F.relu(F.conv2d(x, w, b, padding=1))

def inputs():
    last = lambda *shape: torch.randn(*shape, {_BF16}).to(memory_format=torch.channels_last)
    return last(64, 128, 30, 30), last(192, 128, 3, 3), torch.randn(192, {_BF16})
"""
RESIDUAL = f"""
import torch
import torch.nn.functional as F

def reference(x, w, r):
    return F.silu(F.conv2d(x, w, padding=1) + r)

def inputs():
    last = lambda *shape: torch.randn(*shape, {_BF16}).to(memory_format=torch.channels_last)
    return last(64, 128, 30, 30), last(128, 128, 3, 3), last(64, 128, 30, 30)
"""
TWO_RESULTS = RESIDUAL.replace(
    "return F.silu(F.conv2d(x, w, padding=1) + r)", "y = F.conv2d(x, w, padding=1); return y, y + r"
)
CHANNELS_FIRST = f"""
import torch
import torch.nn.functional as F

def reference(x, w, b):
    return F.relu(F.conv2d(x, w, b, padding=1))

def inputs():
    return torch.randn(64, 128, 30, 30, {_BF16}), torch.randn(192, 128, 3, 3, {_BF16}), torch.randn(192, {_BF16})
"""
BY_TWO = f"""
import torch
import torch.nn.functional as F

def reference(x, w):
    return F.conv2d(x, w, padding=1, stride=2)

def inputs():
    last = lambda *shape: torch.randn(*shape, {_BF16}).to(memory_format=torch.channels_last)
    return last(64, 128, 56, 56), last(128, 128, 3, 3)
"""
WEIGHTS = f"""
import torch
import torch.nn.functional as F

def reference(g, x):
    return F.conv2d(x.transpose(0, 1), g.transpose(0, 1), padding=1)[:, :, :3, :3].transpose(0, 1)

def inputs():
    last = lambda *shape: torch.randn(*shape, {_BF16}).to(memory_format=torch.channels_last)
    return last(16, 128, 28, 28), last(16, 96, 28, 28)
"""
#: of causal attention: the log-sums again, then one launch for the queries and one for the keys and values
GRADIENT = backward_text(
    load_task(ATTENTION.replace(", enable_gqa=True", "").replace("2, 4, 1000", "2, 8, 1000"), "forward")
)
#: of heads that share keys: a tile of these is met by the queries of each head in turn
GROUPED = backward_text(load_task(ATTENTION, "forward"))
#: 64 channels: the launches of the file want several numbers of warps
NARROW = backward_text(
    load_task(
        BY_TWO.replace(", stride=2", "").replace("64, 128, 56", "64, 64, 56").replace("128, 128, 3", "64, 64, 3"),
        "forward",
    )
)
#: a mask that a table of blocks gives: its elements are gathered
BLOCK_TABLE = f"""
import torch
import torch.nn.functional as F

def reference(q, k, v, blocks):
    n = torch.arange(2048, device=q.device) // 128
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocks[n[:, None], n[None, :]])

def inputs():
    return *(torch.randn(1, 8, 2048, 128, {_BF16}) for _ in range(3)), torch.rand(16, 16) < 0.5
"""
GROUPS = f"""
import torch

def reference(x, w, ends):
    return torch._grouped_mm(x, w, offs=ends)

def inputs():
    ends = torch.tensor([300, 300, 301, 1024], dtype=torch.int32)
    return torch.randn(1024, 512, {_BF16}), torch.randn(4, 512, 384, {_BF16}), ends
"""
SASS_CASES = {
    "product": PRODUCT, "attention": ATTENTION, "window": WINDOW.replace("2048, 64", "2048, 96"),
    "float8": FLOAT8, "blocks8": BLOCKS8, "gradient": GRADIENT, "convolution": CONVOLUTION, "residual": RESIDUAL,
    "two results": TWO_RESULTS,
    "channels first": CHANNELS_FIRST, "by two": BY_TWO, "weights": WEIGHTS,
    "full": FULL.replace("1024, 64", "1024, 128"), "full narrow": FULL,
    "narrow gradients": NARROW, "grouped gradient": GROUPED, "block table": BLOCK_TABLE, "groups": GROUPS,
}  # fmt: skip


def first_sketch(text: str, target: Target = HOPPER) -> str:
    return RulesDesigner().designs(DesignBrief(load_task(text, "case"), target))[0].sketch


def lowered(sketch: str, text: str, target: Target = HOPPER) -> str:
    program = load_program(sketch)
    return lower(program, bind(program, load_task(text, "case"), {}, target), target).files["kernel.py"]


def test_a_quotient_of_padded_heads_is_no_copy_engine_s_work() -> None:
    text = f"""
import torch
import torch.nn.functional as F

def reference(q, k, v, s):
    return F.scaled_dot_product_attention(q / s, k, v)

def inputs():
    made = lambda *shape: torch.randn(*shape, {_BF16})
    return made(2, 8, 1024, 96), made(2, 8, 1024, 96), made(2, 8, 1024, 96), made(96)
"""
    # the engine fills both with zeros, and 0 / 0 would be in each score: it reads what another launch divided
    sketch = first_sketch(text)
    assert 'kl_asynchronous("case_attention", div_all, k, v)' in lowered(sketch, text)
    divided = ("load(q[i, j:j+BM, 0:96] -> q_tile)", "load(s[0:96] -> s_tile)", "div_all_seen1_tile = q_tile / s_tile")
    within = sketch[sketch.index("sketch case_attention") :]
    within = within.replace("load(div_all[i, j:j+BM, 0:96] -> div_all_seen1_tile)", f"\n{' ' * 12}".join(divided))
    within = within.replace("div_all[16, 1024, 96]: bf16 temp;", "q[16, 1024, 96]: bf16; s[96]: bf16;")
    assert "q_tile / s_tile" in within
    assert "kl_asynchronous(" not in lowered(within, text)


@pytest.mark.parametrize("text", [PRODUCT, ATTENTION, WINDOW, FLOAT8, BLOCKS8, CONVOLUTION, RESIDUAL, TWO_RESULTS])
def test_first_designs_for_hopper_are_asynchronous_and_say_so(text: str) -> None:
    source = lowered(first_sketch(text), text)
    assert "case: Gluon" in source
    assert "warp_specialize" in source and "kl_asynchronous(" in source
    assert "@triton.jit" in source, "a Triton kernel runs what the copy engine refuses"


@pytest.mark.parametrize("text", [PRODUCT, ATTENTION])
def test_other_chips_get_the_triton_kernel_alone(text: str) -> None:
    assert "gluon" not in lowered(first_sketch(text, AMPERE), text, AMPERE)
    source = lowered(first_sketch(text), text, AMPERE)
    assert "case: Triton, since NVIDIA A100 has no copy engine" in source
    assert "warp_specialize" not in source


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (PRODUCT, ', "copy_engine"'), (PRODUCT, ', "warp_roles", 2'), (PRODUCT, ', "ahead"'),
        (PRODUCT, ', "async_store"'), (PRODUCT, ', "persistent"'), (PRODUCT, ', "in_turn"'),
        (ATTENTION, ', "copy_engine"'), (ATTENTION, ', "warp_roles", 2'), (ATTENTION, ', "ahead"'),
    ],
)  # fmt: skip
def test_without_a_hint_the_source_is_another(text: str, hint: str) -> None:
    sketch = first_sketch(text)
    if text is PRODUCT:
        # all of the hints, whichever the tile's model prefers
        roles = '"warp_roles", 2, "in_turn", "ahead"'
        sketch = sketch.replace('"warp_roles", 1, "ahead"', roles).replace("BN = 256", "BN = 128")
    assert hint in sketch
    whole = lowered(sketch, text)
    assert "case: Gluon" in whole
    code = [lowered_text.split("#| sketch")[0] for lowered_text in (whole, lowered(sketch.replace(hint, ""), text))]
    assert code[0] != code[1]


@pytest.mark.parametrize(("width", "filled"), [(40, 64), (96, 128), (192, 256)])
def test_heads_that_are_no_power_of_two_are_filled_up_by_the_copy_engine(width: int, filled: int) -> None:
    text = ATTENTION.replace(", 128,", f", {width},")
    source = lowered(first_sketch(text), text)
    assert "case: Gluon" in source
    assert f"kl_blocks(q, (16, 1000, {width}), (1, BM, {filled}))" in source, "the tensor ends where it did"
    assert f"lane_at < {width}" in source.split("_multiplies(")[1], "nothing is stored past a row's end"


@pytest.mark.parametrize("width", [80, 96])
def test_a_gradient_s_heads_are_filled_up_too(width: int) -> None:
    text = backward_text(load_task(ATTENTION.replace(", 128,", f", {width},"), "forward"))
    source = lowered(first_sketch(text), text)
    assert all(f"{name}: Gluon" in source for name in ("case_attention", "case_chain", "case_chain2"))
    assert f"(8, 1000, {width}), (1, ROWS2, 128))" in source, "the tensor ends where it did"
    for kernel in ("chain", "chain2"):
        body = source.split(f"def case_{kernel}_multiplies(")[1].split("@gluon.jit")[0]
        stores = [line for line in body.splitlines() if "gl.store(" in line]
        assert stores and all(f"lane_at < {width}" in line for line in stores), "nothing is stored past a row's end"


def test_a_width_that_is_reduced_is_not_filled_up() -> None:
    sketch = first_sketch(ATTENTION.replace(", 128,", ", 96,"))
    wrong = sketch.replace("result = acc / row_total[:, None]", "result = acc / reduce_max(acc, axis=1, keepdims=true)")
    assert wrong != sketch
    (kernel,) = load_program(wrong).kernels
    assert padded(kernel) is kernel
    (kernel,) = load_program(sketch).kernels
    assert padded(kernel) is not kernel


def test_early_products_are_awaited_after_the_work_that_they_overlap() -> None:
    source = lowered(first_sketch(ATTENTION), ATTENTION)
    step = source[source.index("next_scores = warpgroup_mma") :]
    assert step.index("kl_reduce_max") < step.index("scores = warpgroup_mma_wait(1, [next_scores])")
    late = lowered(first_sketch(ATTENTION).replace(', "ahead"', ""), ATTENTION)
    assert "next_scores" not in late and "warp_specialize" in late


@pytest.mark.parametrize("width", [64, 128])
def test_values_of_a_step_are_multiplied_during_the_next_step_s_softmax(width: int) -> None:
    """The shares are held until their product has read them; groups of narrow heads issue their products in turn."""
    text = FULL.replace("1024, 64", f"1024, {width}")
    source = lowered(first_sketch(text), text)
    step = source[source.index("for t in range(1, steps)") : source.index("for t in range(1, steps)") + 4000]
    places = [
        step.index(piece) for piece in (
            "scores = warpgroup_mma(", "acc = warpgroup_mma(shares, ", "scores = warpgroup_mma_wait(1, [scores])",
            "kl_reduce_max", "acc, shares = warpgroup_mma_wait(0, [acc, shares])", "acc = acc *", "shares = gl",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert ("mbarrier.arrive(turns.index(1 - who))" in step) == (width == 64)
    assert source.count("mbarrier.arrive(v_free") == source.count("mbarrier.wait(v_ready") == 2
    masked = text.replace("(q, k, v)\n\ndef", "(q, k, v, is_causal=True)\n\ndef")
    assert "next_scores" in lowered(first_sketch(masked), masked)


def test_a_gradient_s_buffers_are_freed_by_the_last_product_that_reads_them() -> None:
    source = lowered(first_sketch(GRADIENT), GRADIENT)
    assert all(f"{name}: Gluon" in source for name in ("case_attention", "case_chain", "case_chain2"))
    # keys are multiplied twice in a step, and their buffer is handed back once in each of its loops
    body = source[source.index("def case_chain_multiplies") : source.index("def case_chain_asynchronous")]
    loops, waits = body.count("for t in range"), body.count("mbarrier.wait(k_ready")
    assert loops and waits == 2 * loops and body.count("mbarrier.arrive(k_free") == loops
    freed = body.index("mbarrier.arrive(k_free")
    assert body.index("acc = warpgroup_mma(") < body.index("acc = warpgroup_mma_wait(") < freed
    # a launch that takes another number of warps than the file's has four for each 64 rows
    few = lowered(first_sketch(GRADIENT).replace("num_warps = 8 in {1, 2, 4, 8, 16};", ""), GRADIENT)
    assert "case_chain: Gluon" in few and " 8 // 2, " in few


def test_the_loop_over_heads_that_share_keys_and_its_inner_one_run_as_one() -> None:
    source = lowered(first_sketch(GROUPED), GROUPED)
    assert "case_chain2: Gluon" in source
    loads, multiplies = source.index("def case_chain2_loads"), source.index("def case_chain2_multiplies")
    for body in (source[loads:multiplies], source[multiplies : source.index("def case_chain2_asynchronous")]):
        assert body.count("for u in range(0, each)") == 1 and "t = begun + u" in body
    # a range that differs from head to head is not run so
    ragged = first_sketch(GROUPED).replace("// STEP * STEP, 1000, STEP)", "// STEP * STEP, 1000 - b, STEP)")
    assert ragged != first_sketch(GROUPED) and "case_chain2: Gluon" not in lowered(ragged, GROUPED)


@pytest.mark.parametrize("hint", [', "copy_engine"', ', "warp_roles", 2', ', "ahead"'])
def test_without_a_hint_a_gradient_s_source_is_another(hint: str) -> None:
    sketch = first_sketch(GRADIENT)
    start = sketch.index("sketch case_chain {")
    without = sketch[:start] + sketch[start:].replace(hint, "")
    assert without != sketch
    code = [lowered(each, GRADIENT).split("#| sketch")[0] for each in (sketch, without)]
    assert code[0] != code[1]


def test_a_sketch_whose_buffers_do_not_fit_stays_in_triton_with_the_bytes() -> None:
    sketch = first_sketch(ATTENTION).replace("num_stages = 2", "num_stages = 4")
    source = lowered(sketch, ATTENTION)
    assert "bytes of shared memory; NVIDIA H100 gives a block 232,448" in source
    assert "warp_specialize" not in source


def test_each_launch_of_a_file_runs_in_as_many_stages_as_its_tile_wants() -> None:
    """Products in the same file as an attention ran in its two stages: 11.5, 14 and 21 us on an H200, alone 6.2, 8 and
    9.5."""
    sketch = first_sketch(LAYER)
    hint = r'case_(\w+) \{(?:(?!^\}).)*?"pipeline", (\d+)'
    hinted = {name: int(n) for name, n in re.findall(hint, sketch, re.S | re.M)}
    assert hinted == dict.fromkeys(("product", "product2", "product3", "finish"), 4)
    assert "num_stages = 2 in {2, 3, 4, 5}" in sketch
    source = lowered(sketch, LAYER)
    launches = dict(re.findall(r"case_(\w+)_kernel\[.*num_stages=(\w+)\)", source))
    assert launches == {**{name: str(n) for name, n in hinted.items()}, "attention": "num_stages"}
    assert "num_stages = 2" in source


def test_a_window_starts_at_its_first_key_and_masks_only_its_edges() -> None:
    sketch = first_sketch(WINDOW)
    assert "range(max(0, " in sketch
    assert " or " in next(line for line in sketch.splitlines() if line.strip().startswith("if "))
    assert "guarded_to" in lowered(sketch, WINDOW)


@pytest.mark.parametrize("keys", [50, 150, 256])
def test_every_group_counts_keys_from_where_the_tile_begins(keys: int) -> None:
    # what the loading warp fills a buffer with has to be what a group takes it for, wherever its own rows begin
    program = load_program(first_sketch(WINDOW.replace("256", str(keys))))
    values = {c.name: int(c.value) for c in program.constexprs if c.value is not None}
    made = plan(program, program.kernels[0], values, HOPPER, values)
    seen, rows = made.seen_from_shares(), next(lp for lp in made.loops if lp.step.name == made.rows_name)
    height = values[made.rows_name]
    own = height // made.groups
    for first in range(0, 2048, height):
        filled = made.loop.start.evaluate({**values, rows.var: first})
        shares = [{**values, made.rows_name: own, rows.var: first + who * own} for who in range(made.groups)]
        assert {seen.start.evaluate(share) for share in shares} == {filled}


@pytest.fixture(scope="module")
def sass(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, dict[str, int]]]:
    """Of each case that this run asks for: facts of its kernels' machine code."""
    if unavailable():
        pytest.skip(unavailable())
    folder = tmp_path_factory.mktemp("sass")
    names = asked(request, "name")
    for name, text in ((name, SASS_CASES[name]) for name in names):
        (folder / f"{name}.py").write_text(lowered(first_sketch(text), text))
        space: dict[str, object] = {}
        exec(text, space)
        torch.save(list(space["inputs"]()), folder / f"{name}.pt")  # type: ignore[operator]
    script = Path(__file__).parent / "sass_for_hopper.py"
    files = [str(folder / f"{name}.py") for name in names]
    env = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")}
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, str(script), *files], capture_output=True, text=True, env=env, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return {Path(path).stem: kernels for path, kernels in json.loads(line).items()}


@pytest.mark.parametrize("name", SASS_CASES)
def test_the_sass_multiplies_on_tensor_cores_loads_by_the_copy_engine_and_spills_nothing(
    sass: dict[str, dict[str, dict[str, int]]], name: str
) -> None:
    kernels = [found for kernel, found in sass[name].items() if kernel.endswith("_asynchronous")]
    assert len(kernels) == {"gradient": 3, "grouped gradient": 3, "narrow gradients": 2}.get(name, 1)
    for facts in kernels:
        assert facts["QGMMA" if name in ("float8", "blocks8") else "HGMMA"] and facts["UTMALDG"] and not facts["HMMA"]
        assert facts["stack"] == facts["LDL"] == facts["STL"] == 0
        assert facts["registers"] <= (255 if name == "narrow gradients" else 168) and facts["shared"] <= 232448
        plain = name in (
            "attention",
            "full",
            "full narrow",
            "window",
            "two results",
            "channels first",
            "gradient",
            "grouped gradient",
            "weights",
            "block table",
            "groups",
        )
        assert bool(facts["UTMASTG"]) != plain or name == "narrow gradients"


def test_an_index_that_may_lie_outside_is_no_part_of_a_joined_dimension() -> None:
    outer, inner = (IntExpr(IntKind.LOOP, name=name) for name in "ab")
    tensor = Tensor("x", tuple(map(num, (4, 6, 64, 64))), DType.BF16, TensorRole.IN)
    tile = (Range(num(0), num(64), num(1)), Range(num(0), num(64), num(1)))
    loops = {name: Loop(name, num(0), num(stop), num(1), ()) for name, stop in (("a", 4), ("b", 6))}
    facts = Bounds({}, loops=loops)
    assert box(Region(tensor, (Point(outer), Point(inner), *tile)), facts).shape == tuple(map(num, (24, 64, 64)))
    after = box(Region(tensor, (Point(outer), Point(int_op("+", inner, num(1))), *tile)), facts)
    assert after.shape == tensor.shape, "the row past the last is not the next sample's first"
    first = box(Region(tensor, (Point(int_op("-", outer, num(1))), Point(inner), *tile)), facts)
    assert first.shape == tensor.shape, "dimensions keep their order"


@pytest.mark.parametrize("pad", [0, 1, 3])
def test_a_box_of_every_second_element_reads_what_the_slice_does(pad: int) -> None:
    length, tile = 16, 8
    out, tap = IntExpr(IntKind.LOOP, name="o"), IntExpr(IntKind.LOOP, name="k")
    loops = {"o": Loop("o", num(0), num(length // 2), num(1), ()), "k": Loop("k", num(0), num(4), num(1), ())}
    start = int_op("-", int_op("+", int_op("*", out, num(2)), tap), num(pad))
    tensor = Tensor("x", (num(length), num(64)), DType.BF16, TensorRole.IN)
    rows = Range(start, num(tile), num(2))
    found = box(Region(tensor, (rows, Range(num(0), num(64), num(1)))), Bounds({}, loops=loops))
    assert found.shape == tuple(map(num, (length // 2, 2, 64))) and found.block == tuple(map(num, (tile, 1, 64)))
    for o in range(length // 2):
        for k in range(4):
            first, rest = (int(at.evaluate({"o": o, "k": k})) for at in found.at[:2])
            # outside either dimension the engine gives zeros
            read = [2 * (first + n) + rest if 0 <= first + n < length // 2 else None for n in range(tile)]
            wanted = [2 * o + k - pad + 2 * n for n in range(tile)]
            assert read == [at if 0 <= at < length else None for at in wanted]


def test_every_second_of_an_odd_number_of_elements_is_refused() -> None:
    tensor = Tensor("x", (num(15), num(64)), DType.BF16, TensorRole.IN)
    with pytest.raises(Refused, match="no whole number of steps"):
        box(Region(tensor, (Range(num(0), num(8), num(2)), Range(num(0), num(64), num(1)))), Bounds({}))


def test_places_that_floor_have_32_bits_for_the_copy_engine() -> None:
    text = f"""
import torch
import torch.nn.functional as F

def reference(x, w):
    return F.conv_transpose2d(x, w, stride=2, padding=1)

def inputs():
    made = lambda *shape: torch.randn(*shape, {_BF16}).to(memory_format=torch.channels_last)
    return made(16, 256, 32, 32), made(256, 128, 4, 4)
"""
    source = lowered(first_sketch(text), text)
    loads = [line for line in source.splitlines() if "tma_load(x_source" in line]
    assert loads and all(line.count("kl_floor_div(") == line.count("tl.int32)") for line in loads)
    assert all("kl_floor_div(" in line for line in loads), "each phase has its first tap"


AT_OFFSETS = """
sketch rows {
    tensors: X[512, 256]: bf16; W[4, 256, 128]: bf16; first[4]: i64; owner[4]: i32; Y[512, 128]: bf16 out;
    constexpr: BM = 64; BK = 64;
    @llm_hint("parallel", "grididx", "persistent")
    for i in range(4):
        acc = alloc([BM, 128], f32, llm_hint=["accumulator", "init_zero"])
        load(first[i] -> begin)
        load(owner[i] -> mine)
        at = begin + arange(BM)
        @llm_hint("pipeline", 3, "copy_engine", "warp_roles", 1)
        for k in range(0, 256, BK):
            gather(X[at, k:k+BK] -> x)
            gather(W[mine, k:k+BK, 0:128] -> w)
            gemm(x, w, acc)
        scatter(cast(acc, bf16) -> Y[at, 0:128], unique=true, whole=true)
}
"""


def test_rows_at_an_offset_from_memory_are_a_box_of_the_copy_engine() -> None:
    kernel, offsets = placed(load_program(AT_OFFSETS).kernels[0])
    loads = [s for s in statements(kernel.body) if isinstance(s, Load) and s.tile.name in ("x", "w")]
    assert set(offsets) == {"begin", "mine"}
    x, w = (load.region.index[0] for load in loads)
    assert isinstance(x, Range) and str(x.start) == "begin"
    assert isinstance(w, Point) and str(w.at) == "mine"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at = begin + arange(BM)", "at = begin + arange(BM) * 2"),  # rows apart
        ("at = begin + arange(BM)", "at = begin + mine + arange(BM)"),  # two numbers, which may be far outside
        ("at = begin + arange(BM)", "at = min(begin + arange(BM), 511)"),  # another row in place of zeros
    ],
)
def test_rows_that_are_no_box_are_gathered(old: str, new: str) -> None:
    changed = AT_OFFSETS.replace(old, new)
    assert changed != AT_OFFSETS
    kernel, offsets = placed(load_program(changed).kernels[0])
    assert set(offsets) == {"mine"}
    assert not any(isinstance(s, Load) and s.tile.name == "x" for s in statements(kernel.body))


@pytest.mark.parametrize(
    ("written", "reason"), [("scatter(VALUE -> y[at, 0:128], unique=true, whole=true)", "no asynchronous form"),
                            ("store(VALUE -> y[m:m+BM, 0:128])", "share their rows")],
)  # fmt: skip
def test_groups_that_share_rows_read_none_at_an_offset(written: str, reason: str) -> None:
    """A group's rows begin at another number than the tile's, which an entry of a table does not say."""
    shared = """
sketch rows {
    tensors: x[512, 256]: bf16; w[256, 128]: bf16; first[4]: i64; y[512, 128]: bf16 out;
    constexpr: BM = 128 in {128, 256}; BK = 64;
    @llm_hint("parallel", "grididx", "persistent")
    for m in range(0, 512, BM):
        acc = alloc([BM, 128], f32, llm_hint=["accumulator", "init_zero"])
        load(first[m // BM] -> begin)
        at = begin + arange(BM)
        @llm_hint("pipeline", 3, "copy_engine", "warp_roles", 2)
        for k in range(0, 256, BK):
            gather(x[at, k:k+BK] -> xt)
            load(w[k:k+BK, 0:128] -> wt)
            gemm(xt, wt, acc)
        WRITTEN
}
""".replace("WRITTEN", written.replace("VALUE", "cast(acc, bf16)"))
    task = load_task(
        "import torch\ndef reference(x, w, first):\n    at = (first[:, None] + torch.arange(128)).reshape(-1)\n"
        "    y = torch.zeros(512, 128, dtype=torch.bfloat16)\n    y[at] = x[at] @ w\n    return y\n"
        "def inputs():\n    return (torch.randn(512, 256).bfloat16(), torch.randn(256, 128).bfloat16(), "
        "torch.tensor([128, 0, 384, 256]))\n",
        "rows",
    )
    program = load_program(shared)
    reasons = why_not_asynchronous(program, bind(program, task, {}, HOPPER), HOPPER)
    assert reason in str(reasons), reasons


def test_a_transposed_tile_is_no_box() -> None:
    changed = AT_OFFSETS.replace("X[512, 256]", "X[256, 512]").replace(
        "X[at, k:k+BK]", "X[k + arange(BK), at[:, None]]"
    )
    square = changed.replace("BM = 64; BK = 64", "BM = 64").replace("BK", "BM")
    _, offsets = placed(load_program(square).kernels[0])
    assert set(offsets) == {"mine"}
