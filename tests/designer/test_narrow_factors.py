"""Factors that are casts of narrow floats are multiplied as these, and their scales are factors of the sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.syntax.parse import parse
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task
from tests.lowering.test_triton import call

H100 = Target("triton", Backend.CUDA, find_chip("NVIDIA H100"))
INTERPRETED = Target("triton", Backend.INTERPRETER, H100.chip)
TASK = """import torch
def reference(a, b, r, c):
    return {result}
def inputs():
    made = lambda *shape: (torch.randn(*shape) * 0.5)
    return made(70, 200).to(torch.{left}), made(90, 200).to(torch.{right}), torch.rand(70, 1) + 0.5, torch.rand(90, 1)
"""
E4, E5 = "float8_e4m3fn", "float8_e5m2"
SCALED = "((a.float() * r) @ (b.float() * c).t()).to(torch.bfloat16)"
DIVIDED = "(a.float() / r) @ (2.0 * b.float()).t()"


def sketch_of(text: str, target: Target = H100) -> str:
    return RulesDesigner().designs(DesignBrief(load_task(text), target))[0].sketch


@pytest.mark.parametrize(
    ("result", "left", "right"),
    [
        (SCALED, E4, E4), (SCALED, E5, E4), (DIVIDED, E4, E5), (SCALED, "bfloat16", "bfloat16"),
        ("a.to(torch.bfloat16) @ b.to(torch.bfloat16).t()", E4, E4),
        ("a.float() @ b.float().t()", "float16", "float16"),
    ],
)  # fmt: skip
def test_narrow_numbers_are_multiplied_as_they_are(result: str, left: str, right: str, tmp_path: Path) -> None:
    text = TASK.format(result=result, left=left, right=right)
    task, sketch = load_task(text), sketch_of(text)
    assert sketch.count("sketch ") == 1 and "cast(a_tile, f32)" not in sketch and "cast(b_turned, f32)" not in sketch
    assert ("cast(a_tile, f16)" in sketch) == (result is DIVIDED), "products of f8 for a result of f32 are of f16"
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason
    program = load_program(sketch_of(text, INTERPRETED))
    args = task.module().sample(seed=3)
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    exact = result.replace("float()", "double()").replace("bfloat16", "float64")
    want = eval(exact, {"torch": torch, **dict(zip("abrc", args, strict=True))})
    assert float((got.double() - want).norm() / want.norm()) < (4e-3 if "bfloat16" in result else 1e-6)


@pytest.mark.parametrize(
    ("result", "left", "right"),
    [
        ("(a.float() * a.float()[:1]) @ b.float().t()", E4, E4),
        ("a.float() @ b.float().t()", "float16", "bfloat16"),
        ("a.float() @ b.float().t()", E4, "bfloat16"),
        ("(a.float() + r) @ b.float().t()", E4, E4),
    ],
)
def test_what_varies_along_the_sum_or_has_other_dtypes_stays_in_float32(result: str, left: str, right: str) -> None:
    text = TASK.format(result=result, left=left, right=right)
    sketch = sketch_of(text)
    assert "f32 temp" in sketch or "bf16x6" in sketch or "tf32x3" in sketch
    judged = gate(sketch, load_task(text), chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason


def test_a_chain_of_f8_products_is_no_longer_than_a_step() -> None:
    """Tensor cores add up f8 products with 14 bits: each step's sum is added to the accumulator in f32."""
    sketch = sketch_of(TASK.format(result=SCALED, left=E4, right=E4))
    assert "step = dot(a_tile, " in sketch and "acc = acc + step" in sketch
    assert "gemm(" in sketch_of(TASK.format(result=SCALED, left="bfloat16", right="bfloat16"))


BLOCKS = """import torch
def reference(a, b, r, c):
    x = (a.float().reshape(70, 2, 64) * r[:, :, None]).reshape(70, 128)
    w = b.float() * c.repeat_interleave(64, 0).repeat_interleave(64, 1)
    return (x @ w.t()).to(torch.{result})
def inputs():
    made = lambda *shape: (torch.randn(*shape) * 0.5).to(torch.float8_e4m3fn)
    return made(70, 128), made(192, 128), torch.rand(70, 2) + 0.5, torch.rand(3, 2) + 0.5
"""


@pytest.mark.parametrize(("result", "error"), [("bfloat16", 4e-3), ("float32", 1e-6)])
def test_scales_of_blocks_multiply_each_steps_sum(result: str, error: float, tmp_path: Path) -> None:
    text = BLOCKS.format(result=result)
    task, sketch = load_task(text), sketch_of(text)
    assert sketch.count("sketch ") == 1 and "acc = acc + step * " in sketch
    assert ("cast(a_tile, f16)" in sketch) == (result == "float32"), "a step of f8 products has 14 bits"
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason
    program = load_program(sketch_of(text, INTERPRETED))
    a, b, r, c = args = task.module().sample(seed=3)
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    x = a.double() * r.double().repeat_interleave(64, 1)
    want = x @ (b.double() * c.double().repeat_interleave(64, 0).repeat_interleave(64, 1)).t()
    assert float((got.double() - want).norm() / want.norm()) < error


PACKED = """import torch
def reference(x, packed, scales):
    w = torch.stack((packed & 15, packed >> 4), -1).reshape(40, 4, {width}).to(torch.bfloat16) - 8
    return torch.nn.functional.linear(x, (w * scales[..., None]).reshape(40, -1))
def inputs():
    x = torch.randn(5, 4 * {width}).to(torch.bfloat16)
    return x, torch.randint(0, 256, (40, 2 * {width}), dtype=torch.uint8), torch.rand(40, 4).to(torch.bfloat16)
"""


@pytest.mark.parametrize("width", [128, 96])
def test_packed_weights_are_multiplied_as_narrow_numbers(width: int, tmp_path: Path) -> None:
    """Tensor cores take them; a short group of both halves is a step, whose other factor is read whole."""
    task, sketch = load_task(PACKED.format(width=width)), sketch_of(PACKED.format(width=width))
    lines = [line.strip() for line in sketch.splitlines()]
    product = next(line for line in lines if "gemm(" in line)
    # the factor that is chosen may have a name
    chosen = next((line for line in lines if line.startswith("product = ")), "")
    casts = (chosen + product).count(", bf16)")
    assert casts >= (2 if width == 128 else 3), "a factor that is chosen is cast back"
    assert ("gemm(reshape(x_tile, [BM, 64 * 2])" in sketch) == (width == 128)
    program = load_program(sketch_of(PACKED.format(width=width), INTERPRETED))
    args = task.module().sample(seed=3)
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    (want,) = (each.double() for each in task.module().reference(args))
    assert float((got.double() - want).norm() / want.norm()) < 8e-3


LINEAR = """import torch
def reference(x, w):
    return torch.nn.functional.linear(x, w)
def inputs():
    return torch.randn({rows}, {summed}).to(torch.bfloat16), torch.randn({cols}, {summed}).to(torch.bfloat16)
"""


HALVES_OF_ROWS = """import torch
def reference(x, packed, scales):
    w = torch.cat((packed & 15, packed >> 4), {dim})
    return x @ (((w.to(torch.bfloat16) - 8).reshape({groups}) * scales).reshape({shape})){turned}
def inputs():
    packed = torch.randint(0, 256, ({packed}), dtype=torch.uint8)
    return (torch.randn(16, 2048).to(torch.bfloat16), packed, torch.rand({scales}).to(torch.bfloat16))
"""
_ALONG = {
    "dim": 1, "groups": "4224, 16, 128", "shape": "4224, 2048", "turned": ".t()", "packed": "4224, 1024",
    "scales": "4224, 16, 1",
}  # fmt: skip
_DOWN = {
    "dim": 0, "groups": "16, 128, 4224", "shape": "2048, 4224", "turned": "", "packed": "1024, 4224",
    "scales": "16, 1, 4224",
}  # fmt: skip


@pytest.mark.parametrize("form", [_ALONG, _DOWN], ids=["along", "down"])
def test_halves_of_a_byte_that_lie_far_apart_are_loaded_once(form: dict[str, Any]) -> None:
    text = HALVES_OF_ROWS.format(**form)
    task, sketch = load_task(text), sketch_of(text)
    lines = [line.strip() for line in sketch.splitlines()]
    ahead, load, unrolled = (
        next(n for n, line in enumerate(lines) if w in line) for w in ("pipe", "load(pac", "unroll")
    )
    assert ahead < load < unrolled, "the loop that loads ahead has all steps of the sum"
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason


@pytest.mark.parametrize(("rows", "cols", "summed"), [(128, 4096, 14336), (16, 8192, 8192)])
def test_few_rows_take_long_steps(rows: int, cols: int, summed: int) -> None:
    """One wave of tiles waits for the weights' bytes: long steps have more of them under way."""
    target = Target("triton", Backend.CUDA, find_chip("h200"))
    sketch = sketch_of(LINEAR.format(rows=rows, cols=cols, summed=summed), target)
    assert "BK = 128 in" in sketch and "num_stages = 5 in" in sketch
    assert ("warp_roles" in sketch) == (rows >= 64), "a group of warps multiplies at least 64 rows"


@pytest.mark.parametrize(
    ("rows", "cols", "summed", "parts", "tile"),
    [
        (512, 768, 3072, 1, (64, 64)),  # 96 tiles: two parts would take two waves
        (512, 1024, 32768, 4, None),  # long parts of larger tiles
        (256, 4096, 4096, 1, (64, 128)),  # 128 tiles
        (256, 6144, 4096, 1, (128, 128)),  # 192 tiles of 64 x 128 would be two waves
    ],
)
def test_tiles_and_parts_of_the_sum_fill_one_wave(
    rows: int, cols: int, summed: int, parts: int, tile: tuple[int, int] | None
) -> None:
    target = Target("triton", Backend.CUDA, find_chip("h200"))
    sketch = sketch_of(LINEAR.format(rows=rows, cols=cols, summed=summed), target)
    launches = len(parse(sketch).sketches)
    assert launches == (1 if parts == 1 else 2), "the parts are one launch, and another adds them up"
    assert parts == 1 or f"[{rows}, {parts}, {summed // parts}]" in sketch
    assert tile is None or (f"BM = {tile[0]} in" in sketch and f"BN = {tile[1]} in" in sketch)


CALLED = """import torch
def reference(a, b, r, c, d):
    return torch._scaled_mm(a, b.t(), scale_a=r, scale_b=c{bias}, out_dtype=torch.bfloat16)
def inputs():
    made = lambda *shape: (torch.randn(*shape) * 0.5).to(torch.float8_e4m3fn)
    return made(80, 64), made(96, 64), {scales}, torch.randn(96).to(torch.bfloat16)
"""


@pytest.mark.parametrize(
    ("scales", "bias"),
    [
        ("torch.rand(()) + 0.5, torch.rand(()) + 0.5", ", bias=d"),
        ("torch.rand(80, 1) + 0.5, torch.rand(1, 96) + 0.5", ""),
    ],
)
def test_a_scaled_product_of_the_framework_is_one_of_eight_bits(scales: str, bias: str, tmp_path: Path) -> None:
    text = CALLED.format(scales=scales, bias=bias)
    task, sketch = load_task(text), sketch_of(text)
    assert sketch.count("sketch ") == 1 and "cast(a_tile" not in sketch
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason
    program = load_program(sketch_of(text, INTERPRETED))
    args = task.module().sample(seed=3)
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    (want,) = (each.double() for each in task.module().reference(args))
    assert float((got.double() - want).norm() / want.norm()) < 4e-3


CACHE = """import torch
def reference(q, k, v, a, b):
    {body}
def inputs():
    made = lambda: torch.randint(-127, 128, {shape}, dtype=torch.int8)
    scale = lambda: (torch.rand({shape}[:-1]) * 0.02).to(torch.{dtype})
    return torch.randn(2, 8, {queries}).to(torch.{dtype}), made(), made(), scale(), scale()
"""
GROUPED = """keys, values = k.to(torch.bfloat16) * a[..., None], v.to(torch.bfloat16) * b[..., None]
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)"""
SHARES = """s = (q @ k.to(q.dtype).transpose(-1, -2)) * a[:, None] * 0.1
    return (torch.softmax(s.float(), -1).to(q.dtype) * b[:, None]) @ v.to(q.dtype)"""


def _online(task: Task) -> str:
    return next(r.sketch for r in RulesDesigner().designs(DesignBrief(task, H100)) if "acc * keep" in r.sketch)


@pytest.mark.parametrize(
    ("body", "shape", "dtype", "queries"),
    [(GROUPED, "(2, 2, 540, 64)", "bfloat16", "1, 64"), (SHARES, "(2, 540, 64)", "float16", "64")],
)
def test_a_cache_of_bytes_is_multiplied_as_narrow_numbers(
    body: str, shape: str, dtype: str, queries: str, tmp_path: Path
) -> None:
    """Scales of keys go to the scores, and of values to the weights or the values, in one launch with the softmax."""
    text = CACHE.format(body=body, shape=shape, dtype=dtype, queries=queries)
    task, short = load_task(text), {"bfloat16": "bf16", "float16": "f16"}[dtype]
    sketch = _online(task)
    products = [line for line in sketch.splitlines() if "gemm(" in line or "dot(" in line]
    assert len(products) == 2 and "gemm(cast(weights" in products[1] and products[1].count(f", {short})") >= 2
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason
    program = load_program(sketch)
    args = task.module().sample(seed=3)
    (got,) = call(lower(program, bind(program, task, {}, INTERPRETED), INTERPRETED), tmp_path, *args)
    (want,) = (each.double() for each in task.module().reference(args))
    assert float((got.double() - want).norm() / want.norm()) < 1e-2


PAGED = """import torch
def reference(q, k, v, pages, n):
    keys, values = (t[pages].reshape(2, -1, 2, 64).transpose(1, 2) for t in (k, v))
    live = torch.arange(keys.shape[2], device=q.device)[None, :] < n[:, None]
    mask = live[:, None, None, :]
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
def inputs():
    made = lambda *shape: torch.randn(*shape).to(torch.bfloat16)
    pages = torch.randperm(70).reshape(2, 35)
    return made(2, 8, 1, 64), made(70, 16, 2, 64), made(70, 16, 2, 64), pages, torch.tensor([90, 500])
"""


def test_values_of_pages_stay_narrow_past_the_last_key() -> None:
    """A product of float32 there, of what an index picks and a mask chooses, took 12 times as long."""
    sketch = _online(load_task(PAGED))
    product = next(line for line in sketch.splitlines() if "gemm(cast(weights" in line)
    assert product.count(", bf16)") == 2 and "where(" in product
    judged = gate(sketch, load_task(PAGED), chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason


def test_steps_of_packed_pairs_lie_next_to_each_other() -> None:
    """The longest axis of a sum may be its groups, each element of which is in another place."""
    text = PACKED.format(width=64).replace("(40, 4, 64)", "(40, 128, 64)").replace("4 * 64", "128 * 64")
    text = text.replace("(40, 2 * 64)", "(40, 64 * 64)").replace("torch.rand(40, 4)", "torch.rand(40, 128)")
    assert ", 0:32] -> packed_tile)" in sketch_of(text)


def test_keys_of_one_step_have_no_warp_roles() -> None:
    text = LINEAR.replace("linear(x, w)", "scaled_dot_product_attention(x, w, w)")
    text = text.replace("({rows}, {summed})", "(4, 512, 64)").replace("({cols}, {summed})", "(4, {cols}, 64)")
    assert "warp_roles" not in sketch_of(text.format(cols=77)) and "warp_roles" in sketch_of(text.format(cols=770))


FLOAT8_CACHE = """import torch
def reference(q, k, v, a):
    keys, values = k.to(torch.bfloat16) * a, v.to(torch.bfloat16) * a
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
def inputs():
    made = lambda: torch.randn(2, 2, 540, 64).to(torch.float8_e4m3fn)
    return torch.randn(2, 8, 1, 64).to(torch.bfloat16), made(), made(), torch.tensor(0.5).to(torch.bfloat16)
"""


def test_a_cache_of_float8_is_multiplied_as_bfloat16() -> None:
    """Products of float32 by bfloat16 have no tensor core: the weights are rounded as of any narrow values."""
    task = load_task(FLOAT8_CACHE)
    sketch = _online(task)
    assert "gemm(cast(weights" in sketch
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason


NORMED = """import torch
import torch.nn.functional as F
def reference(q, k, v, a, b):
    q, k = F.rms_norm(q, (64,), a, 1e-6), F.rms_norm(k, (64,), b, 1e-6)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
def inputs():
    made = lambda *shape: torch.randn(*shape).to(torch.bfloat16)
    return made(1, 2, {rows}, 64), made(1, 2, 600, 64), made(1, 2, 600, 64), made(64), made(64)
"""


@pytest.mark.parametrize(("rows", "stored"), [(600, True), (4, False)])
def test_keys_that_are_computed_are_made_once_for_many_queries(rows: int, stored: bool) -> None:
    task = load_task(NORMED.format(rows=rows))
    sketch = _online(task)
    assert ("warp_roles" in sketch) == stored
    judged = gate(sketch, task, chip=H100.chip)
    assert judged.state is GateState.RIGHT, judged.reason


BYTES = """import torch
def reference(x, w, s):
    return torch.nn.functional.linear(x, w.to(torch.bfloat16)) * s
def inputs():
    w = torch.randint(-127, 128, (512, 1024), dtype=torch.int8)
    return torch.randn({rows}, 1024).to(torch.bfloat16), w, torch.rand(512).to(torch.bfloat16)
"""


@pytest.mark.parametrize(("rows", "launches"), [(512, 2), (64, 1)])
def test_many_rows_meet_weights_that_are_unpacked_once(rows: int, launches: int) -> None:
    """A product that unpacks as it multiplies waits for each step's registers; 512 rows pay for a launch of theirs."""
    sketch = sketch_of(BYTES.format(rows=rows))
    assert sketch.count("sketch ") == launches
    # in the order of the bytes: stored as the product turns them, each was read apart from the next (0.60 ms for 0.03)
    assert sketch.count("[512, 1024]: bf16 temp") == launches - 1


GRAM = """import torch
def reference(x):
    return x.t() @ x
def inputs():
    return torch.randn(65536, 512, dtype=torch.bfloat16)
"""


def test_a_long_sum_of_a_small_product_has_parts_of_warp_roles() -> None:
    target = Target("triton", Backend.CUDA, find_chip("h200"))
    sketch = sketch_of(GRAM, target)
    assert "x[8, 8192, 512]" in sketch and "warp_roles" in sketch
    program = load_program(sketch)
    source = lower(program, bind(program, load_task(GRAM), {}, target), target).files["kernel.py"]
    assert "_product: Gluon" in source


@pytest.mark.parametrize(("result", "step"), [("bfloat16", 256), ("float16", 128)])
def test_sums_of_f8_in_coarse_results_are_added_up_half_as_often(result: str, step: int) -> None:
    text = f"""import torch
def reference(a, b, r, s):
    return ((a.float() * r) @ (b.float() * s).t()).to(torch.{result})
def inputs():
    made = lambda *shape: torch.randn(*shape).to(torch.float8_e4m3fn)
    return made(1024, 4096), made(2048, 4096), torch.rand(1024, 1), torch.rand(2048, 1)
"""
    sketch = sketch_of(text, Target("triton", Backend.CUDA, find_chip("h200")))
    assert f"BK = {step} in" in sketch and '"warp_roles"' in sketch
