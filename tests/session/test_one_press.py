"""One press of Step is one turn, and Stop is the end of what works."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from session_parts import Begin

from kernellab.errors import SessionError
from kernellab.notebook.board.commands import take_back
from kernellab.notebook.views.rows import turn_rows
from kernellab.records import Role
from kernellab.session import Session, SessionStatus, TurnState, open_session
from kernellab.session.engine.engine import engine

#: a full verification of several seconds, so that there is time to stop it
FULL = {"level": "T2", "budget": 1.5}


def rested(session: Session) -> tuple[int, SessionStatus]:
    session.wait(120)
    return len(session.turns), session.status


def test_each_step_under_approve_all_takes_one_turn_and_shows_the_next_question(begin: Begin) -> None:
    session = begin(approve="all")
    assert rested(session) == (1, SessionStatus.WAITING)
    for turns in (2, 3, 4):
        session.step()
        assert rested(session) == (turns, SessionStatus.WAITING)
        question = session.state.question
        assert question is not None
        assert question.turn == f"t{turns}"


def test_a_step_from_a_pause_takes_a_turn_although_its_turn_was_not_approved(begin: Begin) -> None:
    session = begin(approve="all")
    assert rested(session) == (1, SessionStatus.WAITING)
    session.fork(1)
    assert rested(session) == (1, SessionStatus.PAUSED)
    session.step()
    assert rested(session) == (2, SessionStatus.WAITING)


def judges_below(pid: int) -> list[int]:
    """The processes below ``pid`` that are alive, from /proc."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(folder.name), *judges_below(int(folder.name))]
    return found


def in_verification(session: Session) -> None:
    """Wait until the judge has given its first stage of the running verification."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        head = session.head
        if head is not None and head.role.value == "verifier" and session.trace.stages.get(head.id):
            return
        time.sleep(0.01)
    raise AssertionError("no verification began")


def test_stop_during_a_verification_ends_the_judge_and_nothing_is_recorded_afterwards(begin: Begin) -> None:
    session = begin(options=FULL)
    in_verification(session)
    assert "BLOCK" in session.sketch
    for look in ("best", "verdict"):  # whoever looks does not wait
        with pytest.raises(SessionError, match="still running"):
            getattr(session, look)
    judge = engine().verifier().judge_pid
    assert judge is not None
    below = judges_below(judge)
    began = time.monotonic()
    session.stop()
    while os.path.exists(f"/proc/{judge}") and time.monotonic() < began + 30:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{judge}")
    until = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in below) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in below if os.path.exists(f"/proc/{pid}")] == []
    events = session.state
    with engine().verifying:  # its thread is over
        time.sleep(0.3)
    assert session.state == events
    turn = session.turns[2]
    assert (session.status, turn.state, turn.verdict) == (SessionStatus.STOPPED, TurnState.STOPPED, None)
    assert turn.error == "Stopped by you."
    with pytest.raises(SessionError, match="run"):
        _ = session.best


def test_a_session_stopped_in_a_verification_goes_on_with_a_new_judge(begin: Begin) -> None:
    session = begin(options=FULL)
    in_verification(session)
    session.stop()
    session.run()
    assert rested(session)[1] is SessionStatus.FINISHED
    assert [turn.state for turn in session.turns if turn.role.value == "verifier"] == [
        TurnState.STOPPED,
        TurnState.DONE,
    ]


def test_an_approval_is_undone_and_the_question_is_open_again(begin: Begin) -> None:
    session = begin(approve="all").wait(60)
    asked = session.state.question
    session.approve()
    session.wait(60)
    assert session.state.question != asked and len(session.turns) == 2
    session.undo()
    assert (session.status, session.state.question) == (SessionStatus.WAITING, asked)
    assert session.state.head == "t1" and len(session.turns) == 2, "what came of it is kept"
    with pytest.raises(SessionError, match="no decision to undo"):
        session.undo()
    session.approve()
    session.set_approval("none")
    assert session.run() or session.wait(120).status is SessionStatus.FINISHED


def test_an_edit_and_a_fork_are_undone_one_after_the_other(begin: Begin) -> None:
    session = begin().wait(120)
    head, sketch = session.state.head, str(session.sketch)
    session.fork(2)
    session.edit_sketch(sketch + "// by hand\n")
    session.wait(120)
    session.undo()
    assert (session.status, session.state.head) == (SessionStatus.PAUSED, "t2")
    session.undo()
    assert session.state.head == head
    opened = open_session(session.id, session.workspace, resume=False)
    assert opened.state.head == head, "the journal holds it"


def test_a_pin_is_undone_before_the_edit_that_came_first(begin: Begin) -> None:
    session = begin().wait(120)
    session.edit_sketch(str(session.sketch) + "# by hand\n")
    session.wait(120)
    edited, sketch = session.state.head, str(session.sketch)
    line = next(n for n, text in enumerate(sketch.splitlines(), 1) if "load(" in text)
    session.pin(line)
    assert str(session.sketch) != sketch
    assert take_back(session) == f"Undone: the pin. {session.name} is finished."
    assert session.state.head == edited and str(session.sketch) == sketch, "the edit stands"
    assert "the pin" in session.state.reason
    assert session.status is SessionStatus.FINISHED, "as before the pin"
    undone = next(row for row in turn_rows(session.state) if row["id"] == session.turns[-1].id)
    assert undone["note"].startswith("Undone. ") and not undone["on_path"]
    session.undo()
    assert "by hand" not in str(session.sketch)


def test_a_fork_while_a_turn_works_is_undone_to_what_that_turn_stood_on(begin: Begin) -> None:
    story = begin(options=FULL)
    while not any(t.role is Role.VERIFIER for t in story.turns):
        time.sleep(0.05)
    head = story.state.head_turn
    assert head is not None and head.state is TurnState.RUNNING
    story.fork(1)
    story.undo()
    assert story.state.head == head.parent


def test_a_pin_at_a_hint_names_the_line_that_is_marked(begin: Begin) -> None:
    session = begin().wait(120)
    hint = next(n for n, text in enumerate(str(session.sketch).splitlines(), 1) if "@llm_hint" in text)
    session.pin(hint)
    marked = next(n for n, text in enumerate(str(session.sketch).splitlines(), 1) if text.endswith("#: pin"))
    assert marked == hint + 1
    assert session.turns[-1].rationale == f"Pinned line {marked}."
    coded = next(turn for turn in session.turns if turn.candidate)
    assert coded.source == coded.candidate.source
    assert session.turns[-1].source is None
