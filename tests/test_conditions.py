"""A verdict's conditions are the same facts wherever they are read: journal, JSON output, export, guards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernellab.cli.verify import verdict_dict
from kernellab.conditions import (
    KINDS,
    AlignmentLimit,
    BaselineMissing,
    CachedResult,
    Condition,
    DisturbedCalls,
    Domain,
    DrawnInPart,
    DrawnLimit,
    FixedArguments,
    FixedSizes,
    IdleKernel,
    JudgedOn,
    LaunchBound,
    LaunchesWhenTraced,
    LibraryShare,
    Mark,
    MarkKind,
    MoreCores,
    NotReproduced,
    NotSealed,
    OtherClock,
    OutputStrides,
    OwnShareUnseen,
    Ratio,
    ScalarLimit,
    SmallArguments,
    SpecialValues,
    Stated,
    StaticFinding,
    StridesLimit,
    Switched,
    WeakTask,
    flags,
    joined,
    labels,
)
from kernellab.conditions.code import CodeRegion, CoverageUnknown, ImportChanges, NeverRan
from kernellab.errors import KernellabError
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.runtime.guards import ShapeClass
from kernellab.records import Author, Role, Source, Stage, Timing, Verdict
from kernellab.session.record.events import Compared, Created, TurnEnded, TurnStarted
from kernellab.session.record.fold import fold
from kernellab.session.record.journal import Journal
from kernellab.session.record.records import Turn, TurnState
from kernellab.target import Backend
from kernellab.task import Task, load_task

TASK = """
import torch

def reference(a, b, c, k=3, eps=0.5):
    return a + b * k + c * eps

def inputs():
    return torch.rand(32, 48), torch.rand(32, 48), torch.rand(32, 48)
"""
TENSORS, SCALARS = ("a", "b", "c"), {"k": 3, "eps": 0.5}
#: values of a tensor, each drawn from a range of its own
RANGES = {"inside": (0.0, 1.0), "above": (1.5, 2.0), "below": (-2.0, -0.5), "NaN": (nan, nan)}

BOUNDS: list[dict[str, Any]] = [{"low": 0.0, "high": 1.0}, {"low": 0.0}, {"high": 0.0}]
LIMITS: list[Condition] = [
    *(Domain(argument=a, refuted=refuted, **bound) for a in TENSORS for bound in BOUNDS for refuted in (True, False)),
    *(ScalarLimit(argument=name, value=v, refuted=r) for name, v in SCALARS.items() for r in (True, False)),
    *(DrawnLimit(argument=a, values="large", low=-1.0, high=1.25) for a in TENSORS),
    *(DrawnLimit(argument=a, values="tiny", least=0.25) for a in TENSORS),
    *(DrawnLimit(argument=a, values="NaN", not_nan=True) for a in TENSORS),
    StridesLimit(contiguous="all"), StridesLimit(contiguous="rows"), AlignmentLimit(),
    Mark(kind="expanded-inputs-unsupported"), Mark(kind="constructor-parameters"),
]  # fmt: skip
#: what limits no call, texts with commas and with the words of other labels among them
NOTICED: list[Condition] = [
    *(Mark(kind=kind) for kind in get_args(MarkKind)
      if kind not in ("expanded-inputs-unsupported", "constructor-parameters")),
    SpecialValues(value="NaN"), DrawnLimit(argument="a", values="large a, k = 3 only"), OutputStrides(output=1),
    FixedSizes(shapes=((32, 48),)), FixedSizes(dims=(("N", 99, 1024),), elements=(("x", 9, 1 << 32),)),
    FixedArguments(values=(("mode", "'a, b'"),)), SmallArguments(values="a, b of 1e-06"),
    DrawnInPart(tried=3, untried=9), LibraryShare(share=0.25),
    LibraryShare(), IdleKernel(kernel="a, k = 3 only"), CachedResult(kernel="pack"),
    LaunchesWhenTraced(kernels=("p", "q")), OwnShareUnseen(reason="no perf, here"),
    StaticFinding(rule="library", message="calls, a library", file="k.py", line=3),
    WeakTask(rule="zeros", reason="right for a >= 0 only"), DisturbedCalls(share=0.1), OtherClock(clock="events"),
    LaunchBound(on_device=1.25), MoreCores(cores=3.5, baselines=2), BaselineMissing(baseline="compile", reason="a, b"),
    NotSealed(native=True, reason="a call, aligned inputs only"), NotSealed(sanitized=True, reason="not there, yet"),
    Stated(stated_label="contiguous-only, or not"),
    JudgedOn(host="box"),
    Switched(dim="M", starts=(100,)),
    ImportChanges(changed=("autograd", "random numbers")),
    NeverRan(regions=(CodeRegion(file="k.cpp", first=3, last=5, guard=2, condition="if (n > 3, m)"),
                      CodeRegion(file="k.cpp", first=9, last=9, part=True)), more=2),
    CoverageUnknown(reason="no GCC, here"),
    NotReproduced(outcome="differs", baseline="eager", first=Ratio(speedup=1, low=1, high=1),
                  second=Ratio(speedup=2, low=2, high=2)),
]  # fmt: skip

one_limit_each = st.lists(
    st.sampled_from(LIMITS), max_size=6,
    unique_by=lambda c: (c.kind, getattr(c, "argument", "")),
)  # fmt: skip
conditions_drawn = st.tuples(one_limit_each, st.lists(st.sampled_from(NOTICED), max_size=5)).flatmap(
    lambda two: st.permutations([*two[0], *two[1]])
)


@dataclass(frozen=True)
class Call:
    """One call: where each tensor's values lie, the scalars, and how the tensors lie in memory."""

    values: tuple[str, str, str]
    scalars: tuple[Any, Any]
    memory: str

    def arguments(self) -> list[Any]:
        return [*(self._tensor(*RANGES[where]) for where in self.values), *self.scalars]

    def _tensor(self, low: float, high: float) -> torch.Tensor:
        if self.memory == "expanded":
            return torch.full((1, 48), (low + high) / 2).expand(32, 48)
        if self.memory == "transposed":
            return torch.linspace(low, high, 32 * 48).reshape(48, 32).t()
        if self.memory == "gaps":
            return torch.linspace(low, high, 32 * 64).reshape(32, 64)[:, :48]
        whole = torch.linspace(low, high, 32 * 48 + 1)
        return (whole[1:] if self.memory == "between" else whole[:-1].clone()).reshape(32, 48)

    def refused_by(self, condition: Condition) -> bool:
        """Does the condition exclude the call? By its meaning, not by the code of the guards."""
        match condition:
            case Domain(refuted=True, argument=argument, low=low, high=high):
                return self._lies_outside(argument, low, high)
            case DrawnLimit(not_nan=True, argument=argument):
                return self._where(argument) == "NaN"
            case DrawnLimit(least=float(), argument=argument):
                # of an expanded tensor all values are the middle
                return self._where(argument) == "inside" and self.memory != "expanded"
            case DrawnLimit(argument=argument, low=float() as low, high=float() as high):
                return self._lies_outside(argument, low, high)
            case ScalarLimit(argument=argument, value=value):
                return bool(self.scalars[list(SCALARS).index(argument)] != value)
            case StridesLimit(contiguous="all"):
                return self.memory in ("gaps", "transposed", "expanded")
            case StridesLimit():
                return self.memory == "transposed"
            case AlignmentLimit():
                return self.memory == "between"
            case Mark(kind="expanded-inputs-unsupported"):
                return self.memory == "expanded"
        return False

    def _where(self, argument: str) -> str:
        return self.values[TENSORS.index(argument)]

    def _lies_outside(self, argument: str, low: float | None, high: float | None) -> bool:
        least, greatest = RANGES[self._where(argument)]
        if isnan(least):
            return True
        return (low is not None and least < low) or (high is not None and greatest > high)


calls = st.builds(
    Call,
    st.tuples(*[st.sampled_from(sorted(RANGES))] * 3),
    st.tuples(st.sampled_from([3, 4]), st.sampled_from([0.5, 0.25])),
    st.sampled_from(["whole", "gaps", "transposed", "expanded", "between"]),
)


def judged(conditions: list[Condition]) -> Verdict:
    return Verdict(passed=True, stage=Stage.FAST, reason="Right.", conditions=tuple(conditions))


def exported(task: Task, verdict: Verdict) -> VerifiedKernel:
    return VerifiedKernel("made", task, Source(dsl="cpp", files={"kernel.py": ""}), verdict, Backend.CPU, "here")


def through_a_journal(folder: Path, verdict: Verdict) -> Verdict:
    """The verdict as a session folds it that another process opens, after its kernel was timed a second time."""
    turn = Turn(id="t1", number=1, parent=None, role=Role.VERIFIER, author=Author.RULES)
    done = turn.model_copy(update={"state": TurnState.DONE, "verdict": verdict})
    again = Compared(
        turn="t1", timing=Timing(median_ms=1, q1_ms=1, q3_ms=1, samples=9), comparisons=(),
        conditions=verdict.conditions,
    )  # fmt: skip
    journal = Journal(folder)
    session = f"s{sum(1 for _ in journal.sessions())}"
    journal.acquire(session, "me")
    created = Created(name="made", text=TASK, key="")
    journal.append(session, "me", [created, TurnStarted(turn=turn), TurnEnded(turn=done), again])
    read = fold(session, [event for _, event in journal.read(session)]).turns["t1"].verdict
    journal.close()
    assert read is not None
    return read


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conditions=conditions_drawn, call=calls)
def test_an_exported_kernel_refuses_exactly_what_its_conditions_refuse(
    conditions: list[Condition], call: Call, tmp_path: Path
) -> None:
    verdict = through_a_journal(tmp_path, judged(conditions))
    assert verdict.conditions == tuple(dict.fromkeys(conditions))
    task = load_task(TASK, "made")
    kernel = exported(task, verdict)
    if verdict.marked("constructor-parameters") or any(isinstance(c, Stated) for c in conditions):
        with pytest.raises(KernellabError, match=r"cannot be exported|earlier format"):
            kernel.facts("k")
        return
    guards = ShapeClass.of(json.loads(json.dumps(kernel.facts("k"))))
    arguments = call.arguments()
    refused = guards.refuses(arguments) is not None or guards.refuses_values(arguments) is not None
    assert refused == any(map(call.refused_by, conditions)), (guards, call)


@settings(max_examples=100, deadline=None)
@given(conditions=conditions_drawn)
def test_the_json_output_has_each_condition_and_each_label_whole(conditions: list[Condition]) -> None:
    found = json.loads(json.dumps(verdict_dict(judged(conditions))))
    texts = ("concern", "label", "flag")
    read = [{name: v for name, v in one.items() if name not in texts} for one in found["conditions"]]
    assert Verdict.model_validate({**judged([]).model_dump(), "conditions": read}).conditions == tuple(conditions)
    assert found["labels"] == labels(conditions) and ", ".join(found["labels"]) == found["label"]
    assert found["flags"] == flags(conditions)


def test_three_intervals_stay_three() -> None:
    three: list[Condition] = [Domain(argument=a, low=0, high=1, refuted=True) for a in TENSORS]
    assert labels(three) == ["right for a in [0, 1], b in [0, 1], c in [0, 1] only"]
    assert flags(three) == ["domain: verified for a in [0, 1], b in [0, 1], c in [0, 1]"]


def test_every_kind_is_tried_here_and_has_a_text() -> None:
    assert {type(c) for c in (*LIMITS, *NOTICED)} == set(KINDS)
    assert all(c.label or c.flag for c in (*LIMITS, *NOTICED))
    assert {c.kind for c in (*LIMITS, *NOTICED)} >= set(get_args(MarkKind))


@pytest.mark.parametrize("value", [True, 1, 1.0, -0.5, inf, -inf])
def test_a_scalar_comes_back_as_it_was(value: Any) -> None:
    verdict = judged([ScalarLimit(argument="k", value=value, refuted=True)])
    read = Verdict.model_validate_json(verdict.model_dump_json()).conditions[0]
    assert isinstance(read, ScalarLimit) and read.value == value and type(read.value) is type(value)


def test_a_verdict_of_texts_alone_is_read_and_gives_no_guards(tmp_path: Path) -> None:
    turn = Turn(id="t1", number=1, parent=None, role=Role.VERIFIER, author=Author.RULES, verdict=judged([]))
    event = json.loads(TurnEnded(turn=turn).model_dump_json())
    del event["turn"]["verdict"]["conditions"]
    event["turn"]["verdict"] |= {"label": "contiguous-only", "flags": ["x: y"]}
    journal = Journal(tmp_path)
    journal.acquire("s", "me")
    journal.append_lines("s", "me", [json.dumps(event, separators=(",", ":"))])
    ((_, read),) = journal.read("s")
    assert isinstance(read, TurnEnded) and read.turn.verdict is not None
    assert (read.turn.verdict.label, read.turn.verdict.flags) == ("contiguous-only", ["x: y"])
    with pytest.raises(KernellabError, match="earlier format"):
        exported(load_task(TASK, "made"), read.turn.verdict).facts("f")


def test_equal_conditions_are_joined() -> None:
    one, two = Mark(kind="busy-machine"), Mark(kind="sealed")
    assert joined([one, two], [two, one]) == (one, two)
