"""A role that a model plays, behind a real endpoint on this machine: what was said is one question away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from notebook_parts import SKETCH, TASK, Page

from kernellab.models import write_replay
from kernellab.models.exchanges import Exchange, Usage
from kernellab.notebook.board.workbench import Workbench
from kernellab.notebook.views.detail import detail, exchange_head
from kernellab.records import Role
from kernellab.session import design
from tests.models.fake_server import Connection, FakeServer, answer
from tests.waiting import until

REPLY = f"Each row is cut into blocks; I expect 2.5x eager.\n```sketch\n{SKETCH}```\n"


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``configured(act) -> server``: the endpoint that models are asked at."""
    servers: list[FakeServer] = []

    def make(*acts: Any) -> FakeServer:
        server = FakeServer(*acts)
        server.__enter__()
        servers.append(server)
        monkeypatch.setenv("KERNELLAB_MODEL_URL", server.url)
        monkeypatch.setenv("KERNELLAB_MODEL", "fake-1")
        monkeypatch.setenv("KERNELLAB_MODEL_KEY", "sk-secret-of-this-test")
        return server

    yield make
    for server in servers:
        server.__exit__()


def test_tries_before_the_answer_are_told_with_its_tokens() -> None:
    asked = Exchange(
        id="x1", role=Role.DESIGNER, purpose="design", model="fake-1", messages=(), reply=REPLY, attempts=5,
        usage=Usage(input_tokens=7800, cached_tokens=64, output_tokens=79, seconds=93.0),
    )  # fmt: skip
    assert exchange_head(asked)["tokens"] == "7,800 (64 cached) in, 79 out, 5 tries"
    assert exchange_head(asked.model_copy(update={"attempts": 1}))["tokens"] == "7,800 (64 cached) in, 79 out"
    refused = asked.model_copy(update={"usage": Usage(), "reply": "", "error": "too many requests"})
    assert exchange_head(refused)["tokens"] == "5 tries"


def test_what_a_model_was_told_and_what_it_answered_is_one_question_away(configured: Any, tmp_path: Path) -> None:
    configured(answer(REPLY, reasoning="rows are independent"))
    session = design(TASK, dsl="cpp", name="add_one", roles="designer=model,coder=human", workspace=tmp_path)
    bench = Workbench(session)
    session.wait(60)
    assert until(lambda: bench.head["card"] and bench.head["card"]["role"] == "coder")
    page = Page(bench)
    bench.shown = "t1"
    assert until(lambda: bench.detail["turn"] == "t1" and bench.detail["exchanges"])
    (told,) = bench.detail["exchanges"]
    assert (told["model"], told["role"], told["recorded"]) == ("fake-1", "designer", "")
    assert "100 (64 cached) in" in told["tokens"]
    text = page.ask("exchange", exchange=told["id"])
    assert "x + 1" in text["messages"][-1]["content"] + text["messages"][0]["content"]
    assert (text["reply"], text["reasoning"]) == (REPLY, "rows are independent")
    assert {section["name"] for section in text["sections"]} and "sk-secret" not in str(text)
    assert bench.head["ledger"]["text"].startswith("120 tokens")
    row = next(row for row in [*bench.changed, *bench.turns] if row["id"] == "t1")
    assert (row["author"], row["tokens"]) == ("model", 120)
    quoted = {passage["text"] for passage in bench.detail["memory"]}
    assert "patterns/pointwise.md" in quoted and not any("prompts/" in source for source in quoted)
    bench.close()
    session.stop()
    file = write_replay(tmp_path / "said.jsonl", session.trace.exchanges())
    again = design(TASK, dsl="cpp", name="again", roles=f"designer=replay:{file},coder=human", workspace=tmp_path)
    again.wait(60)
    (told,) = detail(again.state, "t1")["exchanges"]
    assert (told["model"], told["recorded"][:12]) == ("fake-1", "recorded on ")
    again.stop()


def test_what_a_model_writes_is_seen_while_it_writes(configured: Any, tmp_path: Path) -> None:
    go_on = threading.Event()

    def slowly(link: Connection) -> None:
        link.open_stream()
        link.delta(role="assistant", content="Each row ")
        go_on.wait(30)
        link.delta(content=REPLY)
        link.delta(finish="stop")
        link.done()

    configured(slowly)
    session = design(TASK, dsl="cpp", name="add_one", roles="designer=model,coder=human", workspace=tmp_path)
    bench = Workbench(session)
    assert until(lambda: bench.partial["text"] == "Each row ")
    assert (bench.partial["turn"], bench.partial["role"], bench.partial["length"]) == ("t1", "designer", 9)
    go_on.set()
    session.wait(60)
    assert until(lambda: bench.partial["turn"] is None)
    bench.close()
    session.stop()
