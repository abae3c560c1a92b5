"""%%kernel_verify: a kernel that stands in a cell, judged for a session's task, a file's, or the notebook's own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import TASK

from kernellab.errors import KernellabError, SessionError, TargetError, TaskError
from kernellab.notebook.magics import verify_cell
from kernellab.notebook.magics.verify_view import StagesView, stages_html
from kernellab.records import Stage, StageResult, StageState
from kernellab.task import load_task

#: plain PyTorch in another spelling: passes a quick look in a second, without a compiler
PLAIN = "class ModelNew: pass\n\n\ndef kernel(x):\n    return x.add(1)\n"
SLOW = f"import time\ntime.sleep(60)\n{PLAIN}"


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


def test_the_task_may_be_a_name_of_the_notebook(shell: InteractiveShell, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    shell.user_ns |= {"text": TASK, "loaded": load_task(TASK, "loaded"), "place": tmp_path / "task.py", "number": 3}
    for line in ("text", "loaded", "place", "--task text", "--task task.py"):
        shown = shell.run_cell_magic("kernel_verify", f"{line} --level T0 --allow-library", PLAIN)
        assert repr(shown).startswith("passed"), line
    with pytest.raises(SessionError, match="number is a int, not a task"):
        shell.run_cell_magic("kernel_verify", "--task number", PLAIN)


def test_what_cannot_be_judged_says_why(shell: InteractiveShell) -> None:
    with pytest.raises(SessionError, match="Design one"):
        shell.run_cell_magic("kernel_verify", "", PLAIN)
    with pytest.raises(SessionError, match="no session 'nothing'"):
        shell.run_cell_magic("kernel_verify", "nothing", PLAIN)
    with pytest.raises(TaskError, match="cannot be read"):
        shell.run_cell_magic("kernel_verify", "--task nowhere.py", PLAIN)
    with pytest.raises(UsageError, match="invalid choice: 'T9'"):
        shell.run_cell_magic("kernel_verify", "--level T9", PLAIN)
    shell.user_ns["task"] = TASK
    with pytest.raises(TargetError, match="no DSL named 'tritn'"):
        shell.run_cell_magic("kernel_verify", "task --dsl tritn", PLAIN)
    with pytest.raises(KernellabError, match=r"--baseline old\.py"):
        shell.run_cell_magic("kernel_verify", "task --baseline old.py", PLAIN)
    with pytest.raises(UsageError, match="cannot name a variable"):
        shell.run_cell_magic("kernel_verify", "task --background my-run", PLAIN)


def test_an_interrupt_ends_the_judge_and_says_so(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["task"] = TASK

    def interrupt() -> None:
        time.sleep(6)
        os.kill(os.getpid(), signal.SIGINT)

    # a process that runs in the background may have been started with SIGINT ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(SessionError, match="was stopped, and nothing was decided"):
            shell.run_cell_magic("kernel_verify", "task --dsl cpp --level T1 --allow-library", SLOW)
        assert time.monotonic() - began < 40
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stopped" in capsys.readouterr().out
    # the next cell gets a judge of its own
    shown = shell.run_cell_magic("kernel_verify", "task --dsl cpp --level T1 --allow-library", PLAIN)
    assert repr(shown).startswith("passed"), repr(shown)


def test_in_the_background_the_cell_returns_at_once(shell: InteractiveShell) -> None:
    shell.user_ns["task"] = TASK
    line = "task --dsl cpp --level T1 --allow-library --background"
    assert shell.run_cell_magic("kernel_verify", f"{line} quick", PLAIN) is None
    quick = shell.user_ns["quick"]
    assert not quick.done and "running" in repr(quick)

    async def wait() -> Any:
        return await quick

    assert repr(asyncio.run(wait())).startswith("passed") and quick.verdict.passed and quick.done


def test_in_the_background_it_can_be_cancelled(shell: InteractiveShell) -> None:
    shell.user_ns["task"] = TASK
    line = "task --dsl cpp --level T1 --allow-library --background"
    shell.run_cell_magic("kernel_verify", f"{line} slow", SLOW)
    slow = shell.user_ns["slow"]
    limit = time.monotonic() + 30
    while not slow.view.results and time.monotonic() < limit:
        time.sleep(0.05)
    slow.cancel()
    with pytest.raises(SessionError, match="was stopped"):
        _ = slow.verdict


def test_a_notebook_shows_the_stages_in_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handle:
        def __init__(self) -> None:
            self.bundles: list[dict[str, str]] = []

        def display(self, bundle: dict[str, str], raw: bool) -> None:
            self.bundles.append(bundle)

        update = display

    handle, view = Handle(), StagesView()
    view._handle = handle
    view(StageResult(name=Stage.STATIC, state=StageState.PASSED, seconds=0.01, note="a < b"))
    view.end("stopped")
    first, last = (bundle["text/html"] for bundle in handle.bundles)
    assert first.startswith("<details open>") and "<td" in first and ">running<" in first and "a &lt; b" in first
    assert "<details>" in last and "stopped" in last and ">running<" not in last
    assert handle.bundles[-1]["text/plain"] == "static passed 10 ms stopped"
    assert stages_html([], True).count("<tr>") == len(Stage)


def test_the_language_of_a_cell_is_read_from_it() -> None:
    read = [
        verify_cell.source_of(text, None, None, None).dsl
        for text in ("import triton\n", "import tilelang\n", 'CODE = "__global__ void f(int* x) { x[0] = 1; }"\n')
    ]
    assert read == ["triton", "tilelang", "cuda_c"]
