"""Turns at the clock: who times is alone, and comes to it though others keep working."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from kernellab.verifier.judge import turns

IMPORT = "from kernellab.verifier.judge import turns"
WORKER = """
import sys, time
from kernellab.verifier.judge import turns

until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    with turns.working():
        print("in", time.monotonic(), flush=True)
        time.sleep(0.02)
        print("out", time.monotonic(), flush=True)
"""


def test_nobody_works_while_one_is_timed_and_the_one_comes_to_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"all:{tmp_path}/turns")
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, "3"], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    alone = []
    for _ in range(3):
        with turns.working(), turns.alone() as waited:
            assert waited < 2.0
            began = time.monotonic()
            time.sleep(0.1)
            alone.append((began, time.monotonic()))
    for worker in workers:
        found = [line.split() for line in worker.communicate()[0].splitlines()]
        for word, at in found:
            assert not any(begin < float(at) < end for begin, end in alone), f"a worker was {word} beside a timing"


COMPILES = """
import sys
from kernellab.verifier.judge import turns

with turns.working():
    with turns.off_device():
        print("compiling", flush=True)
        sys.stdin.readline()
    print("working", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(("kind", "beside"), [("device", True), ("all", False)])
def test_on_a_device_one_is_timed_while_another_compiles_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, beside: bool
) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"{kind}:{tmp_path}/turns")
    other = subprocess.Popen([sys.executable, "-c", COMPILES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdin is not None

    def type_lines(lines: str) -> None:
        assert other.stdin is not None
        other.stdin.write(lines)
        other.stdin.flush()

    with other, other.stdin, other.stdout:
        assert other.stdout.readline() == "compiling\n"
        # under "all" it is waited for until it has come out
        threading.Timer(1.0, type_lines, ["\n" if beside else "\n\n"]).start()
        began = time.monotonic()
        with turns.alone():
            assert (time.monotonic() - began < 0.9) is beside
            if beside:
                time.sleep(1.3)
                assert not wait([other.stdout.fileno()], 0), "it works on the device only after the timing"
        assert other.stdout.readline() == "working\n"
        if beside:
            type_lines("\n")
        assert other.wait(20) == 0


def test_what_a_compiling_one_does_on_the_device_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")
    calls = COMPILES.replace("    with turns.off_device():", "    with turns.off_device(), turns.on_device():")
    other = subprocess.Popen([sys.executable, "-c", calls], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdin is not None
    with other, other.stdin, other.stdout:
        assert other.stdout.readline() == "compiling\n"
        threading.Timer(1.0, lambda: other.stdin and (other.stdin.write("\n\n"), other.stdin.flush())).start()
        began = time.monotonic()
        with turns.alone():
            assert time.monotonic() - began > 0.9
        assert other.wait(20) == 0


def test_turns_by_default_are_not_a_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, "")  # what is set below is taken back with it
    monkeypatch.delenv(turns.VARIABLE)
    monkeypatch.setattr(turns, "_value_set_here", "")
    assert not turns.are_given()
    turns.by_default("device:/tmp/own")
    assert turns.environment() == {turns.VARIABLE: "device:/tmp/own"} and not turns.are_given()
    monkeypatch.setenv(turns.VARIABLE, "device:/tmp/parents")
    turns.by_default("device:/tmp/own")
    assert turns.environment() == {turns.VARIABLE: "device:/tmp/parents"} and turns.are_given()


def test_without_a_lock_file_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(turns.VARIABLE, raising=False)
    with turns.working(), turns.alone() as waited:
        assert waited == 0.0
    assert turns.environment() == {}


STEPS = """
import sys, time
from kernellab.verifier.judge import turns

until = time.monotonic() + 60
with turns.working():
    print("in", flush=True)
    while time.monotonic() < until:
        if turns.wanted():
            turns.give_way()
            print("went on", time.monotonic(), flush=True)
            break
        time.sleep(0.02)
"""


def test_who_works_long_gives_way_between_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"all:{tmp_path}/turns")
    worker = subprocess.Popen([sys.executable, "-c", STEPS], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None and worker.stdout.readline()
    with turns.working():
        assert not turns.wanted(), "one that works does not wait for the clock"
        with turns.alone():
            time.sleep(0.2)
            ended = time.monotonic()
    word, _, at = worker.communicate(timeout=60)[0].strip().rpartition(" ")
    assert word == "went on" and float(at) >= ended


HOLDER = """
import sys, time
from kernellab.verifier.judge import turns

with turns.share(float(sys.argv[1])):
    print("in", time.monotonic(), sys.argv[1], flush=True)
    time.sleep(0.1)
    print("out", time.monotonic(), sys.argv[1], flush=True)
"""


def test_shares_of_the_memory_never_add_up_to_more_than_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")
    parts = ["0.6", "0.3", "2.0", "0.5", "0.1", "0.6"]
    holders = [subprocess.Popen([sys.executable, "-c", HOLDER, p], stdout=subprocess.PIPE, text=True) for p in parts]
    events = [line.split() for h in holders for line in h.communicate(timeout=60)[0].splitlines()]
    assert len(events) == 2 * len(parts), "everyone comes to his share"
    held = 0.0
    for word, _, part in sorted(events, key=lambda e: (float(e[1]), e[0] == "in")):
        held += min(1.0, float(part)) * (1 if word == "in" else -1)
        assert held <= 1.01


def test_shares_that_fit_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")
    # locks belong to descriptors, so that one process can hold several shares
    with turns.share(0.5), turns.share(0.25), turns.share(0.25):
        pass


def test_one_that_was_timed_works_on_before_the_next_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")
    done: list[str] = []
    with turns.working():
        with turns.alone(lambda: done.append("before")):
            other = subprocess.Popen([sys.executable, "-c", TIMED], stdout=subprocess.PIPE, text=True)
            assert other.stdout is not None
            other.stdout.readline()
            time.sleep(0.3)
        ended = time.monotonic()
    assert done == ["before"]
    assert float(other.communicate(timeout=60)[0]) >= ended, "it waits for work that goes on"


TIMED = """
import time
from kernellab.verifier.judge import turns

print("there", flush=True)
with turns.alone():
    print(time.monotonic(), flush=True)
"""


def test_one_who_needs_little_of_the_memory_passes_one_who_waits_for_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")
    with turns.share(0.3):
        much = subprocess.Popen([sys.executable, "-c", HOLDER, "0.9"], stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        with turns.share(0.3) as waited:
            # the one who waits looks for its share now and then
            assert waited < 5.0
    assert "in" in much.communicate(timeout=60)[0]
    with turns.share(0.3):
        patient = subprocess.Popen(
            [sys.executable, "-c", f"{IMPORT}\nturns._PASSED_SECONDS = 0\n{HOLDER}", "0.9"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(0.7)
        little = subprocess.Popen([sys.executable, "-c", HOLDER, "0.3"], stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
    first, second = (float(h.communicate(timeout=60)[0].split()[1]) for h in (patient, little))
    assert first < second, "not for ever"


TURN = """
import time
from kernellab.verifier.judge import turns

with turns.working():
    print("there", flush=True)
    with turns.alone():
        time.sleep(0.3)
        print("timed", time.monotonic(), flush=True)
"""
NEXT = """
import time
from kernellab.verifier.judge import turns

with turns.working():
    print("works", time.monotonic(), flush=True)
"""


def test_the_clock_goes_from_one_to_the_next_before_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path}/turns")

    def started(code: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)

    with turns.working():
        one = started(TURN)
        assert one.stdout is not None and one.stdout.readline()
        until = time.monotonic() + 60
        while not turns.wanted() and time.monotonic() < until:
            time.sleep(0.01)
        worker = started(NEXT)
        time.sleep(0.5)
        other = started(TURN.replace("with turns.working():", "if True:"))
        assert other.stdout is not None and other.stdout.readline()
        time.sleep(0.3)
    works, *timed = (float(p.communicate(timeout=60)[0].split()[-1]) for p in (worker, one, other))
    assert max(timed) <= works
