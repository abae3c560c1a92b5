"""Each fault ends in one clear state, is recorded once, and leaves a talk that goes on when it is fixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.models.exchanges import Finish
from tests.models.fault_cases import CASES, KEY, Case, answers_after, in_general, played

#: the page that has a table of what a user sees
GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "models.md").read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_a_fault_ends_in_its_state(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)
    with played(case) as outcome:
        error = outcome.error
        assert (error.kind.value if error else "") == case.kind, error
        assert len(outcome.requests) == case.attempts
        if error:
            for said in (error.message, error.remedy):
                assert in_general(case, said).replace("<think>", "`<think>`") in GUIDE, "fault_cases.table() makes it"
            assert error.resumable == case.resumable
            assert error.message.endswith(".")
            assert error.remedy.endswith(".")
            assert KEY not in str(error) and KEY[:8] not in str(error)
            if not case.attempts and case.budget:
                assert not outcome.records, "what was not sent is in no record"
                return
            last = outcome.records[-1]
            if case.as_json:
                assert last.finish is Finish.STOP, "the model answered; its answer did not fit"
            else:
                assert last.error.startswith(case.kind) and last.finish is not Finish.STOP
        else:
            assert outcome.reply is not None and outcome.reply.finish is Finish.STOP
            assert outcome.records[-1].error == ""
        assert len(outcome.records) == (2 if case.repaired else 1)
        assert outcome.fixed is None or outcome.fixed.text == "hello"


#: the next of a list is asked but where a person has to put something right
NOBODY_ELSE = ("auth", "config")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_the_next_player_of_a_list_answers_where_the_first_cannot(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)
    assert answers_after(case) == ("A" if not case.kind else "nobody" if case.kind in NOBODY_ELSE else "B")


def test_a_reply_without_end_spends_little_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)
    (case,) = [case for case in CASES if case.fault == "a budget reached in the middle, limit ignored"]
    with played(case) as outcome:
        spent = sum(record.usage.input_tokens + record.usage.output_tokens for record in outcome.records)
        assert 500 < spent < 3000


def test_a_setting_that_the_server_refuses_is_told_with_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)
    for case in CASES:
        refused = case.fault == "reasoning_effort refused" or case.fault == "temperature refused"
        if refused or case.fault in ("max_tokens refused for its newer name", "no usage field"):
            with played(case) as outcome:
                said = outcome.records[-1].warning
            assert bool(said) == refused and all(name in said for name in case.settings if refused), said


@pytest.mark.parametrize(
    ("fault", "said", "not_said"),
    [
        ("401 wrong key", "refuses the key (HTTP 401)", "does not allow"),
        ("403 not allowed", "does not allow the request with this key (HTTP 403)", "refuses the key"),
        ("407 of a proxy", "A proxy in front of 127.0.0.1", "the key"),
        ("https where http is spoken", "does not speak https. Write http:// in base_url, or for the proxy", "SSL"),
        ("connection lost in the stream", "was cut off", "ReadError"),
        ("a budget reached in the middle", "tokens that the budget left for it", "max_tokens"),
        ("400 wrong value", "Change reasoning_effort under [models]", "that it names"),
        ("422 extra_body", "Change top_k under [models]", "that it names"),
        ("400 unknown setting", "Change the setting that it names", "under [models]"),
        ("401 no such organisation", "Correct `organisation`", "key"),
        ("a web page instead", 'a web page: "Welcome"', "JSON"),
        ("other JSON instead", "hello", "web page"),
        ("finish: length", "Raise `max_tokens`", "budget left"),
    ],
)
def test_a_sentence_tells_the_cause_and_its_remedy(
    fault: str, said: str, not_said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)
    (case,) = [case for case in CASES if case.fault == fault]
    with played(case) as outcome:
        assert outcome.error is not None
        told = f"{outcome.error.message} {outcome.error.remedy}"
    assert said in told and not_said not in told, told
