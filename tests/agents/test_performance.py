"""Going on after a kernel passed: when it pays, where the work goes, and what the suggestion rests on."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernellab import tuning
from kernellab.agents.briefs import Attempt, DesignBrief, DesignReply, RouteBrief
from kernellab.agents.rules import performance, sketch_cost
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.agents.rules.performance import hot_of
from kernellab.agents.rules.sketch_cost import cost_at, work_of
from kernellab.agents.rules.suggestions import slow_because
from kernellab.errors import SketchError, kilobytes
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    GateResult,
    GateState,
    Role,
    Route,
    RouteKind,
    Source,
    Stage,
    Timing,
    Verdict,
)
from kernellab.session.turn import tuned
from kernellab.session.turn.context import Channel
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.tuning.search import Measured, Tuned
from kernellab.tuning.space import Point
from kernellab.verifier.audit.trace import Cost as Work

TASK = """
import torch

def reference(x, w):
    return x @ w

def inputs():
    return torch.randn(256, 512), torch.randn(512, 128)
"""
CHIP = Chip(
    name="test", kind="cpu", cores=64, simd_bits=256, l1_bytes=32768, l2_bytes=1 << 20, l3_bytes=1 << 18,
    bandwidth=1e10, peak_flops={"f32": 1e12},
)  # fmt: skip
#: reads all of W for each tile of rows
SKETCH = """sketch product {
    symbols: M, K, N;
    tensors: X[M, K]: f32; W[K, N]: f32; Y[M, N]: f32 out;
    constexpr: BM = 64;

    @llm_hint("parallel", "coreidx")
    for m in range(0, M, BM):
        acc = alloc([BM, 128], f32, llm_hint=["accumulator", "init_zero"])
        for k in range(0, K, 8):
            load(X[m:m+BM, k:k+8] -> x)
            load(W[k:k+8, 0:128] -> w)
            gemm(x, w, acc)
        store(acc -> Y[m:m+BM, 0:128])
}
"""
RIGHT = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6)
BROKEN = Verdict(passed=False, stage=Stage.BUILD, reason="SyntaxError: invalid syntax")


def passed(speedup: float, ms: float = 1.0, sol: float | None = 0.25) -> Verdict:
    time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
    against = Comparison(baseline="eager", baseline_time=time, speedup=speedup, low=speedup, high=speedup)
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, comparisons=[against], sol_ms=sol)


@pytest.fixture(scope="module")
def task() -> Any:
    return load_task(TASK, "product")


def brief(task: Any, verdict: Verdict = passed(2.0), **fields: Any) -> RouteBrief:
    fields = {"headroom": 0.25, "improve": True, "turns_left": 9, "sketch": SKETCH, "gate": RIGHT, **fields}
    return RouteBrief(
        task=task, target=Target("cpp", Backend.CPU, CHIP), candidate=None, verdict=verdict, **fields
    )  # fmt: skip


def route(*args: Any, **fields: Any) -> Route:
    return RulesConductor().route(brief(*args, **fields))


def test_a_right_kernel_with_headroom_goes_back_to_the_designer_with_what_its_cost_says(task: Any) -> None:
    found = route(task, best=passed(2.0))
    assert (found.to, found.error_class) == (RouteKind.DESIGNER, "performance")
    assert "4 iterations can run at once on 64 cores" in found.suggestion
    evidence = "\n".join(found.evidence)
    assert evidence.count("of the bound") == 1 and "time 1000 us, 25 % of the bound" in evidence
    assert "by the cost model most of the FLOPs are in the loop of line" in evidence
    of_cost = {fact.text for fact in found.facts if fact.of_cost}
    assert any("roofline" in text for text in of_cost) and not any("of the bound" in text for text in of_cost)


def test_where_only_the_coder_can_do_better_it_is_the_coders(task: Any) -> None:
    assert route(task, improvers=frozenset({Role.CODER})).to is RouteKind.CODER
    assert route(task, sketch=None, gate=None).to is RouteKind.CODER


def test_a_kernel_certainly_slower_than_eager_is_no_end_while_the_rules_can_still_measure(task: Any) -> None:
    slow = passed(0.5)
    found = route(task, slow, improve=False, measures=True)
    assert (found.to, found.error_class) == (RouteKind.DESIGNER, "performance")
    assert "certainly slower" in found.reason and "The hot operation is" in found.reason
    measured = (Attempt(sketch=SKETCH, gate=RIGHT, verdict=slow, route=found),)
    ended = route(task, slow, improve=False, measures=True, history=measured)
    assert ended.to is RouteKind.FINISH
    assert "Every design of the rules was measured" in ended.reason and "The hot operation is" in ended.reason
    for fields in ({}, {"measures": True, "turns_left": 0}):
        assert route(task, slow, improve=False, **fields).to is RouteKind.FINISH


def test_a_session_whose_kernel_stays_slower_ends_with_the_advice_to_keep_eager(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("cpp", Backend.CPU, CHIP)
    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    best = Point.of(reply.sketch, reply.constexpr)
    # the machine's own times would not be the same twice
    monkeypatch.setattr(tuned, "_measured", lambda *_: Tuned(best, [Measured(best, passed(0.5).time)]))
    source = Source(dsl="cpp", entry_file="kernel.py", files={"kernel.py": ""})
    candidate = Candidate(id="1", source=source, constexpr=dict(reply.constexpr))
    sent = route(task, passed(0.5), improve=False, measures=True)
    history = (Attempt(sketch=reply.sketch, candidate=candidate, gate=RIGHT, verdict=passed(0.5), route=sent),)
    bench, channel = cast(Any, None), cast(Any, None)
    ended = tuned.faster_design(bench, RulesDesigner(), DesignBrief(task, target, history=history, route=sent), channel)
    assert isinstance(ended, Route) and ended.to is RouteKind.FINISH
    assert ended.reason.startswith("Right at T2") and ended.reason.endswith("Eager is faster here: keep eager.")
    assert route(task, passed(0.98), improve=False, measures=True).to is RouteKind.FINISH


def test_a_person_has_the_designs_measured_and_the_session_ends_where_none_is_faster(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, bench, channel = Target("cpp", Backend.CPU, CHIP), cast(Any, None), cast(Any, None)
    asked = Route(to=RouteKind.DESIGNER, error_class="none", reason="A person has them measured.", measure="20")
    replies = RulesDesigner().designs(DesignBrief(task, target))
    fastest, limits = replies[-1].sketch, list[str]()

    def measured(*arguments: Any) -> Tuned:
        limits.append(arguments[3])
        points = [Point.of(reply.sketch, {}) for reply in replies]
        times = [Measured(point, passed(0.5).time) for point in points]
        return Tuned(Point.of(fastest, {}), times)

    monkeypatch.setattr(tuned, "_measured", measured)
    brief = DesignBrief(task, target, route=asked)
    reply = tuned.measured_design(bench, RulesDesigner(), brief, channel, "20")
    assert isinstance(reply, DesignReply) and reply.sketch == fastest and limits == ["20"]
    assert f"Tuned: {len(replies)} point" in reply.rationale
    # no other design is left: the verdict that is there is the answer
    source = Source(dsl="cpp", files={"kernel.py": ""})
    candidate = Candidate(id="c1", source=source, constexpr=reply.constexpr)
    tried = Attempt(sketch=fastest, candidate=candidate, gate=RIGHT, verdict=passed(0.5))
    ended = tuned.measured_design(bench, RulesDesigner(), replace(brief, history=(tried,)), channel, "20")
    assert isinstance(ended, Route) and ended.to is RouteKind.FINISH
    assert ended.reason.endswith("measured, and this one stays the fastest.")
    monkeypatch.setattr(tuned, "_measured", lambda *_: Tuned(None))
    nothing = tuned.measured_design(bench, RulesDesigner(), brief, channel, "20")
    assert isinstance(nothing, Route) and nothing.reason == "Nothing could be measured, so the defaults stay."


def test_the_rules_say_which_design_they_time(task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target, said = Target("cpp", Backend.CPU, CHIP), list[str]()
    brief = DesignBrief(task, target)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuned, "engine", lambda: SimpleNamespace(verifying=nullcontext(), verifier=lambda: None))
    monkeypatch.setattr(tuning.WorkerMeasure, "__call__", lambda _, point, budget: Measured(point, passed(0.5).time))
    bench = cast(Any, SimpleNamespace(created=SimpleNamespace(constexpr={}), budget=None))
    replies = RulesDesigner().designs(brief)
    found = tuned._measured(bench, brief, replies, "2", Channel(say=said.append), ())
    assert len(found.measured) == 2
    assert list(dict.fromkeys(said)) == [f"timing design {n}, at most 2 designs" for n in (1, 2)]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"improve": False}, "Verified at T2"),
        ({"headroom": 0.9}, "90 % of the speed-of-light bound"),
        ({"headroom": None, "turns_left": 0}, "not known"),
        ({"turns_left": 0}, "limit of turns"),
    ],
)
def test_it_is_the_end_when_going_on_cannot_pay(task: Any, fields: dict[str, Any], why: str) -> None:
    found = route(task, **fields)
    assert found.to is RouteKind.FINISH
    assert why in found.reason


def test_an_end_far_from_the_bound_says_how_far_and_what_is_left(task: Any) -> None:
    far = route(task, improve=False, headroom=0.14, best_turn=3, measures=True)
    assert far.to is RouteKind.FINISH
    assert "Verified at T2. The best kernel (turn 3) reaches 14 % of the speed-of-light bound." in far.reason
    assert "Left untried: the rules' designs" in far.reason
    assert route(task, improve=False, headroom=0.5, measures=True).reason == "Verified at T2."
    # most of it is its call
    assert route(task, passed(2.0, ms=0.01), improve=False, headroom=0.14).reason == "Verified at T2."


def test_a_kernel_that_is_slower_than_an_earlier_one_has_no_share_of_the_bound_of_it(task: Any) -> None:
    slower = route(task, passed(1.5), improve=False, headroom=0.14, history=(sent("designer", 2.0),))
    assert "An earlier kernel stays the best. The best kernel reaches 14 % of" in slower.reason
    faster = route(task, passed(2.5), improve=False, headroom=0.14, history=(sent("designer", 2.0),))
    assert "earlier kernel" not in faster.reason and "The best kernel reaches 14 %" in faster.reason
    # one that was not timed is compared with none
    assert "earlier" not in route(task, passed(2.0).model_copy(update={"time": None}), improve=False).reason


def test_the_end_is_where_the_kernel_is_at_a_roofline_that_no_sketch_betters(task: Any) -> None:
    # its own sketch needs 0.54 ms, the machine 0.5 ms
    found = route(task, passed(2.0, ms=0.55, sol=0.5))
    assert found.to is RouteKind.FINISH
    assert "at its sketch's roofline (536.9 us)" in found.reason
    # 79 % of the bound is below the target: who may find something faster is asked first
    assert route(task, passed(2.0, ms=0.63, sol=0.5)).to is RouteKind.CODER
    # the kernel is faster than the bound, which was measured badly: it says nothing of a roofline
    assert route(task, passed(2.0, ms=0.2, sol=0.5), headroom=None).to is not RouteKind.FINISH
    better = route(task, passed(2.0, ms=0.55, sol=0.1))
    assert better.to is RouteKind.DESIGNER
    assert "the sketch's own roofline is 536.9 us" in better.evidence
    coder = frozenset({Role.CODER})
    asked = (sent("coder", 2.0),)
    ended = route(task, passed(2.0, ms=0.55, sol=0.1), improvers=coder, history=asked)
    assert ended.to is RouteKind.FINISH and "Left untried" not in ended.reason
    assert route(task, passed(2.0, ms=0.55, sol=0.1), improvers=coder).to is RouteKind.CODER, "it was not asked yet"


def test_handwritten_code_that_is_faster_than_its_sketch_allows_goes_to_the_coder(task: Any) -> None:
    """Its sketch, lowered again, would be slower: what the loops by hand do, no sketch states."""
    cost = cost_at(SKETCH, task, Target("cpp", Backend.CPU, CHIP), {})
    assert cost.time_ms is not None
    source = Source(dsl="cpp", files={"kernel.cpp": ""}, entry_file="kernel.py")
    for author, share, to in ((Author.MODEL, 0.25, "coder"), (Author.RULES, 0.25, "designer"),
                              (Author.MODEL, 1.05, "designer")):  # fmt: skip
        took = passed(2.0, ms=share * cost.time_ms, sol=share * cost.time_ms / 20)
        made = Candidate(id="c1", source=source, sketch=SKETCH, author=author)
        asked = replace(brief(task, took), candidate=made, improvers=frozenset({Role.DESIGNER, Role.CODER}))
        assert RulesConductor().route(asked).to.value == to, (author, share)


def sent(to: str, speed: float) -> Attempt:
    route = Route(to=to, error_class="performance", reason="slow")
    return Attempt(sketch=SKETCH, gate=RIGHT, verdict=passed(speed), route=route)


def test_each_improver_is_asked_before_no_gain_ends_it_and_the_end_says_what_is_left(task: Any) -> None:
    both = frozenset({Role.DESIGNER, Role.CODER})
    stuck = (sent("designer", 2.0), sent("designer", 2.0))
    assert route(task, passed(2.0, ms=1.0, sol=0.1), improvers=both, history=stuck).to is RouteKind.CODER
    ended = route(task, passed(2.0), improvers=both, history=(*stuck, sent("coder", 2.0)))
    assert ended.to is RouteKind.FINISH and "not faster than the best before" in ended.reason
    assert "Left untried" not in ended.reason
    late = route(task, passed(2.0), improvers=both, history=stuck, turns_left=0, request_tokens=4100.0)
    assert late.to is RouteKind.FINISH
    assert "Left untried: the coder was not asked for something faster (about 4,100 tokens a request)." in late.reason
    unknown = {"headroom": None, "improvers": both}
    assert route(task, passed(2.0), **unknown).to is RouteKind.DESIGNER, "a bound that is not believed is no target"
    assert route(task, passed(2.0), history=(*stuck, sent("coder", 2.0)), **unknown).to is RouteKind.FINISH
    near = route(task, passed(2.0), improvers=both, history=stuck, turns_left=0, headroom=0.9)
    assert "Left untried" not in near.reason


def test_where_no_time_is_compared_no_one_is_to_be_asked_for_a_faster_kernel(task: Any) -> None:
    right = passed(2.0).model_copy(update={"time": None, "comparisons": []})
    both = frozenset({Role.DESIGNER, Role.CODER})
    end = replace(brief(task, right), headroom=None, improvers=both)
    interpreted = replace(end, target=replace(end.target, dsl="triton", backend=Backend.INTERPRETER))
    said = RulesConductor().route(interpreted).reason
    assert "No time is compared in Triton's interpreter." in said and "Left untried" not in said and "bound" not in said
    assert "interpreter" not in RulesConductor().route(end).reason


def test_the_work_goes_where_more_is_lost(task: Any) -> None:
    assert route(task, passed(2.0, ms=0.7, sol=0.1)).to is RouteKind.DESIGNER
    slow = route(task, passed(2.0, ms=5.0, sol=0.25))
    assert slow.to is RouteKind.CODER
    assert "The sketch allows 536.9 us and the code takes 5000 us" in slow.suggestion
    own = Candidate(id="c", source=Source(dsl="cpp", files={"kernel.cpp": ""}), sketch=SKETCH, author=Author.MODEL)
    by_hand = RulesConductor().route(replace(brief(task, passed(2.0, ms=5.0, sol=0.25)), candidate=own))
    assert "The bound is 250 us and the code takes 5000 us" in by_hand.suggestion
    assert not any("roofline" in fact.text for fact in by_hand.facts)


def test_where_the_framework_is_faster_it_is_said(task: Any) -> None:
    found = route(task, passed(0.9), improve=False).reason
    assert found.startswith("Right at T2. Eager is faster here: keep eager.")
    assert "Verified" not in found and "--allow-library" in found
    assert "framework" not in route(task, passed(1.1), improve=False).reason


def unsure(speedup: float, low: float, high: float, ms: float = 1.0) -> Verdict:
    verdict = passed(speedup, ms=ms)
    against = verdict.comparisons[0].model_copy(update={"low": low, "high": high})
    return verdict.model_copy(update={"comparisons": [against]})


def test_a_kernel_that_may_be_slower_is_right_and_not_recommended(task: Any) -> None:
    doubtful = unsure(0.8, 0.6, 1.1)
    found = route(task, doubtful, improve=False).reason
    assert found.startswith("Right at T2. No faster than eager as measured: not recommended.")
    assert "Verified" not in found and "keep eager" not in found
    # the rules measure their other designs first, as for one that is certainly slower
    sent_back = route(task, doubtful, improve=False, measures=True)
    assert sent_back.to is RouteKind.DESIGNER and "by its median slower" in sent_back.reason
    going = route(task, unsure(0.8, 0.6, 1.1, ms=40.0))
    assert "Eager may be faster so far" in going.reason and "not recommended" not in going.reason
    # neither near 1 nor where a call takes most of the time
    assert "Verified" in route(task, unsure(0.96, 0.8, 1.1), improve=False, measures=True).reason
    assert route(task, unsure(0.8, 0.6, 1.1, ms=0.01), improve=False, measures=True).to is RouteKind.FINISH


def test_rounds_without_a_gain_end_it(task: Any) -> None:
    rounds = tuple(sent(to, s) for to, s in (("designer", 2.0), ("coder", 2.01)))
    assert route(task, passed(2.02), history=rounds).to is RouteKind.FINISH
    assert route(task, passed(2.5), history=rounds).to is RouteKind.DESIGNER


def of(author: Author, coder: Author, speed: float, high: float = 0.0) -> Attempt:
    """A round by the author of its sketch and of its code, asked for by a route, with the end of its interval."""
    verdict = passed(speed)
    if high:
        figure = verdict.comparisons[0].model_copy(update={"low": speed - 0.1, "high": high})
        verdict = verdict.model_copy(update={"comparisons": [figure]})
    candidate = Candidate(id="c", source=Source(dsl="cpp", files={"kernel.cpp": ""}), sketch=SKETCH, author=coder)
    route = Route(to="coder", error_class="performance", reason="slow")
    return Attempt(candidate, SKETCH, RIGHT, verdict, route, author=author)


def ends(task: Any, *rounds: Attempt, improvers: frozenset[Role] = frozenset({Role.DESIGNER, Role.CODER})) -> bool:
    *history, judged = rounds
    verdict = judged.verdict
    assert verdict is not None
    return bool(performance.no_gain(brief(task, verdict, history=tuple(history), judged=judged, improvers=improvers)))


def test_only_what_an_improver_made_is_its_failure(task: Any) -> None:
    model, rules = Author.MODEL, Author.RULES
    first, fast = of(model, rules, 2.0), of(model, model, 9.0)
    slower, lowered = of(model, model, 8.0), of(model, rules, 3.0)
    assert ends(task, first, fast, slower, slower)
    assert not ends(task, first, fast, slower, lowered), "no Coder has worked on the new sketch"
    assert not ends(task, first, fast, lowered, lowered)
    alone = frozenset({Role.DESIGNER})
    assert ends(task, fast, lowered, lowered, improvers=alone), (
        "without a Coder who improves, a lowering is all there is"
    )
    by_rules = of(rules, rules, 1.0)
    assert not ends(task, of(rules, rules, 2.0), by_rules, of(model, rules, 1.0), improvers=alone)
    assert ends(task, of(rules, rules, 2.0), by_rules, by_rules, improvers=alone), "no other role takes part"


def test_kernels_that_noise_may_make_slower_take_more_rounds_to_end_it(task: Any) -> None:
    model = Author.MODEL
    fast, unclear, slower = of(model, model, 9.0), of(model, model, 8.9, high=9.5), of(model, model, 8.0)
    assert not ends(task, fast, unclear, slower) and not ends(task, fast, unclear, unclear, unclear)
    assert ends(task, fast, unclear, slower, slower) and ends(task, fast, *[unclear] * 4)
    assert not ends(task, fast, slower, unclear, of(model, model, 9.4), slower), "a gain begins the count again"


def test_advice_is_of_the_kernel_that_the_next_role_starts_from(task: Any) -> None:
    more = SKETCH.replace("BM = 64", "BM = 32")
    best = replace(of(Author.MODEL, Author.RULES, 2.0), sketch=more)
    worse = route(task, passed(1.5), history=(best,), improvers=frozenset({Role.DESIGNER}))
    assert worse.suggestion.startswith("Round 1 is still the best, and the work starts from it. ")
    assert "Only 8 iterations" in worse.suggestion
    sooner = route(task, passed(1.5, ms=0.001), history=(best,), improvers=frozenset({Role.DESIGNER}))
    assert sooner.suggestion.startswith("Round 1 is still the best by its speedup, though not by its time, which")
    # the ranking keeps the first of two that noise may order: it does not stay the best "by its speedup" of 2 to 2.1
    first = replace(of(Author.MODEL, Author.RULES, 2.0, high=2.3), sketch=more, place=0)
    ties = route(task, passed(2.1, ms=0.001), history=(first,), improvers=frozenset({Role.DESIGNER}))
    assert ties.suggestion.startswith("Round 1 is still the best, though noise may hide which is faster, and the work")
    better = route(task, passed(2.5), history=(best,), improvers=frozenset({Role.DESIGNER}))
    assert "Only 4 iterations" in better.suggestion and "still the best" not in better.suggestion
    coder = route(task, passed(1.5, ms=5.0), history=(best,), improvers=frozenset({Role.CODER}))
    assert "still the best" not in coder.suggestion and "an earlier kernel, of another sketch, was" in coder.suggestion


def test_a_loop_of_failures_after_a_pass_ends_with_the_earlier_kernel(task: Any) -> None:
    again = Route(to=RouteKind.DESIGNER, error_class="syntax", reason="so")
    rounds = tuple(Attempt(sketch=SKETCH, gate=RIGHT, verdict=BROKEN, route=again) for _ in range(3))
    coder = tuple(
        Attempt(sketch=SKETCH, verdict=BROKEN, route=again.model_copy(update={"to": RouteKind.CODER})) for _ in range(3)
    )
    found = route(task, BROKEN, history=(*coder, *rounds), best=passed(2.0))
    assert found.to is RouteKind.FINISH
    assert "An earlier kernel stays the best" in found.reason


def test_without_routing_every_fault_is_the_coders(task: Any) -> None:
    wrong = GateResult(state=GateState.WRONG, reason="Differs at N=7.")
    assert route(task, BROKEN, gate=wrong).to is RouteKind.DESIGNER
    assert route(task, BROKEN, gate=wrong, ablation=frozenset({"routing"})).to is RouteKind.CODER


def test_what_is_fetched_again_and_again_is_named(task: Any) -> None:
    few = Target("cpp", Backend.CPU, Chip(**{**vars(CHIP), "cores": 2}))
    found = RouteBrief(task=task, target=few, sketch=SKETCH, gate=RIGHT, candidate=None, verdict=passed(2.0))
    words, given = slow_because(found)
    facts = [fact.text for fact in given]
    assert "Keep W on chip: line 11 fetches it 4.0 times" in words
    assert "W is fetched 4.0 times (line 11)" in facts
    assert "the sketch is bound by memory" in facts
    assert any("are in the loop of line 9 " in fact for fact in facts)


def test_of_two_launches_the_one_that_takes_the_time_is_named(task: Any) -> None:
    last = """
sketch scaled {
    symbols: M, N;
    tensors: T[M, N]: f32 temp; Y[M, N]: f32 out;

    for once in range(1):
        load(T[0:M, 0:N] -> t)
        store(t -> Y[0:M, 0:N])
}
"""
    first = SKETCH.replace("Y[M, N]: f32 out", "T[M, N]: f32 temp").replace("-> Y[", "-> T[")
    found = brief(task, passed(0.5, ms=3.0), sketch=first + last)
    words, facts = slow_because(found)
    said = "\n".join(fact.text for fact in facts)
    # a prompt states the roofline of the sketch as a whole, and nothing of one launch
    assert [fact.text.partition(" is ")[0] for fact in facts if fact.of_cost] == ["the sketch's own roofline"]
    assert "of 2 launches product (line 1) takes the most by the cost model, 9" in said
    assert "4 parallel iterations" in said and "Only 4 iterations" in words  # not the last launch's one
    assert "in which of the 2 launches" in said and "was not measured" in said
    assert "gemm (line 12)" in hot_of(found) and "of launch product" in hot_of(found)
    blind = Target("cpp", Backend.CPU, Chip(**{**vars(CHIP), "bandwidth": 0.0}))
    _, facts = slow_because(replace(found, target=blind))
    said = "\n".join(fact.text for fact in facts)
    assert "which of them takes most of the time is not known: the chip's rates are not" in said


def test_a_sketch_that_cannot_be_costed_still_gets_a_word(task: Any) -> None:
    words, _ = slow_because(brief(task, sketch="sketch nothing {\n}\n"))
    assert "could not be costed" in words
    with pytest.raises(SketchError):
        cost_at("sketch nothing {\n}\n", task, Target("cpp", Backend.CPU, CHIP), {})


def test_a_count_that_a_problem_ended_is_made_again(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [Work(problem="disturbed"), Work(flops={"float32": 7}), Work(problem="never asked for")]
    monkeypatch.setattr(sketch_cost, "trace", lambda task: counts.pop(0))
    other = replace(task, name="counted twice")
    assert work_of(other).problem == "disturbed"
    assert work_of(other).total_flops == 7 and work_of(other).total_flops == 7
    assert len(counts) == 1


#: one loop over rows, each read once; nothing of it runs at once
ROWS = """sketch rows {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;

    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x * 2.0 -> Y[m, 0:N])
}
"""
ROWS_TASK = """
import torch

def reference(x):
    return x * 2.0

def inputs():
    return torch.randn(512, 256)
"""
#: no loop at all
WHOLE = ROWS.replace("    for m in range(M):\n        load(X[m, ", "    load(X[0:M, ").replace(
    "        store(x * 2.0 -> Y[m, ", "    store(x * 2.0 -> Y[0:M, "
)
PARALLEL = ROWS.replace("    for m", '    @llm_hint("parallel", "coreidx")\n    for m')


@pytest.fixture(scope="module")
def rows() -> Any:
    return load_task(ROWS_TASK, "rows")


def advice(task: Any, verdict: Verdict = passed(2.0), to: RouteKind = RouteKind.DESIGNER, **fields: Any) -> str:
    target = Target("cpp", Backend.CPU, Chip(**{**vars(CHIP), **fields.pop("chip", {})}))
    return slow_because(replace(brief(task, verdict, **fields), target=target), to)[0]


def test_without_a_sketch_no_word_is_of_one(task: Any) -> None:
    assert advice(task, sketch=None) == "Make it faster. Change one thing at a time."
    assert "could not be costed" in advice(task, sketch="sketch nothing {\n}\n")


def test_iterations_are_called_few_only_where_there_are_fewer_than_cores(task: Any, rows: Any) -> None:
    assert "Only 4 iterations" in advice(task)
    few = advice(task, chip={"cores": 4})
    assert "Only" not in few and "at once" not in few


def test_a_loop_is_to_be_split_only_where_one_is_parallel_and_marked_only_where_there_is_one(rows: Any) -> None:
    said = advice(rows, sketch=ROWS)
    assert "mark a loop whose iterations are independent" in said and "Only" not in said
    assert "mark a loop" not in advice(rows, sketch=PARALLEL)
    assert "loop" not in advice(rows, sketch=WHOLE), "there is none"


def test_a_tensor_is_to_stay_on_chip_only_where_its_traffic_is_what_bounds_the_sketch(task: Any, rows: Any) -> None:
    assert "Keep W on chip" in advice(task, chip={"cores": 4})
    bound_by_arithmetic = {"cores": 4, "bandwidth": 1e15}
    said = advice(task, chip=bound_by_arithmetic)
    assert "on chip" not in said and "fetched about once" not in said and "Arithmetic bounds it" in said
    once = advice(rows, sketch=PARALLEL, chip={"cores": 4})
    assert "Keep" not in once and "Each tensor is fetched about once" in once and "line 6" in once


def test_tiles_are_called_too_large_only_where_they_are(task: Any) -> None:
    footprint = cost_at(SKETCH, task, Target("cpp", Backend.CPU, CHIP), {}).footprint
    small = {"cores": 4, "l1_bytes": 0, "l2_bytes": footprint - 1, "l3_bytes": 0}
    limit = Chip(**{**vars(CHIP), **small}).on_chip_bytes
    assert limit < footprint and f"and {kilobytes(limit)} are on chip: make them smaller" in advice(task, chip=small)
    assert "make them smaller" not in advice(task, chip={**small, "l2_bytes": 1 << 22})


def test_tiles_of_a_sketch_are_not_blamed_for_code_that_is_faster_than_the_sketch_allows(task: Any) -> None:
    cost = cost_at(SKETCH, task, Target("cpp", Backend.CPU, CHIP), {})
    assert cost.time_ms is not None
    small = {"cores": 4, "l1_bytes": 0, "l2_bytes": cost.footprint - 1, "l3_bytes": 0}
    for share, told in ((2.0, True), (0.25, False)):
        took = passed(2.0, ms=share * cost.time_ms, sol=share * cost.time_ms / 8)
        said, facts = slow_because(
            replace(brief(task, took), target=Target("cpp", Backend.CPU, Chip(**{**vars(CHIP), **small})))
        )
        assert ("make them smaller" in said) is told, said
        assert any("it takes other steps" in fact.text for fact in facts) is not told
        assert ("Make a sketch of the steps" in said) is not told


def test_a_sketch_at_the_bound_is_said_to_be_only_where_it_is(task: Any) -> None:
    cost = cost_at(SKETCH, task, Target("cpp", Backend.CPU, CHIP), {})
    assert cost.time_ms is not None
    source = Source(dsl="cpp", files={"kernel.cpp": ""}, entry_file="kernel.py")
    made = Candidate(id="c1", source=source, sketch=SKETCH, author=Author.MODEL)
    for sol, told in ((cost.time_ms, True), (cost.time_ms / 8, False)):
        asked = replace(brief(task, passed(2.0, ms=4 * cost.time_ms, sol=sol)), candidate=made)
        asked = replace(asked, target=Target("cpp", Backend.CPU, Chip(**{**vars(CHIP), "cores": 4})))
        said = slow_because(asked, RouteKind.DESIGNER)[0]
        assert ("The sketch allows the bound by the cost model" in said) is told, said
        assert "allows the bound" not in slow_because(asked, RouteKind.CODER)[0], "its code is what is slow"


@pytest.mark.parametrize(("share", "words"), [(0.7, "most of it"), (0.1, "the largest part of it, 10%,")])
def test_a_part_is_most_of_it_only_where_it_is(share: float, words: str) -> None:
    assert sketch_cost.most_of(share) == words


def test_arithmetic_is_called_too_much_only_where_it_is_and_where_it_bounds(rows: Any) -> None:
    wasteful = PARALLEL.replace("x * 2.0", "x * 2.0 + exp(x) - exp(x + 1.0)")
    fast_memory = {"cores": 4, "bandwidth": 1e15}
    said = advice(rows, sketch=wasteful, chip=fast_memory)
    assert "times the arithmetic of the reference" in said and "masked" not in said
    assert "times the arithmetic" not in advice(rows, sketch=wasteful, chip={"cores": 4}), "memory bounds it"
    assert "times the arithmetic" not in advice(rows, sketch=PARALLEL, chip=fast_memory), "it does what it must"


def test_products_are_named_only_where_they_are_more_than_the_references(task: Any) -> None:
    needed = work_of(task).total_flops

    def told(*parts: tuple[str, int, float]) -> str:
        operations = tuple(SimpleNamespace(operation=op, line=line, flops=flops) for op, line, flops in parts)
        return sketch_cost.largest_part(task, cast(Any, SimpleNamespace(operations=operations)))

    masked = told(("gemm", 4, needed), ("where", 6, needed / 2), ("exp", 7, needed / 4))
    assert masked == "apart from the reference's products most of it is where in line 6"
    assert told(("dot", 4, 2 * needed), ("where", 6, needed)) == "most of it is dot in line 4"
    assert told(("dot", 4, needed / 2), ("dot", 5, needed / 2)).endswith("dot in line 4"), "there is nothing else"
    assert "apart" not in told(("exp", 3, 3.0), ("add", 4, 1.0)), "it has no product"


def test_a_library_call_is_to_go_only_where_a_kernel_must_do_without(task: Any) -> None:
    called = """sketch called {
    symbols: M, K, N;
    tensors: X[M, K]: f32; W[K, N]: f32; T[M, N]: f32 temp;

    T = library.mm(X, W)
}

sketch scaled {
    symbols: M, N;
    tensors: T[M, N]: f32 temp; Y[M, N]: f32 out;

    for m in range(M):
        load(T[m, 0:N] -> t)
        store(t -> Y[m, 0:N])
}
"""
    assert "another design must do without it" in advice(task, sketch=called)
    allowed = advice(task, sketch=called, allow_library=True)
    assert "call of the framework's library." in allowed and "must do without" not in allowed


def test_an_earlier_kernel_is_gone_back_to_only_where_it_was_faster(task: Any) -> None:
    def of(before_ms: float, now_ms: float) -> str:
        history = (Attempt(sketch=SKETCH, gate=RIGHT, verdict=passed(2.0, ms=before_ms)),)
        now = passed(2.0 * before_ms / now_ms, ms=now_ms, sol=0.1)
        return advice(task, now, RouteKind.CODER, history=history)

    assert "an earlier kernel was 1.67 times as fast: begin with its code" in of(3.0, 5.0)
    for before, now in ((5.0, 5.05), (5.0, 5.0), (5.0, 3.0)):
        assert "earlier kernel" not in of(before, now)


def test_code_of_another_sketch_is_no_code_to_begin_with(task: Any) -> None:
    other = SKETCH.replace("K, 8)", "K, 16)").replace("k+8", "k+16")
    history = (Attempt(sketch=other, gate=RIGHT, verdict=passed(2.0, ms=3.0)),)
    said = advice(task, passed(1.2, ms=5.0, sol=0.1), RouteKind.CODER, history=history)
    assert "an earlier kernel, of another sketch, was 1.67 times as fast" in said and "begin with its code" not in said


def test_a_kernel_that_is_the_best_is_not_sent_back_to_an_earlier_one(task: Any) -> None:
    def against(speedup: float, low: float, high: float) -> Verdict:
        found = passed(speedup, ms=5.0, sol=0.1)
        between = found.comparisons[0].model_copy(update={"low": low, "high": high})
        return found.model_copy(update={"comparisons": (between,)})

    history = (Attempt(sketch=SKETCH, gate=RIGHT, verdict=against(16.8, 9.7, 31.3)),)
    steady = advice(task, against(15.6, 13.7, 17.6), RouteKind.CODER, history=history)
    assert "earlier kernel" not in steady, "by the lower end, which ranks kernels, it is the best"
    assert "1.29 times as fast" in advice(task, against(13.0, 9.0, 17.6), RouteKind.CODER, history=history)


def test_each_reason_to_end_has_a_case_in_which_it_is_not_given(task: Any) -> None:
    end = performance.why_finish
    slow, half = passed(0.5), brief(task, improve=True, turns_left=9)
    assert end(half) == ""
    cases = {
        "No one asked": replace(half, improve=False),
        "limit of turns": replace(half, turns_left=0),
        "of the speed-of-light bound": replace(half, headroom=0.9),
        "is not known": replace(half, headroom=None, verdict=passed(2.0, sol=None), improvers=frozenset()),
        "sketch's roofline": brief(task, passed(2.0, ms=0.55, sol=0.5)),
        "were not faster": brief(task, history=(sent("designer", 2.0), sent("coder", 2.0))),
        "Every design of the rules": brief(
            task, slow, improve=False, measures=True,
            history=(Attempt(route=Route(to="designer", error_class="performance", reason="slow")),),
        ),
    }  # fmt: skip
    for said, case in cases.items():
        reasons = [words for words in cases if words in end(case)]
        assert reasons == [said], "one reason, and no other's"


def test_what_is_left_untried_names_only_what_was_not_asked(task: Any) -> None:
    both = frozenset({Role.DESIGNER, Role.CODER})
    asked = brief(task, improvers=both, history=(sent("designer", 2.0), sent("coder", 2.0)))
    assert performance.untried(asked) == ""
    assert "the coder was not asked" in performance.untried(replace(asked, history=asked.history[:1]))
    assert "was not asked" not in performance.untried(replace(asked, history=(), improve=False))
    assert "--tune" in performance.untried(replace(asked, measures=True, history=asked.history[1:]))
    assert "--tune" not in performance.untried(replace(asked, measures=True))


def test_a_role_that_goes_on_is_not_told_to_keep_eager(task: Any) -> None:
    slow = passed(0.5, ms=40.0, sol=0.1)
    going = route(task, slow)
    assert going.to is RouteKind.CODER and "keep eager" not in going.reason + going.suggestion
    assert "--allow-library" not in going.reason and "Eager is faster so far" in going.reason
    assert "keep eager" in route(task, slow, turns_left=0).reason
    going = route(task, slow, best=passed(1.4, ms=14.0, sol=0.1))
    assert "so far" not in going.reason and "than this one, and not than an earlier one" in going.reason


def test_no_advice_names_a_knob_that_the_loop_may_not_have(task: Any) -> None:
    for ms in (0.6, 40.0):
        assert "vector width" not in advice(task, passed(2.0, ms=ms, sol=0.1), RouteKind.DESIGNER)
