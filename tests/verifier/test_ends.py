"""A judge's end is silent: what its libraries have to say about themselves is nothing for a person."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from kernellab.dsls.machine import named_chip
from kernellab.errors import VerifierError
from kernellab.evolve.workers.judges import LocalJudge
from kernellab.records import Source, Trust
from kernellab.sandbox import folders, sandbox_level
from kernellab.session.engine.engine import engine
from kernellab.target import Backend, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier
from tests.waiting import until

from .kit import QUICK, RELU_ADD, TARGET

JUDGE = """
import atexit
from kernellab.verifier.judge import main as judge
atexit.register(print, "the interpreter was taken down, and its libraries counted their leaks")
judge._end_with_client = lambda *_: None  # of the two threads that see it, the other comes first
judge.main()
"""


def test_a_judge_whose_client_closed_takes_no_interpreter_down() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        judge = subprocess.Popen(
            [sys.executable, "-c", JUDGE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    ours.close()
    said, _ = judge.communicate(timeout=60)
    assert (judge.returncode, said) == (0, "")


def test_a_folder_of_the_package_s_name_where_a_person_works_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernellab").mkdir()
    (tmp_path / "kernellab" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "socket.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    assert "rlimits" in sandbox_level()
    with Verifier() as verifier:
        verifier.warm(TARGET)
        judge = verifier.judge_pid
        verifier.rest(60)
        assert judge is not None and verifier.judge_pid == judge
        verifier.rest(0)
        assert verifier.judge_pid is None and not Path(f"/proc/{judge}").exists(), "no one asked it"
        verifier.warm(TARGET)
        assert verifier.judge_pid not in (None, judge) and not verifier.notice


def test_a_judge_that_is_begun_ahead_of_a_kernel_for_a_gpu_touches_no_gpu() -> None:
    target = Target(dsl="triton", backend=Backend.CUDA, chip=named_chip("h100"))
    with Verifier() as verifier:
        verifier.warm(target, ahead=True)  # starting CUDA would fail here, and would hold memory where a GPU is
        assert verifier.judge_pid is not None
        verifier.warm(TARGET)
        assert not verifier.notice


def test_what_a_judge_freed_is_the_machine_s_once_no_one_asks() -> None:
    def held() -> int:
        rows = Path(f"/proc/{verifier.judge_pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("RssAnon:")) // 1024

    task = load_task(RELU_ADD.replace("48, 70", "2048, 4096"))  # of 32 MiB each, which its allocator keeps
    source = Source(dsl="cpp", files={"kernel.py": "import torch\ndef kernel(x, y):\n    return torch.relu(x) + y\n"})
    with Verifier() as verifier:
        verifier.warm(TARGET)
        before = held()
        # a quick look holds a GiB by its end, as much as a whole verdict does, in half of the time
        assert verifier.verify(task, source, TARGET, options=QUICK.model_copy(update={"level": Trust.T1})).passed
        until(lambda: held() < before + 80, 60)


def test_a_judge_ends_with_its_own_fault_and_with_nothing_that_it_answers() -> None:
    """One that a search and a session have in turn is as warm after a candidate that it cannot judge as before."""
    judge = LocalJudge()
    try:
        judge.start(TARGET)
        verifier = engine().verifier()
        before = verifier.judge_pid
        with pytest.raises(VerifierError), judge._verifier():
            raise VerifierError("A worker could not be started.", "Verify again.")
        assert before is not None and engine().verifier().judge_pid == before
        with pytest.raises(VerifierError, match="The judge failed"):
            verifier.relay({"op": "verify", "options": {}}, "verdict", 60.0, None)
        assert verifier.judge_pid is None and not Path(f"/proc/{before}").exists()
        judge.start(TARGET)
        assert verifier.judge_pid not in (None, before)
    finally:
        engine().drop_verifier()


SLEEPS_OUTSIDE = """
import os, time, torch
if "kernellab" not in os.environ.get("HOME", ""):
    time.sleep(60)
def kernel(x, y):
    return torch.relu(x) + y
"""


def test_the_folder_of_an_ordinary_process_goes_with_a_killed_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies in no folder of the judge's, so that a kernel does not know it by its place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    verifier = Verifier()
    source = Source(dsl="cpp", files={"kernel.py": SLEEPS_OUTSIDE})
    ended = list[VerifierError]()

    def ask() -> None:
        with pytest.raises(VerifierError) as raised:
            verifier.verify(load_task(RELU_ADD, "relu_add"), source, TARGET, options=QUICK)
        ended.append(raised.value)

    asking = threading.Thread(target=ask)
    try:
        verifier.warm(TARGET)
        asking.start()
        until(lambda: list(tmp_path.glob("tmp????????")), 240)
        (folder,) = tmp_path.glob("tmp????????")
        assert verifier.judge_pid is not None
        os.kill(verifier.judge_pid, signal.SIGKILL)
        asking.join(240)
        assert ended and not folder.exists() and not os.listdir(verifier._root)
    finally:
        verifier.close()


def test_what_a_killed_client_held_is_removed_by_the_next_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (mine := tmp_path / "tmpmyfiles_").mkdir()
    (away := tmp_path / "away").mkdir()
    (tmp_path / "tmplinked__").symlink_to(away)
    lost, descriptor = folders.held("kernellab-x-")
    kept, other = folders.held("kernellab-x-")
    left, theirs = folders.elsewhere(lost), folders.elsewhere(kept)
    for name in ("tmplinked__", "away", "../away"):
        (Path(lost, "elsewhere") / name.replace("/", "_")).touch()
    os.utime(lost, (0, 0))
    os.close(descriptor)
    folders.sweep("kernellab-x-")
    os.close(other)
    assert not Path(lost).exists() and not Path(left).exists()
    assert all(Path(path).exists() for path in (kept, theirs, mine, away, tmp_path / "tmplinked__"))


def test_a_list_that_an_agent_wrote_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    of_a_person, of_an_agent = tmp_path / "tmp-of-a-person", tmp_path / "kernellab-agent-x"
    of_a_person.mkdir()
    of_an_agent.mkdir()
    (of_an_agent / "elsewhere").symlink_to("..")
    os.utime(of_an_agent, (0, 0))
    folders.sweep("kernellab-agent-", listed=False)
    assert of_a_person.exists() and not of_an_agent.exists()
