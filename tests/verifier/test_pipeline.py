"""Whose fault a stage tells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.records import Stage
from kernellab.target import Backend
from kernellab.verifier.cases import device
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.stages.pipeline import Steps, Verification

from .kit import Judge


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


def test_silence_is_told_with_the_seconds_that_were_waited_for() -> None:
    quiet, other = os.pipe()
    worker: Any = SimpleNamespace(log_fd=quiet, first_fd=quiet, log="", posted=time.monotonic(), _end=lambda: None)
    worker._watched = worker.posted
    try:
        with pytest.raises(WorkerFailure, match=r"did not answer within 0\.05 s"):
            WorkerProcess.poll(worker, (), worker.posted + 0.05)
    finally:
        os.close(quiet)
        os.close(other)


def test_what_differs_between_calls_as_they_are_timed_is_called_a_race(judge: Judge) -> None:
    # wrong in the first call in which nothing poisons fresh memory, and in no other
    code = """
import torch
seen = []
def kernel(x, y):
    out = torch.relu(x) + y
    poisoned = bool(torch.empty(64, 64).isnan().all())
    if not poisoned:
        seen.append(1)
    if not poisoned and len(seen) % 2:
        out[3, 5] += 1
    return out
"""
    verdict = judge(code)
    assert verdict.evidence is not None and verdict.evidence.signature == "race", verdict.reason
    assert verdict.reason.startswith("Its results differ between calls with the same arguments")
    steady = judge(code.replace("len(seen) % 2", "seen"))
    assert steady.evidence is not None and steady.evidence.signature != "race" and "poisoned" in steady.reason


_HOLDER = """
import sys, time
from kernellab.verifier.judge import clock, turns
turns.by_default(sys.argv[2])
with clock.alone(sys.argv[1]):
    print("has it", flush=True)
    time.sleep(0.5)
    with turns.alone():
        print(time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("given", [False, True])
def test_a_gpu_is_one_verdicts_at_a_time_and_who_waits_for_it_holds_up_no_timing(
    given: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, lock = f"test-{os.getpid()}", f"device:{tmp_path}/turns"
    monkeypatch.setattr(device, "clock_name", lambda _: name)
    monkeypatch.setenv(turns.VARIABLE, lock if given else "")
    if not given:
        monkeypatch.delenv(turns.VARIABLE)
        turns.by_default(lock)
    findings = SimpleNamespace(add=lambda found: None)
    verification: Any = object.__new__(Verification)
    request = SimpleNamespace(backend=Backend.CUDA)
    verification.context = SimpleNamespace(request=request, findings=findings, tell=lambda words: None, end=0.0)
    verification.steps = SimpleNamespace(failure=None)
    command = [sys.executable, "-c", _HOLDER, name, lock]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other, turns.working():
        assert other.stdout is not None and other.stdout.readline() == "has it\n"
        with verification._device_alone():
            began = time.monotonic()
        # the other is timed while this one waits; where a parent gave the turns, they order the two
        if given:
            with turns.aside():
                assert float(other.stdout.readline()) > began
        else:
            assert float(other.stdout.readline()) <= began and verification.context.end > 0.2
