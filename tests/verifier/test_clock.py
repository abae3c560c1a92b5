"""Judges of one machine take turns at its clock, and go before other work where they may."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from kernellab.verifier.judge import clock, placement, process_stats
from kernellab.verifier.judge.placement import Placement
from kernellab.verifier.judge.process_stats import Times

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets without a file, and schedulers, are Linux's")
HOLD = (
    "import time\nfrom kernellab.verifier.judge import clock\n"
    "with clock.alone('test-{pid}') as had:\n    print(had.had, flush=True)\n    time.sleep(600)\n"
)


def test_a_second_judge_waits_for_the_clock_and_gets_it_when_the_first_dies() -> None:
    name = f"test-{os.getpid()}"
    first = subprocess.Popen([sys.executable, "-c", HOLD.format(pid=os.getpid())], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first.stdout:
        assert first.stdout.readline().strip() == "True"
        with clock.alone(name, most=0.2) as had:
            assert not had.had and had.waited >= 0.2, "the clock is not waited for without end"
        threading.Timer(0.3, first.kill).start()
        with clock.alone(name, most=30) as had:
            assert had.had and 0.2 < had.waited < 30
        first.wait()
    with clock.alone(name, most=0.2) as had:
        assert had.had, "nothing is left of a clock that was let go"


def test_who_has_a_device_has_its_clock_and_others_wait_until_all_of_it_is_over() -> None:
    name = f"inner-{os.getpid()}"
    ask = HOLD.replace("'test-{pid}'", f"{name!r}, most=0.3").replace("600", "0")

    def others() -> str:
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    with clock.alone(name) as outer:
        with clock.alone(name, most=0.2) as inner:
            assert outer.had and inner.had and inner.waited == 0.0
        # the inner one's end gives nothing back
        other = subprocess.run(
            [sys.executable, "-c", ask.replace("600", "0")], capture_output=True, text=True, check=True
        )
        assert other.stdout.strip() == "False"
    other = subprocess.run([sys.executable, "-c", ask.replace("600", "0")], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "True"


def test_other_devices_have_clocks_of_their_own() -> None:
    with clock.alone(f"a-{os.getpid()}") as one, clock.alone(f"b-{os.getpid()}", most=0.2) as two:
        assert one.had and two.had


def test_a_timed_worker_goes_before_other_work_only_while_it_is_timed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        place = Placement(process.pid)
        place.update()
        if not place.ahead:
            pytest.skip("this user may not raise priorities")
        assert os.sched_getscheduler(process.pid) == os.SCHED_RR
        with placement.aside():
            assert os.sched_getparam(0).sched_priority > os.sched_getparam(process.pid).sched_priority
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        place.end()
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
    finally:
        process.kill()
        process.wait()


def test_what_the_judge_itself_held_up_is_no_waiting() -> None:
    after = {1: Times(900_000, 300_000)}
    assert process_stats.waited({}, after, 1e-3, outside=200e-6) == pytest.approx(100e-6)
    assert process_stats.waited({}, after, 1e-3, outside=500e-6) == 0.0
