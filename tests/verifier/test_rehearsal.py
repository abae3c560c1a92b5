"""What a JIT makes for each size is made ahead, by processes that have the candidate's cache and no contents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kernellab.dsls import get_adapter
from kernellab.records import Author, Source, Trust
from kernellab.target import Backend
from kernellab.task import load_task
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.pool import Pool
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.protocol.rules import CORRECT, DEVICE
from kernellab.verifier.stages.context import Request
from kernellab.verifier.stages.pipeline import Verification
from kernellab.verifier.stages.rehearsal import _alike

TASK = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 4096)\n"
    "def reference(x):\n    return 2 * x\ndef inputs(M=8, N=96):\n    return torch.randn(M, N)\n",
    "doubled",
)
#: a call at a new size writes into the cache; what was met first by the process that answers is told
JIT = """
import ctypes, json, os, torch
HERE = os.environ.get("JIT_CACHE") or os.environ["HOME"]
CALLS = []
def kernel(x):
    M, N = x.shape
    made = os.path.join(HERE, f"{M}-{N}")
    met = os.path.exists(made)
    CALLS.append(made)
    if not met:
        open(made, "w").write(json.dumps([os.environ["HOME"], bool(x.any())]))
    return WHAT
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


def verified(
    what: str, pool: Pool, monkeypatch: pytest.MonkeyPatch, processes: bool = True
) -> tuple[bool, list[tuple[str, bool]], str]:
    """Has it passed, who made each size of what, and the home folder of the process that answers."""
    adapter = get_adapter("cpp")
    made: list[tuple[str, bool]] = []
    homes: list[str] = []

    def environment(backend: Backend, scratch: Path) -> Mapping[str, str]:
        return {"JIT_CACHE": str(scratch)}

    closed = Worker.close

    def close(worker: Worker) -> None:
        if worker.role == "candidate" and not worker.closed and not worker.writable:
            homes.append(str(worker.scratch / "home"))
            files = [f for place in ("cache", "home") for f in (worker.scratch / place).glob("[0-9]*-[0-9]*")]
            made.extend(tuple(json.loads(f.read_text())) for f in files)
        closed(worker)

    monkeypatch.setattr(type(adapter), "environment", lambda _, backend, scratch: environment(backend, scratch))
    monkeypatch.setattr(type(adapter), "compiles_in_calls", processes)
    monkeypatch.setattr(Worker, "close", close)
    # as many sizes from all over the ranges as are compiled ahead
    monkeypatch.setattr(
        "kernellab.verifier.stages.correct.CORRECT", replace(CORRECT, range_sizes=DEVICE.rehearsed_sizes)
    )
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    source = Source(dsl="cpp", files={"kernel.py": JIT.replace("WHAT", what)}, origin=Author.MODEL)
    options = VerifyOptions(level=Trust.T1, allow_library=True, threads=1)
    request = Request(TASK.text, TASK.name, source, Backend.CPU, "cpu", options)
    verdict = Verification(request, pool, lambda _: None).run()
    return verdict.passed, made, homes[0]


def test_sizes_are_met_ahead_by_other_processes_that_see_no_contents(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, made, home = verified("2 * x", pool, monkeypatch)
    assert passed
    others = [(by, contents) for by, contents in made if by != home]
    assert len(others) > 20 and len({by for by, _ in others}) == 2, made
    assert not any(contents for _, contents in others)
    # the smoke test's, one that comes of answers, the long one, and those that are left out
    assert len(made) - len(others) <= 3 + DEVICE.unrehearsed_sizes


def test_a_kernel_that_is_right_for_sizes_alone_that_were_compiled_ahead_is_refused(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word of them may lie in the cache; the smoke test's size comes before."""
    assert not verified("2 * x if met or len(CALLS) == 1 else 0 * x", pool, monkeypatch)[0]


def test_a_first_compile_before_workers_are_forked_asks_no_driver_and_leaves_no_thread(tmp_path: Path) -> None:
    """A second one is quick then; a process that has asked CUDA for anything could fork no worker that uses it."""
    code = (
        "import os, time\nfrom pathlib import Path\nfrom kernellab.verifier.judge.forkserver import _compile_one\n"
        "def seconds():\n    began = time.process_time()\n    _compile_one()\n    return time.process_time() - began\n"
        "first = seconds()\nos.environ['TRITON_CACHE_DIR'] += '/second'\nsecond = seconds()\n"
        "threads, maps = os.listdir('/proc/self/task'), Path('/proc/self/maps').read_text()\n"
        "print(second < first / 2, len(threads), 'libcuda' in maps)\n"
    )
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "1", "False"]


@pytest.mark.parametrize("what", ["2 * x if x.any() else ctypes.string_at(0)", "2 * x if x.any() else exit(1)"])
def test_what_fails_there_alone_is_no_fault(what: str, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(what, pool, monkeypatch)[0]


def test_a_dsl_that_compiles_nothing_in_calls_has_none(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, made, home = verified("2 * x", pool, monkeypatch, processes=False)
    assert passed and {by for by, _ in made} == {home}


def test_where_judges_take_turns_at_a_device_nothing_is_compiled_ahead(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such calls would run next to another judge's timing."""
    monkeypatch.setenv(turns.VARIABLE, f"device:{tmp_path / 'turns'}")
    passed, made, home = verified("2 * x", pool, monkeypatch)
    assert passed and {by for by, _ in made} == {home}


def test_a_number_is_replaced_by_one_that_is_compiled_alike() -> None:
    values = (1, 48, 7, 0.25, True, None)
    assert [_alike(value) for value in values] == [1, 16, 3, 1.0, True, None]
