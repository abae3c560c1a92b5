"""Checks between two answers of one kernel."""

from __future__ import annotations

import os

import pytest
import torch

from kernellab.records import Stage
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases.cases import case, make_args
from kernellab.verifier.cases.changes import changed
from kernellab.verifier.compare.error_places import where
from kernellab.verifier.judge import process_stats

from .kit import RMS_CPP, Judge

SUM = """
import torch
def reference(x):
    return x.sum(-1)
def inputs():
    return torch.randn(40, 300)
"""


def robust(verdict: object) -> str:
    return next(r.note for r in verdict.stages if r.name is Stage.ROBUST)  # type: ignore[attr-defined]


def test_what_the_reference_does_is_asked_of_the_kernel(judge: Judge) -> None:
    verdict = judge.once(RMS_CPP, judge.scale)
    assert verdict.passed, verdict.reason
    assert "changed elements" in robust(verdict) and "permuted batch" in robust(verdict)
    linear = judge.parts("metamorphic", "import torch\ndef kernel(x):\n    return x.sum(-1)\n", load_task(SUM, "sum"))
    assert linear.passed and "scaled input" in robust(linear)


def test_a_kernel_that_skips_a_lone_element_is_refused(judge: Judge) -> None:
    """Right to a few parts in a million on ordinary inputs: the element is far too small to be missed."""
    task = load_task(
        "import torch\ndef reference(x):\n    return x.sum(-1)\ndef inputs():\n"
        "    x = torch.rand(4, 4000) + 50\n    x[:, -1] = 1e-3 * torch.rand(4)\n    return x\n",
        "tail",
    )
    verdict = judge.parts("metamorphic", "import torch\ndef kernel(x):\n    return x[:, :-1].sum(-1)\n", task)
    assert not verdict.passed and verdict.stage in (Stage.CORRECT, Stage.ROBUST), verdict.reason


def test_a_changed_case_is_reproduced_with_its_change(judge: Judge) -> None:
    """Wrong only where one value is far larger than what the families draw."""
    code = (
        "import torch\ndef kernel(x):\n    y = x.sum(-1)\n"
        "    return torch.where(x[:, -1].abs() > 15, y - x[:, -1], y)\n"
    )
    task = load_task(
        "import torch\nDOMAIN = {'x': 'real'}\ndef reference(x):\n    return x.sum(-1)\n"
        "def inputs():\n    return torch.randn(40, 300).clamp(-3, 3)\n",
        "spike",
    )
    found = case(task, {}, Family.OWN).with_change(("element", 0, 299, 20.0))
    assert float(found.args[0][0, -1]) == 20.0
    verdict = judge.parts("metamorphic beyond_own_inputs", code, task)
    assert not verdict.passed and verdict.evidence is not None, verdict.reason
    scope: dict = {}
    exec(verdict.evidence.reproduction.split("for g, w")[0], scope)
    assert not torch.allclose(scope["got"][0], scope["want"][0], rtol=1e-3, atol=1e-3)


def test_changes_do_what_they_say() -> None:
    task = load_task(SUM, "sum")
    args = make_args(task, {}, Family.OWN, 5)
    (element,) = changed(args, ("element", 0, 7, 2.5))
    assert float(element.reshape(-1)[7]) == 2.5 and int((element != args[0]).sum()) == 1
    (permuted,) = changed(args, ("permuted", (0,), 3))
    assert torch.equal(permuted.sort(0).values, args[0].sort(0).values) and not torch.equal(permuted, args[0])
    assert torch.equal(changed(args, ("scale", -1, 2.0))[0], args[0] * 2)
    assert changed(args, ()) is args


def test_an_error_map_in_words() -> None:
    wrong = torch.zeros(40, 60, dtype=torch.bool)
    got = torch.zeros(40, 60)

    def words(mask: torch.Tensor) -> str:
        return where(mask, got)

    tail, comb, one = wrong.clone(), wrong.clone(), wrong.clone()
    tail[:, 48:] = True
    comb[:, 3::8] = True
    one[3, 4] = True
    assert words(tail) == "only from 48 to the end (60) of dimension 1"
    assert words(comb) == "only in steps of 8 along dimension 1, from 3 to 59"
    inner = wrong.clone()
    inner[:, 1:48] = True
    assert words(inner) == "only from 1 to 47 of dimension 1"
    assert words(one) == "in one element"
    assert words(~wrong) == "everywhere"
    got[3, 4] = float("nan")
    assert words(one) == "NaN or inf in one element"
    assert words(tail | one) == "NaN or inf in one element, wrong numbers only from 48 to the end (60) of dimension 1"


def test_what_was_changed_is_said_in_words() -> None:
    task = load_task(
        "import torch\ndef reference(a, k=2):\n    return a * k\ndef inputs():\n    return (torch.randn(3, 5),)\n"
    )
    plain = case(task, {}, Family.OWN)
    words = {
        ("element", 0, 7, 1e4): "the task's own inputs, a[1, 2] = 10000",
        ("scale", -1, 0.5): "the task's own inputs, each argument times 0.5",
        ("scalar", 1, 3): "the task's own inputs, k = 3",
        ("permuted", (0,), 5): "the task's own inputs, rows in another order",
    }
    assert {change: plain.with_change(change).words for change in words} == words
    assert plain.words == "the task's own inputs"


@pytest.mark.parametrize(("load", "times"), [(0.5, 1.0), (3.0, 1.5), (80.0, 4.0)])
def test_a_call_may_take_longer_where_others_want_the_cores(
    load: float, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert process_stats.crowding() == times
