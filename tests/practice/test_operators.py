"""Operators that people write: designed by rules, right in the gate, and right as compiled code."""

from __future__ import annotations

import pytest

from tests.designer.practice import state_of
from tests.practice.fields import FIELDS
from tests.practice.operators import OPERATORS

#: what a call of the framework stands in for until a rule designs it
COMPOSED = {"peaks_of_a_heat_map": "topk"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", {**OPERATORS, **FIELDS})
def test_an_operator_is_right_and_compiles(name: str) -> None:
    state, reason = state_of({**OPERATORS, **FIELDS}[name], run=True)
    assert state == ("library" if name in COMPOSED else "right"), reason
    assert name not in COMPOSED or reason == COMPOSED[name]
