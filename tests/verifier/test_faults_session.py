"""A session whose judge is killed under it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kernellab.records import Role
from kernellab.session import SessionStatus, TurnState, design, open_session
from kernellab.session.engine.engine import engine
from kernellab.session.record.journal import Journal


def test_a_session_whose_judge_is_killed_keeps_its_journal_and_goes_on(tmp_path: Path) -> None:
    from session_parts import TASK, OneSketch

    slow = "import time\nimport torch\ntime.sleep(4)\ndef kernel(x):\n    return x * 2.0 + 1.0\n"
    session = design(
        TASK, dsl="cpp", roles={"designer": OneSketch()}, name="cut", workspace=tmp_path,
        options={"level": "T1", "allow_library": True},
    )  # fmt: skip
    session.wait(120)
    before = [event.model_dump_json() for _, event in Journal(tmp_path).read(session.id)]
    session.edit_source(slow)
    end = time.monotonic() + 60
    while not (session.head and session.head.role is Role.VERIFIER and session.head.state is TurnState.RUNNING):
        assert time.monotonic() < end, session.head
        time.sleep(0.01)
    time.sleep(1.0)
    pid = engine().verifier().judge_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    session.wait(120)
    lines = [event.model_dump_json() for _, event in Journal(tmp_path).read(session.id)]
    assert lines[: len(before)] == before, "nothing that was written is lost or changed"
    cut = [t for t in session.turns if t.role is Role.VERIFIER]
    assert all(t.state is not TurnState.RUNNING for t in cut)
    assert any("judge" in t.error for t in cut if t.error) or cut[-1].verdict is not None, "told, or judged again"
    again = open_session(session.id, tmp_path)
    if again.status is not SessionStatus.FINISHED:
        again.run()
        again.wait(120)
    judged = [t for t in again.turns if t.role is Role.VERIFIER and t.verdict is not None]
    assert len(judged) >= 2, again.reason
    assert judged[-1].verdict is not None and judged[-1].verdict.passed, judged[-1].verdict.reason
