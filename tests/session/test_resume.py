"""A process killed with SIGKILL loses no acknowledged event, and no finished evaluation is run again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from session_parts import SKETCH, TASK, Begin, OneSketch

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.errors import JournalError
from kernellab.records import Author, Role
from kernellab.session import SessionStatus, TurnState, open_session, sessions
from kernellab.session.record.events import CUT_OFF, ELSEWHERE
from kernellab.session.record.journal import Journal
from kernellab.tools import Context, call
from kernellab.tools.results.session import SessionResult

# designs, and sleeps in the Conductor's turn (the verification is over then), so that the kill falls in a turn
_CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from session_parts import OneSketch, TASK
from kernellab.records import Author
from kernellab.session import design

class Asleep:
    author = Author.RULES
    def route(self, brief):
        print("asleep", flush=True)
        time.sleep(600)

class Thinking(OneSketch):
    def design(self, brief):
        print("thinking", flush=True)
        time.sleep(600)

where = sys.argv[3]
roles = {
    "designer": Thinking() if where == "designer" else OneSketch(),
    "conductor": Asleep() if where == "conductor" else "rules",
}
session = design(TASK, dsl="cpp", roles=roles, name="cut", workspace=sys.argv[1], options={"level": "T1"})
if where == "person":
    session.stop()
    session.note("coder", "keep it short")
    print("noted", flush=True)
time.sleep(600)
"""


def kill_during(workspace: Path, where: str, word: str) -> str:
    """Run a session in a process of its own and SIGKILL it; the session's id."""
    here = str(Path(__file__).parent)
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(workspace), here, where], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == word
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    (found,) = sessions(workspace)
    return found


def lines_of(workspace: Path, session: str) -> list[dict[str, object]]:
    journal = Journal(workspace)
    return [json.loads(event.model_dump_json()) for _, event in journal.read(session)]


def test_a_finished_evaluation_survives_and_is_not_run_again(tmp_path: Path) -> None:
    cut = kill_during(tmp_path, "conductor", "asleep")
    before = lines_of(tmp_path, cut)
    session = open_session(cut, tmp_path).wait(60)
    assert session.status is SessionStatus.WAITING  # the Conductor was an object of the process that is gone
    assert "set_role('conductor', 'rules')" in session.reason
    session.set_role("conductor", "rules")
    session.run()
    assert session.wait(60).status is SessionStatus.FINISHED
    assert [turn.role for turn in session.turns].count(Role.VERIFIER) == 1
    assert session.turns[2].verdict is not None
    assert session.turns[2].verdict.passed
    assert lines_of(tmp_path, cut)[: len(before)] == before


def test_the_turn_that_was_cut_off_is_taken_again(tmp_path: Path) -> None:
    cut = kill_during(tmp_path, "designer", "thinking")
    seen = open_session(cut, tmp_path, resume=False)
    assert seen.status is SessionStatus.PAUSED
    assert seen.turns[0].state is TurnState.RUNNING
    seen.edit_sketch(SKETCH)  # a person takes the Designer's place
    assert seen.wait(120).status is SessionStatus.FINISHED
    assert seen.turns[1].author is Author.HUMAN


def test_the_seconds_of_a_repeated_turn_begin_with_its_repetition(tmp_path: Path) -> None:
    """The workbench counts from ``started``: a session of the day before read "designer at work, 14 h"."""
    cut = kill_during(tmp_path, "designer", "thinking")
    before = open_session(cut, tmp_path, resume=False).turns[0]
    time.sleep(1.0)
    again = time.time()
    session = open_session(cut, tmp_path).wait(60)
    assert session.turns[0].started >= again > before.started + 1.0
    assert [turn.number for turn in session.turns] == [1], "it is the same turn"
    assert session.turns[0].seconds is not None and session.turns[0].seconds < time.time() - again


def test_what_a_person_decided_survives(tmp_path: Path) -> None:
    cut = kill_during(tmp_path, "person", "noted")
    session = open_session(cut, tmp_path, resume=False)
    assert session.status is SessionStatus.STOPPED
    assert session.state.notes_for(Role.CODER) == ("keep it short",)


def test_a_kill_between_any_two_events_leaves_a_journal_that_folds(tmp_path: Path) -> None:
    """Kills a process that appends as fast as it can; what it said was written must all be there."""
    code = (
        "import sys; from pathlib import Path; from kernellab.session.record.journal import Journal;"
        "from kernellab.session.record.events import Created, NoteAdded; from kernellab.records import Role;"
        "j = Journal(Path(sys.argv[1])); j.acquire('s', 'me');"
        "j.append('s', 'me', [Created(name='s', text='', key='')])\n"
        "for n in range(10**6):\n"
        "    j.append('s', 'me', [NoteAdded(role=Role.CODER, text=str(n))]); print(n, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGKILL)
    said = [line for line in child.stdout.read().splitlines() if line.strip()]
    child.wait()
    child.stdout.close()
    events = Journal(tmp_path).read("s")
    notes = [event.text for _, event in events if event.kind == "note"]
    assert notes == [str(n) for n in range(len(notes))]
    assert len(notes) > int(said[-1])


def test_a_session_that_another_process_runs_is_left_alone(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path), here, "designer"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "thinking"
        (found,) = sessions(tmp_path)
        session = open_session(found, tmp_path, resume=False)
        with pytest.raises(Exception, match=f"process {child.pid}"):
            session.edit_sketch(SKETCH)
        assert session.reason == ELSEWHERE
        # every front end says so, by which process, and since when
        words = rf"running in another process \(process {child.pid}, since \d\d:\d\d\)"
        assert re.fullmatch(words, session.state.status_words) and re.search(words, repr(session))
        told = call("session_state", {"session": session.name}, Context(tmp_path))
        assert isinstance(told, SessionResult) and re.fullmatch(words, told.status) and "again" in told.next
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    end = time.monotonic() + 5
    while session.reason != CUT_OFF and time.monotonic() < end:
        time.sleep(0.05)
    assert (session.status, session.reason) == (SessionStatus.PAUSED, CUT_OFF)
    assert TASK in session.state.created.text


def test_a_second_process_sees_what_the_first_one_does(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from session_parts import OneSketch, TASK; from kernellab.session import design;"
        "s = design(TASK, dsl='cpp', roles={'designer': OneSketch()}, name='seen', workspace=sys.argv[1],"
        " approve='all', options={'level': 'T1'}).wait(100); print('asked', flush=True); sys.stdin.readline();"
        "s.set_approval('none'); s.run(); s.wait(100); print('ended', flush=True); sys.stdin.readline()"
    )
    here = str(Path(__file__).parent)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), here], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline().strip() == "asked"
        seen = open_session("seen", tmp_path, resume=False)
        assert len(seen.turns) == 1
        assert seen.state.question is not None
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline().strip() == "ended"
        end = time.monotonic() + 60
        while seen.status is not SessionStatus.FINISHED:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(seen.turns) == 4
        seen.note("coder", "from here now")  # the other has let go of it
        assert seen.state.notes_for(Role.CODER) == ("from here now",)
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()


def test_the_process_that_began_it_sees_within_two_seconds_what_another_does(begin: Begin) -> None:
    session = begin(approve="all")
    assert session.wait(100).status is SessionStatus.WAITING
    code = (
        "import sys; from kernellab.session import open_session;"
        "s = open_session(sys.argv[1], sys.argv[2]); s.step(); s.wait(100); print(len(s.turns), flush=True);"
        "sys.stdin.readline()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, session.id, str(session.workspace)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "2"
        end = time.monotonic() + 2
        while (len(session.turns), session.status) != (2, SessionStatus.WAITING) and time.monotonic() < end:
            time.sleep(0.02)
        question = session.state.question
        assert question is not None
        assert (session.status, question.turn) == (SessionStatus.WAITING, "t2")
        session.step()
        assert len(session.wait(100).turns) == 3
    finally:
        child.kill()
        child.communicate()


def test_a_workspace_that_was_removed_is_noticed(tmp_path: Path, begin: Begin) -> None:
    place = tmp_path / "gone"
    session = begin(workspace=place, roles={"designer": "human"}).wait(60)
    shutil.rmtree(place)
    end = time.monotonic() + 10
    while session.status is not SessionStatus.FAILED and time.monotonic() < end:
        time.sleep(0.05)
    assert session.status is SessionStatus.FAILED
    assert "was removed" in session.reason


def test_a_workspace_that_is_removed_under_a_turn_ends_the_session(tmp_path: Path, begin: Begin) -> None:
    place = tmp_path / "gone"

    class Remover(OneSketch):
        def design(self, brief: DesignBrief) -> DesignReply:
            shutil.rmtree(place)
            return super().design(brief)

    session = begin(Remover(), workspace=place)
    with pytest.raises(JournalError, match="was removed"):
        session.wait(60)
    assert (session.status, "was removed" in session.reason) == (SessionStatus.FAILED, True)
    with pytest.raises(JournalError, match="was removed"):
        session.run()


def test_a_journal_of_an_earlier_version_says_who_holds_it_without_since(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    path = tmp_path / ".kernellab" / "journal.db"
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE leases DROP COLUMN since")
        row = ("s", "another", socket.gethostname(), os.getppid(), time.time())
        db.execute("INSERT INTO leases (session, owner, host, pid, seen) VALUES (?, ?, ?, ?, ?)", row)
    found = Journal(tmp_path).holder("s", "me")
    assert found is not None and found.words == f"process {os.getppid()}"
