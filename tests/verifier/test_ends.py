"""A judge's end is silent: what its libraries have to say about themselves is nothing for a person."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.verifier import Verifier
from kernellab.verifier.sandbox import sandbox_level

from .kit import TARGET

JUDGE = """
import atexit
from kernellab.verifier.judge import main as judge
atexit.register(print, "the interpreter was taken down, and its libraries counted their leaks")
judge._end_with_client = lambda *_: None  # of the two threads that see it, the other comes first
judge.main()
"""


def test_a_judge_whose_client_closed_takes_no_interpreter_down() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        judge = subprocess.Popen(
            [sys.executable, "-c", JUDGE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    ours.close()
    said, _ = judge.communicate(timeout=60)
    assert (judge.returncode, said) == (0, "")


def test_a_folder_of_the_package_s_name_where_a_person_works_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernellab").mkdir()
    (tmp_path / "kernellab" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "socket.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    assert "rlimits" in sandbox_level()
    with Verifier() as verifier:
        verifier.warm(TARGET)
