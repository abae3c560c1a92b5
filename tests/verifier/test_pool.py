"""What workers of one judge share, and what a candidate cannot reach of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kernellab.errors import VerifierError
from kernellab.sandbox import landlock
from kernellab.sandbox.caps import CAPS
from kernellab.target import Backend
from kernellab.task import load_task
from kernellab.verifier.judge.pool import Pool, inductor, memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker

PLANT = """
from pathlib import Path
Path({path!r}).write_text("planted")
def kernel(x):
    return x
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Tests that end its servers, or need one that is not ready, come last or have another."""
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def cold() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


def _environment(worker: Worker) -> dict[str, str]:
    return dict(worker.environment(worker.scratch))


def _build(worker: Worker, code: str) -> None:
    (worker.scratch / "src" / "kernel.py").write_text(code)
    worker.build({"entry_file": "kernel.py", "entry": "kernel"}, 60)


def test_what_is_preloaded_finds_a_home(pool: Pool) -> None:
    assert pool.server("cpp", Backend.CPU).environment["HOME"] == str(pool._root)


def test_a_candidate_cannot_plant_what_the_compiled_baseline_loads(pool: Pool, tmp_path: Path) -> None:
    if not landlock.abi():
        pytest.skip("this system has no Landlock: nothing is shared there")
    with pool.worker("cpp", Backend.CPU, "compile", 1) as compiled:
        shared = Path(_environment(compiled)["TORCHINDUCTOR_CACHE_DIR"])
    with pool.worker("cpp", Backend.CPU, "candidate", 1) as worker:
        _build(worker, PLANT.format(path=str(worker.scratch / "tmp" / "own")))
        assert (worker.scratch / "tmp" / "own").exists()
    with (
        pool.worker("cpp", Backend.CPU, "candidate", 1) as worker,
        pytest.raises(WorkerFailure, match="PermissionError"),
    ):
        _build(worker, PLANT.format(path=str(shared / "planted")))
    assert list(shared.iterdir()) == []


def test_without_landlock_compiled_baselines_share_nothing(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pool.worker("cpp", Backend.CPU, "compile", 1) as worker:
        assert "TORCHINDUCTOR_CACHE_DIR" not in _environment(worker)
        assert worker.writable == ()


def test_compiled_baselines_come_from_a_server_of_their_own_that_has_imported_the_compiler(pool: Pool) -> None:
    with pool.worker("cpp", Backend.CPU, "compile", 1) as worker:
        assert worker.server.environment.items() >= inductor().items()
        compiler = worker.server
        assert not compiler.failed
    with pool.worker("cpp", Backend.CPU, "candidate", 1) as worker:
        assert not inductor().keys() & worker.server.environment.keys()
        assert worker.server is not compiler


def test_a_baseline_is_begun_once_its_server_is_ready_and_let_go_on_demand(cold: Pool) -> None:
    pool = cold
    task = load_task("import torch\ndef reference(x):\n    return x + 1\ndef inputs():\n    return (torch.randn(8),)\n")
    begin = partial(pool.begin_baseline, "cpp", Backend.CPU, "eager", task, 1)
    assert begin() is None, "nobody waits for imports here"
    pool.server("cpp", Backend.CPU).wait_ready()
    worker = begin()
    assert worker is not None and begin() is worker
    assert worker.memory_limit == memory_limit(task, Backend.CPU) == CAPS.memory + 8 * 2 * 32, "in and out"
    pool.release()
    assert worker.closed and begin() is not worker


def test_what_is_preloaded_hears_of_a_gpu_without_a_driver_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from kernellab.verifier.judge.forkserver import _without_driver

    def driver() -> bool:
        raise AssertionError("no child could start CUDA any more")

    monkeypatch.setattr(torch.cuda, "is_available", driver)
    with _without_driver():
        assert torch.cuda.is_available() is (
            hasattr(torch._C, "_cuda_getDeviceCount") and os.path.exists("/dev/nvidiactl")
        )
    assert torch.cuda.is_available is driver


def test_a_worker_that_cannot_start_leaves_no_folder_and_no_descriptor(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = pool.server("cpp", Backend.CPU)
    monkeypatch.setattr(server, "request", lambda *_: {"error": "no room"})
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *a, **k: made.append(mkdtemp(*a, **k)) or made[-1])
    for role in ("candidate", "ordinary"):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(VerifierError, match="no room"):
            pool.worker("cpp", Backend.CPU, role, 1)
        assert len(os.listdir("/proc/self/fd")) == len(before)
    assert len(made) == 2 and not any(map(os.path.exists, made))


def test_a_fault_of_a_workers_start_is_told_as_the_judges(pool: Pool) -> None:
    """As an attribute without a slot in the worker's class was: no code of a kernel has run until then."""
    # on a busy machine the process may be gone before the judge looks for it
    words = r"could not start \(TypeError: .*\): a fault of kernellab, not of the kernel|exited before it was ready"
    with pytest.raises(VerifierError, match=words):
        Worker(pool.server("cpp", Backend.CPU), "candidate", 1, environment=lambda _: {"KEPT": 5})  # type: ignore[dict-item]


def test_a_worker_that_ends_before_it_was_ready_refuses_no_kernel(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(worker: Worker, seconds: float) -> dict[str, object]:
        raise WorkerFailure("exit", "ended its process without an answer")

    monkeypatch.setattr(Worker, "receive", receive)
    with pytest.raises(VerifierError, match="before it was ready"):
        Worker(pool.server("cpp", Backend.CPU), "candidate", 1)


def test_an_idle_server_and_its_baselines_end_before_a_kernel_for_another(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = load_task("import torch\ndef reference(x):\n    return x + 1\ndef inputs():\n    return (torch.randn(8),)\n")
    baseline = pool.baseline("cpp", Backend.CPU, "eager", task, 1, 60)
    first = pool.server("cpp", Backend.CPU)
    pool.end_idle("triton", Backend.INTERPRETER)
    assert first.alive() and not baseline.gone()
    monkeypatch.setattr("kernellab.verifier.judge.pool.IDLE_SECONDS", 0.0)
    pool.end_idle("cpp", Backend.CPU)
    assert first.alive() and pool.baseline("cpp", Backend.CPU, "eager", task, 1, 60) is baseline
    pool.end_idle("triton", Backend.INTERPRETER)
    assert not first.alive()
    assert pool.baseline("cpp", Backend.CPU, "eager", task, 1, 60) is not baseline
