"""Where arguments lie, what their elements may be, and how many threads there are: of which a kernel knows nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernellab.records import Source
from kernellab.task import load_task
from kernellab.verifier.cases.extents import at_numbers, at_pairs, multiples
from kernellab.verifier.cases.patterns import patterned
from kernellab.verifier.cases.source_numbers import compared_by, together_in
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.timing.contents import independent

from .kit import QUICK_LOOK, Judge
from .test_properties import DIMS, TWICE, VARIANCE, code, task_of

HEADS = task_of("torch.softmax(x, -1)", "def inputs():\n    return torch.randn(3, 4, 5, 6)\n")
FACTORS = task_of(
    "x @ w", "def inputs(M=24, N=40, K=56):\n    return torch.randn(M, K), torch.randn(K, N)\n", "x, w",
    DIMS + 'K = Dim("K", 1, 512)\n',
)  # fmt: skip
GATED = task_of(
    "torch.softmax(q * k, -1) * v",
    "def inputs():\n    return tuple(torch.randn(24, 40) for _ in range(3))\n",
    "q, k, v",
)
#: a kernel that reads memory by the strides that it believes in; and one that takes them all
BY_STRIDES = "torch.softmax(x.as_strided(x.shape, {strides}), -1)"
LAID_OUT = {
    "a batch's stride": (
        HEADS, BY_STRIDES.format(strides="(x.shape[1] * x.stride(1), *x.stride()[1:])"), "contiguous-only"
    ),
    "a head's stride": (
        HEADS,
        BY_STRIDES.format(strides="(x.stride(0), x.stride(0) // x.shape[1], x.stride(2), x.stride(3))"),
        "contiguous-only",
    ),
    "both factors are one": (
        FACTORS, "x @ (x.T if x.data_ptr() == w.data_ptr() and x.shape == w.shape else w)",
        "one tensor given twice not handled",
    ),
    "the third is the second": (
        GATED, "torch.softmax(q * k, -1) * (q if k.data_ptr() == v.data_ptr() else v)",
        "one tensor given twice not handled",
    ),
}  # fmt: skip
ANY_LAYOUT = {
    "strides": (HEADS, "torch.softmax(x, -1)"), "factors": (FACTORS, "x @ w"),
    "gates": (GATED, "torch.softmax(q * k, -1) * v"),
}  # fmt: skip


@pytest.mark.parametrize("what", LAID_OUT)
def test_where_arguments_lie_is_tried_for_each_dimension_and_pair(what: str, judge: Judge) -> None:
    task, body, label = LAID_OUT[what]
    verdict = judge.parts("beyond_own_inputs", code(task, body), task)
    assert verdict.passed, verdict.reason
    assert label in verdict.label, verdict.label


@pytest.mark.parametrize("what", ANY_LAYOUT)
def test_a_kernel_that_takes_them_all_has_no_such_label(what: str, judge: Judge) -> None:
    task, body = ANY_LAYOUT[what]
    verdict = judge.parts("beyond_own_inputs", code(task, body), task)
    assert verdict.passed, verdict.reason
    assert "contiguous" not in verdict.label and "twice" not in verdict.label, verdict.label


COUNTS = task_of("x.cumsum(-1)", "def inputs():\n    return torch.randint(-9, 9, (24, 40))\n")
#: keeps its last answer, and knows its argument by samples of each row
KEPT = """
import torch
LAST = [None, None]
def kernel(x):
    key = x[:, ::16].clone()
    if LAST[0] is None or LAST[0].shape != key.shape or not torch.equal(LAST[0], key):
        LAST[:] = key, x.cumsum(-1)
    return LAST[1].clone()
"""


def test_an_answer_that_is_kept_by_samples_of_integers_is_refused(judge: Judge) -> None:
    assert not judge(KEPT, COUNTS).passed
    verdict = judge(code(COUNTS, "x.cumsum(-1)"), COUNTS)
    assert verdict.passed, verdict.reason


def test_integers_that_cannot_change_alone_are_told_from_those_that_are_drawn_each_by_itself() -> None:
    def two(draw: Any) -> bool:
        return independent([draw()], [draw()], 0)

    torch.manual_seed(0)
    assert two(lambda: torch.randint(0, 50, (24, 40))) and two(lambda: torch.rand(24, 40) > 0.3)
    assert not two(lambda: torch.randperm(64)) and not two(lambda: torch.ones(8, 8).tril().bool())
    assert not two(lambda: torch.randint(0, 50, (64,)).sort().values)
    assert not two(lambda: torch.arange(40) < torch.randint(1, 40, (24, 1)))
    assert not two(lambda: (m := torch.rand(16, 16) > 0.5) | m.T)


def test_sizes_are_tried_that_two_numbers_of_a_source_divide() -> None:
    assert multiples((7, 32, 4)) == [224, 28]
    found = at_numbers(VARIANCE, {"M": 600, "N": 2048}, (7, 32))
    assert any(s["N"] == 224 for s in found) and any(s["M"] == 224 for s in found)


#: what decides by two sizes at once without a branch: a table's key, an array, one expression
TWO = {
    "a key": "{(37, 411): 1.0}.get(tuple(x.shape), 0.0)",
    "a list": "(list(x.shape) == [37, 411])",
    "an expression": "(x.shape[0] % 61 == 37) * (x.shape[1] == 411)",
}


@pytest.mark.parametrize("kind", TWO)
def test_two_numbers_that_stand_together_are_sizes_of_two_dims_at_once(kind: str) -> None:
    source = Source(dsl="cpp", files={"kernel.py": f"def kernel(x):\n    return x * 2 + 1 + {TWO[kind]}\n"})
    pairs = together_in(source)
    # the order of the Dims in the text is not known
    assert {(s["M"], s["N"]) for s in at_pairs(VARIANCE, {"M": 600, "N": 2048}, pairs)} >= {(37, 411), (411, 37)}


def test_a_remainder_is_compared_with_the_number_behind_it() -> None:
    source = Source(dsl="cpp", files={"kernel.cpp": "if (n % 61 == 37) x = 8 < n ? 1.5f >= v : v > -2e3f;"})
    assert set(compared_by(source)) == {61.0, 37.0, 8.0, 1.5, -2000.0}


def test_few_sizes_are_tried_of_many_numbers_that_stand_together() -> None:
    table = ", ".join(str(n) for n in range(6, 600))
    pairs = together_in(Source(dsl="cpp", files={"kernel.cpp": "\n".join(f"{{{n}, {n + 1}}}" for n in range(6, 600))}))
    assert len(pairs) == 594 and not together_in(Source(dsl="cpp", files={"kernel.cpp": f"1.5, {table}"}))
    assert len(at_pairs(VARIANCE, {"M": 600, "N": 2048}, pairs)) == DRAWN.paired_literals


@pytest.mark.parametrize("kind", TWO)
def test_a_kernel_that_is_wrong_at_two_sizes_at_once_is_refused(kind: str, judge: Judge) -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM = Dim('M', 1, 2048)\nN = Dim('N', 1, 2048)\n"
        "def reference(x):\n    return x * 2 + 1\ndef inputs(M=64, N=96):\n    return (torch.randn(M, N),)\n", "two"
    )  # fmt: skip
    verdict = judge(f"import torch\ndef kernel(x):\n    return x * 2 + 1 + {TWO[kind]}\n", task, options=QUICK_LOOK)
    assert not verdict.passed and verdict.evidence is not None
    assert verdict.evidence.sizes == {"M": 37, "N": 411}


ROOM = """
import torch
def kernel(x):
    return x * 2 + 1 + (torch.get_num_threads() > 32)
"""


def test_a_team_is_larger_than_a_number_that_the_source_names(judge: Judge) -> None:
    verdict = judge.parts("properties", ROOM, TWICE)
    assert not verdict.passed and "33 threads" in verdict.reason, verdict.reason


def test_a_nan_has_either_sign_and_other_payloads() -> None:
    bits = {
        int(b) for seed in range(40)
        for b in patterned(torch.zeros(4, 8), "NaN", seed, 0, 0).view(torch.int32).unique() if b
    }  # fmt: skip
    assert bits == {0x7FC00000, 0x7FFFFFFF, 0xFFC00000 - (1 << 32)}


#: the reference, a kernel that is wrong where a float is 0 or vanishes next to zeros or equal numbers, and its label
_LIKE = "torch.nn.functional.smooth_l1_loss(x, t, reduction='none', beta=beta)"
VANISHING = {
    "a threshold of 0": (
        task_of(_LIKE, "def inputs():\n    return torch.randn(24, 40), torch.randn(24, 40)\n", "x, t, beta=1.0"),
        "torch.where((x - t).abs() <= beta, 0.5 * (x - t) ** 2 / beta, (x - t).abs() - 0.5 * beta)",
        "equal numbers in x and t where beta = 0 not handled",
    ),
    "a vanishing eps": (
        task_of("torch.nn.functional.normalize(x, dim=-1, eps=eps)", arguments="x, eps=1e-12"),
        "x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True).clamp(min=eps * eps))",
        "0 throughout x where eps = 1e-30 not handled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("what", VANISHING)
def test_zeros_and_equal_numbers_are_tried_where_a_float_vanishes(what: str, right: bool, judge: Judge) -> None:
    task, body, label = VANISHING[what]
    verdict = judge.parts("beyond_own_inputs", code(task, _reference_of(task) if right else body), task)
    assert verdict.passed, verdict.reason
    assert (label in verdict.label) is not right, verdict.label


def _reference_of(task: Any) -> str:
    return str(task.text.split("return ")[1].split("\n")[0])


POOLED = task_of(
    "torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)",
    "def inputs():\n    return torch.randn(2, 4, 17, 19)\n",
)
#: numbers of windows from which no number is taken
FIRST_OF_ALL = """
import torch
def kernel(x):
    y, at = torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
    return y, torch.where(y == -float("inf"), 0, at)
"""


def test_windows_of_minus_infinity_alone_are_tried(judge: Judge) -> None:
    verdict = judge.parts("beyond_own_inputs", FIRST_OF_ALL, POOLED)
    assert verdict.passed and "-inf in x not handled" in verdict.label, (verdict.reason, verdict.label)
