"""Models as operators: what each way of asking tells them, and a run whose model says nothing of use."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.agents.briefs import DesignBrief
from kernellab.dsls.machine import detect_target
from kernellab.evolve.fold import apply_event
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Evaluated, Evaluation, Proposal, Proposed, Status, Step
from kernellab.evolve.run import Run
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.mix import Mix
from kernellab.evolve.vary.models import ModelOperator
from kernellab.evolve.vary.prompt_variants import WAYS
from kernellab.models import Budget
from kernellab.models.settings import ModelSettings
from kernellab.options.search import Knobs
from kernellab.records import Author
from kernellab.task import load_task
from tests.evolve.runs import TASK, modelled, state
from tests.models.fake_server import FakeServer, answer, silent

OPERATOR = ModelOperator("model", load_task(TASK, "soft"), detect_target("cpp"), ModelSettings(), Budget())


def told(found: RunState, request: Request, way: str) -> DesignBrief:
    assert OPERATOR.suits(found, request, f"model/{way}")
    return OPERATOR.brief(found, request, f"model/{way}")


@pytest.fixture
def tried() -> RunState:
    """0 is the parent of 1, which is faster, and of 2, which failed."""
    found = state([1.0, 2.0], parents=[0, 0])
    child = Proposal(
        number=2,
        round=0,
        island=0,
        operator="rules:tile",
        parents=(0,),
        sketch="sketch s2 { BLOCK }",
        why="halved BLOCK",
    )
    failed = Evaluation(number=2, key=child.key, passed=False, step=Step.BUILD, reason="It does not fit.")
    apply_event(found, found.seq + 1, Proposed(proposals=(child,)))
    apply_event(found, found.seq + 1, Evaluated(evaluation=failed))
    return found


def test_each_way_of_asking_shows_the_model_what_it_takes(tried: RunState) -> None:
    alone, beside = Request(0, (0,)), Request(0, (0,), (1,))
    assert set(WAYS) == {"difference", "whole", "cross", "failed"}
    difference = told(tried, alone, "difference")
    assert difference.previous == tried.proposals[0].sketch
    assert difference.route is not None and "2.00x" in difference.route.evidence[0], "what was tried of it"
    whole = told(tried, alone, "whole")
    assert whole.previous is None and whole.route is not None
    assert whole.route.evidence[0].startswith("Candidate 0 ("), "what it is to differ from"
    cross = told(tried, beside, "cross")
    assert cross.route is not None and tried.proposals[1].sketch in "".join(cross.route.evidence)
    failed = told(tried, alone, "failed")
    assert failed.route is not None
    said = "".join(failed.route.evidence)
    assert "failed at build. It does not fit." in said and "+sketch s2 { BLOCK }" in said and "s1" not in said


def test_a_way_that_lacks_what_it_takes_is_not_asked(tried: RunState) -> None:
    assert not OPERATOR.suits(tried, Request(0, (0,)), "model/cross"), "nobody to cross it with"
    assert not OPERATOR.suits(tried, Request(0, (1,)), "model/failed"), "nothing of it has failed"
    again = tried.evaluations[2].model_copy(update={"step": Step.NOVELTY})
    apply_event(tried, tried.seq + 1, Evaluated(evaluation=again))
    assert not OPERATOR.suits(tried, Request(0, (0,)), "model/failed"), "what is nothing new has not failed"


def asking(folder: Path, server: FakeServer, **knobs: object) -> Run:
    (folder / "kernellab.toml").write_text(f'[models]\nbase_url = "{server.url}"\nmodel = "fake"\nretries = 0\n')
    return modelled(folder, rounds=1, model="model", analyst="rules", **knobs)


def test_a_model_is_asked_nothing_twice_at_once() -> None:
    found = state([1.0], Knobs(operators=("model",)))
    found.begun = found.begun.model_copy(update={"model": "model"})
    mix = Mix(OPERATOR.task, OPERATOR.target, lambda spec: OPERATOR)
    made = mix.propose(found, [Request(0, (0,)), Request(1, (0,)), Request(0, (0,))], 1)
    assert {ask.operator for ask in made.asks} == {"model/difference", "model/whole"}, "a third way does not suit"
    assert len(made.asks) == 2


def test_who_has_a_share_takes_part_whatever_else_is_named() -> None:
    found = state([1.0], Knobs(operators=("rules",), vary="model=0.5"))
    mix = Mix(OPERATOR.task, OPERATOR.target, lambda spec: OPERATOR if spec else None)
    assert {"model/difference", "rules:tile"} <= set(mix.operators(found))


def test_a_model_that_never_gives_a_sketch_ends_no_run(tmp_path: Path) -> None:
    with FakeServer(answer("I would use a larger tile.")) as server:
        run = asking(tmp_path, server, operators=("model",), parallel=1).work().wait(60)
    assert run.state.status is Status.FINISHED
    asked = [p for p in run.state.proposals.values() if p.author is Author.MODEL]
    assert len(asked) == 2 and not any(p.sketch for p in asked)
    for proposal in asked:
        found = run.state.evaluations[proposal.number]
        assert not found.passed and found.reason.startswith("The model gave no sketch: ")
        assert proposal.usage.output_tokens and run.state.exchanges[proposal.number], "what it cost and said is kept"


def test_rules_go_on_while_a_model_thinks_and_a_stop_waits_for_neither(tmp_path: Path) -> None:
    with FakeServer(silent()) as server:
        run = asking(tmp_path, server, operators=("model", "rules:tile"), parallel=4).work()
        for _ in range(100):
            run.wait(0.1)
            if server.requests and any(n in run.state.evaluations for n, p in run.state.proposals.items() if p.parents):
                break
        assert not any(p.author is Author.MODEL for p in run.state.proposals.values())
        run.stop()
        assert run.wait(20).state.status is Status.STOPPED
    assert server.requests
    assert {p.operator for n, p in run.state.proposals.items() if p.parents and n in run.state.evaluations} == {
        "rules:tile"
    }
