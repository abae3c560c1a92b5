"""Advice is given where it is true, and only there: each sentence with a case in which it must not be given."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernellab.agents.briefs import Attempt, RouteBrief
from kernellab.agents.model.prompts.verdict import verdict_lines
from kernellab.agents.rules.advice import advise, failing_case
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.agents.rules.contrast import contrast_lines
from kernellab.agents.rules.fixes import fixes
from kernellab.errors import told_apart
from kernellab.records import (
    Author,
    CompilerLine,
    Diagnostic,
    Evidence,
    GateResult,
    GateState,
    RouteKind,
    Stage,
    Verdict,
)
from kernellab.records.repeats import Repeats
from kernellab.records.tried import Tried
from kernellab.sketch.check import load_program
from kernellab.sketch.syntax.pins import check_pins
from kernellab.task import load_task
from tests.agents.test_conductor import EDGE, OPAQUE, RIGHT, SKETCH, TARGET, TASK, candidate, failed, route

LESS = SKETCH.replace("x * s ->", "x - s ->")
MEAN = SKETCH.replace("x * s ->", "exp(x) / (reduce_sum(x, axis=0) / N) ->")
#: the largest argument is subtracted; of a finite number, and of a row that may be masked as a whole
SHIFTED = SKETCH.replace("x * s ->", "exp(x - reduce_max(x, axis=0)) / s ->")
MASKED = SHIFTED.replace("reduce_max(x, ", "reduce_max(where(x > s, x, -inf), ")


INDEX = load_task(
    """
import torch
from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x):
    return x.argmax(-1)


def inputs(M=64):
    return (torch.randn(M, 9),)
""",
    "index",
)


AT_33 = [Tried(sizes={"N": 33}, right=True)]
HALVES = Repeats(dimension=0, period=16, residues=[*range(8, 16)])


def said(sketch: str | None = SKETCH, task: Any = TASK, **evidence: Any) -> str:
    program = load_program(sketch) if sketch else None
    task = INDEX if task == "index" else task
    return fixes(Evidence(**evidence), task, program, "the load of X at N")


#: sentence -> evidence where it is true, and where it is not
_ROWS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("Everything is moved by one element", {"signature": "off-by-one"},
     {"signature": "off-by-one", "wrong_fraction": 0.1}),
    ("off by one factor", {"signature": "off-by-scale"}, {"signature": "off-by-constant"}),
    ("Check the divisor", {"signature": "off-by-scale", "sketch": MEAN}, {"signature": "off-by-scale"}),
    ("off by one constant", {"signature": "off-by-constant"}, {"signature": "off-by-scale"}),
    ("the initial value of the accumulator", {"signature": "off-by-constant", "sketch": MEAN},
     {"signature": "off-by-constant"}),
    ("too narrow a dtype", {"signature": "accumulate-dtype", "sketch": MEAN}, {"signature": "accumulate-dtype"}),
    ("A difference of near numbers", {"signature": "accumulate-dtype", "sketch": LESS},
     {"signature": "accumulate-dtype"}),
    ("The output stays zero", {"signature": "all-zero"}, {"signature": "all-zero", "wrong_fraction": 0.5}),
    ("NaN or inf where the reference has none", {"signature": "nan"}, {"signature": "wrong-values"}),
    ("The NaN are those of fresh memory", {"signature": "unwritten"}, {"signature": "nan"}),
    ("hold -1, with which the judge fills", {"signature": "unwritten", "task": "index"}, {"signature": "unwritten"}),
    ("The NaN are those of fresh memory", {"signature": "unwritten"}, {"signature": "unwritten", "task": "index"}),
    ("wrong only where index % 16 is 8 to 15", {"signature": "wrong-values", "wrong_fraction": 0.4, "repeats": HALVES},
     {"signature": "wrong-values", "wrong_fraction": 0.4}),
    ("Wrong elements follow no dimension", {"signature": "scattered", "wrong_fraction": 0.2},
     {"signature": "scattered", "wrong_fraction": 0.2, "repeats": HALVES}),
    ("check which of equal values", {"signature": "wrong-values", "wrong_fraction": 0.4, "task": "index"},
     {"signature": "wrong-values", "wrong_fraction": 0.4, "task": "index", "repeats": HALVES}),
    ("Guard the division, root or logarithm", {"signature": "nan", "sketch": MEAN}, {"signature": "nan"}),
    ("Guard the division, root or logarithm", {"signature": "nan", "sketch": MEAN, "family": "normal", "seed": 1},
     {"signature": "nan", "sketch": MEAN, "family": "normal"}),
    ("Subtract the largest argument", {"signature": "nan", "sketch": MEAN}, {"signature": "nan", "sketch": SHIFTED}),
    ("-inf - (-inf) is NaN", {"signature": "nan", "sketch": MASKED}, {"signature": "nan", "sketch": SHIFTED}),
    ("too narrow a dtype", {"signature": "accumulate-dtype", "sketch": MEAN, "sizes": {"N": 65}, "tried": AT_33},
     {"signature": "accumulate-dtype", "sketch": MEAN, "sizes": {"N": 13}, "tried": AT_33}),
    ("the number of terms does not decide",
     {"signature": "accumulate-dtype", "sketch": MEAN, "sizes": {"N": 13}, "tried": AT_33},
     {"signature": "accumulate-dtype", "sketch": MEAN, "sizes": {"N": 33}, "tried": AT_33}),
    ("a comparison with NaN is false", {"signature": "nan", "family": "normal"},
     {"signature": "nan", "family": "normal", "seed": 1}),
    ("Wrong elements follow no dimension", {"signature": "scattered", "wrong_fraction": 0.2},
     {"signature": "scattered", "wrong_fraction": 1.0}),
    ("wrong everywhere", {"signature": "wrong-values", "wrong_fraction": 1.0},
     {"signature": "wrong-values", "wrong_fraction": 0.03}),
    ("Look for digits that are lost", {"signature": "wrong-values", "wrong_fraction": 0.0},
     {"signature": "wrong-values", "wrong_fraction": 0.03}),
    ("Two dimensions are exchanged", {"signature": "transposed"}, {"signature": "transposed", "output": 7}),
    ("an input's copy", {"signature": "identity"}, {"signature": "stale"}),
    ("pointer of a narrower type", {"signature": "narrow-store"}, {"signature": "unwritten"}),
    ("belongs to an earlier call", {"signature": "stale"}, {"signature": "identity"}),
    ("Runs differ", {"signature": "race"}, {"signature": "scattered"}),
    ("wrong where values are equal", {"signature": "ties"}, {"signature": "wrong-values"}),
    ("another shape", {"signature": "shape"}, {"signature": "dtype"}),
    ("another dtype", {"signature": "dtype"}, {"signature": "shape"}),
    ("The number of outputs differs", {"signature": "count"}, {"signature": "shape"}),
)  # fmt: skip
_TABLE = {sentence for sentence, _, _ in _ROWS}


@pytest.mark.parametrize(("sentence", "true", "false"), _ROWS)
def test_a_sentence_is_said_where_it_holds_and_not_where_it_does_not(
    sentence: str, true: dict[str, Any], false: dict[str, Any]
) -> None:
    assert sentence in said(**true)
    assert sentence not in said(**false)


def test_ties_are_named_for_indices_and_lost_digits_for_small_errors_alone() -> None:
    few = {"signature": "scattered", "wrong_fraction": 0.02}
    assert "equal values" in said(None, INDEX, **few) and "equal values" not in said(**few)
    assert "equal values" in said(None, INDEX, signature="wrong-values", wrong_fraction=0.02)
    assert "digits that are lost" in said(**few, rel_frobenius=3e-7)
    assert "digits that are lost" not in said(**few, rel_frobenius=0.2)
    assert "race" not in said(**few)


def test_what_is_not_known_of_a_sketch_is_not_taken_to_be_absent() -> None:
    assert "Check the divisor" in said(None, signature="off-by-scale")


# -- masks and tails -----------------------------------------------------------------------------------------------


def test_no_mask_is_missing_is_said_of_lowered_code_alone() -> None:
    evidence = Evidence(signature="edge-tile", sizes={"M": 8, "N": 1024}, first_wrong=[0, 512])
    verdict = EDGE.model_copy(update={"evidence": evidence})
    own = route(verdict).suggestion
    assert "no mask is missing" not in own and "step of the code's own" in own


def test_the_end_is_blamed_only_where_the_errors_lie_there() -> None:
    def of(share: float, **more: Any) -> str:
        evidence = Evidence(signature="edge-tile", wrong_fraction=share, **more)
        return route(EDGE.model_copy(update={"evidence": evidence})).suggestion

    assert "lie at the end of the output" in of(0.1)
    spoilt = of(0.998)
    assert "lie at the end" not in spoilt and "99.8 % of the elements are wrong. Look for a loop" in spoilt
    assert "missing end spoils every result" in spoilt and "missing end" not in of(0.1)
    divided = {"sizes": {"M": 8, "N": 1024}, "first_wrong": [0, 512]}
    assert "lie at the end of N" in of(0.1, **divided) and "a step too many" in of(0.9, **divided)
    masked: dict[str, Any] = {"sizes": {"M": 8, "N": 1000}, "first_wrong": [0, 960]}
    assert "errors lie only in" in of(0.1, **masked) and "errors lie only in" not in of(0.9, **masked)
    assert "is not a full one" in of(0.9, **masked) and "is not a full one" not in of(0.1, **masked)
    assert "digits that are lost" in of(1.0, rel_frobenius=2e-5) and "a step too many" not in of(
        1.0, rel_frobenius=2e-5
    )
    assert "digits that are lost" not in of(1.0, rel_frobenius=0.3) + of(0.1, rel_frobenius=2e-5)
    assert "Look for stores of whole tiles alone" in of(1.0, error_map=["nnn", "nnn"])
    for other in (of(1.0, error_map=["nnn", "nxn"]), of(0.95, error_map=["nnn", "nnn"]), of(1.0)):
        assert "stores of whole tiles alone" not in other and "a step too many" in other, "numbers were stored"
    values = masked | {"family": "mixed", "tried": [Tried(sizes={"M": 8, "N": 1000}, right=True)]}
    assert "so values decide" in of(0.1, **values) and "errors lie only in" not in of(0.1, **values)
    assert "so values decide" not in of(0.1, **values | {"tried": [Tried(sizes={"M": 8, "N": 960}, right=True)]})
    ended = EDGE.model_copy(update={"evidence": Evidence(signature="edge-tile", wrong_fraction=0.1, **masked)})
    single = SKETCH.replace("range(0, N, BLOCK)", "range(N)").replace("n:n+BLOCK", "n")
    untiled = route(ended, sketch=single).suggestion
    assert "lie at the end of N (N=1000), along which the sketch has no tiles" in untiled
    assert "Mask" not in untiled and "Mask" in of(0.1, **masked)
    # a maximum over a dimension that lost its end is wrong anywhere
    first = {"first_wrong": [0], "error_map": ["x...."]}
    assert "lie at the end" not in of(0.2, **first) and "as over a reduced dimension" in of(0.2, **first)
    assert "as over a reduced dimension" not in of(0.2, **first | {"error_map": ["...xx"]})
    mapped = masked | {"error_map": ["x...", "...."]}
    assert "errors lie only in" not in of(0.1, **mapped) and "it is wrong where" in of(0.1, **mapped)


def tried(name: str, right: tuple[int, ...], wrong: tuple[int, ...]) -> Evidence:
    return Evidence(tried=[Tried(sizes={name: n}, right=n in right) for n in sorted((*right, *wrong))])


def test_a_failing_kernel_shows_where_it_is_right_and_the_smallest_size_where_it_is_not() -> None:
    lines = contrast_lines(tried("S", (32, 64), (29, 33, 65)))
    assert lines[:2] == ["The smallest failing size is S=29.", "Right at S=32, 64; wrong at S=29, 33, 65."]
    step = "S is a multiple of 32 (16, 8, 4 and 2 fit as well)"
    assert lines[2] == f"Of the sizes tried it is right exactly where {step}: look for a missing tail."
    assert not any("multiple" in line for line in contrast_lines(tried("S", (29, 64), (32, 33))))
    assert contrast_lines(tried("S", (), (1, 64))) == ["It is wrong at each of 2 small sizes that were tried, S=1 too."]
    assert "right at all" in contrast_lines(tried("S", (1, 64), ()))[0]
    assert contrast_lines(Evidence()) == []
    same = Evidence(sizes={"S": 900}, family="normal", tried=[Tried(sizes={"S": 900}, family="inputs", right=False)])
    assert contrast_lines(same) == ["With the task's own inputs it is wrong at these sizes, too."]
    both = [*same.tried, *(Tried(sizes={"S": n}, family="inputs", right=False) for n in (8, 1))]
    assert contrast_lines(same.model_copy(update={"tried": both})) == [
        "It is wrong at each of 2 small sizes that were tried, S=1 too."
    ]
    assert "small" in contrast_lines(same.model_copy(update={"sizes": {"S": 901}}))[0]


def test_of_several_dims_the_one_that_tells_right_from_wrong_is_named() -> None:
    cases = [({"B": 64, "S": 64}, True), ({"B": 33, "S": 64}, True), ({"B": 64, "S": 33}, False)]
    lines = contrast_lines(Evidence(tried=[Tried(sizes=s, right=r) for s, r in cases]))
    assert lines[0] == "The smallest failing size is B=64, S=33."
    assert not any("where B" in line for line in lines)


def test_dims_that_cannot_be_told_apart_are_named_together() -> None:
    cases = [(1, 1, True), (16, 16, True), (32, 32, True), (5, 29, False), (33, 33, False)]
    evidence = Evidence(tried=[Tried(sizes={"B": b, "S": s}, right=right) for b, s, right in cases])
    step = "where B and S are multiples of 16 (8, 4 and 2 fit as well), or where every size is 1"
    assert step in contrast_lines(evidence)[-1]
    both = Evidence(tried=[Tried(sizes={"N": n, "D": n}, right=n < 17) for n in (8, 16, 17, 32)])
    assert "where N and D are at most 16, and wrong from 17 on" in contrast_lines(both)[-1]
    one = Evidence(
        tried=[Tried(sizes={"N": n, "D": d}, right=d < 17) for n, d in ((8, 8), (16, 16), (32, 17), (33, 64))]
    )
    assert "where D is at most 16" in contrast_lines(one)[-1]
    first = Evidence(tried=[Tried(sizes={"N": n}, right=n < 2) for n in (0, 1, 2, 8)])
    assert "at most" not in "".join(contrast_lines(first))


def test_where_the_sizes_tell_right_from_wrong_no_other_cause_is_guessed() -> None:
    end = tried("D", (2, 15, 16), (17, 29)).model_copy(update={"signature": "wrong-values", "wrong_fraction": 0.07})
    sizes, unknown = (EDGE.model_copy(update={"evidence": e}) for e in (end, end.model_copy(update={"tried": []})))
    assert suggested(sizes).startswith("It is right where D is at most 16") and "stage found" not in suggested(sizes)
    assert "stage found" in suggested(unknown)
    known = tried("N", (16, 32), (15, 17)).model_copy(update={"signature": "edge-tile", "wrong_fraction": 1.0})
    assert "multiple of 16" in suggested(EDGE.model_copy(update={"evidence": known}))
    assert "a step too many" not in suggested(EDGE.model_copy(update={"evidence": known}))


def test_a_mask_is_missing_in_the_dimension_that_the_sizes_name() -> None:
    cases = [Tried(sizes={"M": m, "N": n}, right=m % 16 == 0) for m in (15, 16, 32, 33) for n in (15, 1000)]
    assert "Mask" in suggested(EDGE)
    other = suggested(EDGE.model_copy(update={"evidence": EDGE.evidence.model_copy(update={"tried": cases})}))
    assert "exactly where M is a multiple of 16" in other and "Mask" not in other
    turned = [case.model_copy(update={"sizes": {"M": case.sizes["N"], "N": case.sizes["M"]}}) for case in cases]
    assert "Mask" in suggested(EDGE.model_copy(update={"evidence": EDGE.evidence.model_copy(update={"tried": turned})}))


def test_a_dimension_that_the_sketch_takes_point_by_point_has_no_last_tile() -> None:
    points = SKETCH.replace("symbols: M, N", "symbols: N").replace("[M", "[3").replace("range(M)", "range(3)")
    task = load_task(
        "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 4096)\ndef reference(x, s):\n"
        "    return x * s[:, None]\ndef inputs(N=100):\n    return torch.randn(3, N), torch.randn(3)\n",
        "three",
    )
    shown = Evidence(signature="edge-tile", sizes={"N": 33}, first_wrong=[2, 0], wrong_fraction=0.1)
    verdict = EDGE.model_copy(update={"evidence": shown})
    brief = RouteBrief(task, TARGET, points, RIGHT, candidate(), verdict, turns_left=3)
    assert "dimension of 3" not in advise(brief, RouteKind.CODER)
    tiles = points.replace("range(3)", "range(0, 3, 2)").replace("[m", "[m:m+2").replace("x * s", "x * s[:, None]")
    assert "dimension of 3" in advise(replace(brief, sketch=tiles), RouteKind.CODER)


def test_the_cases_that_were_tried_stand_in_the_order_of_their_sizes() -> None:
    cases = [(4000, 32000), (8, 8), (15, 15)]
    evidence = Evidence(tried=[Tried(sizes={"N": n, "E": e}, right=False) for n, e in cases])
    right = Tried(sizes={"N": 2, "E": 1}, right=True)
    told = contrast_lines(evidence.model_copy(update={"tried": [*evidence.tried, right]}))
    assert any("wrong at (N=8, E=8); (N=15, E=15); (N=4000, E=32000)" in line for line in told)


def test_the_failing_case_stands_once() -> None:
    evidence = tried("N", (16, 32), (15, 18)).model_copy(update={"sizes": {"N": 15}, "family": "scaled"})
    silent = EDGE.model_copy(update={"evidence": evidence, "reason": "It differs."})
    telling = silent.model_copy(update={"reason": "It differs (N=15, family scaled)."})
    for lines in (verdict_lines, lambda verdict: route(verdict).evidence):
        assert "failing case: N=15, scaled inputs" in lines(silent)
        assert not any("failing case" in line or "smallest" in line for line in lines(telling))
    other = telling.model_copy(update={"evidence": evidence.model_copy(update={"sizes": {"N": 18}})})
    assert any("smallest failing size is N=15" in line for line in verdict_lines(other))


def test_what_the_library_computes_is_to_be_written_and_no_option_is_named() -> None:
    theirs = "83% of the time is in torch_cpu, not its own code, by 30 samples of its program counters"
    refused = Verdict(passed=False, stage=Stage.HONEST, reason=theirs, evidence=Evidence(signature="library"))
    assert route(refused).suggestion.endswith("Write that part as a kernel in this source.")
    assert "kernel in this source" not in route(EDGE).suggestion


def test_the_suggestion_begins_with_what_tells_right_from_wrong_and_the_sizes_stand_once() -> None:
    evidence = tried("N", (16, 32), (15, 17)).model_copy(update={"signature": "wrong-values", "wrong_fraction": 1.0})
    found = route(EDGE.model_copy(update={"evidence": evidence}))
    assert found.suggestion.startswith("Of the sizes tried it is right exactly where N is a multiple of 16")
    assert "Right at" not in found.suggestion and "Right at N=16, 32; wrong at N=15, 17." in found.evidence
    no_multiple = evidence.model_copy(update={"tried": tried("N", (15, 32), (16, 17)).tried})
    assert "multiple" not in route(EDGE.model_copy(update={"evidence": no_multiple})).suggestion
    assert any("smallest failing size is N=15" in line for line in found.evidence)


# -- changes and pins ----------------------------------------------------------------------------------------------


def test_only_files_that_changed_are_said_to_have() -> None:
    passed = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    head = "# Lowered from this sketch, which `kernellab sketch lift` reads; code 0123456789abcdef."
    block = f"\n\n{head}\n#| sketch s {{\n"
    before, now = candidate("a\nmasked\nc"), candidate("a\nplain\nc")
    with_block = before.source.model_copy(update={"files": {**before.source.files, "kernel.py": f"x = 1{block}"}})
    without = now.source.model_copy(update={"files": {**now.source.files, "kernel.py": "x = 1"}})
    past = Attempt(
        candidate=before.model_copy(update={"source": with_block}), sketch=SKETCH, gate=RIGHT, verdict=passed
    )
    found = route(EDGE, candidate=now.model_copy(update={"source": without}), history=(past,))
    assert "kernel.py" not in found.suggestion
    assert found.suggestion.endswith("Changed since it last passed: kernel.cpp:2: plain.")


def test_of_a_race_the_change_that_threads_share_is_named() -> None:
    passed = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    lines = "int p = {};\nrun();\nload();\n  {}float s;\nend();\nstore();\nend();"
    before, now = lines.format(1, ""), lines.format(2, "static ")
    past = Attempt(candidate=candidate(before), sketch=SKETCH, gate=RIGHT, verdict=passed)
    for signature, named in (("race", "static float s;"), ("wrong-values", "int p = 2;")):
        wrong = EDGE.model_copy(update={"evidence": Evidence(signature=signature)})
        found = route(wrong, candidate=candidate(now), history=(past,))
        assert re.search(rf"Changed since it last passed: kernel.cpp:\d: {re.escape(named)}", found.suggestion)


def test_a_change_is_not_blamed_for_lost_digits() -> None:
    passed = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    past = Attempt(candidate=candidate("BD = 48"), sketch=SKETCH, gate=RIGHT, verdict=passed)
    for signature, blamed in (("accumulate-dtype", False), ("wrong-values", True)):
        wrong = EDGE.model_copy(update={"evidence": Evidence(signature=signature)})
        found = route(wrong, candidate=candidate("BD = 144"), history=(past,))
        assert ("Changed since it last passed" in found.suggestion) is blamed


def test_a_pin_whose_mark_alone_is_missing_is_told_so() -> None:
    pinned = SKETCH.replace("load(S[m] -> s)", "load(S[m] -> s)  #: pin")
    (found,) = check_pins(pinned, SKETCH, Author.MODEL)
    assert found.rule == "pin-mark" and found.line == 8 and "`#: pin`" in found.remedy
    (changed,) = check_pins(pinned, SKETCH.replace("S[m] -> s", "S[m+0] -> s"), Author.MODEL)
    assert changed.rule == "pin"
    assert not check_pins(pinned, pinned, Author.MODEL)


# -- each figure and each failure once ---------------------------------------------------------------------------------


def test_what_is_right_at_some_sizes_is_not_told_to_be_wrong_as_a_whole() -> None:
    some = tried("N", (15, 32), (16, 17)).tried
    for signature in ("all-zero", "wrong-values", "off-by-one"):
        whole, sizes = said(signature=signature), said(signature=signature, tried=some)
        assert "depends on the size" in sizes and "depends on the size" not in whole
        assert not set(whole.split(". ")) & set(sizes.split(". "))
    assert "depends on the size" not in said(signature="all-zero", tried=tried("N", (), (16, 17)).tried)
    one = said(signature="wrong-values", sizes={"N": 16}, tried=tried("N", (1,), (2, 16)).tried)
    assert "from the second element on" in one and "at some others" not in one and "wrong everywhere" not in one
    assert "from the second element on" not in said(signature="wrong-values", sizes={"N": 16}, tried=some)
    assert "depends on the size" not in said(signature="transposed", tried=some)
    of_one_family = [Tried(sizes={"N": 16}, family="zeros", right=True)]
    assert "The output stays zero" in said(signature="all-zero", tried=of_one_family)


def test_a_known_multiple_is_the_only_word_on_sizes() -> None:
    evidence = tried("N", (16, 32), (15, 17)).model_copy(
        update={"signature": "all-zero", "wrong_fraction": 1.0, "sizes": {"N": 15}}
    )
    found = route(EDGE.model_copy(update={"evidence": evidence}))
    assert "multiple of 16" in found.suggestion and "each tile is stored" not in found.suggestion
    assert "N=15" not in found.suggestion and "failing case: N=15" in found.evidence


def test_a_compilers_message_stands_once() -> None:
    line = CompilerLine(file="kernel.cpp", line=2, message="'y' was not declared")
    other = line.model_copy(update={"message": "'z' was not declared"})
    verdict = Verdict(
        passed=False, stage=Stage.BUILD, reason="kernel.cpp, line 2: 'y' was not declared.",
        evidence=Evidence(compiler=[line, other]),
    )  # fmt: skip
    found = route(verdict)
    text = "\n".join([found.suggestion, *found.evidence])
    assert text.count("'y' was not declared") == 1 and text.count("'z' was not declared") == 1
    assert found.suggestion == "Fix kernel.cpp:2."
    unsaid = route(verdict.model_copy(update={"reason": "It does not build."}))
    assert "kernel.cpp:2: 'y' was not declared" in unsaid.evidence


def test_a_warning_of_the_sketch_is_no_fact_of_code_that_was_written_by_hand() -> None:
    warned = Diagnostic(code="SK318", severity="warning", message="Adds in any order.", line=9, col=1)
    gate = RIGHT.model_copy(update={"diagnostics": [warned]})
    own = candidate().model_copy(update={"author": Author.MODEL})
    assert any("Adds in any order" in line for line in route(EDGE, gate=gate).evidence)
    assert not any("Adds in any order" in line for line in route(EDGE, gate=gate, candidate=own).evidence)
    wrong = GateResult(
        state=GateState.WRONG, reason="No.", diagnostics=[warned.model_copy(update={"severity": "error"})]
    )
    assert any("Adds in any order" in line for line in route(EDGE, gate=wrong, candidate=own).evidence)


def test_code_of_another_design_is_not_said_to_have_changed() -> None:
    passed = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    before, now = candidate("a\nmasked\nc"), candidate("a\nplain\nc")
    wider = before.model_copy(update={"constexpr": {"BLOCK": 32}})
    for past, changed in ((before, True), (wider, False)):
        history = (Attempt(candidate=past, sketch=SKETCH, gate=RIGHT, verdict=passed),)
        assert ("Changed since" in route(EDGE, candidate=now, history=history).suggestion) is changed


# -- every sentence ----------------------------------------------------------------------------------------------------

BUILD = failed(Stage.BUILD, "It does not build.", compiler=[CompilerLine(file="kernel.cpp", line=2, message="no")])
FAULT = Diagnostic(code="SK101", message="Unknown name 'z'.", line=9, col=1)
NOTE = FAULT.model_copy(update={"severity": "warning"})


def gated(*found: Diagnostic, cases: int = 0) -> GateResult:
    return GateResult(state=GateState.WRONG, reason="It differs.", diagnostics=list(found), cases=cases)


def suggested(*args: Any, **fields: Any) -> str:
    return route(*args, **fields).suggestion


#: sentence -> where it is true, and where it is not
GIVEN: dict[str, tuple[Any, Any]] = {
    "Revise the sketch: the code made from it": (
        lambda: suggested(failed(Stage.CORRECT, signature="wrong-values"), OPAQUE),
        lambda: suggested(failed(Stage.CORRECT, signature="wrong-values")),
    ),
    "Write a sketch for this task": (lambda: suggested(None, None), lambda: suggested(None, gated(cases=3))),
    "the sketch so that code can be made of it": (
        lambda: suggested(None, error="It has a scan."),
        lambda: suggested(None, error="It has a scan.", sketch=None),
    ),
    "code that can be used": (
        lambda: suggested(None, error="No file.", sketch=None),
        lambda: suggested(None, error="No file."),
    ),
    "Fix line 9": (lambda: suggested(None, gated(FAULT)), lambda: suggested(None, gated(NOTE, cases=3))),
    "The sketch does not compute the reference": (
        lambda: suggested(None, gated(cases=3)),
        lambda: suggested(None, gated()),
    ),
    "Fix the sketch": (lambda: suggested(None, gated()), lambda: suggested(None, gated(cases=3))),
    "Fix what the": (lambda: suggested(failed(Stage.ROBUST)), lambda: suggested(BUILD)),
    "Follow one wrong element": (
        lambda: suggested(failed(Stage.CORRECT, signature="wrong-values", wrong_fraction=0.2, first_wrong=[1, 2])),
        lambda: suggested(failed(Stage.CORRECT, signature="wrong-values", wrong_fraction=1.0, first_wrong=[1, 2])),
    ),
    "made from sketch line": (
        lambda: suggested(BUILD, candidate=candidate(line_map={"kernel.cpp": {2: 9}})),
        lambda: suggested(BUILD),
    ),
    "Changed since it last passed": (lambda: suggested(EDGE, history=_passed("b")), lambda: suggested(EDGE)),
    "lines removed before it": (
        lambda: suggested(EDGE, candidate=candidate("a\nc"), history=_passed("a\nb;\nc")),
        lambda: suggested(EDGE, candidate=candidate("a\nx;\nc"), history=_passed("a\nb;\nc")),
    ),
    "look for a missing tail": (
        lambda: "\n".join(contrast_lines(tried("N", (16, 32), (15, 17)))),
        lambda: "\n".join(contrast_lines(tried("N", (15, 32), (16, 17)))),
    ),
    "an array, a mask or a loop of that length": (
        lambda: "\n".join(contrast_lines(tried("D", (2, 15, 16), (17, 29)))),
        lambda: "\n".join(contrast_lines(tried("D", (2, 15, 16), (29, 33)))),
    ),
    "It is wrong at each of": (
        lambda: "\n".join(contrast_lines(tried("N", (), (15, 17)))),
        lambda: "\n".join(contrast_lines(tried("N", (16,), (15, 17)))),
    ),
    "at the small size that was tried": (
        lambda: "\n".join(contrast_lines(tried("N", (), (15,)))),
        lambda: "\n".join(contrast_lines(tried("N", (), (15, 17)))),
    ),
    "it is right at all that were tried": (
        lambda: "\n".join(contrast_lines(tried("N", (15, 17), ()))),
        lambda: "\n".join(contrast_lines(tried("N", (16,), (15, 17)))),
    ),
}


def _passed(text: str) -> tuple[Attempt, ...]:
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="ok")
    return (Attempt(candidate=candidate(text), sketch=SKETCH, gate=RIGHT, verdict=verdict),)


@pytest.mark.parametrize("sentence", GIVEN)
def test_advice_is_given_where_it_holds_and_not_where_it_does_not(sentence: str) -> None:
    true, false = GIVEN[sentence]
    assert sentence in true()
    assert sentence not in false()


#: sentences whose two cases are tests of this file and of others: what is said, and the test's file
ELSEWHERE = {
    "tests/agents/test_advice.py": (
        "a step too many or too few", "errors lie only in", "lie at the end of", "no mask is missing",
        "of the code's own", "smallest failing size", "as over a reduced dimension", "so values decide",
        "from the second element on", "Right at", "depends on the size", "is not a full one",
        "stores of whole tiles alone",
    ),
    "tests/agents/test_conductor.py": ("reached the judge's time limit",),
    "tests/agents/test_performance.py": (
        "were not faster", "still the best", "No one asked", "Every design of the rules", "is not known",
        "of the speed-of-light bound", "limit of turns", "sketch's roofline", "was not asked", "--tune",
        "could not be costed", "Change one thing at a time", "times the arithmetic", "earlier kernel",
        "keep eager", "must do without", "call of the framework's library", "on chip",
        "The sketch allows the bound", "make them smaller", "Make a sketch of the steps",
        "mark a loop", "Only ", "The hot operation is",
    ),
    "tests/session/test_model_roles.py": ("save launches",),
    "tests/lens/test_hot_lines.py": (
        "Begin at ", "around the lines", "No line of the kernel has more than",
        "so by the cost model the time goes into",
        "look at the calls of them", "look at what its", "the compiler makes vectors", "begin there",
        "was not sampled", "threads that start or wait", "Faster lines change", "in the call and its host code",
    ),
}  # fmt: skip


def test_every_sentence_of_advice_has_a_case_in_which_it_is_not_given() -> None:
    root = Path(__file__).parents[2]
    tables = set(GIVEN) | _TABLE
    for file, sentences in ELSEWHERE.items():
        text = (root / file).read_text()
        assert [s for s in sentences if text.count(s) < 1] == [], file
        tables |= set(sentences)
    tables |= {"elements are wrong only where", "equal values", "digits that are lost"}
    named = re.compile("|".join(map(re.escape, tables)))
    rules = root / "kernellab" / "agents" / "rules"
    modules = ("advice", "fixes", "performance", "sampled", "slow")
    texts = [said for name in modules for said in _imperatives(rules / f"{name}.py")]
    assert len(texts) > 20
    missing = [said for said in texts if not named.search(said)]
    assert missing == []


def _imperatives(path: Path) -> list[str]:
    """The texts of a module that tell somebody to do something."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    documents = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    parts = {id(v) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for v in node.values}
    texts = [
        "".join(v.value if isinstance(v, ast.Constant) else "9" for v in node.values)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
    ]
    texts += [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
              and id(n) not in parts and "\n" not in n.value and n.value not in documents]  # fmt: skip
    verbs = (
        "check|look|measure|mark|split|keep|begin|mask|fix|write|revise|compare|guard|derive|cast|return|accumulate|"
        "change|make|compute"
    )
    begins = re.compile(rf"(?:^|[:;,.] )(?:and )?(?:{verbs}) ", re.IGNORECASE)
    return [text for text in texts if len(text.split()) > 3 and begins.search(text)]


# -- said once, and in words that a reader knows -------------------------------------------------------------------


def test_advice_does_not_repeat_the_reason() -> None:
    reason = "2659 of 559440 elements are wrong, only at 0 of dimension 1; wrong-values."
    found = route(failed(Stage.CORRECT, reason, signature="wrong-values", wrong_fraction=0.005))
    assert found.suggestion == "Fix what the correct stage found." and reason not in found.suggestion


def test_the_failing_case_of_fixed_sizes_names_its_inputs_alone() -> None:
    fixed = failed(Stage.CORRECT, "It is wrong.", sizes={"u.0": 8, "u.1": 210}, family="inputs")
    assert failing_case(fixed) == ["failing case: the task's own inputs"]
    dims = failed(Stage.CORRECT, "It is wrong.", sizes={"M": 8}, family="mixed")
    assert failing_case(dims) == ["failing case: M=8, mixed inputs"]


FIXED = """
sketch fixed {
    tensors: x[8, 144]: f32; y[8, 144]: f32 out;
    constexpr: BD = 48 in {48, 144};

    @llm_hint("parallel", "coreidx")
    for m in range(8):
        for n in range(0, 144, BD):
            load(x[m, n:n+BD] -> t)
            store(t + 1.0 -> y[m, n:n+BD])
}
"""


def test_a_dimension_that_has_no_name_is_not_said_to_be_without_tiles() -> None:
    text = "import torch\ndef reference(x):\n    return x + 1\ndef inputs():\n    return (torch.rand(8, 144),)\n"
    evidence = Evidence(signature="edge-tile", first_wrong=[3, 128], output=0, wrong_fraction=0.1)
    verdict = EDGE.model_copy(update={"evidence": evidence})
    brief = RouteBrief(
        task=load_task(text, "fixed"), target=TARGET, gate=RIGHT, verdict=verdict, candidate=candidate(), sketch=FIXED,
        history=(), turns_left=9,
    )  # fmt: skip
    told = RulesConductor().route(brief).suggestion
    assert "the dimension of 144" in told and "no tiles" not in told and "144=144" not in told


def test_a_value_next_to_one_that_is_no_number_has_as_few_digits() -> None:
    assert told_apart("nan", -1.3660883903503418) == "got nan, want -1.36609"
    assert told_apart(1.0000001, 1.0000002) == "got 1.0000001, want 1.0000002"
