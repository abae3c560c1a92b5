"""A model advises and chooses where evidence leaves a choice; where it does not, evidence decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kernellab.agents.briefs import Attempt, RouteBrief, own_reason
from kernellab.agents.model import ModelConductor, Options
from kernellab.agents.model.conductor import settle
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.route import route_prompt
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.errors import ModelError
from kernellab.records import (
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
    Timing,
    Verdict,
)  # fmt: skip
from tests.agents.model_parts import AFFINE, CPU, SKETCH, line
from tests.models.fake_server import answer, status

RIGHT = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6)
WRONG = GateResult(state=GateState.WRONG, reason="y is wrong at M=1, N=65.", sizes={"M": 1, "N": 65}, max_error=1.0)
OPAQUE = GateResult(state=GateState.NOT_RUNNABLE, reason="It uses the opaque operation twist.")
CANDIDATE = Candidate(id="c1", source=Source(dsl="cpp", files={"kernel.py": "", "kernel.cpp": "int x;"}), sketch=SKETCH)


def failed(
    signature: str = "wrong-values", reason: str = "It is wrong everywhere.", stage: Stage = Stage.CORRECT
) -> Verdict:
    return Verdict(passed=False, stage=stage, reason=reason, evidence=Evidence(signature=signature, first_wrong=[0, 0]))


TIME = Timing(median_ms=2.0, q1_ms=1.9, q3_ms=2.1, samples=9)
PASSED = Verdict(
    passed=True, stage=Stage.FAST, reason="ok", time=TIME, sol_ms=1.0,
    comparisons=[Comparison(baseline="eager", baseline_time=TIME, speedup=1.5, low=1.4, high=1.6)],
)  # fmt: skip


def brief(verdict: Verdict | None, gate: GateResult | None = RIGHT, **fields: Any) -> RouteBrief:
    given = {"candidate": CANDIDATE if verdict else None, "sketch": SKETCH, "turns_left": 9} | fields
    return RouteBrief(task=AFFINE, target=CPU, gate=gate, verdict=verdict, **given)


#: a failure whose sketch could not be run: the evidence leaves it open who is at fault
OPEN = brief(failed(), OPAQUE)


def says(to: str, suggestion: str = "Mask the tail.", **more: str) -> str:
    return json.dumps({"to": to, "error_class": "algorithm", "reason": "I think so.", "suggestion": suggestion} | more)


def test_a_choice_that_evidence_allows_is_followed_with_the_models_advice() -> None:
    with line(Role.CONDUCTOR, says("coder")) as to:
        route = ModelConductor(to.talk).route(OPEN)
    assert (route.to, route.suggestion, route.reason) == (RouteKind.CODER, "Mask the tail.", "I think so.")
    assert route.evidence, "the record's evidence, not the model's"
    assert to.purposes == ["route"] and to.exchanges[0].schema_ is not None


@pytest.mark.parametrize(
    ("state", "proposed", "settled"),
    [
        (brief(None, WRONG), "coder", RouteKind.DESIGNER),
        (brief(failed(), WRONG), "coder", RouteKind.DESIGNER),
        (brief(failed(), RIGHT), "designer", RouteKind.CODER),
        (brief(failed(), RIGHT), "finish", RouteKind.CODER),
        (brief(failed(), RIGHT), "stop", RouteKind.CODER),
    ],
)
def test_evidence_that_leaves_no_choice_decides_and_the_model_is_not_asked(
    state: RouteBrief, proposed: str, settled: RouteKind
) -> None:
    with line(Role.CONDUCTOR, says(proposed)) as to:
        route = ModelConductor(to.talk).route(state)
    assert (route.to, to.exchanges) == (settled, [])
    told = settle(state, route, Route(to=RouteKind(proposed), error_class="none", reason="So.", suggestion="Mask it."))
    assert told.to is settled
    assert f"The model proposed {proposed}" in told.reason
    assert told.suggestion != "Mask it.", "advice for another role is not handed on"


@pytest.mark.parametrize(
    "state",
    [
        brief(failed(), OPAQUE),
        brief(failed(), None, sketch=None),
        brief(failed("accumulate-dtype")),
        brief(failed("hang")),
        brief(failed("deadline")),
        brief(None, RIGHT, error="The kernel was cut off."),
    ],
)
@pytest.mark.parametrize("proposed", ["coder", "designer"])
def test_where_evidence_leaves_it_open_the_model_chooses(state: RouteBrief, proposed: str) -> None:
    with line(Role.CONDUCTOR, says(proposed)) as to:
        assert ModelConductor(to.talk).route(state).to.value == proposed


def test_nothing_is_asked_where_nothing_is_to_be_judged() -> None:
    no_compiler = failed("", "g++: not found", Stage.BUILD)
    no_compiler = no_compiler.model_copy(update={"evidence": None})
    with line(Role.CONDUCTOR, says("coder")) as to:
        conductor = ModelConductor(to.talk)
        assert conductor.route(brief(no_compiler)).to is RouteKind.STOP
        assert conductor.route(brief(PASSED)).to is RouteKind.FINISH
        assert conductor.route(brief(failed(), turns_left=0)).to is RouteKind.STOP
    assert not to.exchanges


def test_a_loop_is_left_by_rule() -> None:
    first = failed()
    conductor_says = says("coder")
    with line(Role.CONDUCTOR, conductor_says) as to:
        conductor = ModelConductor(to.talk)
        route = conductor.route(brief(first))
        history = (Attempt(candidate=CANDIDATE, sketch=SKETCH, gate=RIGHT, verdict=first, route=route),)
        again = conductor.route(brief(first, history=history))
    assert again.to is RouteKind.DESIGNER and "same code again" in again.reason


@pytest.mark.parametrize("reply", ["Send it to the coder, please.", '{"to": "verifier"}', says("coder", reason="")])
def test_an_unusable_answer_leaves_the_rules_route(reply: str) -> None:
    with line(Role.CONDUCTOR, reply) as to:
        route = ModelConductor(to.talk).route(OPEN)
    assert route.to in RouteKind and "By rule; the model's answer" in route.reason and route.suggestion


def test_prose_and_fences_around_the_object_are_read_over() -> None:
    with line(Role.CONDUCTOR, f"Let me see.\n```json\n{says('coder')}\n```\nThat is all.") as to:
        assert ModelConductor(to.talk).route(OPEN).suggestion == "Mask the tail."


def test_a_cut_answer_is_asked_for_again_and_a_refused_key_is_raised() -> None:
    with line(Role.CONDUCTOR, answer(says("coder"), finish="length"), says("coder")) as to:
        assert ModelConductor(to.talk).route(OPEN).suggestion == "Mask the tail."
    with line(Role.CONDUCTOR, status(401, "bad key")) as to, pytest.raises(ModelError):
        ModelConductor(to.talk).route(OPEN)


def test_a_passed_kernel_may_be_improved_by_anyone_or_be_good_enough_and_its_figures_are_told() -> None:
    state = brief(PASSED, improve=True, headroom=0.5, best=PASSED, budget_left="90 % of the tokens")
    rules = Route(to=RouteKind.DESIGNER, error_class="performance", reason="It is at 50 % of the bound.")
    told = route_prompt(state, rules, Library(None), Options()).messages[-1].content
    for part in (
        "share of the bound: 50 %",
        "speedup against eager: 1.5",
        "moves each input and output once",
        "90 % of the tokens",
    ):
        assert part in told
    assert told.count("of the bound") == 2 and told.count("The bound is") == 1  # the share, and the rules' own words
    for to in RouteKind:
        settled = settle(state, rules, Route(to=to, error_class="none", reason="I think so.", suggestion="Unroll."))
        assert settled.to is (RouteKind.DESIGNER if to is RouteKind.STOP else to)
        assert settled.error_class == "performance"


def test_a_right_but_slow_kernel_is_judged_by_the_model() -> None:
    state = brief(PASSED, improve=True, headroom=0.5, best=PASSED)
    with line(Role.CONDUCTOR, says("coder", "Unroll the inner loop.")) as to:
        route = ModelConductor(to.talk).route(state)
        assert (route.to, route.error_class) == (RouteKind.CODER, "performance")
        only = ModelConductor(to.talk).route(replace(state, improvers=frozenset({Role.DESIGNER})))
        assert only.to is RouteKind.DESIGNER and "The model proposed coder" in only.reason
        asked = len(to.exchanges)
        assert ModelConductor(to.talk).route(replace(state, headroom=0.95)).to is RouteKind.FINISH
        assert len(to.exchanges) == asked, "close enough to the bound: nothing to ask"


def test_the_routing_ablation_sends_every_failure_to_the_coder_without_asking() -> None:
    state = brief(None, WRONG)
    with line(Role.CONDUCTOR, says("designer")) as to:
        options = Options(ablation=frozenset({"routing"}))
        assert ModelConductor(to.talk, options=options).route(state).to is RouteKind.CODER
        state = replace(brief(failed(), WRONG), ablation=frozenset({"routing"}))
        assert ModelConductor(to.talk).route(state).to is RouteKind.CODER
    assert not to.exchanges


def test_whether_more_rounds_without_a_gain_pay_is_asked_and_a_reached_bound_is_not() -> None:
    def sent(to: RouteKind) -> Attempt:
        return Attempt(CANDIDATE, SKETCH, RIGHT, PASSED, Route(to=to, error_class="performance", reason="slow"))

    tried = (sent(RouteKind.DESIGNER), sent(RouteKind.CODER), *[sent(RouteKind.CODER)] * 4)
    stuck = brief(PASSED, history=tried, improve=True, headroom=0.3)
    with line(Role.CONDUCTOR, says("coder", "Transpose first.")) as to:
        route = ModelConductor(to.talk).route(stuck)
        assert (route.to, route.suggestion) == (RouteKind.CODER, "Transpose first.") and to.purposes == ["route"]
        for end in (replace(stuck, headroom=0.9), replace(stuck, turns_left=0), replace(stuck, improve=False)):
            assert ModelConductor(to.talk).route(end).to is RouteKind.FINISH
    assert len(to.asked) == 1


def test_a_failing_sentence_stands_once_in_a_prompt() -> None:
    state = brief(failed())
    rules = RulesConductor().route(state)
    told = route_prompt(state, rules, Library(None), Options()).messages[-1].content
    assert rules.reason.endswith("It is wrong everywhere.") and own_reason(rules) in told
    assert told.count("It is wrong everywhere") == 1 and "stage correct" in told
