"""Constructs that practitioners write: designed by rules, right in the gate, and right as compiled code."""

from __future__ import annotations

import pytest

from kernellab.capture import capture
from kernellab.errors import CaptureError
from kernellab.task import load_task
from tests.designer.practice import state_of
from tests.practice.cases import GATHERS, PADS, PLACES, SCALARS, SIZES, task

KINDS = {**SIZES, **SCALARS, **PLACES, **PADS, **GATHERS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_a_construct_is_right_and_compiles(name: str) -> None:
    state, reason = state_of(KINDS[name], run=True)
    assert state == "right", reason


@pytest.mark.parametrize(
    ("reference", "inputs", "words"),
    [
        ("def reference(x):\n    y = x[0]\n    for k in range(len(x)):\n        y = y.sin() + x[k]\n    return y",
         "torch.randn(N)", "makes a plain number of the size N"),
        ("def reference(x):\n    return x * 2", "torch.randn(N // 2)", "does not follow from the arguments"),
    ],
)  # fmt: skip
def test_a_size_that_cannot_be_followed_is_told_as_what_it_is(reference: str, inputs: str, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        capture(load_task(task("N 2 50 9", reference, inputs), "sized"))
