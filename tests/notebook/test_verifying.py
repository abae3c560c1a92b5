"""%%kernel_verify: a kernel that stands in a cell, judged for a session's task or a file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import TASK

from kernellab.errors import SessionError, TaskError


def test_a_session_s_own_code_passes_and_each_stage_is_told(
    shell: InteractiveShell, story: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    session = story[0]
    shell.user_ns["add_one"] = session
    turns = len(session.turns)
    text = session.source.files["kernel.cpp"]
    shown = shell.run_cell_magic("kernel_verify", "add_one --file kernel.cpp --level T1", text)
    assert repr(shown).startswith("passed: ") and "<table>" in shown._repr_html_()
    told = capsys.readouterr().out
    assert told.index("static passed") < told.index("build passed") < told.index("correct passed")
    assert len(session.turns) == turns


def test_a_kernel_that_is_wrong_is_a_verdict_and_no_error(shell: InteractiveShell, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    shown = shell.run_cell_magic(
        "kernel_verify", "--task task.py --dsl cpp --level T1", "def kernel(x)\n    return x\n"
    )
    assert "failed at static" in repr(shown) and "kernel.py:1" in repr(shown)


def test_what_cannot_be_judged_says_why(shell: InteractiveShell, story: tuple[Any, Any]) -> None:
    with pytest.raises(SessionError, match="Design one"):
        shell.run_cell_magic("kernel_verify", "", "def kernel(x): return x")
    with pytest.raises(TaskError, match="cannot be read"):
        shell.run_cell_magic("kernel_verify", "--task nowhere.py", "def kernel(x): return x")
    with pytest.raises(UsageError, match="invalid choice: 'T9'"):
        shell.run_cell_magic("kernel_verify", "--level T9", "def kernel(x): return x")
