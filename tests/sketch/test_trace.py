"""A trace tells which elements each iteration touches and what moves at each memory level."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import NotRunnable
from kernellab.sketch.check import load_program
from kernellab.sketch.run.tracer import trace

TWICE = """
sketch twice {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: T = 4;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        total = alloc([T], f32, llm_hint=["fastest", "accumulator", "init_zero"])
        for n in range(0, N, T):
            load(X[m, n:n+T] -> x)
            total = total + x
        s = reduce_sum(total, axis=0)
        for n in range(0, N, T):
            load(X[m, n:n+T] -> x)
            store(x * s -> Y[m, n:n+T])
}
"""


def test_every_access_names_its_line_loops_and_elements() -> None:
    x = torch.randn(2, 6)
    seen = trace(load_program(TWICE), {"X": x})
    first = seen.touches[0]
    assert (first.tensor, first.is_write, dict(first.loops)) == ("X", False, {"m": 0, "n": 0})
    assert first.elements == (0, 1, 2, 3) and first.outside == 0
    assert "load(X" in TWICE.splitlines()[first.line - 1]
    second = seen.touches[1]
    assert second.elements == (4, 5) and second.outside == 2
    assert torch.allclose(seen.outputs["Y"], x * x.sum(1, keepdim=True), atol=1e-5)


def test_counts_show_what_is_read_twice_and_written_once() -> None:
    seen = trace(load_program(TWICE), {"X": torch.randn(3, 6)})
    assert seen.count("X", is_write=False) == [2] * 18
    assert seen.count("Y", is_write=True) == [1] * 18
    assert seen.shapes["X"] == (3, 6)


def test_bytes_are_counted_by_level() -> None:
    seen = trace(load_program(TWICE), {"X": torch.randn(2, 8)})
    assert seen.bytes_by_level["slow"] == 4 * (2 * 16 + 16)
    # the accumulator: cleared, then read and written in each of two tiles, then read by the sum
    assert seen.bytes_by_level["fastest"] == 2 * 4 * 4 * (2 * 2 + 1)
    assert seen.bytes_by_level["fast"] > 0 and seen.bytes_by_level["medium"] == 0


def test_a_long_run_is_refused() -> None:
    # a row: the accumulator, then two statements a tile, the sum, and two a tile
    steps, x = 2 * (1 + 2 * 2 + 1 + 2 * 2), torch.zeros(2, 6)
    trace(load_program(TWICE), {"X": x}, most_steps=steps)
    with pytest.raises(NotRunnable, match="too long"):
        trace(load_program(TWICE), {"X": x}, most_steps=steps - 1)
