"""Sessions and replays that were recorded earlier still open, say what they said, and go on.

``frozen/`` is data of one day; only a change that gives old sessions up may make it anew (``freeze.py`` says how).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernellab.models import read_replay
from kernellab.models.chat import ChatRequest
from kernellab.models.exchanges import Finish, Usage
from kernellab.models.replay import ReplayModel
from kernellab.records import Author, GateState, Role, RouteKind, Stage, StageState, Trust
from kernellab.session import QuestionKind, Session, SessionStatus, TurnState, importing, open_session, sessions
from kernellab.session.record.fold import fold
from kernellab.session.record.journal import Journal
from kernellab.session.record.state import State
from kernellab.session.record.trajectories import in_form, rows, write_trajectories
from tests.session import freeze
from tests.session.session_parts import SKETCH

ROWS, TWICE, HALF = (freeze.NAMES[name] for name in ("rows", "twice", "half"))
#: the first measurement: against eager, and the kernel's own median in ms; a later comparison is kept as timed again
SPEEDUP, MEDIAN, AGAIN = 0.9451664653328642, 0.007655399986106201, 0.8417360424942062


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """``opened(ID, resume=...)``: a session of the frozen journal, stopped at the end."""
    freeze.load(tmp_path)
    found: list[Session] = []

    def make(session: str, resume: bool = False) -> Session:
        found.append(open_session(session, tmp_path, resume))
        return found[-1]

    yield make
    for session in found:
        if not session.resting:
            session.stop()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, State]:
    place = tmp_path_factory.mktemp("frozen")
    freeze.load(place)
    journal = Journal(place)
    folded = {session: fold(session, (event for _, event in journal.read(session))) for session in journal.sessions()}
    return {session: state for session, state in folded.items() if state is not None}


# -- the fold ----------------------------------------------------------------------------------------------------------


def test_every_frozen_session_is_folded_to_what_it_was(states: dict[str, State]) -> None:
    assert list(states) == [TWICE, ROWS, HALF]
    assert [s.status for s in states.values()] == [
        SessionStatus.FINISHED,
        SessionStatus.FINISHED,
        SessionStatus.WAITING,
    ]
    assert [len(s.turns) for s in states.values()] == [4, 11, 2]
    assert [s.head for s in states.values()] == ["t4", "t11", "t2"]
    for state in states.values():
        assert all(turn.state is TurnState.DONE for turn in state.turns.values())
        assert state.target is not None
        assert (state.target.dsl, state.target.backend) == ("cpp", "cpu")
        assert state.target.chip == "x86-64 server with AVX-512"
        gate = state.turns["t1"].gate
        assert gate is not None
        assert gate.state is GateState.RIGHT


def test_a_persons_decisions_are_kept(states: dict[str, State]) -> None:
    state = states[ROWS]
    assert state.notes_for(Role.DESIGNER) == ("Rows are short.",)
    assert (state.budget, state.approval, state.created.budget) == ("minutes=60", "routing", "minutes=30")
    assert (state.roles[Role.CONDUCTOR], state.created.roles[Role.CONDUCTOR]) == ("human", "rules")
    parents = [turn.parent or "-" for turn in state.turns.values()]
    assert " ".join(parents) == "- t1 t2 t3 t4 t2 t6 t7 t2 t9 t10"
    assert [t.number for t in state.turns.values() if t.author is Author.HUMAN] == [5, 6, 8, 9, 11]
    pinned = state.turns["t5"]
    assert pinned.only_pins
    assert "#: pin" in (pinned.sketch or "")
    routes = [turn.route.to for turn in state.turns.values() if turn.route]
    assert routes == [RouteKind.FINISH, RouteKind.STOP, RouteKind.FINISH]
    assert states[HALF].approved == {"t1"}
    question = states[HALF].question
    assert question is not None
    assert (question.kind, question.id) == (QuestionKind.TURN, "turn-t2-coder")


def test_sources_keep_their_hashes(states: dict[str, State]) -> None:
    hashes = {
        (session, turn.number): turn.candidate.source.hash
        for session, state in states.items()
        for turn in state.turns.values()
        if turn.candidate
    }
    assert hashes == {
        (TWICE, 2): "49bfb9c29840e734",
        (ROWS, 2): "21d71a001967e314",
        (ROWS, 6): "cf46e9d29f040976",
        (ROWS, 9): "35b8dcfd97fc014c",
        (HALF, 2): "d907f36048edda95",
    }


def test_the_best_is_the_one_that_passed_with_the_figures_of_its_comparison(states: dict[str, State]) -> None:
    best = states[ROWS].best()
    assert best is not None
    assert (best.turn.number, best.candidate.source.hash) == (3, "21d71a001967e314")
    verdict = best.verdict
    assert (verdict.passed, verdict.stage, verdict.trust) == (True, Stage.FAST, Trust.T2)
    assert [stage.state for stage in verdict.stages] == [StageState.PASSED] * len(Stage)
    assert verdict.speedup == pytest.approx(SPEEDUP)
    assert verdict.time is not None
    assert verdict.time.median_ms == pytest.approx(MEDIAN)
    assert [(c.baseline, c.speedup) for c in verdict.timed_again] == [("eager", pytest.approx(AGAIN))]
    assert [comparison.baseline for comparison in verdict.comparisons] == ["eager"]
    assert "0.95x eager" in verdict.reason
    assert states[TWICE].best() is None  # T1 is a quick look


def test_failed_verdicts_keep_their_evidence(states: dict[str, State]) -> None:
    wrong, unbuilt = (states[ROWS].turns[turn].verdict for turn in ("t7", "t10"))
    assert wrong is not None and wrong.evidence is not None
    assert (wrong.passed, wrong.stage, wrong.evidence.signature) == (False, Stage.CORRECT, "wrong-values")
    assert wrong.evidence.first_wrong == [0, 0]
    assert wrong.evidence.error_map
    assert "from kernellab.verifier import reproduce" in wrong.evidence.reproduction
    assert unbuilt is not None and unbuilt.evidence is not None
    assert (unbuilt.passed, unbuilt.stage) == (False, Stage.BUILD)
    assert [line.place for line in unbuilt.evidence.compiler][:1] == ["kernel.cpp:34"]
    assert unbuilt.environment.versions["torch"].startswith("2.")


def test_what_a_model_said_is_kept(states: dict[str, State]) -> None:
    first, second = states[TWICE].exchanges("t1")
    assert [(e.role, e.purpose, e.finish) for e in (first, second)] == [
        (Role.DESIGNER, "design", Finish.STOP),
        (Role.DESIGNER, "repair-sketch", Finish.STOP),
    ]
    assert [len(e.messages) for e in (first, second)] == [2, 4]
    assert second.reply == f"Each row on its own.\n```sketch\n{SKETCH}```\n"
    assert (first.usage.input_tokens, first.usage.output_tokens) == (100, 20)
    assert first.sections
    made = list(rows(states[TWICE]))
    assert [row["messages"][-1]["content"] for row in made] == [first.reply, second.reply]


def test_gate_and_verdict_belong_to_the_reply_that_was_taken(states: dict[str, State], tmp_path: Path) -> None:
    refused, taken = rows(states[TWICE])
    assert (refused["accepted"], refused["gate"], refused["verdict"], refused["reward"]) == (False, "", None, 0.0)
    assert taken["accepted"] and taken["gate"] == "right" and taken["verdict"]["passed"]
    assert taken["reward"] >= 0.5
    again = {**taken, "source": [{"name": "kl_math.h", "text": "x" * 99}, {"name": "kernel.cpp", "text": "y"}]}
    path = tmp_path / "t.jsonl"
    assert write_trajectories(path, [again, again]) == 2
    first, second = (json.loads(line)["source"] for line in path.read_text().splitlines())
    assert [file["text"] for file in first] == ["x" * 99, "y"]
    assert [file["text"] for file in second] == ["", "y"] and first[0]["sha256"] == second[0]["sha256"]
    kernels = importing.read(path, "MIT")
    assert [kernel.source.files["kl_math.h"] for kernel in kernels] == ["x" * 99] * 2


def test_rows_come_in_the_forms_of_trainers(states: dict[str, State]) -> None:
    made = list(rows(states[TWICE]))
    (chat,) = in_form(made, "sft")
    assert chat["messages"] == made[1]["messages"]
    (pair,) = in_form(made, "dpo")
    assert pair["prompt"] == made[0]["messages"][:2] and [m["role"] for m in pair["prompt"]] == ["system", "user"]
    assert pair["chosen"] == made[1]["messages"][-1:] and pair["rejected"] == made[0]["messages"][-1:]
    worth = [(row["prompt"], row["reward"]) for row in in_form(made, "rl")]
    assert worth[0][0] == worth[1][0] and worth[0][1] < worth[1][1]


def test_trl_takes_the_forms_as_they_are(states: dict[str, State]) -> None:
    utils = pytest.importorskip("trl.data_utils")
    datasets = pytest.importorskip("datasets")
    made = list(rows(states[TWICE]))
    for form in ("sft", "dpo", "rl"):
        data = datasets.Dataset.from_list(in_form(made, form))
        assert all(utils.is_conversational(row) for row in data), form
    pairs = utils.unpair_preference_dataset(datasets.Dataset.from_list(in_form(made, "dpo")))
    assert pairs["label"] == [True, False] or list(pairs["label"]) == [True, False]


# -- open, look, go on -------------------------------------------------------------------------------------------------


def test_a_finished_session_is_opened_shown_and_exported(opened: Any, tmp_path: Path) -> None:
    session = opened(ROWS)
    assert sessions(tmp_path) == [TWICE, ROWS, HALF]
    shown = session.to_dict()
    assert (shown["status"], len(shown["turns"])) == ("finished", 11)
    assert "10 verifier  rules   " in repr(session)
    found = session.timings.side_by_side(3, 7)
    assert found["a"]["passed"] is True
    assert found["b"]["passed"] is False
    assert "exp(2 * " in found["files"]["kernel.cpp"]
    text = session.export(tmp_path / "best.py").read_text()
    assert "def kernel(" in text
    assert opened(TWICE).trace.ledger()["total"]["requests"] == 2


def test_a_session_that_waited_goes_on_to_its_end(opened: Any) -> None:
    session = opened(HALF, resume=True)
    assert session.status is SessionStatus.WAITING
    session.set_approval("none")
    session.approve(card="turn-t2-coder")
    assert session.wait(240).status is SessionStatus.FINISHED
    assert [turn.role for turn in session.turns] == [Role.DESIGNER, Role.CODER, Role.VERIFIER, Role.CONDUCTOR]
    assert session.verdict.passed


# -- replays -----------------------------------------------------------------------------------------------------------


def test_a_replay_file_is_read_and_answers_what_was_asked() -> None:
    replay = read_replay(freeze.FOLDER / "replay.jsonl")
    assert (replay.models, replay.note) == (("fake-1",), "a recording for tests")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", replay.recorded)
    assert [exchange.purpose for exchange in replay.exchanges] == ["design", "repair-sketch"]
    model = ReplayModel(replay, Role.DESIGNER)
    for exchange in replay.exchanges:
        reply = model.ask(ChatRequest(exchange.messages, schema=exchange.schema_))
        # the recording was paid for when it was made
        assert (reply.text, reply.finish, reply.usage) == (exchange.reply, Finish.STOP, Usage())


def test_a_replay_plays_a_whole_session_again(tmp_path: Path) -> None:
    session = freeze.twice(tmp_path, f"replay:{freeze.FOLDER / 'played.jsonl'}").wait(240)
    assert "holds no answer" not in session.reason, (
        f"The Designer's prompt has changed: {session.reason} If it is meant: python -m tests.session.freeze --played"
    )
    assert session.status is SessionStatus.FINISHED
    assert session.sketch == SKETCH
    assert [exchange.purpose for exchange in session.trace.exchanges()] == ["design", "repair-sketch"]


def test_the_frozen_files_are_small_and_name_no_machine() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in freeze.FOLDER.iterdir()}
    assert sum(map(len, texts.values())) < 300_000
    for name, text in texts.items():
        assert not re.search(r"/(?:home|root|tmp|Users|opt|usr)/\w|Intel|Xeon|EPYC", text), name
        assert 'INSERT INTO "leases"' not in text
