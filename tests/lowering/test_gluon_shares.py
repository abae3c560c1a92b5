"""Groups of warps that share a tile's rows: a group runs the sketch for its rows as if they were a tile.

So what is shared computes the same in tiles of half as many rows, by the interpreter; what does not is refused."""

from __future__ import annotations

import pytest
import torch

from kernellab.lowering import lower
from kernellab.lowering.triton.source import why_not_asynchronous
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task

HOPPER = Target("triton", Backend.CUDA, find_chip("NVIDIA H100"))
ROWS = """
sketch rows {
    tensors: x[512, 128]: bf16; w[128, 64]: bf16; s[512]: f32; y[512, 64]: bf16 out;
    constexpr: BM = 128 in {64, 128, 256}; BK = 64;
    @llm_hint("parallel", "grididx", "persistent")
    for m in range(0, 512, BM):
        acc = alloc([BM, 64], f32, llm_hint=["accumulator", "init_zero"])
        BEFORE
        @llm_hint("pipeline", 3, "copy_engine", "warp_roles", 2)
        for k in range(0, 128, BK):
            load(x[m:m+BM, k:k+BK] -> x_tile)
            load(w[k:k+BK, 0:64] -> w_tile)
            gemm(x_tile, w_tile, acc)
            INSIDE
        AFTER
        store(cast(acc, bf16) -> y[m:m+BM, 0:64])
}
"""
MOVES = {
    "rows": "load(s[m:m+BM] -> c); acc = acc + c[:, None]",
    "later rows": "load(s[m+3:m+3+BM] -> c); acc = acc + c[:, None]",
    "every second": "load(s[2*m:2*m+2*BM:2] -> c); acc = acc + c[:, None]",
    "the same for all": "load(s[0:64] -> c); acc = acc + c",
    "number": "acc = where((m + arange(BM) < 100)[:, None], acc, 0.0)",
    "number by steps": "r = arange(BM); r2 = r + 1; acc = where((m + r2 < 100)[:, None], acc, 0.0)",
    "two sides": "r = arange(BM); acc = where((r < 100 - m)[:, None], acc, 0.0)",
    "parity": "acc = where(((m + arange(BM)) % 2 == 0)[:, None], acc, 0.0)",
    "multiple": "acc = where((3 * arange(BM) + 3 * m < 100)[:, None], acc, 0.0)",
    "gather": "gather(s[(m + arange(BM)) // 2] -> c); acc = acc + c[:, None]",
}
DEPENDS = {
    "point": "load(s[m // BM] -> c); acc = acc + c",
    "first row": "load(s[m] -> c); acc = acc + c",
    "as many columns": "load(s[m:m+64] -> c); acc = acc + c",
    "rows from 0": "load(s[0:BM] -> c); acc = acc + c[:, None]",
    "twice as far": "load(s[2*m:2*m+BM] -> c); acc = acc + c[:, None]",
    "half as far": "load(s[m:m+2*BM:2] -> c); acc = acc + c[:, None]",
    "lane": "acc = where((arange(BM) < 100)[:, None], acc, 0.0)",
    "lane by steps": "r = arange(BM); acc = where((r + 1 < 100)[:, None], acc, 0.0)",
    "lane by a sum": "r = full([BM], 0, i64); r = r + arange(BM); acc = where((r < 100)[:, None], acc, 0.0)",
    "parity": "acc = where((arange(BM) % 100 == 0)[:, None], acc, 0.0)",
    "gather": "gather(s[arange(BM)] -> c); acc = acc + c[:, None]",
    "gather half": "gather(s[m // 2 + arange(BM)] -> c); acc = acc + c[:, None]",
    "number of a tile": "acc = acc + cast(m // BM, f32)",
    "rows as a number": "acc = acc + cast(BM, f32)",
}


def sketch(before: str = "", inside: str = "", after: str = "") -> str:
    lines = []
    for line in ROWS.splitlines():
        words = {"BEFORE": before, "INSIDE": inside, "AFTER": after}.get(line.strip())
        indent = line[: len(line) - len(line.lstrip())]
        lines += [line] if words is None else [f"{indent}{part}" for part in words.split("; ") if part]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(
        "import torch\ndef reference(x, w, s):\n    return x @ w\ndef inputs():\n    return "
        "torch.randn(512, 128).bfloat16(), torch.randn(128, 64).bfloat16(), torch.randn(512)\n",
        "rows",
    )


def reason(text: str, task: Task) -> str:
    program = load_program(text)
    return why_not_asynchronous(program, bind(program, task, {}, HOPPER), HOPPER)["rows"]


def halves_agree(text: str) -> bool:
    torch.manual_seed(0)
    inputs = {"x": torch.randn(512, 128).bfloat16(), "w": torch.randn(128, 64).bfloat16(), "s": torch.randn(512)}
    program = load_program(text)
    whole, half = (run(program, inputs, constexpr={"BM": rows})["y"] for rows in (128, 64))
    return torch.equal(whole, half)


@pytest.mark.parametrize("words", MOVES.values(), ids=MOVES)
def test_what_moves_along_with_the_rows_is_shared(words: str, task: Task) -> None:
    text = sketch(after=words)
    assert halves_agree(text)
    assert reason(text, task) == ""


@pytest.mark.parametrize("words", DEPENDS.values(), ids=DEPENDS)
def test_what_depends_on_a_tile_s_rows_by_more_than_a_place_is_not_shared(words: str, task: Task) -> None:
    text = sketch(after=words)
    assert not halves_agree(text)
    assert "groups share" in reason(text, task)
    # one group, or groups with whole tiles, have the tile's rows
    assert reason(text.replace('"warp_roles", 2', '"warp_roles", 1'), task) == ""


def test_a_number_that_a_step_leaves_to_the_next_one_is_not_shared(task: Task) -> None:
    text = sketch(
        before="r = full([BM], 0, i64)", inside="r = r + arange(BM)", after="acc = acc + cast(r < 100, f32)[:, None]"
    )
    assert not halves_agree(text)
    assert "groups share" in reason(text, task)


def test_a_condition_is_tested_for_the_whole_tile(task: Task) -> None:
    text = sketch(inside="if k > m - 100:;     acc = acc + 1.0")
    assert not halves_agree(text)
    assert reason(text, task) == ""
    program = load_program(text)
    source = lower(program, bind(program, task, {}, HOPPER), HOPPER).files["kernel.py"]
    body = source.split("def rows_multiplies(")[1].split("@gluon.jit")[0]
    assert "if k > m // (BM * 2) * (BM * 2) - 100:" in body


@pytest.mark.parametrize(
    ("inside", "word"),
    [("if k > m:;     gemm(x_tile, w_tile, acc)", "a product under a condition"),
     ("turned = transpose(acc, perm=[1, 0]); acc = acc + reduce_sum(turned, axis=0)[:, None]", "transpose")],
)  # fmt: skip
def test_products_and_transposes_that_no_buffer_gives_stay_in_triton(inside: str, word: str, task: Task) -> None:
    """They were written as Triton's own, of tiles that no statement had loaded."""
    text = sketch(inside=inside).replace('"warp_roles", 2', '"warp_roles", 1')
    assert word in reason(text, task)
