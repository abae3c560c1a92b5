"""Changed references that are listed as equivalent are so: tried on all values, where there are few."""

from __future__ import annotations

import torch

from kernellab.task import load_task

from .mutated_references import mutants

BYTES, SIGNED = torch.arange(256).to(torch.uint8), torch.arange(-128, 128).to(torch.int8)


def test_narrow_types_hold_each_value_of_a_byte() -> None:
    assert torch.equal(SIGNED.half().float(), SIGNED.float())
    assert torch.equal(BYTES.float().long(), BYTES.long())
    assert torch.equal(torch.div(BYTES, 1 << 4, rounding_mode="trunc"), BYTES >> 4)


def test_counts_and_comparisons_of_what_is_listed_are_the_same() -> None:
    keep = torch.arange(513)[:, None] > torch.arange(512)
    assert torch.equal(keep.half().sum(-1).long(), keep.sum(-1))
    hot = (torch.randint(0, 16, (2048, 1)) == torch.arange(16)).long()
    narrow = hot.to(torch.int16)
    assert torch.equal(((narrow.cumsum(0) - 1) * narrow).sum(-1), ((hot.cumsum(0) - 1) * hot).sum(-1))
    y = torch.randn(64, 4).round()
    y[::5, 1] = torch.nan
    best = y.amax(-1, keepdim=True)
    assert torch.equal(y >= best, y == best)


def test_a_softmax_s_row_that_has_a_nan_has_nothing_else() -> None:
    logits = torch.randn(64, 16)
    logits[::4, 3], logits[1::4, 5], logits[2::4] = torch.nan, torch.inf, -torch.inf
    p = torch.softmax(logits, -1)
    is_nan = p.isnan()
    assert torch.equal(is_nan.any(-1), is_nan.all(-1)) and bool(is_nan.any()) and not bool(is_nan.all())

    def gates(p: torch.Tensor) -> torch.Tensor:
        best = torch.topk(p, 2).values
        return best / best.sum(-1, keepdim=True)

    assert torch.equal(gates(p), gates(torch.nan_to_num(p))) or torch.allclose(
        gates(p), gates(torch.nan_to_num(p)), equal_nan=True
    )


def test_each_comparison_of_a_reference_is_turned_negated_and_swapped() -> None:
    task = load_task(
        "import torch\ndef reference(x):\n    return torch.where(x < 3, torch.round(x), x.sum(-1, keepdim=True))\n"
        "def inputs():\n    return (torch.randn(4, 8),)\n", "t",
    )  # fmt: skip
    changes = [change for change, _ in mutants(task)]
    for wanted in (
        "turned: a <= b",
        "negated: ~(a >= b)",
        "swapped: a > b",
        "always the first",
        "round -> torch.floor",
    ):
        assert any(wanted in change for change in changes), wanted
    for change, text in mutants(task):
        assert "def kernel(x)" in text and compile(text, change, "exec")
