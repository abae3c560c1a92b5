"""Tiles of products of few rows, which wait for the other factor's bytes."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import named_chip
from kernellab.sketch.check import load_program
from kernellab.target import Backend, Target
from kernellab.task import load_task
from tests.designer.golden import targets
from tests.lowering.chips import family

TEXT = """
import torch
import torch.nn.functional as F


def reference(x, w, s):
    return F.linear(x, {weight})


def inputs():
    w = torch.randint(-127, 128, ({n}, {k}), dtype=torch.int8)
    return torch.randn({m}, {k}).to(torch.bfloat16), w{cast}, torch.rand({n}).to(torch.bfloat16)
"""


@pytest.mark.parametrize(
    ("rows", "columns", "summed", "packed", "tile"),
    [
        (16, 4096, 4096, True, (16, 32, 256, 4)),
        (16, 28672, 8192, True, (16, 64, 128, 4)),
        (16, 4096, 4224, True, (16, 32, 128, 5)),
        (16, 11008, 4096, False, (16, 32, 128, 3)),
        (16, 8192, 8192, False, (16, 32, 128, 5)),
        (32, 11008, 4096, True, (32, 64, 256, 3)),
        (48, 4096, 4096, True, (32, 64, 256, 3)),
        (64, 4096, 4096, False, (32, 32, 128, 5)),
        (11008, 16, 4096, False, (32, 16, 128, 3)),
    ],
)  # fmt: skip
def test_tiles_are_narrow_enough_for_each_sm_to_have_some(
    rows: int, columns: int, summed: int, packed: bool, tile: tuple[int, int, int, int]
) -> None:
    weight, cast = ("w.to(x.dtype) * s[:, None]", "") if packed else ("w", ".to(torch.bfloat16)")
    text = TEXT.format(m=rows, n=columns, k=summed, weight=weight, cast=cast)
    brief = DesignBrief(load_task(text, "linear"), targets()["triton"])
    program = load_program(next(iter(RulesDesigner().designs(brief))).sketch)
    found = {constexpr.name: constexpr.value for constexpr in program.constexprs}
    assert tuple(found[name] for name in ("BM", "BN", "BK", "num_stages")) == tile


@pytest.mark.parametrize(("chip", "stages"), [("a100", 3), ("rtx4090", 2)])
def test_shared_memory_holds_what_is_loaded_ahead_and_a_factor_that_is_split_in_registers(
    chip: str, stages: int
) -> None:
    """Triton 3.6 asked for 172,032 bytes of an A100's 166,912 and for 131,072 of an RTX 4090's 101,376."""
    target = Target("triton", Backend.CUDA, named_chip(chip))
    sketch = RulesDesigner().designs(DesignBrief(family("attention with ReLU, f32"), target))[0].sketch
    finish = sketch[sketch.index("sketch family_finish") :]
    assert "BM2 = 256 in" in finish and "BN2 = 64 in" in finish and "BK = 32 in" in finish
    assert f'"pipeline", {stages})' in finish
    assert 4 * 32 * (stages * (256 + 64) + 64) <= target.chip.shared_bytes
