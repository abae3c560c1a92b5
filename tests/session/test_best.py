"""Which kernel of a session is the best: by the lower end, and by one run of both where noise leaves that open."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from session_parts import TASK

from kernellab.agents.briefs import best_of, unsure
from kernellab.errors import VerifierError
from kernellab.records import Author, Candidate, Comparison, Role, Source, Stage, Timing, Verdict
from kernellab.session.record.records import Created, Event, Turn, TurnEnded, TurnState
from kernellab.session.record.state import State, fold
from kernellab.session.turn import execute
from kernellab.session.turn.context import Bench

STEADY, SHAKEN = (2.92, 2.85, 3.0), (3.99, 2.5, 4.4)


def against(name: str, speedup: float, low: float, high: float) -> Comparison:
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    return Comparison(baseline=name, baseline_time=time, speedup=speedup, low=low, high=high)


def verdict(speedup: float, low: float, high: float) -> Verdict:
    time = Timing(median_ms=1 / speedup, q1_ms=1 / speedup, q3_ms=1 / speedup, samples=9)
    pairs = [against("eager", speedup, low, high)]
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, comparisons=pairs)


def state_of(*rounds: tuple[Verdict, tuple[str, Comparison] | None]) -> State:
    events: list[Event] = [Created(name="s", text="", key="k")]
    parent = None
    for number, (found, pair) in enumerate(rounds, 1):
        source = Source(dsl="cpp", files={"kernel.py": f"# {number}"})
        code = Turn(
            id=f"c{number}", number=2 * number - 1, parent=parent, role=Role.CODER, author=Author.MODEL,
            state=TurnState.DONE, candidate=Candidate(id=f"k{number}", source=source, author=Author.MODEL),
        )  # fmt: skip
        judged = Turn(
            id=f"v{number}", number=2 * number, parent=code.id, role=Role.VERIFIER, author=Author.RULES,
            state=TurnState.DONE, verdict=found, next_to_best=pair,
        )  # fmt: skip
        events += [TurnEnded(turn=code), TurnEnded(turn=judged)]
        parent = judged.id
    state = fold("s-1", events)
    assert state is not None
    return state


def test_it_is_unsure_where_the_lower_ends_and_the_speedups_order_two_kernels_differently() -> None:
    assert unsure(verdict(*STEADY), verdict(*SHAKEN)) and unsure(verdict(*SHAKEN), verdict(*STEADY))
    assert not unsure(verdict(*STEADY), verdict(3.1, 2.9, 3.3)), "both say that it is faster"
    assert not unsure(verdict(*STEADY), verdict(1.5, 1.2, 2.0)), "the intervals are apart"
    failed = Verdict(passed=False, stage=Stage.CORRECT, reason="wrong")
    assert not unsure(verdict(*STEADY), failed)


@pytest.mark.parametrize(("ratio", "best"), [((1.4, 1.2, 1.5), "k2"), ((0.9, 0.8, 0.95), "k1"), (None, "k1")])
def test_one_run_of_both_decides_which_is_the_best(ratio: tuple[float, float, float] | None, best: str) -> None:
    pair = ("v1", against("turn 1", *ratio)) if ratio is not None else None
    state = state_of((verdict(*STEADY), None), (verdict(*SHAKEN), pair), (verdict(1.0, 0.9, 1.1), None))
    found = state.best()
    assert found is not None and found.candidate.id == best
    assert [b.candidate.id for b in state.standings()][2:] == ["k3"]
    first, second = state.standings()[:2]
    assert first.tied(second) is (ratio is None), "what one run told apart is not tied"
    rounds = state.attempts(state.turns["v3"].id)
    told = best_of(rounds)
    assert told is not None and told.candidate is not None and told.candidate.id == best
    assert (rounds[1].next_to_best is None) is (ratio is None)


def test_a_new_kernel_is_timed_with_the_best_only_where_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compare(bench: Any, source: Source, baselines: Any, rivals: dict[str, Source], cancel: Any) -> Verdict:
        asked.append(rivals)
        if len(asked) > 1:
            raise VerifierError("The judge ended.")
        return verdict(3.0, 2.0, 4.0).model_copy(update={"comparisons": [against(next(iter(rivals)), 1.3, 1.2, 1.4)]})

    monkeypatch.setattr(execute, "compare", compare)
    state, new = state_of((verdict(*STEADY), None)), Source(dsl="cpp", files={"kernel.py": "# new"})
    spent: list[float] = []
    device = SimpleNamespace(chip=SimpleNamespace(kind="gpu"))
    budget = SimpleNamespace(spend=lambda gpu_s: spent.append(gpu_s))
    bench: Any = SimpleNamespace(target=lambda: device, budget=budget)
    go_on = threading.Event()
    assert execute._next_to_best(bench, state, new, verdict(5.0, 4.0, 6.0), go_on) is None and not asked and not spent
    found = execute._next_to_best(bench, state, new, verdict(*SHAKEN), go_on)
    assert found is not None and found[0] == "v1" and found[1].speedup == 1.3
    assert execute._next_to_best(bench, state, new, verdict(*SHAKEN), go_on) is None, "both have their verdicts"
    assert len(spent) == 2, "a second run counts in the budget of a GPU"


def test_stop_ends_the_run_of_two_kernels() -> None:
    created = Created(name="twice", text=TASK, key="k", dsl="cpp", options={"level": "T1"})
    bench, stopped = Bench(created, {}, None, None), threading.Event()
    source = Source(dsl="cpp", files={"kernel.py": "def kernel(x):\n    return x * 2.0 + 1.0\n"})
    stopped.set()
    with pytest.raises(VerifierError, match="was stopped"):
        execute.compare(bench, source, ("eager",), {"turn 1": source}, cancel=stopped)
    state = state_of((verdict(*STEADY), None))
    assert execute._next_to_best(bench, state, source, verdict(*SHAKEN), stopped) is None
