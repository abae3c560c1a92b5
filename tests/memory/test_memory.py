"""The memory of a workspace: what sessions found is remembered, found again, learnt from, forgotten and rebuilt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernellab.capture import capture
from kernellab.cli import main
from kernellab.errors import MemoryStoreError
from kernellab.lowering.headers import headers, with_headers, without_headers
from kernellab.memory.features import features
from kernellab.memory.memory import Memory
from kernellab.memory.records import Kernel, Purpose
from kernellab.memory.retrieval import Query
from kernellab.records import Source, Trust
from kernellab.session.memory_export import failures, kernels
from kernellab.session.record.fold import fold
from kernellab.session.record.journal import Journal
from kernellab.session.record.state import State
from kernellab.task import Task, load_task
from tests.session import freeze

RMS = """import torch


def reference(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def inputs():
    return torch.randn(64, 128), torch.randn(128)
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """A recorded session with a kernel that passed, one that was wrong, and one that was not built."""
    place = tmp_path_factory.mktemp("frozen")
    freeze.load(place)
    session = freeze.NAMES["rows"]
    found = fold(session, (event for _, event in Journal(place).read(session)))
    assert found is not None
    return found


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    (tmp_path / "kernellab.toml").touch()
    monkeypatch.chdir(tmp_path)
    yield Memory.open(tmp_path)


def task_of(state: State) -> Task:
    return load_task(state.created.text, state.created.name)


def remember(memory: Memory, state: State) -> str:
    task = task_of(state)
    (kernel,) = kernels(state, task, capture(task))
    assert memory.remember(kernel, task.text)
    return kernel.id


def query(text: str, dsl: str = "cpp", **changes: object) -> Query:
    task = load_task(text, "query")
    return Query(features(task, capture(task)), dsl, "cpu", "", **changes)  # type: ignore[arg-type]


def test_a_session_offers_what_passed_without_our_headers_and_never_what_failed(state: State) -> None:
    task = task_of(state)
    (kernel,) = kernels(state, task, capture(task))
    assert kernel.measured.trust is Trust.T2
    assert kernel.measured.time_ms is not None
    # the recorded kernel keeps the headers that are no longer as it was verified with
    today = headers("cpp")
    assert set(kernel.source.files) - set(today) == {"kernel.cpp", "kernel.py"}
    assert all(text != today.get(name) for name, text in kernel.source.files.items())
    own = kernel.source.model_copy(update={"files": {n: t for n, t in kernel.source.files.items() if n not in today}})
    assert "kl_math.h" in with_headers(own).files and without_headers(with_headers(own)).files == own.files
    assert kernel.provenance.place == state.id
    assert all(failure.change.startswith("---") for failure in failures(state, capture(task)))


def test_it_is_found_by_what_it_computes_and_not_when_its_computation_is_held_out(memory: Memory, state: State) -> None:
    remember(memory, state)
    own = query(state.created.text)
    (hit,) = memory.search(own)
    assert hit.logic == 1.0
    assert "100% of the computation" in hit.why
    assert memory.search(query(state.created.text, without=(own.features.hash,))) == []


def test_use_and_a_persons_word_outlive_a_rebuild_and_what_was_forgotten_stays_so(
    memory: Memory, state: State, tmp_path: Path
) -> None:
    id = remember(memory, state)
    memory.used([id, "nobody"], Purpose.DRAFT, 1.0)
    memory.judge(id, thumb=1, rationale="rows fit the cache")
    memory.mark_stale(lambda kernel: "another compiler")
    shutil.rmtree(tmp_path / ".kernellab" / "memory")

    again = Memory.open(tmp_path)
    assert again.rebuild() == 1
    row = again.store.get(id)
    assert row is not None
    assert (row.kernel.draft.uses, row.kernel.thumb, row.kernel.stale) == (1, 1, "another compiler")
    assert row.kernel.rationale == "rows fit the cache"

    assert again.forget(id) == 1
    assert again.rebuild() == 0
    task = task_of(state)
    (kernel,) = kernels(state, task, capture(task))
    assert not again.remember(kernel, task.text)
    assert again.remember(kernel, task.text, asked=True)
    assert again.rebuild() == 1 and again.forget(id) == 1 and again.rebuild() == 0


def test_of_many_alike_the_fastest_are_kept(memory: Memory, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab.memory.memory.MOST_ALIKE", 2)
    task = task_of(state)
    (kernel,) = kernels(state, task, capture(task))

    def variant(number: int, speedup: float) -> bool:
        source = kernel.source.model_copy(update={"files": {**kernel.source.files, "kernel.py": f"# {number}"}})
        measured = kernel.measured.model_copy(update={"speedup": speedup})
        changes = {"source": source, "measured": measured, "sketch": f"{kernel.sketch}# {number}"}
        return memory.remember(kernel.model_copy(update=changes), task.text)

    assert [variant(1, 1.0), variant(2, 2.0), variant(3, 0.5), variant(4, 3.0)] == [True, True, False, True]
    assert sorted(row.kernel.measured.speedup or 0 for row in memory.store.kernels()) == [2.0, 3.0]


def test_a_word_on_an_entry_that_is_not_there_is_one_sentence(memory: Memory) -> None:
    with pytest.raises(MemoryStoreError, match="no entry 'nobody'"):
        memory.judge("nobody", thumb=1)


def test_a_line_of_a_newer_kernellab_is_named(memory: Memory, tmp_path: Path) -> None:
    Journal(tmp_path).add("memory", ['{"kind":"dreamt"}'])
    with pytest.raises(MemoryStoreError, match="cannot read"):
        memory.rebuild()


def test_the_command_line_searches_exports_judges_and_forgets(
    memory: Memory, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id = remember(memory, state)
    (tmp_path / "rms.py").write_text(RMS)

    def told(*arguments: str, code: int = 0) -> dict[str, object]:
        assert main(["memory", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    assert told("stats")["kernels"] == 1
    assert set(told("search", "rms.py", "--dsl", "cpp", code=told_code(memory, RMS))) == {"hits"}
    (found,) = told("search", state.created.name)["hits"]  # type: ignore[misc]
    assert found["id"] == id
    assert told("judge", id, "--thumb", "-1")["thumb"] == -1
    assert told("export", "--out", "all.jsonl")["kernels"] == 1
    line = json.loads((tmp_path / "all.jsonl").read_text())
    assert line["task"] == state.created.text
    assert told("forget", id)["forgotten"] == 1
    assert told("forget", id, code=1)["forgotten"] == 0
    assert told("rebuild")["kernels"] == 0
    assert main(["memory", "import", "nowhere.jsonl"]) == 2
    (tmp_path / "bad.jsonl").write_text('{"dsl": "cpp"}\n')
    assert main(["memory", "import", "bad.jsonl"]) == 2
    assert "line 1, is not a kernel" in capsys.readouterr().err


def told_code(memory: Memory, text: str) -> int:
    """What a search for ``text`` exits with: 0 where anything is near enough."""
    return 0 if memory.search(query(text)) else 1


def test_an_imported_kernel_is_verified_first_and_an_import_goes_on_where_it_stopped(
    memory: Memory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = "import torch\n\n\ndef reference(x):\n    return x * 2\n\n\ndef inputs():\n    return torch.randn(8, 5000)\n"
    good = GOOD.replace("FACTOR", "2")
    rows = [{"task": task, "name": "twice", "dsl": "cpp", "files": {"kernel.py": text}, "licence": "MIT"}
            for text in (good, GOOD.replace("FACTOR", "3"))]  # fmt: skip
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["memory", "import", "some.jsonl", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kept"], [row["place"] for row in told["refused"]]) == (1, ["some.jsonl:2"])
    (row,) = memory.store.kernels()
    assert row.kernel.provenance.licence == "MIT"
    # what was judged, kept or refused, is not judged again
    assert main(["memory", "import", "some.jsonl", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["refused"] == []
    poisoned_or_outdated(memory, row.kernel, task, capsys)


def poisoned_or_outdated(memory: Memory, kernel: Kernel, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry that says what is not so is stale, and gone when it is judged; one that holds gets today's figures."""
    measured = kernel.measured.model_copy(update={"verifier": "an older one", "speedup": 99.0})
    source = Source(dsl="cpp", files={"kernel.py": GOOD.replace("FACTOR", "3")})
    false = kernel.model_copy(update={"source": source, "measured": measured})
    assert memory.remember(false, task)
    assert main(["memory", "verify", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"judged": 1, "passed": 0, "library_left": 0}
    assert [row.kernel.id for row in memory.store.kernels()] == [kernel.id]
    assert main(["memory", "verify", kernel.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"judged": 1, "passed": 1, "library_left": 0}
    (again,) = memory.store.kernels()
    assert again.kernel.provenance.origin == "verified again"
    assert again.kernel.provenance.licence == "MIT"
    assert main(["memory", "verify", "nobody"]) == 2
    assert "not in the journal" in capsys.readouterr().err


GOOD = '''import torch
import tvm_ffi.cpp

CODE = """
#include <tvm/ffi/container/tensor.h>

void twice(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  int64_t n = x.size(0) * x.size(1);
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * FACTOR;
}
"""
lib = tvm_ffi.cpp.load_inline(name="twice", cpp_sources=CODE, functions="twice")


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.twice(x, y)
    return y
'''
