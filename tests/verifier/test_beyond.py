"""A failure beyond a size is not one of the last tile: the name of that pattern sends its reader to a mask."""

from __future__ import annotations

import pytest

from kernellab.task import load_task

from .kit import QUICK_LOOK, Judge

TASK = load_task(
    """
import torch
from kernellab import Dim
M, N = Dim("M", 1, 4096), Dim("N", 1, 2048)
def reference(x):
    return torch.relu(x) * 2.0
def inputs(M=64, N=128):
    return torch.randn(M, N)
""",
    "twice",
)
BODY = """
import torch
def kernel(x):
    y, n = x.relu() * 2, x.shape[1]
{}
    return y
"""


@pytest.mark.parametrize(
    "line",
    [
        "y[:, 1024:] = 7", "y[2048:] = 7", "y[:, 1000:] = float('nan')", "y = y * 1.5 if n > 1024 else y",
        "assert n <= 1024",
    ],
    ids=["columns", "rows", "unwritten", "all", "raises"],
)  # fmt: skip
def test_what_is_wrong_beyond_a_size_alone_is_not_called_an_edge(judge: Judge, line: str) -> None:
    verdict = judge(BODY.format(f"    {line}"), TASK, options=QUICK_LOOK)
    assert not verdict.passed and verdict.evidence is not None
    assert verdict.evidence.signature != "edge-tile" and "edge-tile" not in verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        "if n % 64: y[:, n // 64 * 64 :] = 0.5",
        "if n > 255 and n % 64: y[:, n // 64 * 64 :] = 0.5",
        "assert n % 64 == 0",
    ],
    ids=["all sizes", "a path for large sizes", "raises"],
)
def test_what_is_wrong_in_the_last_tile_is_called_one_at_small_and_large_sizes(judge: Judge, line: str) -> None:
    verdict = judge(BODY.format(f"    {line}"), TASK, options=QUICK_LOOK)
    assert not verdict.passed and verdict.evidence is not None
    assert verdict.evidence.signature == "edge-tile"
