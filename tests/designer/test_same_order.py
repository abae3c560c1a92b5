"""A design is the same text in every process: nothing hangs on where objects lie in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kernellab.bench.suites import load_suite
from kernellab.capture import capture
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.launch import Launch, LaunchKind
from kernellab.designer.schedule import scheduled, styles
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.order import axis_order
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


@pytest.mark.parametrize("sign", [1, -1])
def test_axes_that_no_operand_orders_run_in_the_order_in_which_they_were_made(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Axis, "__hash__", lambda axis: sign * axis.uid)
    axes = [Axis(4) for _ in range(6)]
    context = cast("Context", SimpleNamespace(gpu=False, volume=lambda of: len(list(of))))
    launch = Launch(LaunchKind.REDUCTION, par=frozenset(axes[:3]), red=frozenset(axes[3:]))
    assert axis_order(context, launch) == tuple(axes)
