"""Who acts next, from the state alone."""

from __future__ import annotations

from typing import Any

import pytest

from kernellab.agents.model.prompts.assembly import PromptError
from kernellab.errors import CaptureError, DesignError, SessionError
from kernellab.models.exchanges import Exchange, Finish, Usage
from kernellab.options.approval import Approval
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    Diagnostic,
    GateResult,
    GateState,
    Role,
    Route,
    RouteKind,
    Source,
    Stage,
    Timing,
    Trust,
    Verdict,
)  # fmt: skip
from kernellab.session.engine.approval import START, stops_for
from kernellab.session.engine.steps import Ask, Do, End, next_action
from kernellab.session.record.events import Approved, Created, Event, Exchanged, HeadMoved, TurnEnded, TurnStarted
from kernellab.session.record.fold import fold
from kernellab.session.record.records import QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.fallback import first_answer

NEVER = stops_for("none")
RIGHT = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.")
WRONG = GateResult(state=GateState.WRONG, reason="Differs at N=7.")
FAILED = Verdict(passed=False, stage=Stage.BUILD, reason="It does not compile.")


def verdict(speedup: float | None, ms: float = 1.0, trust: Trust = Trust.T2) -> Verdict:
    time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
    pairs = []
    if speedup:
        low, high = 0.9 * speedup, 1.1 * speedup
        pairs = [Comparison(baseline="eager", baseline_time=time, speedup=speedup, low=low, high=high)]
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, comparisons=pairs, trust=trust)


class Story:
    """Builds a state by telling its turns; each stands on the one before unless ``parent`` says otherwise."""

    def __init__(self, **created: Any) -> None:
        roles = created.pop("roles", dict.fromkeys((Role.DESIGNER, Role.CODER, Role.CONDUCTOR), "rules"))
        self.events: list[Event] = [Created(name="op", text="", key="", roles=roles, **created)]
        self.last: str | None = None

    def turn(self, role: Role, author: Author = Author.RULES, parent: str | None = None, **fields: Any) -> Story:
        number = sum(1 for event in self.events if isinstance(event, TurnStarted)) + 1
        state = fields.pop("state", TurnState.DONE)
        turn = Turn(id=f"t{number}", number=number, parent=parent or self.last, role=role, author=author)
        done = turn.model_copy(update={"state": state, **fields})
        self.events += [TurnStarted(turn=turn), TurnEnded(turn=done)]
        self.last = turn.id
        return self

    def sketch(self, gate: GateResult = RIGHT, **fields: Any) -> Story:
        return self.turn(Role.DESIGNER, sketch="s", gate=gate, **fields)

    def code(self, text: str = "code", **fields: Any) -> Story:
        source = Source(dsl="cpp", files={"kernel.py": text})
        number = len(self.events)
        return self.turn(Role.CODER, candidate=Candidate(id=f"c{number}", source=source, sketch="s"), **fields)

    def judged(self, found: Verdict = FAILED, **fields: Any) -> Story:
        return self.turn(Role.VERIFIER, verdict=found, **fields)

    def routed(self, to: RouteKind, **fields: Any) -> Story:
        return self.turn(Role.CONDUCTOR, route=Route(to=to, error_class="build", reason="so"), **fields)

    @property
    def state(self) -> State:
        state = fold("op-1", self.events)
        assert state is not None
        return state


def test_it_begins_with_the_designer() -> None:
    assert next_action(Story().state, NEVER) == Do(Role.DESIGNER)


def test_a_right_sketch_goes_to_the_coder_and_a_wrong_one_to_the_conductor() -> None:
    assert next_action(Story().sketch().state, NEVER) == Do(Role.CODER)
    assert next_action(Story().sketch(WRONG).state, NEVER) == Do(Role.CONDUCTOR)


def test_a_prompt_that_is_too_long_for_a_coder_is_no_fault_of_the_sketch() -> None:
    for fault, asked in (("PromptError", True), ("LoweringError", False)):
        story = Story().sketch().turn(Role.CODER, state=TurnState.FAILED, fault=fault, error="It does not fit.")
        action = next_action(story.state, NEVER)
        assert isinstance(action, Ask) is asked and (asked or action == Do(Role.CONDUCTOR))


def test_the_next_player_is_asked_where_a_prompt_is_too_long_for_one() -> None:
    def ask(player: str) -> str:
        if player != "rules":
            raise PromptError("The prompt is 900 tokens over its budget of 16000.")
        return "code"

    played = first_answer("model:A>rules", ask)
    assert (played.answer, played.author) == ("code", Author.RULES) and "900 tokens over" in played.note


@pytest.mark.parametrize("fault", [CaptureError("The trace ends.", ""), DesignError("No schedule.", ""), KeyError("N")])
def test_the_next_player_is_asked_whatever_the_rules_fail_of(fault: Exception) -> None:
    def ask(player: str) -> str:
        if player == "rules":
            raise fault
        return "sketch"

    played = first_answer("rules>model:A", ask)
    assert (played.answer, played.author) == ("sketch", Author.MODEL) and "rules gave no answer" in played.note
    with pytest.raises(type(fault)):
        first_answer("rules", ask)


def test_a_sketch_that_cannot_run_is_coded_unless_the_checker_names_a_fault() -> None:
    opaque = GateResult(state=GateState.NOT_RUNNABLE, reason="It uses an opaque operation.")
    fault = opaque.model_copy(update={"diagnostics": [Diagnostic(line=3, col=1, code="SK001", message="What?")]})
    assert next_action(Story().sketch(opaque).state, NEVER) == Do(Role.CODER)
    assert next_action(Story().sketch(fault).state, NEVER) == Do(Role.CONDUCTOR)


def test_code_is_verified_and_code_that_could_not_be_written_is_routed() -> None:
    assert next_action(Story().sketch().code().state, NEVER) == Do(Role.VERIFIER)
    failed = Story().sketch().turn(Role.CODER, state=TurnState.FAILED, error="It cannot be lowered.")
    assert next_action(failed.state, NEVER) == Do(Role.CONDUCTOR)


def test_the_route_is_followed() -> None:
    def after(to: RouteKind) -> Any:
        return next_action(Story().sketch().code().judged().routed(to).state, NEVER)

    assert after(RouteKind.CODER) == Do(Role.CODER)
    assert after(RouteKind.DESIGNER) == Do(Role.DESIGNER)
    assert after(RouteKind.FINISH) == End(SessionStatus.FINISHED, "so")
    assert after(RouteKind.STOP) == End(SessionStatus.STOPPED, "so")


def test_routing_asks_at_each_proposal_but_a_finish() -> None:
    story = Story().sketch().code().judged()
    assert next_action(story.state, stops_for("routing")) == Do(Role.CONDUCTOR)
    asked = next_action(story.routed(RouteKind.CODER).state, stops_for("routing"))
    assert isinstance(asked, Ask)
    assert (asked.question.kind, asked.question.to) == (QuestionKind.ROUTE, RouteKind.CODER)
    story.events.append(Approved(turn="t4"))
    assert next_action(story.state, stops_for("routing")) == Do(Role.CODER)
    assert isinstance(next_action(Story().routed(RouteKind.FINISH).state, stops_for("routing")), End)


def test_all_asks_after_every_turn_but_a_persons() -> None:
    assert isinstance(next_action(Story().sketch().state, stops_for("all")), Ask)
    assert next_action(Story().sketch(author=Author.HUMAN).state, stops_for("all")) == Do(Role.CODER)


def test_a_predicate_decides_where_to_ask() -> None:
    def failures(turn: Turn) -> bool:
        return turn.verdict is not None and not turn.verdict.passed

    assert isinstance(next_action(Story().sketch().code().judged().state, failures), Ask)
    assert next_action(Story().sketch().code().judged(verdict(2.0)).state, failures) == Do(Role.CONDUCTOR)


def test_a_person_in_a_role_is_asked_for_the_work_itself() -> None:
    asked = next_action(Story(roles={Role.DESIGNER: "human"}).state, NEVER)
    assert isinstance(asked, Ask)
    assert (asked.question.kind, asked.question.role) == (QuestionKind.BRIEF, Role.DESIGNER)


def test_a_persons_faulty_sketch_comes_back_to_the_person() -> None:
    story = Story().sketch(WRONG, author=Author.HUMAN).routed(RouteKind.DESIGNER)
    assert isinstance(next_action(story.state, NEVER), Ask)
    story.events.append(Approved(turn="t2"))
    assert next_action(story.state, NEVER) == Do(Role.DESIGNER)


def test_a_designer_that_cannot_design_leaves_the_work_to_a_person() -> None:
    story = Story().turn(Role.DESIGNER, state=TurnState.FAILED, error="There is no rule for aten.fft.")
    asked = next_action(story.state, NEVER)
    assert isinstance(asked, Ask)
    assert "aten.fft" in asked.question.text
    assert "edit_sketch" in asked.question.answer


def test_the_limit_counts_the_turns_since_a_person_decided() -> None:
    story = Story(max_turns=4).sketch().code().judged().routed(RouteKind.CODER)
    assert isinstance(next_action(story.state, NEVER), End)
    story.events.append(Approved(turn="t4"))
    assert next_action(story.state, NEVER) == Do(Role.CODER)


def test_an_unfinished_turn_is_worked_on_again() -> None:
    story = Story()
    turn = Turn(id="t1", number=1, parent=None, role=Role.DESIGNER, author=Author.RULES)
    story.events.append(TurnStarted(turn=turn))
    assert next_action(story.state, NEVER) == Do(Role.DESIGNER, again=turn)


def test_a_fork_shares_the_turns_above_it() -> None:
    story = Story().sketch().code("a").judged().routed(RouteKind.CODER)
    story.events.append(HeadMoved(to="t1"))
    story.last = "t1"
    story.code("b")
    state = story.state
    assert [turn.id for turn in state.path()] == ["t1", "t5"]
    assert [turn.id for turn in state.path("t4")] == ["t1", "t2", "t3", "t4"]
    candidate = state.candidate()
    assert candidate is not None
    assert candidate.source.files == {"kernel.py": "b"}


def test_the_best_is_the_fastest_that_passed_at_t2() -> None:
    story = Story().sketch().code("a").judged(verdict(2.0)).code("b").judged(verdict(3.0)).code("c")
    story.judged(verdict(9.0, trust=Trust.T1)).code("d").judged(FAILED)
    best = story.state.best()
    assert best is not None
    assert best.candidate.source.files == {"kernel.py": "b"}


def test_attempts_are_the_rounds_of_the_line() -> None:
    story = Story().sketch().code("a").judged().routed(RouteKind.CODER).code("b").judged().routed(RouteKind.DESIGNER)
    story.sketch(WRONG)
    rounds = story.state.attempts()
    assert [round.candidate.source.files["kernel.py"] if round.candidate else None for round in rounds] == [
        "a", "b", None,
    ]  # fmt: skip
    assert [round.route.to if round.route else None for round in rounds] == [
        RouteKind.CODER, RouteKind.DESIGNER, None,
    ]  # fmt: skip
    assert all(round.sketch == "s" for round in rounds)


def told(tokens: int, usd: float | None = None) -> Exchange:
    usage = Usage(input_tokens=tokens, usd=usd)
    return Exchange(id="e", role=Role.CODER, purpose="code", model="m", messages=(), usage=usage, finish=Finish.STOP)


def by_model(tokens: int, approval: str, usd: float | None = None) -> Story:
    """A session whose model Coder used ``tokens`` in its first turn and is to take its second."""
    roles = {Role.DESIGNER: "rules", Role.CODER: "model", Role.CONDUCTOR: "rules"}
    story = Story(roles=roles, approval=approval).sketch().code(seconds=90.0, author=Author.MODEL)
    story.events.append(Exchanged(turn="t2", exchange=told(tokens, usd)))
    return story.judged().routed(RouteKind.CODER)


@pytest.mark.parametrize(
    ("approval", "asks"),
    [
        ("tokens=10k", True), ("tokens=20k", False), ("minutes=1", True), ("minutes=2", False), ("none", False),
        ("tokens=20k,minutes=1", True), ("usd=0.1", True), ("usd=1", False),
    ],
)  # fmt: skip
def test_a_turn_that_is_expected_to_cost_more_than_allowed_is_asked_for(approval: str, asks: bool) -> None:
    story = by_model(12_000, approval, usd=0.3)
    action = next_action(story.state, stops_for(approval))
    if not asks:
        assert action == Do(Role.CODER)
        return
    assert isinstance(action, Ask)
    assert (action.question.kind, action.question.role) == (QuestionKind.COST, Role.CODER)
    assert "A turn of the coder (model) takes about" in action.question.text
    story.events.append(Approved(turn="t4"))
    assert next_action(story.state, stops_for(approval)) == Do(Role.CODER)


def test_a_model_whose_cost_is_not_known_yet_is_asked_for_and_rules_are_not() -> None:
    roles = {Role.DESIGNER: "model", Role.CODER: "rules", Role.CONDUCTOR: "rules"}
    story = Story(roles=roles, approval="tokens=10k")
    action = next_action(story.state, stops_for("tokens=10k"))
    assert isinstance(action, Ask) and "not known" in action.question.text
    story.events.append(Approved(turn=START))
    assert next_action(story.state, stops_for("tokens=10k")) == Do(Role.DESIGNER)
    assert next_action(story.sketch().state, stops_for("tokens=10k")) == Do(Role.CODER)


def test_a_role_in_the_policy_is_asked_for_after_each_of_its_turns() -> None:
    assert isinstance(next_action(Story().sketch().state, stops_for("designer")), Ask)
    assert next_action(Story().sketch().code().state, stops_for("designer")) == Do(Role.VERIFIER)


@pytest.mark.parametrize("text", ["sometimes", "analyst", "tokens=0", "tokens=ten", "gpu_s=3", "none,tokens=5"])
def test_a_policy_that_says_nothing_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(SessionError) as caught:
        Approval.parse(text)
    assert caught.value.remedy
