"""Inputs drawn from what a task declares: plain bugs are refused or told as conditions, honest kernels pass."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice

import pytest
import torch
from pytest import MonkeyPatch

from kernellab.conditions import DrawnInPart, DrawnLimit, ScalarLimit, of
from kernellab.errors import TaskError
from kernellab.records import Author, Source, Stage, Trust, Verdict
from kernellab.task import Task, load_task
from kernellab.task.sample.inputs import Family, families
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier import RankOptions, Verifier
from kernellab.verifier.boundary_checks.drawn_answers import _turned
from kernellab.verifier.boundary_checks.layouts import as_drawn
from kernellab.verifier.cases import cases, device, selection
from kernellab.verifier.cases.changes import _together, changed
from kernellab.verifier.cases.extents import large, two_long
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.cases.last_elements import decided_last
from kernellab.verifier.cases.patterns import patterned
from kernellab.verifier.cases.selection import both_long, wide
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.survey import ranges
from kernellab.verifier.survey.proposals import Grade
from kernellab.verifier.survey.ranges import is_safe, runs
from kernellab.verifier.survey.survey import Survey
from kernellab.verifier.survey.watch import Exact

from .kit import QUICK_LOOK, TARGET, Judge

DIMS = 'from kernellab import Dim\nM = Dim("M", 1, 4096)\nN = Dim("N", 1, 1048576)\n'


def task_of(body: str, arguments: str, inputs: str, more: str = "") -> Task:
    text = f"import torch\n{more}def reference({arguments}):\n    return {body}\ndef inputs():\n    return {inputs}\n"
    return load_task(text, "t")


def kernel(task: Task, body: str) -> str:
    names = ", ".join(a.name for a in task.args)
    return f"import torch\ninf = float('inf')\ndef kernel({names}):\n    return {body}\n"


ONE = "torch.randn(24, 40)"
BYTES = "torch.randint(0, 256, (24, 40), dtype=torch.uint8)"
SIGNED = "torch.randint(-99, 100, (24, 40), dtype=torch.int32)"
CLAMP = task_of("x.clamp(-20, 20)", "x", ONE)
NAN = task_of("torch.nan_to_num(x, 3.0) * 2", "x", ONE)
COMPARED = task_of("(x <= 0.5).float()", "x", ONE)
BYTE_SUM = task_of("x.sum(-1)", "x", "torch.randint(0, 256, (8, 200), dtype=torch.uint8)")
MASK = task_of(
    "torch.softmax(x.masked_fill(~keep, -1e9), -1)", "x, keep", "torch.randn(24, 40), torch.ones(24, 40).tril().bool()"
)
IGNORED = task_of(
    "torch.nn.functional.cross_entropy(x, y, reduction='none')",
    "x, y",
    "torch.randn(24, 40), torch.randint(0, 40, (24,))",
)
LENGTHS = task_of(
    "(x * (torch.arange(40) < n[:, None])).sum(-1)", "x, n", "torch.randn(24, 40), torch.randint(1, 30, (24,))"
)
FAR = task_of("torch.where(x * 0.5 + 1 > 500, x * 3, x)", "x", ONE)
OFFSETS = task_of(
    "x * (torch.bucketize(torch.arange(24), o, right=True)[:, None] % 2)", "x, o",
    "torch.randn(24, 40), torch.tensor([0, 6, 12, 18, 24])",
)  # fmt: skip
ENTROPY = task_of("-(p * torch.log(p + 1e-9)).sum(-1)", "p", "torch.softmax(3 * torch.randn(24, 40), -1)")
FLOOR = task_of("x // 7", "x", SIGNED)
POOLED = task_of("(x == x.amax(-1, keepdim=True)) * g", "x, g", f"{ONE}, {ONE}")
SOME = task_of("(x > 3).any(-1)", "x", "torch.randn(64, 256)")
GRID = task_of("torch.round(x / s).clamp(-128, 127) * s", "x, s", f"{ONE}, torch.rand(40) / 16 + 0.01")
ROWS = task_of(
    "torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)", "x", ONE
)  # fmt: skip

ENTR = task_of("torch.special.entr(x)", "x", "torch.rand(24, 40)")
TWENTIETHS = task_of("torch.round(x * 20).clamp(-128, 127).to(torch.int8)", "x", ONE)
COMPLEX = "torch.randn(24, 40, dtype=torch.complex64)"
SGN = task_of("torch.sgn(x)", "x", COMPLEX)
SIZE = task_of("x.abs()", "x", COMPLEX)
INVERSE = task_of("1 / x", "x", COMPLEX)
EVERY_OTHER = task_of("x * 2", "x", "torch.randn(24, 80)[:, ::2]")
GREATER = task_of("torch.where(x > y, x, -y)", "x, y", f"{ONE}, {ONE}")
CLOSE = task_of("torch.isclose(x, torch.zeros(()), atol=1e-3, rtol=0.0)", "x", "torch.randn(24, 40) / 100")

ENDED = task_of("torch.nan_to_num(x, nan=0.5, posinf=9.0)", "x", ONE)
CAPPED = load_task(
    "import torch\ndef reference(x, c=30.0):\n    return torch.softmax(torch.tanh(x / c) * c, -1)\n"
    "def inputs():\n    return (torch.randn(24, 40) * 20,)\n",
    "capped",
)
REFUSED = {
    "the dtype's end, which float64 has elsewhere": (ENDED, "torch.where(x != x, 0.5, x).clamp(max=9.0).abs()"),
    "a zero among numbers that come near to it": (ENTR, "-x * torch.log(x)"),
    "ties of a product": (TWENTIETHS, "torch.floor(x * 20 + 0.5).clamp(-128, 127).to(torch.int8)"),
    "a complex zero": (SGN, "x / x.abs()"),
    "complex numbers on an axis": (SIZE, "x.real.abs() * torch.sqrt(1 + (x.imag / x.real) ** 2)"),
    "the strides of the task's own inputs": (EVERY_OTHER, "torch.as_strided(x, x.shape, (40, 1)) * 2"),
    "two equal numbers compared": (GREATER, "torch.where(x >= y, x, -y)"),
    "a clamp beyond what is drawn": (CLAMP, "x * 1"),
    "NaN where nan_to_num is": (NAN, "x * 2"),
    "a comparison turned round": (COMPARED, "(~(x > 0.5)).float()"),
    "a sum of bytes in 16 bits": (BYTE_SUM, "x.to(torch.int16).cumsum(-1, dtype=torch.int16)[:, -1].long()"),
    "a mask built in": (MASK, "torch.softmax(x.masked_fill(~torch.ones(24, 40).tril().bool(), -1e9), -1)"),
    "a target that is ignored": (IGNORED, "-torch.log_softmax(x, -1).gather(1, y[:, None].clamp(min=0))[:, 0]"),
    "lengths up to the full one": (LENGTHS, "(x[:, :36] * (torch.arange(36) < n[:, None])).sum(-1)"),
    "a branch far away": (FAR, "x * 1"),
    "offsets built in": (OFFSETS, "x * (torch.arange(24) // 6 % 2 == 0).float()[:, None] * 0 + x * "
                         "((torch.arange(24) // 6 + 1) % 2)[:, None]"),
    "a maximum's place that forgets NaN": (POOLED, "(x == torch.nan_to_num(x, -1e30).amax(-1, keepdim=True)) * g"),
    "a comparison that only one row shows": (SOME, "(x >= 3).any(-1)"),
    "a probability of zero": (ENTROPY, "-(p * torch.log(p)).sum(-1)"),
    "ties rounded up": (GRID, "torch.floor(x / s + 0.5).clamp(-128, 127) * s"),
    "ties away from zero": (GRID, "(torch.sign(x) * torch.floor(x.abs() / s + 0.5)).clamp(-128, 127) * s"),
    "division of negatives": (FLOOR, "torch.div(x, 7, rounding_mode='trunc')"),
}  # fmt: skip

SOFTMAX = task_of("torch.softmax(x, -1)", "x", ONE)
ARGMAX = task_of("x.argmax(-1)", "x", ONE)
MAX = task_of("x.amax(-1)", "x", ONE)
GATHER = task_of("x[i]", "x, i", "torch.randn(24, 40), torch.randint(0, 24, (60,))")
INTEGERS = task_of("x.sum(-1)", "x", "torch.randint(0, 100, (24, 40), dtype=torch.int32)")
PREFIXES = task_of(
    "torch.stack([x[i, :int(n[i])].sum() for i in range(8)])",
    "x, n",
    "torch.randn(8, 40), torch.cat([torch.tensor([1, 40]), torch.randint(1, 41, (6,))])",
)
SEGMENTS = task_of(
    "torch.stack([x[int(o[k]):int(o[k + 1])].sum() for k in range(6)])", "x, o",
    "torch.randn(64), torch.cat([torch.zeros(1).long(), torch.randperm(63)[:5].sort().values + 1, torch.tensor([64])])",
)  # fmt: skip
PRODUCT = task_of("x @ y", "x, y", "torch.randn(12, 20), torch.randn(20, 8)")
PLACES = task_of("x * torch.cos(p.float() / 100)[:, None]", "x, p", "torch.randn(24, 40), torch.arange(24)")
TOLD = {
    "a step of a vector next to a matrix": (
        task_of("x * w", "x, w", f"{ONE}, torch.randn(40)"), "x * torch.as_strided(w, w.shape, (1,))",
        "contiguous-only",
    ),
    "another number for inputs that are not calm": (
        CAPPED, "(e := torch.exp(torch.tanh(x / c) * c)) / e.sum(-1, keepdim=True)", "c = 30.0 only"
    ),
    "what a mask covers in one row": (
        task_of("torch.where(m, x, 0.0)", "x, m", "torch.randn(4096), torch.rand(4096) > 0.5"), "x * m",
        "NaN in x not handled",
    ),
    "lengths of which one is 0": (
        PREFIXES, "(x * (torch.arange(40) < n[:, None].clamp(min=1))).sum(-1)", "n below 0 not handled"
    ),
    "segments of which one is empty": (
        SEGMENTS, "torch.stack([x[int(a):max(int(b), int(a) + 1)].sum() for a, b in zip(o[:-1], o[1:])])",
        "equal neighbours in o not handled",
    ),
    "terms of a zero left out": (
        PRODUCT, "torch.where((x[..., None] == 0) | (y == 0), 0, x[..., None] * y).sum(1)",
        "inf in y times 0 in x not handled",
    ),
    "positions in 16 bits": (
        PLACES, "x * torch.cos(p.to(torch.int16).float() / 100)[:, None]", "p above 23 not handled"
    ),
    "a square that overflows": (
        task_of("torch.hypot(x, torch.ones(()))", "x", ONE), "(x * x + 1).sqrt()", "large x not handled"
    ),
    "NaN is the least": (ARGMAX, "torch.where(x.isnan(), -inf, x).argmax(-1)", "NaN in x not handled"),
    "a maximum from the least float": (
        MAX, "x.amax(-1).clamp_min(torch.finfo(torch.float32).min)", "-inf in x not handled"
    ),
    "negative places": (GATHER, "x[i.clamp(min=0)]", "i below 0 not handled"),
    "a sum in 32 bits": (INTEGERS, "x.sum(-1, dtype=torch.int32).long()", "x beyond 0..99 not handled"),
    "a maximum from -1e30": (
        task_of("x.amax(0)", "x", ONE), "x.amax(0).clamp(min=-1e30)", "large x not handled"
    ),
    "the last of two NaN": (
        ARGMAX, "torch.where(x.isnan().any(-1), 39 - x.isnan().flip(-1).int().argmax(-1), x.argmax(-1))",
        "NaN in x not handled",
    ),
    "integers as float32": (INTEGERS, "x.float().sum(-1).long()", "x beyond 0..99 not handled"),
    "a minimum by a comparison": (
        task_of("torch.minimum(x, y)", "x, y", f"{ONE}, {ONE}"), "torch.where(x < y, x, y)", "NaN in x not handled"
    ),
    "a median by a network of comparisons": (
        task_of("x.unfold(1, 3, 1).median(-1).values", "x", ONE),
        "(lo := lambda a, b: torch.where(a < b, a, b)) and (hi := lambda a, b: torch.where(a > b, a, b)) and "
        "hi(lo(x[:, :-2], x[:, 1:-1]), lo(hi(x[:, :-2], x[:, 1:-1]), x[:, 2:]))",
        "NaN in x not handled",
    ),
    "a sort in which NaN is the least": (
        task_of("x.sort(-1).values", "x", ONE), "x.nan_to_num(-inf, inf, -inf).sort(-1).values",
        "NaN in x not handled",
    ),
}  # fmt: skip

HONEST = {
    "end": (ENDED, "torch.where(x != x, 0.5, torch.where(x == inf, 9.0, x.clamp(min=torch.finfo(x.dtype).min)))"),
    "capped": (CAPPED, "torch.softmax(c * torch.tanh(x / c), -1)"),
    "entr": (ENTR, "torch.where(x > 0, -x * torch.log(x), 0.0)"),
    "ties": (TWENTIETHS, "torch.round(x * 20).to(torch.int32).clamp(-128, 127).to(torch.int8)"),
    "sgn": (SGN, "torch.where(x == 0, x, x / x.abs())"),
    "size": (SIZE, "torch.hypot(x.real, x.imag)"),
    # as C++'s 1.0f / x: an infinity where torch has NaN in both parts
    "complex inverse": (INVERSE, "torch.where(x == 0, torch.tensor(complex(inf, float('nan'))).to(x), 1 / x)"),
    "every other": (EVERY_OTHER, "x + x"),
    "greater": (GREATER, "torch.where(x > y, x, -1 * y)"),
    "clamp": (CLAMP, "torch.minimum(torch.maximum(x, torch.tensor(-20.0)), torch.tensor(20.0))"),
    "nan_to_num": (NAN, "torch.where(x.isnan(), 3.0, x).clamp(-3.4028234663852886e38, 3.4028234663852886e38) * 2"),
    "comparison": (COMPARED, "torch.where(x <= 0.5, 1.0, 0.0)"),
    "bytes": (BYTE_SUM, "x.long().sum(-1)"),
    "mask": (MASK, "torch.softmax(torch.where(keep, x, torch.tensor(-1e9)), -1)"),
    "ignored": (
        IGNORED, "torch.where(y == -100, 0.0, -torch.log_softmax(x, -1).gather(1, y[:, None].clamp(min=0))[:, 0])"
    ),
    "lengths": (LENGTHS, "torch.where(torch.arange(40) < n[:, None], x, 0.0).sum(-1)"),
    "far": (FAR, "torch.where(x > 998, x * 3, x)"),
    "offsets": (OFFSETS, "x * ((o[None] <= torch.arange(24)[:, None]).sum(-1) % 2)[:, None]"),
    "entropy": (ENTROPY, "-torch.where(p > 0, p * torch.log(p), 0.0).sum(-1)"),
    "a reciprocal before it rounds": (GRID, "torch.round(x * (1 / s)).clamp(-128, 127) * s"),
    "rows on a grid by a reciprocal": (
        ROWS, "torch.round(x * (127 / x.abs().amax(-1, keepdim=True))).to(torch.int8)"
    ),
    "floor": (FLOOR, "torch.floor(x.double() / 7).int()"),
    "softmax": (SOFTMAX, "(e := torch.exp(x - x.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True)"),
    "gather": (GATHER, "x.index_select(0, torch.where(i < 0, i + 24, i))"),
}  # fmt: skip

TWO = task_of("x + y", "x, y", f"{ONE}, {ONE}")
IMAGE = task_of("x * 2", "x", "torch.randn(2, 3, 8, 8)")
LEAKY = load_task(
    "import torch\ndef reference(x, slope=0.01):\n    return torch.where(x > 0, x, x * slope)\n"
    f"def inputs():\n    return {ONE}\n",
    "leaky",
)
ROLLED = load_task(
    f"import torch\ndef reference(x, k=3):\n    return torch.roll(x, k, -1)\ndef inputs():\n    return {ONE}\n",
    "rolled",
)
LOGADDEXP = task_of("torch.logaddexp(x, y)", "x, y", f"{ONE}, {ONE}")
TOGETHER = "special values in x and y at once not handled"
HONEST |= {
    "logaddexp": (
        LOGADDEXP,
        "torch.where((m := torch.maximum(x, y)).isinf(), m, m + torch.log1p(torch.exp(-(x - y).abs())))",
    )
}
TOLD |= {
    "complex numbers of one half": (
        task_of("torch.angle(x)", "x", "torch.complex(torch.rand(24, 40) + 0.1, torch.randn(24, 40))"),
        "torch.where(x == 0, 0.0, torch.atan(x.imag / x.real))", "x as drawn only",
    ),
    "denormals of float16": (
        task_of("x.float() * 3", "x", "torch.randn(24, 40).half()"),
        "torch.where(x.abs() < 2**-14, 0.0, x.float()) * 3", "tiny x not handled",
    ),
    "a shift by more than there is": (ROLLED, "torch.cat((x[:, -k:], x[:, :-k]), -1) if k else x * 1", "k = 3 only"),
    "one transposed argument": (TWO, "torch.as_strided(x, x.shape, y.stride()) + y", "rows contiguous only"),
    "channels last": (
        IMAGE, "x * 2 if x.is_contiguous() or x.stride(3) < x.stride(2) else x * 3", "rows contiguous only"
    ),
    "one tensor given twice": (
        TWO, "x + y if x.data_ptr() != y.data_ptr() else x * 3", "one tensor given twice not handled"
    ),
    "a slope above one": (LEAKY, "torch.maximum(x, x * slope)", "slope = 0.01 only"),
    "two negative infinities at once": (
        LOGADDEXP, "torch.maximum(x, y) + torch.log1p(torch.exp(-(x - y).abs()))", TOGETHER
    ),
    "two zeros at once": (
        task_of("torch.xlogy(x, y)", "x, y", "torch.rand(24, 40), torch.rand(24, 40)"), "x * torch.log(y)",
        "0, near 0 or 1 in x and y at once not handled",
    ),
    "two infinities of which one is a row": (
        task_of("torch.where(x == y, 0.0, x - y)", "x, y", f"{ONE}, torch.randn(40)"), "x - y", TOGETHER
    ),
    "a negative shift": (ROLLED, "torch.roll(x, abs(k), -1)", "k = 3 only"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_reference_is_there_for_is_refused(what: str, judge: Judge) -> None:
    task, body = REFUSED[what]
    verdict = judge.parts("beyond_own_inputs", kernel(task, body), task)
    assert not verdict.passed, verdict.coverage


@pytest.mark.parametrize("what", TOLD)
def test_what_fails_beyond_the_own_inputs_is_a_condition(what: str, judge: Judge) -> None:
    task, body, words = TOLD[what]
    verdict = judge.parts("beyond_own_inputs", kernel(task, body), task)
    assert verdict.passed, verdict.reason
    assert words in verdict.labels


@pytest.mark.parametrize("what", HONEST)
def test_the_honest_neighbour_passes(what: str, judge: Judge) -> None:
    task, body = HONEST[what]
    verdict = judge.parts("beyond_own_inputs", kernel(task, body), task)
    assert verdict.passed, verdict.reason
    assert verdict.coverage is not None and verdict.coverage.cases


def test_a_refusal_beyond_the_own_inputs_names_the_remedy(judge: Judge) -> None:
    task, body = REFUSED["a target that is ignored"]
    assert "DOMAIN = {'y': 'fixed'}" in judge.parts("drawn", kernel(task, body), task).reason


def test_a_fixed_size_is_told(judge: Judge) -> None:
    verdict = judge.parts("fixed_sizes", kernel(CLAMP, HONEST["clamp"][1]), CLAMP)
    assert "sizes: at 24 x 40 only" in verdict.flags and "sizes: at 24 x 40 only" not in verdict.charges


def survey_of(task: Task) -> Survey:
    found = Survey(selection.drawn_base(task))
    for _ in found.make():
        pass
    return found


def test_a_limit_of_samples_that_come_near_to_zero_is_zero() -> None:
    found = survey_of(task_of("torch.softmax(x, -1)", "x", "torch.rand(64, 96)"))
    lows = {one.right.low for one in found.cases if one.right.high is not None and one.right.low is not None}
    assert lows == {0.0}


def test_a_branch_that_nothing_reaches_keeps_the_share_below_the_whole() -> None:
    reachable = survey_of(task_of("torch.where(x > 1, x * 2, x)", "x", ONE))
    never = survey_of(task_of("torch.where(x * x < -1, x * 2, x)", "x", ONE))
    assert reachable.edges and reachable.reached == reachable.edges
    assert len(never.reached) < len(never.edges)
    assert {(e.op, e.name) for e in never.edges - never.reached} >= {("where", "true"), ("lt", "difference below")}


SPARSE = "torch.randn(24, 40) * (torch.rand(24, 40) < 0.7)"


@pytest.mark.parametrize("inputs", [f"{ONE}, {ONE}", f"{SPARSE}, {SPARSE}"])
def test_equal_elements_are_drawn_where_it_matters_how_they_compare(inputs: str) -> None:
    # zeros meet in the sparse inputs, where x and -y are the same
    task = task_of("torch.where(x > y, x, -y)", "x, y", inputs)
    for _ in range(20):
        told = []
        for one in survey_of(task).cases:
            x, y = one.case.args
            if one.grade is Grade.REFUSED:
                wrong, honest = torch.where(x >= y, x, -y), torch.where(x > y, x, -1 * y)
                assert _turned(one, [honest]) is None
                told.append(_turned(one, [wrong]) is not None)
        assert any(told)


def test_a_maximum_that_a_branch_makes_is_not_decided_by_equal_elements() -> None:
    found = survey_of(task_of("torch.where(x > y, x, y)", "x, y", f"{ONE}, {ONE}"))
    assert found.reached >= {e for e in found.edges if e.op == "gt"}
    assert not any(turned.matters for one in found.cases for turned in one.turned)


def test_a_scalar_that_changes_the_shape_is_told_where_the_kernel_is_wrong_there(judge: Judge) -> None:
    text = (
        "import torch\ndef reference(x, k=3):\n    return x[:, k:] * 2\ndef inputs():\n    return torch.randn(24, 40)\n"
    )
    body = "import torch\ndef kernel(x, k):\n    return x[:, k:] * (2 if k == 3 else 3)\n"
    verdict = judge.parts("properties", body, load_task(text, "cut"))
    assert verdict.passed and "k = 3 only" in verdict.label.split(", "), verdict.reason


@pytest.mark.parametrize(
    "body",
    [
        "x * 2 if not 0x300 <= x.shape[1] < 0x340 else x * 3",
        "x * 2 if x.shape[1] != 2 else x * 3",
        "x * 2 if x.shape[1] != (1 << 10) + 1 else x * 3",
    ],
)
def test_sizes_that_a_source_writes_otherwise_and_two_are_met(body: str, judge: Judge) -> None:
    verdict = judge(kernel(SIZED, body), SIZED, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT


def test_an_output_whose_memory_is_negated_is_judged_as_it_reads(judge: Judge) -> None:
    assert not judge(kernel(TWO, "torch._neg_view(x + y)"), TWO, options=QUICK_LOOK).passed
    assert judge(kernel(TWO, "torch._neg_view(-(x + y))"), TWO, options=QUICK_LOOK).passed


def test_a_cache_whose_key_forgets_the_order_of_rows_is_refused(judge: Judge) -> None:
    lines = (
        "    key = float(x.double().sum())\n    if key != held[0]:\n        held[:] = [key, x * 2]\n"
        "    return held[1].clone()\n"
    )
    task = task_of("x * 2", "x", "torch.randint(-9, 9, (24, 40)).float()")
    verdict = judge(f"import torch\nheld = [None, None]\ndef kernel(x):\n{lines}", task)
    assert not verdict.passed


def test_a_complex_argument_is_surveyed_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    from kernellab.verifier.survey.watch import watched

    task = task_of("x.abs() + 1 / x.abs()", "x", "torch.randn(24, 40, dtype=torch.complex128)")
    watch = watched(task.module().results, task.module().sample())
    assert any(edge.op == "abs" for edge in watch.edges)
    assert not [str(w.message) for w in recwarn if "complex" in str(w.message)]


def test_a_bound_behind_an_affine_step_is_reached_by_the_solver() -> None:
    found = survey_of(task_of("torch.where(x * 0.5 + 30 > 71.25, x * 3, x)", "x", "torch.rand(24, 40) * 100"))
    assert {"difference below", "difference at", "difference above"} <= {e.name for e in found.reached if e.op == "gt"}


def test_where_the_reference_raises_or_is_noise_the_input_is_dropped() -> None:
    found = survey_of(task_of("x // y", "x, y", f"{SIGNED}, {SIGNED.replace('-99', '1')}"))
    assert found.dropped
    for one in found.cases:
        assert bool((one.case.args[1] != 0).all())


def test_a_verdict_s_share_is_a_number(judge: Judge) -> None:
    verdict: Verdict = judge.parts("drawn", kernel(COMPARED, HONEST["comparison"][1]), COMPARED)
    assert verdict.coverage is not None and verdict.coverage.share is not None
    assert 0 < verdict.coverage.share <= 1
    assert Verdict.model_validate_json(verdict.model_dump_json()).coverage == verdict.coverage


SIZED = load_task(
    f"import torch\n{DIMS}def reference(x):\n    return x * 2\ndef inputs(M=60, N=50):\n    return torch.randn(M, N)\n",
    "sized",
)
ROWS_TO_20000 = """
import torch
from kernellab import Dim
M, N = Dim("M", 1, 300), Dim("N", 1, 20000)
def reference(x):
    return {}
def inputs(M=64, N=300):
    return torch.randn(M, N)
"""
TAILS = {
    "a maximum of the first tiles": ("x.amax(-1)", "x[:, :16384].amax(-1)"),
    "a place among the first tiles": ("x.argmin(-1)", "x[:, :16384].argmin(-1)"),
    "a sum of exponentials without its rest": (
        "x.logsumexp(-1)",
        "x[:, : x.shape[1] // 128 * 128 if x.shape[1] > 5000 else None].logsumexp(-1)",
    ),
    "columns without the last rows": ("x.amax(0)", "x[:256].amax(0)"),
}


@pytest.mark.parametrize("what", TAILS)
def test_the_last_elements_decide_at_the_ends_of_the_dims(what: str, judge: Judge) -> None:
    reference, body = TAILS[what]
    task = load_task(ROWS_TO_20000.format(reference), "t")
    verdict = judge(kernel(task, body), task, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT, verdict.reason
    honest = judge(kernel(task, reference), task, options=QUICK_LOOK)
    assert honest.passed, honest.reason


AT_SIZES = {
    "more columns than sixteen bits count": "x * 2 if x.shape[1] < 40_000 else x * 3",
    "a multiple of a number that the source names": "x * 2 if x.shape[0] % 997 or not x.shape[0] else x * 3",
    "two large extents at once": "x * 2 if min(x.shape) < 500 else x * 3",
    "powers of two": "x * 2 if x.shape[0] & (x.shape[0] - 1) or x.shape[0] < 2 else x * 3",
}


def test_a_long_row_of_a_mask_that_is_true_throughout_is_met(judge: Judge) -> None:
    dims = 'from kernellab import Dim\nM, N = Dim("M", 1, 64), Dim("N", 1, 200_000)\n'
    text = f"import torch\n{dims}def reference(keep):\n    return keep.sum(-1)\n"
    task = load_task(f"{text}def inputs(M=8, N=96):\n    return torch.rand(M, N) < 0.1,\n", "counted")
    verdict = judge(kernel(task, "keep.sum(-1) % 65536"), task, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT
    assert judge(kernel(task, "keep.long().sum(-1)"), task, options=QUICK_LOOK).passed


@pytest.mark.parametrize("body", ["torch.where(x > 0, x, x * 0.01)", "torch.where(x > 0, x, x * 0.02)"])
def test_a_kernel_without_a_parameter_for_a_default_number_is_held_at_that(body: str, judge: Judge) -> None:
    verdict = judge.parts("repeated properties", f"import torch\ndef kernel(x):\n    return {body}\n", LEAKY)
    assert verdict.passed == ("0.01" in body), verdict.reason
    assert not verdict.passed or "slope held at 0.01" in verdict.label.split(", ")
    limits = of(verdict.conditions, ScalarLimit)
    assert not verdict.passed or limits == [ScalarLimit(argument="slope", value=0.01, refuted=True, taken=False)]


def test_a_kernel_without_a_parameter_for_a_tensor_is_refused(judge: Judge) -> None:
    verdict = judge("def kernel(x):\n    return x + x\n", TWO)
    assert not verdict.passed and verdict.stage is Stage.SMOKE


def test_arguments_that_have_their_defaults_alone_are_told(judge: Judge) -> None:
    text = "import torch\ndef reference(x, bias=None, mode='twice'):\n    return x * 2 if bias is None else x + bias\n"
    task = load_task(f"{text}def inputs():\n    return {ONE}\n", "defaults")
    verdict = judge.parts("fixed_sizes", "def kernel(x):\n    return x + x\n", task)
    assert verdict.passed and "arguments: only bias = None, mode = 'twice'" in verdict.flags


#: a Model whose slope its constructor is given; ``{0}``: how the kernel computes the maximum
_SLOPED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n, slope):
        super().__init__()
        self.slope = slope
    def forward(self, x):
        return {0}
"""
_LEAKY = "torch.nn.functional.leaky_relu(x, self.slope)"


def test_what_a_models_constructor_is_given_is_told_as_its_only_arguments(judge: Judge) -> None:
    given = "def get_inputs():\n    return [torch.randn(24, 40)]\ndef get_init_inputs():\n    return [40, 0.1]\n"
    task = load_task(_SLOPED.format(_LEAKY) + given, "sloped")
    kernel = _SLOPED.format("torch.maximum(x, x * self.slope)").replace("class Model", "class ModelNew")
    verdict = judge.parts("fixed_sizes", kernel, task)
    assert verdict.passed and "arguments: only n = 40, slope = 0.1" in verdict.flags, verdict.flags


def test_tensors_that_an_int_does_not_count_are_told_where_none_was_tried(judge: Judge) -> None:
    text = "import torch\nfrom kernellab import Dim\nM = Dim('M', 1, {0})\nN = Dim('N', 1, {0})\n"
    text += "def reference(x):\n    return x * 2\ndef inputs(M=30, N=40):\n    return torch.randn(M, N)\n"
    for end in (1 << 17, 1 << 11):
        verdict = judge(
            "def kernel(x):\n    return x + x\n", load_task(text.format(end), "doubled"), options=QUICK_LOOK
        )
        told = [flag for flag in verdict.flags if flag.startswith("sizes: ") and f"of {end**2:,} elements" in flag]
        assert verdict.passed and len(told) == (end**2 > 1 << 31), verdict.flags


@pytest.mark.parametrize("what", AT_SIZES)
def test_a_fault_at_hidden_sizes_is_refused(what: str, judge: Judge) -> None:
    verdict = judge(kernel(SIZED, AT_SIZES[what]), SIZED, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT


def test_a_branch_on_large_sizes_within_the_ranges_is_met(judge: Judge) -> None:
    dims = 'from kernellab import Dim\nM, N = Dim("M", 1, 2048), Dim("N", 1, 4096)\n'
    text = f"import torch\n{dims}def reference(x):\n    return x * 2\ndef inputs(M=512, N=1024):\n"
    task = load_task(f"{text}    return torch.randn(M, N),\n", "large")
    m, n = "x.shape[0]", "x.shape[1]"
    # neither at the ends of the ranges nor at equal sizes
    inside = f"530 < {m} < 2048 and 1060 < {n} < 4096 and {m} != {n}"
    verdict = judge(kernel(task, f"x * 3 if {inside} else x * 2"), task, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT, verdict.reason


def test_a_large_draw_stays_in_the_most_of_each_range_and_within_the_bytes() -> None:
    drawn = [large(SIZED, {"M": 24, "N": 40}, 64 << 20) for _ in range(200)]
    assert all(input_bytes(SIZED, sizes) <= 64 << 20 for sizes in drawn)
    assert all(sizes["M"] >= 1024 or sizes["N"] >= 1 << 18 for sizes in drawn)
    assert len({tuple(sizes.values()) for sizes in drawn}) > 100


RANKED = ("a clamp beyond what is drawn", "a mask built in", "a sum of bytes in 16 bits", "a target that is ignored")


@pytest.mark.parametrize("what", RANKED)
def test_a_ranking_draws_what_is_a_failure(what: str, verifier: Verifier) -> None:
    task, body = REFUSED[what]
    source = Source(dsl="cpp", files={"kernel.py": kernel(task, body)}, origin=Author.HUMAN)
    found = verifier.rank(task, source, TARGET, options=RankOptions(allow_library=True, budget=0.05, threads=1))
    assert not found.ranked and found.stage is Stage.CORRECT, found.reason


def test_a_ranking_meets_a_power_of_two(verifier: Verifier) -> None:
    source = Source(dsl="cpp", files={"kernel.py": kernel(SIZED, AT_SIZES["powers of two"])}, origin=Author.HUMAN)
    found = verifier.rank(SIZED, source, TARGET, options=RankOptions(allow_library=True, budget=0.05, threads=1))
    assert not found.ranked and found.stage is Stage.CORRECT, found.reason


TOP = task_of(
    "x.masked_fill(torch.ones_like(x).scatter(1, torch.sort(x, descending=True).indices[:, :3], 0.0) > 0, -torch.inf)",
    "x", "torch.randint(0, 3, (24, 40)).float()",
)  # fmt: skip


def test_a_mask_of_infinities_may_follow_from_another_order_of_equals_and_may_not_be_left_out() -> None:
    case = cases.case(TOP, {}, Family.OWN)
    (x,) = case.args
    at = 39 - torch.sort(x.flip(1), descending=True, stable=True).indices[:, :3]
    turned = x.masked_fill(torch.ones_like(x).scatter(1, at, 0.0) > 0, -torch.inf)
    assert not torch.equal(turned, case.native[0])
    assert Comparison(TOP).first_wrong(case, [turned]) is None
    assert Comparison(TOP).first_wrong(case, [x.clone()]) is not None
    assert Comparison(TOP).first_wrong(case, [turned.masked_fill(turned.isinf(), 1.0)]) is not None


def test_two_tables_of_different_length_are_not_given_one_tensor_of_places(judge: Judge) -> None:
    task = task_of(
        "a[i] + b[j]", "a, b, i, j", "torch.randn(64), torch.randn(9), torch.randint(30, 64, (5, 7)), "
        "torch.randint(0, 9, (5, 7))",
    )  # fmt: skip
    verdict = judge.parts("beyond_own_inputs", kernel(task, "a[i] + b[j]"), task)
    assert verdict.passed, verdict.reason
    assert not verdict.marked("tensor-given-twice")


def test_a_range_beyond_which_a_kernel_is_wrong_is_in_its_condition(judge: Judge) -> None:
    task = task_of("x * 3", "x", "torch.randint(0, 50, (24, 40), dtype=torch.int32)")
    verdict = judge.parts("beyond_own_inputs", kernel(task, "torch.where(x > 60, x, x * 3)"), task)
    assert verdict.passed, verdict.reason
    found = of(verdict.conditions, DrawnLimit)
    assert [(c.argument, c.low, c.high) for c in found] == [("x", 0, 49)]


def test_a_reference_that_does_not_run_when_watched_is_surveyed_without_its_edges(monkeypatch: MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise TaskError("Reference() raises.", "")

    monkeypatch.setattr(Survey, "_watched", fails)
    survey = Survey(cases.case(CLAMP, {}, Family.OWN))
    for _ in survey.make():
        pass
    assert survey.cases and not survey.edges


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_in_which_torch_computes_little_are_drawn_or_left_alone(dtype: str) -> None:
    task = task_of("x.float() * 2", "x", f"torch.randint(0, 99, (8, 12)).to(torch.{dtype})")
    survey = Survey(cases.case(task, {}, Family.OWN))
    for _ in survey.make():
        pass
    assert survey.cases
    assert all(str(one.case.args[0].dtype) == f"torch.{dtype}" for one in survey.cases)


TABLE = task_of("a[i] * 2", "a, i", "torch.randn(64, 5), torch.randint(0, 64, (7, 3))")


@pytest.mark.gpu
def test_places_beyond_a_table_are_never_tried_on_a_device() -> None:
    """There they end the process's use of the device."""
    with device.on("cuda"):
        survey = Survey(cases.case(TABLE, {}, Family.OWN))
        for _ in survey.make():
            pass
        assert survey.cases and survey.dropped
        assert float(torch.ones(3, device="cuda").sum()) == 3.0


def test_what_tells_of_conditions_is_drawn_in_the_same_order_and_each_argument_has_its_turn() -> None:
    task = task_of("x + y + z", "x, y, z", ", ".join([ONE] * 3))

    def drawn() -> list[tuple[str, str]]:
        survey = Survey(cases.case(task, {}, Family.OWN), most=15, seconds=60.0)
        survey._affordable = lambda: 15  # type: ignore[method-assign]
        assert sum(1 for _ in survey.make()) and survey.untried
        return [(one.argument, one.condition) for one in survey.cases if one.grade is Grade.CONDITION]

    first, second = drawn(), drawn()
    assert first[:3] == second[:3] == [(a, f"NaN in {a} not handled") for a in "xyz"]


def test_a_verdict_tells_which_share_of_the_drawn_inputs_was_tried(judge: Judge) -> None:
    task = task_of("a + b + c + d + e + f", "a, b, c, d, e, f", ", ".join([ONE] * 6))
    verdict = judge.parts("drawn", kernel(task, "a + b + c + d + e + f"), task)
    assert verdict.passed and verdict.coverage is not None
    (found,) = of(verdict.conditions, DrawnInPart)
    assert (found.tried, found.untried) == (verdict.coverage.cases, verdict.coverage.untried)
    assert f"({found.tried} of {found.tried + found.untried})" in found.flag and found.concern == "measurement"


def test_the_first_survey_of_a_process_has_as_many_cases_as_the_next() -> None:
    code = (
        "from tests.verifier.test_drawn import COMPARED, cases, Family, Survey\n"
        "for _ in range(2):\n"
        "    survey = Survey(cases.case(COMPARED, {}, Family.OWN))\n"
        "    list(survey.make())\n"
        "    print(len(survey.cases), survey.untried)\n"
    )  # fmt: skip
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = ([int(n) for n in line.split()] for line in run.stdout.splitlines())
    assert first[1] == second[1] == 0 and first[0] >= 3


@pytest.mark.parametrize("kind", ["NaN", "inf"])
def test_a_special_value_alone_is_tried_where_many_leave_nothing_finite(kind: str, judge: Judge) -> None:
    """In a sum over rows, the row of many hides what a kernel makes of one."""
    task = task_of("(x - x.mean(-1, keepdim=True)).sum(0)", "x", ONE)
    # wrong for fewer than two special values in a row
    few = "torch.where((x.isfinite()).sum(-1, keepdim=True) >= x.shape[-1] - 1, torch.nan_to_num(x, 0.0, 0.0, 0.0), x)"
    verdict = judge.parts("beyond_own_inputs", kernel(task, f"(x - {few}.mean(-1, keepdim=True)).sum(0)"), task)
    told = {c.values for c in of(verdict.conditions, DrawnLimit)}
    assert not verdict.passed or f"{kind} in x not handled" in told
    survey = Survey(selection.drawn_base(task))
    list(survey.make())
    names = [c.case.change[2] for c in survey.cases if c.case.change[0] == "pattern"]
    assert names.index(f"one {kind}") == names.index(kind) + 1
    # nothing follows where one row hides no other
    survey = Survey(selection.drawn_base(MAX))
    list(survey.make())
    assert f"one {kind}" not in [c.case.change[2] for c in survey.cases]


def test_a_rank_tells_of_a_nan_that_is_left_out(verifier: Verifier) -> None:
    source = Source(
        dsl="cpp", files={"kernel.py": kernel(MAX, "torch.nan_to_num(x, -1e30).amax(-1)")}, origin=Author.HUMAN
    )
    found = verifier.rank(MAX, source, TARGET, options=RankOptions(allow_library=True, budget=0.05, threads=1))
    assert found.ranked
    assert [c.argument for c in of(found.conditions, DrawnLimit) if c.not_nan] == ["x"]


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_one_number_add_up_exactly_in_any_order(seed: int) -> None:
    x = torch.randn(8, 4096)
    rows = patterned(x, "unusual row", seed, -32.0, 29.87)
    constant = patterned(x, "constant rows", seed, -31.3, 29.87)
    alike = [row for row in (*rows, *constant) if bool((row == row[0]).all())]
    assert len(alike) >= 2 and all(row.cumsum(0)[-1] == row[0].double() * 4096 for row in alike)


@pytest.mark.parametrize(("body", "holds"), {
    "torch.round(x / s)": True, "torch.round(x * (1 / s))": True, "(x + 0.5).floor() * s": True,
    "torch.round(x / 3)": False, "torch.round(x.exp())": False, "torch.round(x.mean(-1))": False,
    "torch.round(x / (s + 1))": False,
}.items())  # fmt: skip
def test_arithmetic_is_exact_where_no_order_of_it_could_matter(body: str, holds: bool) -> None:
    task = task_of(body, "x, s", "torch.randn(24, 40), torch.rand(40) + 0.1")
    args = changed(task.module().sample(), ("halves", 0, 7, ((0, -8.0, 8.0), (1, 0.0, 8.0))))
    with Exact() as exact:
        task.module().results([a.double() for a in args])
    assert exact.holds == holds


@pytest.mark.parametrize(("low", "high"), [(0.5, 1.0), (0.1, 0.3), (-4.0, -0.3), (0.0, 8.0), (-8.0, 8.0)])
def test_exact_values_stay_where_the_task_s_own_lie(low: float, high: float) -> None:
    x, s = changed((torch.zeros(50), torch.zeros(50)), ("halves", 0, 3, ((0, low, high), (1, low, high))))
    assert all(bool(((v >= low) & (v <= high)).all()) for v in (x, s))
    with pytest.raises(ValueError):
        changed((x, s), ("halves", 0, 3, ((0, 10.0, 100.0), (1, 0.0, 8.0))))
    with pytest.raises(ValueError, match="power of two"):
        changed((x, s), ("halves", 0, 3, ((0, low, high), (1, 0.6, 0.9))))


def test_an_argument_without_exact_values_leaves_the_others() -> None:
    task = task_of("torch.round(x / s)", "x, s", "torch.rand(8, 12) * 90 + 10, torch.rand(12) * 0.3 + 0.6")
    survey = Survey(cases.case(replace(task, domain={"x": "range(10, 100)", "s": "range(0.6, 0.9)"}), {}, Family.OWN))
    for _ in survey.make():
        pass
    assert survey.cases and not any(one.exact for one in survey.cases)


def test_floats_that_become_places_are_asked_of_the_reference_too() -> None:
    task = task_of("t[(x * 8).long()]", "x, t", "torch.rand(8, 12), torch.randn(9)")
    survey = Survey(cases.case(task, {}, Family.OWN))
    for _ in survey.make():
        pass
    assert survey._indexes() and survey.dropped
    x, t = survey.base.args
    on_device = (torch.full_like(x, 2.0, device="meta"), t)
    assert is_safe(task, on_device, 0, indexes=False)
    with pytest.raises(NotImplementedError):
        # the values are asked of, which this device does not have
        is_safe(task, on_device, 0, indexes=True)
    clamped = Survey(cases.case(CLAMP, {}, Family.OWN))
    for _ in clamped.make():
        pass
    assert not clamped._indexes()


def test_integers_are_asked_of_the_reference_before_a_device_runs_it() -> None:
    args = (torch.randn(64, 5), torch.full((7, 3), 64))
    takes = runs(TABLE, args, 1)
    assert takes(torch.full((7, 3), 63)) and not takes(torch.full((7, 3), 64))


@pytest.mark.parametrize(
    ("reference", "drawn"),
    [
        ("torch.linalg.cholesky(x @ x.T + len(x) * torch.eye(len(x)))", "torch.randn(N, N)"),
        ("torch.arange(1000.0)[(x * 1000).long()]", "torch.rand(N)"),
    ],
)
def test_last_elements_that_a_reference_does_not_take_are_left_as_they_are(reference: str, drawn: str) -> None:
    dim = 'from kernellab import Dim\nN = Dim("N", 1, 400)\n'
    text = f"import torch\n{dim}def reference(x):\n    return {reference}\ndef inputs(N=64):\n    return ({drawn},)\n"
    task = load_task(text, "t")
    for family in families(task):
        found = decided_last(cases.case(task, {"N": 40}, family))
        assert all(bool(o.isfinite().all()) for o in found.native), family


def test_the_last_numbers_decide_where_a_mask_true_throughout_leaves_nothing() -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 400)\n"
        "def reference(x, mask):\n    return x.masked_fill(mask, -torch.inf).softmax(-1)\n"
        "def inputs(M=8, N=64):\n    return torch.randn(M, N), torch.rand(M, N) < 0.2\n",
        "t",
    )
    found = decided_last(cases.case(task, {"M": 24, "N": 40}, Family.NORMAL))
    assert [place[0] for place in found.change[3]] == [0]
    x, mask = found.args
    assert not bool(mask.all(-1).any())
    assert bool((x[:-2, -2:].amax(-1) == x.max()).all())  # the last two rows decide along the first dimension


def test_what_tells_whether_last_elements_are_taken_is_the_case_s_answer() -> None:
    task = load_task(ROWS_TO_20000.format("x.amax(-1)"), "t")
    found = decided_last(cases.case(task, {"M": 3, "N": 40}, Family.NORMAL)).glance()
    assert found.change[0] == "last"
    assert found.computed.args is not None and found.computed.native is not None
    assert torch.equal(found.native[0], found.args[0].amax(-1))


def test_two_surveys_try_special_values_in_the_same_pairs_of_arguments() -> None:
    task = task_of("a + b + c + d", "a, b, c, d", ", ".join([ONE] * 4))
    pairs = [
        [p.change[1:3] for p in survey._proposals() if p.change[0] == "together"]
        for survey in (Survey(selection.drawn_base(task)), Survey(selection.drawn_base(task)))
    ]
    assert pairs[0] == pairs[1] and len(set(pairs[0])) == 3


@pytest.mark.parametrize(
    ("draw", "words", "least"), [("rand", "0, near 0 or 1", 0.0), ("randn", "0, near 0, 1 or -1", -1.0)]
)
def test_numbers_that_are_never_negative_meet_no_negative_one(draw: str, words: str, least: float) -> None:
    task = task_of("x + y", "x, y", f"torch.{draw}(24, 40), torch.{draw}(24, 40)")
    found = [p for p in Survey(selection.drawn_base(task))._proposals() if p.change[0] == "together"]
    usual = next(p for p in found if len(p.change[4]) < 5)
    assert usual.condition == f"{words} in x and y at once not handled" and min(usual.change[4]) == least
    assert usual.condition in next(p for p in found if p is not usual).covered


def test_inputs_of_one_column_are_contiguous() -> None:
    assert as_drawn([torch.randn(1, 40).T]) is None
    assert as_drawn([torch.randn(40, 3).T]) is not None


def test_special_values_of_two_arguments_take_no_memory_of_the_broadcast_shape() -> None:
    one, two = torch.randn(400_000, 1), torch.randn(400_000)
    first, second = _together(one, two, 3)
    changed = (first != one).sum() + (second != two).sum()
    assert 0 < int(changed) <= 50


def test_labels_that_are_alike_by_chance_at_a_small_size_are_drawn_as_the_stated_ones() -> None:
    from kernellab.task.sample.draw import Support
    from kernellab.verifier.cases.input_specs import forms_of

    text = (
        f"import torch\n{DIMS}def reference(x, t):\n    return torch.nn.functional.binary_cross_entropy(x, t)\n"
        "def inputs(M=24, N=100):\n    return torch.rand(M, N), (torch.rand(M, N) < 0.5).float()\n"
    )
    task = load_task(text, "bce")
    for rows in range(1, 5):
        legal = forms_of(task, (("M", rows), ("N", 1)), "cpu").legal[1]
        assert legal is not None and legal.support in (Support.DISCRETE, Support.UNIT)
        drawn = cases.case(task, {"M": rows, "N": 1}, Family.NORMAL)
        assert set(drawn.args[1].unique().tolist()) <= {0.0, 1.0} and len(drawn.native) == 1


def test_each_rest_of_four_past_sixty_four_and_sizes_of_two_and_three_are_tried() -> None:
    from kernellab.verifier.cases.extents import of_numbers

    found = of_numbers(SIZED, SIZED.module().default_sizes(), ())
    for name in ("M", "N"):
        assert {s[name] % 4 for s in found if 64 < s[name] < 132} == {0, 1, 2, 3}
    assert all({"M": n, "N": n} in found for n in (2, 3))
    for name in ("M", "N"):
        assert [s for s in found if s[name] >= 64 and s[name] % 64 == 0 and min(s.values()) < 64]


def test_each_dim_is_tried_at_a_sources_number_and_all_of_them_at_once() -> None:
    """64 is where M is declared, and no size of N that was tried."""
    from kernellab.verifier.cases.extents import at_numbers

    found = at_numbers(SIZED, {"M": 64, "N": 96}, (64, 256))
    assert any(s["N"] == 64 and s["M"] < 64 for s in found) and not any(s["M"] == 64 and s["N"] < 64 for s in found)
    assert all({"M": n, "N": n} in found for n in (64, 256))


AXPBY = load_task(
    "import torch\ndef reference(x, w, alpha=1.0, beta=0.5):\n    return alpha * x + beta * w\n"
    "def inputs():\n    return torch.randn(24, 40), torch.randn(24, 40)\n",
    "axpby",
)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("alpha * x + beta * w", ()),
        ("alpha * x if beta == 0 else alpha * x + beta * w", ("w",)),
        ("torch.nan_to_num(w, 0, 0, 0) * beta if alpha == 0 else alpha * x + beta * w", ("x", "w")),
    ],
)
def test_a_term_that_is_left_out_at_zero_is_told(body: str, told: tuple[str, ...], judge: Judge) -> None:
    verdict = judge.parts("beyond_own_inputs", kernel(AXPBY, body), AXPBY)
    assert verdict.passed, verdict.reason
    limits = [c for c in of(verdict.conditions, DrawnLimit) if c.not_nan and "= 0 not handled" in c.values]
    assert {c.argument for c in limits} == set(told)


QUOTIENT = load_task(
    "import torch\ndef reference(x, w, eps=1e-5):\n    y = x.clone()\n    y[:, 0] = 0.0\n"
    "    return y * torch.rsqrt(y.square() + eps) * w\n"
    "def inputs():\n    return torch.randn(24, 40), torch.randn(40)\n",
    "quotient",
)


@pytest.mark.parametrize(("fixed", "told"), [("", []), ("if eps == 0: z[:, 0] = 0.0", ["eps = 0 not handled"])])
def test_a_number_that_is_wrong_at_zero_with_any_argument_is_told_without_one(
    fixed: str, told: list[str], judge: Judge
) -> None:
    """At 0 the reference is 0 * inf whatever x and w hold: their NaN are not to blame."""
    code = (
        "import torch\ndef kernel(x, w, eps=1e-5):\n    y = x.clone()\n    y[:, 0] = 0.0\n"
        f"    z = y * torch.rsqrt(y.square() + eps) * w\n    {fixed}\n    return z\n"
    )
    verdict = judge.parts("beyond_own_inputs", code, QUOTIENT)
    assert verdict.passed, verdict.reason
    assert [c.values for c in of(verdict.conditions, DrawnLimit) if "eps" in c.values] == told


@pytest.mark.parametrize("body", ["x.mean(-1) if x.shape[1] else x.sum(-1)", "x.sum(-1) / max(x.shape[1], 2)"])
def test_a_dim_of_none_and_of_one_is_tried_with_the_others_long(body: str, judge: Judge) -> None:
    dims = 'from kernellab import Dim\nM, N = Dim("M", 0, 64), Dim("N", 0, 64)\n'
    text = f"import torch\n{dims}def reference(x):\n    return x.mean(-1)\n"
    task = load_task(f"{text}def inputs(M=24, N=40):\n    return torch.randn(M, N)\n", "mean")
    verdict = judge(kernel(task, body), task, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT, verdict.reason


def test_the_one_dim_of_a_task_is_long_as_two_of_others_are(judge: Judge, monkeypatch: MonkeyPatch) -> None:
    task = load_task(
        'import torch\nfrom kernellab import Dim\nN = Dim("N", 1, 100_000_000)\n'
        "def reference(x):\n    return x * 2\ndef inputs(N=2_000_000):\n    return torch.randn(N)\n",
        "capped",
    )
    capped = "torch.cat([x[: 15 * 2**18] * 2, torch.zeros_like(x[15 * 2**18 :])])"
    verdict = judge(kernel(task, capped), task, options=QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT
    # also where starting the reference is most of what small sizes take, and where other work holds it up
    text = task.text.replace("import torch\n", "import time, torch\n").replace("2_000_000", "20_000")
    starts = "end = time.thread_time() + 0.002\n    while time.thread_time() < end: pass"
    for before in (starts, "time.sleep(0.1)"):
        slow = load_task(text.replace("    return x * 2", f"    {before}\n    return x * 2"), "capped")
        found = both_long(slow, [cases.case(slow, {"N": n}, Family.OWN) for n in (3, 20_000)])
        assert found is not None and dict(found.sizes)["N"] > 4_000_000, before
    # on a device with room for it, beyond a grid that is capped at 65,535 blocks of 1,024
    for gigabytes, most in ((80, 10**9), (4, 2**28)):
        monkeypatch.setattr(device, "free", lambda gigabytes=gigabytes: gigabytes << 30)
        with device.on("cuda"):
            size = input_bytes(task, two_long(task, {"N": 2_000_000}))
        assert size <= most and (gigabytes == 4 or size > 8 * 65_535 * 1024)


def test_a_quick_look_goes_as_far_as_it_is_told_and_a_whole_verdict_farther(judge: Judge) -> None:
    task = load_task(
        'import torch\nfrom kernellab import Dim\nN = Dim("N", 1, 100_000_000)\n'
        "def reference(x):\n    return x * 2\ndef inputs(N=20_000):\n    return torch.randn(N)\n",
        "capped",
    )
    known = [cases.case(task, {"N": n}, Family.OWN) for n in (3, 20_000)]
    for case in islice(wide(task, known, 8 << 20), 2):
        assert input_bytes(task, dict(case.sizes)) <= 8 << 20
    assert (
        input_bytes(task, two_long(task, {"N": 20_000}, 8 << 20))
        <= 8 << 20
        < input_bytes(task, two_long(task, {"N": 20_000}))
    )
    capped = kernel(task, "torch.cat([x[: 15 * 2**18] * 2, torch.zeros_like(x[15 * 2**18 :])])")
    quick = VerifyOptions(level=Trust.T1, longest=8 << 20, allow_library=True)
    assert judge(capped, task, options=quick).passed
    assert not judge(capped, task, options=quick.model_copy(update={"level": Trust.T2})).passed


def test_an_interpreter_meets_a_size_past_the_largest_number_of_the_source() -> None:
    from kernellab.verifier.cases.extents import beyond_tiles

    assert {s["N"] for s in beyond_tiles(SIZED, (16, 1500))} == {3, 33, 1503}


SCALAR = """import torch
def reference(x, k=3):
    return x * (k % 977) + k
def inputs():
    return torch.randn(24, 40)
"""


@pytest.mark.parametrize("bound", ["k < 1 << 15", "k != 2001"])
def test_an_integer_argument_is_tried_far_away_and_at_the_numbers_of_the_source(bound: str, judge: Judge) -> None:
    body = f"import torch\nB, P = 2000, '0x'\ndef kernel(x, k):\n    return x * (k % 977) + (k if {bound} else 0)\n"
    verdict = judge.parts("properties", body, load_task(SCALAR, "k"))
    assert verdict.passed and "k = 3 only" in verdict.label.split(", "), verdict.reason


def test_zeros_of_either_sign_are_equal_where_a_place_is_told(judge: Judge) -> None:
    task = task_of("torch.argsort(x, dim=-1, stable=True)", "x", ONE)
    key = "torch.where(x.view(torch.int32) < 0, ~x.view(torch.int32), x.view(torch.int32) | -2**31).long() % 2**32"
    by_bits = kernel(task, f"torch.argsort({key}, dim=-1, stable=True)")
    assert not judge.parts("beyond_own_inputs", by_bits, task).passed
    assert judge.parts("beyond_own_inputs", kernel(task, "torch.sort(x, dim=-1, stable=True)[1]"), task).passed


def test_a_nan_that_alone_decides_is_given_to_any(judge: Judge) -> None:
    task = task_of("x.any(-1)", "x", "torch.where(torch.rand(24, 40) < 0.02, torch.randn(24, 40), 0.0)")
    assert not judge.parts("beyond_own_inputs", kernel(task, "(torch.nan_to_num(x, 0.0) != 0).any(-1)"), task).passed
    assert judge.parts("beyond_own_inputs", kernel(task, "(x != 0).any(-1)"), task).passed


def test_nearly_equal_arguments_tell_a_sum_that_loses_all_digits(judge: Judge) -> None:
    task = task_of("((x - w) ** 2).sum(-1)", "x, w", f"{ONE}, {ONE}")
    words = "nearly equal x and w not handled"
    lost = judge.parts(
        "beyond_own_inputs", kernel(task, "(x * x).sum(-1) + (w * w).sum(-1) - 2 * (x * w).sum(-1)"), task
    )
    assert lost.passed and words in lost.label.split(", "), lost.reason
    assert words not in judge.parts("beyond_own_inputs", kernel(task, "(x - w).square().sum(-1)"), task).label


def test_places_that_come_twice_are_given_for_a_permutation(judge: Judge) -> None:
    task = task_of("torch.zeros_like(x).index_add(0, i, x)", "x, i", f"{ONE}, torch.randperm(24)")
    words = "i as drawn only"
    assert words in judge.parts(
        "beyond_own_inputs", kernel(task, "torch.zeros_like(x).index_copy(0, i, x)"), task
    ).label.split(", ")
    assert (
        words
        not in judge.parts("beyond_own_inputs", kernel(task, "torch.zeros_like(x).index_add_(0, i, x)"), task).label
    )


def test_controls_that_turn_text_are_refused_and_marks_of_direction_flagged_by_name() -> None:
    from kernellab.verifier.static.check import check

    text = "# \u202e turned\ndef kernel(x):\n    return x\n"
    turned = check(Source(dsl="cpp", origin=Author.MODEL, files={"kernel.py": text})).fatal
    assert turned is not None and "U+202E" in turned.message and turned.line == 1
    marked = check(Source(dsl="cpp", origin=Author.MODEL, files={"kernel.py": text.replace("\u202e", "\u200f")}))
    assert not marked.fatal and any("U+200F" in flag for flag in marked.flags)
    plain = check(Source(dsl="cpp", origin=Author.MODEL, files={"kernel.py": text.replace("\u202e", "é")}))
    assert not any("U+" in f.message for f in plain.findings)


def test_a_maximum_that_begins_from_a_number_that_is_not_low_enough_is_told(judge: Judge) -> None:
    task = task_of("x.amax(-1)", "x", ONE)
    assert (
        "large x not handled"
        in judge.parts("beyond_own_inputs", kernel(task, "x.clamp(min=-1e4).amax(-1)"), task).label
    )
    assert "large" not in judge.parts("beyond_own_inputs", kernel(task, "x.amax(-1)"), task).label


LIF = """
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v * 0.9 + x[t]
        spike = (v >= {limit}).float()
        v, spikes = v * (1 - spike), [*spikes, spike]
    return torch.stack(spikes)
"""
#: references that compare what they have computed, their arguments, and the comparison with its other side for ties
TIES = {
    "a loop over time": (LIF.format(limit="1.0"), "x", "torch.randn(6, 40)", (">=", ">")),
    "a limit that is an argument": (
        LIF.format(limit="h"), "x, h", "torch.randn(6, 40), torch.rand(40) + 0.5", (">=", ">")
    ),
    "a dtype that is named": (
        "\n    return torch.zeros(4, 40).index_add(0, torch.arange(24) % 4, (x >= 0.5).float() * x)",
        "x", ONE, (">=", ">"),
    ),
    "a square": ("\n    return torch.where(x * x >= 0.25, x, 0.0)", "x", ONE, (">=", ">")),
    "a sigmoid": ("\n    return (torch.sigmoid(x) > 0.5).float()", "x", ONE, (">", ">=")),
    "distances": (
        "\n    return ((a[:, None] - b).square().sum(-1) <= 1).float()",
        "a, b", "torch.randn(24, 3), torch.randn(20, 3)", ("<=", "<"),
    ),
    "a number of many digits": ("\n    return torch.where(x * 2 + 1 > 0.3, x, 1.0)", "x", ONE, (">", ">=")),
    "the levels below a maximum": (
        "\n    s = x.abs().amax(-1, keepdim=True) / 127\n    return torch.round(x / s)",
        "x", ONE, ("torch.round(x / s)", "torch.floor(x / s + 0.5)"),
    ),
    "the last bin's end": (
        "\n    return torch.histc(x.flatten(), bins=8, min=-2, max=2)", "x", ONE, ("(x.flatten()", "(x[x < 2]")
    ),
    "a mean": ("\n    return torch.where(x > x.mean(-1, keepdim=True), x, 0.0)", "x", ONE, (">", ">=")),
    "a hinge": (
        "\n    m = 1 - x * y\n    return torch.where(m > 0, m + 1, 0.0)",
        "x, y", f"{ONE}, torch.sign({ONE})", (">", ">="),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TIES)
def test_an_exact_tie_of_what_is_computed_tells_on_which_side_it_falls(name: str) -> None:
    body, arguments, inputs, (side, other) = TIES[name]

    def task(text: str) -> Task:
        return load_task(f"import torch\ndef reference({arguments}):{text}\ndef inputs():\n    return {inputs}\n", "t")

    survey = Survey(cases.case(task(body), {}, Family.OWN), seconds=30.0)
    for _ in survey.make():
        pass
    results = task(body.replace(side, other)).module().results
    telling = [d for d in survey.cases if d.exact and not torch.equal(results(d.case.args)[0], d.case.native[0])]
    # of a sum of fortieths, added up one by one, a mean is another; a GPU's quick division rounds levels otherwise
    told = name in ("a mean", "the levels below a maximum")
    assert telling and {d.grade for d in telling} == {Grade.CONDITION if told else Grade.REFUSED}


def test_bins_that_are_no_power_of_two_wide_are_left_to_roundings() -> None:
    survey = Survey(cases.case(task_of("torch.histc(x.flatten(), bins=10, min=0, max=1)", "x", ONE), {}, Family.OWN))
    for _ in survey.make():
        pass
    assert survey.cases and not any(one.exact for one in survey.cases)


def test_integers_meet_at_their_ends() -> None:
    body = "(x.int() * w.int()).sum(-1)"
    signed = "torch.randint(-128, 128, (24, 40), dtype=torch.int8)"
    survey = Survey(cases.case(task_of(body, "x, w", f"{signed}, {signed}"), {}, Family.OWN), seconds=30.0)
    for _ in survey.make():
        pass
    sure = [one.case for one in survey.cases if one.grade is Grade.REFUSED]
    assert any(bool((case.native[0] == 40 * 128 * 128).all()) for case in sure)


def test_of_many_integers_half_are_one_number_where_they_are_counted() -> None:
    dims = 'from kernellab import Dim\nN = Dim("N", 1, 1 << 20)\n'
    text = f"import torch\n{dims}def reference(x):\n    return {{}}\ndef inputs(N=100):\n    return {{}},\n"
    counted, drawn = "torch.bincount(x, minlength=16)[:16]", "torch.randint(0, 16, (N,))"

    def most(body: str, inputs: str) -> float:
        case = decided_last(cases.case(load_task(text.format(body, inputs), "t"), {"N": 1000}, Family.OWN))
        return float(case.args[0].unique(return_counts=True)[1].max())

    assert most(counted, drawn) > 450
    # places that come once, in an order, or that say which floats are added up
    assert most("x.flip(0)", "torch.randperm(N)") == 1
    assert most(counted, f"{drawn}.sort().values") < 200
    assert most("torch.zeros(16).index_add(0, x, torch.ones(len(x)))", drawn) < 200


@pytest.mark.parametrize(("limit", "wrong"), [("> 0.9", ">= 0.9"), ("> 0.1", ">= 0.1"), (">= 0.7", "> 0.7")])
def test_a_limit_of_many_digits_is_the_declared_dtype_s(judge: Judge, limit: str, wrong: str) -> None:
    task = task_of(f"torch.where(x {limit}, x, -1.0)", "x", ONE)
    words = "x at a limit compared as in float64"
    double = judge.parts("beyond_own_inputs", kernel(task, f"torch.where(x.double() {limit}, x, -1.0)"), task)
    assert double.passed and (words in double.label) == (limit != "> 0.9"), double.reason
    other = judge.parts("beyond_own_inputs", kernel(task, f"torch.where(x {wrong}, x, -1.0)"), task)
    # 0.9 as a float32 lies below 0.9, so that both answer alike
    assert not other.passed if limit == "> 0.9" else words in other.label
    assert words not in judge.parts("beyond_own_inputs", kernel(task, f"torch.where(x {limit}, x, -1.0)"), task).label


def test_a_case_of_exact_arithmetic_at_which_the_reference_raises_is_counted(monkeypatch: MonkeyPatch) -> None:
    before: list[int] = []
    add = Survey._add_exact

    def noted(survey: Survey) -> None:
        before.append(survey.dropped)
        add(survey)

    monkeypatch.setattr(Survey, "_add_exact", noted)
    for limit, raises in (("0", False), ("400", True)):
        # of a grid, and of one value throughout, few elements differ
        body = f"if x.unique().numel() < {limit}: raise ValueError('few')\n    return torch.where(x * 2 > 1, x, 0.0)"
        task = load_task(f"import torch\ndef reference(x):\n    {body}\ndef inputs():\n    return {ONE},\n", "t")
        survey = Survey(cases.case(task, {}, Family.OWN), seconds=30.0)
        for _ in survey.make():
            pass
        assert any(one.exact for one in survey.cases) != raises
        assert (survey.dropped > before.pop()) == raises


NO_TIES = {
    # a softmax's sum of 40 terms
    "another order of operations": task_of(
        "torch.where((x - x.logsumexp(-1, keepdim=True)).exp() > 0.025, x, 0.0)", "x", ONE
    ),
    # bfloat16's 0.1 is above it
    "a limit that is rounded": task_of("torch.where(x > 0.1, x, -1.0)", "x", f"{ONE}.bfloat16()"),
    "an order that torch leaves open": task_of(
        "torch.zeros_like(x).scatter(-1, torch.topk(x, 8).indices, 1.0) * torch.where(x > 0, x, 1.0)", "x", ONE
    ),
}


@pytest.mark.parametrize("name", NO_TIES)
def test_a_tie_that_right_kernels_decide_differently_is_no_exact_one(name: str) -> None:
    survey = Survey(cases.case(NO_TIES[name], {}, Family.OWN), seconds=30.0)
    for _ in survey.make():
        pass
    turned = [one for one in survey.cases if one.exact and one.case.change[0] == "still"]
    assert not turned and (name == "a limit that is rounded" or not any(one.exact for one in survey.cases))


def test_no_argument_is_drawn_larger_than_the_domain_that_is_stated() -> None:
    task = replace(task_of("torch.where(x > 1.5, -x, x)", "x", f"{ONE}.tanh()"), domain={"x": "range(-1, 1)"})
    survey = Survey(cases.case(task, {}, Family.OWN), seconds=30.0)
    for _ in survey.make():
        pass
    sure = [one.case.args[0] for one in survey.cases if one.grade is Grade.REFUSED]
    assert sure and all(float(x.abs().max()) <= 1.0 for x in sure)


@pytest.mark.parametrize(
    ("body", "wrong", "arguments", "inputs"),
    [
        ("g * (1.0 / (g.norm() + 1e-6)).clamp(max=1.0)", "g * (1.0 / (g.norm() + 1e-6))", "g", ONE),
        (
            "torch.searchsorted(b, x)", "torch.searchsorted(b, x, right=True)",
            "b, x", "torch.sort(torch.rand(16)).values, torch.rand(24, 8)",
        ),
    ],
    ids=["a clamp of a norm", "values that are boundaries"],
)  # fmt: skip
def test_what_no_single_element_reaches_is_reached_by_a_whole_argument(
    body: str, wrong: str, arguments: str, inputs: str
) -> None:
    survey = Survey(cases.case(task_of(body, arguments, inputs), {}, Family.OWN), seconds=30.0)
    for _ in survey.make():
        pass
    results = task_of(wrong, arguments, inputs).module().results
    sure = [one.case for one in survey.cases if one.grade is Grade.REFUSED]
    assert any(not torch.allclose(results(case.args)[0].double(), case.native[0].double()) for case in sure)


def test_whole_numbers_of_the_full_range_are_surveyed_without_listing_them() -> None:
    packed = "torch.randint(-(2**31), 2**31 - 1, (8, 16), dtype=torch.int32)"
    assert survey_of(task_of("(x >> 4) & 15", "x", packed)).reached


def test_a_reference_that_ends_its_process_beyond_its_places_is_not_run_there_in_the_judge() -> None:
    """PyTorch's ctc_loss does not check its targets on the CPU: far places end the process."""
    task = load_task(
        "import torch\ndef reference(x, targets):\n    n, t = x.shape[1], torch.full((x.shape[1],), x.shape[0])\n"
        "    s = torch.full((n,), targets.shape[1])\n"
        "    return torch.nn.functional.ctc_loss(x, targets, t, s, reduction='none')\n"
        "def inputs():\n    return torch.randn(12, 2, 5).log_softmax(-1), torch.randint(1, 5, (2, 3))\n",
        "ctc",
    )
    args = task.module().sample(seed=1)
    takes = runs(task, args, 1)
    assert takes(args[1]) and not takes(torch.full_like(args[1], 10**12)) and takes(args[1])


def test_a_reference_whose_copy_does_not_end_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_CALL_SECONDS", 0.2)
    task = load_task(
        "import time\nimport torch\ndef reference(x):\n    time.sleep(60 if x.max() > 9 else 0)\n    return x + 1\n"
        "def inputs():\n    return (torch.randint(0, 9, (4,)),)\n",
        "slow",
    )
    takes = runs(task, task.module().sample(seed=1), 0)
    began = time.monotonic()
    assert not takes(torch.full((4,), 10)) and not takes(torch.zeros(4, dtype=torch.int64))
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("kind", ["NaN", "inf", "-inf"])
@pytest.mark.parametrize("shape", [(3, 100), (1, 70_000), (2, 200_000), (1, 1)])
def test_a_late_special_value_lies_past_what_one_block_reaches(kind: str, shape: tuple[int, int]) -> None:
    for seed in range(8):
        value = patterned(torch.randn(shape), f"late {kind}", seed, 0, 0)
        rows, columns = (~value.isfinite()).nonzero(as_tuple=True)
        first = max(3 * shape[1] // 4, min(1 << 16, shape[1] - 1))
        assert 1 <= len(rows) <= 3 and int(columns.min()) >= first
        assert int(rows.max()) == shape[0] - 1
        number = value[rows[-1], columns[-1]]
        assert bool(number.isnan()) is (kind == "NaN") and (kind == "NaN" or float(number) == float(kind))


ROWS = load_task(
    "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 1 << 18)\n"
    "def reference(x):\n    return x - x.amax(-1, keepdim=True)\ndef inputs(N=300):\n    return (torch.randn(3, N),)\n",
    "rows",
)
#: NumPy's maximum has a NaN, fmax has none
EARLY = """import numpy, torch
def kernel(x):
    n = x.numpy()
    first = numpy.max(n[:, :65536], -1, keepdims=True)
    rest = n[:, 65536:]
    top = numpy.maximum(first, numpy.fmax.reduce(rest, -1, keepdims=True, initial=-numpy.inf))
    return torch.from_numpy(n - top)
"""


def test_a_nan_late_in_a_long_row_is_told(judge: Judge) -> None:
    verdict = judge.parts("beyond_own_inputs", EARLY, ROWS)
    assert any("late in x" in c.values for c in of(verdict.conditions, DrawnLimit)), (verdict.reason, verdict.label)


def test_a_number_of_the_source_decides_without_a_branch(judge: Judge) -> None:
    body = "import torch\ndef kernel(x, y):\n    return torch.relu(x) + y * (y != {number})\n"
    verdict = judge.parts("beyond_own_inputs", body.format(number="1.375"))
    assert not verdict.passed and "next to" in verdict.reason, (verdict.reason, verdict.label)
    verdict = judge.parts("beyond_own_inputs", body.format(number="1e30"))
    assert verdict.passed and "y next to 1e+30 not handled" in verdict.label, (verdict.reason, verdict.label)


PAIRS = task_of(
    "(a.int() * b.int()).sum(-1).int()", "a, b",
    "torch.randint(0, 64, (24, 40), dtype=torch.uint8), torch.randint(-64, 64, (24, 40), dtype=torch.int8)",
)  # fmt: skip
PRODUCTS = "(a.int() * b.int()).view(24, 20, 2).sum(-1)"


@pytest.mark.parametrize("bits", [16, 17])
def test_narrow_sums_that_only_two_arguments_at_their_ends_exceed_are_told(bits: int, judge: Judge) -> None:
    """What vpmaddubsw does: each argument alone may be at its dtype's end."""
    end = 1 << bits - 1
    verdict = judge.parts(
        "beyond_own_inputs", kernel(PAIRS, f"{PRODUCTS}.clamp({-end}, {end - 1}).sum(-1).int()"), PAIRS
    )
    assert verdict.passed and ("all at once" in verdict.label) is (bits == 16), (verdict.reason, verdict.label)


HASHED = """
import torch
def kernel(x):
    keys, counts = [-1] * 4096, [0] * 4096
    def place(v):
        at = (v * 40503 >> 4) % 4096
        while keys[at] != -1 and keys[at] != v:
            at = (at + 1) % 4096
        return at
    values = x.reshape(-1).tolist()
    alone = values.count(-1)
    for v in values:
        if v != -1 or not RIGHT:
            at = place(v)
            keys[at] = v
            counts[at] += 1
    return torch.tensor([alone if v == -1 and RIGHT else counts[place(v)] for v in values]).reshape(x.shape)
"""


@pytest.mark.parametrize("right", [True, False])
def test_a_number_that_a_table_takes_for_an_empty_place_is_drawn_among_others(right: bool, judge: Judge) -> None:
    task = load_task(
        "import torch\ndef reference(x):\n    flat = x.reshape(-1)\n"
        "    return (flat[:, None] == flat).sum(1).reshape(x.shape)\n"
        "def inputs():\n    return (torch.randint(0, 40, (32, 60)),)\n",
        "counts",
    )
    verdict = judge.parts("beyond_own_inputs", HASHED.replace("RIGHT", str(right)), task)
    assert verdict.passed, verdict.reason
    told = [c.values for c in of(verdict.conditions, DrawnLimit) if "among" in c.values]
    assert told == ([] if right else ["x = -1 among other numbers not handled"]), (verdict.label, verdict.flags)
