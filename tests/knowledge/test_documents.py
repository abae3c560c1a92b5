"""The shipped documents are right, and every block that can run here runs. CI executes them all."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kernellab.content import content, module_command
from kernellab.knowledge.execute import State, execute
from kernellab.knowledge.jobs import jobs
from kernellab.knowledge.lint import lint
from kernellab.knowledge.record import RECORD, read_record
from kernellab.sandbox.environment import clean_environment

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


def test_what_a_dsl_prints_on_import_is_no_answer(tmp_path: Path) -> None:
    request = {"preload": ["this"], "scratch": str(tmp_path), "deadline": 30, "jobs": []}
    done = subprocess.run(
        module_command("kernellab.knowledge.runner"), input=json.dumps(request), capture_output=True, text=True,
        timeout=120, check=True, env=clean_environment({"HOME": str(tmp_path)}),
    )  # fmt: skip
    assert done.stdout == "" and "Zen of Python" in done.stderr
