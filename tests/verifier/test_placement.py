"""Where the threads of a timed worker run, what counts as waiting, and what two workers of one code differ by."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from kernellab.verifier.judge import placement, process_stats
from kernellab.verifier.judge.placement import Placement
from kernellab.verifier.judge.process_stats import Times
from kernellab.verifier.protocol import stats
from kernellab.verifier.timing import sides

BUSY = "import threading\nfor _ in range({n} - 1): threading.Thread(target=lambda: exec('while True: pass')).start()\n"
SPIN = BUSY + "print('up', flush=True)\nwhile True: pass"


@pytest.fixture
def spinning(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SPIN.format(n=request.param)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def _after_work(pid: int, cores: list[int]) -> Placement:
    """A placement that has seen every thread of ``pid`` work."""
    place = Placement(pid, cores)
    limit = time.monotonic() + 20
    while len(place.placed) < len(process_stats.threads(pid)) and time.monotonic() < limit:
        time.sleep(0.2)
        place.update()
        if len(cores) < len(process_stats.threads(pid)):
            break
    return place


@pytest.mark.parametrize("spinning", [2], indirect=True)
def test_each_thread_that_works_gets_a_core_and_the_first_is_free_in_its_call(
    spinning: subprocess.Popen[bytes],
) -> None:
    cores = placement.cores_in_order()
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    place = _after_work(spinning.pid, cores)
    held = {thread: os.sched_getaffinity(thread) for thread in place.placed}
    assert len(held) == 2
    assert sorted(map(sorted, held.values())) == sorted([[cores[0]], [cores[1]]])
    assert held[spinning.pid] == {cores[0]}
    place.release()
    assert os.sched_getaffinity(spinning.pid) == set(cores)
    place.hold()
    assert os.sched_getaffinity(spinning.pid) == {cores[0]}
    place.clear()
    assert all(os.sched_getaffinity(thread) == set(cores) for thread in held)


@pytest.mark.parametrize("spinning", [3], indirect=True)
def test_more_threads_than_cores_stay_free(spinning: subprocess.Popen[bytes]) -> None:
    cores = placement.cores_in_order()[:2]
    place = _after_work(spinning.pid, cores)
    assert place.placed == {}
    assert all(os.sched_getaffinity(t) == os.sched_getaffinity(0) for t in process_stats.threads(spinning.pid))


def test_a_single_thread_has_the_same_core_in_every_worker_and_the_judge_another() -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        cores = placement.cores_in_order()
        place = _after_work(process.pid, cores)
        assert os.sched_getaffinity(process.pid) == {cores[0]}
        with placement.aside():
            assert os.sched_getaffinity(0) == {cores[-1]}
        assert os.sched_getaffinity(0) == set(cores)
        assert set(place.placed) == {process.pid}
    finally:
        process.kill()
        process.wait()


def test_a_thread_that_only_woke_is_not_of_the_team() -> None:
    before = {1: Times(0, 0), 2: Times(0, 0), 3: Times(500, 0)}
    after = {1: Times(1_000_000, 0), 2: Times(20_000, 0), 3: Times(900_500, 0), 4: Times(800_000, 0)}
    assert placement.working(before, after) == [1, 3, 4]
    assert placement.working(after, after) == []


def test_what_is_timed_on_a_device_goes_before_other_work_on_any_core() -> None:
    free, usual = os.sched_getaffinity(0), os.sched_getscheduler(0)
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with placement.before_others([worker.pid]):
            assert os.sched_getaffinity(0) == free == os.sched_getaffinity(worker.pid)
            ahead = os.sched_getscheduler(0) == os.SCHED_RR
            told = os.sched_getscheduler(worker.pid)
            assert told == (os.SCHED_RR | os.SCHED_RESET_ON_FORK if ahead else usual)
        assert os.sched_getscheduler(0) == usual == os.sched_getscheduler(worker.pid)
        # one that has ended meanwhile
        worker.kill()
        worker.wait()
        with placement.before_others([worker.pid]):
            pass
    finally:
        worker.kill()
        worker.wait()


def test_waiting_counts_for_threads_that_worked_and_only_within_the_call() -> None:
    before = {1: Times(0, 0), 2: Times(0, 0), 3: Times(0, 0)}
    after = {1: Times(900_000, 50_000), 2: Times(10_000, 5_000_000), 3: Times(800_000, 7_000_000)}
    # thread 2 woke to sleep again; thread 3 began to wait before the call
    assert process_stats.waited(before, after, 1e-3) == pytest.approx(1e-3)
    assert process_stats.waited(before, {1: after[1]}, 1e-3) == pytest.approx(50e-6)


def test_what_it_takes_to_wake_a_thread_is_no_disturbance_but_more_is() -> None:
    side = _side("eager", [3e-4] * 8, [50e-6] * 6 + [90e-6, 400e-6])
    sides.mark_disturbed([side])
    assert side.disturbed == [False] * 7 + [True]
    busy = _side("eager", [5e-3] * 8, [4e-3] * 8)
    sides.mark_disturbed([busy])
    assert all(busy.disturbed), "a machine that is always busy is not calm for being so always"


def _side(name: str, seconds: list[float], waited: list[float]) -> sides.Side:
    return sides.Side(name, SimpleNamespace(), seconds=seconds, claimed=seconds, waited=waited)  # type: ignore[arg-type]


def test_workers_of_one_code_that_take_turns_are_told_apart_only_beyond_chance() -> None:
    draw = np.random.default_rng(5)
    team = sides.teams([_side("eager", [], []), _side("eager", [], []), _side("compile", [], [])], sides.Team)[0]
    assert len(team.workers) == 2
    beside = _side("candidate", list(draw.lognormal(0, 0.1, 80)), [0.0] * 80)
    team.maker = [i // 8 % 2 for i in range(80)]
    team.seconds = list(draw.lognormal(0, 0.1, 80))
    assert sides.between(team, beside) < 0.03
    team.seconds = [s * (1.3 if m else 1.0) for s, m in zip(team.seconds, team.maker, strict=True)]
    assert sides.between(team, beside) == pytest.approx(0.3, abs=0.08)


def test_pairs_that_were_disturbed_are_left_out_with_their_makers() -> None:
    team = sides.Team("eager", SimpleNamespace(), seconds=[1.0, 2.0, 3.0], claimed=[1.0, 2.0, 3.0], waited=[0.0] * 3)  # type: ignore[arg-type]
    team.maker, team.disturbed = [0, 0, 1], [False, True, False]
    ours = _side("candidate", [1.0, 1.0, 1.0], [0.0] * 3)
    ours.disturbed = [False] * 3
    sides.leave_out([team, ours], sides.calm_pairs([team, ours]))
    assert (team.seconds, team.maker, ours.seconds) == ([1.0, 3.0], [0, 1], [1.0, 1.0])


def test_what_two_workers_of_one_code_differ_by_widens_the_interval() -> None:
    both = [_side("eager", [], []), _side("eager", [], []), _side("compile", [], [])]
    eager, compiled = sides.teams(both, sides.Team)
    assert (eager.name, len(eager.workers), compiled.name, len(compiled.workers)) == ("eager", 2, "compile", 1)
    ours = _side("candidate", [1e-3] * 30, [0.0] * 30)
    eager.maker = [i % 2 for i in range(30)]
    eager.seconds = [1.21e-3 if maker else 1e-3 for maker in eager.maker]
    noise = sides.between(eager, ours)
    assert noise == pytest.approx(0.21)
    base = [1.1e-3] * 30
    assert stats.compare("eager", base, [1e-3] * 30).distinguishable
    assert not stats.compare("eager", base, [1e-3] * 30, noise=noise).distinguishable


def test_what_a_process_of_the_judges_forks_does_not_go_before_other_work() -> None:
    """A worker that its first process forked with its own priority built so, for minutes."""
    code = (
        "import os, sys\nsys.stdin.readline()\nchild = os.fork()\n"
        "if child: os.waitpid(child, 0)\nelse: print(os.sched_getscheduler(0), flush=True)"
    )
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **piped) as first:  # type: ignore[call-overload]
        placement.before_all(first.pid)
        told, _ = first.communicate("now\n")
    assert int(told) == os.SCHED_OTHER
