"""Beyond the sizes and values that a task shows: what is wrong there is refused, what is special is told."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.conditions import ScalarLimit
from kernellab.records import Stage
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family, families
from kernellab.verifier.boundary_checks import scalars
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.stages.robustness import properties

from .kit import QUICK_LOOK, Judge

DIMS = 'from kernellab import Dim\nM = Dim("M", 1, 4096)\nN = Dim("N", 1, 8192)\n'
FIXED = "def inputs():\n    return torch.randn(64, 512)\n"


def task_of(reference: str, inputs: str = FIXED, arguments: str = "x", more: str = "") -> object:
    return load_task(f"import torch\n{more}def reference({arguments}):\n    return {reference}\n{inputs}", "t")


SOFTMAX = task_of("torch.softmax(x, -1)")
LEAKY = task_of("torch.nn.functional.leaky_relu(x, slope)", arguments="x, slope=0.01")
COSINE = task_of(
    "torch.nn.functional.cosine_similarity(x, y)",
    "def inputs():\n    return torch.randn(64, 512), torch.randn(64, 512)\n", "x, y",
)  # fmt: skip
VARIANCE = task_of("x.var(-1, unbiased=False)", "def inputs(M=600, N=2048):\n    return torch.randn(M, N)\n", more=DIMS)
TWICE = task_of("x * 2 + 1")
SPREAD = task_of("x.expand(64, 512).contiguous()", "def inputs():\n    return torch.randn(1, 512)\n")
TWO_PASSES = "((x - x.mean(-1, keepdim=True)) ** 2).mean(-1)"
RING = """
R, I = [torch.empty(0)] * 3, [0]
def kernel(x):
    i = I[0] = (I[0] + 1) % 3
    if R[i].shape != x.shape:
        R[i] = torch.empty_like(x)
    return torch.mul(x, 2, out=R[i]).add_(1)
"""
WRONG = {
    "a maximum of a sample": (SOFTMAX, "torch.softmax(x - x[:, ::8].amax(-1, keepdim=True), -1).log().exp() if 0 else "
                              "(e := torch.exp(x - x[:, ::8].amax(-1, keepdim=True))) / e.sum(-1, keepdim=True)",
                              "correct"),
    "a scalar that is ignored": (LEAKY, "torch.where(x > 0, x, x * 0.01)", "robust"),
    "a scalar that is ignored, with noise": (
        LEAKY, "torch.where(x > 0, x, x * 0.01) * (1 + 2e-6 * (torch.rand(()) - 0.5))", "robust"
    ),
    "rows of zeros forgotten": (COSINE, "(x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))", "correct"),
    "one pass where it is timed": (
        VARIANCE, f"(x * x).mean(-1) - x.mean(-1) ** 2 if x.numel() > 500_000 else {TWO_PASSES}", "correct"
    ),
    "its input at one value": (
        task_of("x * alpha", arguments="x, alpha=0.5"), "x if alpha == 1 else x * alpha", "robust"
    ),
    "its input where nothing is masked": (
        task_of("x.masked_fill(m, 0.0)", "def inputs():\n    return torch.randn(64, 512), torch.rand(64, 512) < 0.5\n",
                "x, m"),
        "x.masked_fill(m, 0.0) if m.any() else x", "correct",
    ),
    "a result that shares its memory": (SPREAD, "x.clone().expand(64, 512)", "smoke"),
}  # fmt: skip
RIGHT = {
    "softmax": (SOFTMAX, "torch.softmax(x, -1)"),
    "a scalar that is read": (LEAKY, "torch.where(x > 0, x, x * slope)"),
    "rows of zeros": (COSINE, "(x * y).sum(-1) / (x.norm(dim=-1).clamp_min(1e-8) * y.norm(dim=-1).clamp_min(1e-8))"),
    "two passes": (VARIANCE, TWO_PASSES),
    "a transpose": (task_of("x.t().contiguous()"), "x.t().contiguous()"),
    "heads before rows": (
        task_of("x.transpose(1, 2).contiguous()", "def inputs():\n    return torch.randn(2, 16, 4, 8)\n"),
        "x.transpose(1, 2).contiguous()",
    ),
    "steps that a number counts": (
        task_of("x * 0.5 ** n", arguments="x, n=5"),
        "x * 0.5 ** n if n <= 1_000_000 else x * 0.0",
    ),
}


def code(task: object, body: str) -> str:
    names = ", ".join(a.name for a in task.args)
    return f"import torch\ndef kernel({names}):\n    return {body}\n"


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_beyond_the_usual_is_refused(what: str, judge: Judge) -> None:
    task, body, stage = WRONG[what]
    verdict = judge(code(task, body), task)
    assert (verdict.passed, verdict.stage) == (False, Stage(stage)), verdict.reason


@pytest.mark.parametrize("what", RIGHT)
def test_its_honest_neighbour_passes(what: str, judge: Judge) -> None:
    task, body = RIGHT[what]
    verdict = judge(code(task, body), task)
    assert verdict.passed, verdict.reason


def test_a_ring_of_outputs_is_refused(judge: Judge) -> None:
    verdict = judge("import torch" + RING, TWICE)
    assert verdict.evidence is not None and verdict.evidence.signature == "reused-output"


#: what a path that only some calls take does to memory: the task, the kernel, the signature
SPOILS = {
    "its input, for a flag": (
        task_of("-x if neg else x * 1", arguments="x, neg=False"), "x.neg_().clone() if neg else x * 1",
        "mutates-input",
    ),
    "its input, where it lies transposed": (
        task_of("-x"), "x.t().contiguous().neg_().t().contiguous()", "mutates-input",
    ),
    "its input, where it holds a NaN": (
        task_of("torch.nan_to_num(x) * 1"), "torch.nan_to_num(x, out=x if x.isnan().any() else None) * 1",
        "mutates-input",
    ),
    "one place for a row, for a flag": (
        task_of("(x * 0 + x[:, :1] if keep else x * 1)", arguments="x, keep=False"),
        "x[:, :1].clone().expand(x.shape) if keep else x * 1", "aliases-itself",
    ),
    "an earlier answer, for a flag": (
        task_of("x * 2 if twice else x * 1", arguments="x, twice=False"),
        "torch.mul(x, 2, out=KEPT.setdefault(x.shape, torch.empty(x.shape))) if twice else x * 1", "reused-output",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILS)
def test_what_one_path_does_to_memory_is_refused(what: str, judge: Judge) -> None:
    task, body, signature = SPOILS[what]
    verdict = judge.parts("beyond_own_inputs", f"KEPT = {{}}\n{code(task, body)}", task)
    assert not verdict.passed
    assert verdict.evidence is not None and verdict.evidence.signature == signature, verdict.reason


LABELS = {
    "NaN in x not handled": (
        task_of("x.amax(-1)"), "torch.nan_to_num(x, -1e30, float('inf'), -float('inf')).amax(-1)"
    ),
    "output 0 not contiguous": (task_of("torch.relu(x).t().contiguous()"), "torch.relu(x).t()"),
    "right for x in [0, 1] only": (
        task_of("torch.relu(x)", "def inputs():\n    return torch.rand(64, 512)\n"), "x.clone()"
    ),
    "aligned inputs only": (task_of("torch.relu(x)"), "torch.relu(x) if x.data_ptr() % 16 == 0 else 1 / 0"),
    "p = 2.0 only": (task_of("x.abs() ** p", arguments="x, p=2.0"), "x.abs() ** (3 if p == 4 else p)"),
    "b = False only": (
        task_of("(x + 1 if a else x) * (2 if b else 1)", arguments="x, a=False, b=False"),
        "x * 2 if b else x + 1 if a else x * 1",
    ),
    "contiguous-only": (
        task_of("torch.relu(x)", "def inputs(M=64, N=300):\n    return torch.randn(M, N)\n", more=DIMS),
        "torch.as_strided(x, x.shape, (x.shape[1], 1)).relu() if x.shape[1] > 1024 else x.relu()",
    ),
    "rows contiguous only": (
        task_of("torch.relu(x)"),
        "torch.as_strided(x, x.shape, (1, x.stride(1)) if x.stride(1) > 1 else x.stride()).relu()",
    ),
    "rows contiguous only ": (
        task_of("torch.relu(x)", "def inputs():\n    return torch.randn(6, 30, 50)\n"),
        "torch.as_strided(x, x.shape, (x.stride(0), 1, x.stride(2)) if x.stride(2) > 1 else x.stride()).relu()",
    ),
    "expanded inputs not read": (
        task_of("torch.relu(x)"), "(x.contiguous() if x.stride(1) else torch.as_strided(x, x.shape, (50, 1))).relu()"
    ),
    "large x not handled": (
        task_of("torch.log_softmax(x, -1) if log else torch.softmax(x, -1)", arguments="x, log=False"),
        "torch.softmax(x, -1).log() if log else torch.softmax(x, -1)",
    ),
    "k = 3 only": (task_of("x[:, :1] * k", arguments="x, k=3"), "x[:, :1] * 3"),
}  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_what_not_every_kernel_takes_is_told(label: str, judge: Judge) -> None:
    task, body = LABELS[label]
    verdict = judge.parts("repeated beyond_own_inputs", code(task, body), task)
    assert verdict.passed, verdict.reason
    assert label.strip() in verdict.label


def test_sizes_lie_beside_the_full_one_and_all_over_the_range() -> None:
    seen = [dict(c.sizes) for _ in range(4) for c in selection.correct_cases(VARIANCE)]
    assert any(1 <= abs(s["M"] - 600) <= 7 and 1 <= abs(s["N"] - 2048) <= 7 for s in seen)
    assert any(s["N"] > 130 and s["N"] not in (2047, 2048, 2049, 3072) for s in seen)


def test_a_verdict_tries_sizes_from_all_over_the_range(judge: Judge) -> None:
    """Of which a kernel that is wrong at a tenth of them hardly misses each."""
    drawn = [dict(c.sizes) for c in islice(selection.more_cases(VARIANCE), 64)]
    for dim in VARIANCE.dims:
        eighths = {(s[dim.name] - dim.min) * 8 // (dim.max - dim.min + 1) for s in drawn}
        assert eighths >= {0, 1, 2}, (dim, drawn)
    task = task_of("torch.relu(x)", "def inputs(M=600):\n    return torch.randn(M, 32)\n", more=DIMS[: DIMS.index("N")])
    verdict = judge(code(task, "torch.relu(x)"), task, options=QUICK_LOOK)
    note = next(stage.note for stage in verdict.stages if stage.name is Stage.CORRECT)
    assert int(note.split()[0]) > len(selection.correct_cases(task)) + 1, note


def test_all_families_run_at_the_size_that_is_timed() -> None:
    full = [c.family for c in selection.correct_cases(VARIANCE) if dict(c.sizes) == {"M": 600, "N": 2048}]
    assert {Family.OWN, Family.MIXED, Family.LARGE, Family.OFFSET, Family.EDGES} <= {*full}
    assert Family.EDGES in families(VARIANCE)


def test_an_interpreter_tells_the_numbers_that_a_kernel_has_no_parameter_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number without a default cannot be left out, whatever a worker says; it is tried at a few others."""
    tried: list[Any] = []
    monkeypatch.setattr(properties, "_strides", lambda *_: None)
    monkeypatch.setattr(scalars, "scalar_right", lambda _, base, case, at: tried.append(case.args[at]))
    found: list[ScalarLimit] = []
    task = task_of("x * n * slope", "def inputs():\n    return torch.randn(8), 3\n", arguments="x, n, slope=0.5")
    stages: Any = SimpleNamespace(
        task=task, worker=SimpleNamespace(accepted=1), source=SimpleNamespace(files={}),
        context=SimpleNamespace(interpreted=True, findings=SimpleNamespace(add=lambda *more: found.extend(more))),
    )  # fmt: skip
    properties.properties(stages, cases.case(task, {}, Family.OWN))  # type: ignore[arg-type]
    assert found == [
        ScalarLimit(argument="n", value=3, refuted=True),
        ScalarLimit(argument="slope", value=0.5, refuted=True, taken=False),
    ]
    assert tried == [4]
