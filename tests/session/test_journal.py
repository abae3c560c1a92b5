"""The journal keeps every event, changes none, and lets one engine at a time write to a session."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kernellab.errors import JournalError, SessionError
from kernellab.records import Author, Role
from kernellab.session.record.events import Created, HeadMoved, NoteAdded, TurnStarted
from kernellab.session.record.journal import Journal, find_workspace, on_network
from kernellab.session.record.records import Turn


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def created(name: str = "op") -> Created:
    return Created(name=name, text="x", key="k")


def test_events_come_back_in_order_and_equal(journal: Journal) -> None:
    journal.acquire("s", "me")
    turn = Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.RULES)
    events = [created(), TurnStarted(turn=turn), HeadMoved(to="t1", reason="fork")]
    journal.append("s", "me", events)
    assert [event for _, event in journal.read("s")] == events


def test_a_prompt_that_was_kept_before_takes_no_room_again(journal: Journal, tmp_path: Path) -> None:
    journal.acquire("s", "me")
    # no two lines alike, so that compression alone could not explain it
    text = "\n".join(f"{n} {n * 7919 % 10007}" for n in range(3000))
    events = [created(), *(NoteAdded(role=Role.CODER, text=text) for _ in range(20))]
    journal.append("s", "me", events)
    assert [event for _, event in journal.read("s")] == events
    assert journal.first("s") == events[0]
    with closing(sqlite3.connect(journal.path)) as other:
        (count,) = other.execute("SELECT count(*) FROM pieces").fetchone()
        (kept,) = other.execute("SELECT sum(length(line)) FROM events").fetchone()
    assert count < 200 and kept < 2 * len(text)


def test_an_older_journal_of_whole_lines_is_read(journal: Journal) -> None:
    event = NoteAdded(role=Role.CODER, text="long " * 400)
    with closing(sqlite3.connect(journal.path)) as other:
        other.execute("INSERT INTO events (session, line) VALUES ('s', ?)", (event.model_dump_json(),))
        other.commit()
    assert [found for _, found in journal.read("s")] == [event]


def test_reading_can_begin_after_a_number(journal: Journal) -> None:
    journal.acquire("s", "me")
    first = journal.append("s", "me", [created()])
    journal.append("s", "me", [NoteAdded(role=Role.CODER, text="later")])
    assert [event.kind for _, event in journal.read("s", after=first)] == ["note"]


def test_an_event_cannot_be_changed_or_removed(journal: Journal) -> None:
    journal.acquire("s", "me")
    journal.append("s", "me", [created()])
    other = sqlite3.connect(journal.path)
    with pytest.raises(sqlite3.DatabaseError, match="never changes"):
        other.execute("UPDATE events SET line = '{}'")
    with pytest.raises(sqlite3.DatabaseError, match="never removed"):
        other.execute("DELETE FROM events")


def test_a_file_that_was_replaced_is_written_no_more(journal: Journal) -> None:
    journal.acquire("s", "me")
    for file in journal.path.parent.iterdir():
        file.unlink()
    other = Journal(journal.workspace)
    with pytest.raises(JournalError, match="was removed"):
        journal.append("s", "me", [created()])
    journal.release("s", "me")
    assert (journal.removed, other.removed) == (True, False)
    assert other.sessions() == []


def test_events_of_one_append_are_written_together_or_not_at_all(journal: Journal) -> None:
    journal.acquire("s", "me")

    class Broken:
        def model_dump_json(self) -> str:
            raise ValueError("no JSON")

    with pytest.raises(ValueError, match="no JSON"):
        journal.append("s", "me", [created(), Broken()])  # type: ignore[list-item]
    assert journal.read("s") == []


def test_only_the_holder_of_the_lease_appends(journal: Journal) -> None:
    assert journal.acquire("s", "one") is None
    held = journal.acquire("s", "two")
    assert held is not None and held.pid == os.getpid()
    with pytest.raises(SessionError, match="another process"):
        journal.append("s", "two", [created()])
    journal.release("s", "one")
    assert journal.acquire("s", "two") is None
    with pytest.raises(SessionError, match="another process"):
        journal.append("s", "one", [created()])


def test_the_lease_of_a_dead_process_is_taken_over(journal: Journal) -> None:
    code = "import sys; from pathlib import Path; from kernellab.session.record.journal import Journal;"
    code += "assert Journal(Path(sys.argv[1])).acquire('s', 'gone') is None"
    subprocess.run([sys.executable, "-c", code, str(journal.workspace)], check=True)
    assert journal.acquire("s", "me") is None


def test_sessions_are_listed_oldest_first(journal: Journal) -> None:
    for name in ("b", "a"):
        journal.acquire(name, "me")
        journal.append(name, "me", [created(name)])
    assert journal.sessions() == ["b", "a"]


def test_an_event_of_another_version_is_an_error_that_names_the_file(journal: Journal) -> None:
    other = sqlite3.connect(journal.path)
    other.execute("""INSERT INTO events (session, line) VALUES ('s', '{"kind": "future"}')""")
    other.commit()
    with pytest.raises(JournalError, match="cannot read"):
        journal.read("s")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".kernellab").write_text("a file stands in the way")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path)


@pytest.mark.parametrize("mark", ["kernellab.toml", ".kernellab"])
def test_the_workspace_is_the_nearest_marked_parent(tmp_path: Path, mark: str) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_workspace(inner) == inner
    if mark.endswith("toml"):
        (tmp_path / mark).touch()
    else:
        (tmp_path / mark).mkdir()
    assert find_workspace(inner) == tmp_path


def test_a_local_folder_uses_wal(journal: Journal, tmp_path: Path) -> None:
    mode = sqlite3.connect(journal.path).execute("PRAGMA journal_mode").fetchone()[0]
    assert mode == ("delete" if on_network(tmp_path) else "wal")


def test_another_stream_is_kept_beside_the_sessions_and_is_none_of_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    last = journal.add("memory", ["one", "two"])
    assert journal.add("run:a", ["three"]) > last
    assert [line for _, line in journal.stream("memory")] == ["one", "two"]
    assert [line for _, line in Journal(tmp_path).stream("run:a")] == ["three"]
    assert [line for _, line in journal.stream("memory", after=last - 1)] == ["two"]
    assert journal.sessions() == []
    with pytest.raises(JournalError, match="never removed"), journal._writing() as db:
        db.execute("DELETE FROM streams")
