"""Operators that people write: designed by rules, right in the gate, and right as compiled code."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import Program
from kernellab.task import load_task
from tests.designer.coverage import CPU
from tests.designer.practice import state_of
from tests.practice.brought import BROUGHT
from tests.practice.current import CURRENT
from tests.practice.fields import FIELDS
from tests.practice.measures import MEASURES
from tests.practice.operators import OPERATORS
from tests.practice.recent import RECENT

#: what a call of the framework stands in for until a rule designs it
COMPOSED = {
    "attention_over_edges": "scatter_reduce",
    "softmax_over_sampled_products": "scatter_reduce",
    "means_and_maxima_of_ragged_rows": "index_reduce",
}
ALL = {**OPERATORS, **FIELDS, **RECENT, **CURRENT, **MEASURES, **BROUGHT}


def _designed(name: str) -> Program:
    return load_program(RulesDesigner().design(DesignBrief(load_task(FIELDS[name], name), CPU)).sketch)


def test_additions_to_a_small_result_need_no_atomics() -> None:
    program = _designed("counts_of_classes")
    text = lower(program, bind(program, None, None, CPU), CPU).files["kernel.cpp"]
    assert "reduction(+: " in text and "atomic_add(&" not in text


def test_short_unfolded_windows_are_read_tap_by_tap() -> None:
    sketch = _designed("means_of_sliding_frames").text
    assert "gather(" not in sketch and "for kw in range(16)" in sketch


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_an_operator_is_right_and_compiles(name: str) -> None:
    state, reason = state_of(ALL[name], run=True)
    assert state == ("library" if name in COMPOSED else "right"), reason
    assert name not in COMPOSED or reason == COMPOSED[name]
