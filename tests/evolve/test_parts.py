"""The parts of a search by themselves: novelty, the bandit, the Analyst, stop rules, promotion, the fold."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Timer

import pytest

from kernellab.conditions import LaunchBound
from kernellab.dsls.machine import detect_target
from kernellab.evolve import stop
from kernellab.evolve.analyst import suggestion
from kernellab.evolve.analyst.models import model_plan
from kernellab.evolve.analyst.rules import Row, plan, splits, tree
from kernellab.evolve.estimate import estimate
from kernellab.evolve.fold import apply_event
from kernellab.evolve.jobs import FIRST, Job, Ranked
from kernellab.evolve.policies import Request
from kernellab.evolve.promote import OutOfTime, Promotion, pooled
from kernellab.evolve.records import (
    Action,
    Evaluated,
    Evaluation,
    Event,
    Place,
    Plan,
    Proposal,
    Proposed,
    RoundEnded,
    Spent,
    Status,
    Steered,
    Step,
)
from kernellab.evolve.scheduler import Scheduler
from kernellab.evolve.state import RunState
from kernellab.evolve.vary import bandit
from kernellab.evolve.vary.mix import Mix
from kernellab.evolve.vary.models import ModelOperator
from kernellab.evolve.vary.novelty import Look, Novelty
from kernellab.models import Budget
from kernellab.models.exchanges import Exchange, Usage
from kernellab.models.settings import ModelSettings
from kernellab.options.search import Knobs
from kernellab.records import Author, Comparison, Role, Source, Verdict
from kernellab.sketch.rewrite import variants
from kernellab.task import load_task
from kernellab.verifier.cuda.clocks import DEVICES
from tests.agents.model_parts import line
from tests.evolve.runs import TASK, score, state, timing, verdict, verify

ROWS = """sketch rows {{
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = {block};

    @llm_hint("parallel", "grididx")
    for {name} in range(M):
        for n in range(0, N, BLOCK):
            x = alloc([BLOCK], f32)
            load(X[{name}, n:n+BLOCK] -> x)
            store(x * 2.0 -> Y[{name}, n:n+BLOCK])
}}
"""


def proposal(number: int, sketch: str) -> Proposal:
    return Proposal(number=number, round=0, island=0, operator="seed", sketch=sketch)


def test_a_sketch_with_other_names_is_nothing_new_and_one_with_another_tile_is() -> None:
    found = state([1.0])
    found.proposals[0] = proposal(0, ROWS.format(block=256, name="m"))
    novelty = Novelty(detect_target("cpp"))
    look = novelty.look(found, proposal(1, ROWS.format(block=256, name="row")))
    assert look.refused == "It is candidate 0 but for names, or for sizes of the same power of two."
    assert look.spent[-1].step is Step.NOVELTY
    assert not novelty.look(found, proposal(2, ROWS.format(block=1024, name="m"))).refused


def test_a_sketch_that_does_not_check_is_refused_with_its_line() -> None:
    look = Novelty(detect_target("cpp")).look(state([1.0]), proposal(1, ROWS.format(block=256, name="m")[:-30]))
    assert look.refused.startswith("line ")
    assert [spent.step for spent in look.spent] == [Step.CHECK]


def test_the_bandit_prefers_what_gained_and_forgets_nobody() -> None:
    found = state([1.0, 2.0, 0.5, 3.0], parents=[0, 0, 0, 1])
    names = ["rules:tile", "rules:fuse", "rules:join"]
    assert bandit.arms(found)["rules:tile"].tries == 3
    assert bandit.arms(found)["rules:tile"].gain > 0.5
    order = bandit.order(found, names)
    assert order[-1] == "rules:tile", "what was never tried comes first"
    tried = dict.fromkeys(names, 0)
    pending: list[str] = []
    for _ in range(9):
        pending.append(bandit.order(found, names, pending)[0])
        tried[pending[-1]] += 1
    assert all(tried.values()), tried


def children(
    found: RunState, operator: str, speedups: Sequence[float], seconds: float, tokens: int = 0, made_in: float = 0.0
) -> None:
    """Children of candidate 0 by ``operator``, each at that cost."""
    for speedup in speedups:
        number = len(found.proposals)
        made = Proposal(
            number=number, round=0, island=0, operator=operator, parents=(0,), sketch=f"sketch c{number} {{}}",
            usage=Usage(input_tokens=tokens), seconds=made_in,
        )  # fmt: skip
        done = Evaluation(
            number=number, key=made.key, passed=True, step=Step.RANK, score=score(speedup),
            spent=(Spent(step=Step.RANK, seconds=seconds, passed=True),),
        )  # fmt: skip
        apply_event(found, found.seq + 1, Proposed(proposals=(made,)))
        apply_event(found, found.seq + 1, Evaluated(evaluation=done))


RULES = ["rules:tile", "rules:fuse", "rules:split_k", "rules:join"]
ASKED = ["model/difference", "model/whole"]


def drawn(found: RunState, count: int) -> Counter[str]:
    pending: list[str] = []
    for _ in range(count):
        pending.append(bandit.order(found, [*RULES, *ASKED], pending)[0])
    return Counter(pending)


def test_the_rules_keep_a_share_beside_a_model_that_gains_and_each_of_them_has_a_turn() -> None:
    found = state([1.0])
    children(found, "rules:tile", [0.9] * 4, seconds=3.0)
    children(found, "model/difference", [2.0] * 8, seconds=3.0, tokens=500)
    often = drawn(found, 60)
    by_rules = sum(often[name] for name in RULES)
    assert all(often[name] for name in RULES)
    # of all that was tried, the four before included
    assert 0.25 * 72 - 1 <= by_rules + 4 <= 0.35 * 72
    assert often["model/difference"] > often["model/whole"] > 0


def test_a_model_that_costs_more_than_it_gains_is_still_heard() -> None:
    found = state([1.0])
    children(found, "rules:tile", [2.0] * 8, seconds=3.0)
    children(found, "model/difference", [1.1] * 4, seconds=3.0, tokens=9000)
    often = drawn(found, 60)
    assert 0.125 * 72 - 1 <= sum(often[name] for name in ASKED) + 4 <= 0.25 * 72


def test_an_agents_time_is_a_cost_and_a_models_is_none() -> None:
    found = state([1.0])
    for operator in ("agent:a/lineage", "model:m/whole"):
        children(found, operator, [2.0, 1.5], seconds=3.0, made_in=96.0)
    arms = bandit.arms(found)
    assert (arms["agent:a/lineage"].seconds, arms["model:m/whole"].seconds) == (2 * 99.0, 2 * 3.0)
    assert arms["agent:a/lineage"].rate == pytest.approx(arms["model:m/whole"].rate * 3 / 99)


def test_rewrites_of_numbers_and_of_structure_are_weighed_as_wholes() -> None:
    """Before anything is known each of them has half of the proposals, though more rewrites change structure."""
    found, names, pending = state([1.0]), ["rules:tunables", "rules:fuse", "rules:cut", "rules:split", "rules:join"], []
    for _ in range(20):
        pending.append(bandit.order(found, names, pending)[0])
    assert 9 <= pending.count("rules:tunables") <= 11
    children(found, "rules:fuse", [1.5] * 4, seconds=3.0)
    children(found, "rules:tunables", [0.9] * 4, seconds=3.0)
    later: list[str] = []
    for _ in range(20):
        later.append(bandit.order(found, names, later)[0])
    assert later.count("rules:tunables") < 7


def test_of_what_an_operator_may_make_the_cost_model_chooses() -> None:
    task, target = load_task(TASK, "soft"), detect_target("cpp")
    mix = Mix(task, target)
    (seed,) = [p for p in mix.seeds(state([])).proposals if p.number == 0]
    found = state([1.0])
    found.proposals[0] = seed
    costs = {}
    for at in range(6):
        made = mix.by_rule(found, Request(0, (0,)), "rules:cut", random.Random(at), set())
        assert made is not None
        costs[made.sketch] = mix.space.cost(mix.space.start(made.sketch))
    every = [mix.space.cost(mix.space.start(v.text)) for v in variants(seed.sketch, target, {"cut"})]
    known = [cost for cost in every if cost is not None]
    assert len(known) > 1 and max(costs.values()) <= sorted(known)[-2], "the dearest is never the cheaper of two"


def test_a_gain_is_credited_for_what_it_cost_tokens_included() -> None:
    cheap, dear = state([1.0]), state([1.0])
    for found, tokens in ((cheap, 500), (dear, 50_000)):
        children(found, "rules:tile", [1.2, 1.2], seconds=3.0)
        children(found, "model/difference", [1.8, 1.8], seconds=3.0, tokens=tokens)
    by_model = [sum(drawn(found, 120)[name] for name in ASKED) for found in (cheap, dear)]
    assert by_model[0] > 80 and 0 < by_model[1] < 20, by_model


@pytest.mark.parametrize(
    ("place", "move"),
    [
        (Place(bound="memory", launches=2, programs=4096), "rules:join"),
        (Place(bound="compute", launches=1, programs=4096), "rules:factor"),
        (Place(bound="memory", launches=1, programs=1), "rules:split_k"),
        (Place(bound="memory", launches=1, programs=4096), "rules:online"),
    ],
)
def test_the_analyst_names_moves_for_what_limits_the_best(place: Place, move: str) -> None:
    found = state([1.0], places=[place])
    assert plan(found).prefer[0] == move
    apply_event(found, found.seq + 1, RoundEnded(round=0, plan=plan(found)))
    order = bandit.order(found, ["rules:tunables", "rules:tile", "rules:cut", move])
    assert order[0] == move, "what the evidence names is tried before numbers are"


def test_a_time_that_traffic_and_arithmetic_do_not_explain_is_the_instructions() -> None:
    found = state([1.0], places=[Place(bound="memory", launches=1, programs=4096)])
    found.evaluations[0] = found.evaluations[0].model_copy(update={"modelled_ms": 0.01})
    text = plan(found).text
    assert "takes 100 times what its traffic and arithmetic would" in text and "rules:factor" in text


def test_the_analyst_finds_what_makes_candidates_fast_and_says_nothing_of_noise() -> None:
    draw = random.Random(3)
    pipeline = "pipeline at depth 1 of launch 0"
    fast = [Place(features={pipeline: 1.0, "odd": float(draw.random() < 0.5)}) for _ in range(12)]
    slow = [Place(features={"odd": float(draw.random() < 0.5)}) for _ in range(12)]
    speedups = [2.0 + draw.random() * 0.1 for _ in fast] + [1.0 + draw.random() * 0.1 for _ in slow]
    found = plan(state(speedups, places=[*fast, *slow]))
    first = found.findings[0]
    assert first.feature == "pipeline at depth 1 of launch 0"
    assert first.low > 1.7 and 1.9 < first.effect < 2.1
    assert not any(f.feature == "odd" for f in found.findings)
    assert "launch 0: " in found.text and "12 candidates with it, 12 without" in found.text


def test_a_model_says_more_after_a_round_and_what_the_record_does_not_hold_is_left_out() -> None:
    found = state([1.0, 2.0, 0.0], Knobs(rounds=1))
    said = {"summary": "Candidate 1 has 2.00x. A kernel of 77.7x is near.", "claims": []}
    with line(Role.ANALYST, json.dumps(said)) as endpoint:
        settings = ModelSettings(model="fake", base_url=endpoint.server.url, retries=1, retry_s=0.01, total_s=20)
        model = ModelOperator("model", load_task(TASK, "soft"), detect_target("cpp"), settings, Budget())
        kept: list[Exchange] = []
        words = model_plan(model, kept.append)(found)
        assert (words.text, words.author) == ("Candidate 1 has 2.00x.", Author.MODEL)
        assert len(kept) == 2, "the wrong sentence was sent back once"
        asked = str(endpoint.asked[0])
        assert asked.index("Candidate 1 (") < asked.index("Candidate 0 ("), "the fastest first"
        assert "failed at rank" in asked[asked.index("The last that failed:") :]
    assert model_plan(model, kept.append)(found) == plan(found), "nobody answers"


def test_a_split_needs_candidates_on_both_sides() -> None:
    rows = [Row(0.0, {"a": 1.0}), Row(1.0, {}), Row(1.0, {}), Row(1.0, {})]
    assert list(splits(rows)) == []
    assert tree(rows) == []


def test_a_run_stops_at_its_target_its_bound_its_rounds_and_its_budget() -> None:
    budget = Budget()
    found = state([1.0, 2.5], Knobs(rounds=1, target=2.0))
    assert stop.reason(found, budget) == "", "a rank is no verdict"
    verify(found, 1, 2.5)
    assert stop.reason(found, budget).startswith("The target of 2x is reached: candidate 1")
    found = state([1.0, 2.0], Knobs(headroom=0.9))
    verify(found, 1, 2.0)
    found.verdicts[1] = found.verdicts[1].model_copy(update={"sol_ms": 0.44})
    assert stop.reason(found, budget) == ""
    found.verdicts[1] = found.verdicts[1].model_copy(update={"sol_ms": 0.46})
    assert stop.reason(found, budget) == "Candidate 1 reaches 92 % of the task's bound."
    found = state([1.0, 2.5], Knobs(rounds=1))
    for number in range(2):
        assert stop.reason(found, budget) == ""
        apply_event(found, 50 + number, RoundEnded(round=number))
    assert stop.reason(found, budget) == "The one round is done."
    spent = Budget.parse("gpu_s=1")
    spent.spend(gpu_s=2)
    assert "gpu_s=1" in stop.reason(state([1.0]), spent)


def test_a_plateau_needs_rounds_without_a_gain_and_islands_that_are_alike() -> None:
    alike, mixed = (
        state([1.0, 1.0, 1.001], Knobs(plateau=2, rounds=9)),
        state([1.0, 1.0, 3.0], Knobs(plateau=2, rounds=9)),
    )
    for number in range(4):
        for found in (alike, mixed):
            apply_event(found, 50 + number, RoundEnded(round=number, best=0, worth=1.0))
    assert "No improvement for 2 rounds" in stop.reason(alike, Budget())
    assert stop.reason(mixed, Budget()) == ""


def test_a_lead_inside_the_noise_is_measured_again_and_a_clear_one_is_not() -> None:
    close = Promotion(state([1.0, 1.01]), lambda n: None, None)  # type: ignore[arg-type, return-value]
    assert close.close() == [1, 0]
    clear = Promotion(state([1.0, 2.0]), lambda n: None, None)  # type: ignore[arg-type, return-value]
    assert clear.close() == []


def test_pooled_measurements_hold_the_middles_of_both_and_know_more_than_one() -> None:
    found = pooled(score(1.0), score(1.2))
    assert found.runs == 2
    assert found.speedup == pytest.approx(1.1)
    assert found.low <= 1.0 and found.high >= 1.2
    assert found.time.samples == 100
    one = score(1.0).model_copy(update={"low": 0.7, "high": 1.3})
    again = pooled(pooled(one, one), one)
    assert (again.low, again.high) == pytest.approx((1 - 0.3 / 3**0.5, 1 + 0.3 / 3**0.5))


def test_the_first_design_is_verified_then_islands_heads_and_a_refused_one_gives_way() -> None:
    found = state([1.0, 2.6, 3.0, 1.5])
    promotion = Promotion(found, lambda n: None, None)  # type: ignore[arg-type, return-value]
    assert promotion.unverified()[0] == 0
    verify(found, 0, 1.0)
    assert promotion.unverified() == [2, 1]
    verify(found, 2, 3.0, passed=False)
    assert promotion.unverified() == [1]
    verify(found, 1, 2.0)
    assert promotion.unverified() == []
    assert found.best() == 1


def test_an_islands_head_far_behind_the_best_needs_no_verdict() -> None:
    found = state([1.0, 1.5, 3.0])
    verify(found, 0, 1.0)
    assert Promotion(found, lambda n: None, None).unverified() == [2]  # type: ignore[arg-type, return-value]
    verify(found, 2, 3.0, passed=False)
    assert Promotion(found, lambda n: None, None).unverified() == [1], "the best was wrong"  # type: ignore[arg-type, return-value]


def test_a_head_inside_the_noise_of_a_verified_one_needs_no_verdict() -> None:
    found = state([1.0, 1.0, 1.01, 2.0])
    for number in (0, 1):
        verify(found, number, 1.0)
    promotion = Promotion(found, lambda n: None, None)  # type: ignore[arg-type, return-value]
    assert promotion.unverified() == [3], "candidate 2 leads candidate 0 by less than its noise"


class Judged:
    """Workers that know each candidate's verdict; ``most`` were verified at once."""

    judges, most = 2, 0

    def __init__(self, verdicts: dict[int, Verdict]) -> None:
        self.verdicts = verdicts
        self.under: list[Future[Verdict]] = []
        self.compared: list[tuple[int, int]] = []

    def verify(self, number: int) -> Future[Verdict]:
        done: Future[Verdict] = Future()
        self.under = [*(one for one in self.under if not one.done()), done]
        self.most = max(self.most, len(self.under))
        Timer(0.05, done.set_result, [self.verdicts[number]]).start()
        return done

    def call_off(self) -> None: ...

    def compare(self, number: int, other: int) -> Future[Verdict]:
        self.compared.append((number, other))
        return self.verify(number)


def test_where_the_time_is_up_the_leader_has_its_verdict_and_the_next_where_it_is_refused() -> None:
    found = state([1.0, 2.0, 3.0])
    verify(found, 0, 1.0)
    judged = Judged({2: verdict(3.0, passed=False), 1: verdict(2.0, rivals={FIRST: 2.0})})
    for event in Promotion(found, lambda n: n, judged).last():  # type: ignore[arg-type, return-value]
        apply_event(found, found.seq + 1, event)
    assert (list(found.verdicts), found.best()) == ([0, 2, 1], 1)
    paired = found.pairing()
    assert paired is not None and paired.comparison is not None and paired.comparison.speedup == 2.0
    assert judged.compared == [(2, 0), (1, 0)], "one measurement is its verdict and the comparison"


@pytest.mark.parametrize("low", [0.9, 1.2])
def test_where_the_time_is_up_a_faster_one_within_its_noise_is_timed_with_the_first(low: float) -> None:
    found = state([1.0, 1.6])
    verify(found, 0, 1.0)
    verify(found, 1, 1.6)
    found.scores[1] = score(1.6).model_copy(update={"low": 0.9, "high": 2.4})
    found.clear_caches()
    assert found.best() == 0
    ratio = Comparison(baseline=FIRST, baseline_time=timing(1.0), speedup=1.5, low=low, high=1.8)
    judged = Judged({1: verdict(1.6).model_copy(update={"comparisons": [ratio]})})
    for event in Promotion(found, lambda n: n, judged).last():  # type: ignore[arg-type, return-value]
        apply_event(found, found.seq + 1, event)
    assert judged.compared == [(1, 0)] and found.pairing() is not None
    assert found.best() == (1 if low > 1 else 0)


def test_a_measurement_that_does_not_end_is_given_up_once_the_patience_is_at_an_end() -> None:
    found, under = state([1.0, 2.0]), Future[Verdict]()
    judged = Judged({})
    judged.compare = lambda number, other: under  # type: ignore[method-assign]
    left = iter([0.3, 0.1, 0.0])
    with pytest.raises(OutOfTime, match="given up"):
        list(Promotion(found, lambda n: n, judged, patience=lambda: next(left)).last())  # type: ignore[arg-type, return-value]
    assert under.cancelled()


def test_a_leader_by_its_middle_alone_has_a_verdict_at_the_end_and_a_small_lead_is_measured_again() -> None:
    found = state([1.0, 1.1])
    verify(found, 0, 1.0)
    found.scores[1] = score(1.1).model_copy(update={"low": 0.8, "high": 1.4})
    judged = Judged({1: verdict(1.1)})
    ranked: list[int] = []

    def rank(number: int) -> Future[Ranked]:
        ranked.append(number)
        return _done(Ranked(score(1.0)))

    judged.rank = rank  # type: ignore[attr-defined]
    for event in Promotion(found, lambda n: n, judged).leader():  # type: ignore[arg-type, return-value]
        apply_event(found, found.seq + 1, event)
    assert (list(found.verdicts), ranked) == ([0, 1], [0, 1] * 4), "and thrice more, as nothing is decided"
    assert found.best() == 0, "measured beside the first design it gained nothing"


def test_a_verdict_by_another_clock_orders_no_candidates_and_the_quick_look_is_taken_again() -> None:
    """As on an H200: 2.9x of eager by the device's clock is 0.7x where launches count."""
    found = state([2.9, 2.6], Knobs(islands=1))
    for number, known in list(found.scores.items()):
        found.scores[number] = known.model_copy(update={"clock": DEVICES})
    judged = Judged({0: verdict(0.7).model_copy(update={"conditions": (LaunchBound(on_device=1.2),)})})
    judged.rank = lambda number: _done(  # type: ignore[attr-defined]
        Ranked(score(2.7).model_copy(update={"clock": DEVICES}))
    )
    promotion = Promotion(found, lambda n: n, judged)  # type: ignore[arg-type, return-value]
    for event in promotion.events(lambda: True):
        apply_event(found, found.seq + 1, event)
    assert found.best() == 0 and list(found.verdicts) == [0], "candidate 1 leads by no clock"
    assert found.scores[0].runs == 2 and found.worth(0) == pytest.approx((2.9 + 2.7) / 2)


def _done(ranked: Ranked) -> Future[Ranked]:
    done: Future[Ranked] = Future()
    done.set_result(ranked)
    return done


def test_where_there_are_two_judges_they_verify_at_once_and_no_candidate_twice() -> None:
    found = state([1.0, 2.0, 3.0, 1.5])
    judged = Judged({0: verdict(1.0), 2: verdict(3.0, passed=False), 3: verdict(1.5), 1: verdict(2.0)})
    for event in Promotion(found, lambda n: n, judged).events(lambda: True):  # type: ignore[arg-type, return-value]
        apply_event(found, found.seq + 1, event)
    assert (list(found.verdicts), judged.most, found.best()) == ([0, 2, 1], 2, 1)


def test_candidates_are_made_while_a_verdict_is_waited_for() -> None:
    found = state([2.0, 3.0], Knobs(islands=1))
    judged, calls = Judged({0: verdict(2.0), 1: verdict(3.0)}), list[int]()
    judged.rank = lambda number: _done(Ranked(score(3.0)))  # type: ignore[attr-defined]

    def meanwhile() -> None:
        calls.append(sum(not one.done() for one in judged.under))

    for event in Promotion(found, lambda n: n, judged, meanwhile).events(lambda: True):  # type: ignore[arg-type, return-value]
        apply_event(found, found.seq + 1, event)
    assert set(found.verdicts) == {0, 1} and max(calls) > 0


class Devices(Judged):
    """Two devices of a run, and its journal, in which nobody steers."""

    room = 8

    def verify(self, job: Job) -> Future[Verdict]:  # type: ignore[override]
        return super().verify(job.number)

    def compare(self, job: Job, other: Job) -> Future[Verdict]:  # type: ignore[override]
        return super().verify(job.number)

    def append(self, events: Sequence[Event]) -> list[tuple[int, Event]]:
        self.written = getattr(self, "written", 1000) + len(events)
        return list(enumerate(events, self.written))

    def wishes(self, after: int) -> list[tuple[int, Steered | None]]:
        return []


def test_a_search_on_two_devices_ends_with_its_leaders_verdict_and_begins_nothing_more() -> None:
    found = state([1.0, 2.0, 3.0])
    verify(found, 0, 1.0)
    apply_event(found, found.seq + 1, RoundEnded(round=0, best=0, worth=1.0))
    devices = Devices({2: verdict(3.0)})
    devices.rank = lambda job: _done(Ranked(score(3.0)))  # type: ignore[attr-defined]
    scheduler = Scheduler(devices, found, None, devices, Budget(), lambda state, proposal: Look())  # type: ignore[arg-type]
    pending: Future[Evaluation] = Future()
    scheduler._running[pending] = 1
    scheduler._call_off()
    scheduler._judge_leader()
    assert pending.cancelled() and found.best() == 2 and len(found.proposals) == 3


def test_a_verdict_outweighs_the_quick_looks_and_a_lead_inside_its_noise_is_none() -> None:
    found = state([1.0, 5.0, 1.5])
    verify(found, 0, 1.0)
    verify(found, 1, 0.9)
    assert found.worth(1) == 0.9
    assert found.best() == 0
    verify(found, 2, 1.01)
    assert found.best() == 0
    verify(found, 1, 1.3)
    assert found.best() == 1


def test_an_estimate_counts_candidates_and_learns_from_earlier_runs() -> None:
    first = estimate(Knobs(rounds=2, parallel=3, islands=2), "cpp", model=True)
    assert first.evaluations == 24
    assert first.tokens > 0
    assert "by usual figures" in first.text
    modelled = estimate(Knobs(rounds=1, parallel=1, score="model"), "cpp", False).text
    assert modelled == "At most 14 candidates, about 7 s (0 s of it measuring), by usual figures."
    agents = Knobs(rounds=1, parallel=1, score="model", vary="agent:x=0.5")
    assert "14 candidates and what else an agent's turns give, about" in estimate(agents, "cpp", False).text
    assert estimate(Knobs(), "cpp", False, [state([1.0, 2.0])]).runs == 1
    short = estimate(Knobs(budget="minutes=2"), "cpp", False)
    assert (short.seconds, short.device_seconds) == (120.0, 120.0) and "about 2 min" in short.text
    assert estimate(Knobs(), "triton", False, [state([1.0, 2.0])]).runs == 0


def test_a_kernel_that_somebody_wrote_waits_for_its_verdict_before_others_come_from_it() -> None:
    found = state([1.0, 5.0])
    found.proposals[1] = found.proposals[1].model_copy(update={"source": Source(dsl="cpp", files={"kernel.py": ""})})
    assert found.elites(1) == [] and found.elites(0) == [0]
    verify(found, 0, 1.0)
    assert Promotion(found, lambda n: None, None).unverified() == [1]  # type: ignore[arg-type, return-value]
    verify(found, 1, 5.0)
    assert found.elites(1) == [1]


def test_a_run_that_gains_no_more_is_offered_a_direction_that_a_person_decides_on() -> None:
    names = ["rules:tile", "rules:fuse", "rules:split_k", "rules:join"]
    found = state([1.0, 1.5, 1.2], Knobs(stagnation=2), parents=[0, 0, 0])
    for number, worth in enumerate((1.0, 1.5, 1.5)):
        apply_event(found, 50 + number, RoundEnded(round=number, best=1, worth=worth))
    assert suggestion(found, names) is None, "one round without a gain is none yet"
    apply_event(found, 53, RoundEnded(round=3, best=1, worth=1.501, plan=Plan(text="Wide tiles paid.")))
    offered = suggestion(found, names)
    assert offered is not None
    assert offered.prefer == ("rules:fuse", "rules:split_k", "rules:join"), "what was tried least"
    assert offered.text.startswith("No gain for 2 rounds. Wide tiles paid. Little tried"), "a person edits the plan"
    apply_event(found, 54, offered)
    assert suggestion(found, names) is None, "one waits already"
    before = bandit.order(found, names)
    apply_event(found, 55, Steered(action=Action.DIRECTION, text="another way"))
    assert (found.direction, found.directed, found.suggestion) == ("another way", offered.prefer, None)
    assert before[0] in bandit.order(found, names)[:3]
    apply_event(found, 56, offered)
    apply_event(found, 57, Steered(action=Action.REFUSE))
    assert found.suggestion is None
    assert suggestion(found, names) is None, "not again at once"


def test_status_words_end_a_run_or_not() -> None:
    assert {status for status in Status if status.ended} == {Status.FINISHED, Status.STOPPED, Status.FAILED}
