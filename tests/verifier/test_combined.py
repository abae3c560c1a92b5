"""Faults that need two conditions at once: every pair of levels of a task's factors is in one of few calls."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from kernellab.task import load_task
from kernellab.verifier.boundary_checks.covering import Array

from .kit import SCALE, Judge

COUNTS = (4, 3, 2, 5, 2)


@pytest.mark.parametrize("strength", (2, 3))
def test_every_combination_of_levels_is_in_a_row(strength: int) -> None:
    rows = list((array := Array(COUNTS, draw=random.Random(strength))).rows(strength))
    for factors in combinations(range(len(COUNTS)), strength):
        met = {tuple(row[f] for f in factors) for row in rows}
        assert met == set(product(*(range(COUNTS[f]) for f in factors)))
    assert array.share(rows) == 1.0
    # far fewer than all combinations
    assert len(rows) < {2: 40, 3: 90}[strength] < 240


def test_rows_that_do_not_fit_are_left_out_and_their_pairs_are_not_told_as_tried() -> None:
    array = Array(COUNTS, lambda row: (row[0], row[3]) != (3, 4), draw=random.Random(1))
    rows = list(array.rows(2))
    assert rows and all((row[0], row[3]) != (3, 4) for row in rows)
    pairs = sum(a * b for a, b in combinations(COUNTS, 2))
    assert array.share(rows) == pytest.approx(1 - 1 / pairs)


def test_three_factors_alone_are_covered_among_others_that_are_drawn() -> None:
    rows = list(Array((3, 9, 3, 9, 3), draw=random.Random(2)).rows(3, among=(0, 2, 4)))
    assert {(row[0], row[2], row[4]) for row in rows} == set(product(range(3), repeat=3)) and len(rows) < 60


def test_beside_a_level_that_hides_faults_no_others_count() -> None:
    array = Array(COUNTS, masks={(0, 1), (3, 2)}, draw=random.Random(3))
    rows = list(array.rows(2))
    assert array.share(rows) == 1.0
    for (f, a), (g, b) in (((1, 2), (4, 1)), ((1, 0), (2, 1))):
        assert any(row[f] == a and row[g] == b and row[0] != 1 and row[3] != 2 for row in rows)
    assert any(row[0] == 1 and row[3] == 2 for row in rows)


DIMS = 'from kernellab import Dim\nM = Dim("M", 0, 4096)\nN = Dim("N", 1, 4096)\n'
RIGHT = "(torch.relu(x * alpha + y) if relu else x * alpha + y)"
#: the condition under which it is wrong, and what the verdict says
PAIRS = {
    "a flag and a long Dim": ("relu and x.shape[1] > 400 and x.shape[1] % 2", "relu = False only"),
    "a number and where one argument lies": (
        "alpha < 0 and y.stride(-1) != 1 and y.shape[1] > 1", "alpha = 1.0 only"
    ),
    "two arguments that lie otherwise": (
        "x.stride(1) == 1 and len(x) > 1 and x.stride(0) > x.shape[1] > 1 and y.stride(0) == 1 < y.shape[1]",
        "not handled",
    ),
    "a number and a NaN": ("alpha > 1.5 and bool(x.isnan().any())", "NaN in x not handled"),
    "a flag and one tensor for both": ("relu and x.data_ptr() == y.data_ptr() and x.numel()", "relu = False only"),
    "a flag and no elements": ("relu and not x.numel()", "relu = False only"),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_a_kernel_that_is_wrong_under_two_conditions_is_told(pair: str, judge: Judge) -> None:
    condition, label = PAIRS[pair]
    text = f"import torch\n{DIMS}def reference(x, y, alpha=1.0, relu=False):\n    return {RIGHT}\n"
    task = load_task(f"{text}def inputs(M=24, N=40):\n    return torch.randn(M, N), torch.randn(M, N)\n", "pairs")
    wrong = f"torch.full_like({RIGHT}.nan_to_num(0.0), 7.0)" if "elements" not in pair else "torch.ones(1, 1)"
    body = f"def kernel(x, y, alpha=1.0, relu=False):\n    return {wrong} if {condition} else {RIGHT}.contiguous()\n"
    # places of two arguments are many pairs, of which a busy machine leaves some out
    verdicts = [judge.parts("beyond_own_inputs", f"import torch\n{body}", task)]
    while label not in verdicts[-1].label and label == "not handled" and len(verdicts) < 3:
        verdicts.append(judge.parts("beyond_own_inputs", f"import torch\n{body}", task))
    assert all(verdict.passed for verdict in verdicts), verdicts[-1].reason
    assert label in verdicts[-1].label, [verdict.label for verdict in verdicts]


def test_a_kernel_that_keeps_too_few_shapes_is_refused(judge: Judge) -> None:
    right = "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w"
    body = f"KEPT[tuple(x.shape)] = 0\n    return ({right}) * (2 if len(KEPT) > 256 else 1)"
    verdict = judge.parts(
        "ordinary", f"import torch\nKEPT = {{}}\ndef kernel(x, w):\n    {body}\n", load_task(SCALE, "scale")
    )
    assert not verdict.passed and "in an ordinary process" in verdict.reason, verdict.reason
