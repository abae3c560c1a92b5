"""A tensor may be seen in another shape of as many elements by each sketch of a file."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import SketchError
from kernellab.sketch.check import load_program
from kernellab.sketch.run import run

TEXT = """
sketch doubled {
    tensors: X[4, 6]: f32; t[4, 6]: f32 temp;
    @llm_hint("parallel", "grididx")
    for i in range(4):
        load(X[i, 0:6] -> x)
        store(x * 2 -> t[i, 0:6])
}

sketch finished {
    tensors: t[3, 8]: f32 temp; X[24]: f32; Y[24]: f32 out;
    constexpr: B = 8;
    @llm_hint("parallel", "grididx")
    for i in range(3):
        load(t[i, 0:B] -> x)
        load(X[8*i:8*i+B] -> y)
        store(x + y -> Y[8*i:8*i+B])
}
"""


def test_each_sketch_has_its_own_view() -> None:
    x = torch.randn(4, 6)
    got = run(load_program(TEXT), {"X": x})["Y"]
    assert torch.allclose(got, 3 * x.flatten())


def test_a_view_has_as_many_elements() -> None:
    with pytest.raises(SketchError, match="'t' is declared differently"):
        load_program(TEXT.replace("t[3, 8]", "t[3, 9]"))


def test_a_view_keeps_the_dtype() -> None:
    with pytest.raises(SketchError, match="'t' is declared differently"):
        load_program(TEXT.replace("t[3, 8]: f32", "t[3, 8]: f16"))


def test_the_edge_is_that_of_the_view() -> None:
    text = TEXT.replace("B = 8", "B = 16")
    x = torch.randn(4, 6)
    # lanes past the view's own row read 0; of the outputs a later iteration writes the right values
    program = load_program(text.replace('@llm_hint("parallel", "grididx")\n    for i in range(3)', "for i in range(3)"))
    assert torch.allclose(run(program, {"X": x})["Y"], 3 * x.flatten())
