"""The hint ``team``: where programs may share out a loop, what is written then, and that it changes no value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kernellab.dsls.machine import named_chip
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import check, load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target

from .test_triton import call

STEPS = """
sketch steps {
    symbols: T, B;
    tensors: x[T, B, 64]: f32; w[64, 64]: f32; h[T, B, 64]: f32 temp; y[T, B, 64]: f32 out;
    constexpr: BM = 16; BN = 16;
    @llm_hint("parallel", "grididx")
    for b in range(0, B, BM):
        for t in range(T):
            @llm_hint("team")
            for j in range(0, 64, BN):
                acc = alloc([BM, BN], f32, llm_hint=["fastest", "accumulator", "init_zero"])
                load(h[t-1, b:b+BM, 0:64] -> before)
                load(w[0:64, j:j+BN] -> weights)
                gemm(before, weights, acc, precision="ieee")
                load(x[t, b:b+BM, j:j+BN] -> now)
                state = tanh(acc + now)
                store(state -> h[t, b:b+BM, j:j+BN])
                store(state -> y[t, b:b+BM, j:j+BN])
}
"""
#: what is put in the place of a part of STEPS, and a word of why no team may run it
KEPT = '        kept = alloc([BM, BN], f32, llm_hint=["init_zero"])\n        for t in range(T):'
AFTER = "-> y[t, b:b+BM, j:j+BN])\n            load(h[t, b:b+BM, 0:64] -> z)"
INNER = '                @llm_hint("team")\n                for k in range(2):\n                    z = j + k\n'
STORE = "store(state -> y[t, b:b+BM, j:j+BN])"
REFUSED = {
    "this step's state": ("h[t-1, b:b+BM, 0:64]", "h[t, b:b+BM, 0:64]", "may use what another writes"),
    "one place": ("y[t, b:b+BM, j:j+BN]", "y[t, b:b+BM, 0:BN]", "may write one element"),
    "after the loop": ("-> y[t, b:b+BM, j:j+BN])", AFTER, "outside of the loop"),
    "a sum": (STORE, "atomic_add(state -> y[t, b:b+BM, j:j+BN])", "would add"),
    "a carried tile": ("        for t in range(T):", KEPT, "from one iteration to the next"),
    "inside a team": ("                acc = alloc", INNER + "                acc = alloc", "holds another"),
}


def _written(sketch: str, backend: Backend = Backend.CUDA) -> Source:
    program = load_program(sketch)
    target = Target("triton", backend, named_chip("h200"))
    return lower(program, bind(program, None, {}, target), target)


def test_a_team_shares_out_the_blocks_of_a_state() -> None:
    assert not [d for d in check(STEPS).diagnostics if d.code == "SK322"]
    text = _written(STEPS).files["kernel.py"]
    assert "for j in range(tl.cast(member * BN, INDEX), 64, TEAM * BN):" in text
    assert "kl_meet(arrived + tile, turn)" in text and '"launch_cooperative_grid": True' in text


@pytest.mark.parametrize("name", REFUSED)
def test_a_loop_that_no_team_may_run_says_why_and_stays_whole(name: str) -> None:
    old, new, why = REFUSED[name]
    sketch = STEPS.replace(old, new)
    assert sketch != STEPS
    if name == "a carried tile":
        sketch = sketch.replace(
            "state = tanh(acc + now)", "kept = kept + acc\n                state = tanh(kept + now)"
        )
    said = [d for d in check(sketch).diagnostics if d.code == "SK322"]
    assert said and why in said[0].message
    if name == "one place":  # its output is not all written either, so it is not lowered
        assert not check(sketch).ok
        sketch = sketch.replace("y[T, B, 64]: f32 out", "y[T, B, 64]: f32 temp; z[T, B, 64]: f32 out").replace(
            "store(state -> y[t", "store(state -> z[t, b:b+BM, j:j+BN])\n                store(state -> y[t"
        )
    assert "TEAM" not in _written(sketch).files["kernel.py"]


def test_without_the_hint_no_word_of_it_is_written() -> None:
    assert "TEAM" not in _written(STEPS.replace('@llm_hint("team")', "# whole")).files["kernel.py"]


@pytest.mark.parametrize("name", ["arrived", "TEAM", "member", "tile", "turn"])
@pytest.mark.parametrize("of", ["a tensor", "a constexpr"])
def test_the_team_s_words_are_free_for_the_sketch(name: str, of: str, tmp_path: Path) -> None:
    sketch = re.sub(r"\b(?:h)\b" if of == "a tensor" else r"\bBN\b", name, STEPS)
    text = _written(sketch).files["kernel.py"]
    compile(text, "kernel.py", "exec")
    assert f"kl_meet({'arrived_2' if name == 'arrived' else 'arrived'} + " in text
    _computes_the_same(_written(sketch, Backend.INTERPRETER), tmp_path)


def test_no_rows_are_no_programs(tmp_path: Path) -> None:
    source = _written(STEPS, Backend.INTERPRETER)
    (result,) = call(source, tmp_path, torch.randn(3, 0, 64), torch.randn(64, 64))
    assert result.shape == (3, 0, 64)


def test_a_team_of_one_computes_the_same(tmp_path: Path) -> None:
    _computes_the_same(_written(STEPS, Backend.INTERPRETER), tmp_path)


def _computes_the_same(source: Source, folder: Path) -> None:
    x, w = torch.randn(3, 18, 64), torch.randn(64, 64) / 8
    state, want = torch.zeros(18, 64), []
    for now in x:
        state = torch.tanh(state @ w + now)
        want.append(state)
    (result,) = call(source, folder, x, w)
    torch.testing.assert_close(result, torch.stack(want))
