"""What several moves make of a first design: they follow one another, keep the meaning, and a search begins with it."""

from __future__ import annotations

from pathlib import Path

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import detect_target
from kernellab.evolve.begin import begin
from kernellab.evolve.vary.composed import composed
from kernellab.evolve.vary.rules import operators
from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.tuning.space import Space
from tests.evolve.hand import task

GATE = task(
    "def reference(x):\n    v, i = torch.topk(x, 2, dim=-1)\n    return torch.softmax(v, -1), i",
    "return (torch.randn(64, 32),)",
)
#: described here, since what the cost model speaks against depends on the machine
TARGET = Target(
    "cpp", Backend.CPU,
    Chip(name="test", kind="cpu", cores=4, simd_bits=512, bandwidth=2e10, peak_flops={"f32": 3e11}),
)  # fmt: skip


def first(loaded: Task) -> str:
    return RulesDesigner().designs(DesignBrief(loaded, TARGET))[0].sketch


def test_moves_follow_one_another_and_keep_the_meaning() -> None:
    loaded = load_task(GATE, "gate")
    whole, before = composed(first(loaded), Space(loaded, TARGET), operators(TARGET))
    assert whole.moves[:2] == ("join", "select") and before.moves == whole.moves[:-1]
    assert whole.operator.startswith("rules:join+select") and len(whole.why) == len(whole.moves)
    assert whole.sketch.count("sketch ") == 1 and "topk" not in whole.sketch
    for found in (whole, before):
        assert gate(found.sketch, loaded, chip=TARGET.chip).state is GateState.RIGHT


def test_only_moves_that_take_part_are_taken_and_where_none_applies_there_is_none() -> None:
    loaded = load_task(GATE, "gate")
    (only,) = composed(first(loaded), Space(loaded, TARGET), ["rules:select", "rules:tile"])
    assert only.moves == ("select",)
    softmax = load_task(task("def reference(x):\n    return torch.softmax(x, -1)", "return (torch.randn(8, 64),)"), "s")
    assert composed(first(softmax), Space(softmax, TARGET), operators(TARGET)) == []


def test_a_search_begins_with_them_as_children_of_the_first_design(tmp_path: Path) -> None:
    run = begin(GATE, "cpp", name="gate", workspace=tmp_path, score="model", rounds=1, parallel=1, islands=1)
    state = run.work().wait().state
    here, loaded = detect_target("cpp"), load_task(GATE, "gate")
    designs = composed(first(loaded), Space(loaded, here), operators(here))
    made = [state.proposals[number] for number in range(1, len(designs) + 1)]
    assert designs and [p.operator for p in made] == [one.operator for one in designs]
    assert {p.parents for p in made} == {(0,)}
    assert all(state.evaluations[p.number].passed for p in made) and state.first() == 0
