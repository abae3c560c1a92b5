"""Random sketches: the lowered Triton computes what the interpreter of sketches does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from tests.breadth import everything

from .generate import Generated, matmuls, pointwise, rows
from .test_triton import TARGET, call

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("strategy", [pointwise(), rows(), matmuls()], ids=["pointwise", "rows", "matmul"])
@settings(max_examples=15 if everything() else 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_sketch_means_the_same_when_lowered(
    strategy: st.SearchStrategy[Generated], folder: Path, data: st.DataObject
) -> None:
    case = data.draw(strategy)
    program = load_program(case.text)
    binding = bind(program, None, None, TARGET)
    got = call(lower(program, binding, TARGET), folder, *(case.inputs[t.name] for t in program.inputs))
    want = run(program, case.inputs, constexpr=binding.constexpr)
    for output, value in zip(binding.outputs, got, strict=True):
        expected = want[output.tensor]
        assert value.dtype == expected.dtype
        torch.testing.assert_close(
            value, expected, rtol=case.tolerance, atol=case.tolerance, equal_nan=True, msg=lambda m: f"{m}\n{case.text}"
        )
