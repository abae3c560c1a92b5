"""The library that ships: of every class, verified, small, today's computations, and never seen by its own task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernellab.bench.library_tasks import tasks_of_library
from kernellab.bench.suites import load_suite
from kernellab.capture import capture
from kernellab.capture.family import Family
from kernellab.dsls.machine import detect_target
from kernellab.memory.features import features
from kernellab.memory.library import FILE, seed, shipped
from kernellab.memory.memory import Memory
from kernellab.memory.recall import Recall
from kernellab.memory.records import Purpose
from kernellab.memory.stale import stale
from kernellab.memory.store import Row
from kernellab.records import Trust
from kernellab.session.memory_use import by_words, stats, to_verify
from kernellab.sketch.check import load_program
from kernellab.task import load_task


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(shipped())


def test_it_has_verified_kernels_of_every_class_with_their_licence_and_is_small(rows: list[Row]) -> None:
    assert {row.kernel.operator_class for row in rows} >= {family.value for family in Family if family.value}
    assert FILE.stat().st_size < 1_000_000
    assert len({row.kernel.id for row in rows}) == len(rows)
    for row in rows:
        kernel, measured = row.kernel, row.kernel.measured
        assert measured.trust in (Trust.T2, Trust.T3, Trust.T4)
        assert measured.time_ms and measured.speedup and measured.verifier
        assert (kernel.provenance.origin, kernel.provenance.licence) == ("library", "Apache-2.0")
        assert kernel.sketch and load_program(kernel.sketch).kernels
        assert np.linalg.norm(row.logic) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("name", ["softmax/softmax", "reduction/row_sum"])
def test_its_computations_are_named_as_this_version_names_them(rows: list[Row], name: str) -> None:
    (listed,) = load_suite("builtin", f"^{name}$")
    task = load_task(listed.text, listed.name)
    now = features(task, capture(task))
    (row,) = [r for r in rows if r.kernel.provenance.place == f"builtin/{name}" and r.kernel.dsl == "cpp"]
    assert row.kernel.graph == now.hash
    assert float(np.dot(row.logic, now.logic)) > 0.999
    assert stale(row.kernel, "another chip") == f"measured on {row.kernel.chip}"


def test_a_workspace_takes_it_once_forgets_for_good_and_holds_out_a_tasks_own(rows: list[Row], tmp_path: Path) -> None:
    memory = Memory.open(tmp_path)
    assert seed(memory) == len(rows)
    assert seed(memory) == 0
    gone = rows[0].kernel.id
    memory.forget(gone)
    assert memory.rebuild() == len(rows) - 1
    assert memory.store.get(gone) is None
    (listed,) = load_suite("builtin", "^softmax/softmax$")
    task = load_task(listed.text, listed.name)
    own = features(task, capture(task)).hash
    found = Recall(memory, task, detect_target("cpp"), held_out=True).hits(Purpose.DRAFT, 5)
    assert found
    assert own not in {hit.kernel.graph for hit in found}
    assert own in {hit.kernel.graph for hit in Recall(memory, task, detect_target("cpp")).hits(Purpose.DRAFT, 5)}


def test_a_newer_library_brings_its_figures_and_leaves_what_people_and_this_machine_said(
    rows: list[Row], tmp_path: Path
) -> None:
    memory, (liked, judged, same) = Memory.open(tmp_path), rows[:3]

    def older(row: Row, origin: str) -> Row:
        kernel, was = row.kernel, row.kernel.measured.model_copy(update={"speedup": 0.5})
        made = kernel.provenance.model_copy(update={"origin": origin})
        return Row(kernel.model_copy(update={"measured": was, "provenance": made}), row.logic, row.shape)

    memory.seed([older(liked, "library"), older(judged, "verified again"), same], "an older one")
    memory.judge(liked.kernel.id, thumb=1)
    assert seed(memory) == len(rows) - 2, "one is as it was, and one has figures of this machine"
    found = memory.store.get(liked.kernel.id)
    assert found is not None
    assert (found.kernel.measured, found.kernel.thumb) == (liked.kernel.measured, 1)
    own = memory.store.get(judged.kernel.id)
    assert own is not None and own.kernel.measured.speedup == 0.5
    memory.rebuild()
    kept = memory.store.get(liked.kernel.id)
    assert kept is not None and kept.kernel.thumb == 1, "the library is put in twice, and a word in between stays"


def test_elsewhere_it_is_labelled_and_can_be_verified_until_it_was(rows: list[Row], tmp_path: Path) -> None:
    assert {row.kernel.provenance.place for row in rows} <= tasks_of_library().keys()
    memory, (row,) = Memory.open(tmp_path), [r for r in rows if r.kernel.name == "softmax" and r.kernel.dsl == "cpp"]
    there = row.kernel.model_copy(update={"chip": "another chip"})
    memory.store.put([Row(there, row.logic, row.shape)])
    (found,) = by_words(memory, "softmax")
    assert found.stale == "measured on another chip" and found.stale in found.why
    assert stats(memory)["stale"] == 1
    assert to_verify(memory) == []
    assert to_verify(memory, library=True) == [there.id]
    measured = there.measured.model_copy(update={"verifier": "", "versions": {}})
    here = there.model_copy(update={"chip": detect_target("cpp").chip.name, "measured": measured})
    memory.store.put([Row(here, row.logic, row.shape)])
    assert to_verify(memory, library=True) == []
