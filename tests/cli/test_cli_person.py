"""A person in a role, in a shell: the brief is a file, the answer is a file or comes from an editor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from session_parts import SKETCH, TASK, WRONG_SKETCH

from kernellab.cli import main, person

DESIGN = ("design", "task.py", "--dsl", "cpp", "--level", "T1", "--roles", "designer=human")


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any, str]]:
    """``run("design", ...) -> (exit code, JSON or text, stderr)`` in a workspace that holds task.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text(TASK)
    for name in ("EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        return code, json.loads(printed.out) if printed.out.startswith("{") else printed.out, printed.err

    return command


def test_the_brief_is_a_file_and_an_answer_file_goes_on_to_a_verified_kernel(run: Any, tmp_path: Path) -> None:
    code, found, _ = run(*DESIGN, "--json")
    assert (code, found["asked"], found["status"]) == (1, "designer", "waiting")
    told = Path(found["brief"]).read_text()
    assert "You are the Designer" in told and "# The task" in told
    (tmp_path / "mine.md").write_text(f"Rows are independent.\n```sketch\n{SKETCH}```\n")
    _, again, _ = run(*DESIGN, "--answer", "mine.md", "--json")
    assert (again["status"], again["trust"], again["session"]) == ("finished", "T1", found["session"])
    assert "asked" not in again


def test_an_answer_that_cannot_be_used_is_told_and_changes_nothing(run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text("\n")
    assert run(*DESIGN, "--answer", "empty.md")[0] == 2
    (tmp_path / "prose.md").write_text("I would tile it.\n")
    code, _, told = run(*DESIGN, "--answer", "prose.md")
    assert code == 2 and "The reply has no sketch." in told
    code, _, told = run(*DESIGN, "--resume")
    assert code == 1 and "--answer FILE" in told


def test_an_answer_where_nothing_is_asked_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text(f"```sketch\n{SKETCH}```\n")
    code, _, told = run("design", "task.py", "--dsl", "cpp", "--level", "T1", "--answer", "mine.md")
    assert code == 2 and "not waiting for you" in told


def test_an_editor_gets_the_brief_and_again_with_the_fault(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor is a program that appends its next answer below the mark."""
    for number, text in enumerate(("no sketch here", f"```sketch\n{SKETCH}```")):
        (tmp_path / f"answer{number}").write_text(text)
    editor = tmp_path / "editor"
    editor.write_text(
        "#!/bin/sh\n"
        f"n=$(cat {tmp_path}/count 2>/dev/null || echo 0)\n"
        f'cp "$1" {tmp_path}/seen$n\n'
        f'cat {tmp_path}/answer$n >> "$1"\n'
        f"echo $((n + 1)) > {tmp_path}/count\n"
    )
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.setattr(person, "has_editor", lambda: bool(os.environ.get("EDITOR")))
    _, printed, _ = run(*DESIGN)
    assert "finished" in printed
    first, second = ((tmp_path / f"seen{n}").read_text() for n in (0, 1))
    assert first.rstrip().endswith(person.MARK) and "You are the Designer" in first
    assert "Your answer cannot be used. The reply has no sketch." in second and "no sketch here" in second


def test_a_wrong_sketch_comes_back_with_what_the_gate_found(run: Any, tmp_path: Path) -> None:
    (tmp_path / "wrong.md").write_text(f"```sketch\n{WRONG_SKETCH}```\n")
    run(*DESIGN)
    code, found, _ = run(*DESIGN, "--answer", "wrong.md", "--json")
    assert (code, found["asked"]) == (1, "designer")
    assert "# Why the work comes to you" in Path(found["brief"]).read_text()
