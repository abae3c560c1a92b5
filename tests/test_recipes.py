"""Two of CONTRIBUTING's recipes, followed to the letter: what they say is enough, is enough."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernellab import chips
from kernellab.content import content
from kernellab.session import design
from kernellab.sketch import ops
from kernellab.sketch.bind import bind
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.target_detect import detect_target

TASK = """
import torch

def reference(x, y):
    return torch.hypot(x, y) + 1.0

def inputs():
    return torch.randn(9, 37), torch.randn(9, 37)
"""

SKETCH = """sketch lengths {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32; Z[M, N]: f32 out;
    constexpr: BLOCK = 16;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            load(Y[m, n:n+BLOCK] -> y)
            store(length(x, y) + 1.0 -> Z[m, n:n+BLOCK])
}
"""


@pytest.fixture
def length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry that the recipe asks for, and nothing else."""
    spelling = "kl{0}sqrt({{0}} * {{0}} + {{1}} * {{1}})"
    entry = ops._pointwise(
        "length", 2, "torch.hypot(a, b)", spelling.format("::"), spelling.format("_"), flops=9, result="float"
    )
    monkeypatch.setitem(ops.OPS, "length", entry)


@pytest.mark.usefixtures("length")
@pytest.mark.parametrize("dsl", ["cpp", "triton"])
def test_one_entry_of_the_table_is_a_new_operation_in_every_dsl(dsl: str, tmp_path: Path) -> None:
    counted = cost(load_program(SKETCH), {"M": 9, "N": 32}, {"BLOCK": 16})
    assert counted.flops == {"f32": 9 * 32 * (9 + 1)}
    session = design(TASK, dsl=dsl, name="lengths", sketch=SKETCH, options={"level": "T1"}, workspace=tmp_path).wait(
        120
    )
    assert session.turns[0].gate is not None
    assert session.turns[0].gate.state.value == "right"
    assert session.verdict.passed


@pytest.fixture
def new_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A copy of the knowledge with one more file in it."""
    shutil.copytree(content("knowledge"), tmp_path / "knowledge")
    text = (tmp_path / "knowledge/hardware/x86-avx512.md").read_text()
    text = text.replace("name: x86-64 server with AVX-512", "name: Tiny").replace("cores: 2", "cores: 1")
    (tmp_path / "knowledge/hardware/tiny.md").write_text(text)
    monkeypatch.setattr(chips, "content", lambda name: tmp_path / name)
    chips.known_chips.cache_clear()
    yield "tiny"
    monkeypatch.undo()
    chips.known_chips.cache_clear()


def test_one_file_is_a_new_chip_to_design_for(new_chip: str) -> None:
    target = detect_target("cpp", new_chip)
    assert (target.chip.name, target.chip.cores) == ("Tiny", 1)
    program = load_program(SKETCH.replace("length(x, y)", "x * y"))
    assert bind(program, None, None, target)
    assert cost(program, {"M": 9, "N": 37}, {"BLOCK": 16}, target.chip).time_ms is not None
