"""The 160 operations of ATen that are used most: each designed by rules alone, right in the gate, and lowered."""

from __future__ import annotations

import pytest

from tests.designer.aten_cases import cases, state_of

CASES = cases()


def test_the_list_has_160_operations() -> None:
    assert len(CASES) >= 160


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_right_by_rules(name: str) -> None:
    assert state_of(name, CASES[name]) == ("right", "")
