"""The shipped documents are right, and every block that can run here runs. CI executes them all."""

from __future__ import annotations

from collections import Counter

import pytest

from kernellab.content import content
from kernellab.knowledge.execute import State, execute, jobs
from kernellab.knowledge.lint import lint
from kernellab.knowledge.record import RECORD, read_record

ROOT = content("knowledge")


def test_no_document_has_a_fault() -> None:
    faults = [fault for fault in lint(ROOT) if "has not passed" not in fault.message]
    assert faults == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_block_that_can_run_here_passes() -> None:
    found = jobs(ROOT)
    outcomes = execute(found)
    assert [f"{o.where}: {o.reason}" for o in outcomes if o.state is State.FAILED] == []
    passed = Counter(o.kind for o in outcomes if o.state is State.PASSED)
    # the DSLs of this machine, and the language, are executed and not skipped
    assert passed["python"] >= 15
    assert passed["cpp"] >= 5
    assert passed["example"] >= 8
    assert passed["sketch"] + passed["sketch (run)"] >= 30
    not_run = {o.where.split("/")[1] for o in outcomes if o.state is State.NOT_RUN}
    assert not_run <= {"cuda_c", "tilelang", "triton_ascend", "ascendc"}


def test_the_record_names_the_versions_that_each_block_passed_on() -> None:
    held = read_record(ROOT)
    assert (ROOT / RECORD).is_file()
    assert held
    assert all({"python", "kernellab", "torch"} <= set(versions) for versions in held.values())
