"""What a time is worth: intervals on calm and busy machines, what is halted, how outputs are read, roofs kept."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from kernellab.conditions import Condition, Mark
from kernellab.errors import VerifierError
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions, sandbox_level
from kernellab.verifier.audit import bound
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.compare.compare import Limits, accepts
from kernellab.verifier.compare.fast_accept import near as is_near
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.servers import ForkServer
from kernellab.verifier.protocol import process_memory, stats
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.stages import fast
from kernellab.verifier.stages.context import Findings
from kernellab.verifier.timing.checks import Checks
from kernellab.verifier.timing.contents import Contents
from kernellab.verifier.timing.machine import MachineUse
from kernellab.verifier.timing.sides import Result, Side, enough, less_handshake, mark_disturbed

from .kit import QUICK, RMS_CPP, TARGET, Judge


def _noisy(median: float, count: int, seed: int, spread: float = 0.02) -> list[float]:
    return list(median * np.random.default_rng(seed).lognormal(0.0, spread, count))


def test_a_clear_difference_is_told_and_equal_sides_are_not() -> None:
    base, other = _noisy(2e-3, 40, 1), _noisy(1e-3, 40, 2)
    found = stats.compare("eager", base, other)
    assert found.distinguishable
    assert found.low <= 2.0 <= found.high
    assert sum(stats.compare("eager", base, _noisy(2e-3, 40, s)).distinguishable for s in range(3, 43)) <= 2


def test_a_busy_machine_widens_the_interval_to_what_the_waiting_could_hide() -> None:
    base, slow = _noisy(1e-3, 20, 1), _noisy(5e-3, 20, 2)
    calm = stats.compare("eager", base, slow)
    assert calm.high < 0.25
    waits = ([0.0] * 20, [4e-3] * 20)
    busy = stats.compare("eager", base, slow, busy=True, waited=waits)
    assert not busy.distinguishable
    assert busy.low <= calm.low


def test_disturbances_of_a_few_calls_do_not_move_a_busy_machines_figure() -> None:
    base = _noisy(1e-3, 30, 1)
    other = [t * (20 if i % 2 else 1) for i, t in enumerate(_noisy(1e-3, 30, 2))]
    found = stats.compare("eager", base, other, busy=True)
    assert found.speedup == pytest.approx(1.0, rel=0.1)
    assert found.low <= 1.0 <= found.high


def test_a_run_ends_where_the_rest_of_its_budget_would_tell_little_more() -> None:
    noisy = [1.0 + (i * 7919 % 100) / 100 for i in range(40)]
    base, code = noisy, [1.5 * x for x in noisy[::-1]]
    assert not stats.settled(base, code, 0.08) and not stats.settled(base, code, 0.08, more=8.0)
    assert stats.settled(base, code, 0.08, more=1.1)

    def sides(pairs: int, calm: int) -> list[Side]:
        held_up = [i >= calm for i in range(pairs)]
        nobody: Any = None
        return [Side("a", nobody, code[:pairs], disturbed=held_up), Side("b", nobody, base[:pairs], disturbed=held_up)]

    # on a machine that disturbs nearly every call the few that it leaves alone will not be enough for an interval
    assert enough(sides(32, 1), 0.7, 1.5) and not enough(sides(30, 0), 0.7, 1.5)
    assert not enough(sides(32, 3), 0.7, 1.5)
    # enough of them are told alone, and are worth the rest of the budget as long as it sharpens what they say
    assert not enough(sides(40, 40), 0.2, 1.5) and enough(sides(40, 40), 1.4, 1.5)
    # with nothing to compare, what is calm is measured to the end
    assert not enough(sides(40, 40)[:1], 1.4, 1.5)


def test_waiting_for_a_core_is_counted() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this system does not count it")
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    pair = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        time.sleep(0.6)
        assert sum(t.waited for p in pair for t in process_stats.threads(p.pid).values()) > 50e6
    finally:
        for process in pair:
            process.kill()
            process.wait()


def test_threads_that_wait_for_each_other_do_not_make_a_machine_busy() -> None:
    def sides(ours: float, theirs: float) -> list[Side]:
        worker = cast(Any, None)
        return [Side(name, worker, [1e-3] * 9, waited=[w] * 9) for name, w in (("candidate", ours), ("eager", theirs))]

    alone, beside = sides(5e-4, 0.0), sides(5e-4, 5e-4)
    mark_disturbed(alone)
    mark_disturbed(beside)
    assert not any(alone[0].disturbed) and all(beside[0].disturbed) and all(beside[1].disturbed)


def test_calls_that_wait_longer_than_others_had_the_cores_wait_for_themselves() -> None:
    """A kernel waits for its own thread in half of its calls, so that those are left out and the quick ones told."""

    def sides() -> list[Side]:
        nobody: Any = None
        waits = [5e-3 if i % 2 else 0.0 for i in range(20)]
        calls = [6e-3 if i % 2 else 1e-3 for i in range(20)]
        return [Side("candidate", nobody, calls, waited=waits), Side("eager", nobody, [1e-3] * 20, waited=[0.0] * 20)]

    alone, explained, unknown = sides(), sides(), sides()
    mark_disturbed(alone, 1e-3)
    mark_disturbed(explained, 0.06)
    mark_disturbed(unknown)
    assert not any(alone[0].disturbed)
    assert sum(explained[0].disturbed) == sum(unknown[0].disturbed) == 10


def test_what_other_processes_used_of_the_cores_is_told_from_what_is_ours() -> None:
    cores = sorted(os.sched_getaffinity(0))
    worker: Any = SimpleNamespace(used=lambda: 0.0)
    machine = MachineUse([worker], cores)
    if machine.others() is None:
        pytest.skip("this system counts no processor time")
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    ours = machine.others()
    with subprocess.Popen([sys.executable, "-c", "import time\nwhile time.process_time() < 0.6: pass"]) as other:
        other.wait()
    theirs = machine.others()
    assert ours is not None and theirs is not None and theirs - ours > 0.5
    # a worker's time is none of theirs
    worker.used = lambda: 0.5
    after = machine.others()
    assert after is not None and after < theirs - 0.3


def test_a_halted_fork_server_goes_on_with_the_next_request() -> None:
    server = ForkServer([], {})
    try:
        server.wait_ready()
        server.pause()
        limit = time.monotonic() + 5
        while Path(f"/proc/{server.process.pid}/stat").read_text().split()[2] != "T":
            assert time.monotonic() < limit
        assert server.request({"ended": 1}) == {"code": None}
    finally:
        server.close()


def test_outputs_are_read_through_proc_where_the_system_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_vm_read", lambda *_: (-1, errno.EPERM))
    monkeypatch.setattr(process_memory, "READ_BY_FILE", set())
    held = ctypes.create_string_buffer(bytes(range(200)) * 100, 20000)
    got = process_memory.read_bytes(os.getpid(), ctypes.addressof(held), 20000)
    assert bytes(got.numpy()) == held.raw
    assert process_memory.READ_BY_FILE


def test_a_system_that_lets_nothing_be_read_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(process_memory, "_vm_read", lambda *_: (-1, errno.EPERM))
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(VerifierError, match="SYS_PTRACE"):
        process_memory._read(os.getpid(), 0, 0, 8)


def test_measuring_the_roofs_leaves_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "_COPY_BYTES", 1 << 12)
    monkeypatch.setattr(bound, "_GEMM", 8)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert bound._measured(2).copy > 0
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_roofs_are_measured_once_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = bound.Roofs(1e10, 8e9, 1e11, 5e10, "2026-01-02")
    calls: list[int] = []
    monkeypatch.setenv(bound.CACHE, str(tmp_path))

    def measure(threads: int) -> bound.Roofs:
        calls.append(threads)
        return measured

    monkeypatch.setattr(bound, "_measured", measure)
    for _ in range(2):
        bound.roofs.cache_clear()
        assert bound.roofs(2) == measured
    assert calls == [2]
    bound._kept(2, bound.Roofs(1e10, 8e9, 1e11, 5e10))
    bound.roofs.cache_clear()
    assert bound.roofs(2) == measured and calls == [2, 2], "roofs of an unknown day are measured again"
    bound.roofs.cache_clear()


def test_the_sandbox_is_told_without_a_judge() -> None:
    level = sandbox_level()
    assert level == "process" or "rlimits" in level


def test_baselines_are_built_in_the_background(judge: Judge) -> None:
    options = VerifyOptions(baselines=("eager",), threads=1)
    limit = time.monotonic() + 120
    while not judge.verifier.prepare(judge.scale, TARGET, options):
        assert time.monotonic() < limit
        time.sleep(0.05)
    verdict = judge(RMS_CPP, judge.scale, QUICK)
    assert verdict.passed, verdict.reason
    assert verdict.time is not None
    # on a busy machine only the calm calls count
    assert verdict.time.samples >= (3 if "busy machine" in verdict.label else TIMING.min_pairs)
    assert 0.0 <= verdict.environment.disturbed <= 1.0


def test_a_verifier_can_be_closed_while_baselines_build() -> None:
    with Verifier() as verifier:
        task = Judge(verifier).scale
        verifier.prepare(task, TARGET, VerifyOptions(baselines=("eager",)))
        pid = verifier.judge_pid
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()


def test_the_figures_of_a_busy_machine_are_those_of_its_calm_calls_and_agree() -> None:
    generator = random.Random(7)
    base = [0.004 + (generator.random() < 0.6) * generator.random() * 0.1 for _ in range(60)]
    ours = [0.002 + (generator.random() < 0.8) * generator.random() * 0.3 for _ in range(60)]
    found = stats.compare("eager", base, ours, busy=True)
    time = stats.timing(stats.calm(ours))
    assert found.speedup == pytest.approx(found.baseline_time.median_ms / time.median_ms)
    assert found.speedup == pytest.approx(2.0, rel=0.2)
    assert found.low < 1.0 < found.high, "single pairs say nothing here, and the interval must"


def test_a_handshake_that_was_dear_does_not_make_a_call_free() -> None:
    assert less_handshake(1e-3, 4e-5) == pytest.approx(9.6e-4)
    assert less_handshake(5e-4, 2e-3) == pytest.approx(1e-4), "a busy machine's echo may cost more than the call"


def test_of_little_data_every_timed_call_is_checked_and_of_much_a_secret_third(judge: Judge) -> None:
    little, much = (Checks(Comparison(judge.scale), size) for size in (1 << 20, TIMING.check_all_bytes + 1))
    assert all(little.wanted() for _ in range(50))
    drawn = [much.wanted() for _ in range(400)]
    assert drawn[0]
    assert 90 < sum(drawn) < 180
    assert drawn != [Checks(Comparison(judge.scale), TIMING.check_all_bytes + 1).wanted() for _ in range(400)]


def test_what_is_near_in_every_element_keeps_every_rule_and_little_else_is_taken_for_near() -> None:
    want = torch.randn(300, 500, generator=torch.Generator().manual_seed(3))
    limits = Limits.of("float32", {}, False)
    near = want * (1 + 5e-6)
    assert is_near(near, want, limits.floor) is not None and accepts(near, want, limits) is not None
    off = want.clone()
    off[299, 499] *= 1.001
    assert is_near(off, want, limits.floor) is None
    bad = want.clone()
    bad[0, 0] = float("nan")
    assert is_near(bad, want, limits.floor) is None


def test_new_contents_are_never_those_of_before_and_hold_only_values_like_the_first(judge: Judge) -> None:
    task = load_task(
        "import torch\ndef reference(x):\n    return x\ndef inputs():\n    return torch.rand(1200, 1000)\n"
    )
    base = task.module().sample()
    contents = Contents(task, base, [True])
    one, two = contents.next(0)[0].clone(), contents.next(1)[0]
    assert one.shape == two.shape == base[0].shape
    assert (one == two).float().mean() < 0.01 and (one == base[0]).float().mean() < 0.01
    assert float(two.min()) >= 0 and float(two.max()) <= 1


def test_what_any_repeat_of_the_timing_shows_is_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def repeat(*found: Condition, clocks: tuple[float, float] = (1e-3, 1e-3)) -> Result:
        candidate = Side("candidate", cast("Any", None), seconds=_noisy(1e-3, 40, 1))
        return Result(candidate, [], 40, 0.0, clocks, conditions=found)

    repeated, slower = Mark(kind="contents-repeated"), Mark(kind="slower-on-new-contents")
    results = iter((repeat(repeated), repeat(repeated, slower), repeat(clocks=(1e-3, 1.0))))
    monkeypatch.setattr(fast, "measured", lambda stages, setup: next(results))
    monkeypatch.setattr(fast, "_bound", lambda *given: None)
    monkeypatch.setattr(fast, "_own_when_timed", lambda *given: 0)
    options, findings = SimpleNamespace(repeat=3, rivals=()), Findings()
    context = SimpleNamespace(options=options, findings=findings, tell=lambda text: None)
    stages = SimpleNamespace(context=context, baselines=lambda: (), profiles=[], threads=2)
    fast.fast(cast("Any", stages))
    assert findings.conditions == [repeated, slower, Mark(kind="clocks-disagree")]
