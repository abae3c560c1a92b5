"""Tiles of products of few rows, which wait for the other factor's bytes."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.sketch.check import load_program
from kernellab.task import load_task
from tests.designer.golden import targets

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
