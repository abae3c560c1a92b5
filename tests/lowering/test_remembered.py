"""What is not written again is what would be written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab.dsls.machine import named_chip
from kernellab.lowering import lower
from kernellab.lowering.kernel_cache import RecordedConstants, remembered
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target

TEXT = """
sketch doubled {
    tensors: x[60, 60]: f32; t[60, 60]: f32 temp;
    constexpr: BM = 4 in {4, 8, 15, 64};
    @llm_hint("parallel", "coreidx")
    for i in range(0, 60, BM):
        load(x[i:i+BM, 0:60] -> tile)
        store(tile * 2.0 -> t[i:i+BM, 0:60])
}

sketch summed {
    tensors: t[60, 60]: f32 temp; y[60]: f32 out;
    constexpr: BN = 4 in {4, 8, 15, 64};
    @llm_hint("parallel", "coreidx")
    for i in range(0, 60, BN):
        load(t[i:i+BN, 0:60] -> tile)
        store(reduce_sum(tile, axis=1) -> y[i:i+BN])
}
"""


@pytest.mark.parametrize("dsl", ["triton", "cuda_c"])
def test_one_program_lowered_at_many_choices_gives_the_texts_of_fresh_ones(dsl: str) -> None:
    target = Target(dsl, Backend.CUDA, named_chip("h200"))
    program = load_program(TEXT)
    tried = [{"BM": 4, "BN": 4}, {"BM": 64, "BN": 4}, {"BM": 4, "BN": 64}, {"BM": 15, "BN": 8}]
    found = []
    for values in tried:
        found.append(lower(program, bind(program, None, values, target), target))
    for values, text in zip(tried, found, strict=True):
        fresh = replace(program)  # no program that has been lowered
        assert text == lower(fresh, bind(fresh, None, values, target), target), values


def test_only_what_was_asked_for_matters() -> None:
    program, made = load_program(TEXT), []

    def write(consts: RecordedConstants) -> int:
        made.append(dict(consts))
        return consts["BM"] if "BN" in consts else -consts["BM"]

    found = [
        remembered(program, "key", consts, write)
        for consts in ({"BM": 4, "BN": 4, "K": 1}, {"BM": 4, "BN": 4, "K": 2}, {"BM": 4}, {"BM": 8, "BN": 4}, {"BM": 4})
    ]
    assert found == [4, 4, -4, 8, -4] and len(made) == 3
    assert remembered(program, "another", {"BM": 4}, write) == -4 and len(made) == 4
    assert remembered(replace(program), "key", {"BM": 4}, write) == -4 and len(made) == 5
