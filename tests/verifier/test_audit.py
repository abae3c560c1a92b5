"""The task audit: what it counts, what it finds of inputs, and that it is kept."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from kernellab.task import load_task
from kernellab.task.module import forget_modules
from kernellab.verifier.audit import audit as audits
from kernellab.verifier.audit.audit import audit
from kernellab.verifier.audit.bound import Rates, reads_everything, roofline
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.audit.trace import Cost, trace

from .kit import Judge


def task_of(body: str, inputs: str, more: str = "") -> object:
    names = "abc"[: max(1, len(inputs.split(";")))]
    given = ", ".join(part.strip() for part in inputs.split(";"))
    return load_task(
        f"import torch\nF = torch.nn.functional\n{more}\ndef reference({', '.join(names)}):\n    return {body}\n"
        f"def inputs():\n    return ({given},)\n",
        "audited",
    )


def test_cost_is_counted_at_sizes_that_no_machine_holds() -> None:
    cost = trace(task_of("a @ b", "torch.rand(65536, 65536); torch.rand(65536, 65536)"))
    assert cost.total_flops == 2 * 65536**3
    assert cost.compulsory_bytes == 3 * 4 * 65536**2
    assert cost.unfused_bytes == cost.peak_bytes == cost.compulsory_bytes
    assert cost.classes == [["matmul"]]


def test_a_task_is_counted_alike_after_its_module_was_let_go() -> None:
    task = task_of("torch.softmax(a, -1) * b", "torch.rand(64, 32); torch.rand(32)")
    first = trace(task)
    forget_modules()  # a process of many tasks keeps some modules only
    again = trace(task)
    assert first.problem == "" and first.other_flops > 64 * 32 and again == first


def test_attention_counts_and_unfused_work_costs_more_than_it_must() -> None:
    shape = "torch.rand(2, 4, 128, 64)"
    cost = trace(task_of("F.scaled_dot_product_attention(a, b, c)", f"{shape}; {shape}; {shape}"))
    assert cost.total_flops == 2 * 2 * 2 * 4 * 128 * 128 * 64
    chain = trace(task_of("torch.tanh(a * 2 + 1)", "torch.rand(1000, 1000)"))
    assert chain.unfused_bytes > 2 * chain.compulsory_bytes and chain.classes == [[]]


@pytest.mark.parametrize(
    ("body", "inputs", "flops"),
    [
        ("a * 2 + 1", "torch.rand(1000)", 2_000),
        ("torch.exp(a)", "torch.rand(1000)", 10_000),
        ("(b * a).sum(-1)", "torch.rand(64); torch.rand(100, 64)", 2 * 6_400),
        ("a.pow(2).mean(-1)", "torch.rand(100, 64)", 2 * 6_400),
        ("a.t().contiguous()", "torch.rand(100, 64)", 0),
        ("torch.softmax(a, -1)", "torch.rand(100, 64)", 14 * 6_400),
    ],
)
def test_all_arithmetic_counts_and_moves_do_not(body: str, inputs: str, flops: int) -> None:
    cost = trace(task_of(body, inputs))
    assert cost.total_flops == 0
    assert cost.other_flops == flops


def test_the_bound_is_the_larger_of_bytes_and_all_arithmetic() -> None:
    cost = Cost(flops={"float32": 100}, other_flops=50, compulsory_bytes=400)
    one_unit = Rates(bandwidth=1e3, products=1e2, other=1e2, shared=True)
    assert roofline(cost, one_unit).ms == pytest.approx(1.5e3)
    assert roofline(cost, replace(one_unit, shared=False)).ms == pytest.approx(1e3)
    assert roofline(cost, replace(one_unit, bandwidth=10)).ms == pytest.approx(4e4)


def test_peak_memory_forgets_what_has_gone() -> None:
    cost = trace(task_of("((a + 1) * 2 - 3).sum()", "torch.rand(1 << 20)"))
    # the argument and at most two intermediate results at once
    assert 2 * 4 << 20 <= cost.peak_bytes <= (3 * 4 << 20) + 64


@pytest.mark.parametrize(
    ("body", "inputs", "rule"),
    [
        ("torch.relu(a)", "torch.rand(64, 64)", "identity"),
        ("torch.relu(a - 5)", "torch.rand(64, 64)", "constant"),
        ("a + 0 * b", "torch.randn(64, 64); torch.randn(64, 64)", "unused-input"),
        ("torch.where(a > 0, a, a * 1e-9)", "torch.rand(64, 64)", "identity"),
    ],
)
def test_inputs_that_let_a_degenerate_kernel_pass_are_named(body: str, inputs: str, rule: str) -> None:
    found = audit(task_of(body, inputs))
    assert not found.discriminating and rule in [flag for flag, _ in found.flags]


def test_another_family_is_proposed() -> None:
    found = audit(task_of("torch.relu(a)", "torch.rand(64, 64)"))
    assert found.family == "normal over all reals"
    assert audit(task_of("torch.softmax(a, -1)", "torch.randn(64, 64)")).family == "inputs"


def test_which_elements_matter() -> None:
    every = audit(task_of("a.amax(-1)", "torch.randn(32, 48)"))
    assert every.impact == {"a": 1.0} and every.every_element
    half = audit(task_of("a[:, ::2].sum(-1)", "torch.randn(32, 48)"))
    assert half.impact["a"] == pytest.approx(0.5) and not half.every_element
    triangular = task_of("a @ b", "torch.randn(32, 32).tril(); torch.randn(32, 32)")
    assert not audit(triangular).every_element and not reads_everything(triangular)


def test_parameters_are_read_without_a_warning() -> None:
    text = (
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.shift = torch.nn.Parameter(torch.arange(6.0) - 3)\n"
        "    def forward(self, x):\n        return x + self.shift.relu()\n"
        "def get_inputs():\n    return [torch.randn(5, 6)]\ndef get_init_inputs():\n    return []\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = audit(load_task(text, "shifted"))
    # all but what relu hides for good
    assert found.impact["x"] == 1.0 and 0.5 <= found.impact["shift"] <= 1.0


def test_an_audit_is_kept_by_the_tasks_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    task = task_of("a.cos() + 0.25", "torch.randn(8, 40)")
    first = audit(task)
    (kept,) = (tmp_path / "audits").iterdir()
    audits._audit.cache_clear()
    monkeypatch.setattr(audits, "_made", lambda _: pytest.fail("made anew"))
    assert audit(task) == first
    kept.write_text("{ broken")
    audits._audit.cache_clear()
    monkeypatch.undo()
    assert audit(task) == first


def test_a_verdict_says_that_its_task_proves_little(judge: Judge) -> None:
    task = task_of("torch.relu(a)", "torch.rand(40, 50)")
    verdict = judge("import torch\ndef kernel(a):\n    return torch.relu(a) + 0\n", task)
    assert verdict.passed, verdict.reason
    assert "task not discriminating" in verdict.label
    assert any(flag.startswith("task: identity") for flag in verdict.flags)
