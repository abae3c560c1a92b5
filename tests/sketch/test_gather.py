"""Indices that are tiles, checked and costed: each wrong use gets one sentence, each right one none."""

from __future__ import annotations

import pytest

from kernellab.errors import SketchError
from kernellab.sketch.check import check, load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.run import run
from kernellab.sketch.run.tracer import trace
from kernellab.sketch.syntax.printer import format
from tests.lowering.gather_cases import EMBEDDING, IN_ORDER, INDEX_ADD, PICKS, PUT


def messages(text: str) -> list[tuple[str, str]]:
    return [(d.rule, d.message) for d in check(text).diagnostics]


@pytest.mark.parametrize("name", PICKS)
def test_right_uses_print_as_they_are_written_and_have_no_error(name: str) -> None:
    text = PICKS[name].text
    assert format(format(text)) == format(text)
    assert [d for d in check(text).diagnostics if d.severity == "error"] == []


@pytest.mark.parametrize(
    ("was", "now", "rule", "says"),
    [
        ("W[at, d:d+BD]", "W[at]", "rank", "2 dimensions, and 1 index is given"),
        ("W[at, d:d+BD]", "W[at, d:d+2*D]", "shape-mismatch", "shape"),
        ("W[at, d:d+BD]", "W[at, D+d:D+d+BD]", "out-of-range", "past its end"),
        ("W[at, d:d+BD]", "W[at * 0.5, d:d+BD]", "dtype", "An index into 'W' is f32"),
        ("W[at, d:d+BD]", "W[at, at]", "shape-mismatch", "store"),
        ("gather(W", "load(W", "arguments", "load takes slices"),
        ("gather(W", "gather(U", "unknown-name", "'U'"),
        ("-> rows)", "-> rows, fill=1)", "arguments", "no parameter 'fill'"),
    ],
)
def test_a_wrong_gather_gets_one_sentence(was: str, now: str, rule: str, says: str) -> None:
    found = messages(EMBEDDING.replace(was, now))
    assert [r for r, _ in found][:1] == [rule], found
    assert says in found[0][1] or rule == "shape-mismatch"


def test_adding_at_indices_says_when_runs_may_differ() -> None:
    assert [r for r, _ in messages(INDEX_ADD)] == ["unordered-add"]
    assert messages(IN_ORDER) == [], "each parallel iteration has columns of its own"
    assert messages(INDEX_ADD.replace("f32", "i32")) == [], "integers add to the same in any order"


def test_a_scatter_without_a_promise_or_to_what_is_not_filled_is_refused() -> None:
    assert messages(PUT) == []
    assert [r for r, _ in messages(PUT.replace(", unique=true", ""))] == ["scatter-collides"]
    assert [r for r, _ in messages(PUT.replace("f32 inout", "f32 out"))] == ["not-covered"]


def test_a_broken_promise_is_found_when_the_sketch_runs() -> None:
    import torch

    given = {"ids": torch.tensor([1, 2, 1]), "S": torch.randn(3, 4), "B": torch.zeros(5, 4)}
    with pytest.raises(SketchError, match="one element of B twice"):
        run(load_program(PUT), given)


def test_padding_of_an_index_reaches_a_reduction_as_the_gathers_own_pad() -> None:
    summed = EMBEDDING.replace(
        "store(rows * 2.0 -> Y[n:n+BN, d:d+BD])", "store(reduce_sum(rows, axis=0) -> Y[n, d:d+BD])"
    )
    assert "pad-identity" not in {r for r, _ in messages(summed)}
    assert "pad-identity" in {r for r, _ in messages(summed.replace("pad=-1", "pad=0"))}


def test_traffic_is_that_of_the_rows_that_are_named() -> None:
    found = cost(load_program(EMBEDDING), {"V": 100_000, "D": 64, "N": 1000})
    table = next(t for t in found.tensors if t.tensor == "W")
    assert (table.unique, table.total) == (1000 * 64 * 4, 1000 * 64 * 4)


def test_the_trace_shows_which_rows_are_read() -> None:
    import torch

    given = {"ids": torch.tensor([2, 0, 2]), "W": torch.randn(4, 3)}
    seen = trace(load_program(EMBEDDING), given)
    assert seen.count("W", False) == [1] * 3 + [0] * 3 + [2] * 3 + [0] * 3


def test_a_bound_that_was_loaded_is_told_to_mask_and_an_index_that_was_loaded_to_gather() -> None:
    text = """sketch ragged {
    symbols: S, E;
    tensors: P[S]: i64; X[E]: f32; Y[E]: f32 out;
    for s in range(S):
        load(P[s] -> at)
        load(X[PLACE] -> t)
        store(t -> Y[0:E])
}
"""
    told = [
        next(d for d in check(text.replace("PLACE", place)).diagnostics if d.severity == "error").remedy
        for place in ("at", "0:min(at, E)")
    ]
    assert "Write gather(" in told[0] and "run over the whole extent" not in told[0]
    assert "run over the whole extent" in told[1] and "Write gather(" not in told[1]
