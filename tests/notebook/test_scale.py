"""A session of 500 turns: what a change costs on the wire, and that the last value always arrives."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from notebook_parts import SKETCH, TASK, Page

from kernellab.notebook.board.workbench import Workbench
from kernellab.notebook.views.facts import gather
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    Environment,
    GateResult,
    GateState,
    Role,
    Source,
    Stage,
    Timing,
    Verdict,
)
from kernellab.session import open_session
from kernellab.session.record.events import Created, Event, StatusChanged, TargetFound, TurnEnded, TurnStarted
from kernellab.session.record.journal import open_journal
from kernellab.session.record.records import SessionStatus, Turn, TurnState
from tests.waiting import until

TURNS = 500
BASE = Timing(median_ms=2.0, q1_ms=1.9, q3_ms=2.1, samples=30)


def history() -> list[Event]:
    """A journal of design, code and verification, again and again, in forks of 60 turns."""
    events: list[Event] = [
        Created(name="long", text=TASK, key="k", dsl="cpp", roles={Role.DESIGNER: "human"}, max_turns=TURNS),
        TargetFound(dsl="cpp", backend="cpu", chip="this chip"),
    ]
    for number in range(1, TURNS + 1):
        parent = None if number == 1 else f"t{number - 1 if number % 60 else number - 30}"
        fields: dict[str, Any] = {"id": f"t{number}", "number": number, "parent": parent, "author": Author.RULES}
        if number % 3 == 1:
            fields |= {
                "role": Role.DESIGNER,
                "sketch": SKETCH.replace("= 16 in", f"= {16 * (1 + number % 2)} in"),
                "gate": GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6),
            }
        elif number % 3 == 2:
            files = {"kernel.py": f"# {number}\n" * 60, "kernel.cpp": f"// {number}\n" * 90}
            fields |= {
                "role": Role.CODER,
                "candidate": Candidate(id=f"c{number}", source=Source(dsl="cpp", files=files)),
            }
        else:
            value = 1 + number / TURNS
            fields |= {
                "role": Role.VERIFIER,
                "verdict": Verdict(
                    passed=True,
                    stage=Stage.FAST,
                    reason="right",
                    time=BASE,
                    sol_ms=0.5,
                    environment=Environment(chip="this chip", threads=2),
                    comparisons=[
                        Comparison(
                            baseline="eager", baseline_time=BASE, speedup=value, low=value - 0.1, high=value + 0.1
                        )
                    ],
                ),
            }
        turn = Turn(**fields)
        events += [TurnStarted(turn=turn), TurnEnded(turn=turn.model_copy(update={"state": TurnState.DONE}))]
    return [*events, StatusChanged(status=SessionStatus.PAUSED, reason="One turn was asked for.")]


@pytest.fixture
def long(tmp_path: Path) -> Iterator[tuple[Any, Workbench, list[int]]]:
    """A real journal with 500 turns, the session opened from it, its workbench, and the bytes that it sends."""
    journal = open_journal(tmp_path)
    owner = uuid.uuid4().hex
    assert journal.acquire("long-1", owner) is None
    journal.append("long-1", owner, history())
    journal.release("long-1", owner)
    session = open_session("long-1", tmp_path, resume=False)
    bench = Workbench(session)
    sent: list[int] = []
    approvals: list[str] = []
    assert bench.comm is not None
    publish = bench.comm.publish_msg

    def measure(msg_type: str, data: Any = None, **rest: Any) -> None:
        sent.append(len(json.dumps(data)))
        approvals.append(data.get("state", {}).get("head", {}).get("approval", ""))
        publish(msg_type, data=data, **rest)

    bench.comm.publish_msg = measure  # type: ignore[method-assign]
    # what the task's facts bring (the roofline of 166 candidates, above all) is set before it goes out, perhaps before
    # anybody measured: it has gone when a later change has, for one thread sends all of them in order
    assert until(lambda: bench.roofline.get("points"))
    session.set_approval("all")
    assert until(lambda: "all" in approvals)
    yield session, bench, sent
    bench.close()


def test_a_turn_of_a_long_session_costs_little_on_the_wire(long: tuple[Any, Workbench, list[int]]) -> None:
    session, bench, sent = long
    assert len(bench.turns) == TURNS
    page = Page(bench)
    sent.clear()
    assert page.act("note", role="designer", text="keep it simple") == ""
    assert page.act("sketch", text=SKETCH.replace("x + 1", "1 + x"), base="") == ""
    session.wait(60)
    assert until(lambda: any(row["id"] == "t501" and row["state"] == "done" for row in bench.changed))
    # a whole list of rows alone would be over 100 kB, and each turn changes its row twice
    assert sum(sent) < 20_000, sent
    assert len(json.dumps(bench.changed)) < 2_000
    assert len(json.dumps(bench.turns)) > 100_000


def test_looking_at_another_turn_sends_that_turn_only(long: tuple[Any, Workbench, list[int]]) -> None:
    _, bench, sent = long
    sent.clear()
    bench.shown = "t120"
    assert until(lambda: any(size > 1_000 for size in sent))
    assert (bench.detail["turn"], bench.texts["turn"], bench.changed) == ("t120", "t120", [])
    assert sum(sent) < 20_000


def test_a_burst_of_changes_becomes_a_few_messages_and_the_last_value_arrives(
    long: tuple[Any, Workbench, list[int]],
) -> None:
    session, bench, sent = long
    sent.clear()
    for number in range(300):
        session.set_approval("routing" if number % 2 else "all")
    assert until(lambda: bench.head["approval"] == "routing")
    assert len(sent) < 100


def test_candidates_of_a_long_session_come_by_the_page(long: tuple[Any, Workbench, list[int]]) -> None:
    page = Page(long[1])
    first = page.ask("candidates", offset=0, limit=50, sort="speedup")
    assert first["total"] == 167 and len(first["rows"]) == 50
    values = [row["value"] for row in first["rows"]]
    assert values == sorted(values, reverse=True)
    assert len(page.ask("candidates", offset=150, limit=10_000)["rows"]) == 17


def test_a_session_of_another_machine_is_costed_for_the_chip_that_it_was_designed_for(tmp_path: Path) -> None:
    other = "NVIDIA H100 80GB HBM3"
    events = history()[:8]  # with the first verdict
    events[1] = TargetFound(dsl="triton", backend="cuda", chip=other)
    ended = events[-1]
    assert isinstance(ended, TurnEnded) and ended.turn.verdict is not None
    where = Environment(chip=other, threads=2, bandwidth=3e12, rated="2026-11-28")
    verdict = ended.turn.verdict.model_copy(update={"environment": where})
    events.append(TurnEnded(turn=ended.turn.model_copy(update={"verdict": verdict})))
    journal = open_journal(tmp_path)
    assert journal.acquire("far-1", "x") is None
    journal.append("far-1", "x", events)
    journal.release("far-1", "x")
    session = open_session("far-1", tmp_path, resume=False)
    chip = gather(session).measured(session.state).chip
    assert chip is not None and (chip.kind, chip.name, chip.bandwidth) == ("gpu", other, 3e12)
    assert session.target.chip.name != other, "what is designed next is for this machine"
