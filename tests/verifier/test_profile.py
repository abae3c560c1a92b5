"""Program counters within timed calls, by interrupts: nothing is halted, and each sample knows its call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.records import Stage, Verdict
from kernellab.task import load_task
from kernellab.verifier import VerifyOptions
from kernellab.verifier.attribution.counters import Mapped, Sample, Unseen, _without_holes, executable
from kernellab.verifier.attribution.objects import Kind, kind_of, may_be_copied, own_bytes
from kernellab.verifier.attribution.profile import Profile

from .kit import FIXED, RMS_CPP, Judge

#: computes in NumPy's object for ever, and says that it has begun
BUSY = "import numpy as n; a = n.random.rand(300, 300); b = a @ a; print(flush=True)\nwhile True: a @ a"


@pytest.fixture
def busy() -> Iterator[Any]:
    child = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield SimpleNamespace(pid=child.pid, halted=[])
    child.kill()
    child.communicate()


def _profile(worker: Any) -> Profile:
    try:
        return Profile(worker)
    except Unseen as unseen:
        pytest.skip(f"samples are not given here: {unseen}")


def test_samples_are_of_the_worker_and_of_the_call_alone(busy: Any) -> None:
    with _profile(busy) as profile:
        profile.begin(0.0)
        time.sleep(0.05)
        for _ in range(3):
            profile.skip()
            began = time.perf_counter()
            time.sleep(0.1)
            profile.take(busy, SimpleNamespace(began=began, seconds=time.perf_counter() - began))  # type: ignore[arg-type]
        # another's call leaves nothing behind
        profile.take(SimpleNamespace(pid=os.getpid(), halted=[]), SimpleNamespace(began=began, seconds=1.0))  # type: ignore[arg-type]
    seen = profile.of_all()
    assert len(seen.looks) == len(seen.weights) >= 6
    assert {s.pid for look in seen.looks for s in look} == {busy.pid}
    assert any("blas" in s.path for look in seen.looks for s in look), seen.looks[:4]


def test_only_calls_that_are_told_are_asked() -> None:
    profile = _profile(SimpleNamespace(pid=os.getpid(), halted=[]))
    profile.close()
    samples = [Sample(f"/s/{i}.so", 0, 0, 1) for i in range(20)]
    profile._calls, profile._seconds = [[s] for s in samples], [1.0 + i for i in range(20)]
    profile.keep([i % 2 == 0 for i in range(20)])
    assert [look[0] for look in profile.of_all().looks] == samples[::2]
    assert [look[0] for look in profile.of_calm().looks] == samples[:6:2], "the fastest of those that are told"


def test_code_in_the_midst_of_a_library_s_is_the_library_s() -> None:
    parts = [
        Mapped(0, 10, "/usr/lib/libblas.so", 100), Mapped(10, 20, "", 0), Mapped(20, 30, "/usr/lib/libblas.so", 120),
        Mapped(40, 50, "", 0),
    ]  # fmt: skip
    assert _without_holes(parts) == [parts[0], Mapped(10, 20, "/usr/lib/libblas.so", 110, False), *parts[2:]]


def test_a_name_makes_no_code_the_system_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may name its memory, which the map shows in brackets, as what the system itself maps there."""
    lines = "1000-2000 rwxp 00000000 00:00 0  [anon:vdso]\n3000-4000 r-xp 00000000 00:00 0  [vdso]\n"
    with monkeypatch.context() as instead:
        instead.setattr(Path, "read_text", lambda *_: lines)
        named, system = executable(1)
    assert (named.path, system.path) == ("", "[vdso]")
    assert own_bytes([named, system]) == 0x1000
    assert kind_of(system.path, 0, "/s") is Kind.OTHER and kind_of("[stack]", 0, "/s") is Kind.UNKNOWN


def test_pieces_of_own_code_count_together() -> None:
    pieces = [Mapped(i << 20, (i + 1) << 20, "", 0) for i in range(4)]
    libc = Mapped(9 << 20, 10 << 20, "/usr/lib/libc.so.6", 0)
    assert own_bytes([*pieces, libc, Mapped(0, 4096, "[vdso]", 0)]) == 4 << 20
    assert not may_be_copied(pieces[0]) and may_be_copied(pieces[0], own_bytes(pieces))


@pytest.fixture(scope="module")
def verdict(judge: Judge) -> Verdict:
    """On a kernel whose calls take longer than the framework's handling of tensors."""
    text = FIXED.replace("96, 200", "1024, 2048").replace("randn(200)", "randn(2048)")
    return judge(RMS_CPP, load_task(text, "rms"), VerifyOptions(budget=0.2, threads=1))


def test_a_verdict_tells_how_many_samples_its_timed_calls_have(verdict: Verdict) -> None:
    _profile(SimpleNamespace(pid=os.getpid(), halted=[])).close()
    assert verdict.passed, verdict.reason
    fast = next(s for s in verdict.stages if s.name is Stage.FAST)
    assert "program counters in them" in fast.note, fast.note


def test_own_code_that_takes_its_time_is_counted_as_own(verdict: Verdict) -> None:
    assert verdict.passed, verdict.reason
    honest = next(s for s in verdict.stages if s.name is Stage.HONEST)
    assert "program counters" in honest.note, honest.note
    assert verdict.own_share is not None and verdict.own_share > 0.9
