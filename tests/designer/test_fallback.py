"""Nodes that no rule designs become calls of the framework between own launches, and are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.dry import dry_row, table
from kernellab.errors import DesignError
from kernellab.lowering import lower
from kernellab.records import GateState, Trust
from kernellab.session import design
from kernellab.session.turn.verifying import options_of
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.library import is_library
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from tests.designer.designer_cases import _task
from tests.lowering.test_cpp import load
from tests.lowering.test_triton import call

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
TRITON = Target("triton", Backend.INTERPRETER, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10))

TASKS = {
    "one_node": _task(
        "x, w", "torch.relu(torch.special.gammaincc(x.exp(), x * x) @ w)", "torch.randn(5, 7), torch.randn(7, 9)"
    ),
    "results": _task(
        "x", "torch.linalg.slogdet(x)[0], torch.linalg.slogdet(x)[1], x.sigmoid()", "torch.randn(4, 5, 5)"
    ),
    "complex_inside": _task("x", "torch.fft.rfft(x).abs() * 2 + x.sum()", "torch.randn(5, 8)"),
    "before_and_after": _task("x", "torch.softmax(torch.polygamma(2, x.abs() + 1), -1)", "torch.randn(5, 9)"),
    "of_sizes": """import torch
from kernellab import Dim

N = Dim("N", 2, 400)

def reference(x):
    return torch.polygamma(3, x.exp()).view(-1) * torch.arange(x.shape[0] * 3)

def inputs(N):
    return (torch.randn(N, 3),)
""",
}


def _designed(task: Task, target: Target) -> DesignReply:
    return RulesDesigner().design(DesignBrief(task, target))


@pytest.mark.parametrize("name", TASKS)
def test_a_graph_with_a_node_that_no_rule_knows_is_right_all_the_same(name: str, tmp_path: Path) -> None:
    task = load_task(TASKS[name], name)
    args = task.module().sample(seed=3)
    want = task.module().reference(args)
    for target in (CPU, TRITON):
        reply = _designed(task, target)
        assert reply.library_calls
        assert gate(reply.sketch, task, seconds=0.2).state is GateState.RIGHT, reply.sketch
        program = load_program(reply.sketch)
        calls = [is_library(k) for k in program.kernels]
        assert any(calls) and not all(calls)
        source = lower(program, bind(program, task, {}, target), target)
        got = load(source, tmp_path).kernel(*args) if target is CPU else call(source, tmp_path, *args)
        for one, other in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("torch.linalg.det(x)", "_linalg_det"),
        ("torch.linalg.det(x).reshape(1, 1)", "_linalg_det"),
        ("torch.linalg.det(x) * torch.rand(5)", "random"),
        ("x[x > 0].sum()", "depends on the values"),
    ],
)
def test_what_leaves_nothing_to_an_own_launch_is_refused(body: str, said: str) -> None:
    task = load_task(_task("x", body, "torch.randn(5, 5)"), "refused")
    with pytest.raises(Exception, match=said) as found:
        _designed(task, CPU)
    assert isinstance(found.value, DesignError) or "random" in said or "values" in said


def test_a_table_counts_such_designs_apart() -> None:
    rows = [dry_row(n, "x", False, load_task(TASKS[n], n), CPU) for n in ("one_node", "before_and_after")]
    rows.append(dry_row("own", "x", False, load_task(_task("x", "x * 2", "torch.randn(4, 5)"), "own"), CPU))
    assert [r.composed for r in rows] == [True, True, False] and all(r.passed for r in rows)
    assert "| **all** | 3 | 3 | 3 | 3 | 3 | 3 | 2 |" in table(rows, "")


def test_a_session_takes_the_rules_own_calls_and_no_one_elses(tmp_path: Path) -> None:
    task = load_task(TASKS["before_and_after"].replace("(5, 9)", "(64, 900)"), "labelled")
    session = design(task, dsl="cpp", approve="none", workspace=tmp_path, options={"level": "T1"}, max_turns=3)
    session.wait(120)
    verdict = next(t.verdict for t in session.turns if t.verdict is not None)
    assert verdict.trust is Trust.T1, verdict.reason
    candidate = next(t.candidate for t in session.turns if t.candidate is not None)
    assert options_of(session._bench, session.state, candidate).allow_library
    edited = candidate.model_copy(update={"sketch": f"{candidate.sketch}# a person's\n"})
    assert not options_of(session._bench, session.state, edited).allow_library
