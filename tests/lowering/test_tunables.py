"""A tunable that a lowered text takes at its other values says so; any other is fixed there, and the compiler knows."""

from __future__ import annotations

import re

import pytest

from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import bare
from kernellab.lowering.tunables import unhinted
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind

from .lifting import TARGETS, designed, task_of

NAMES = ["matmul/linear_relu", "softmax/softmax"]


def lowered(text: str, name: str, dsl: str, **values: int) -> Source:
    program, target = load_program(text), TARGETS[dsl]
    return bare(lower(program, bind(program, task_of(name), values, target), target))


@pytest.mark.parametrize("dsl", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_constant_s_comment_says_of_other_values_holds(name: str, dsl: str) -> None:
    text = designed(name, dsl)
    source = lowered(text, name, dsl)
    for tunable in load_program(text).tunables:
        line = re.compile(rf"^(\s*(?:constexpr int64_t )?{tunable.name}_? = )(\d+)(.*)$", re.MULTILINE)
        file, found = next((f, m) for f, t in source.files.items() for m in line.finditer(t))
        if "the sketch takes" in found[3]:
            assert dsl != "cpp" or f"static_assert({tunable.name} == {found[2]}," in source.files["kernel.cpp"]
            continue
        assert "one of " in found[3], found[0]
        for value in tunable.choices:
            by_hand = line.sub(rf"\g<1>{value}\g<3>", source.files[file])
            again = lowered(text, name, dsl, **{tunable.name: int(value)}).files[file]
            assert unhinted(again) == unhinted(by_hand)


def test_a_tile_that_decides_how_loops_are_merged_is_fixed_in_the_text() -> None:
    source = lowered(designed("matmul/linear_relu", "cpp"), "matmul/linear_relu", "cpp")
    assert "fixed here; the sketch takes" in source.files["kernel.cpp"]
