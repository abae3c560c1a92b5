"""Products of which only sums are asked: rewritten with a word about it, and kept where that is switched off."""

from __future__ import annotations

import pytest

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.task import Task, load_task
from tests.designer.test_designer import CPU

_ROW_SUMS = """import torch

def reference(x, w):
    return (x @ w).sum(dim=1)

def inputs(M=17, N=19, K=23):
    return torch.randn(M, K), torch.randn(K, N)
"""
_PRODUCT = _ROW_SUMS.replace(".sum(dim=1)", "")


def designs(task: Task, algebra: bool) -> list[DesignReply]:
    return RulesDesigner(algebra).designs(DesignBrief(task, CPU))


@pytest.mark.parametrize("algebra", [True, False])
def test_a_sum_of_a_product_multiplies_it_out_only_without_algebra(algebra: bool) -> None:
    task = load_task(_ROW_SUMS, "row_sums")
    for reply in designs(task, algebra):
        assert ("gemm(" in reply.sketch) is not algebra, reply.sketch
        assert reply.rewritten is algebra
        result = gate(reply.sketch, task, seconds=0.2)
        assert result.state is GateState.RIGHT, f"{result.reason}\n{reply.sketch}"


def test_a_product_that_is_asked_for_says_nothing_of_algebra() -> None:
    for reply in designs(load_task(_PRODUCT, "product"), True):
        assert "gemm(" in reply.sketch and not reply.rewritten
