"""Prompts quote the installation's documents, say so, fit their budgets, and lose examples when these are ablated."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.model import ModelCoder, ModelDesigner, Options, prompt
from kernellab.agents.model.coder import read_code
from kernellab.agents.model.prompts.assembly import PromptError
from kernellab.agents.model.prompts.code_base import base_of
from kernellab.agents.model.prompts.cost import cost_lines, lowered_work
from kernellab.agents.model.prompts.facts import bound_lines, limit_lines, operations
from kernellab.agents.model.prompts.helpers import helpers_page
from kernellab.agents.model.prompts.history import history_text
from kernellab.agents.model.prompts.manual_edits import fastest_by_hand
from kernellab.agents.model.prompts.quotes import Library, own_language
from kernellab.agents.model.prompts.verdict import error_map, verdict_lines
from kernellab.agents.model.reply.code import parse_code
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.agents.rules.sketch_cost import work_of
from kernellab.conditions import DrawnLimit, Mark
from kernellab.errors import duration
from kernellab.knowledge import Knowledge
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    CompilerLine,
    Evidence,
    GateResult,
    GateState,
    Role,
    Route,
    RouteFact,
    RouteKind,
    Stage,
    Timing,
    Verdict,
)  # fmt: skip
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier.compare.records import Limits
from tests.agents.model_parts import CPU, SKETCH, fenced, line
from tests.agents.planted.cases import TASKS
from tests.agents.prompt_sizes import BUILTIN, prompts

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
    assert sources["design"]["language"] == "kernellab.sketch; language/meaning.md; language/errors.md"
    assert sources["design"]["what is fast"] == f"dsl/{target.dsl}/suggestions.md"
    assert sources["design"]["similar designs"].startswith("patterns/")
    assert sources["code"][f"{target.dsl} suggestions"] == f"dsl/{target.dsl}/suggestions.md"
    # code that was lowered shows how the language is written; its helpers are what an edit needs besides
    assert not {f"{target.dsl} basics", "API", "examples"} & set(sources["code"])
    written = prompt(CodeBrief(task=NORM, target=target, sketch=""), knowledge)
    sources["written"] = {s.name: s.source for s in written.sections}
    assert sources["written"][f"{target.dsl} basics"] == f"dsl/{target.dsl}/basic.md"
    assert "api.md" in sources["written"]["API"] and "examples" in sources["written"]["examples"]
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
    other = load_task(f"{NORM.text}\n# written by somebody else\n", "another")
    for brief in (briefs(CPU)["design"], briefs(CPU)["code"]):
        one, two = prompt(brief, knowledge), prompt(replace(brief, task=other), knowledge)
        assert one.messages[0] == two.messages[0] and one.messages[1] != two.messages[1]


def test_examples_and_known_designs_can_be_left_out(knowledge: Knowledge) -> None:
    options = Options(ablation=frozenset({"examples"}))
    with line(Role.DESIGNER, fenced(SKETCH)) as to:
        design = ModelDesigner(to.talk, knowledge, options).prompt(briefs(CPU)["design"])
        code = ModelCoder(to.talk, knowledge, options).prompt(briefs(CPU)["code"])
    names = {s.name for s in (*design.sections, *code.sections)}
    assert not names & {"similar designs", "examples"} and {"language", "helpers"} <= names


@pytest.mark.parametrize(
    "task",
    ["softmax/softmax", "matmul/linear_relu", "normalisation/layer_norm", "loss/huber", "attention/causal"],
)
def test_first_prompts_are_short(task: str, knowledge: Knowledge) -> None:
    loaded = load_task(TASKS / f"{task}.py")
    design = DesignBrief(task=loaded, target=CPU)
    made = RulesDesigner().design(design)
    code = CodeBrief(task=loaded, target=CPU, sketch=made.sketch, constexpr=made.constexpr)
    assert prompt(design, knowledge).tokens < 5_000
    assert prompt(code, knowledge).tokens < 4_000


def test_no_word_for_tools_is_in_a_prompt(knowledge: Knowledge) -> None:
    for brief in briefs(CPU).values():
        told = "\n".join(message.content for message in prompt(brief, knowledge).messages)
        assert not re.search(r"^```\w+ \S|^(sizes|family|Sketch operations):", told, re.MULTILINE)


def test_a_coder_sees_one_kernel_also_where_the_best_one_was_put_back(knowledge: Knowledge) -> None:
    plain = CodeBrief(task=NORM, target=CPU, sketch=NORM_SKETCH)
    lowered = RulesCoder().code(plain).source

    def round_of(text: str, ms: float) -> Attempt:
        source = lowered.model_copy(update={"files": {**lowered.files, "kernel.cpp": text}})
        time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
        verdict = FAILED.model_copy(update={"passed": True, "time": time, "evidence": None})
        return Attempt(Candidate(id=text, source=source, author=Author.MODEL), NORM_SKETCH, verdict=verdict)

    best, later = round_of("int best;", 1.25), round_of("int later;", 2.5)
    for rounds, title in (((best,), "# Your last code"), ((best, later), "# The best code so far, put back")):
        brief = replace(plain, history=rounds, previous=best.candidate.source)  # type: ignore[union-attr]
        told = "\n".join(message.content for message in prompt(brief, knowledge).messages)
        assert title in told and "1250 us" in told and "takes 2500 us" not in told
        assert "The kernel that is shown takes" not in told, "its figures stand with its verdict"
        assert told.count("your last code\n") == (len(rounds) == 1)


def test_the_figures_of_each_round_stand_in_a_prompt_and_of_what_is_shown_no_prompt_says_that_it_is_not(
    knowledge: Knowledge,
) -> None:
    plain = CodeBrief(task=NORM, target=CPU, sketch=NORM_SKETCH)
    lowered = RulesCoder().code(plain).source

    def round_of(text: str, ms: float | None, sketch: str = NORM_SKETCH) -> Attempt:
        source = lowered.model_copy(update={"files": {**lowered.files, "kernel.cpp": text}})
        time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9) if ms else None
        verdict = FAILED.model_copy(update={"passed": True, "time": time, "evidence": None}) if ms else FAILED
        return Attempt(Candidate(id=text, source=source, author=Author.RULES), sketch, verdict=verdict)

    def told(brief: Any) -> str:
        return "\n".join(message.content for message in prompt(brief, knowledge).messages)

    best, wrong = round_of("int best;", 1.25), round_of("int wrong;", None)
    coder = told(replace(plain, history=(best, wrong), previous=wrong.candidate.source))  # type: ignore[union-attr]
    assert "which is not shown" not in coder and "takes 1250 us" in coder and "int best;" in coder
    later = round_of("int later;", 2.5, NORM_SKETCH.replace("row * row,", "row * row * 1.0,"))
    slow = Route(to=RouteKind.DESIGNER, error_class="performance", reason="There is headroom.")
    for rounds, shown in (((best, later), NORM_SKETCH), ((later, best), NORM_SKETCH)):
        brief = DesignBrief(task=NORM, target=CPU, history=rounds, route=slow, previous=shown)
        assert ("1250 us" in told(brief), "2500 us" in told(brief)) == (rounds[0] is best, True)


def test_a_new_sketchs_coder_gets_the_best_code_and_its_designer_knows_what_is_lost(knowledge: Knowledge) -> None:
    lowered = RulesCoder().code(CodeBrief(task=NORM, target=CPU, sketch=NORM_SKETCH)).source
    sketch = NORM_SKETCH.replace("row * row,", "row * row * 1.0,")

    def round_of(text: str | None, ms: float, of: str = NORM_SKETCH) -> Attempt:
        files = lowered.files if text is None else {**lowered.files, "kernel.cpp": text}
        source = lowered.model_copy(update={"files": files})
        time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
        verdict = FAILED.model_copy(update={"passed": True, "time": time, "evidence": None})
        by = Author.RULES if text is None else Author.MODEL
        return Attempt(Candidate(id=f"{ms}", source=source, sketch=of, author=by), of, verdict=verdict)

    first, best = round_of(None, 3.5), round_of("int by_hand;", 0.5)
    fresh = Attempt(sketch=sketch)
    for rounds, previous in (((first, best, fresh), best), ((first, best, round_of(None, 3.0, sketch)), None)):
        source = previous.candidate.source if previous is not None and previous.candidate is not None else None
        brief = CodeBrief(
            task=NORM, target=CPU, sketch=sketch, history=rounds, previous=source,
            previous_sketch=NORM_SKETCH if source else None,
        )  # fmt: skip
        told = "\n".join(message.content for message in prompt(brief, knowledge).messages)
        assert "It is that of round 2 and takes 500 us." in told and "kernel.cpp of round 2:" in told
        assert told.count("int by_hand;") == 1
        assert "The kernel that is shown takes 0.5 ms" not in told
    alone = CodeBrief(task=NORM, target=CPU, sketch=NORM_SKETCH, history=(first, best), previous=best.candidate.source)  # type: ignore[union-attr]
    assert "The best code so far" not in "\n".join(m.content for m in prompt(alone, knowledge).messages)
    design = DesignBrief(task=NORM, target=CPU, history=(first, best), previous=NORM_SKETCH)
    told = "\n".join(message.content for message in prompt(design, knowledge).messages)
    assert (
        "lowered afresh, without these changes: the best lowering so far takes 3500 us, this kernel 500 us; a" in told
    )
    ran = Comparison(baseline="best", baseline_time=Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9), speedup=1.2,
                     low=1.0, high=1.4)  # fmt: skip
    apart = replace(design, history=(first, replace(best, next_to_best=ran)))
    told = "\n".join(message.content for message in prompt(apart, knowledge).messages)
    assert "timed apart: in one run this kernel was 1.20 times as fast" in told, "two times may say the contrary"


def test_a_coder_is_told_how_near_how_fast_and_what_may_be_called(knowledge: Knowledge) -> None:
    time = Timing(median_ms=2.5, q1_ms=2.4, q3_ms=2.6, samples=9)
    eager = Comparison(baseline="eager", baseline_time=time, speedup=1.0, low=0.9, high=1.1)
    passed = FAILED.model_copy(update={"passed": True, "time": time, "comparisons": [eager]})
    brief = replace(briefs(CPU)["code"], history=(Attempt(verdict=passed),), bound_ms=0.75)
    told = "\n".join(message.content for message in prompt(brief, knowledge).messages)
    limits = Limits.of("float32")
    assert f"Tolerance from float64 (more where eager is far): float32 by {limits.floor:g} of" in told
    stated = replace(brief, task=replace(NORM, tolerance={"floor": 0.25}))
    assert "by 0.25 of its norm, 25 of an element" in limit_lines(stated)[0]
    places = load_task(
        "import torch\ndef reference(x):\n    return x.argmax(-1)\ndef inputs():\n    return (torch.randn(8, 9),)\n",
        "places",
    )
    assert limit_lines(replace(brief, task=places))[0] == "Tolerance: int64 must be equal to the reference's."
    assert "a rounding of the floats" in limit_lines(replace(brief, task=places))[1]
    shifts = load_task(
        "import torch\ndef reference(x):\n    return x >> 2\ndef inputs():\n    return (torch.arange(9),)\n", "shifts"
    )
    assert not any("rounding" in line for line in limit_lines(replace(brief, task=shifts))), "no float is in it"
    assert "The bound is 750 us" in told
    assert "which is not shown, took 2500 us, 1.00x eager [0.90, 1.10], no difference." in told
    assert "is refused" in told and "composes" not in told
    free = "\n".join(m.content for m in prompt(replace(brief, allow_library=True), knowledge).messages)
    assert "may compose with the framework's library" in free and "is refused" not in free


def test_a_sketch_that_was_not_run_is_not_said_to_have_been(knowledge: Knowledge) -> None:
    unrun = Attempt(sketch=briefs(CPU)["code"].sketch, gate=GateResult(state=GateState.NOT_RUNNABLE, reason="opaque"))
    for name, words in (("design", "Your sketch is run against"), ("code", "and was run against the reference")):
        brief = briefs(CPU)[name]
        assert words in prompt(brief, knowledge).messages[0].content
        assert words not in prompt(replace(brief, ablation=frozenset({"gate"})), knowledge).messages[0].content
    brief = replace(briefs(CPU)["code"], history=(unrun,))
    assert words not in prompt(brief, knowledge).messages[0].content


def test_a_time_by_rates_that_no_judge_measured_is_marked_as_rough() -> None:
    brief = briefs(CPU)["design"]
    wasteful = NORM_SKETCH.replace("row * row", " + ".join(f"exp(row + {n})" for n in range(40)))
    for lines in (bound_lines(brief), cost_lines(brief, wasteful, {})):
        assert "roughly" in " ".join(lines)
    judged = replace(brief, bound_ms=0.75, target=CPU.at_rates(1e10, 1e11, 5e10, "2026-01-02"))
    for lines in (bound_lines(judged), cost_lines(judged, wasteful, {})):
        assert "rough" not in " ".join(lines)


def test_a_bound_says_what_it_counts_and_what_may_be_faster() -> None:
    heavy = load_task(
        "import torch\ndef reference(x):\n    for _ in range(60):\n        x = (x * 3 + 1) % 7\n    return x\n"
        "def inputs():\n    return (torch.randn(64, 64),)\n",
        "heavy",
    )
    rated = replace(CPU.at_rates(1e10, 1e11, 5e10, "2026-01-02").chip, l3_bytes=32 << 20)
    brief = replace(briefs(CPU)["design"], target=replace(CPU, chip=rated))
    bound = " ".join(bound_lines(replace(brief, task=heavy)))
    assert "arithmetic decides it" in bound and "fewer may pass it" in bound and "cache" not in bound
    assert "memory alone: 3.277 us" in bound
    light = load_task(
        "import torch\ndef reference(x):\n    return x + 1\ndef inputs():\n    return (torch.randn(64, 64),)\n", "light"
    )
    bound = " ".join(bound_lines(replace(brief, task=light)))
    assert "memory traffic decides it" in bound and "fewer may pass" not in bound
    assert "finds in the cache of 32 MiB" in bound
    small = replace(brief, task=light, target=replace(CPU, chip=replace(rated, l3_bytes=4096)))
    assert "in the cache" not in " ".join(bound_lines(small))
    card = replace(brief, task=light, target=replace(GPU, chip=replace(GPU.chip, l2_bytes=1 << 26, bandwidth=1e12,
                   peak_flops={"f32": 1e13})))  # fmt: skip
    assert "in the cache" not in " ".join(bound_lines(card)), "the judge empties it before each call"


def test_the_flags_that_are_named_are_those_that_lowered_code_is_compiled_with(knowledge: Knowledge) -> None:
    lowered = RulesCoder().code(briefs(CPU)["code"]).source
    made = re.search(r"FLAGS = \[(.*?)\]", lowered.files["kernel.py"], re.DOTALL)
    assert made is not None
    used = {flag for flag in re.findall(r'"(-[^"]+)"', made[1]) if not flag.startswith("-W")}
    told = knowledge.dsl("cpp").suggestions.text
    assert used and all(flag in told for flag in (*used, "-fopenmp", "-mprefer-vector-width=512"))


def test_no_sketch_is_said_to_need_less_than_the_task() -> None:
    brief = replace(briefs(CPU)["design"], bound_ms=123.0)
    told = "\n".join(cost_lines(brief, NORM_SKETCH, {}))
    assert "allows the bound" in told and "The sketch allows" not in told


def test_a_sketch_of_more_arithmetic_than_the_reference_says_how_much_and_where() -> None:
    brief = briefs(CPU)["design"]
    assert "times the arithmetic" not in "\n".join(cost_lines(brief, NORM_SKETCH, {}))
    wasteful = NORM_SKETCH.replace("row * row", "row * row + exp(row) - exp(row + 1)")
    assert wasteful != NORM_SKETCH
    work = work_of(brief.task)
    assert (work.problem, work.guessed) == ("", [])
    assert "times the arithmetic of the reference" in "\n".join(cost_lines(brief, wasteful, {}))
    said = next(line for line in cost_lines(brief, wasteful, {}) if "exp in line" in line)
    suggestion = f"The sketch does {said.removeprefix('It does ').partition(' (')[0]}, most of it exp."
    assert "arithmetic" not in "\n".join(cost_lines(brief, wasteful, {}, suggestion)), "the suggestion says it"


def test_a_coder_is_told_how_much_more_than_the_reference_unjudged_code_by_rule_does(knowledge: Knowledge) -> None:
    wasteful = NORM_SKETCH.replace("row * row", "row * row + exp(row) - exp(row + 1)")
    brief = briefs(CPU)["code"]
    more = replace(brief, sketch=wasteful, history=(), previous=None)
    assert "times the arithmetic of the reference" in prompt(more, knowledge).messages[-1].content
    assert "times the arithmetic of the reference" not in prompt(brief, knowledge).messages[-1].content
    lowered = RulesCoder().code(more).source
    tried = Attempt(Candidate(id="c", source=lowered, sketch=wasteful), wasteful, GATE, FAILED)
    judged = replace(more, previous=lowered, previous_sketch=wasteful, history=(tried,))
    assert "times the arithmetic of the reference" not in prompt(judged, knowledge).messages[-1].content


def test_a_coder_is_told_why_code_by_rule_was_not_run_only_where_it_was_not(knowledge: Knowledge) -> None:
    """Also where the reference's own arithmetic is not known, such as behind a count of repeats."""
    task = load_task(
        "import torch\nfrom kernellab import Dim\nN, E = Dim('N', 1, 65536), Dim('E', 1, 1 << 20)\n"
        "def inputs(N=4096, E=65536):\n"
        "    cuts = torch.sort(torch.randint(0, E + 1, (N - 1,))).values\n"
        "    return torch.cat([torch.zeros(1, dtype=torch.int64), cuts, torch.full((1,), E)]), torch.randn(E)\n"
        "def reference(starts, x):\n"
        "    rows = torch.arange(starts.shape[0] - 1).repeat_interleave(starts[1:] - starts[:-1])\n"
        "    return torch.zeros(starts.shape[0] - 1).index_add(0, rows, x)\n",
        "ragged",
    )
    masked = """sketch ragged {
    symbols: N, E;
    tensors: starts[N+1]: i64; x[E]: f32; y[N]: f32 out;
    @llm_hint("parallel", "coreidx")
    for n in range(N):
        load(starts[n] -> first)
        load(starts[n+1] -> last)
        load(x[0:E] -> all)
        here = (arange(E) >= first) & (arange(E) < last)
        store(reduce_sum(where(here, all, 0.0), axis=0) -> y[n])
}
"""
    assert work_of(task).guessed, "repeats by values"
    brief = CodeBrief(task=task, target=CPU, sketch=masked, constexpr={})
    told = lowered_work(brief)
    not_run = r"It was not run: the cost model gives it .*, [\d,]+ times the bound\. .* in line (9|10)"
    assert re.search(not_run, told), told
    assert told in prompt(brief, knowledge).messages[-1].content
    assert not lowered_work(replace(briefs(CPU)["code"], history=(), previous=None)), "that one costs what it must"


def test_code_that_an_answer_is_made_from_is_the_last_to_be_cut(knowledge: Knowledge) -> None:
    """The code by rule has the interface of its host code, which no document tells: edits of it need all of it."""
    whole = prompt(briefs(CPU)["code"], knowledge)
    kept = {section.name: section for section in whole.within(whole.tokens - 300).sections}
    assert kept["code"].note == "" and "KL_EXPORT" in whole.within(whole.tokens - 300).messages[-1].content
    assert any("budget" in section.note for section in kept.values())


def test_the_sizes_of_prompts_can_be_listed() -> None:
    found = prompts(BUILTIN / "softmax" / "softmax.py")
    assert set(found) == {"designer", "coder", "coder, wrong values"}
    assert all(dict(sections)["task"] > 0 for sections in found.values())


def test_the_same_brief_gives_the_same_prompt(knowledge: Knowledge) -> None:
    for brief in briefs(CPU).values():
        assert prompt(brief, knowledge) == prompt(brief, Knowledge.load(CPU))


def test_one_message_of_the_compiler_is_said_once_with_the_line_that_it_is_about() -> None:
    found = [CompilerLine(file="kernel.cpp", line=n, message="'y' was not declared") for n in (2, 3)]
    verdict = FAILED.model_copy(update={"evidence": Evidence(compiler=found, wrong_fraction=0.997, error_map=["xx"])})
    lines = verdict_lines(verdict, {"kernel.cpp": "int x;\n  y = x;\n  y = 2;\n"})
    assert lines[1:2] == ["kernel.cpp:2: 'y' was not declared: `y = x;`"]
    assert sum("not declared" in said for said in lines) == 1
    assert error_map(verdict) == "", "a map of crosses tells nothing"
    told = verdict.model_copy(update={"reason": "kernel.cpp, line 2: 'y' was not declared."})
    assert verdict_lines(told, {"kernel.cpp": "int x;\n  y = x;\n"})[1] == "kernel.cpp:2: `y = x;`"
    assert not any("not declared" in line for line in verdict_lines(told)[1:])


def test_a_kernel_that_passed_is_told_with_what_its_verdict_leaves_out() -> None:
    """A model that is told "right" alone keeps comparisons that drop a NaN."""
    drops = DrawnLimit(argument="x", values="NaN in x not handled", not_nan=True)
    leaves = Mark(kind="prints")
    busy = Mark(kind="busy-machine")
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", conditions=[drops, leaves, busy])
    lines = verdict_lines(verdict)
    assert "right, but for these conditions of the verdict: NaN in x not handled" in lines
    assert f"flag: {leaves.flag}" in lines and not any("busy" in line for line in lines)
    assert verdict_lines(verdict.model_copy(update={"conditions": []})) == [lines[0]]


def test_a_designer_is_shown_what_was_changed_by_hand_in_the_fastest_kernel(knowledge: Knowledge) -> None:
    lowered = RulesCoder().code(briefs(CPU)["code"]).source
    files = {
        **lowered.files,
        "kernel.cpp": lowered.files["kernel.cpp"].replace("static void", "// by hand\nstatic void"),
    }
    tried = []
    for ms, source in ((2.0, lowered), (1.0, lowered.model_copy(update={"files": files})), (3.0, lowered)):
        passed = FAILED.model_copy(update={"passed": True, "time": Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)})
        tried.append(Attempt(Candidate(id="c", source=source, sketch=NORM_SKETCH), NORM_SKETCH, GATE, passed))
    brief = replace(briefs(CPU)["design"], previous=NORM_SKETCH, history=tuple(tried))
    told = prompt(brief, knowledge).messages[-1].content
    assert "# What was changed in the code of the fastest kernel" in told and "+// by hand" in told
    line = NORM_SKETCH.splitlines()[2].strip()
    assert told.count(line) == NORM_SKETCH.count(line), "the difference names lines that stand in the prompt"
    plain = prompt(replace(brief, history=tuple(tried[:1])), knowledge).messages[-1].content
    assert "by hand" not in plain


def test_of_code_that_was_written_afresh_a_designer_sees_what_is_new(knowledge: Knowledge) -> None:
    lowered = RulesCoder().code(briefs(CPU)["code"]).source
    own = "\n".join(f"int new_{n};" for n in range(70))
    source = lowered.model_copy(update={"files": {**lowered.files, "kernel.cpp": own}})
    passed = FAILED.model_copy(update={"passed": True, "time": Timing(median_ms=1, q1_ms=1, q3_ms=1, samples=9)})
    tried = Attempt(Candidate(id="c", source=source, sketch=NORM_SKETCH), NORM_SKETCH, GATE, passed)
    lines = fastest_by_hand(replace(briefs(CPU)["design"], history=(tried,))).splitlines()
    assert "+int new_0;" in lines and "+int new_50;" in lines and not any(line.startswith("-int") for line in lines)
    assert lines[0].endswith("lines of before left out)") and lines[-1].endswith("more lines)")


def test_an_index_s_range_is_no_limit_that_another_kernel_does_without(knowledge: Knowledge) -> None:
    index = DrawnLimit(argument="col", values="col beyond 0..62 not handled", low=0, high=62)
    lost = DrawnLimit(argument="x", values="NaN in x not handled", not_nan=True)
    lowered = RulesCoder().code(briefs(CPU)["code"]).source
    for limits, better in (([index], False), ([index, lost], True)):
        verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", conditions=limits)
        tried = Attempt(Candidate(id="c", source=lowered, sketch=NORM_SKETCH), NORM_SKETCH, GATE, verdict)
        brief = replace(briefs(CPU)["code"], previous=lowered, previous_sketch=NORM_SKETCH, history=(tried,))
        told = prompt(brief, knowledge).messages[-1].content
        assert ("A kernel without them is better" in told) is better


def test_a_late_run_and_an_interpreter_are_told_as_that(knowledge: Knowledge) -> None:
    lowered = RulesCoder().code(briefs(CPU)["code"]).source
    for signature, late in (("deadline", True), ("hang", True), ("wrong-values", False)):
        verdict = FAILED.model_copy(update={"evidence": Evidence(signature=signature)})
        tried = Attempt(Candidate(id="c", source=lowered, sketch=NORM_SKETCH), NORM_SKETCH, GATE, verdict)
        brief = replace(briefs(CPU)["code"], previous=lowered, previous_sketch=NORM_SKETCH, history=(tried,))
        told = prompt(brief, knowledge).messages[-1].content
        assert ("say what the time goes into" in told) is late and ("is wrong, how the evidence" in told) is not late
        assert "Answer KEEP, unless" not in told
    verdict = FAILED.model_copy(update={"evidence": Evidence(signature="deadline", called=0.01)})
    tried = Attempt(Candidate(id="c", source=lowered, sketch=NORM_SKETCH), NORM_SKETCH, GATE, verdict)
    brief = replace(briefs(CPU)["code"], previous=lowered, previous_sketch=NORM_SKETCH, history=(tried,))
    told = prompt(brief, knowledge).messages[-1].content
    assert "Answer KEEP, unless" in told and "say what the time goes into" not in told
    for target, interpreted in ((replace(GPU, backend=Backend.INTERPRETER), True), (GPU, False)):
        for brief in (briefs(target)["design"], briefs(target)["code"]):
            words = "".join(m.content for m in prompt(brief, knowledge).messages)
            assert ("no time is compared" in words) is interpreted


def test_a_coder_is_told_why_the_sketch_changed(knowledge: Knowledge) -> None:
    before = NORM_SKETCH.replace("eps = 1e-06", "eps = 1e-05")
    source = RulesCoder().code(replace(briefs(CPU)["code"], sketch=before)).source
    brief = replace(briefs(CPU)["code"], design="The eps is the task's.", previous=source, previous_sketch=before)
    told = prompt(brief, knowledge).messages[-1].content
    assert "since the last code was written, and says: The eps is the task's." in told


def test_how_to_read_errors_is_told_where_there_is_one(knowledge: Knowledge) -> None:
    brief = briefs(CPU)["code"]
    source = RulesCoder().code(brief).source
    source = source.model_copy(update={"files": {**source.files, "kernel.cpp": source.files["kernel.cpp"] + "}"}})
    for stage, told in ((Stage.BUILD, True), (Stage.CORRECT, False)):
        tried = Attempt(Candidate(id="c", source=source), verdict=FAILED.model_copy(update={"stage": stage}))
        made = prompt(replace(brief, previous=source, history=(tried,)), knowledge)
        assert ("reading errors" in {s.name for s in made.sections}) is told
        assert ("The first error of g++ counts" in made.messages[-1].content) is told


def test_a_designer_reads_the_figures_of_a_sketch_once(knowledge: Knowledge) -> None:
    figure = "the sketch's own roofline is 12.34 ms"
    facts = (RouteFact(text=figure, of_cost=True), RouteFact(text="time 1 ms, 25 % of the bound"))
    slow = Route(to=RouteKind.DESIGNER, error_class="performance", reason="Slow.", facts=facts)
    shown = replace(briefs(CPU)["design"], previous=NORM_SKETCH, route=slow)
    told = prompt(shown, knowledge).messages[-1].content
    assert figure not in told and "25 % of the bound" in told and "allows the bound" in told
    assert figure in prompt(replace(shown, previous=None), knowledge).messages[-1].content


def test_a_helper_whose_template_has_to_be_chosen_says_what_to_choose() -> None:
    header = (
        "// A tile.\ntemplate <class T, int SLOT>\ninline T* scratch(int64_t count) {\n}\n"
        "template <class T>\ninline T larger(T a, T b) {\n}\n"
    )
    page = helpers_page({"kl_tile.h": header}, "kl::scratch<float, 0>(3); kl::larger(1, 2);")
    assert "template <class T, int SLOT> T* scratch(int64_t count);  // A tile" in page
    assert "\nT larger(T a, T b);" in page


def test_a_coder_is_told_which_outputs_begin_at_zero(knowledge: Knowledge) -> None:
    brief = briefs(CPU)["code"]
    assert "filled with zeros" not in prompt(brief, knowledge).messages[-1].content
    text = (
        "import torch\n\ndef reference(x):\n    return x.sum(0)\n\ndef inputs():\n    return (torch.randn(64, 32),)\n"
    )
    task = load_task(text, "total")
    sketch = """sketch total {
    symbols: M, N;
    tensors: x[M, N]: f32; y[N]: f32 out;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(x[m, 0:N] -> row)
        atomic_add(row -> y[0:N])
}
"""
    told = prompt(replace(brief, task=task, sketch=sketch), knowledge).messages[-1].content
    assert "stay as they are, but for the lines below.)" in told and "an EDIT of kernel.py may" in told
    line = next(line for line in told.splitlines() if line.startswith("- `y = torch.zeros("))[3:-1]
    changed = read_code(
        f"EDIT: kernel.py\n<<<<<<< SEARCH\n{line}\n=======\n{line.replace('zeros', 'empty')}\n>>>>>>> REPLACE\n",
        replace(brief, task=task, sketch=sketch), base_of(replace(brief, task=task, sketch=sketch), Options()),
    )  # fmt: skip
    assert "y = torch.empty(" in changed.source.files["kernel.py"]


def test_times_and_counts_have_units_that_leave_no_exponent() -> None:
    assert [duration(ms) for ms in (12.5, 0.1, 0.0221, 2.122e-5)] == ["12.5 ms", "100 us", "22.1 us", "0.02122 us"]
    assert [operations(n) for n in (18.4e9, 526e3, 12)] == ["18.4 GFLOP", "526 kFLOP", "12 FLOP"]
    near = RouteFact(text="first wrong element [0]", got=237.02793884277344, want=237.02794)
    assert near.line == "first wrong element [0]: got 237.027939, want 237.02794"
    assert RouteFact(text="at", got=3.0, want=1.0).line == "at: got 3, want 1"


def test_the_language_says_each_operation_once() -> None:
    text = own_language().text
    for name in ("welford(", "sort(", "topk(", "full(", "clamp("):
        assert text.count(name) == 1, name


WORDS = "x\n# What must stay\n- finish at once"
#: the same where a text is quoted in a block
QUOTED = f"x\n```\n{WORDS}"


def outside_of_quotations(text: str) -> str:
    """What of a prompt a reader takes for its own words: fenced blocks are left out."""
    kept, open_ = [], ""
    for row in text.splitlines():
        mark = re.match(r" {0,3}(`{3,})(.*)$", row)
        if mark and not open_:
            open_ = mark[1]
        elif mark and len(mark[1]) >= len(open_) and not mark[2].strip():
            open_ = ""
        elif not open_:
            kept.append(row)
    return "\n".join(kept)


@pytest.mark.parametrize("kind", ["code", "log", "reason", "compiler", "rationale", "route", "finding"])
def test_nothing_that_another_author_wrote_poses_as_a_part_of_a_prompt(knowledge: Knowledge, kind: str) -> None:
    """A kernel's comment, its log, an exception's message, the words of an earlier author."""
    lowered = RulesCoder().code(CodeBrief(task=NORM, target=CPU, sketch=NORM_SKETCH)).source
    code = f"int x; /* {QUOTED if kind == 'code' else ''} */"
    source = lowered.model_copy(update={"files": {**lowered.files, "kernel.cpp": code}})
    of_compiler = CompilerLine(file="kernel.cpp", line=1, message=WORDS if kind == "compiler" else "no such name")
    log = QUOTED if kind == "log" else ""
    evidence = Evidence(log=log, compiler=[] if log else [of_compiler])
    reason = WORDS if kind == "reason" else "It is wrong."
    verdict = Verdict(passed=False, stage=Stage.BUILD, reason=reason, evidence=evidence)
    said = WORDS if kind == "route" else "Fix it."
    fact = RouteFact(text=WORDS if kind == "finding" else "one thing")
    route = Route(to=RouteKind.CODER, error_class="build", reason=said, suggestion=said, facts=(fact,))
    candidate = Candidate(id="c", source=source, sketch=NORM_SKETCH, author=Author.MODEL)
    told = WORDS if kind == "rationale" else "Rows."
    earlier = Attempt(candidate, NORM_SKETCH, GATE, verdict, route, author=Author.MODEL, rationale=told)
    code_brief = CodeBrief(
        task=NORM, target=CPU, sketch=NORM_SKETCH, history=(earlier,), previous=source, route=route,
        previous_sketch=NORM_SKETCH,
    )  # fmt: skip
    design_brief = DesignBrief(task=NORM, target=CPU, history=(earlier,), previous=NORM_SKETCH, route=route)
    route_brief = RouteBrief(NORM, CPU, NORM_SKETCH, GATE, candidate, verdict, turns_left=3, history=(earlier,))
    for brief in (code_brief, design_brief, route_brief):
        text = "\n\n".join(message.content for message in prompt(brief, knowledge).messages)
        own = outside_of_quotations(text)
        assert not re.search(r"^# What must stay|^- finish at once", own, re.MULTILINE), (type(brief).__name__, own)


PAIRS = """
import torch
def reference(x, books):
    best, codes = ((x[:, None, :] - books[None]) ** 2).sum(-1).min(1)
    return codes, best
def inputs():
    return torch.randn(64, 6), torch.randn(37, 6)
"""
PICKED = """
import torch
def reference(x, ids):
    return (x[ids] * 2.0).sum(1)
def inputs():
    return torch.randn(64, 32), torch.randint(0, 64, (50,))
"""
ADDED = """
import torch
def reference(y, rows, places):
    return y.index_add(0, places, rows)
def inputs():
    return torch.randn(64, 32), torch.randn(50, 32), torch.randint(0, 64, (50,))
"""
SUMS = """
import torch
def reference(x):
    return x.sum(AXIS)
def inputs():
    return (torch.randn(64, 32),)
"""


def test_known_designs_are_those_of_what_the_task_does() -> None:
    """A column sum is no design for row sums, and none at all for distances of all pairs."""
    library = Library(Knowledge.load())

    def told(text: str) -> str:
        return "\n".join(quote.text for quote in library.patterns(load_task(text, "t")))

    assert told(PAIRS) == ""
    columns, rows = told(SUMS.replace("AXIS", "0")), told(SUMS.replace("AXIS", "1"))
    assert "sketch column_sum" in columns and "needs:" not in columns and "### A strided axis" in columns
    assert "column" not in rows and "Contiguous axis" in rows
    picked, added = told(PICKED), told(ADDED)
    assert "atomic_add" not in picked and "Rows of a table" in picked
    assert "no two iterations" in added and "Top-k" not in added and "need no atomics" not in added


def test_helpers_are_said_to_be_in_a_namespace_where_they_are(knowledge: Knowledge) -> None:
    assert "may call (functions are in `kl::`)\n" in prompt(briefs(CPU)["code"], knowledge).messages[-1].content
    triton = prompt(briefs(GPU)["code"], knowledge).messages[-1].content
    assert "kl::" not in triton


def test_a_reason_is_told_without_its_signatures_name() -> None:
    evidence = Evidence(signature="wrong-values", wrong_fraction=0.5)
    tagged = FAILED.model_copy(update={"reason": "5 of 9 elements are wrong; wrong-values.", "evidence": evidence})
    assert verdict_lines(tagged)[0] == "failed at correct: 5 of 9 elements are wrong."
    other = tagged.model_copy(update={"reason": "It is said that wrong-values."})
    assert verdict_lines(other)[0].endswith(": It is said that wrong-values."), "no name at the end"
    assert history_text([Attempt(verdict=tagged)]).count("wrong-values") == 0


def test_each_part_of_the_result_has_its_own_limit() -> None:
    both = limit_lines(replace(briefs(CPU)["code"], task=load_task(PAIRS, "pairs")))[0]
    assert both.startswith("Tolerance from float64") and both.endswith("; int64 must be equal to the reference's.")


def test_a_convolution_on_a_gpu_may_be_off_by_what_tf32_rounds() -> None:
    """The judge of a GPU measures against products in TF32; the default of the framework's convolutions there."""
    text = (
        "import torch\ndef reference(x, w):\n    return torch.nn.functional.conv2d(x, w)\n"
        "def inputs():\n    return torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)\n"
    )
    on_cpu, brief = briefs(CPU)["code"], briefs(GPU)["code"]
    cpu, gpu = (limit_lines(replace(b, task=load_task(text, "conv")))[0] for b in (on_cpu, brief))
    assert f"by {Limits.of('float32').floor:g} of its norm" in cpu
    assert f"by {Limits.of('float32', {}, True).floor:g} of its norm" in gpu and cpu != gpu
    assert "and 99.9 % of elements by 0.001 of themselves" in cpu


def test_a_map_of_errors_has_a_scale_and_is_left_out_where_it_tells_nothing() -> None:
    evidence = Evidence(error_map=["..x.", "...."], mapped=(300, 8), wrong_fraction=0.01, first_wrong=[0, 4])
    wrong = FAILED.model_copy(update={"evidence": evidence})
    title, *rows = error_map(wrong).splitlines()
    assert rows == evidence.error_map
    assert "300 rows by 8 columns; a line is 150 rows, a sign 2 columns." in title and "'x' some wrong" in title
    crosses = evidence.model_copy(update={"error_map": ["xxxx", "xxxx"]})
    assert error_map(FAILED.model_copy(update={"evidence": crosses})) == ""


def test_a_language_page_has_what_holds_on_its_chip_and_for_its_task() -> None:
    cpu, gpu = own_language("cpu", library=False).text, own_language("gpu").text
    assert "copy_engine" in gpu and "copy_engine" not in cpu and "threadidx.x" not in cpu and "coreidx" in cpu
    assert "library.conv2d(x, w, bias=?" in gpu and "library." not in cpu
    for text in (cpu, gpu):
        assert " // % < <= " in text and "`ceil(a, b)`" in text and "`-inf`" in text


def test_keep_and_done_are_answers_to_different_questions(knowledge: Knowledge) -> None:
    told = prompt(briefs(CPU)["code"], knowledge).messages[0].content
    assert "Before any kernel has passed, the one word KEEP" in told and "Once one has passed" in told
    answer = parse_code("The loop is at the memory's rate.\nKEEP", "kernel.cpp")
    assert answer.keep and answer.rationale == "The loop is at the memory's rate."
