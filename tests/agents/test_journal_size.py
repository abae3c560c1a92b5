"""A search's journal stays small: what prompts, sketches and sources have in common is kept once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.session.record.journal import Journal
from tests.agents.journal_size import written


@pytest.mark.parametrize("anew", [False, True], ids=["revised", "written-anew"])
def test_five_thousand_candidates_of_six_exchanges_stay_under_200_mb(tmp_path: Path, anew: bool) -> None:
    half, size = written(Journal(tmp_path), 16, anew)
    assert size.exchanges == 6 * size.candidates
    rate = (size.file - half.file) / (size.candidates - half.candidates)
    assert size.file + rate * (5000 - size.candidates) < 200e6
    # the same prompts whole would not
    assert size.whole / size.candidates * 5000 > 1e9
