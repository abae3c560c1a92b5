"""What practitioners write beyond the common operations: by rules, right in the gate and lowered, or said why not."""

from __future__ import annotations

import pytest

from tests.designer.api_cases import LIBRARY, REFUSED, cases
from tests.designer.model_cases import MODELS
from tests.designer.practice import state_of
from tests.designer.practice_cases import PRACTICE

TEXTS = {**cases(), **PRACTICE, **MODELS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TEXTS)
def test_what_people_write_is_right_or_refused_with_a_reason(name: str) -> None:
    state, reason = state_of(TEXTS[name])
    if name in REFUSED:
        assert state == "refused" and REFUSED[name] in reason
    else:
        assert state == ("library" if name in LIBRARY else "right"), reason
