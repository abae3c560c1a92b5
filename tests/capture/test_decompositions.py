"""What is traced in an operation's place is the operation: the same numbers, NaN and ties too."""

from __future__ import annotations

import math

import pytest
import torch

from kernellab.capture.decompositions.order_statistics import nanquantile, quantile
from kernellab.capture.decompositions.scatter import segment_reduce
from kernellab.capture.decompositions.sorted_rows import best_of_rows


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_the_best_of_rows_by_index_in_one_block_of_rows_and_in_many() -> None:
    made = torch.Generator().manual_seed(0)
    for count, places in ((90, 40), (1025, 7), (1500, 40), (2048, 3000)):
        x, rows = (torch.randn(n, 3, generator=made) for n in (places, count))
        rows[5, 0] = float("nan")
        ids = torch.randint(0, places, (count,), generator=made)
        for reduce in ("amax", "amin", "prod"):
            for include_self in (True, False):
                want = x.index_reduce(0, ids, rows, reduce, include_self=include_self)
                got = best_of_rows(x, 0, ids, rows, reduce, include_self)
                near = {"rtol": 1e-5, "atol": 1e-30} if reduce == "prod" else {"rtol": 0.0, "atol": 0.0}
                torch.testing.assert_close(got, want, equal_nan=True, **near)


def test_the_best_of_runs_of_rows_where_some_are_empty() -> None:
    x, lengths = torch.randn(1500, 4), torch.tensor([0, 700, 0, 1, 799, 0])
    for reduce in ("max", "min"):
        want = torch.segment_reduce(x, reduce, lengths=lengths, unsafe=True)
        assert torch.equal(segment_reduce(x, reduce, lengths=lengths), want), reduce


def test_a_quantile_is_rounded_as_torch_rounds_it() -> None:
    made = torch.Generator().manual_seed(0)
    for length in (1, 2, 7, 1000):
        x = torch.randn(5, length, 3, generator=made)
        x[0, 0, 0] = float("nan")
        x[1, 0, 1], x[2, -1, 2], x[3, :, 0] = math.inf, -math.inf, math.inf  # of few elements the neighbours of a rank
        for q in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0):
            for dim, keep in ((1, False), (1, True), (None, False), (None, True)):
                want = torch.quantile(x, q, dim, keep)
                torch.testing.assert_close(quantile(x, q, dim, keep), want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("length", [1, 2, 7, 1000])
def test_quantiles_of_a_tensor_and_those_that_skip_nan_are_torch_s(length: int) -> None:
    x = torch.randn(5, length, 3, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0], x[2, :, 1] = float("nan"), float("nan")
    for q in (torch.tensor([0.0, 0.1, 0.5, 0.999, 1.0]), torch.tensor(0.3)):
        for dim, keep in ((1, False), (1, True), (-1, True), (None, False), (None, True)):
            for ours, theirs in ((quantile, torch.quantile), (nanquantile, torch.nanquantile)):
                got, want = ours(x, q, dim, keep), theirs(x, q, dim, keep)
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(nanquantile(x, 0.7, 1), torch.nanquantile(x, 0.7, 1), rtol=0, atol=0, equal_nan=True)
