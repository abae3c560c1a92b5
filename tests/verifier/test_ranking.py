"""A ranking finds plain errors and about how fast a kernel is; nothing can take it for a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from kernellab.errors import TargetError
from kernellab.records import Author, Ranking, Source, Stage, StageResult, StageState, Trust, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier import RankOptions, Verifier
from kernellab.verifier.protocol.rules import RANK
from kernellab.verifier.ranking.cases import RankCases, Recent
from kernellab.verifier.survey.survey import Survey
from kernellab.verifier.timing.sides import Side, is_sharp

from .kit import RELU_ADD, RMS_CPP, SCALE, TARGET

OPTIONS = RankOptions(allow_library=True, budget=0.05, threads=1)
SCALED = load_task(SCALE, "scale")
RIGHT = "import torch\ndef kernel(x, y):\n    return torch.relu(x) + y\n"


def ranked(verifier: Verifier, code: str, options: RankOptions = OPTIONS) -> Ranking:
    source = Source(dsl="cpp", files={"kernel.py": code}, origin=Author.HUMAN)
    task = SCALED if "def kernel(x, w)" in code else load_task(RELU_ADD, "relu_add")
    return verifier.rank(task, source, TARGET, options=options)


def test_a_right_kernel_has_a_time_beside_eager_and_no_verdict(verifier: Verifier) -> None:
    told: list[StageResult] = []
    source = Source(dsl="cpp", files={"kernel.py": RMS_CPP}, origin=Author.HUMAN)
    found = verifier.rank(SCALED, source, TARGET, options=OPTIONS, progress=told.append)
    assert found.ranked and found.trust is Trust.T1, found.reason
    assert found.time is not None and found.time.samples >= RANK.min_pairs
    assert found.paired is not None and found.paired.baseline == "eager"
    assert found.paired.low <= found.paired.speedup <= found.paired.high
    taken = [s.name for s in found.stages if s.state is not StageState.NOT_REACHED]
    assert (
        taken
        == [Stage.STATIC, Stage.BUILD, Stage.SMOKE, Stage.CORRECT, Stage.FAST]
        == [t.name for t in told if t.state is StageState.PASSED]
    )
    assert found.build_seconds is not None and 0 < found.seconds < 60
    assert "no verdict" in found.reason and "no verdict" in repr(found)


def test_a_survey_that_fails_is_met_by_each_ranking_and_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise RuntimeError("no proposals")

    monkeypatch.setattr(Survey, "_proposals", fails)
    cases = RankCases(SCALED)
    assert len(list(cases.made())) > 3
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no proposals"):
            cases.drawn()


def test_nothing_takes_a_ranking_for_a_verdict() -> None:
    found = Ranking(ranked=True, stage=Stage.FAST, reason="")
    assert not isinstance(found, Verdict) and not hasattr(found, "passed") and not hasattr(found, "speedup")
    with pytest.raises(ValidationError):
        Verdict.model_validate(found.model_dump(mode="json"))
    with pytest.raises(ValidationError):
        Ranking.model_validate({"ranked": True, "stage": "fast", "reason": "", "trust": "T2"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("j < N; j++) y", "j < N - N % 8; j++) y"),
        ("1e-6f", "1e-2f"),
        ("    return y", "    x.zero_()\n    return y"),
        ("    y = torch.empty(x.shape)", "    y = torch.empty(x.shape) if x.shape[0] > 9 else None"),
        ("x[i * sx + j] * r", "x[i * sx + (j < 64 ? j : 0)] * r"),
        ("s += x[i * sx + j]", "s += x[i * sx + N + j - N] * (M == 96 && N == 200 ? 1.02f : 1.0f)"),
        ("j++) s += x[i * sx + j] * x[i * sx + j];", "j++) s += x[i * sx + j] * x[i * sx + j] + 0 * x[M * sx + 99];"),
    ],
)
def test_plain_errors_are_found_before_anything_is_timed(verifier: Verifier, old: str, new: str) -> None:
    assert old in RMS_CPP
    found = ranked(verifier, RMS_CPP.replace(old, new))
    assert not found.ranked and found.stage in (Stage.SMOKE, Stage.CORRECT) and found.time is None, found.reason
    assert found.evidence is not None and found.reason


def test_an_output_that_later_calls_overwrite_is_found(verifier: Verifier) -> None:
    kept = "import torch\nheld = torch.empty(48, 70)\n"
    kept += "def kernel(x, y):\n    return torch.add(torch.relu(x), y, out=held)\n"
    found = ranked(verifier, kept)
    assert not found.ranked and found.evidence is not None and found.evidence.signature == "reused-output"


def test_timed_calls_of_a_ranking_are_checked(verifier: Verifier) -> None:
    # it counts the calls at the task's own sizes alone: most checks before the timed calls are at others
    late = (
        "import torch\nn = [0]\ndef kernel(x, w):\n    n[0] += x.shape == OWN\n"
        "    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w\n    return y * (1 if n[0] < 24 else 2)\n"
    ).replace("OWN", repr(tuple(SCALED.module().default_sizes()[n] for n in "MN")))
    found = ranked(verifier, late)
    assert not found.ranked and found.stage is Stage.FAST, found.reason


def test_a_source_may_be_timed_without_eager(verifier: Verifier) -> None:
    found = ranked(verifier, RIGHT, OPTIONS.model_copy(update={"paired": False}))
    assert found.ranked and found.time is not None and found.paired is None and found.text.endswith("ms")


def test_what_static_analysis_refuses_is_not_built(verifier: Verifier) -> None:
    found = ranked(verifier, "def kernel(x, y:\n    return x\n")
    assert not found.ranked and found.stage is Stage.STATIC and found.build_seconds is None


def test_an_interpreter_ranks_nothing(verifier: Verifier) -> None:
    source = Source(dsl="triton", files={"kernel.py": "import triton\n"}, origin=Author.HUMAN)
    with pytest.raises(TargetError, match="cannot be timed"):
        verifier.rank(SCALED, source, Target("triton", Backend.INTERPRETER, Chip("test", "cpu", 2)))


def test_the_cases_of_a_ranking_are_of_several_families_at_sizes_that_no_tile_divides() -> None:
    cases = RankCases(SCALED)
    assert len({c.family for c in cases.families}) == len(cases.families) >= 3
    sizes = [dict(c.sizes) for c in cases.families]
    assert all(n % 2 for s in sizes for n in s.values()) and max(s["N"] for s in sizes) > 100
    assert all(input_bytes(SCALED, s) <= RANK.case_bytes for s in sizes)
    fixed = RankCases(load_task(RELU_ADD, "relu_add"))
    assert [c.sizes for c in fixed.families] == [()] * len(fixed.families)
    assert len(list(fixed.made())) >= len(fixed.families) + 3
    assert fixed.drawn().cases and not fixed.powers
    assert all(n & (n - 1) == 0 for c in cases.powers for _, n in c.sizes)
    assert torch.equal(fixed.smoke.references[0].native, torch.relu(fixed.smoke.args[0]) + fixed.smoke.args[1])


def test_rankings_of_a_task_share_their_cases_for_a_while() -> None:
    relu_add = load_task(RELU_ADD, "relu_add")
    recent = Recent()
    found = [recent.of(load_task(SCALE, "scale"), RankCases) for _ in range(RANK.case_uses + 1)]
    assert len({id(cases) for cases in found[:-1]}) == 1 and found[-1] is not found[0]
    assert recent.of(relu_add, RankCases).task == relu_add
    assert recent.of(SCALED, RankCases) is not found[-1], "the last task alone is kept"
    strict = replace(SCALED, fidelity="strict")
    assert recent.of(strict, RankCases).task.fidelity == "strict"
    static = replace(SCALED, args=tuple(replace(arg, static=True) for arg in SCALED.args))
    assert recent.of(static, RankCases) is not recent.of(static, RankCases)


def _sides(spread: float, pairs: int) -> list[Side]:
    ours = [1.0 + spread * (i % 5 - 2) for i in range(pairs)]
    return [Side("candidate", None, ours, disturbed=[False] * pairs),  # type: ignore[arg-type]
            Side("eager", None, [2.0] * pairs, disturbed=[False] * pairs)]  # type: ignore[arg-type]  # fmt: skip


def test_a_ratio_is_sharp_when_chance_moves_it_by_less_than_three_percent() -> None:
    assert is_sharp(_sides(0.005, 10), RANK.sharp_share) and not is_sharp(_sides(0.1, 10), RANK.sharp_share)
    assert is_sharp(_sides(0.02, 80), RANK.sharp_share), "more pairs sharpen it"
    assert is_sharp(_sides(0.005, 10)[:1], RANK.sharp_share), "alone its own times count"
