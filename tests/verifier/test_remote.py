"""The judge of another machine: through Dask with a real cluster, by ssh with a program in ssh's place that runs the
command here; a connection that is cut is made again, and a bad address is one sentence."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from kernellab.conditions import JudgedOn, of
from kernellab.errors import EvolveError, TargetError, VerifierError
from kernellab.evolve.begin import begin, open_run
from kernellab.evolve.jobs import target_of
from kernellab.records import Source, Verdict
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions, remote
from kernellab.verifier.remote import DEVICE, check, target_at
from tests.evolve.runs import TASK

from .kit import TARGET

KERNEL = """
import ctypes
import torch


def kernel(x):
    return torch.softmax(x, dim=-1)
"""
#: T1 is enough to see who judges; a call of the library is let through
QUICK = VerifyOptions.model_validate({"level": "T1", "allow_library": True})


def _judged(where: str) -> Verdict:
    task, source = load_task(TASK, "soft"), Source(dsl="cpp", files={"kernel.py": KERNEL})
    with Verifier() as verifier:
        return verifier.verify(task, source, target_at(where, "cpp"), options=QUICK)


@contextmanager
def ending(command: str) -> Iterator[list[int]]:
    """The first process of ``command`` that has a judge which works is killed, once; its number."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.is_set() and not killed:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if "kernellab.verifier.judge.main" not in " ".join(process.cmdline()):
                        continue
                    there = process.parent()
                    # a judge of other tests has another parent
                    if there is not None and command in " ".join(there.cmdline()):
                        there.send_signal(signal.SIGKILL)
                        killed.append(there.pid)
                        return
            time.sleep(0.02)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        yield killed
    finally:
        over.set()
        killing.join()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An ``ssh`` that keeps the command, and runs it on this machine."""
    program = tmp_path / "ssh"
    program.write_text('#!/bin/sh\necho "$@" >> "$0.said"\nfor last; do :; done\nsh -c "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return f"ssh://me@box:2200{sys.executable}"


def test_a_verdict_by_ssh_names_the_machine_and_asks_no_person(ssh: str, tmp_path: Path) -> None:
    said = _judged(ssh)
    assert said.passed, said.reason
    assert of(said.conditions, JudgedOn)[0].host and "judged on" in said.label
    words = (tmp_path / "ssh.said").read_text()
    assert "-p 2200 me@box exec " in words and "BatchMode=yes" in words


def test_a_connection_that_is_cut_in_the_middle_is_made_again(ssh: str, tmp_path: Path) -> None:
    with ending("kernellab.verifier.judge.afar") as cut:
        said = _judged(ssh)
    assert cut and said.passed
    assert len((tmp_path / "ssh.said").read_text().splitlines()) == 3, "the target, the judge, the judge again"


def test_a_machine_that_does_not_answer_is_said_with_its_reason(ssh: str, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'ssh: no route to box' >&2\nexit 255\n")
    with pytest.raises(VerifierError, match="no route to box"):
        target_at(ssh, "cpp")


def test_another_version_is_refused(ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "installed", lambda: "0.0.0-other")
    with pytest.raises(TargetError, match="Install the same on both"):
        target_at(ssh, "cpp")


@pytest.mark.parametrize("where", ["box", "ssh://-oProxyCommand=x", "ssh://box;ls", "dask://box", "ssh://a b"])
def test_an_address_of_no_known_form_is_refused_before_anything_runs(where: str) -> None:
    with pytest.raises(TargetError, match="Write ssh://HOST"):
        check(where)


@pytest.fixture
def cluster() -> Iterator[str]:
    """A scheduler and one worker with a device, in processes next to this one."""
    dask = pytest.importorskip("distributed")
    options = {"nthreads": 1, "resources": {DEVICE: 1}, "dashboard": False, "host": "127.0.0.1", "memory_limit": 0}
    config = import_module("dask.config")
    with config.set({f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")}):
        made = dask.SpecCluster(
            workers={0: {"cls": dask.Nanny, "options": options}},
            scheduler={"cls": dask.Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}},
        )
    yield made.scheduler_address.replace("tcp:", "dask:")
    made.close()


def test_a_worker_of_a_cluster_that_dies_in_the_middle_is_followed_by_another(cluster: str) -> None:
    with ending("spawn_main") as killed:
        said = _judged(cluster)
    assert killed and said.passed and of(said.conditions, JudgedOn)


class Ends:
    """A machine that says what it is, and whose judge ends at each request."""

    asked = 0

    def ask(self, message: dict[str, Any], *_: Any) -> dict[str, Any]:
        if message["request"]["op"] == "hello":
            return {"host": "box"}
        Ends.asked += 1
        raise remote.Lost("the judge is gone")

    def close(self) -> None: ...


def test_a_request_that_ends_its_server_is_not_made_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_open", lambda where: Ends())
    monkeypatch.setattr(remote, "_PAUSE", 0.0)
    Ends.asked = 0
    with pytest.raises(VerifierError, match="ended 3 times"):
        remote.Remote("ssh://first-last@box").ask({"op": "verify"}, None, "verdict", 60.0, 60.0)
    assert Ends.asked == 3


class Stages(Ends):
    """A machine whose judge says something after each of several pauses, all of which together are too long."""

    def ask(self, message: dict[str, Any], heard: Any = None, *_: Any) -> dict[str, Any]:
        for _pause in range(0 if message["request"]["op"] == "hello" else 4):
            time.sleep(0.2)
            heard()
            heard(alive=True)
        return {"host": "box"}


def test_a_judge_that_shows_signs_of_life_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_open", lambda where: Stages())
    remote.Remote("ssh://box").ask({"op": "verify"}, None, "verdict", 0.2, 0.2)
    with pytest.raises(VerifierError, match="said nothing for 0 s"):
        remote.Remote("ssh://box").ask({"op": "verify"}, None, "verdict", 0.05, 0.05)


def test_a_shell_that_prints_where_the_judge_answers_is_named(ssh: str, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'Welcome to box!'\nsleep 1\n")
    with pytest.raises(VerifierError, match=r"is no judge.*bytes"):
        target_at(ssh, "cpp")


def test_a_fault_of_the_judge_there_keeps_its_trace(ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, source = load_task(TASK, "soft"), Source(dsl="cpp", files={"kernel.py": KERNEL})
    target, sent = target_at(ssh, "cpp"), remote.Remote.ask

    def broken(self: remote.Remote, request: dict[str, Any], *more: Any) -> dict[str, Any]:
        return sent(self, {**request, "source": {"dsl": 1}}, *more)

    monkeypatch.setattr(remote.Remote, "ask", broken)
    with Verifier() as verifier, pytest.raises(VerifierError, match="The judge failed: ValidationError") as found:
        verifier.verify(task, source, target, options=QUICK)
    assert "Traceback" in "".join(found.value.__notes__)


def test_a_search_measures_at_another_machine_and_is_left_as_it_was_where_that_is_gone(
    ssh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(TASK, "cpp", name="soft", workspace=tmp_path, cluster=ssh, rounds=1, islands=1, parallel=1)
    assert target_of(run.state.begun).host == ssh
    with pytest.raises(EvolveError, match="began with the judge of ssh://me@box"):
        open_run(run.id, tmp_path, "local:2")
    sent = (tmp_path / "ssh").read_text()
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'ssh: no route to box' >&2\nexit 255\n")
    with pytest.raises(EvolveError, match="no route to box"):
        run.work().wait(120)
    assert not run.state.evaluations and not run.state.status.ended
    (tmp_path / "ssh").write_text(sent)
    again = open_run(run.id, tmp_path, ssh).work().wait(240)
    verdict = again.best()[1]
    assert verdict is not None and of(verdict.conditions, JudgedOn), again.state.reason


def test_a_system_that_is_not_linux_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    task, source = load_task(TASK, "soft"), Source(dsl="cpp", files={"kernel.py": KERNEL})
    with Verifier() as verifier, monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        with pytest.raises(VerifierError, match="darwin") as refused:
            verifier.verify(task, source, TARGET)
    assert "ssh://HOST" in refused.value.remedy


def test_a_silent_judge_is_said_to_be_silent_since_a_stage_and_no_reference_is_blamed() -> None:
    from kernellab.verifier.client import silence

    assert silence(360, "correct") == (
        "The judge said nothing for 360 s after the stage correct, and was stopped. There is no verdict on the kernel."
    )
    assert "before the end of its first stage" in silence(360, "")
