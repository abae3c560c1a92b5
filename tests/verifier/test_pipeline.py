"""Whose fault a stage tells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.records import Stage
from kernellab.target import Backend
from kernellab.verifier.cases import device
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.process import WorkerFailure, WorkerProcess
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.stages import context, honest, robust
from kernellab.verifier.stages.context import Context
from kernellab.verifier.stages.pipeline import Steps, Verification
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.stages.robustness import ordinary

from .kit import PARTS, Judge


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
    worker._watched, worker._killed = worker.posted, partial(WorkerProcess._killed, worker)
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
    asked: Any = request
    verification.context = Context(asked, pool=None, end=0.0, findings=findings)  # type: ignore[arg-type]
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


def test_a_deadline_is_of_a_machine_with_nothing_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    now, crowd = [1000.0], [1.0]
    monkeypatch.setattr(context, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(context, "crowding", lambda: crowd[0])
    request: Any = SimpleNamespace(options=VerifyOptions(deadline=300.0))

    def begun() -> Context:
        return Context.of(request, pool=None)  # type: ignore[arg-type]

    alone = begun()
    now[0] += 301.0
    with pytest.raises(Refused, match=r"its deadline of 300 s; the kernel's calls had 0\.0 s of it"):
        alone.left(10.0)
    shared = begun()
    crowd[0] = 3.0
    for _ in range(8):  # 800 s of which the verification got a third
        now[0] += 100.0
        assert shared.left(10.0) == 10.0
    now[0] += 90.0
    assert shared.left(10.0) == pytest.approx(300.0 - 890.0 / 3)
    now[0] += 50.0
    shared.wait(50.0)  # for another verification: no part of that time counts
    assert shared.left(10.0) == pytest.approx(300.0 - 890.0 / 3)
    now[0] += 11.0
    with pytest.raises(Refused, match=r"its deadline of 300 s \(951 s by the clock, with other work on the machine\)"):
        shared.left(10.0)
    crowd[0] = 1.0
    kernel = begun()
    kernel.called = 240.0
    now[0] += 300.0
    with pytest.raises(Refused) as late:
        kernel.left(10.0)
    assert late.value.evidence.called == pytest.approx(0.8), "the share of the time that the kernel's calls had"


def test_the_stages_run_each_part_that_tests_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they find there, a verdict finds too."""
    ran: list[str] = []

    def replace(module: Any, name: str, result: Any, part: str = "") -> None:
        monkeypatch.setattr(module, name, lambda *_, **__: (ran.append(part or name), result)[1])

    beyond_own_inputs = robust.beyond_own_inputs
    for name in PARTS.keys() - {"ordinary", "beyond_own_inputs", "precision_class", "honest", "fast"}:
        replace(robust, name, [] if name in ("metamorphic", "many") else "")
    for name in ("other_mode_differs", "combined"):
        replace(robust, name, "")
    replace(robust, "free_floats", ())
    replace(ordinary, "check", "", "ordinary")
    monkeypatch.setattr(
        robust, "beyond_own_inputs", lambda *of: (ran.append("beyond_own_inputs"), beyond_own_inputs(*of))[1]
    )
    monkeypatch.setattr(robust, "selection", SimpleNamespace(drawn_base=lambda *_: SimpleNamespace()))
    stages: Any = SimpleNamespace(
        ahead=SimpleNamespace(small=lambda: SimpleNamespace(args=()), survey=lambda: SimpleNamespace(cases=[])),
        context=SimpleNamespace(interpreted=False, request=SimpleNamespace(backend=Backend.CPU)),
        task=SimpleNamespace(module=lambda: SimpleNamespace(mutates=False, written=(), numpy=False)),
        written=(), ordinary=SimpleNamespace(), covered=None, calls=None,
    )  # fmt: skip
    robust.robust(stages)
    stages.context.interpreted = True
    robust.robust(stages)
    for name in ("_mark_weak_task", "ghost_test", "own_share", "launches_unwatched", "precision_class"):
        replace(honest, name, "")
    honest.honest(stages)
    assert ran.count("combined") == 2 and PARTS.keys() - {"honest", "fast"} <= set(
        ran
    )  # whose notes and times a whole verdict has
