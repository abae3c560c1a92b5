"""Makes ``frozen/``: a journal of small sessions and a replay file, as the records were when they were made.

    python -m tests.session.freeze            all of it anew: only when no session of that time needs to open any more
    python -m tests.session.freeze --played   only the replay that today's prompts are held against

``journal.sql`` has a session of rules and a person, one whose Designer was a model, and one that waits for a person
half way. The headers that every source carries are kept once, beside it. ``played.jsonl`` is the model's session,
exported, and may be made anew with the prompts; ``replay.jsonl`` has its prompts cut short, for its form alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kernellab.journal.blobs import unpack
from kernellab.models import write_replay
from kernellab.models.exchanges import Exchange
from kernellab.session import Session, SessionStatus, design
from tests.models.fake_server import FakeServer, answer
from tests.session.session_parts import SKETCH, TASK, WRONG_SKETCH

FOLDER = Path(__file__).with_name("frozen")
#: a chip of ``knowledge/hardware``: prompts and records then name no machine
CHIP = "x86-avx512"
ROWS = """
import torch

def reference(x):
    return torch.softmax(x, -1)

def inputs():
    return torch.randn(37, 65)
"""
ENDPOINT = (
    '[models]\nbase_url = "{url}"\nmodel = "fake-1"\n[models.prices]\n"fake-*" = {{ input = 10.0, output = 10.0 }}\n'
)
WRONG = answer(f"```sketch\n{WRONG_SKETCH}```\n")
RIGHT = answer(f"Each row on its own.\n```sketch\n{SKETCH}```\n")
HEADERS = ("kl_math.h", "kl_tile.h")
#: characters of a prompt that replay.jsonl keeps
SHORT = 300
NAMES = {"rows": "rows-0000000a", "twice": "twice-0000000b", "half": "half-0000000c"}


def rest(session: Session) -> Session:
    session.wait(240)
    print(session, flush=True)
    return session


def rules_and_a_person(place: Path) -> None:
    """What a person does to a session of rules: notes, pins, edits, a fork, a comparison."""
    session = design(
        ROWS, dsl="cpp", chip=CHIP, roles="rules", name="rows", workspace=place, max_turns=12,
        options={"budget": 0.2}, budget="minutes=30",
    )  # fmt: skip
    assert rest(session).status is SessionStatus.FINISHED
    session.timings.compare("eager", timeout=120)
    session.note("designer", "Rows are short.")
    session.set_budget("minutes=60")
    session.set_approval("routing")
    session.set_role("conductor", "human")
    line = next(n for n, text in enumerate(session.sketch.splitlines(), 1) if "load(" in text)
    session.pin(line, "one read of each row")
    session.fork(2)
    source = session.source
    assert source is not None
    name = next(name for name in source.files if name.endswith((".cpp", ".cc")))
    text = source.files[name]
    session.edit_source({name: text.replace("exp(", "exp(2 * ", 1) if "exp(" in text else text + "\n#error wrong\n"})
    assert rest(session).status is SessionStatus.WAITING
    session.answer("stop")
    rest(session)
    session.fork(2)
    session.edit_source({name: text + "\nint unfinished = ;\n"})
    assert rest(session).status is SessionStatus.WAITING
    session.redirect("finish")
    rest(session)


@contextmanager
def fake_model(place: Path) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(("KERNELLAB_MODEL", "OPENAI_"))}
    with FakeServer(WRONG, RIGHT) as server:
        (place / "kernellab.toml").write_text(ENDPOINT.format(url=server.url))
        yield
    (place / "kernellab.toml").unlink()
    os.environ.update(kept)


def twice(place: Path, designer: str) -> Session:
    """The session whose Designer is a model, or a replay of it."""
    roles = {"designer": designer, "coder": "rules"}
    return design(TASK, dsl="cpp", chip=CHIP, roles=roles, name="twice", workspace=place, options={"level": "T1"})


def half(place: Path) -> None:
    """A session whose design a person approved, and that asks about its code."""
    session = design(
        ROWS, dsl="cpp", chip=CHIP, roles="rules", approve="all", name="half", workspace=place, options={"level": "T1"}
    )
    assert rest(session).status is SessionStatus.WAITING
    session.approve()
    assert rest(session).status is SessionStatus.WAITING


def dump(place: Path, path: Path) -> None:
    """The journal as SQL: schema and events, without leases, under neutral ids."""
    database = sqlite3.connect(place / ".kernellab" / "journal.db")
    database.execute("DELETE FROM leases")
    _as_one_text_a_line(database)
    ids = [row[0] for row in database.execute("SELECT DISTINCT session FROM events")]
    files = database.execute(
        "SELECT json_extract(line, '$.turn.candidate.source.files') FROM events "
        "WHERE json_extract(line, '$.turn.candidate') IS NOT NULL"
    ).fetchone()
    text = "\n".join(line for line in database.iterdump() if "sqlite_sequence" not in line) + "\n"
    for name in HEADERS:
        header = json.loads(files[0])[name]
        (FOLDER / f"{name}.txt").write_text(header, encoding="utf-8")
        text = text.replace(_quoted(header), f"{{{{{name}}}}}")
    for old in ids:
        text = text.replace(old, NAMES[old.rpartition("-")[0]])
    path.write_text(neutral(text, place), encoding="utf-8")


def _as_one_text_a_line(database: sqlite3.Connection) -> None:
    """Puts the lines' long strings back into them, so that the dump can be read and searched."""
    pieces = dict(database.execute("SELECT name, body FROM pieces"))
    lines = database.execute("SELECT seq, line FROM events").fetchall()
    (keep,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'events_keep'").fetchone()
    database.execute("DROP TRIGGER events_keep")
    for seq, line in lines:
        database.execute("UPDATE events SET line = ? WHERE seq = ?", (unpack(line, pieces.get), seq))
    database.execute(keep)
    for name in ("pieces_keep", "pieces_stay"):
        database.execute(f"DROP TRIGGER {name}")
    database.execute("DROP TABLE pieces")


def load(place: Path) -> None:
    """The frozen journal as the journal of the workspace ``place``."""
    text = (FOLDER / "journal.sql").read_text(encoding="utf-8")
    for name in HEADERS:
        header = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        text = text.replace(f"{{{{{name}}}}}", _quoted(header))
    (place / ".kernellab").mkdir()
    with closing(sqlite3.connect(place / ".kernellab" / "journal.db")) as database:
        database.executescript(text)


def _quoted(text: str) -> str:
    """As it stands inside of a JSON string inside of an SQL string."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("'", "''")


def short(exchange: Exchange) -> Exchange:
    messages = tuple(m.model_copy(update={"content": m.content[:SHORT]}) for m in exchange.messages)
    return exchange.model_copy(update={"messages": messages})


def neutral(text: str, place: Path) -> str:
    """``text`` without the machine's paths and names."""
    from kernellab.dsls.machine import cpu_chip

    replaced: dict[str, str] = {
        str(place): "/work",
        sys.prefix: "/python",
        str(Path(sys.prefix).resolve()): "/python",
        str(Path(__file__).resolve().parents[2]): "/kernellab",
        str(Path.home()): "/home",
        os.uname().nodename: "host",
        cpu_chip().name: "a CPU, 2 cores",
    }
    for old in sorted(replaced, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", replaced[old], text)
    return re.sub(r"/(?:tmp|var|dev/shm)/[\w./-]+", "/scratch", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--played", action="store_true", help="only played.jsonl")
    played_only = parser.parse_args().played
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with fake_model(place):
            session = twice(place, "model")
            assert rest(session).status is SessionStatus.FINISHED
        kept = {"played": session.trace.exchanges()}
        if not played_only:
            kept["replay"] = [short(exchange) for exchange in session.trace.exchanges()]
        for name, exchanges in kept.items():
            path = write_replay(FOLDER / f"{name}.jsonl", exchanges, "a recording for tests")
            path.write_text(neutral(path.read_text(encoding="utf-8"), place), encoding="utf-8")
        if not played_only:
            rules_and_a_person(place)
            half(place)
            dump(place, FOLDER / "journal.sql")
    for path in sorted(FOLDER.iterdir()):
        print(path.name, path.stat().st_size)
    os._exit(0)  # the engine's thread would wait for the session that asks


if __name__ == "__main__":
    main()
