"""Prompts quote the installation's documents, say so, fit their budgets, and lose examples when these are ablated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernellab.agents.briefs import CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.model import ModelCoder, ModelDesigner, Options, prompt
from kernellab.agents.model.assembly import PromptError
from kernellab.knowledge import Knowledge
from kernellab.records import GateResult, GateState, Role, Stage, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from tests.agents.model_parts import CPU, SKETCH, fenced, line
from tests.agents.planted.cases import TASKS

NORM = load_task(TASKS / "normalisation" / "rms_norm.py")
NORM_SKETCH = """sketch rms_norm {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: f32; y[M, N]: f32 out;
    constexpr: eps = 1e-06;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(x[m, 0:N] -> row)
        load(w[0:N] -> weight)
        store(row * rsqrt(reduce_sum(row * row, axis=0) / N + eps) * weight -> y[m, 0:N])
}
"""
GPU = Target("triton", Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
GATE = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6)
FAILED = Verdict(passed=False, stage=Stage.CORRECT, reason="It is wrong.")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load(CPU)


def briefs(target: Target) -> dict[str, Any]:
    return {
        "design": DesignBrief(task=NORM, target=target),
        "code": CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH),
        "route": RouteBrief(NORM, target, NORM_SKETCH, GATE, None, FAILED, turns_left=3),
    }


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpp", "triton"])
def test_sources_are_named_and_the_language_and_dsl_documents_are_there(target: Target, knowledge: Knowledge) -> None:
    made = {name: prompt(brief, knowledge) for name, brief in briefs(target).items()}
    sources = {name: {s.name: s.source for s in made[name].sections} for name in made}
    assert sources["design"]["language"].startswith("language/")
    assert sources["design"]["similar designs"].startswith("patterns/")
    assert sources["code"][f"{target.dsl} basics"] == f"dsl/{target.dsl}/basic.md"
    assert "api.md" in sources["code"]["API"] and "examples" in sources["code"]["examples"]
    assert all(made[name].tokens <= 16_000 for name in made)
    headings = [h for h in made["code"].messages[0].content.splitlines() if h.startswith("# ")]
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("role", ["design", "code", "route"])
def test_any_budget_is_kept_or_refused(role: str, knowledge: Knowledge) -> None:
    brief = briefs(CPU)[role]
    for budget in (8000, 4000, 2500, 1500, 600, 200):
        try:
            made = prompt(brief, knowledge, budget)
        except PromptError as error:
            assert "budget" in error.message and error.remedy
            continue
        assert made.tokens <= budget
        assert "rms_norm" in made.messages[-1].content


def test_the_prefix_is_the_same_for_another_task(knowledge: Knowledge) -> None:
    other = load_task(TASKS / "softmax" / "softmax.py")
    for brief in (briefs(CPU)["design"], briefs(CPU)["code"]):
        one, two = prompt(brief, knowledge), prompt(replace(brief, task=other), knowledge)
        assert one.messages[0] == two.messages[0] and one.messages[1] != two.messages[1]


def test_examples_and_known_designs_can_be_left_out(knowledge: Knowledge) -> None:
    options = Options(ablation=frozenset({"examples"}))
    with line(Role.DESIGNER, fenced(SKETCH)) as to:
        design = ModelDesigner(to.talk, knowledge, options).prompt(briefs(CPU)["design"])
        code = ModelCoder(to.talk, knowledge, options).prompt(briefs(CPU)["code"])
    names = {s.name for s in (*design.sections, *code.sections)}
    assert not names & {"similar designs", "examples"} and {"language", "API"} <= names


def test_the_same_brief_gives_the_same_prompt(knowledge: Knowledge) -> None:
    for brief in briefs(CPU).values():
        assert prompt(brief, knowledge) == prompt(brief, Knowledge.load(CPU))
