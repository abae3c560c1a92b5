"""The front end's own tests, run by vitest: logic and components, on dumps of real sessions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.breadth import everything

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_the_front_ends_own_tests_pass(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    # one module registry for all files loads Preact and CodeMirror once; `make prove` gives each file its own
    shared = [] if everything() else ["--no-isolate"]
    command = [sys.executable, "hatch_build.py", "test", "--", *shared, "--reporter=json", f"--outputFile={report}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert report.is_file(), result.stdout + result.stderr
    found = json.loads(report.read_text())
    failed = [
        "\n".join([test["fullName"], *test["failureMessages"]])
        for file in found["testResults"]
        for test in [
            *file["assertionResults"],
            {"status": file["status"], "fullName": file["name"], "failureMessages": [file["message"]]},
        ]
        if test["status"] == "failed"
    ]
    assert not failed, "\n\n".join(failed)
    assert found["numPassedTests"] > 0
