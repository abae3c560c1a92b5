"""Whose fault a stage tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.records import Stage
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.stages.pipeline import Steps


@pytest.mark.parametrize(
    ("role", "whose", "signature"), [("candidate", "kernel", "hang"), ("eager", "baseline", "baseline")]
)
def test_silence_of_a_worker_is_told_as_that_of_whoever_was_asked(
    monkeypatch: pytest.MonkeyPatch, role: str, whose: str, signature: str
) -> None:
    def silent(*_: object) -> dict[str, Any]:
        raise WorkerFailure("hang", "did not answer in time")

    worker: Any = SimpleNamespace(role=role, resume=lambda: None, post=lambda message: None, receive=silent)
    context: Any = SimpleNamespace()
    steps = Steps(context, lambda _: None)
    with steps.stage(Stage.ROBUST):
        WorkerProcess.ask(worker, {"op": "keep", "calls": 4}, 0.1)
    assert steps.failure is not None and steps.failure.reason == f"The {whose}'s worker did not answer in time."
    assert steps.failure.evidence is not None and steps.failure.evidence.signature == signature
