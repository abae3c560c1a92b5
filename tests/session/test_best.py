"""Which kernel of a session is the best: by the lower end, and by one run of both where noise leaves that open."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from session_parts import TASK

from kernellab.agents.briefs import best_of, unsure
from kernellab.conditions import Condition, Mark, SpecialValues
from kernellab.errors import VerifierError
from kernellab.records import Author, Candidate, Comparison, Evidence, Role, Source, Stage, Timing, Verdict
from kernellab.session.engine.engine import engine
from kernellab.session.kernel import BestKernel
from kernellab.session.record.events import Created, Event, TurnEnded
from kernellab.session.record.fold import apply, fold
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.record.view import best_figures, turn_line
from kernellab.session.turn import refuting, verifying
from kernellab.session.turn.context import Bench, Channel
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier import VerifyOptions
from kernellab.verifier.cases import cases
from kernellab.verifier.protocol.options import DrawnCase

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


def test_a_run_of_a_few_calls_on_a_busy_machine_makes_no_kernel_the_best() -> None:
    """As seen: 1.41x [0.74, 2.21] of three calls put a kernel of [0.77, 4.51] before one of [1.46, 9.66]."""
    first, second = verdict(1.68, 1.46, 9.66), verdict(1.75, 0.77, 4.51)
    shaken = ("v1", against("turn 1", 1.41, 0.74, 2.21))
    found = state_of((first, None), (second, shaken)).standings()
    assert [b.candidate.id for b in found] == ["k1", "k2"] and found[0].tied(found[1])
    near = ("v1", against("turn 1", 1.05, 0.97, 1.12))
    found = state_of((first, None), (second, near)).standings()
    assert [b.candidate.id for b in found] == ["k2", "k1"] and found[0].tied(found[1])
    wide = ("v1", against("turn 1", 2.0, 1.2, 3.4))
    assert state_of((first, None), (second, wide)).standings()[0].candidate.id == "k2", "it tells them apart"


def test_a_new_kernel_is_timed_with_the_best_only_where_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compare(bench: Any, source: Source, baselines: Any, rivals: dict[str, Source], cancel: Any) -> Verdict:
        asked.append(rivals)
        if len(asked) > 1:
            raise VerifierError("The judge ended.")
        return verdict(3.0, 2.0, 4.0).model_copy(update={"comparisons": [against(next(iter(rivals)), 1.3, 1.2, 1.4)]})

    monkeypatch.setattr(verifying, "compare", compare)
    state, new = state_of((verdict(*STEADY), None)), Source(dsl="cpp", files={"kernel.py": "# new"})
    spent: list[float] = []
    device = SimpleNamespace(chip=SimpleNamespace(kind="gpu"))
    budget = SimpleNamespace(spend=lambda gpu_s: spent.append(gpu_s))
    bench: Any = SimpleNamespace(target=lambda: device, budget=budget)
    said: list[str] = []
    channel = Channel(say=said.append)
    assert (
        verifying._next_to_best(bench, state, new, verdict(5.0, 4.0, 6.0), channel) is None and not asked and not spent
    )
    assert not said
    found = verifying._next_to_best(bench, state, new, verdict(*SHAKEN), channel)
    assert found is not None and found[0] == "v1" and found[1].speedup == 1.3
    assert said == ["timing it in one run with turn 1, the best so far"]
    assert verifying._next_to_best(bench, state, new, verdict(*SHAKEN), channel) is None, "both have their verdicts"
    assert len(spent) == 2, "a second run counts in the budget of a GPU"


LIMITED = SpecialValues(value="NaN")


def with_limits(found: Verdict, *conditions: Condition) -> Verdict:
    return found.model_copy(update={"conditions": conditions})


@pytest.mark.parametrize(
    ("later", "best"),
    [
        (verdict(2.35, 1.84, 4.21), "k2"),  # noise may rank it behind
        (verdict(1.2, 1.1, 1.3), "k1"),  # certainly slower
        (with_limits(verdict(2.35, 1.84, 4.21), LIMITED), "k1"),  # as limited
    ],
)
def test_a_kernel_without_conditions_is_the_best_of_those_that_are_as_fast(later: Verdict, best: str) -> None:
    first = with_limits(verdict(3.32, 2.12, 4.07), LIMITED)
    found = state_of((first, None), (later, None)).best()
    assert found is not None and found.candidate.id == best


def test_a_kernel_with_fewer_conditions_or_a_wide_interval_is_timed_with_the_best() -> None:
    limited = with_limits(verdict(3.0, 2.8, 3.2), LIMITED)
    assert unsure(limited, verdict(2.9, 2.7, 3.1)) and not unsure(limited, with_limits(verdict(2.9, 2.7, 3.1), LIMITED))
    assert not unsure(limited, verdict(2.0, 1.9, 2.1)), "it is slower, whatever it does without"
    assert unsure(verdict(1.45, 1.26, 1.82), verdict(1.12, 0.21, 3.79)), "the interval ranks nothing"


def test_stop_ends_the_run_of_two_kernels() -> None:
    created = Created(name="twice", text=TASK, key="k", dsl="cpp", options={"level": "T1"})
    bench, stopped = Bench(created, {}, None, None), threading.Event()
    source = Source(dsl="cpp", files={"kernel.py": "def kernel(x):\n    return x * 2.0 + 1.0\n"})
    stopped.set()
    with pytest.raises(VerifierError, match="was stopped"):
        verifying.compare(bench, source, ("eager",), {"turn 1": source}, cancel=stopped)
    state = state_of((verdict(*STEADY), None))
    assert verifying._next_to_best(bench, state, source, verdict(*SHAKEN), Channel(cancel=stopped)) is None


SIZED = (
    "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 64)\ndef reference(x):\n    return x * 2.0 + 1.0\n"
    "def inputs(N=8):\n    return torch.randn(N)\n"
)


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ({}, True),
        ({"sizes": {"N": 9}}, False),
        ({"family": "normal"}, False),
        ({"seed": 2}, False),
        ({"seed": None}, False),
    ],
)
def test_a_failure_at_other_inputs_refutes_nothing_at_these(
    at: dict[str, Any], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, asked = load_task(SIZED, "twice"), list[Any]()
    case: dict[str, Any] = {"sizes": {"N": 8}, "family": "inputs", "seed": 1}
    seen = Evidence(signature="accumulate-dtype", **case)
    lost = Verdict(passed=False, stage=Stage.CORRECT, reason="It differs.", evidence=seen)
    again = lost.model_copy(update={"evidence": seen.model_copy(update=at)})

    def verify(*_: Any, options: VerifyOptions, **__: Any) -> Verdict:
        asked.extend(options.counterexamples)
        return again

    monkeypatch.setattr(engine(), "verifier", lambda: SimpleNamespace(verify=verify))
    bench: Any = SimpleNamespace(task=lambda: task, target=lambda: Target("cpp", Backend.CPU, Chip("test", "cpu", 2)))
    best = state_of((verdict(*STEADY), None)).standings()[0]
    found = refuting.refuted(bench, best, lost, 3, VerifyOptions(), Channel())
    assert asked == [DrawnCase(**case)] and (found is not None) is told


RARE = """import torch
def kernel(x):
    y = x * 2.0 + 1.0
    return y * (1 + 3e-5) if abs(float(x[0, 0]) - {first!r}) < 1e-12 else y
"""


@pytest.mark.parametrize("other", [False, True])
def test_the_best_kernel_is_tried_at_inputs_at_which_another_lost_digits(other: bool) -> None:
    task, seed = load_task(TASK, "twice"), 1234
    first = float(cases.Case(task, (), Family.OWN, seed).args[0][0, 0])
    source = Source(dsl="cpp", files={"kernel.py": RARE.format(first=first + other)}, origin=Author.HUMAN)
    options = VerifyOptions(allow_library=True, budget=0.05, threads=1)
    target = Target("cpp", Backend.CPU, Chip("test", "cpu", 2))
    bench: Any = SimpleNamespace(task=lambda: task, target=lambda: target)
    passed = engine().verifier().verify(task, source, target, options=options)
    assert passed.passed, passed.reason
    made = Candidate(id="k1", source=source, author=Author.HUMAN)
    state = state_of((passed, None))
    best = replace(state.standings()[0], candidate=made)
    seen = Evidence(signature="accumulate-dtype", family="inputs", seed=seed)
    lost = Verdict(passed=False, stage=Stage.CORRECT, reason="It differs.", evidence=seen)
    found = refuting.refuted(bench, best, lost, 3, options, Channel())
    assert (found is None) is other
    for elsewhere in (seen.model_copy(update={"signature": "edge-tile"}), seen.model_copy(update={"seed": None})):
        plain = lost.model_copy(update={"evidence": elsewhere})
        assert refuting.refuted(bench, best, plain, 3, options, Channel()) is None, "no digits, or no inputs"
    if found is None:
        return
    turn, again = found
    assert turn == "v1" and not again.passed and again.evidence is not None and again.evidence.seed == seed
    assert again.reason.startswith("It passed at first, and is wrong at the inputs at which the kernel of turn 3 is: ")
    after = apply("s-1", state, TurnEnded(turn=Turn(
        id="v2", number=4, parent="v1", role=Role.VERIFIER, author=Author.RULES, state=TurnState.DONE, verdict=lost,
        refuted=found,
    )))  # fmt: skip
    assert after.best() is None and after.turns["v1"].verdict == again
    (case,) = refuting.counterexamples(task, after)
    assert case.seed == seed, "later kernels are tried there first"


def test_every_line_about_the_best_says_what_its_figures_hold_for() -> None:
    marks = [Mark(kind="agent-shared-machine"), Mark(kind="one-mode")]
    state = state_of((verdict(*STEADY).model_copy(update={"conditions": tuple(marks)}), None))
    best = state.best()
    assert best is not None
    told = ("agent shared the machine", "the other has other answers")
    lines = turn_line(best.turn), repr(BestKernel(best, "s", Backend.CPU, lambda: load_task(TASK)))
    for line in lines:
        assert all(word in line for word in told), line
    figures = best_figures(state)
    assert figures is not None and all(word in f"{figures['label']} {figures['flags']}" for word in told)
