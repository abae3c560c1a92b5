"""Routing rests on evidence: the gate first, then the stage, the compiler's lines and the numeric signature."""

from __future__ import annotations

from typing import Any

import pytest

from kernellab.agents.briefs import Attempt, RouteBrief, own_reason
from kernellab.agents.rules.classify import ErrorClass, classify
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.records import (
    Candidate,
    Comparison,
    CompilerLine,
    Diagnostic,
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
from kernellab.target import Backend, Chip, Target
from kernellab.task import Arg, ArgKind, Dim, OutputSpec, Task, TaskForm

SKETCH = """sketch scale_rows {
    symbols: M, N;
    tensors: X[M, N]: f32; S[M]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = 16 in {16, 32};

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        load(S[m] -> s)
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            store(x * s -> Y[m, n:n+BLOCK])
}
"""
TASK = Task(
    name="scale_rows", text="", form=TaskForm.NATIVE, framework="torch", dims=(Dim("M"), Dim("N")),
    args=(Arg("x", ArgKind.TENSOR, "float32", ("M", "N")), Arg("s", ArgKind.TENSOR, "float32", ("M",))),
    outputs=(OutputSpec(("M", "N"), "float32"),),
)  # fmt: skip
TARGET = Target("cpp", Backend.CPU, Chip("cpu", "cpu", 2))
RIGHT = GateResult(state=GateState.RIGHT, reason="Right on 7 small cases.", cases=7)
WRONG = GateResult(state=GateState.WRONG, reason="Differs at N=7.", sizes={"M": 2, "N": 7}, max_error=0.5)
OPAQUE = GateResult(state=GateState.NOT_RUNNABLE, reason="It uses the opaque operation sort.")


def candidate(text: str = "code", line_map: dict[str, dict[int, int]] | None = None) -> Candidate:
    source = Source(dsl="cpp", files={"kernel.py": "", "kernel.cpp": text}, line_map=line_map or {})
    return Candidate(id="c1", source=source, sketch=SKETCH, constexpr={"BLOCK": 16})


def failed(stage: Stage, reason: str = "It is wrong.", **evidence: Any) -> Verdict:
    return Verdict(passed=False, stage=stage, reason=reason, evidence=Evidence(**evidence))


def route(verdict: Verdict | None, gate: GateResult | None = RIGHT, **fields: Any) -> Route:
    brief = {"candidate": candidate() if verdict else None, "sketch": SKETCH, "history": (), "turns_left": 9} | fields
    return RulesConductor().route(RouteBrief(task=TASK, target=TARGET, gate=gate, verdict=verdict, **brief))


COMPILER = [CompilerLine(file="kernel.cpp", line=12, message="expected ';' before 'for'")]
EDGE = failed(
    Stage.CORRECT, "Wrong in the last tile.", signature="edge-tile", sizes={"M": 3, "N": 1000}, first_wrong=[0, 992],
    got=7.0, want=1.0,
)  # fmt: skip


def test_a_pass_finishes_and_leaves_its_figures_to_the_verdict() -> None:
    time = Timing(median_ms=2, q1_ms=2, q3_ms=2, samples=9)
    eager = Comparison(baseline="eager", baseline_time=time, speedup=2.5, low=2.4, high=2.6)
    found = route(Verdict(passed=True, stage=Stage.FAST, reason="ok", comparisons=[eager]))
    assert found.to is RouteKind.FINISH
    assert found.reason.startswith("Verified at T2.")
    assert "2.5" not in found.reason


def test_a_wrong_sketch_goes_to_the_designer_whatever_the_code_did() -> None:
    assert route(None, WRONG).to is RouteKind.DESIGNER
    assert route(failed(Stage.BUILD, compiler=COMPILER), WRONG).to is RouteKind.DESIGNER
    assert "N=7" in route(None, WRONG).suggestion


def test_a_sketch_with_faults_names_the_line_and_the_remedy() -> None:
    fault = Diagnostic(line=9, col=3, code="SK020", message="z is not known.", remedy="Did you mean x?")
    found = route(None, OPAQUE.model_copy(update={"diagnostics": [fault]}))
    assert (found.to, found.error_class) == (RouteKind.DESIGNER, "syntax")
    assert found.suggestion == "Fix line 9: z is not known. Did you mean x?"
    assert any("SK020" in line for line in found.evidence)


@pytest.mark.parametrize(
    "verdict",
    [
        failed(Stage.BUILD, compiler=COMPILER),
        failed(Stage.SMOKE, "It raised TypeError."),
        failed(Stage.CORRECT, signature="off-by-scale", first_wrong=[0, 0]),
        failed(Stage.ROBUST, signature="race", first_wrong=[0, 0]),
        EDGE,
    ],
    ids=lambda verdict: verdict.stage.value,
)
def test_a_right_sketch_with_wrong_code_goes_to_the_coder(verdict: Verdict) -> None:
    found = route(verdict)
    assert found.to is RouteKind.CODER
    # code that does not build was not compared with the sketch
    assert ("The gate found the sketch right" in found.reason) is (verdict.stage is not Stage.BUILD)
    assert found.suggestion


@pytest.mark.parametrize(
    ("verdict", "to"),
    [
        (failed(Stage.BUILD, compiler=COMPILER), RouteKind.CODER),
        (failed(Stage.SMOKE, "It raised ValueError."), RouteKind.CODER),
        (failed(Stage.CORRECT, signature="wrong-values", first_wrong=[0, 0]), RouteKind.DESIGNER),
        (EDGE, RouteKind.DESIGNER),
    ],
)
def test_without_a_run_of_the_sketch_the_class_decides_and_the_reason_says_so(verdict: Verdict, to: RouteKind) -> None:
    found = route(verdict, OPAQUE)
    assert found.to is to
    assert "class of the error decides" in found.reason


def test_code_that_could_not_be_written_goes_to_the_designer() -> None:
    found = route(None, RIGHT, error="cpp has no scan over two axes.")
    assert found.to is RouteKind.DESIGNER
    assert "scan over two axes" in found.suggestion and "could not write this sketch" in found.reason
    alone = route(None, None, error="None of 4 answers could be used.", sketch=None, ablation=frozenset({"sketch"}))
    assert alone.to is RouteKind.CODER, "no one else is asked"
    assert "sketch" not in alone.reason + alone.suggestion and "code that can be used" in alone.suggestion


def test_a_fault_of_the_machine_stops() -> None:
    found = route(failed(Stage.BUILD, "g++: not found"))
    assert (found.to, found.error_class) == (RouteKind.STOP, "environment")


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (failed(Stage.STATIC, "invalid syntax (kernel.py, line 2)"), ErrorClass.SYNTAX),
        (failed(Stage.STATIC, "No function is decorated with @triton.jit."), ErrorClass.API),
        (failed(Stage.BUILD, compiler=COMPILER), ErrorClass.SYNTAX),
        (failed(Stage.BUILD, "'foo' was not declared in this scope"), ErrorClass.API),
        (failed(Stage.BUILD, "undefined reference to bar"), ErrorClass.BUILD),
        (failed(Stage.BUILD, "OSError: [Errno 28] No space left on device"), ErrorClass.ENVIRONMENT),
        (failed(Stage.BUILD, "PermissionError: [Errno 13] Permission denied: 'ninja'"), ErrorClass.ENVIRONMENT),
        (failed(Stage.SMOKE, "The worker was ended by SIGSEGV."), ErrorClass.MEMORY_PATTERN),
        (failed(Stage.SMOKE, "RuntimeError: it failed"), ErrorClass.RUNTIME),
        (failed(Stage.SMOKE, "Output 0 has another shape.", signature="shape"), ErrorClass.API),
        (failed(Stage.CORRECT, signature="transposed", first_wrong=[0]), ErrorClass.MEMORY_PATTERN),
        (failed(Stage.CORRECT, signature="nan", first_wrong=[0]), ErrorClass.ALGORITHM),
        (failed(Stage.FAST, "The clocks disagree."), ErrorClass.ENVIRONMENT),
        (Verdict(passed=True, stage=Stage.FAST, reason="ok"), ErrorClass.NONE),
    ],
)
def test_errors_are_classified_by_rule(verdict: Verdict, error: ErrorClass) -> None:
    assert classify(verdict) is error


def test_an_edge_error_names_tensor_dimension_and_size() -> None:
    found = route(EDGE)
    assert "the load of X at N" in found.suggestion
    assert "the store to Y at N" in found.suggestion
    assert "S at" not in found.suggestion
    assert "errors lie only in the last tile of N (N=1000)" in found.suggestion
    assert any("first wrong element [0, 992]" in line for line in found.evidence)


def test_an_edge_error_names_the_line_of_code_where_it_is_known() -> None:
    mapped = candidate(line_map={"kernel.cpp": {40: 10, 41: 11}})
    assert "kernel.cpp:40" in route(EDGE, candidate=mapped).suggestion


def test_an_error_in_a_reduced_dimension_is_found_by_the_ragged_size() -> None:
    verdict = EDGE.model_copy(
        update={"evidence": Evidence(signature="edge-tile", sizes={"M": 32, "N": 1001}, first_wrong=[])}
    )
    assert "(N=1001)" in route(verdict).suggestion


def test_an_error_in_the_last_row_is_about_the_dimension_that_has_tiles() -> None:
    # rows are taken one at a time, so they have no last tile: what was read past N landed in the last row
    verdict = EDGE.model_copy(
        update={"evidence": Evidence(signature="edge-tile", sizes={"M": 15, "N": 65}, first_wrong=[14, 0])}
    )
    assert "errors lie only in the last tile of N (N=65)" in route(verdict).suggestion


def test_errors_at_the_end_of_a_dimension_that_its_tiles_divide_are_no_missing_mask() -> None:
    verdict = EDGE.model_copy(
        update={"evidence": Evidence(signature="edge-tile", sizes={"M": 8, "N": 1024}, first_wrong=[0, 512])}
    )
    suggestion = route(verdict).suggestion
    assert "a loop that ends early" in suggestion and "(N=1024)" in suggestion and "Mask the load" not in suggestion
    nowhere = EDGE.model_copy(update={"evidence": Evidence(signature="edge-tile", sizes={}, first_wrong=[])})
    assert "at the end of the output" in route(nowhere).suggestion


def test_a_build_error_names_file_line_and_the_sketch_line_behind_it() -> None:
    mapped = candidate(line_map={"kernel.cpp": {12: 9}})
    found = route(failed(Stage.BUILD, compiler=COMPILER), candidate=mapped)
    assert found.suggestion == "Fix kernel.cpp:12 (made from sketch line 9)."
    assert "kernel.cpp:12: expected ';' before 'for'" in found.evidence


def test_a_line_changed_since_it_last_passed_is_named() -> None:
    passed = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    past = Attempt(candidate=candidate("a\nmasked load\nc"), sketch=SKETCH, gate=RIGHT, verdict=passed)
    found = route(EDGE, candidate=candidate("a\nload\nc"), history=(past,))
    assert found.suggestion.endswith("Changed since it last passed: kernel.cpp:2: load.")
    assert "changed since it last passed: kernel.cpp:2: load" in found.evidence


def test_of_many_changed_lines_each_stretch_is_named_by_what_it_does_or_their_number() -> None:
    passed = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    rest = "\n".join(f"line {n};" for n in range(20))
    past = Attempt(candidate=candidate(f"{rest}\nsum = 0;"), sketch=SKETCH, gate=RIGHT, verdict=passed)
    few = route(EDGE, candidate=candidate(f"#include <vector>\n\n{rest}\n{{\nsum = x;\n}}"), history=(past,))
    assert few.suggestion.endswith("Changed since it last passed: kernel.cpp:24: sum = x; and 1 more place.")
    new = "\n".join(f"other {n};\nline {n};" for n in range(20))
    many = route(EDGE, candidate=candidate(f"{new}\nmore;\nlines;"), history=(past,))
    assert many.suggestion.endswith("Changed since it last passed: 22 of kernel.cpp's 42 lines.")


# -- loops -------------------------------------------------------------------------------------------------------------


def story(verdict: Verdict, rounds: int, same: bool = False) -> list[Route]:
    """The routes of a session in which every round fails in the same way."""
    history: list[Attempt] = []
    routes = []
    for number in range(rounds):
        code = candidate("code" if same else f"code {number}")
        sketch = SKETCH if same else SKETCH.replace("x * s", f"x * s + {number}")
        found = route(verdict, candidate=code, sketch=sketch, history=tuple(history))
        routes.append(found)
        history.append(Attempt(candidate=code, sketch=sketch, gate=RIGHT, verdict=verdict, route=found))
    return routes


def test_the_same_failure_three_times_goes_up_to_the_designer_and_then_stops() -> None:
    found = [route.to.value for route in story(failed(Stage.BUILD, compiler=COMPILER), 5)]
    assert found == ["coder", "coder", "designer", "designer", "stop"]


def test_a_role_that_repeats_itself_is_not_asked_a_third_time() -> None:
    found = story(failed(Stage.BUILD, compiler=COMPILER), 4, same=True)
    assert [route.to.value for route in found[:3]] == ["coder", "designer", "stop"]
    assert "same code again" in found[1].reason


def test_numbers_in_a_message_do_not_make_it_another_failure() -> None:
    first = failed(Stage.SMOKE, "It raised RuntimeError: address 0x7f01 of 512 bytes.")
    second = failed(Stage.SMOKE, "It raised RuntimeError: address 0x7f99 of 1024 bytes.")
    past = [
        Attempt(candidate=candidate(f"{n}"), sketch=SKETCH, gate=RIGHT, verdict=v, route=route(v))
        for n, v in enumerate((first, second))
    ]
    assert route(first, history=tuple(past)).to is RouteKind.DESIGNER


def test_another_failure_in_between_begins_the_count_anew() -> None:
    build, edge = failed(Stage.BUILD, compiler=COMPILER), EDGE
    past = [
        Attempt(candidate=candidate(f"{n}"), sketch=SKETCH, gate=RIGHT, verdict=v, route=route(v))
        for n, v in enumerate((build, build, edge))
    ]
    assert route(build, history=tuple(past)).to is RouteKind.CODER


def test_no_turns_left_stops_and_says_what_was_wrong() -> None:
    found = route(EDGE, turns_left=0)
    assert found.to is RouteKind.STOP
    assert "limit" in found.reason
    assert "last tile" in found.reason


def test_that_a_kernel_passed_stands_once_where_its_verdict_is_shown() -> None:
    from kernellab.agents.briefs import own_reason

    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    won = Comparison(baseline="eager", baseline_time=time, speedup=2.0, low=1.9, high=2.1)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, comparisons=[won], sol_ms=0.1)
    found = route(verdict, improve=True)
    assert found.reason == "There is headroom. Verified at T2." and own_reason(found) == "There is headroom."


SLOW_RUN = failed(Stage.CORRECT, "The kernel did not answer within 22.6 s.", signature="hang", sizes={"M": 8, "N": 129})


def test_a_run_that_the_time_limit_ended_is_no_wrong_sketch_and_the_coder_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernellab.agents.rules.conductor.is_verbatim", lambda brief: True)
    found = route(SLOW_RUN)
    assert found.to is RouteKind.CODER and found.reason.startswith("A time limit of the judge ended the run")
    assert "masks most of it" in found.suggestion and "Revise" not in found.suggestion
    assert "code is wrong" not in found.reason
    # the rules would make the same code again
    alone = route(SLOW_RUN, improvers=frozenset({Role.DESIGNER}))
    assert alone.to is RouteKind.DESIGNER and "reached the judge's time limit" in alone.suggestion
    assert "made from it failed" not in alone.suggestion
    other = route(EDGE)
    assert "time limit" not in other.reason + other.suggestion


def test_a_verification_that_took_too_long_is_no_wrong_sketch() -> None:
    late = failed(Stage.CORRECT, "The whole verification took longer than its deadline of 300 s.", signature="deadline")
    found = route(late)
    assert found.reason.startswith("A time limit of the judge ended the run") and "code is wrong" not in found.reason
    assert "failed" not in found.suggestion and "Fix what" not in found.suggestion
    wrong = route(failed(Stage.CORRECT, "It differs.", signature="wrong-values"))
    assert "time limit" not in wrong.reason


def test_a_verification_that_the_judges_own_work_filled_is_made_once_more_and_then_ends() -> None:
    words = "The whole verification took longer than its deadline of 300 s"
    own = failed(Stage.CORRECT, words, signature="deadline", called=0.01)
    found = route(own)
    assert found.to is RouteKind.CODER and "code need not change" in found.suggestion
    assert "masks most of it" not in found.suggestion and "Revise" not in found.suggestion
    past = Attempt(candidate=candidate(), sketch=SKETCH, gate=RIGHT, verdict=own, route=found)
    again = route(own, history=(past,))
    assert again.to is RouteKind.STOP and "A longer deadline is needed" in again.reason
    slow = route(failed(Stage.CORRECT, words, signature="deadline", called=0.9))
    assert "code need not change" not in slow.suggestion and "masks most of it" in slow.suggestion


def test_a_slow_interpreter_is_named_only_where_one_runs() -> None:
    brief = {"candidate": candidate(), "sketch": SKETCH, "gate": RIGHT, "verdict": SLOW_RUN, "turns_left": 9}
    target = Target("triton", Backend.INTERPRETER, Chip("A100", "gpu", 108))
    found = RulesConductor().route(RouteBrief(task=TASK, target=target, **brief))
    assert "wider tiles and fewer programs" in found.suggestion
    assert "interpreter" not in route(SLOW_RUN).suggestion


def test_no_reason_is_left_of_one_that_the_verdict_says() -> None:
    found = route(failed(Stage.BUILD, "It does not build.", compiler=COMPILER))
    assert own_reason(found) == "" and found.suggestion
    assert own_reason(route(EDGE)) == "The gate found the sketch right, so the code is wrong."
