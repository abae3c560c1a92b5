"""A loop that every iteration of an inner parallel loop runs again may have that loop's variable: all DSLs agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.sketch.check import check, load_program
from kernellab.sketch.run import run
from kernellab.target import Target

from .test_bits import CPP, CUDA, TRITON, lowered

ROWS = """sketch rows {
    tensors: X[6, 40]: f32; Y[6, 40]: f32 out;
    constexpr: BLOCK = 16;

    @llm_hint("parallel", "grididx")
    for i in range(6):
        total = cast(0.0, f32)
        for j in range(0, 40, BLOCK):
            load(X[i, j:j+BLOCK] -> part)
            total = total + reduce_sum(part, axis=0)
        @llm_hint("parallel", "grididx")
        for j in range(0, 40, BLOCK):
            load(X[i, j:j+BLOCK] -> x)
            store(x / total -> Y[i, j:j+BLOCK])
}
"""


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


@pytest.mark.parametrize("target", [CPP, TRITON, CUDA], ids=lambda t: t.dsl)
def test_a_loop_before_the_grid_may_have_its_variable(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(6, 40, generator=torch.Generator().manual_seed(0)) + 0.5
    want = x / x.sum(1, keepdim=True)
    assert check(ROWS).diagnostics == ()
    torch.testing.assert_close(run(load_program(ROWS), {"X": x})["Y"], want)
    torch.testing.assert_close(lowered(ROWS, target, tmp_path, monkeypatch, x), want)
