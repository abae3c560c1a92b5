"""A verdict explained, and why a kernel is slow: by rules, from what the judge really found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import Page

from kernellab.errors import SessionError
from kernellab.notebook.board.registry import workbench_of
from kernellab.session import Session, SessionStatus
from tests.waiting import until

TASK = """
import torch
from kernellab import Dim
N = Dim("N", 16, 512)
def reference(x):
    return torch.relu(x) * x.sum(-1, keepdim=True)
def inputs(N=256):
    return torch.randn(256, N)
"""


def _without_the_last_vector(text: str) -> str:
    at = text.rindex("for (int64_t")
    broken, count = re.subn(r"; (\w+) < ([^;]+);", r"; \1 < (\2) / 16 * 16;", text[at:], count=1)
    assert count == 1
    return text[:at] + broken


def test_what_the_judge_found_is_explained(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("kernel_design", "summed --dsl cpp --baseline eager", TASK)
    session: Session = shell.user_ns["summed"]
    with pytest.raises(SessionError, match="There is no explanation of 'weather'"):
        session.trace.explain("weather")
    session.wait(120)
    verdict = session.verdict
    passed = session.trace.explain()
    assert passed.title == "Turn 3 passed, at trust level T2."
    stages = [point.text.split(" ")[2] for point in passed.points if point.text.startswith("The stage ")]
    assert stages == ["static", "build", "smoke", "correct", "robust", "honest", "fast"]
    eager = verdict.against("eager")
    assert f"95 % interval {eager.low:.2f} to {eager.high:.2f}" in str(passed)
    slow = session.trace.explain("speed")
    assert f"{verdict.time.median_ms:.3g} ms" in slow.title
    assert "bound by" in str(slow) and slow.advice

    kernel = session.source.files["kernel.cpp"]
    session.set_approval("routing")
    session.edit_source({"kernel.cpp": _without_the_last_vector(kernel)})
    assert until(lambda: session.status is SessionStatus.WAITING)
    failed = session.trace.explain()
    said = str(failed)
    assert re.match(r"Turn \d+ failed at (correct|smoke)\.", said) and "first wrong" in said
    assert "kernel.cpp" in failed.advice  # the line that was changed since it last passed
    assert str(session.trace.explain(turn=3)) == str(passed)

    page: Any = Page(workbench_of(session))
    found = page.ask("explain", what="verdict")
    assert found["title"] == failed.title and found["advice"] == failed.advice
    assert [point["text"] for point in found["points"]] == [point.text for point in failed.points]
    told = shell.run_line_magic("kernel_explain", "summed speed --turn 3")
    assert str(told) == str(slow)
    workbench_of(session).close()
    session.stop()
