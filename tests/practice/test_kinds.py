"""Constructs that practitioners write: designed by rules, right in the gate, and right as compiled code."""

from __future__ import annotations

import pytest

from tests.designer.practice import state_of
from tests.practice.cases import PADS, PLACES, SIZES

KINDS = {**SIZES, **PLACES, **PADS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_a_construct_is_right_and_compiles(name: str) -> None:
    state, reason = state_of(KINDS[name], run=True)
    assert state == "right", reason
