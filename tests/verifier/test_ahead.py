"""Cases made while a candidate is compiled: given out once, made as far as the build lasts, none of them for much."""

from __future__ import annotations

from itertools import islice

import pytest

from kernellab.task import load_task
from kernellab.verifier.cases.prefetch import Ahead

ROWS = """import torch
from kernellab import Dim

def reference(x):
    return x * 2

M = Dim("M", 1, 1 << 20)
def inputs(M={rows}):
    return torch.randn(M, 64),
"""


def test_each_case_is_given_out_once_and_those_that_were_reached_are_answered() -> None:
    ahead = Ahead(load_task(ROWS.format(rows=1000), "rows"), False)
    list(islice(ahead.make(), 4))
    smoke, again = ahead.smoke(), ahead.smoke()
    assert smoke is not again and smoke.seed != again.seed
    assert "_native" in vars(smoke) and "_native" not in vars(again)
    found = ahead.correct()
    made = ["_native" in vars(case) for case in found]
    assert made == sorted(made, reverse=True) and 0 < sum(made) < len(made)
    assert not {case.seed for case in found} & {case.seed for case in ahead.correct()}
    first, second = ahead.small(), ahead.small()
    assert first.seed != second.seed and first.sizes == second.sizes


def test_all_that_is_made_is_what_the_stages_then_meet() -> None:
    ahead = Ahead(load_task(ROWS.format(rows=1000), "rows"), False)
    for _ in ahead.make():
        pass
    found = [ahead.smoke(), *ahead.correct(), ahead.small(), ahead.small()]
    assert all("_native" in vars(case) for case in found)
    assert "_native" not in vars(ahead.small())


def test_nothing_is_made_of_a_task_so_large_that_a_build_would_wait_for_it() -> None:
    ahead = Ahead(load_task(ROWS.format(rows=1 << 19), "rows"), False)
    assert not list(ahead.make())


def test_what_a_case_cannot_be_made_of_is_told_by_the_stage_that_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such draw")

    ahead = Ahead(load_task(ROWS.format(rows=1000), "rows"), False)
    monkeypatch.setattr("kernellab.verifier.cases.cases.make_args", fails)
    assert list(ahead.make()) == [None]
    with pytest.raises(ValueError, match="no such draw"):
        _ = ahead.smoke().references
