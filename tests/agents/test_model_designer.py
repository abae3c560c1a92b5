"""A model's sketch is read, gated and fixed inside its turn, and never breaks what a person has fixed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernellab.agents.briefs import Attempt, DesignBrief, DesignReply
from kernellab.agents.model import ModelDesigner, Options
from kernellab.errors import DesignError, ModelError, ModelFault
from kernellab.knowledge import Knowledge
from kernellab.models.exchanges import Finish
from kernellab.models.tokens import estimate
from kernellab.records import GateResult, GateState, Role, Route, RouteKind, Stage, Verdict
from tests.agents.model_parts import AFFINE, BROKEN, CPU, SKETCH, WRONG, fenced, line
from tests.models.fake_server import Act, Connection, answer, status

BRIEF = DesignBrief(task=AFFINE, target=CPU)


def test_a_right_sketch_is_taken_with_its_words_values_and_claims() -> None:
    values = '```json\n{"constexpr": {"BLOCK": 128, "NOTHING": 3}, "claims": ["moves 0.2 MB"]}\n```'
    with line(Role.DESIGNER, fenced(SKETCH) + values) as to:
        reply = ModelDesigner(to.talk).design(BRIEF)
    assert reply.sketch.strip() == SKETCH.strip()
    assert reply.constexpr == {"BLOCK": 128}
    assert reply.claims == ("moves 0.2 MB",)
    assert reply.rationale == "Rows are independent."
    assert to.purposes == ["design"]


@pytest.mark.parametrize(
    ("faulty", "told"),
    [
        (fenced(BROKEN), "SK101 Unknown name 'x_missing'"),
        (fenced(WRONG), "y is wrong at"),
        ("I would tile the rows over the cores.", "no sketch"),
        (fenced("def kernel(x):\n    return x", "python"), "no sketch"),
    ],
)
def test_a_faulty_reply_goes_back_with_what_is_wrong_and_the_fixed_one_is_taken(faulty: str, told: str) -> None:
    with line(Role.DESIGNER, faulty, fenced(SKETCH)) as to:
        reply = ModelDesigner(to.talk).design(BRIEF)
    assert reply.sketch.strip() == SKETCH.strip()
    assert to.purposes == ["design", "repair-sketch"]
    first, second = to.asked
    assert second[: len(first)] == first, "the prompt's prefix must stay the same for the server's cache"
    assert second[-2] == {"role": "assistant", "content": faulty}
    assert told in second[-1]["content"]
    assert "Fixed in 1 round" in reply.rationale


def test_what_is_stated_as_json_without_a_block_is_read_and_is_no_part_of_the_words() -> None:
    stated = '\n{"constexpr": {"BLOCK": 128}, "claims": ["moves 0.2 MB"]}\n'
    with line(Role.DESIGNER, fenced(SKETCH) + stated) as to:
        reply = ModelDesigner(to.talk).design(BRIEF)
    assert (reply.constexpr, reply.claims, reply.rationale) == (
        {"BLOCK": 128}, ("moves 0.2 MB",), "Rows are independent."
    )  # fmt: skip


def test_words_of_a_design_that_a_repair_has_given_up_do_not_stand_for_the_one_that_came() -> None:
    two = SKETCH.replace("x[M, N]", "x[M, Q]") + "\n" + SKETCH.replace("sketch ", "sketch second_", 1)
    given_up = fenced(two).replace("Rows are independent.", "Two launches.")
    with line(Role.DESIGNER, given_up, fenced(SKETCH)) as to:
        reply = ModelDesigner(to.talk).design(BRIEF)
    assert reply.rationale == "Rows are independent. Fixed in 1 round."


def test_a_sketch_of_other_tensors_is_said_not_to_have_run() -> None:
    other = SKETCH.replace("x[M, N]", "x[M, N, M]").replace("load(x[m, n", "load(x[m, 0, n")
    with line(Role.DESIGNER, fenced(other), fenced(SKETCH)) as to:
        ModelDesigner(to.talk).design(BRIEF)
    said = to.asked[1][-1]["content"]
    assert "not run on this task" in said and "does not compute" not in said, said


def test_the_repairs_end_and_the_best_sketch_is_handed_on_with_what_is_open() -> None:
    with line(Role.DESIGNER, fenced(WRONG), fenced(BROKEN)) as to:
        reply = ModelDesigner(to.talk, options=Options(repairs=2)).design(BRIEF)
    assert to.purposes == ["design", "repair-sketch", "repair-sketch"]
    assert "Still open after 2 repairs" in reply.rationale


def test_replies_without_any_sketch_end_in_a_sentence() -> None:
    replies = ("No.", "Later.", "Never.")
    with line(Role.DESIGNER, *replies) as to, pytest.raises(DesignError, match="None of the model's 2 replies"):
        ModelDesigner(to.talk, options=Options(repairs=2)).design(BRIEF)


@pytest.mark.parametrize("reply", ["No.", fenced(WRONG), fenced(BROKEN)])
def test_a_model_that_gives_the_same_reply_again_is_asked_no_more(reply: str) -> None:
    with line(Role.DESIGNER, reply) as to:
        try:
            told = ModelDesigner(to.talk, options=Options(repairs=3)).design(BRIEF).rationale
        except DesignError as error:
            told = f"{error.message} {error.remedy}"
    assert to.purposes == ["design", "repair-sketch"]
    assert "same reply again" in told and "another model, the rules or a person" in told


PINNED = SKETCH.replace("-> x_tile)", "-> x_tile) #: pin")


def test_a_revision_that_changes_a_pinned_line_is_refused_with_the_line() -> None:
    moved = PINNED.replace("load(x[m, n:n+BLOCK] -> x_tile) #: pin", "load(x[m, n:n+BLOCK] -> x_tile, pad=1)")
    brief = replace(BRIEF, previous=PINNED)
    with line(Role.DESIGNER, fenced(moved)) as to, pytest.raises(DesignError, match=r"line 9.*pin"):
        ModelDesigner(to.talk, options=Options(repairs=1)).design(brief)
    assert to.purposes == ["design", "repair-sketch"]
    assert "load(x[m, n:n+BLOCK] -> x_tile) #: pin" in to.asked[0][-1]["content"]


def test_a_person_constraint_must_stay() -> None:
    wanted = SKETCH.replace("in {64, 128};", "in {64, 128};\n    require: BLOCK >= 64;")
    with line(Role.DESIGNER, fenced(SKETCH), fenced(wanted)) as to:
        reply = ModelDesigner(to.talk).design(replace(BRIEF, previous=wanted))
    assert "require: BLOCK >= 64" in reply.sketch
    assert "BLOCK >= 64" in to.asked[1][-1]["content"]


def test_the_same_sketch_again_for_a_route_back_is_sent_back() -> None:
    route = Route(
        to=RouteKind.DESIGNER, error_class="performance", reason="It is slow.", suggestion="Use larger tiles."
    )
    other = SKETCH.replace("BLOCK = 64 in {64, 128}", "BLOCK = 256 in {256, 512}")
    brief = replace(BRIEF, previous=SKETCH, route=route)
    with line(Role.DESIGNER, fenced(SKETCH), fenced(other)) as to:
        assert "256" in ModelDesigner(to.talk).design(brief).sketch
    assert "why it should be faster" in to.asked[0][-1]["content"] and "Use larger tiles." in to.asked[0][-1]["content"]
    assert "same as before" in to.asked[1][-1]["content"]


def test_another_value_of_a_tunable_is_another_design() -> None:
    route = Route(to=RouteKind.DESIGNER, error_class="performance", reason="It is slow.")
    brief = replace(BRIEF, previous=SKETCH, previous_constexpr={"BLOCK": 64}, route=route, history=(PASSED,))
    values = '```json\n{"constexpr": {"BLOCK": 128}}\n```'
    with line(Role.DESIGNER, f"{fenced(SKETCH)}{values}") as to:
        reply = ModelDesigner(to.talk).design(brief)
    assert isinstance(reply, DesignReply) and reply.constexpr == {"BLOCK": 128} and len(to.exchanges) == 1
    with line(Role.DESIGNER, f"{fenced(SKETCH)}{values.replace('128', '64')}") as to:
        assert isinstance(ModelDesigner(to.talk).design(brief), Route), "the same value is the same design"


PASSED = Attempt(sketch=SKETCH, verdict=Verdict(passed=True, stage=Stage.FAST, reason="ok"))


@pytest.mark.parametrize("reply", [fenced(SKETCH), 'Nothing better.\n```json\n{"done": "Nothing better."}\n```'])
def test_a_designer_may_leave_a_kernel_that_passed_as_it_is(reply: str) -> None:
    with line(Role.DESIGNER, reply) as to:
        route = ModelDesigner(to.talk).design(replace(BRIEF, previous=SKETCH, history=(PASSED,)))
    assert isinstance(route, Route) and route.to is RouteKind.FINISH
    assert len(to.exchanges) == 1


def test_nothing_is_done_before_a_kernel_has_passed() -> None:
    with line(Role.DESIGNER, '{"done": "I know no better one."}', fenced(SKETCH)) as to:
        assert ModelDesigner(to.talk).design(BRIEF).sketch == SKETCH
    assert "No kernel has passed yet" in to.asked[1][-1]["content"]


def test_without_the_gate_a_wrong_sketch_is_handed_on() -> None:
    with line(Role.DESIGNER, fenced(WRONG)) as to:
        reply = ModelDesigner(to.talk).design(replace(BRIEF, ablation=frozenset({"gate"})))
    assert reply.sketch.strip() == WRONG.strip() and to.purposes == ["design"]


def test_a_cut_reply_is_no_sketch_and_is_asked_for_once_more_in_short() -> None:
    with line(Role.DESIGNER, answer(fenced(SKETCH), finish="length"), fenced(SKETCH)) as to:
        reply = ModelDesigner(to.talk).design(BRIEF)
    assert reply.sketch.strip() == SKETCH.strip()
    assert [e.finish for e in to.exchanges] == [Finish.TRUNCATED, Finish.STOP]
    assert "shortest form" in to.asked[1][-1]["content"]


def test_a_reply_that_copies_the_prompts_line_numbers_is_read() -> None:
    copied = "\n".join(f"{n:>2} | {line}" for n, line in enumerate(SKETCH.splitlines(), 1))
    for reply in (fenced(copied), f"Here it is.\n\n{copied}\n"):
        with line(Role.DESIGNER, reply) as to:
            found = ModelDesigner(to.talk).design(BRIEF)
        assert isinstance(found, DesignReply) and found.sketch == SKETCH and len(to.exchanges) == 1


EDIT = "EDIT: sketch\n<<<<<<< SEARCH\n{}\n=======\n{}\n>>>>>>> REPLACE\n"


def test_a_sketch_is_changed_by_edits_of_the_one_that_was_shown() -> None:
    store = "            store(x_tile * scale + {} -> y[m, n:n+BLOCK])"
    fix = EDIT.format(store.format("2.0"), store.format("1.0"))
    with line(Role.DESIGNER, fenced(WRONG), fix) as to:
        found = ModelDesigner(to.talk).design(BRIEF)
    assert isinstance(found, DesignReply) and found.sketch == SKETCH and len(to.exchanges) == 2
    assert "EDIT" not in found.rationale
    own = "    constexpr: scale = 2.0; BLOCK = 64 in {64, 128};"
    wider = EDIT.format(f" 4 | {own}", own.replace("= 64 in", "= 128 in"))
    with line(Role.DESIGNER, wider) as to:
        found = ModelDesigner(to.talk).design(replace(BRIEF, previous=SKETCH))
    assert isinstance(found, DesignReply) and "BLOCK = 128 in" in found.sketch


@pytest.mark.parametrize("previous", [None, SKETCH.replace("scale + 1.0", "scale + 3.0")])
def test_edits_after_a_reply_that_cannot_be_used_are_of_the_last_one_that_can(previous: str | None) -> None:
    fix, missing = EDIT.format("+ 2.0", "+ 1.0"), EDIT.format("nowhere", "+ 1.0")
    brief = replace(BRIEF, previous=previous)
    with line(Role.DESIGNER, fenced(WRONG), missing, fix) as to:
        found = ModelDesigner(to.talk).design(brief)
    assert isinstance(found, DesignReply) and found.sketch == SKETCH and len(to.exchanges) == 3


def test_a_repair_holds_nothing_twice() -> None:
    with line(Role.DESIGNER, fenced(BROKEN), fenced(SKETCH)) as to:
        ModelDesigner(to.talk).design(BRIEF)
    told = "\n".join(message["content"] for message in to.asked[1][1:])
    assert told.count("sketch affine {") == 1, "the reply alone has it"
    assert "line 10 (`store(x_missing * scale + 1.0 -> y[m, n:n+BLOCK])`)" in to.asked[1][-1]["content"]


def test_a_refusal_in_words_is_asked_once_more_and_then_shown() -> None:
    no = "I'm sorry, but I can't help with writing low-level code."
    with line(Role.DESIGNER, no) as to, pytest.raises(DesignError, match="I can't help with writing low-level code"):
        ModelDesigner(to.talk).design(BRIEF)
    assert len(to.exchanges) == 2
    with line(Role.DESIGNER, no, fenced(WRONG), no, fenced(SKETCH)) as to:
        assert isinstance(ModelDesigner(to.talk).design(BRIEF), DesignReply), "two that do not follow each other"


def test_a_prompt_that_is_too_long_is_assembled_again_smaller_by_its_ranks() -> None:
    def most(tokens: int) -> Act:
        def act(link: Connection) -> None:
            size = sum(estimate(m["content"]) for m in link.body["messages"])
            (status(400, "maximum context length is exceeded") if size > tokens else answer(fenced(SKETCH)))(link)

        return act

    knowledge = Knowledge.load(CPU)
    with line(Role.DESIGNER, most(3_000)) as to:
        assert isinstance(ModelDesigner(to.talk, knowledge).design(BRIEF), DesignReply)
    first, last = to.asked[0][-1]["content"], to.asked[-1][-1]["content"]
    assert len(to.asked) > 1 and "# The task: affine" in last and "# The task: affine" in first
    assert any("fit the budget" in section.note for section in to.exchanges[-1].sections)
    with line(Role.DESIGNER, most(100)) as to, pytest.raises(ModelError) as caught:
        ModelDesigner(to.talk, knowledge).design(BRIEF)
    assert caught.value.kind is ModelFault.CONTEXT and "prompt_tokens" in caught.value.remedy


def test_a_reply_that_is_cut_again_or_filtered_ends_the_turn() -> None:
    cut = answer(fenced(SKETCH), finish="length")
    with line(Role.DESIGNER, cut) as to, pytest.raises(ModelError) as failed:
        ModelDesigner(to.talk).design(BRIEF)
    assert failed.value.kind is ModelFault.TRUNCATED and len(to.exchanges) == 2
    refused = answer("I cannot.", finish="content_filter")
    with line(Role.DESIGNER, refused) as to, pytest.raises(ModelError) as failed:
        ModelDesigner(to.talk).design(BRIEF)
    assert failed.value.kind is ModelFault.FILTERED and len(to.exchanges) == 2
    assert to.asked[0] == to.asked[1], "a filter is no question of length"


@pytest.mark.parametrize(
    "reply",
    [
        SKETCH,
        f"Here it is.\n\n{SKETCH}\nI hope that it helps.",
        fenced(WRONG, before="A first thought:") + fenced(SKETCH, before="Better:"),
        fenced(SKETCH, ""),
        json.dumps({"sketch": SKETCH, "rationale": "Rows."}),
        "```sketch\n" + SKETCH,  # never closed
    ],
)
def test_the_forms_that_models_answer_in_are_read(reply: str) -> None:
    with line(Role.DESIGNER, reply) as to:
        assert ModelDesigner(to.talk).design(BRIEF).sketch.strip() == SKETCH.strip()
    assert to.purposes == ["design"]


def test_the_prompt_says_of_each_part_where_it_is_from_and_the_task_comes_after_what_never_changes() -> None:
    gate = GateResult(state=GateState.WRONG, reason="y is wrong at M=1, N=65.")
    brief = replace(BRIEF, previous=WRONG, history=(Attempt(sketch=WRONG, gate=gate),), notes=("Keep it simple.",))
    with line(Role.DESIGNER, fenced(SKETCH)) as to:
        ModelDesigner(to.talk).design(brief)
    (exchange,) = to.exchanges
    names = [section.name for section in exchange.sections]
    assert names[:2] == ["role", "language"] and names[-1] == "go"
    assert names.index("answer") < names.index("task") < names.index("history") < names.index("notes")
    assert all(section.source for section in exchange.sections)
    system, user = exchange.messages
    assert "affine" not in system.content, "the cached prefix speaks of no task"
    assert "y is wrong at M=1, N=65." in user.content and "Keep it simple." in user.content
    assert "moves each input and output once" in user.content, "its traffic is what must be moved"
