"""Cases made while a candidate is compiled: given out once, made as far as the build lasts, none of them for much."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases.cases import Computed
from kernellab.verifier.cases.prefetch import Ahead
from kernellab.verifier.ranking.cases import RankCases
from kernellab.verifier.survey.survey import Survey

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
    assert smoke.computed.native is not None and again.computed.native is None
    found = ahead.correct()
    # a case whose last elements decide was asked when it was chosen
    made = [case.computed.native is not None for case in found if case.change[:1] != ("last",)]
    assert made == sorted(made, reverse=True) and 0 < sum(made) < len(made)
    assert not {case.seed for case in found} & {case.seed for case in ahead.correct()}
    first, second = ahead.small(), ahead.small()
    assert first.seed != second.seed and first.sizes == second.sizes


def test_all_that_is_made_is_what_the_stages_then_meet() -> None:
    ahead = Ahead(load_task(ROWS.format(rows=1000), "rows"), False)
    for _ in ahead.make():
        pass
    found = [ahead.smoke(), *ahead.correct(), ahead.small(), ahead.small()]
    assert all(case.computed.native is not None for case in found)
    assert ahead.small().computed.native is None


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


@pytest.mark.parametrize("ranks", [False, True])
def test_a_survey_that_the_end_of_a_build_interrupts_is_made_to_its_end(
    ranks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []
    whole = Survey._try
    monkeypatch.setattr(Survey, "_try", lambda survey, proposal: (tried.append(proposal), whole(survey, proposal)))
    task = load_task(ROWS.format(rows=1000).replace("x * 2", "x.clamp(-1, 1)"), "rows")
    cases = RankCases(task) if ranks else Ahead(task, False)
    steps = cases.made() if isinstance(cases, RankCases) else cases.make()
    while not tried:
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    begun = len(tried)
    survey = cases.drawn() if isinstance(cases, RankCases) else cases.survey()
    assert len(tried) > begun
    assert survey.cases and survey.reached


def test_similar_cases_share_what_is_the_same_and_a_copy_has_nothing() -> None:
    case = Ahead(load_task(ROWS.format(rows=8), "rows"), False).smoke()
    assert case.references and case.computed.nudged is None
    assert replace(case).computed == Computed()
    assert case.with_change(("scale", 0, 2.0)).computed == Computed(sample=case.computed.sample)
    assert case.judged_as(Family.EDGES).references is case.references
    assert case.glance().native is case.native and case.glance().computed.references is None
    assert case.glance().in_double().native is case.native
    exact = case.exact()
    assert exact.native is case.native and exact.nudged is exact.references is not case.references
    other = tuple(arg + 1 for arg in case.args)
    assert case.given(other).args is other and case.given(other).computed.native is None
