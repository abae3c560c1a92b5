"""A Coder whose kernel gives wrong values is told what the sketch computes for the first wrong element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief
from kernellab.agents.model import Options
from kernellab.agents.model.expected import lines
from kernellab.agents.model.expected.element import Step, steps_to
from kernellab.agents.model.expected.lines import expected_lines
from kernellab.agents.model.expected.narrow import Call, narrowed
from kernellab.agents.model.prompts.code import code_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import Candidate, Stage, Verdict
from kernellab.sketch.check import load_program
from kernellab.task import load_task
from kernellab.verifier import Verifier
from tests.agents.model_parts import AFFINE, CPU, SKETCH

LAYER_NORM = """
import torch

def reference(x, w, b):
    return torch.nn.functional.layer_norm(x, (512,), w, b, 1e-5)

def inputs():
    return torch.randn(256, 512), torch.randn(512), torch.randn(512)
"""
PRODUCT = """
import torch
from kernellab import Dim

M, N, K = Dim("M", 1, 512), Dim("N", 1, 512), Dim("K", 1, 512)

def reference(a, b, bias):
    return a @ b + bias

def inputs(M=64, N=48, K=300):
    return torch.randn(M, K), torch.randn(K, N), torch.randn(N)
"""


def designed(text: str) -> CodeBrief:
    task = load_task(text, "t")
    reply = RulesDesigner().design(DesignBrief(task=task, target=CPU))
    return CodeBrief(task=task, target=CPU, sketch=reply.sketch, constexpr=reply.constexpr)


def failed(brief: CodeBrief, verifier: Verifier, right: str, wrong: str) -> tuple[CodeBrief, Verdict]:
    """The brief after a verdict on the lowered code with ``wrong`` in place of ``right``."""
    lowered = RulesCoder().code(brief).source
    text = lowered.files["kernel.cpp"]
    assert right in text
    source = lowered.model_copy(update={"files": {**lowered.files, "kernel.cpp": text.replace(right, wrong)}})
    verdict = verifier.verify(brief.task, source, brief.target)
    assert not verdict.passed and verdict.evidence is not None and verdict.evidence.first_wrong is not None
    round_ = Attempt(Candidate(id="c1", source=source, sketch=brief.sketch), brief.sketch, verdict=verdict)
    return replace(brief, previous=source, previous_sketch=brief.sketch, history=(round_,)), verdict


def test_the_statement_whose_change_gives_the_kernels_value_is_named(verifier: Verifier) -> None:
    brief, verdict = failed(CodeBrief(task=AFFINE, target=CPU, sketch=SKETCH), verifier, "+ 1.0", "+ 2.0")
    assert verdict.evidence is not None
    first, stored, named = expected_lines(brief, verdict)
    x = (float(verdict.evidence.want or 0) - 1.0) / 2.0
    assert first == f"line 9: x_tile = {x:.6g}"
    assert stored == f"stored: {verdict.evidence.want:.6g}; the kernel has {verdict.evidence.got:.6g}"
    assert named.startswith("The kernel's value is what the sketch gives with one change in line 10 (2 in place of 1)")
    told = code_prompt(brief, Library(None), Options()).messages[-1].content
    assert "# What the sketch computes for the first wrong element" in told and named in told


def test_the_values_lead_through_sums_to_the_wrong_divisor(verifier: Verifier) -> None:
    brief = designed(LAYER_NORM)
    brief, verdict = failed(brief, verifier, "row_squares / 512.0f", "row_squares / 256.0f")
    *steps, _stored, named = expected_lines(brief, verdict)
    line = next(n for n, text in enumerate(brief.sketch.splitlines(), 1) if "row_squares / 512" in text)
    assert f"line {line} (256 in place of 512)" in named
    assert [step.split(" = ")[0].split()[-1] for step in steps][:3] == ["x_tile", "row_total", "mean"]


def test_of_changes_that_explain_one_value_alike_none_is_where_to_look(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief, verdict = failed(CodeBrief(task=AFFINE, target=CPU, sketch=SKETCH), verifier, "+ 1.0", "+ 2.0")
    assert expected_lines(brief, verdict)[-1].endswith("Look there first.")
    found = lines._fitting

    def twice(*given: Any) -> lines._Fitting:
        fitting = found(*given)
        return fitting._replace(variants=fitting.variants * 2)

    monkeypatch.setattr(lines, "_fitting", twice)
    last = expected_lines(brief, verdict)[-1]
    assert "; or in line 10" in last and "One element does not tell which" in last and "first" not in last


def test_a_step_of_a_loop_that_is_missing_is_named_as_the_loop(verifier: Verifier) -> None:
    brief, verdict = failed(designed(PRODUCT), verifier, "k < K; k += BK", "k + BK < K; k += BK")
    said = " ".join(expected_lines(brief, verdict))
    assert "the last step of k missing" in said
    assert "in the last step" in said or "(16384 values)" in said


def test_nothing_is_said_where_the_inputs_are_not_known_or_the_section_is_left_out(verifier: Verifier) -> None:
    brief, verdict = failed(CodeBrief(task=AFFINE, target=CPU, sketch=SKETCH), verifier, "+ 1.0", "+ 3.0")
    assert verdict.evidence is not None
    unknown = verdict.model_copy(update={"evidence": verdict.evidence.model_copy(update={"seed": None})})
    assert expected_lines(brief, unknown) == ()
    # contents of some families are the same by any seed, so the reference's value is what differs
    want = (verdict.evidence.want or 0.0) + 1.0
    timed = verdict.model_copy(update={"stage": Stage.FAST})
    assert expected_lines(brief, timed) == (), "the inputs of a timed call are not kept"
    other = verdict.model_copy(update={"evidence": verdict.evidence.model_copy(update={"want": want})})
    assert expected_lines(brief, other) == (), "other inputs give another value than the reference's"
    ablated = code_prompt(replace(brief, ablation=frozenset({"intermediates"})), Library(None), Options())
    assert "expected values" not in {section.name for section in ablated.sections}
    assert "expected values" in {section.name for section in code_prompt(brief, Library(None), Options()).sections}


def test_a_value_that_many_mistakes_give_names_no_statement(verifier: Verifier) -> None:
    brief = CodeBrief(task=AFFINE, target=CPU, sketch=SKETCH)
    brief, verdict = failed(brief, verifier, "+ 1.0", "* 0.0")
    assert verdict.evidence is not None and verdict.evidence.got == 0.0
    assert "one change" not in " ".join(expected_lines(brief, verdict))


NEAREST = """sketch nearest {
    symbols: N, M, K, D;
    tensors: x[N, M*D]: f32; books[M, K, D]: f32; codes[N, M]: i64 out;
    constexpr: BN = 8;
    @llm_hint("parallel", "coreidx")
    for i in range(0, N, BN):
        for m in range(M):
            load(x[i:i+BN, m*D:(m+1)*D] -> s)
            load(books[m, 0:K, 0:D] -> c)
            diff = s[:, None, :] - c[None, :, :]
            dist = reduce_sum(diff * diff, axis=2)
            store(argmin(dist, axis=1) -> codes[i:i+BN, m])
}
"""


def _steps(sketch: str, inputs: dict[str, torch.Tensor], tensor: str, element: int, **symbols: int) -> dict[str, Step]:
    program = load_program(sketch)
    values = {c.name: c.value for c in program.constexprs if c.value is not None}
    call = Call(inputs, symbols, values, tensor, element)
    return {step.name: step for step in steps_to(narrowed(program, call), call, 5.0)}


def test_the_values_of_a_tile_are_those_of_the_element_and_not_of_its_first_row() -> None:
    """Row 13 of the rows, subspace 2: not the tile's first row, nor the loop's first step."""
    generator = torch.Generator().manual_seed(0)
    x, books = torch.randn(20, 3 * 4, generator=generator), torch.randn(3, 5, 4, generator=generator)
    found = _steps(NEAREST, {"x": x, "books": books}, "codes", 13 * 3 + 2, N=20, M=3, K=5, D=4)
    row, book = x[13, 8:12].double(), books[2].double()
    diff = row - book
    assert found["s"].values == pytest.approx(row.tolist()) and found["s"].count == 4
    assert found["c"].values == pytest.approx(book.reshape(-1)[:4].tolist()) and found["c"].count == 20
    assert found["diff"].values == pytest.approx(diff.reshape(-1)[:4].tolist()) and found["diff"].count == 20
    assert found["dist"].values == pytest.approx((diff * diff).sum(1)[:4].tolist()) and found["dist"].count == 5
    assert all(step.alone for step in found.values())


TURNED = """sketch turned {
    symbols: M, N;
    tensors: a[M, N]: f32; y[N, M]: f32 out;
    @llm_hint("parallel", "coreidx")
    for once in range(1):
        load(a[0:M, 0:N] -> t)
        double = t * 2.0
        put, order = sort(double, axis=1)
        store(transpose(put) + transpose(t) -> y[0:N, 0:M])
}
"""


def test_what_a_sort_leaves_unknown_is_said_and_a_transpose_is_followed() -> None:
    a = torch.arange(12.0).reshape(3, 4)
    found = _steps(TURNED, {"a": a}, "y", 2 * 3 + 1, M=3, N=4)  # y[2, 1] is of a[1, 2]
    assert found["put"].values == (2.0 * float(a[1, 2]),) and found["put"].alone
    assert found["double"].values == pytest.approx((2 * a[1]).tolist()) and not found["double"].alone
    assert "order" not in found


STORED = """sketch doubled {
    symbols: M, N;
    tensors: x[M, N]: f32; T[M, N]: f32 temp; y[M, N]: f32 out;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(x[m, 0:N] -> a)
        store(a * 2.0 -> T[m, 0:N])
        load(T[m, 0:N] -> b)
        store(SAID -> y[m, 0:N])
}
"""


@pytest.mark.parametrize(("said", "names"), [("b", []), ("b + a", ["a", "b"])])
def test_a_trace_that_only_reads_what_was_stored_before_says_nothing(said: str, names: list[str]) -> None:
    program = load_program(STORED.replace("SAID", said))
    call = Call({"x": torch.ones(2, 3)}, {"M": 2, "N": 3}, {}, "y", 4)
    assert [step.name for step in steps_to(narrowed(program, call), call, 5.0)] == names
