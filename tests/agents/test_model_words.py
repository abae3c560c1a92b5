"""The Analyst, an operator in words, a lifted kernel, and a person who is shown the same prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernellab.agents.briefs import AnalyseBrief, Attempt, CodeBrief, CodeReply, DesignBrief, DesignReply, RouteBrief
from kernellab.agents.model import (
    AnswerError,
    ModelAnalyst,
    ModelDesigner,
    Options,
    brief_text,
    lift,
    parse_answer,
    prompt,
    task_from_words,
)  # fmt: skip
from kernellab.agents.rules.coder import RulesCoder
from kernellab.errors import DesignError, TaskError
from kernellab.records import (
    Author,
    Comparison,
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
from tests.agents.model_parts import AFFINE, CPU, SKETCH, WRONG, fenced, line

TIME = Timing(median_ms=2.0, q1_ms=1.9, q3_ms=2.1, samples=9)
BEST = Verdict(
    passed=True, stage=Stage.FAST, reason="ok", time=TIME, sol_ms=1.24,
    comparisons=[Comparison(baseline="eager", baseline_time=TIME, speedup=2.5, low=2.4, high=2.6)],
)  # fmt: skip
EDGE = Verdict(
    passed=False, stage=Stage.CORRECT, reason="Wrong in the last tile.", evidence=Evidence(signature="edge-tile")
)
RECORD = AnalyseBrief(
    task=AFFINE, target=CPU, best=BEST, best_turn=6, headroom=0.62,
    history=(Attempt(sketch=SKETCH, verdict=EDGE), Attempt(sketch=SKETCH, verdict=BEST)),
)  # fmt: skip


def explains(summary: str, *claims: str) -> str:
    return json.dumps({"summary": summary, "claims": claims})


def test_words_that_the_record_holds_are_handed_on() -> None:
    said = "Two rounds were needed: the first kernel was wrong in the last tile. It is now 2.5x as fast as eager."
    with line(Role.ANALYST, explains(said, "2.5x as fast as eager")) as to:
        reply = ModelAnalyst(to.talk).analyse(RECORD)
    assert reply.text == said and reply.claims == ("2.5x as fast as eager",)
    assert to.purposes == ["analyse"]
    assert "speedup against eager: 2.5" in to.asked[0][-1]["content"]


def test_a_number_that_is_not_in_the_record_goes_back_and_is_left_out_if_it_stays() -> None:
    said = explains("The kernel passed. It is 7.5x as fast as eager.", "It is 7.5x as fast as eager.")
    with line(Role.ANALYST, said, explains("The kernel passed. It is 2.5x as fast as eager.")) as to:
        assert "2.5x" in ModelAnalyst(to.talk).analyse(RECORD).text
    assert "7.5x" in to.asked[1][-1]["content"]
    with line(Role.ANALYST, said) as to:
        reply = ModelAnalyst(to.talk).analyse(RECORD)
    assert reply.text == "The kernel passed." and not reply.claims
    with line(Role.ANALYST, explains("It is 7.5x as fast as eager.")) as to:
        assert "2.50 times as fast as eager" in ModelAnalyst(to.talk).analyse(RECORD).text, "the rules' words"


# -- an operator in words ----------------------------------------------------------------------------------------------

GOOD = '''"""y = relu(x + b). Assumed: float32."""
import torch
from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x, b):
    return torch.relu(x + b)


def inputs(M=64):
    return torch.randn(M, 48), torch.randn(48)
'''


def python(text: str) -> str:
    return fenced(text, "python", "Here:")


def test_words_become_a_task_that_is_loaded_and_audited() -> None:
    with line(Role.DESIGNER, python(GOOD)) as to:
        made = task_from_words("add a bias of 48 and clip at zero", to.talk, "bias_relu")
    assert made.task.name == "bias_relu" and made.text == GOOD and not made.flags
    assert "add a bias of 48" in to.asked[0][-1]["content"] and to.purposes == ["task"]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("I cannot.", "no Python file"),
        (python(GOOD.replace("def reference(x, b):", "def reference(x, b)")), "does not parse"),
        (python(GOOD.replace("torch.relu(x + b)", "torch.relu(x + c)")), "c"),
        (python(GOOD.replace("torch.relu(x + b)", "torch.relu(x * 0)")), "zero"),
        (python(GOOD.replace("torch.relu(x + b)", "x + torch.randn_like(x) + b")), "two results"),
        (python(GOOD.replace("import torch\n", "import torch, os\n")), "os"),
        (python(GOOD.replace("torch.relu(x + b)", "open('/etc/passwd').read()")), "open"),
        (python(GOOD.replace("torch.relu(x + b)", "().__class__")), "__class__"),
    ],
)
def test_a_file_that_proves_nothing_or_reaches_out_goes_back(bad: str, told: str) -> None:
    with line(Role.DESIGNER, bad, python(GOOD)) as to:
        assert task_from_words("bias and relu", to.talk).text == GOOD
    assert told in to.asked[1][-1]["content"]


def test_no_words_and_no_usable_file_are_one_sentence_each() -> None:
    with line(Role.DESIGNER, "No.") as to:
        with pytest.raises(TaskError, match="is empty"):
            task_from_words("  ", to.talk)
        assert not to.exchanges
        with pytest.raises(TaskError, match="no usable task in 2 replies"):
            task_from_words("relu", to.talk, options=Options(repairs=1))


# -- a foreign kernel --------------------------------------------------------------------------------------------------

KERNEL = Source(
    dsl="triton", files={"kernel.py": "import triton\n\ndef kernel(x, scale=2.0):\n    ...\n"}, origin=Author.HUMAN
)


def test_a_kernel_becomes_a_gated_sketch() -> None:
    with line(Role.DESIGNER, fenced(WRONG), fenced(SKETCH)) as to:
        reply = lift(KERNEL, AFFINE, CPU, to.talk)
    assert reply.sketch.strip() == SKETCH.strip() and to.purposes == ["lift", "repair-sketch"]
    assert "import triton" in to.asked[0][-1]["content"]
    with line(Role.DESIGNER, fenced(WRONG)) as to, pytest.raises(DesignError, match="is wrong"):
        lift(KERNEL, AFFINE, CPU, to.talk, options=Options(repairs=1))


# -- a person ----------------------------------------------------------------------------------------------------------

GATE = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6)
DESIGN = DesignBrief(task=AFFINE, target=CPU)
CODE = CodeBrief(task=AFFINE, target=CPU, sketch=SKETCH)
ROUTE = RouteBrief(task=AFFINE, target=CPU, sketch=SKETCH, gate=GATE, candidate=None, verdict=EDGE, turns_left=3)


@pytest.mark.parametrize("brief", [DESIGN, CODE, ROUTE, RECORD])
def test_a_person_is_shown_what_a_model_would_be_sent(brief: Any) -> None:
    made = prompt(brief)
    assert made.tokens < 16_000 and "affine" in brief_text(made)
    with line(Role.DESIGNER, fenced(SKETCH)) as to:
        if brief is DESIGN:
            assert ModelDesigner(to.talk).prompt(DESIGN).messages == made.messages


def test_pasted_replies_are_read_in_every_form() -> None:
    reply = parse_answer(f"Sure!\n{fenced(SKETCH)}", DESIGN)
    assert isinstance(reply, DesignReply) and reply.sketch.strip() == SKETCH.strip()
    assert parse_answer(SKETCH, DESIGN) == DesignReply(SKETCH)
    lowered = RulesCoder().code(CODE).source
    code = parse_answer(f"FILE: kernel.cpp\n```cpp\n// by hand\n{lowered.files['kernel.cpp']}```", CODE)
    assert isinstance(code, CodeReply) and code.source.origin is Author.HUMAN and code.source.files["kernel.py"]
    for text in ('{"to": "coder", "suggestion": "mask N"}', "coder: mask N", "Coder - mask N"):
        route = parse_answer(text, ROUTE)
        assert isinstance(route, Route) and (route.to, route.suggestion) == (RouteKind.CODER, "mask N")


@pytest.mark.parametrize(("text", "brief"), [("hello", DESIGN), ("hello", CODE), ("hello there", ROUTE), (" ", RECORD)])
def test_a_pasted_reply_that_is_no_answer_is_one_sentence_with_a_remedy(text: str, brief: Any) -> None:
    with pytest.raises(AnswerError) as refused:
        parse_answer(text, brief)
    assert refused.value.remedy
