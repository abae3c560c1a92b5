"""Each fault ends in one clear state, is recorded once, and leaves a talk that goes on when it is mended."""

from __future__ import annotations

import pytest
from fault_cases import CASES, KEY, Case, played

from kernellab.records import Finish


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_a_fault_ends_in_its_state(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_MODEL_KEY", KEY)
    with played(case) as outcome:
        error = outcome.error
        assert (error.kind.value if error else "") == case.kind, error
        assert len(outcome.requests) == case.attempts
        if error:
            assert error.resumable == case.resumable
            assert error.message.endswith(".")
            assert error.remedy.endswith(".")
            assert KEY not in str(error) and KEY[:8] not in str(error)
            last = outcome.records[-1]
            if case.as_json:
                assert last.finish is Finish.STOP, "the model answered; its answer did not fit"
            else:
                assert last.error.startswith(case.kind) and last.finish is not Finish.STOP
        else:
            assert outcome.reply is not None and outcome.reply.finish is Finish.STOP
            assert outcome.records[-1].error == ""
        assert len(outcome.records) == (2 if case.repaired else 1)
        assert outcome.mended is None or outcome.mended.text == "hello"
