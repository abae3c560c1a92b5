"""What the workbench draws is a function of the session's state, here folded from events."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kernellab.errors import CaptureError, KernellabError, SessionError, names_of
from kernellab.models.chat import WAITING
from kernellab.notebook.saved.receipt import summary
from kernellab.notebook.saved.shared import shared_page
from kernellab.notebook.saved.snapshot import receipt, snapshot
from kernellab.notebook.views.artefacts import flags_of
from kernellab.notebook.views.candidates import as_text, compared_csv, comparison, page, rows_of
from kernellab.notebook.views.detail import detail
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.head import can, head
from kernellab.notebook.views.headers import library
from kernellab.notebook.views.progress import Activity, doing
from kernellab.notebook.views.roofline import counted_bytes, roofline
from kernellab.notebook.views.rows import CHANGED_LIMIT, difference, turn_rows
from kernellab.notebook.views.speed import size_point
from kernellab.notebook.views.texts import partial, texts
from kernellab.notebook.views.verdict import both, figures, headline, machine, stage_rows, verdict_text, verdict_view
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    Environment,
    Evidence,
    GateResult,
    GateState,
    Ranking,
    Role,
    Route,
    RouteFact,
    RouteKind,
    Source,
    Stage,
    StageResult,
    StageState,
    Timing,
    Trust,
    Verdict,
)
from kernellab.records.counters import KernelCounters
from kernellab.session.engine.comparing import Measurement
from kernellab.session.engine.decisions import tune
from kernellab.session.record.events import (
    ELSEWHERE,
    Compared,
    Created,
    Event,
    HeadMoved,
    RoleSet,
    StatusChanged,
    TargetFound,
    TurnEnded,
    TurnStarted,
)
from kernellab.session.record.fold import fold
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.render import Turns
from kernellab.session.record.state import State
from kernellab.session.turn.sweeping import Sweep, SweepPoint
from kernellab.target import Backend, Chip, Target

TIME = Timing(median_ms=2.0, q1_ms=1.9, q3_ms=2.1, samples=30)


def fast(speedup: float, low: float, high: float) -> Verdict:
    return Verdict(
        passed=True,
        stage=Stage.FAST,
        reason="right on 40 cases",
        stages=[StageResult(name=Stage.CORRECT, state=StageState.PASSED, seconds=0.25)],
        time=TIME,
        sol_ms=1.0,
        comparisons=[Comparison(baseline="eager", baseline_time=TIME, speedup=speedup, low=low, high=high)],
    )


FAST = fast(2.913, 2.7, 3.1)
WRONG = Verdict(
    passed=False,
    stage=Stage.CORRECT,
    reason="3 % of elements are <wrong>",
    stages=[StageResult(name=Stage.CORRECT, state=StageState.FAILED, seconds=0.25)],
    evidence=Evidence(
        signature="edge-tile",
        sizes={"N": 1000},
        first_wrong=[0, 992],
        got=0.0,
        want=1.5,
        error_map=[".x"],
        reproduction="assert reference(x) is not None",
    ),
)
SOURCE = Source(
    dsl="cpp", files={"kernel.py": "import x\n", "kernel.cpp": "// c\n", "kl_math.h": library()["kl_math.h"]}
)
OTHER = SOURCE.model_copy(update={"files": {**SOURCE.files, "kernel.cpp": "// d\n"}, "origin": Author.HUMAN})
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
EDIT = turn(4, Role.CODER, "t3", author=Author.HUMAN, candidate=Candidate(id="c2", source=OTHER))
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
ALL = (DESIGN, CODE, PASS, EDIT, FAIL, ROUTED, ASKED)


def drawn(now: State, shown: str = "") -> dict[str, Any]:
    return head(now, shown, Facts())


def test_it_is_plain_data_at_every_moment() -> None:
    for length in range(len(ALL) + 1):
        now = state(*ALL[:length])
        json.dumps([drawn(now), turn_rows(now), detail(now, ""), texts(now, ""), snapshot(now), receipt(now)])


def test_a_new_candidate_has_no_verdict_until_it_is_verified() -> None:
    assert detail(state(DESIGN, CODE), "")["verdict"] is None
    assert detail(state(DESIGN, CODE, PASS), "")["verdict"]["passed"] is True
    assert detail(state(DESIGN, CODE, PASS, EDIT), "")["verdict"] is None
    assert detail(state(DESIGN, CODE, PASS, EDIT, FAIL), "")["verdict"]["stage"] == "correct"


def test_the_best_stays_the_best_and_every_number_says_what_it_means() -> None:
    best = drawn(state(DESIGN, CODE, PASS, EDIT, FAIL))["best"]
    assert best["turn"] == "t3"
    assert best["headroom"]["text"] == "50% of bound"
    assert best["speedups"][0]["text"] == "2.91x eager [2.70, 3.10]"
    assert "2.91 times as fast as PyTorch eager, 95 % interval" in best["speedups"][0]["title"]
    assert "T2 isolated" in best["time"]["title"] and "quartiles" in best["time"]["title"]


def test_looking_back_shows_what_was_true_then() -> None:
    everything = state(*ALL)
    then, long = drawn(everything, "t1"), texts(everything, "t1")
    assert (long["sketch"], long["files"], then["card"]) == ("sketch a {}", {}, None)
    assert detail(everything, "t3")["verdict"]["passed"] is True


def test_an_open_question_is_a_card_with_an_editable_suggestion() -> None:
    card = drawn(state(*ALL))["card"]
    assert card["pending"] and card["editable"]
    assert (card["to"], card["suggestion"], card["text"]) == ("coder", "mask the load", "The sketch runs right.")


def test_an_old_proposal_is_shown_but_cannot_be_approved() -> None:
    card = drawn(state(DESIGN, CODE, PASS, EDIT, FAIL, ROUTED))["card"]
    assert card["title"] == "The Conductor proposed: coder."
    assert not card["pending"]


def test_turns_say_who_did_what_and_how_it_ended() -> None:
    rows = turn_rows(state(*ALL))
    assert [row["state"] for row in rows] == ["done", "done", "passed", "done", "failed", "waiting"]
    assert rows[3]["author"] == "human"
    assert rows[4]["note"] == "failed at correct: 3 % of elements are <wrong>"
    assert rows[5]["note"] == "-> coder: mask the load"


def test_a_fork_is_set_in_and_what_it_left_is_off_the_path() -> None:
    forked = turn(5, Role.CODER, "t1", candidate=Candidate(id="c2", source=OTHER))
    rows = turn_rows(state(DESIGN, CODE, PASS, EDIT, [HeadMoved(to="t1")], forked))
    assert [row["depth"] for row in rows] == [0, 0, 0, 0, 1]
    assert [row["on_path"] for row in rows] == [True, False, False, False, True]


def test_only_rows_that_differ_are_told_again_until_there_are_many() -> None:
    before, after = turn_rows(state(*ALL[:5])), turn_rows(state(*ALL))
    changed = difference(before, after)
    assert changed is not None and [row["id"] for row in changed] == ["t6"]
    moved = [{**row, "note": "x"} for row in [*after * 10][: CHANGED_LIMIT + 1]]
    assert difference([], moved) is None


def test_a_running_turn_has_no_seconds_that_would_be_told_again_and_again() -> None:
    started = TurnStarted(
        turn=Turn(id="t2", number=2, parent="t1", role=Role.CODER, author=Author.RULES, started=1234.5)
    )
    row = turn_rows(state(DESIGN, [started]))[1]
    assert (row["state"], row["seconds"], row["started"], row["note"]) == ("running", 0, 1234.5, "")


def test_the_buttons_follow_the_status() -> None:
    running = drawn(state(DESIGN))["can"]
    assert running["pause"] and running["stop"] and not running["step"]
    waiting = drawn(state(*ALL))["can"]
    # the card has the answer; Step and Run would be the same one under other names
    assert waiting["approve"] and not waiting["step"] and not waiting["run"] and not waiting["pause"]
    elsewhere = drawn(state(DESIGN, [StatusChanged(status=SessionStatus.PAUSED, reason=ELSEWHERE)]))
    assert elsewhere["status_text"] == "running in another process"
    assert not any(elsewhere["can"].values())


def test_a_person_who_is_asked_for_the_code_of_a_newer_sketch_begins_from_the_code_before() -> None:
    newer = turn(4, Role.DESIGNER, "t3", author=Author.HUMAN, sketch="sketch b {}")
    asked = Question(kind=QuestionKind.BRIEF, role=Role.CODER, text="Write it.", answer="Apply it.", turn="t4")
    mine: list[Event] = [StatusChanged(status=SessionStatus.WAITING, question=asked)]
    before, now = texts(state(DESIGN, CODE, PASS), ""), texts(state(DESIGN, CODE, PASS, newer, mine), "")
    assert before["files"] and now["files"] == before["files"]
    # and is told whose code that is
    assert (before["begun_from"], now["begun_from"]) == (None, 2)
    # the card offers to keep a text where there is one, and says nothing twice
    first = [*DESIGN, *mine]
    assert [drawn(state(*one))["card"]["retry"] for one in ((DESIGN, CODE, PASS, newer, mine), (first,))] == [
        True,
        False,
    ]
    assert drawn(state(first))["card"]["text"] == ""
    # its lines are of another sketch, and it is not what the turn's verdict is about
    assert now["line_map"] == {} and now["artefacts"] == []
    assert texts(state(DESIGN, CODE, PASS, newer), "")["files"] == {}


def test_the_texts_leave_out_our_headers_and_hold_the_left_sides_that_differ() -> None:
    now = texts(state(DESIGN, CODE, PASS, EDIT), "")
    assert set(now["files"]) == {"kernel.py", "kernel.cpp"} and now["main_file"] == "kernel.cpp"
    assert now["files_before"] == {"kernel.cpp": "// c\n"}
    assert "kl_math.h" in now["artefacts"]
    assert now["language"] == "cpp"


def test_a_request_that_waits_is_told_from_a_text_that_is_written() -> None:
    begun = state([TurnStarted(turn=Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.MODEL))])
    waits = partial(begun, f"{WAITING}No more requests for now. The next try is in 3 s.")
    assert waits["state"] == "waits" and waits["text"].startswith("No more requests")
    assert partial(begun, "sketch a {")["state"] == "writes"


def test_all_stages_are_listed_and_the_next_one_runs() -> None:
    done = [StageResult(name=Stage.STATIC, state=StageState.PASSED)]
    states = [row["state"] for row in stage_rows(done, running=True)]
    assert states == ["passed", "running", *["not reached"] * (len(Stage) - 2)]
    assert "running" not in [row["state"] for row in stage_rows(WRONG.stages)]


def test_the_verification_that_runs_says_what_it_does_and_what_is_left() -> None:
    again = [TurnStarted(turn=Turn(id="t5", number=5, parent="t4", role=Role.VERIFIER, author=Author.RULES))]

    def part(name: Stage, done: StageState, seconds: float, note: str = "") -> StageResult:
        return StageResult(name=name, state=done, seconds=seconds, note=note)

    stages = [part(Stage.BUILD, StageState.PASSED, 1.0), part(Stage.SMOKE, StageState.PASSED, 0.5),
              part(Stage.CORRECT, StageState.PASSED, 4.0), part(Stage.FAST, StageState.PASSED, 2.0)]  # fmt: skip
    passed = turn(3, Role.VERIFIER, "t2", verdict=FAST.model_copy(update={"stages": stages}))
    told = [part(Stage.BUILD, StageState.RUNNING, 0.0), stages[0], part(Stage.CORRECT, StageState.RUNNING, 0.0),
            part(Stage.CORRECT, StageState.RUNNING, 2.0, "case 7 of 14")]  # fmt: skip
    now = state(DESIGN, CODE, passed, EDIT, again)
    shown = head(now, "", Facts(), activity=Activity(stages={"t5": told}))
    assert shown["doing"] == "correct: case 7 of 14; about 4 s left"
    assert head(now, "", Facts(), activity=Activity(stages={"t5": told[:2]}))["doing"] == ""
    pair = "timing it in one run with turn 2, the best so far"
    assert head(now, "", Facts(), activity=Activity(stages={"t5": told[:2]}, report=pair))["doing"] == pair
    first = state(DESIGN, CODE, again)
    assert head(first, "", Facts(), activity=Activity(stages={"t5": told}))["doing"] == "correct: case 7 of 14"
    assert head(now, "", Facts(), activity=Activity(stages={}))["doing"] == ""
    assert head(now, "", Facts(), activity=Activity(stages={"t5": []}))["doing"] == "waiting for the judge"
    begun = state([TurnStarted(turn=Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.RULES))])
    assert head(begun, "", Facts(), activity=Activity(stages={"t1": []}))["doing"] == "reading the task"
    assert head(begun, "", Facts(gathered=True), activity=Activity(stages={"t1": []}))["doing"] == ""
    timing = "timing design 3, at most 20 designs"
    assert head(begun, "", Facts(gathered=True), activity=Activity(stages={"t1": []}, report=timing))["doing"] == timing
    begun = state([TurnStarted(turn=Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.MODEL))])
    assert doing(begun, Activity({"t1": []}), is_task_read=True) == "no words yet"
    assert doing(begun, Activity({"t1": []}, "sketch"), is_task_read=True) == ""
    limited = f"{WAITING}No more requests for now. The next try is in 9 s."
    assert doing(begun, Activity({"t1": []}, limited), is_task_read=True) == "waiting for its server"
    rows = {row["name"]: row for row in stage_rows(told, running=True)}
    assert [name for name, row in rows.items() if row["state"] == "running"] == ["correct"]
    assert rows["correct"]["note"] == "case 7 of 14"


def test_a_measurement_in_the_background_says_which_kernels_it_times_and_next_to_what() -> None:
    now = state(DESIGN, CODE, PASS, EDIT, turn(5, Role.VERIFIER, "t4", verdict=FAST))

    def said(*turns: str, baselines: tuple[str, ...] = ("eager", "compile")) -> tuple[object, object]:
        shown = head(now, "", Facts(), activity=Activity(measurement=Measurement(turns, baselines)))
        return shown["doing"], shown["comparing"]

    # a kernel is named by the turn that wrote it
    assert said("t3") == ("timing turn 2 again, next to torch.compile", True)
    assert said("t3", baselines=("eager",)) == ("timing turn 2 again, next to PyTorch eager", True)
    assert said("t3", "t5") == ("timing turns 2 and 4 in one run", True)
    assert said("t2", "t4") == ("timing turns 2 and 4 in one run", True)
    # next to a running turn's role and seconds it read as that turn's work
    begun = Turn(id="t6", number=6, parent="t5", role=Role.DESIGNER, author=Author.HUMAN)
    turning = state(DESIGN, CODE, PASS, EDIT, turn(5, Role.VERIFIER, "t4", verdict=FAST), [TurnStarted(turn=begun)])
    background = Measurement(("t3",), ("eager", "compile"))
    assert head(turning, "", Facts(), activity=Activity(measurement=background))["doing"] == ""
    begun = begun.model_copy(update={"role": Role.VERIFIER, "author": Author.RULES})
    waiting = state(DESIGN, CODE, PASS, EDIT, turn(5, Role.VERIFIER, "t4", verdict=FAST), [TurnStarted(turn=begun)])
    shown = head(waiting, "", Facts(), activity=Activity(stages={"t6": []}, measurement=background))
    assert shown["doing"] == "waiting for the judge, which is timing turn 2 again, next to torch.compile"
    at_rest = head(now, "", Facts())
    assert (at_rest["doing"], at_rest["comparing"]) == ("", False)


@pytest.mark.parametrize(
    ("fault", "retry"),
    [("DesignError", False), ("NodeError", False), ("TooLong", False), ("NotRunnable", False), ("VerifierError", True)],
)
def test_what_rules_would_answer_the_same_again_is_not_offered_again(fault: str, retry: bool) -> None:
    from kernellab.capture.loops.long import TooLong

    assert TooLong.__name__ in names_of(CaptureError) and "DesignError" not in names_of(CaptureError)
    failed = turn(1, Role.DESIGNER, None, error="No rule for svd.", remedy="Write the sketch.", fault=fault)
    told = "The designer could not do turn 1: No rule for svd."
    asked = Question(kind=QuestionKind.ERROR, role=Role.DESIGNER, turn="t1", text=told, answer="")
    card = drawn(state(failed, [StatusChanged(status=SessionStatus.WAITING, question=asked)]))["card"]
    assert card["retry"] is retry and ("would answer the same again" in card["hint"]) is not retry
    # the title says who it was
    assert (card["title"], card["text"]) == ("The Designer could not go on.", "No rule for svd. Write the sketch.")


def test_the_designs_can_be_measured_once_where_rules_end_a_session() -> None:
    finish = turn(4, Role.CONDUCTOR, "t3", route=ROUTE.model_copy(update={"to": RouteKind.FINISH}))
    ended: list[Event] = [StatusChanged(status=SessionStatus.FINISHED)]
    chip = Chip(name="test", kind="cpu", cores=2, simd_bits=256, bandwidth=1e10, peak_flops={"f32": 1e12})
    found: list[Event] = [TargetFound.of(Target("cpp", Backend.CPU, chip))]

    def may(*events: list[Event]) -> bool:
        return can(state(found, *events))["tune"]

    assert may(DESIGN, CODE, PASS, finish, ended)
    assert not may(DESIGN, CODE, PASS), "it continues by itself"
    assert not may(DESIGN, CODE, finish, ended), "nothing has passed"
    measured = ROUTE.model_copy(update={"to": RouteKind.DESIGNER, "measure": "20"})
    sent = turn(5, Role.CONDUCTOR, "t4", author=Author.HUMAN, route=measured)
    again = turn(6, Role.CONDUCTOR, "t5", route=ROUTE.model_copy(update={"to": RouteKind.FINISH}))
    assert not may(DESIGN, CODE, PASS, finish, sent, again, ended)
    assert not may(DESIGN, CODE, PASS, finish, [RoleSet(role=Role.DESIGNER, spec="human")], ended)

    now = state(DESIGN, CODE, PASS, finish, ended)
    placed = next(event.turn for event in tune(now, "20s") if isinstance(event, TurnStarted))
    assert placed.route is not None and (placed.route.to, placed.route.measure) == (RouteKind.DESIGNER, "20s")
    for limit in ("0", "many", ""):
        with pytest.raises(KernellabError):
            tune(now, limit)
    interpreted: list[Event] = [TargetFound.of(Target("triton", Backend.INTERPRETER, chip))]
    with pytest.raises(SessionError, match="its interpreter here, whose times say nothing about a GPU") as refused:
        tune(state(interpreted, DESIGN, CODE, PASS, finish, ended), "20")
    assert refused.value.message.count(".") == 1, "one sentence"
    assert not can(state(interpreted, DESIGN, CODE, PASS, finish, ended))["tune"]
    with pytest.raises(SessionError, match="Only the rules' designs"):
        tune(state(DESIGN, CODE, PASS, [RoleSet(role=Role.DESIGNER, spec="human")]), "20")
    text = "sketch a {\n    symbols: M;  #: pin\n}"
    pinned = turn(1, Role.DESIGNER, None, sketch=text, author=Author.HUMAN)
    with pytest.raises(SessionError, match="Line 2 is pinned"):
        tune(state(pinned), "20")
    assert tune(state(turn(1, Role.DESIGNER, None, sketch=text)), "20"), "an agent's own pin binds no one"


def test_two_candidates_are_compared_with_what_the_difference_is_worth() -> None:
    slower = turn(5, Role.VERIFIER, "t4", verdict=fast(1.5, 1.4, 1.6))
    found = comparison(state(DESIGN, CODE, PASS, EDIT), "t2", "t4")
    assert found["verdict"] == "Turn 4 has no verdict, so there is nothing to compare but the texts."
    for a, b in (("t3", "t5"), ("t2", "t4")):  # a kernel is named by the turn that wrote it, too
        found = comparison(state(DESIGN, CODE, PASS, EDIT, slower), a, b)
        assert found["verdict"] == (
            "Turn 2 is 1.94 times as fast as turn 4 (95 %: 1.69 to 2.21), by their speedups over eager."
        )
    assert "-// c" in found["diff"] and "+// d" in found["diff"]
    # from the older to the newer one, whichever was marked first
    assert comparison(state(DESIGN, CODE, PASS, EDIT, slower), "t4", "t2")["diff"] == found["diff"]
    lines = as_text(found, "turn 2", "turn 4").splitlines()
    head = next(line for line in lines if "turn 4" in line and "turn 2" in line and "times" not in line)
    trust = next(line for line in lines if line.startswith("trust"))
    assert head.index("turn 4") == trust.rindex("T2")
    for a, b in (("2", "2"), ("2", "3")):
        found = comparison(state(DESIGN, CODE, PASS), a, b)
        assert found["verdict"] == "Both are the kernel of turn 2: there is nothing to compare."
    same = turn(5, Role.VERIFIER, "t4", verdict=fast(2.8, 2.6, 3.0))
    assert comparison(state(DESIGN, CODE, PASS, EDIT, same), "3", "5")["verdict"] == (
        "The difference between turn 2 and turn 4 is not significant: "
        "turn 4 is 0.96 times as fast as turn 2 (95 %: 0.84 to 1.11), by their speedups over eager."
    )


def test_a_verdict_names_the_turn_that_it_judged() -> None:
    """A Designer at work still shows the verdict on what is there: an earlier turn's."""
    again = turn(4, Role.DESIGNER, "t3")
    assert detail(state(DESIGN, CODE, PASS, again), "t4")["judged"] == 3
    assert detail(state(DESIGN, CODE, PASS, again), "t3")["judged"] == 3
    assert detail(state(DESIGN, CODE), "t2")["judged"] is None
    # the turn that wrote the kernel shows the verdict that came after it
    assert detail(state(DESIGN, CODE, PASS, again), "t2")["judged"] == 3


def test_an_end_says_which_baseline_is_faster_as_soon_as_it_is_timed() -> None:
    end = Route(to=RouteKind.FINISH, error_class="none", reason="Verified at T2.")
    ended = turn(4, Role.CONDUCTOR, "t3", route=end)
    before = head(state(DESIGN, CODE, PASS, ended), "t4", Facts())["card"]
    assert before is not None and not any("Slower" in line for line in before["evidence"])
    compiled = FAST.comparisons[0].model_copy(
        update={"baseline": "compile", "speedup": 0.46, "low": 0.31, "high": 0.65}
    )
    timed = FAST.model_copy(update={"comparisons": (*FAST.comparisons, compiled)})
    now = head(state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=timed), ended), "t4", Facts())["card"]
    assert now is not None and "Slower than compile: 0.46x compile [0.31, 0.65]." in now["evidence"]


def test_a_comparison_is_written_as_a_table_for_a_spreadsheet() -> None:
    slower = turn(5, Role.VERIFIER, "t4", verdict=fast(1.5, 1.4, 1.6))
    found = comparison(state(DESIGN, CODE, PASS, EDIT, slower), "t2", "t4")
    lines = list(csv.reader(io.StringIO(compared_csv(found, "turn 2", "turn 4"))))
    assert lines[0] == ["", "turn 2", "turn 4"] and lines[-1] == ["difference", found["verdict"], ""]
    assert [line[1:] for line in lines[1:-1]] == [[row["a"], row["b"]] for row in found["rows"]]


def test_candidates_are_listed_by_number_or_the_fastest_first() -> None:
    better = turn(5, Role.VERIFIER, "t4", verdict=fast(4.0, 3.9, 4.1))
    rows = rows_of(state(DESIGN, CODE, PASS, EDIT, better))
    assert [row["turn"] for row in page(rows, 0, 10)["rows"]] == ["t2", "t4"]
    assert [row["turn"] for row in page(rows, 0, 1, "speedup")["rows"]] == ["t4"]
    assert rows_of(state(DESIGN, CODE))[0]["passed"] is None
    assert [row["note"].endswith("sketch by rules") for row in rows] == [False, True], "4 is a person's code"
    mine = turn(1, Role.DESIGNER, None, author=Author.HUMAN, sketch="sketch a {}")
    assert rows_of(state(mine, CODE))[0]["note"] == "not verified; sketch by human"


def test_best_header_and_order_follow_the_interval_and_ties_are_shown() -> None:
    """Three calls on a busy machine make no kernel the best, whatever their median."""
    noisy = turn(5, Role.VERIFIER, "t4", verdict=fast(3.3, 1.2, 6.0))
    now = state(DESIGN, CODE, PASS, EDIT, noisy)
    best = now.best()
    assert best is not None
    assert best.number == 2
    assert head(now, "", Facts())["best"]["tied"] == [4]
    rows = page(rows_of(now), 0, 10, "speedup")["rows"]
    assert [(row["turn"], row["best"], row["tied"]) for row in rows] == [("t2", True, False), ("t4", False, True)]
    surely = turn(5, Role.VERIFIER, "t4", verdict=fast(3.3, 3.2, 3.4))
    assert head(state(DESIGN, CODE, PASS, EDIT, surely), "", Facts())["best"]["tied"] == []


def test_the_fastest_first_begins_with_what_was_verified() -> None:
    quick = fast(9.0, 8.0, 10.0).model_copy(update={"trust": Trust.T1})
    rows = rows_of(state(DESIGN, CODE, PASS, EDIT, turn(5, Role.VERIFIER, "t4", verdict=quick)))
    assert [row["turn"] for row in page(rows, 0, 10, "speedup")["rows"]] == ["t2", "t4"]


def test_what_a_model_writes_is_cut_to_its_end() -> None:
    now = state([TurnStarted(turn=Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.MODEL))])
    shown = partial(now, "x" * 10_000 + "end")
    assert shown["turn"] == "t1" and shown["length"] == 10_003 and len(shown["text"]) == 4_000
    assert shown["text"].endswith("end")
    assert partial(now, "")["turn"] is None


def test_a_saved_notebook_can_be_read_and_what_was_written_in_it_cannot_act() -> None:
    html = re.sub(r"</?span[^>]*>", "", snapshot(state(*ALL)))
    for words in ("2.91x", "sketch a {}", "// c", "3 % of elements are &lt;wrong&gt;", "assert reference(x)", "<svg"):
        assert words in html
    assert "<wrong>" not in html and "<script" not in html
    assert receipt(state(*ALL)).startswith("<details><summary>norm: waiting for you; 2.91x eager [2.70, 3.10]")


HOSTILE = "</pre><img src=x onerror=alert(1)>"


def _with_hostile_words(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all strings in plain data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _with_hostile_words(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _with_hostile_words(inner, (*path, number))
    elif isinstance(value, str):
        yield path


def test_no_word_of_a_journal_from_elsewhere_acts_in_a_saved_notebook() -> None:
    tried = 0
    events = [Created(name=HOSTILE, text=HOSTILE, key="k", dsl="cpp"), *(e for group in ALL for e in group)]
    for position, event in enumerate(events):
        plain = event.model_dump(mode="json")
        for path in _with_hostile_words(plain):
            changed = copy.deepcopy(plain)
            inside = changed
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = HOSTILE
            try:
                now = fold("s1", [*events[:position], type(event).model_validate(changed), *events[position + 1 :]])
                assert now is not None
                pages = snapshot(now) + receipt(now)
            except (ValueError, LookupError, AssertionError):
                continue  # a record that cannot be, or a turn that no other one knows
            tried += 1
            assert "<img" not in pages, path
    assert tried > 60


def test_one_line_says_how_it_stands() -> None:
    assert summary(state(DESIGN)).startswith("norm: a session")
    assert "waiting for you; 6 turns; 2.91x eager" in summary(state(*ALL))
    failed: list[Event] = [StatusChanged(status=SessionStatus.FAILED, reason="The cell defines no reference.")]
    assert "The cell defines no reference." in summary(state(failed))
    assert "verifier" in repr(Turns.of(state(*ALL)))


def test_a_time_of_few_calls_says_so_and_no_gain_is_no_share_of_a_gap() -> None:
    few = Timing(median_ms=2.6, q1_ms=2.5, q3_ms=2.7, samples=3)
    verdict = fast(0.27, 0.16, 1.39).model_copy(update={"time": few})
    shown = head(state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=verdict)), "", Facts())["best"]
    assert shown is not None and shown["time"] is not None and shown["time"]["text"] == "2.6 ms, 3 calls only"
    assert {shown["name"]: shown["text"] for shown in figures(verdict)}["time"] == "2.6 ms, 3 calls only"
    assert "gap" not in headline(verdict) and "gap" in headline(FAST)


def test_a_task_whose_text_is_wrong_is_corrected_in_its_cell_not_run_again() -> None:
    failed: list[Event] = [StatusChanged(status=SessionStatus.FAILED, reason="It failed.")]
    for fault, goes_on in (("TaskError", False), ("VerifierError", True)):
        tried = Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.RULES)
        done = TurnEnded(turn=tried.model_copy(update={"state": TurnState.FAILED, "fault": fault, "error": "No."}))
        now = state([TurnStarted(turn=tried), done], failed)
        assert (can(now)["step"], can(now)["run"]) == (goes_on, goes_on), fault
        told = detail(now, "t1")["stopped"]
        assert ("task" in told, "Designer" in told) == (not goes_on, goes_on)
        assert "It failed." in receipt(now)
        assert snapshot(now).partition("</p>")[0].count("It failed.") == 1


def test_the_cell_that_reproduces_a_failure_is_kept_as_it_is() -> None:
    assert "assert reference(x) is not None</pre>" in snapshot(state(DESIGN, CODE, PASS, EDIT, FAIL))


def test_a_session_that_ends_slower_than_eager_says_keep_eager() -> None:
    ended: list[Event] = [StatusChanged(status=SessionStatus.FINISHED)]
    cases = ((fast(0.4, 0.3, 0.5), "keep eager"), (fast(0.8, 0.6, 1.1), "not recommended"), (fast(0.98, 0.9, 1.1), ""),
             (FAST, ""))  # fmt: skip
    for verdict, said in cases:
        now = state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=verdict), ended)
        words = (head(now, "", Facts())["status_text"], summary(now), receipt(now), snapshot(now))
        for advice in ("keep eager", "not recommended"):
            assert [(advice in word) for word in words] == [said == advice] * 4
        assert (head(now, "", Facts())["call"] == "") == bool(said)  # nothing to use
    assert "keep eager" not in summary(state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=fast(0.4, 0.3, 0.5))))


def test_a_bound_that_is_not_believed_names_what_was_faster() -> None:
    slow = fast(0.2, 0.1, 0.3).model_copy(update={"time": TIME.model_copy(update={"median_ms": 10.0}), "sol_ms": 3.0})
    now = state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=slow))
    assert "PyTorch eager is faster than this bound" in head(now, "", Facts())["best"]["headroom"]["title"]


def test_a_verdict_is_told_in_words() -> None:
    text = verdict_text(WRONG)
    assert "failed at correct" in text and "edge-tile" in text and "[0, 992]: got 0.0, want 1.5" in text
    assert headline(FAST) == "2.91x eager [2.70, 3.10], 50% of bound, SOL score 0.50, 0% of the gap closed, T2"
    assert headline(WRONG) == ""
    view = verdict_view(WRONG)
    assert view["first_wrong"] == {"index": [0, 992], "got": "0.0", "want": "1.5"}


def test_the_roof_is_what_the_judge_measured_on_this_chip_and_says_so() -> None:
    chip = Chip("EPYC", "cpu", 4, bandwidth=10e9, peak_flops={"f32": 1e11}, source="measured while busy")
    facts = Facts(target=Target("cpp", Backend.CPU, chip))
    assert roofline(state(DESIGN, CODE, PASS), facts)["source"] == "measured while busy"
    here = FAST.model_copy(update={"environment": Environment(chip="EPYC", bandwidth=21e9, flops=2e11)})
    now = state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=here))
    found = roofline(now, facts)
    assert (found["bandwidth"], found["peak_flops"]) == (21e9, 2e11) and "the judge's own copy" in found["source"]
    assert facts.measured(now) is facts.measured(now) and facts.chip is chip
    faster = here.model_copy(update={"time": TIME.model_copy(update={"median_ms": 0.5})})
    beaten = roofline(state(DESIGN, CODE, turn(3, Role.VERIFIER, "t2", verdict=faster)), facts)
    assert "no reliable bound here" in beaten["source"]
    other = Facts(target=Target("cpp", Backend.CPU, replace(chip, name="another")))
    assert roofline(now, other)["bandwidth"] == 10e9


def test_a_figure_that_was_timed_again_stays_and_names_what_it_was_paired_with() -> None:
    compiled = Comparison(baseline="compile", baseline_time=TIME, speedup=1.2, low=1.1, high=1.3)
    eager = FAST.comparisons[0].model_copy(update={"speedup": 2.5, "low": 2.4, "high": 2.6})
    compared: list[Event] = [Compared(turn="t3", timing=TIME, comparisons=(eager, compiled))]
    shown = detail(state(DESIGN, CODE, PASS, compared), "t3")["verdict"]
    assert shown is not None
    assert [one["text"] for one in shown["comparisons"]] == [
        "2.91x eager [2.70, 3.10]",
        "1.20x compile [1.10, 1.30]",
        "2.50x eager [2.40, 2.60], timed again, paired with torch.compile",
    ]


LAUNCH = KernelCounters(kernel="norm", us=12.5, memory=81.0, sm=20.0, read_bytes=3e6, written_bytes=1e6)


@pytest.mark.parametrize(
    ("counters", "allowed", "said"),
    [((LAUNCH,), True, ""), ((), True, "ncu is not installed"), ((), False, "--counters")],
)
def test_a_gpus_counters_are_in_the_verdict_or_why_they_are_not(
    counters: tuple[KernelCounters, ...], allowed: bool, said: str
) -> None:
    where = Environment(backend=Backend.CUDA.value)
    verdict = FAST.model_copy(update={"environment": where, "counters": counters})
    reason = "" if counters or not allowed else "No counters of the GPU were read: ncu is not installed."
    judged = turn(3, Role.VERIFIER, "t2", verdict=verdict, rationale=reason)
    created = [Created(name="norm", text="", key="k", dsl="triton", counters=allowed)]
    folded = fold("s1", [*created, *DESIGN, *CODE, *judged])
    assert folded is not None
    shown = detail(folded, "t3")["verdict"]
    assert shown is not None
    assert [one["kernel"] for one in shown["launches"]] == [one.kernel for one in counters]
    assert said in shown["uncounted"] and bool(said) == bool(shown["uncounted"])
    if counters:
        assert {"busy", "memory traffic"} <= {fact["name"] for fact in shown["launches"][0]["facts"]}
        assert counted_bytes(verdict) == 4e6
    on_cpu = detail(state(DESIGN, CODE, PASS), "t3")["verdict"]
    assert on_cpu is not None and not on_cpu["uncounted"]


def test_a_size_of_a_dim_has_its_speed_or_says_why_it_has_none() -> None:
    paired = FAST.comparisons[0]
    timed = Ranking(ranked=True, stage=Stage.FAST, reason="", time=TIME, paired=paired)
    found = size_point(Sweep("N", (SweepPoint(64, timed),)), 64)
    assert (found["ms"], found["speedup"], found["low"], found["high"]) == (2.0, 2.913, 2.7, 3.1)
    wrong = size_point(Sweep("N", (SweepPoint(7, Ranking(ranked=False, stage=Stage.CORRECT, reason="off")),)), 7)
    assert wrong["speedup"] is None and "N = 7 failed at correct: off" in wrong["text"]
    large = size_point(Sweep("N", (), (1 << 40,)), 1 << 40)
    assert large["speedup"] is None and "memory" in large["text"]


def test_numbers_are_rounded_for_the_eye_unless_they_could_not_be_told_apart() -> None:
    assert both(0.12345678901234567, 1.5) == ("0.123457", "1.5")
    assert both(1.00000001, 1.0) == ("1.00000001", "1.0")
    fact = RouteFact(text="first wrong element [0, 3]", got=-0.12345678901234567, want=2.3333333333333335)
    card = drawn(state(DESIGN, CODE, PASS, EDIT, FAIL, turn(6, Role.CONDUCTOR, "t5", route=told(fact))))["card"]
    assert card["evidence"] == ["first wrong element [0, 3]: got -0.123457, want 2.33333"]


def test_rules_that_would_replace_a_persons_sketch_are_not_what_is_proposed_first() -> None:
    route = Route(
        to=RouteKind.DESIGNER, error_class="sketch", reason="The sketch is wrong: Line 2: Unknown name 'w'.",
        suggestion="", facts=(
            RouteFact(place="gate: wrong", text="Line 2: Unknown name 'w'."),
            RouteFact(place="sketch line 2", code="SK101", text="Unknown name 'w'."),
            RouteFact(place="sketch line 3", code="SK102", text="Unknown operation 'e'."),
        ),
    )  # fmt: skip
    asked = ASKED[0].question.model_copy(update={"turn": "t2", "to": RouteKind.DESIGNER})  # type: ignore[union-attr]
    for author in (Author.HUMAN, Author.MODEL):
        wrong = turn(1, Role.DESIGNER, None, author=author, sketch="sketch a {}")
        routed = turn(2, Role.CONDUCTOR, "t1", route=route)
        waits: list[Event] = [StatusChanged(status=SessionStatus.WAITING, question=asked)]
        card = drawn(state(wrong, routed, waits))["card"]
        assert card["evidence"] == ["sketch line 3: Unknown operation 'e'."]
        assert card["retry"] == (author is Author.MODEL)
        assert ("Correct your sketch" in card["hint"]) == (author is Author.HUMAN)
        assert card["title"] == "The Conductor proposes: designer."
    refused = GateResult(state=GateState.WRONG, reason="y is wrong.")
    mine = turn(1, Role.DESIGNER, None, author=Author.HUMAN, sketch="sketch a {}", gate=refused)
    played = RoleSet(role=Role.DESIGNER, spec="human")
    for more in ([], [played]):
        card = drawn(state(mine, turn(2, Role.CONDUCTOR, "t1", route=route), [*more, *waits]))["card"]
        assert card["title"] == "Your sketch is wrong."


def test_the_evidence_of_an_end_does_not_repeat_that_its_last_stage_passed() -> None:
    fact = RouteFact(text="stage fast: Right.", of_stage=True)
    for to, shown in ((RouteKind.FINISH, []), (RouteKind.CODER, ["stage fast: Right."])):
        route = told(fact).model_copy(update={"to": to})
        card = drawn(state(DESIGN, CODE, PASS, EDIT, FAIL, turn(6, Role.CONDUCTOR, "t5", route=route)))["card"]
        assert card["evidence"] == shown
    # nor, on the way back, the stage's sentence that the reason ends with
    route = told(fact).model_copy(update={"to": RouteKind.CODER, "quotes": "Right."})
    card = drawn(state(DESIGN, CODE, PASS, EDIT, FAIL, turn(6, Role.CONDUCTOR, "t5", route=route)))["card"]
    assert card["evidence"] == []


def told(fact: RouteFact) -> Route:
    return ROUTE.model_copy(update={"facts": (fact,)})


def test_what_never_ran_was_not_judged_by_its_inputs() -> None:
    refused = WRONG.model_copy(update={"stage": Stage.STATIC})
    assert verdict_view(refused)["trust_text"] == "T2 isolated: refused by its text, so nothing ran"
    assert "the judge owned inputs" in verdict_view(WRONG)["trust_text"]


def test_a_shared_page_claims_no_check_that_was_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab.notebook.saved.shared.bundle", lambda name: {"css": "", "js": ""})
    text = shared_page(state(DESIGN, CODE, PASS), Facts())
    assert '"candidates speedup": ' in text
    assert '"check": ' not in text


def test_an_interval_that_holds_one_is_no_difference() -> None:
    assert verdict_view(fast(1.02, 0.9, 1.1))["comparisons"][0]["text"].endswith("no difference")


def test_an_assembly_is_built_with_no_flag_that_could_start_a_program() -> None:
    given = [
        "-O3",
        "-march=armv8.2-a+fp16",
        "-std=c++17",
        "-ffast-math",
        "-fno-math-errno",
        "-DN=4",
        "-Wno-unused",
        "-g",
    ]
    started = [
        "-wrapper",
        "sh,-c,id",
        "-fplugin=./x.so",
        "-specs=x",
        "@flags",
        "-B.",
        "-Wa,--x",
        "-Xclang",
        "-mllvm",
        "-I/",
    ]
    kernel = Source(dsl="cpp", files={"kernel.py": f"FLAGS = {[*given, *started]!r}\n", "kernel.cpp": ""})
    assert [flag for flag in flags_of(kernel) if flag in given] == given
    assert not set(flags_of(kernel)) & set(started)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((), "Next: Designer (rules), no tokens"),
        ((DESIGN,), "Next: Coder (rules), no tokens"),
        ((DESIGN, CODE), "Next: Verifier, no tokens"),
        ((DESIGN, CODE, PASS, EDIT), "Next: Verifier, about 1 s, no tokens"),
        (ALL, "Next: Coder (rules), about 1 s, no tokens"),
    ],
)
def test_the_header_names_the_next_role_its_player_and_its_cost(events: tuple[list[Event], ...], text: str) -> None:
    upcoming = drawn(state(*events, [StatusChanged(status=SessionStatus.PAUSED)] if events != ALL else []))["next"]
    assert upcoming == text


def test_a_person_is_named_as_the_next_player_and_nothing_follows_a_running_turn() -> None:
    mine: list[Event] = [RoleSet(role=Role.CODER, spec="human"), StatusChanged(status=SessionStatus.PAUSED)]
    assert drawn(state(DESIGN, mine))["next"] == "Next: you (coder)"
    assert drawn(state(DESIGN, [StatusChanged(status=SessionStatus.RUNNING)]))["next"] == ""
    assert drawn(state(DESIGN, CODE, PASS, [StatusChanged(status=SessionStatus.FINISHED)]))["next"] == ""


def test_a_chip_that_nothing_ran_on_is_no_machine_of_a_verdict() -> None:
    ran = FAST.model_copy(update={"environment": Environment(chip="NVIDIA A100", backend="cuda")})
    traced = FAST.model_copy(update={"environment": Environment(chip="NVIDIA A100", backend="interpreter")})
    assert machine(ran) == "NVIDIA A100"
    assert machine(traced) == "Triton's interpreter, for NVIDIA A100"
