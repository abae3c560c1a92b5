"""What a person does in a session: plays a role, pins lines, compares candidates, answers late or twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from session_parts import SKETCH, WRONG_SKETCH, Begin, Clumsy, OneSketch

from kernellab.agents.briefs import CodeBrief, CodeReply, DesignBrief, DesignReply
from kernellab.errors import KernellabError, SessionError, SketchError
from kernellab.records import Author, Role, RouteKind
from kernellab.session import QuestionKind, Session, SessionStatus, TurnState, open_session
from kernellab.session.engine.recorder import Recorder
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import Turn
from kernellab.session.record.view import outcome
from tests.waiting import until

LOAD = 9  # load(X[m, n:n+BLOCK] -> x)


# -- roles -------------------------------------------------------------------------------------------------------------


def test_a_person_is_told_what_a_model_would_be_and_answers_as_one(begin: Begin) -> None:
    session = begin(designer="human")
    assert session.wait(60).state.question is not None
    assert session.state.question.kind is QuestionKind.BRIEF
    told = session.brief()
    assert "sketch" in told
    assert "x * 2.0 + 1.0" in told
    with pytest.raises(KernellabError, match="no sketch"):
        session.answer("I do not know.")
    assert session.status is SessionStatus.WAITING
    session.answer(f"By rows.\n```sketch\n{SKETCH}```\n")
    assert session.wait(120).status is SessionStatus.FINISHED
    assert (session.turns[0].author, session.turns[0].rationale) == (Author.HUMAN, "By rows.")
    with pytest.raises(SessionError, match="not waiting for you"):
        session.answer("finish")


def test_a_person_conducts_in_words(begin: Begin) -> None:
    session = begin(coder=Clumsy(1), roles={"conductor": "human"})
    session.wait(120)
    assert "failed" in session.brief().lower()
    session.answer("coder: the colon is missing")
    session.wait(120)
    route = session.turns[3].route
    assert route is not None
    assert (route.to, route.suggestion) == (RouteKind.CODER, "the colon is missing")
    session.answer("finish")
    assert session.wait(60).status is SessionStatus.FINISHED


def test_an_answer_to_a_question_that_is_no_longer_open_changes_nothing(begin: Begin) -> None:
    session = begin(approve="all")
    session.wait(60)
    first = session.state.question
    assert first is not None
    session.approve(card=first.id)
    session.wait(60)
    turns = len(session.turns)
    with pytest.raises(SessionError, match="no longer open"):
        session.approve(card=first.id)
    with pytest.raises(SessionError, match="no longer open"):
        session.answer("finish", card=first.id)
    assert session.status is SessionStatus.WAITING
    assert len(session.turns) == turns
    second = session.state.question
    assert second is not None
    assert second.id != first.id
    session.set_approval("none")
    session.approve(card=second.id)
    assert session.wait(120).status is SessionStatus.FINISHED


def test_clicking_twice_does_no_harm(begin: Begin) -> None:
    session = begin(approve="routing", coder=Clumsy(1))
    session.wait(120)
    card = session.state.question
    assert card is not None
    session.set_approval("none")
    session.approve(card=card.id)
    with pytest.raises(SessionError, match=r"Nothing waits|no longer open"):
        session.approve(card=card.id)
    session.run()
    session.run()
    assert session.wait(120).status is SessionStatus.FINISHED
    session.stop()
    session.stop()
    assert session.status is SessionStatus.FINISHED


# -- pins --------------------------------------------------------------------------------------------------------------


class Reviser:
    """A Designer that, asked again, gives each of its revisions in turn."""

    author = Author.MODEL

    def __init__(self, *revisions: Callable[[str], str]) -> None:
        self.revisions = list(revisions)
        self.briefs: list[DesignBrief] = []

    def design(self, brief: DesignBrief) -> DesignReply:
        self.briefs.append(brief)
        before = brief.previous or SKETCH
        return DesignReply(self.revisions.pop(0)(before) if brief.previous and self.revisions else before)


def test_an_agents_change_to_a_pinned_line_is_refused_named_and_counted(begin: Begin) -> None:
    def break_it(text: str) -> str:
        return text.replace("load(X[m, n:n+BLOCK] -> x)", "load(X[m, n:n+BLOCK] -> x, pad=1)")

    designer = Reviser(break_it, lambda text: text.replace("x * 2.0 + 1.0", "1.0 + x * 2.0"))
    session = begin(designer=designer)
    session.wait(120)
    session.pin(LOAD, "this order streams")
    pinned = session.head
    assert pinned is not None
    assert (pinned.author, pinned.only_pins) == (Author.HUMAN, True)
    assert outcome(pinned) == f"Pinned line {LOAD}. this order streams", "the timeline tells a pin from a design"
    assert f"{'-> x)'}  # this order streams  #: pin" in session.sketch
    assert session.status is SessionStatus.FINISHED  # a pin moves nothing
    session.redirect("designer", "another way round")
    assert session.wait(120).status is SessionStatus.FINISHED
    assert designer.briefs[1].pins == ("line 9: load(X[m, n:n+BLOCK] -> x)",)
    assert designer.briefs[1].previous is not None
    (refused,) = session.state.refusals
    assert refused.gate is not None
    assert "load(X[m, n:n+BLOCK] -> x)" in refused.gate.reason
    assert session.to_dict()["refusals"] == [refused.id]
    assert "#: pin" in session.sketch
    assert "1.0 + x * 2.0" in session.sketch
    # the next one is not held to what was refused: it would be free of what that broke
    assert "load(X[m, n:n+BLOCK] -> x)  # this order streams  #: pin" in session.sketch


def test_pins_are_set_while_a_turn_runs_and_hold_for_its_result(begin: Begin) -> None:
    import threading

    gate = threading.Event()

    class Slow(Reviser):
        def design(self, brief: DesignBrief) -> DesignReply:
            if brief.previous:
                gate.wait(60)
            return super().design(brief)

    designer = Slow(lambda text: text.replace("-> x)", "-> x, pad=1)"))
    session = begin(designer=designer)
    session.wait(120)
    session.redirect("designer", "again")
    until(lambda: len(session.turns) == 6)
    running = session.head
    session.pin(LOAD)
    assert session.head is not None
    assert session.head.id == running.id if running else False
    assert session.state.turns[session.head.id].parent == session.turns[-1].id
    gate.set()
    session.wait(120)
    assert [turn.number for turn in session.state.refusals] == [6]
    # neither the next design nor code, wherever the work is sent, is made from it
    assert designer.briefs[2].previous is not None and "-> x)  #: pin" in designer.briefs[2].previous
    assert designer.briefs[2].pins == ("line 9: load(X[m, n:n+BLOCK] -> x)",)
    assert "pad=1" not in session.sketch and "-> x)  #: pin" in session.sketch


def refused_for_a_pin(begin: Begin) -> tuple[Session, Turn]:
    """A session in which a person pinned a line, and the Designer's sketch that changed it."""
    session = begin(designer=Reviser(lambda text: text.replace("-> x)", "-> x, pad=1)")))
    session.wait(120)
    session.pin(LOAD)
    session.set_approval("all")
    session.redirect("designer", "again")
    session.wait(120)
    return session, session.state.refusals[-1]


def test_code_is_not_written_from_a_sketch_that_was_refused_for_a_pin(begin: Begin) -> None:
    session, refused = refused_for_a_pin(begin)
    session.redirect("coder", "write it all the same")
    session.wait(120)
    coded = session.state.source_turn()
    assert coded is not None and coded.number > refused.number and coded.candidate is not None
    assert coded.candidate.sketch is not None and "pad=1" not in coded.candidate.sketch
    with pytest.raises(SessionError, match="changes or unpins a pinned line"):
        session.edit_sketch(refused.sketch, Author.MODEL)


def test_a_pin_in_a_refused_sketch_keeps_the_pin_that_the_sketch_broke(begin: Begin) -> None:
    session, refused = refused_for_a_pin(begin)
    lines = str(refused.sketch).split("\n")
    session.pin(next(i for i, line in enumerate(lines, 1) if "store" in line))
    with pytest.raises(SessionError, match="changes or unpins a pinned line"):
        session.edit_sketch(session.sketch, Author.MODEL)


def test_a_line_that_replaced_a_pinned_one_is_not_pinned_too(begin: Begin) -> None:
    """No sketch could keep both; the error names two ways out, and both are ways out."""
    session, refused = refused_for_a_pin(begin)
    count = len(session.turns)
    with pytest.raises(SessionError, match=r"no sketch could keep both.*fork\(5\)") as error:
        session.pin(LOAD)
    assert len(session.turns) == count and "edit_sketch(session.sketch)" in error.value.remedy
    session.edit_sketch(session.sketch)
    session.wait(60)
    session.pin(LOAD)
    session.edit_sketch(session.sketch, Author.MODEL)  # it keeps the new line, which is all that holds
    session.wait(60)
    with pytest.raises(SessionError, match="changes or unpins a pinned line"):
        session.edit_sketch(str(session.sketch).replace("pad=1", "pad=0"), Author.MODEL)
    session.fork(5)
    session.edit_sketch(session.sketch, Author.MODEL)
    assert refused.number == 7


def test_a_decision_that_fails_is_its_callers_error_and_the_session_stays(begin: Begin) -> None:
    session = begin()
    session.wait(120)
    count = len(session.turns)

    def broken(state: Any) -> list[Any]:
        raise RecursionError("too deep")

    with pytest.raises(SessionError, match="RecursionError"):
        session._requests.decide(broken)
    assert session.status is SessionStatus.FINISHED and len(session.turns) == count
    session.redirect("coder", "once more")
    assert session.wait(120).status is SessionStatus.FINISHED


def test_a_persons_pin_outlives_a_text_whose_layout_is_broken(begin: Begin) -> None:
    session = begin(approve="all")
    session.wait(120)
    session.pin(LOAD)
    pinned = session.sketch
    session.edit_sketch(str(pinned).removesuffix("}\n"))
    session.wait(60)
    with pytest.raises(SessionError, match=r"changes or unpins a pinned line|mark `#: pin` is missing"):
        session.edit_sketch(SKETCH, Author.MODEL)
    session.edit_sketch(str(pinned), Author.MODEL)


def test_a_pin_at_an_open_question_leaves_it_open(begin: Begin) -> None:
    session = begin(approve="routing", coder=Clumsy(1))
    session.wait(120)
    card = session.state.question
    session.pin(LOAD)
    assert session.state.question == card
    assert session.status is SessionStatus.WAITING
    session.unpin(LOAD)
    assert session.sketch == SKETCH
    with pytest.raises(SketchError, match="not pinned"):
        session.unpin(LOAD)
    with pytest.raises(SketchError, match="no statement"):
        session.pin(1)
    session.set_approval("none")
    session.approve(card=card.id if card else None)
    assert session.wait(120).status is SessionStatus.FINISHED
    # the Coder got the Conductor's route across the pins
    coded = [turn for turn in session.state.path() if turn.role is Role.CODER]
    assert len(coded) == 2


def test_a_pin_after_a_failed_turn_is_there_when_it_is_tried_again(begin: Begin) -> None:
    class Fails(Reviser):
        def design(self, brief: DesignBrief) -> DesignReply:
            reply = super().design(brief)
            if len(self.briefs) == 2:
                raise SketchError("No idea.", "Ask again.")
            return reply

    designer = Fails()
    session = begin(designer=designer)
    session.wait(120)
    session.redirect("designer", "again")
    assert session.wait(60).status is SessionStatus.WAITING
    session.pin(LOAD)
    session.run()
    session.wait(120)
    assert designer.briefs[2].pins


# -- looking -----------------------------------------------------------------------------------------------------------


def test_two_candidates_side_by_side(begin: Begin) -> None:
    session = begin(options={"budget": 0.2})
    session.wait(120)
    session.edit_sketch(SKETCH.replace("= 16 in", "= 32 in"))
    session.wait(120)
    found = session.timings.side_by_side(3, 7)
    assert "-    constexpr: BLOCK = 16 in {16, 32};" in found["sketch"]
    assert found["files"]
    assert (found["a"]["number"], found["b"]["number"]) == (3, 7)
    assert found["low"] <= found["ratio"] <= found["high"]
    assert found["baseline"] == "eager"
    assert "times as fast as turn 3" in found["text"]
    same = session.timings.side_by_side(3, 4)
    assert (same["sketch"], same["files"]) == ("", {})
    with pytest.raises(SessionError, match="Turn 1 has no candidate"):
        session.timings.side_by_side(1, 3)
    with pytest.raises(SessionError, match="no turn 99"):
        session.timings.side_by_side(99, 3)


class Claims(OneSketch):
    def design(self, brief: DesignBrief) -> DesignReply:
        claims = ("It moves 19.24 kB.", "It will be 900x eager.", "Rows are independent.")
        return DesignReply(super().design(brief).sketch, claims=claims)


def test_a_claim_with_a_number_is_checked_against_the_record(begin: Begin) -> None:
    session = begin(designer=Claims(), options={"budget": 0.2})
    session.wait(120)
    told = session.turns[0].checks
    assert [check.holds for check in told] == [True, None, None]  # nothing was measured when it was said
    now = session.trace.claims(1)
    assert [check.holds for check in now] == [True, False, None]
    assert "900" in now[1].why


def test_the_analyst_explains_and_moves_nothing(begin: Begin) -> None:
    session = begin()
    session.wait(120)
    head = session.head
    told = session.analyse("How far are we?", wait=60)
    assert told is not None
    assert (told.role, told.state) == (Role.ANALYST, TurnState.DONE)
    assert "1 kernel verified, 1 passed" in told.rationale
    assert session.head == head
    assert session.status is SessionStatus.FINISHED


# -- two at once, and after a restart ----------------------------------------------------------------------------------


def test_a_second_look_from_the_journal_shows_the_same_tree_and_goes_on(begin: Begin, tmp_path: Path) -> None:
    session = begin(approve="routing", coder=Clumsy(1))
    session.wait(120)
    session.pin(LOAD)
    journal = Journal(tmp_path)
    again = Session(journal, session.id)
    assert again.to_dict()["turns"] == session.to_dict()["turns"]
    assert again.to_dict()["question"] == session.to_dict()["question"]
    again.set_role("coder", "rules")
    again.set_role("designer", OneSketch())
    again.set_approval("none")
    again.run()
    assert again.wait(120).status is SessionStatus.FINISHED
    assert Recorder.read(journal, session.id).best() is None  # a quick look earns no trust
    assert again.verdict.passed


def test_five_hundred_turns_stay_quick_to_fold_and_to_show(begin: Begin, tmp_path: Path) -> None:
    from kernellab.session.record.fold import apply, fold
    from kernellab.session.record.view import Dumps, as_dict

    session = begin()
    session.wait(120)
    journal = Journal(tmp_path)
    events = [event for _, event in journal.read(session.id)]
    state = session.state
    made = Dumps()
    model = list(session.turns)
    steps = 0
    for number in range(len(model) + 1, 501):
        like = model[(number - 1) % len(model)]
        turn = like.model_copy(update={"id": f"t{number}", "number": number, "parent": f"t{number - 1}"})
        for event in _begun_and_ended(turn):
            events.append(event)
            state = apply(session.id, state, event)
            steps += 1
    shown = as_dict(state, {}, "", 1, made)
    assert len(shown["turns"]) == 500
    assert fold(session.id, events) == state
    # the next event costs one turn's data, not five hundred
    again = as_dict(state, {}, "", 2, made)
    assert all(made.of(turn) is made.of(turn) for turn in state.turns.values())
    assert again["turns"] == shown["turns"]


def _begun_and_ended(turn: Any) -> list[Any]:
    from kernellab.session.record.events import TurnEnded, TurnStarted

    return [TurnStarted(turn=turn.model_copy(update={"state": TurnState.RUNNING})), TurnEnded(turn=turn)]


def test_open_session_is_the_same_object_for_two_front_ends(begin: Begin, tmp_path: Path) -> None:
    session = begin(approve="all")
    session.wait(60)
    assert open_session(session.id, tmp_path) is session


# -- parts left out ----------------------------------------------------------------------------------------------------


def test_without_the_gate_a_wrong_sketch_is_coded_and_the_verifier_finds_it(begin: Begin) -> None:
    session = begin(designer=OneSketch(WRONG_SKETCH), ablation=["gate"], max_turns=2)
    session.wait(120)
    assert [turn.role.value for turn in session.turns[:3]] == ["designer", "coder", "verifier"]
    assert session.turns[0].gate is None
    assert not session.verdict.passed


def test_without_sketches_the_coder_begins_and_all_faults_are_its(begin: Begin) -> None:
    class FromTask(Clumsy):
        def code(self, brief: CodeBrief) -> CodeReply:
            assert brief.sketch == ""
            return super().code(brief)

    session = begin(coder=FromTask(9), ablation=["sketch"], max_turns=3)
    session.wait(120)
    assert {turn.role for turn in session.turns} == {Role.CODER, Role.VERIFIER, Role.CONDUCTOR}
    routes = [turn.route.to for turn in session.turns if turn.route]
    assert set(routes) <= {RouteKind.CODER, RouteKind.STOP}
