"""A Model whose two modes give other answers says so; one whose modes agree, or that draws in training, does not."""

from __future__ import annotations

import pytest

from kernellab.task import load_task
from kernellab.verifier.stages.robust import other_mode_differs

from .kit import Judge

MODEL = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = {layer}
        {after}
    def forward(self, x):
        return self.f(x)
def get_inputs():
    return [torch.randn(8, 6)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("layer", "after", "differs"),
    [
        ("nn.BatchNorm1d(6)", "", True),
        ("nn.BatchNorm1d(6)", "self.eval()", True),
        ("nn.BatchNorm1d(6, track_running_stats=False)", "", False),
        ("nn.LayerNorm(6)", "", False),
        ("nn.Dropout(0.5)", "", False),
    ],
)
def test_whether_the_other_mode_has_other_answers(layer: str, after: str, differs: bool) -> None:
    task = load_task(MODEL.format(layer=layer, after=after), name="modes")
    args = task.module().sample({}, 0)
    before = [a.clone() for a in args]
    assert other_mode_differs(task, args) == differs
    assert all((a == b).all() for a, b in zip(args, before, strict=True))


@pytest.mark.parametrize(
    ("forward", "differs"),
    [
        ("return (y, y + 1) if self.training else y", True), ("return y if self.training else y.half()", True),
        ("assert self.training\n        return y", False),
    ],
)  # fmt: skip
def test_a_mode_of_another_form_differs_and_one_that_fails_has_no_answer(forward: str, differs: bool) -> None:
    text = MODEL.format(layer="nn.LayerNorm(6)", after="").replace(
        "return self.f(x)", f"y = self.f(x)\n        {forward}"
    )
    task = load_task(text, name="modes")
    assert other_mode_differs(task, task.module().sample({}, 0)) == differs


@pytest.mark.parametrize(
    ("reference", "kernel", "told"),
    [
        ("x * y", "x * y", False), ("x * y", "x * y + 0.0", True),
        ("x * y + 0.0", "x * y", True), ("x.sum(-1)", "0.0 - (-x).sum(-1)", False),
    ],
)  # fmt: skip
def test_a_zero_of_another_sign_is_told_where_one_sign_is_the_answer(
    reference: str, kernel: str, told: bool, judge: Judge
) -> None:
    head = "import torch\ndef {name}(x, y):\n    return {value}\n"
    task = load_task(
        f"{head.format(name='reference', value=reference)}\n"
        "def inputs():\n    return torch.randn(24, 40), torch.randn(24, 40)\n",
        "zeros",
    )
    verdict = judge.parts("properties", head.format(name="kernel", value=kernel), task)
    assert verdict.passed and verdict.marked("zeros-unsigned") is told, (verdict.reason, verdict.flags)
