"""What the view draws is a function of the session's state, here folded from events."""

from __future__ import annotations

import json

from kernellab.notebook.receipt import summary, turns_text
from kernellab.notebook.verdict import headline, verdict_text
from kernellab.notebook.view import view_state, view_texts
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    Evidence,
    GateResult,
    GateState,
    Role,
    Route,
    RouteKind,
    Source,
    Stage,
    StageResult,
    StageState,
    Timing,
    Verdict,
)
from kernellab.session.records import (
    Created,
    Event,
    Question,
    QuestionKind,
    SessionStatus,
    StatusChanged,
    Turn,
    TurnEnded,
    TurnStarted,
    TurnState,
)
from kernellab.session.state import State, fold

TIME = Timing(median_ms=2.0, q1_ms=1.9, q3_ms=2.1, samples=30)
FAST = Verdict(
    passed=True,
    stage=Stage.FAST,
    reason="right on 40 cases",
    stages=[StageResult(name=Stage.CORRECT, state=StageState.PASSED, seconds=0.25)],
    time=TIME,
    sol_ms=1.0,
    comparisons=[Comparison(baseline="eager", baseline_time=TIME, speedup=2.913, low=2.7, high=3.1)],
)
WRONG = Verdict(
    passed=False,
    stage=Stage.CORRECT,
    reason="3 % of elements are wrong",
    evidence=Evidence(
        signature="edge-tile", sizes={"N": 1000}, first_wrong=[0, 992], got=0.0, want=1.5, error_map=[".x"]
    ),
)
SOURCE = Source(dsl="cpp", files={"kernel.py": "import x\n", "kernel.cpp": "// c\n", "kl_math.h": "//\n"})
ROUTE = Route(to=RouteKind.CODER, error_class="algorithm", reason="The sketch runs right.", suggestion="mask the load")


def turn(number: int, role: Role, parent: str | None, **fields: object) -> list[Event]:
    made = Turn.model_validate(
        {"id": f"t{number}", "number": number, "parent": parent, "role": role, "author": Author.RULES, **fields}
    )
    return [TurnStarted(turn=made), TurnEnded(turn=made.model_copy(update={"state": TurnState.DONE}))]


def state(*events: list[Event]) -> State:
    folded = fold("s1", [Created(name="norm", text="", key="k", dsl="cpp"), *(e for group in events for e in group)])
    assert folded is not None
    return folded


DESIGN = turn(1, Role.DESIGNER, None, sketch="sketch a {}", gate=GateResult(state=GateState.RIGHT, reason="right on 6"))
CODE = turn(2, Role.CODER, "t1", candidate=Candidate(id="c1", source=SOURCE))
PASS = turn(3, Role.VERIFIER, "t2", verdict=FAST)
EDIT = turn(4, Role.CODER, "t3", author=Author.HUMAN, candidate=Candidate(id="c2", source=SOURCE))
FAIL = turn(5, Role.VERIFIER, "t4", verdict=WRONG)
ROUTED = turn(6, Role.CONDUCTOR, "t5", route=ROUTE)
ASKED: list[Event] = [
    StatusChanged(
        status=SessionStatus.WAITING,
        question=Question(
            kind=QuestionKind.ROUTE,
            role=Role.CONDUCTOR,
            text="Send it to the Coder?",
            answer="approve()",
            turn="t6",
            to=RouteKind.CODER,
            suggestion="mask the load",
        ),
    )
]


def test_it_is_plain_data_at_every_moment() -> None:
    events = [DESIGN, CODE, PASS, EDIT, FAIL, ROUTED, ASKED]
    for length in range(len(events) + 1):
        now = state(*events[:length])
        json.dumps([view_state(now), view_texts(now)])


def test_a_new_candidate_has_no_verdict_until_it_is_verified() -> None:
    assert view_state(state(DESIGN, CODE))["verdict"] is None
    assert view_state(state(DESIGN, CODE, PASS))["verdict"]["passed"] is True
    assert view_state(state(DESIGN, CODE, PASS, EDIT))["verdict"] is None
    assert view_state(state(DESIGN, CODE, PASS, EDIT, FAIL))["verdict"]["stage"] == "correct"


def test_the_headline_stays_the_best_candidates_and_names_its_baseline_and_trust() -> None:
    drawn = view_state(state(DESIGN, CODE, PASS, EDIT, FAIL))
    assert drawn["headline"] == "2.91x eager  50% of bound  T2"
    assert "2.91 times as fast as PyTorch eager (95 %: 2.70 to 3.10)" in drawn["headline_title"]


def test_looking_back_shows_what_was_true_then() -> None:
    everything = state(DESIGN, CODE, PASS, EDIT, FAIL, ROUTED, ASKED)
    then, texts = view_state(everything, shown="t1"), view_texts(everything, shown="t1")
    assert (texts["sketch"], texts["files"], then["verdict"], then["card"]) == ("sketch a {}", {}, None, None)
    assert view_state(everything, shown="t3")["verdict"]["passed"] is True


def test_an_open_question_is_a_card_with_an_editable_suggestion() -> None:
    card = view_state(state(DESIGN, CODE, PASS, EDIT, FAIL, ROUTED, ASKED))["card"]
    assert card["pending"] and card["editable"]
    assert (card["to"], card["suggestion"], card["text"]) == ("coder", "mask the load", "The sketch runs right.")


def test_an_old_proposal_is_shown_but_cannot_be_approved() -> None:
    card = view_state(state(DESIGN, CODE, PASS, EDIT, FAIL, ROUTED))["card"]
    assert card["title"] == "The Conductor proposed: coder."
    assert not card["pending"]


def test_turns_say_who_did_what_and_how_it_ended() -> None:
    rows = view_state(state(DESIGN, CODE, PASS, EDIT, FAIL, ROUTED, ASKED))["turns"]
    assert [row["state"] for row in rows] == ["done", "done", "passed", "done", "failed", "waiting"]
    assert rows[3]["author"] == "human"
    assert rows[4]["note"] == "failed at correct: 3 % of elements are wrong"
    assert rows[5]["note"] == "-> coder: mask the load"


def test_a_fork_is_set_in() -> None:
    rows = view_state(state(DESIGN, CODE, turn(3, Role.CODER, "t1", candidate=Candidate(id="c2", source=SOURCE))))[
        "turns"
    ]
    assert [row["depth"] for row in rows] == [0, 0, 1]


def test_the_buttons_follow_the_status() -> None:
    running = view_state(state(DESIGN))["can"]
    assert running["pause"] and running["stop"] and not running["step"]
    waiting = view_state(state(DESIGN, CODE, PASS, EDIT, FAIL, ROUTED, ASKED))["can"]
    assert waiting["step"] and waiting["run"] and not waiting["pause"]


def test_a_failed_session_says_why() -> None:
    failed: list[Event] = [StatusChanged(status=SessionStatus.FAILED, reason="The cell defines no reference.")]
    assert view_state(state(failed))["error"] == "The cell defines no reference."
    assert "The cell defines no reference." in summary(state(failed))


def test_a_verdict_in_text_has_evidence_baseline_and_trust() -> None:
    text = verdict_text(WRONG)
    for part in ("failed at correct", "edge-tile", "N=1000", "[0, 992]: got 0.0, want 1.5", ".x", "T2 isolated"):
        assert part in text
    assert "PyTorch eager: 2.91x [2.70, 3.10]" in verdict_text(FAST)


def test_an_interval_across_one_is_said_to_be_no_difference() -> None:
    same = FAST.model_copy(update={"comparisons": [FAST.comparisons[0].model_copy(update={"low": 0.98})]})
    assert "no difference" in verdict_text(same)


def test_only_a_passed_verdict_makes_a_headline() -> None:
    assert headline(WRONG) == "" and headline(None) == ""


def test_the_summary_of_a_running_session_has_nothing_that_varies() -> None:
    assert summary(state(DESIGN)) == summary(state(DESIGN, CODE))


def test_the_turns_as_text_name_each_role() -> None:
    text = turns_text(state(DESIGN, CODE, PASS))
    assert [line.split()[1] for line in text.splitlines()] == ["designer", "coder", "verifier"]
