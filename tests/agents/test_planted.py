"""The planted faults are real, and the rules send them to their owner; all forty: ``routing_accuracy.py``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kernellab.agents.briefs import CodeBrief, RouteBrief
from kernellab.agents.model import ModelConductor
from kernellab.agents.rules.coder import RulesCoder, is_verbatim
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.models import Talk, open_model, read_replay
from kernellab.models.exchanges import Exchange
from kernellab.records import Candidate, Evidence, GateResult, GateState, Role, RouteKind, Stage, Verdict
from kernellab.sketch.gate import gate
from kernellab.task import load_task
from kernellab.verifier import Verifier
from tests.agents.model_parts import CPU
from tests.agents.planted.cases import SETS, TASKS, brief_of, by_documents, chosen, look, planted, read_evidence

RECORDED = Path(__file__).parent / "planted" / "conductor.jsonl"
#: those that the gate finds in a fraction of a second
QUICK = (
    "bias_along_rows", "column_sum_race", "column_sum_wrong_axis", "logsumexp_without_shift_back",
    "matmul_tile_index_as_offset", "residual_inside_gelu", "rms_norm_divides_by_tile", "rms_norm_without_eps",
    "softmax_padding_counts", "variance_of_population",
)  # fmt: skip


def test_there_are_twenty_of_each_kind() -> None:
    owners = Counter(fault.owner for fault in planted())
    assert owners == {RouteKind.DESIGNER: 20, RouteKind.CODER: 20}
    assert len({fault.name for fault in planted()}) == 40


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_sketch_goes_to_the_designer_before_any_code(name: str) -> None:
    (fault,) = chosen((name,))
    seen = look(fault, None)
    assert seen is not None and seen.verdict is None
    assert RulesConductor().route(brief_of(fault, seen)).to is RouteKind.DESIGNER


def test_the_rules_send_the_planted_faults_to_their_owners() -> None:
    """By recorded evidence; each wrong lowering is planted anew in what is lowered today."""
    evidence = read_evidence()
    routes = {f.name: (RulesConductor().route(brief_of(f, evidence[f.name])).to, f.owner) for f in planted()}
    astray = {name for name, (to, owner) in routes.items() if to is not owner}
    assert len(astray) <= 0.05 * len(routes), astray
    # nobody can route what the Verifier lets pass
    assert astray <= {name for name, seen in evidence.items() if seen.verdict and seen.verdict.passed}


@pytest.mark.parametrize(("of", "before"), [("second", ("first",)), ("third", ("first", "second"))])
def test_there_are_forty_others_nearly_all_of_other_operators(of: str, before: tuple[str, ...]) -> None:
    faults, earlier = SETS[of][0](), [fault for name in before for fault in SETS[name][0]()]
    assert Counter(fault.owner for fault in faults) == {RouteKind.DESIGNER: 20, RouteKind.CODER: 20}
    assert not {fault.name for fault in faults} & {fault.name for fault in earlier}
    assert len({fault.task for fault in faults} - {fault.task for fault in earlier}) >= 20
    assert {fault.name for fault in faults} == read_evidence(SETS[of][1]).keys()


@pytest.mark.parametrize("of", ["second", "third"])
def test_the_rules_send_a_share_of_other_forties_to_their_owners(of: str) -> None:
    """By recorded evidence: every fifth fault, planted anew in what is designed and lowered today."""
    evidence, faults = read_evidence(SETS[of][1]), SETS[of][0]()[::5]
    astray = {f.name for f in faults if RulesConductor().route(brief_of(f, evidence[f.name])).to is not f.owner}
    assert not astray


@pytest.mark.parametrize("of", SETS)
def test_no_planted_sketch_says_that_it_is_one(of: str) -> None:
    for fault in SETS[of][0]():
        if fault.sketch:
            assert fault.sketch.startswith("sketch ") and "#" not in fault.sketch, fault.name


def test_a_wrong_sketch_of_the_third_set_is_right_without_its_fault() -> None:
    for fault, right in by_documents()[::7]:
        assert gate(right, load_task(TASKS / f"{fault.task}.py"), chip=CPU.chip).state is GateState.RIGHT, fault.name
        assert fault.sketch != right and "fault" not in fault.sketch.split("sketch", 1)[0]


def test_a_recorded_model_sends_them_to_their_owners_too() -> None:
    """Its exchanges as recorded; a prompt that has changed since is asked for by its first difference."""
    asked: list[Exchange] = []
    role = ModelConductor(Talk(open_model(f"replay:{RECORDED}", Role.CONDUCTOR), Role.CONDUCTOR, asked.append))
    evidence = read_evidence()
    routes = {f.name: (role.route(brief_of(f, evidence[f.name])).to, f.owner, len(asked)) for f in planted()}
    astray = {name for name, (to, owner, _) in routes.items() if to is not owner}
    assert len(astray) <= 0.05 * len(planted()), astray
    # nearly all of them the evidence decides alone: that share says nothing of a model
    assert len(asked) == len(read_replay(RECORDED).exchanges) == 1


@pytest.mark.slow
def test_a_wrong_lowering_goes_to_the_coder_and_is_not_what_the_rules_lower(verifier: Verifier) -> None:
    (fault,) = chosen(("bias_is_the_weight",))
    seen = look(fault, verifier)
    assert seen is not None and seen.verdict is not None and not seen.verdict.passed
    brief = brief_of(fault, seen)
    assert RulesConductor().route(brief).to is RouteKind.CODER
    assert not is_verbatim(brief)


def test_wrong_numbers_of_code_as_lowered_are_the_sketchs_and_of_edited_code_the_codes() -> None:
    (fault,) = chosen(("variance_in_one_pass",))
    assert look(fault, None) is None, "small cases do not show the cancellation"
    task = load_task(TASKS / f"{fault.task}.py")
    source = RulesCoder().code(CodeBrief(task, CPU, fault.sketch)).source
    other = source.model_copy(update={"files": {**source.files, "kernel.cpp": source.files["kernel.cpp"] + "//"}})
    gate = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6)
    wrong = Verdict(passed=False, stage=Stage.CORRECT, reason="It is wrong.", evidence=Evidence(signature="edge-tile"))
    broken = Verdict(passed=False, stage=Stage.BUILD, reason="It does not compile.")
    for code, verdict, owner in (
        (source, wrong, RouteKind.DESIGNER),
        (other, wrong, RouteKind.CODER),
        (source, broken, RouteKind.CODER),
    ):
        candidate = Candidate(id="c1", source=code, sketch=fault.sketch)
        brief = RouteBrief(task, CPU, fault.sketch, gate, candidate, verdict, turns_left=9)
        assert is_verbatim(brief) is (code is source)
        assert RulesConductor().route(brief).to is owner
