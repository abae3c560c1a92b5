"""Faults of the memory: each is one sentence, nothing that was acknowledged is lost, and the session works on."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kernellab.errors import MemoryStoreError
from kernellab.journal import JournalFile
from kernellab.memory import store as module
from kernellab.memory.features import SHAPE, Features
from kernellab.memory.memory import Memory
from kernellab.memory.records import Skill
from kernellab.memory.store import Store
from tests.memory.test_store import ORIGIN, kernel, row, vector

_ROOT = Path(__file__).parents[2]


def look(text: str, name: str, sizes: object) -> Features:
    return Features(f"graph of {name}", {}, {}, vector(0), np.zeros(SHAPE, dtype=np.float32), "float32")


def memory(place: Path) -> Memory:
    return Memory(Store(str(place / ".kernellab" / "memory")), JournalFile(place), look)


def test_a_disk_that_vanishes_is_one_sentence_and_the_journal_makes_the_store_again(tmp_path: Path) -> None:
    held = memory(tmp_path)
    assert held.remember(kernel("rms"), "a task")
    shutil.rmtree(tmp_path / ".kernellab" / "memory")
    with pytest.raises(MemoryStoreError, match="cannot be") as raised:
        list(held.store.kernels())
    assert "rebuild" in raised.value.remedy
    assert memory(tmp_path).rebuild() == 1


def test_a_full_disk_is_one_sentence_and_what_was_there_stays(tmp_path: Path) -> None:
    held = memory(tmp_path)
    held.remember(kernel("rms"), "a task")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        with pytest.raises(MemoryStoreError, match="cannot be written"):
            held.store.put([row("other", 1)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    assert [r.kernel.name for r in memory(tmp_path).store.kernels()] == ["rms"]


def test_a_process_killed_while_it_writes_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        from pathlib import Path
        from tests.memory.test_faults import memory
        from tests.memory.test_store import kernel
        held = memory(Path({str(tmp_path)!r}))
        for number in range(1000):
            held.remember(kernel(f"op{{number}}"), "a task")
            print(number, flush=True)
    """)
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert writer.stdout is not None
    for _ in range(3):
        said = int(writer.stdout.readline())
    time.sleep(0.02)  # in the middle of a later one
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.wait()
    told = {f"op{n}" for n in range(max([said, *map(int, rest)]) + 1)}
    again = memory(tmp_path)
    assert told <= {r.kernel.name for r in again.store.kernels()}
    assert told <= {e.kernel.name for e in again.events() if e.kind == "remembered"}
    assert again.rebuild() >= len(told)


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "both")
    stores = [Store(uri), Store(uri)]

    def write(number: int) -> None:
        for at in range(6):
            stores[number].put([row(f"op{number} {at}", at)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    assert {r.kernel.name for r in Store(uri).kernels()} == {f"op{n} {at}" for n in range(2) for at in range(6)}


def test_a_store_of_an_older_layout_says_how_to_make_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "old")
    with monkeypatch.context() as older:
        older.setattr(module, "VERSION", module.VERSION - 1)
        Store(uri)
    with pytest.raises(MemoryStoreError, match=f"older kernellab .layout {module.VERSION - 1}, here") as raised:
        Store(uri)
    assert "kernellab memory rebuild" in raised.value.remedy


def test_a_note_states_the_effect_that_was_measured_and_only_a_person_approves_it(tmp_path: Path) -> None:
    from kernellab.memory.notes import as_markdown, edited

    held = memory(tmp_path)
    skill = Skill(advice="Use tiles of 64.", change="-a\n+b", ratio=1.3, low=1.2, high=1.4, before="s/1", after="s/2",
                  provenance=ORIGIN)  # fmt: skip
    assert held.propose(skill)
    assert not held.propose(skill)
    assert not held.propose(skill.model_copy(update={"low": 0.9, "after": "s/3"}))
    assert not held.propose(skill.model_copy(update={"before": ""}))
    note = as_markdown(skill)
    with pytest.raises(MemoryStoreError, match="another effect than was measured"):
        held.approve(skill.id, note.replace("1.300x", "9.000x"))
    with pytest.raises(MemoryStoreError, match="has a part missing"):
        edited("# Advice\nx\n", skill, approve=True)
    approved = held.approve(skill.id, note.replace("tiles of 64", "tiles of 128"))
    assert (approved.advice, approved.approved, approved.id) == ("Use tiles of 128.", True, skill.id)
    assert held.store.skills("approved = true") == [approved]
    held.forget(skill.id)
    assert not held.propose(skill)


def test_of_near_duplicates_the_fastest_is_kept(tmp_path: Path) -> None:
    from kernellab.memory.records import Measured
    from kernellab.records import Trust

    held = memory(tmp_path)

    def take(number: int, speedup: float) -> bool:
        same = {"sketch": "one sketch", "measured": Measured(trust=Trust.T2, speedup=speedup)}
        return held.remember(kernel("rms", number, **same), "a task")

    assert [take(1, 1.0), take(2, 2.0), take(3, 1.5)] == [True, True, False]
    assert [r.kernel.measured.speedup for r in held.store.kernels()] == [2.0]


def test_an_import_reads_kernels_trajectories_and_folders_and_names_a_line_that_is_none(tmp_path: Path) -> None:
    import json

    from kernellab.session.importing import read

    kernel_row = {"task": "t", "name": "one", "dsl": "cpp", "files": {"kernel.py": "x"}, "licence": "MIT"}
    passed = {"messages": [], "task": "t", "operator": "two", "dsl": "cpp", "licence": "unspecified",
              "source": [{"name": "kernel.py", "text": "y"}], "verdict": {"passed": True}}  # fmt: skip
    failed = {**passed, "verdict": {"passed": False}}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, (kernel_row, passed, failed))))
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "task.py").write_text("def reference(x): ...")
    (tmp_path / "three" / "kernel.py").write_text("def kernel(x): ...")
    found = read(tmp_path, "Apache-2.0")
    assert [(g.name, g.licence) for g in found] == [("one", "MIT"), ("two", "Apache-2.0"), ("three", "Apache-2.0")]
    assert set(found[2].source.files) == {"kernel.py"}
    (tmp_path / "a.jsonl").write_text('{"dsl": "cpp"}')
    with pytest.raises(MemoryStoreError, match="line 1, is not a kernel"):
        read(tmp_path / "a.jsonl", "")
    with pytest.raises(MemoryStoreError, match="does not exist"):
        read(tmp_path / "nowhere", "")
