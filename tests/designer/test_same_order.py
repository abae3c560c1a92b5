"""A design is the same text in every process: nothing hangs on where objects lie in memory."""

from __future__ import annotations

import pytest

from kernellab.bench.suites import load_suite
from kernellab.capture import capture
from kernellab.designer.ir.expr import Axis
from kernellab.designer.schedule import scheduled, styles
from kernellab.dsls.machine import named_chip
from kernellab.target import Backend, Target
from kernellab.task import load_task


def test_the_order_in_which_sets_give_axes_changes_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    # two groups of axes merge, and statistics are stored along both
    suite = {f"{t.category}/{t.title}": t for t in load_suite("builtin")}
    given = suite["attention/grouped"]
    task = load_task(given.text, given.name)
    graph = capture(task)
    target = Target("triton", Backend.CUDA, named_chip("h200"))
    texts = set()
    for sign in (1, -1):
        monkeypatch.setattr(Axis, "__hash__", lambda axis, sign=sign: sign * axis.uid)
        texts |= {tuple(scheduled(task, graph, target, style).text for style in styles(target))}
    assert len(texts) == 1
