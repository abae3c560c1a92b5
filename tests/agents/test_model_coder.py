"""A model's code comes as files or edits, applied all or not at all, and starts from what the rules compile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab.agents.briefs import Attempt, CodeBrief, CodeReply
from kernellab.agents.model import AnswerError, ModelCoder, Options
from kernellab.agents.rules.coder import RulesCoder
from kernellab.errors import ModelError
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import Author, Candidate, CompilerLine, Evidence, Role, Route, RouteKind, Source, Stage, Verdict
from tests.agents.model_parts import AFFINE, CPU, SKETCH, line
from tests.models.fake_server import answer

BRIEF = CodeBrief(task=AFFINE, target=CPU, sketch=SKETCH, constexpr={"BLOCK": 128})
LOWERED = RulesCoder().code(BRIEF).source
CPP = LOWERED.files["kernel.cpp"]
STORE = next(row for row in CPP.splitlines() if "+ 1.0" in row)
#: as a prompt shows it
SHOWN = STORE.partition(": store")[0]


def edit(search: str, new: str, file: str = "kernel.cpp") -> str:
    return f"EDIT: {file}\n<<<<<<< SEARCH\n{search}\n=======\n{new}\n>>>>>>> REPLACE\n"


def test_keep_is_the_rules_code_and_may_run_as_theirs() -> None:
    with line(Role.CODER, "The loop is already one vector loop.\n\nKEEP") as to:
        reply = ModelCoder(to.talk).code(BRIEF)
    assert reply.source == LOWERED and reply.source.origin is Author.RULES
    assert reply.constexpr == {"BLOCK": 128}
    assert to.purposes == ["code"]


def test_an_edit_changes_its_lines_alone_and_the_map_to_the_sketch_moves_along() -> None:
    first = "#include <cstdint>\n" + CPP.splitlines()[0]
    reply_text = "I add a header.\n\n" + edit(CPP.splitlines()[0], first)
    with line(Role.CODER, reply_text) as to:
        source = ModelCoder(to.talk).code(BRIEF).source
    assert source.files["kernel.cpp"] == "#include <cstdint>\n" + CPP
    # a model's code is no lowering of the sketch, and carries none
    assert source.files["kernel.py"] == bare(LOWERED).files["kernel.py"] and source.origin is Author.MODEL
    assert source.line_map["kernel.cpp"] == {k + 1: v for k, v in LOWERED.line_map["kernel.cpp"].items()}


def test_a_search_text_that_differs_in_blanks_is_found_and_the_new_text_takes_the_indentation() -> None:
    loose = "  ".join(SHOWN.split())
    with line(Role.CODER, edit(loose, "// new\n" + STORE.strip())) as to:
        source = ModelCoder(to.talk).code(BRIEF).source
    indent = STORE[: len(STORE) - len(STORE.lstrip())]
    assert f"\n{indent}// new\n{STORE}\n" in source.files["kernel.cpp"]


def test_comments_that_quote_the_sketch_are_told_as_numbers_and_kept_in_full() -> None:
    assert f"{SHOWN}: store(x_tile * scale + 1.0 -> y[m, n:n+BLOCK])" == STORE
    for search in (SHOWN, STORE):
        with line(Role.CODER, edit(search, f"// new\n{SHOWN}")) as to:
            source = ModelCoder(to.talk).code(BRIEF).source
        assert source.files["kernel.cpp"] == CPP.replace(STORE, f"// new\n{STORE}")
    told = to.asked[0][-1]["content"]
    assert f"{SHOWN}\n" in told and STORE not in told
    assert "10 |             store(x_tile * scale + 1.0 -> y[m, n:n+BLOCK])" in told


def test_a_whole_file_replaces_its_file_and_the_helpers_stay() -> None:
    with line(Role.CODER, f"FILE: kernel.cpp\n```cpp\n// mine\n{CPP}```\n") as to:
        source = ModelCoder(to.talk).code(BRIEF).source
    assert source.files["kernel.cpp"] == f"// mine\n{CPP}"
    assert source.files.keys() == LOWERED.files.keys()


@pytest.mark.parametrize(
    ("faulty", "told"),
    [
        (edit("  float nowhere = 1;", "  float x = 2;"), "does not occur in kernel.cpp"),
        (edit(STORE, "") + edit("  no such line at all", "x"), "Edit 2"),
        (edit("}", "};"), "times in kernel.cpp"),
        (edit(STORE, "x", "other.cpp"), "there is no file other.cpp"),
        ("<<<<<<< SEARCH\n}\n=======\n", "not complete"),
        ("I would unroll the loop.", "no code"),
        ("FILE: ../kernel.cpp\n```cpp\nint x;\n```", "leaves the kernel's folder"),
        ("FILE: kernel.py\n```python\ndef kernel(x)\n    return x\n```", "kernel.py:1"),
        ("FILE: kernel.py\n```python\ndef other(x):\n    return x\n```", "does not define kernel"),
        ("FILE: kernel.cpp\n```cpp\nstatic int unused = 1;\n```", "No function of the C++ source is called"),
        ("```cpp\nint a;\n```\nand\n```cpp\nint b;\n```", "no file name"),
        ("```cpp\nint a = 1;\n```", "Your block has no FILE: line, so it was taken for the whole of kernel.cpp"),
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing_and_goes_back(faulty: str, told: str) -> None:
    with line(Role.CODER, faulty, "KEEP") as to:
        assert ModelCoder(to.talk).code(BRIEF).source == LOWERED
    assert to.purposes == ["code", "edit"]
    assert told in to.asked[1][-1]["content"]
    assert "Nothing of your answer was applied" in to.asked[1][-1]["content"]


def test_a_finding_names_no_file_that_its_author_has_not_seen() -> None:
    with line(Role.CODER, "```cpp\nint a = 1;\n```", "KEEP") as to:
        ModelCoder(to.talk).code(BRIEF)
    told = to.asked[1][-1]["content"]
    assert "No function of the C++ source is called" in told and "kl_tile.h" not in told


def test_the_nearest_lines_are_shown_when_a_search_text_is_not_found() -> None:
    with line(Role.CODER, edit(STORE.replace("1.0", "9.0"), "x"), "KEEP") as to:
        ModelCoder(to.talk).code(BRIEF)
    assert SHOWN in to.asked[1][-1]["content"]


def test_the_rounds_end_with_the_last_fault() -> None:
    with line(Role.CODER, "Later.", "No.") as to, pytest.raises(AnswerError, match="None of the model's 2 answers"):
        ModelCoder(to.talk, options=Options(repairs=1)).code(BRIEF)


@pytest.mark.parametrize("reply", ["Later.", edit(STORE.replace("1.0", "9.0"), "x")])
def test_a_model_that_gives_the_same_answer_again_is_asked_no_more(reply: str) -> None:
    with line(Role.CODER, reply) as to, pytest.raises(AnswerError, match="same reply again") as raised:
        ModelCoder(to.talk, options=Options(repairs=3)).code(BRIEF)
    assert to.purposes == ["code", "edit"] and "another model, the rules or a person" in raised.value.remedy


def test_a_cut_answer_is_never_code() -> None:
    whole = f"FILE: kernel.cpp\n```cpp\n// mine\n{CPP}```\n"
    with line(Role.CODER, answer(whole, finish="length")) as to, pytest.raises(ModelError, match="cut off"):
        ModelCoder(to.talk).code(BRIEF)


BAD = LOWERED.model_copy(update={"files": {**LOWERED.files, "kernel.cpp": CPP.replace("+ 1.0", "+ 3.0")}})
VERDICT = Verdict(
    passed=False, stage=Stage.CORRECT, reason="The output is off by 2 everywhere.",
    evidence=Evidence(signature="off-by-constant", sizes={"M": 3, "N": 65}, first_wrong=[0, 0], got=3.0, want=1.0,
                      error_map=["..xx", "...x"], mapped=(3, 8)),
)  # fmt: skip
ROUTE = Route(to=RouteKind.CODER, error_class="algorithm", reason="The sketch is right.", suggestion="Check the 3.0.")
AGAIN = replace(
    BRIEF, previous=BAD, route=ROUTE,
    history=(
        Attempt(sketch=SKETCH, candidate=Candidate(id="c1", source=BAD, sketch=SKETCH), verdict=VERDICT, route=ROUTE),
    ),
)  # fmt: skip


def test_the_last_code_is_shown_with_its_verdict_and_criticised_in_the_same_request() -> None:
    wrong = next(row for row in BAD.files["kernel.cpp"].splitlines() if "+ 3.0" in row)
    reply_text = f"CRITIQUE: line 9 adds 3 where the sketch adds 1.\n\nMended.\n\n{edit(wrong, STORE)}"
    with line(Role.CODER, reply_text) as to:
        reply = ModelCoder(to.talk).code(AGAIN)
    assert reply.source == LOWERED, "to the byte the rules' code again"
    assert "line 9 adds 3" in reply.rationale
    assert to.purposes == ["edit"]
    told = to.asked[0][-1]["content"]
    for part in (
        VERDICT.reason,
        "got 3, want 1",
        "..xx\n...x",
        "3 rows by 8 columns; a line is 1 or 2 rows, a sign 2 columns",
        "+ 3.0",
        "Check the 3.0.",
        "CRITIQUE",
    ):
        assert part in told
    assert "kl_math.h" in told and "namespace kl" not in told, "helpers are named and not shown"


def test_the_code_that_failed_is_not_taken_again() -> None:
    same = f"FILE: kernel.cpp\n```cpp\n{BAD.files['kernel.cpp']}```\n"
    with line(Role.CODER, same, edit("+ 3.0", "x"), f"FILE: kernel.cpp\n```cpp\n{CPP}```\n") as to:
        assert ModelCoder(to.talk).code(AGAIN).source == LOWERED
    assert "same as before" in to.asked[1][-1]["content"]


def test_compiler_lines_go_before_the_log() -> None:
    lines = [CompilerLine(file="kernel.cpp", line=7, message="error: 'foo' was not declared")]
    evidence = Evidence(compiler=lines, log="noise " * 900)
    failed = Verdict(passed=False, stage=Stage.BUILD, reason="It does not compile.", evidence=evidence)
    brief = replace(AGAIN, history=(replace(AGAIN.history[0], verdict=failed),))
    with line(Role.CODER, f"FILE: kernel.cpp\n```cpp\n{CPP}```\n") as to:
        ModelCoder(to.talk).code(brief)
    told = to.asked[0][-1]["content"]
    assert "kernel.cpp:7: error: 'foo' was not declared" in told and "noise noise" not in told


WIDER = SKETCH.replace("BLOCK = 64 in {64, 128}", "BLOCK = 256 in {256, 512}")
BY_HAND = LOWERED.model_copy(update={"files": {**LOWERED.files, "kernel.cpp": f"// by hand\n{CPP}"}})


def test_after_a_redesign_the_new_sketchs_lowering_is_the_base_and_keep_means_it() -> None:
    brief = replace(
        BRIEF, sketch=WIDER, constexpr={"BLOCK": 512}, previous=BY_HAND, previous_sketch=SKETCH,
        previous_constexpr={"BLOCK": 128}, history=(Attempt(candidate=Candidate(id="c1", source=BY_HAND)),),
    )  # fmt: skip
    with line(Role.CODER, "KEEP") as to:
        reply = ModelCoder(to.talk).code(brief)
    assert isinstance(reply, CodeReply)
    assert reply.source == RulesCoder().code(brief).source != LOWERED
    told = to.asked[0][-1]["content"]
    assert "-    constexpr: scale = 2.0; BLOCK = 64 in {64, 128};" in told
    assert "+// by hand" in told
    assert "BLOCK = 512" in told
    assert "Your last code" not in told


def after_a_pass() -> CodeBrief:
    passed = Attempt(
        candidate=Candidate(id="c1", source=LOWERED, sketch=SKETCH), sketch=SKETCH,
        verdict=Verdict(passed=True, stage=Stage.FAST, reason="ok"),
    )  # fmt: skip
    return replace(BRIEF, previous=LOWERED, previous_sketch=SKETCH, history=(passed,))


def test_keep_of_code_that_passed_is_the_end() -> None:
    brief = after_a_pass()
    for reply in ("KEEP", '{"done": "One pass over memory."}'):
        with line(Role.CODER, reply) as to:
            route = ModelCoder(to.talk).code(brief)
        assert isinstance(route, Route) and route.to is RouteKind.FINISH


def test_it_may_say_that_it_is_done_after_an_answer_that_could_not_be_used() -> None:
    brief = after_a_pass()
    broken = tuple(edit(f"+ {n}.0", "x") for n in (3, 4, 5))
    for bad in (broken[:1], broken):
        with line(Role.CODER, *bad, '{"done": "I know no faster one."}') as to:
            route = ModelCoder(to.talk).code(brief)
        assert isinstance(route, Route) and route.reason == "I know no faster one."


def test_without_a_sketch_the_task_is_all_and_no_code_is_lowered() -> None:
    files = "".join(f"FILE: {name}\n```\n{text}```\n" for name, text in LOWERED.files.items())
    with line(Role.CODER, files) as to:
        source = ModelCoder(to.talk).code(replace(BRIEF, ablation=frozenset({"sketch"}))).source
    assert source.files == LOWERED.files and source.origin is Author.MODEL
    told = "".join(m["content"] for m in to.asked[0])
    assert "sketch affine" not in told and "#pragma omp" not in told


def test_a_sketch_that_cannot_be_lowered_leaves_the_reason_and_the_model_writes_all() -> None:
    opaque = SKETCH.replace("constexpr:", "opaque: twist(x[N]: f32) -> [N]: f32;\n    constexpr:")
    opaque = opaque.replace("x_tile * scale + 1.0", "twist(x_tile)")
    files = "".join(f"FILE: {name}\n```\n{text}```\n" for name, text in LOWERED.files.items())
    with line(Role.CODER, "KEEP", files) as to:
        source = ModelCoder(to.talk).code(replace(BRIEF, sketch=opaque)).source
    assert source.files == LOWERED.files
    assert "opaque operation 'twist'" in to.asked[0][-1]["content"]
    assert "no code to keep" in to.asked[1][-1]["content"]


def test_a_source_of_another_language_is_not_edited() -> None:
    triton = Source(dsl="triton", files={"kernel.py": "def kernel(x): ..."})
    with line(Role.CODER, "KEEP") as to:
        assert ModelCoder(to.talk).code(replace(BRIEF, previous=triton)).source == LOWERED
