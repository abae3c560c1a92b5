"""The error rule accepts what arithmetic explains and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.agents.rules.contrast import limit
from kernellab.records import Evidence, Source
from kernellab.records.tried import Tried
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases import cases
from kernellab.verifier.cases import contrast as contrasts
from kernellab.verifier.cases.contrast import contrast
from kernellab.verifier.cases.judged import Wrong
from kernellab.verifier.compare import error_places
from kernellab.verifier.compare.compare import Limits, Mismatch, Reference, compare, metadata
from kernellab.verifier.compare.error_places import at_edge, error_map, first_wrong, mapped, repeats, scattered, where
from kernellab.verifier.compare.fast_accept import beyond_doubt
from kernellab.verifier.compare.scale import cut_off
from kernellab.verifier.compare.signature import holds_fresh, numeric, stored_narrow
from kernellab.verifier.protocol.memory import POISON
from kernellab.verifier.stages import diagnosis, evidence
from kernellab.verifier.stages.refused import Refused

F32 = Limits.of("float32")


def case(shape: tuple[int, ...] = (130, 200), dtype: torch.dtype = torch.float32) -> Reference:
    double = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Reference(double.to(dtype), double)


def judged(got: torch.Tensor, reference: Reference, limits: Limits = F32) -> Mismatch | None:
    return compare(got, reference, limits)[0]


def test_rounding_passes_and_lower_precision_does_not() -> None:
    reference = case()
    assert judged(reference.native * (1 + 2e-7), reference) is None
    tf32 = (reference.native.view(torch.int32) & ~0x1FFF).view(torch.float32)
    assert judged(tf32, reference) is not None
    assert judged(reference.native.bfloat16().float(), reference) is not None


def test_an_element_that_the_framework_misses_alike_is_not_shown_as_wrong() -> None:
    """Where both give 0 for a number that float64 alone holds, "got 0, want 0" says nothing."""
    double = case().double.clone()
    double[:20] *= 1e-3  # small elements, whose digits are lost
    double[0] = 1e-4
    native = double.float()
    native[0] = 0.0
    got = native.clone()
    got[1:20] *= 1.004
    found = judged(got, Reference(native, double))
    assert found is not None and found.rule == "tau" and found.wrong is not None
    assert not bool(found.wrong[0].any()) and bool(found.wrong[1:].any())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_each_dtype_has_its_own_limits(dtype: torch.dtype) -> None:
    reference = case(dtype=dtype)
    limits = Limits.of(str(dtype).removeprefix("torch."))
    assert judged(reference.native, reference, limits) is None
    assert judged((reference.native.double() * 1.1).to(dtype), reference, limits) is not None


def test_one_wrong_element_in_a_million_is_seen() -> None:
    reference = case((1000, 1000))
    got = reference.native.clone()
    got[517, 3] += 0.5
    found = judged(got, reference)
    assert found is not None and found.wrong is not None
    assert int(found.wrong.sum()) == 1 and first_wrong(found.wrong) == [517, 3]


def test_a_small_tile_that_is_off_cannot_hide_behind_large_ones() -> None:
    double = torch.randn(256, 256, dtype=torch.float64)
    double[:64, :64] *= 0.01
    reference = Reference(double.float(), double)
    got = reference.native.clone()
    got[:64, :64] *= 1.0005
    found = judged(got, reference)
    assert found is not None and found.rule == "tile"


def test_where_both_are_about_zero_neither_is_wrong() -> None:
    """The far tail of a GELU: 0 by one formula and 1e-17 by another."""
    want = torch.linspace(-1.0, 1.0, 64 * 64, dtype=torch.float64).reshape(64, 64)
    want[:, 32:] = 0.0
    reference, got = Reference(want.float(), want), want.float()
    got[:, 32:] = 1e-17
    assert compare(got, reference, Limits.of("float32"))[0] is None
    got[:, 32:] = 1e-6
    assert compare(got, reference, Limits.of("float32"))[0].rule == "tau"


def test_of_few_elements_one_that_nearly_cancels_is_off_by_roundings_alone() -> None:
    """A difference of two sums of about 4: a rounding of theirs is a thousandth of an answer of 0.0004."""
    want = torch.linspace(0.2, 0.9, 17, dtype=torch.float64)
    want[5] = 0.0004425
    native = (want + 4.0).float() - 4.0
    reference, got = Reference(native, want), native.clone()
    got[5] += 4.8e-7
    assert judged(got, reference) is None
    got[6] = 0.0004425
    assert judged(got, reference) is not None
    got[5], got[6] = native[5] + 5e-6, native[6]
    found = judged(got, reference)
    assert found is not None and found.rule == "tau"


def test_the_places_of_nan_and_infinity_follow_the_reference() -> None:
    reference = case()
    reference.native[1, 2] = reference.double[1, 2] = float("inf")  # type: ignore[index]
    assert judged(reference.native.clone(), reference) is None
    flipped = reference.native.clone()
    flipped[1, 2] = float("-inf")
    missing = reference.native.clone()
    missing[1, 2] = 3.0
    extra = reference.native.clone()
    extra[5, 5] = float("nan")
    for got in (flipped, missing, extra):
        found = judged(got, reference)
        assert found is not None and found.rule == "non-finite"


def test_wrong_numbers_are_on_the_map_beside_what_is_not_finite() -> None:
    reference = case((16, 65))
    got = reference.native * 1.5
    got[15] = float("nan")
    found = judged(got, reference)
    assert found is not None and found.rule == "non-finite" and found.wrong is not None
    assert found.wrong[15].all() and found.wrong[:15].double().mean() > 0.9
    assert numeric(got, reference.want, found) == "edge-tile"


def test_a_bool_has_the_byte_of_a_bool() -> None:
    want = torch.tensor([True, False, True])
    assert compare(want.clone(), Reference(want, None), Limits.of("bool"))[0] is None
    strange = torch.tensor([255, 0, 1], dtype=torch.uint8).view(torch.bool)
    mismatch, _ = compare(strange, Reference(want, None), Limits.of("bool"))
    assert mismatch is not None and "1 of 3 bools have another byte" in mismatch.message


def test_integers_and_bools_are_exact() -> None:
    native = torch.arange(12).reshape(3, 4)
    assert judged(native.clone(), Reference(native, None)) is None
    found = judged(native + (native == 5), Reference(native, None))
    assert found is not None and found.rule == "exact"


def test_limits_widen_where_the_framework_itself_is_far_off() -> None:
    reference = case()
    noise = 1 + 1e-4 * torch.randn(reference.native.shape, generator=torch.Generator().manual_seed(1))
    rough = Reference(reference.native * noise, reference.double)
    assert judged(reference.native * noise.flip(0), rough) is None
    assert judged(reference.native * noise.flip(0), reference) is not None


def test_zero_and_empty_references() -> None:
    zero = Reference(torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.float64))
    assert judged(torch.zeros(8, 8), zero) is None
    assert judged(torch.full((8, 8), 1e-3), zero) is not None
    empty = Reference(torch.empty(0, 8), torch.empty(0, 8, dtype=torch.float64))
    assert judged(torch.empty(0, 8), empty) is None


def test_shape_dtype_and_number_are_exact() -> None:
    want = [torch.zeros(2, 3)]
    assert metadata([((2, 3), "float32")], want) is None
    assert metadata([((1, 2, 3), "float32")], want).rule == "shape"  # type: ignore[union-attr]
    assert metadata([((2, 3), "float64")], want).rule == "dtype"  # type: ignore[union-attr]
    assert metadata([], want).rule == "count"  # type: ignore[union-attr]


def test_signatures_from_numbers_alone() -> None:
    reference = case((96, 96))
    w = reference.want
    named = {
        "transposed": w.T,
        "all-zero": torch.zeros_like(w),
        "off-by-scale": w * 2,
        "off-by-constant": w + 1,
        "off-by-one": torch.cat((w[1:], w[:1])),
        "accumulate-dtype": w.half().double(),
    }
    for name, values in named.items():
        got = values.float().contiguous()
        found = judged(got, reference)
        assert found is not None, name
        assert numeric(got, w, found) == name


@pytest.mark.parametrize(("off", "name"), [(2e-4, "accumulate-dtype"), (0.1, "edge-tile")])
def test_lost_digits_at_an_end_are_no_missing_mask(off: float, name: str) -> None:
    """A tile of small values next to large ones: errors of their last digits, and values that are others."""
    double = case((128, 128)).double.clone()  # type: ignore[union-attr]
    double[64:, 64:] *= 1e-3
    got = double.clone()
    signs = torch.rand(64, 64, generator=torch.Generator().manual_seed(1)).sub(0.5).sign()
    got[64:, 64:] *= 1 + off * signs
    found = judged(got.float(), Reference(double.float(), double))
    assert found is not None and found.wrong is not None and found.rule in ("tile", "frobenius")
    assert at_edge(found.wrong)
    assert numeric(got.float(), double, found) == name


def refusal(
    failing: Any, got: torch.Tensor, mismatch: Mismatch, others: Sequence[Tried] = (), is_edge: bool = False
) -> Refused:
    """The refusal of a wrong output, where other calls show ``others`` and ``is_edge``."""
    stages: Any = SimpleNamespace(
        source=Source(dsl="cpp", files={"kernel.py": ""}), answers=[], limits=[F32], task=SimpleNamespace(outputs=[1]),
        context=SimpleNamespace(end=inf),
    )  # fmt: skip
    shown: dict[str, Any] = {
        "_differs_again": False, "is_edge": is_edge, "_loses_more_than_digits": False, "wrong_constants": [],
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "reproduction", lambda *_: "")
        patch.setattr(evidence, "static_sizes", lambda task: {})
        patch.setattr(diagnosis, "contrast", lambda *_: list(others))
        for name, result in shown.items():
            patch.setattr(diagnosis.Diagnosis, name, lambda *_, result=result: result)
        return diagnosis.Diagnosis(stages).refusal(Wrong(failing, 0, got, mismatch))


@pytest.mark.parametrize(("off", "name"), [(2e-4, "accumulate-dtype"), (0.1, "edge-tile")])
def test_sizes_at_which_roundings_show_name_no_missing_mask(off: float, name: str) -> None:
    """Wrong in the first tile, at this size and not at whole tiles: of roundings that says nothing."""
    reference = case((128, 128))
    assert reference.double is not None
    double = reference.double.clone()
    double[:64, :64] *= 1e-3
    got = double.clone()
    signs = torch.rand(64, 64, generator=torch.Generator().manual_seed(1)).sub(0.5).sign()
    got[:64, :64] *= 1 + off * signs
    reference = Reference(double.float(), double)
    found = judged(got.float(), reference)
    assert found is not None
    tried = SimpleNamespace(sizes=(), family=Family.NORMAL, seed=1, change=None, held=(), args=(), words="N=128")
    tried.references, tried.task = [reference], SimpleNamespace(dims=())
    refused = refusal(tried, got.float(), found, is_edge=True)
    assert refused.evidence is not None and refused.evidence.signature == name


@pytest.mark.parametrize(("wrong_at", "name"), [(64, "unwritten"), (33, "edge-tile")])
def test_what_lies_behind_an_input_is_no_tail_where_whole_tiles_have_it_too(wrong_at: int, name: str) -> None:
    """The last plane alone reaches past the end of a table: its place in the output says nothing of tiles."""
    reference = case((3, 64))
    assert reference.double is not None
    got = reference.double.float()
    got[2, ::5] = torch.tensor([-1], dtype=torch.int32).view(torch.float32)
    found = judged(got, reference)
    assert found is not None and found.rule == "non-finite"
    tried = SimpleNamespace(sizes=(), family=Family.OWN, seed=1, change=None, held=(), args=(), words="N=64")
    tried.references, tried.task = [reference], SimpleNamespace(dims=())
    others = [Tried(sizes={"N": 1}, right=True), Tried(sizes={"N": wrong_at}, right=False)]
    refused = refusal(tried, got, found, others)
    assert refused.evidence is not None and refused.evidence.signature == name


@pytest.mark.parametrize(("sizes", "name"), [({"N": 29}, "wrong-values"), ({"N": 8}, "edge-tile")])
def test_an_end_that_is_wrong_at_whole_tiles_and_right_at_small_ragged_ones_is_no_tail(
    sizes: dict[str, int], name: str
) -> None:
    """A window of 96 that is taken as 97: wrong from place 96 on at 128 too, and right at 29."""
    reference = case((130, 64))
    assert reference.double is not None
    got = reference.double.float()
    got[96:] += torch.rand(34, 64, generator=torch.Generator().manual_seed(1)) + 1
    found = judged(got, reference)
    assert found is not None and at_edge(found.wrong)  # type: ignore[arg-type]
    tried = SimpleNamespace(sizes=(), family=Family.OWN, seed=1, change=None, held=(), args=(), words="N=130")
    tried.references, tried.task = [reference], SimpleNamespace(dims=())
    others = [Tried(sizes=sizes, right=True), Tried(sizes={"N": 128}, right=False)]
    refused = refusal(tried, got, found, others)
    assert refused.evidence is not None and refused.evidence.signature == name


ROWS = load_task(
    "import torch\nfrom kernellab import Dim\nM, T = Dim('M', 1, 64), Dim('T', 1, 4096)\n"
    "def reference(x):\n    return x * 2\ndef inputs(M=8, T=130):\n    return (torch.randn(M, T),)\n"
)


def tried_at(wrong: Callable[[dict[str, int]], bool], failing: dict[str, int], end: float = inf) -> list[Tried]:
    asked = cases.case(ROWS, failing, Family.OWN)
    return contrast(ROWS, asked, lambda case: not wrong(dict(case.sizes)), end)


def test_the_size_from_which_a_kernel_is_wrong_is_found_by_halving() -> None:
    found = tried_at(lambda sizes: sizes["T"] > 96, {"M": 7, "T": 130})
    assert "It is right where T is at most 96, and wrong from 97 on" in limit(Evidence(tried=found))
    assert len(found) < 25
    # the last tile alone: whole tiles next to it are right, and no size decides
    tail = tried_at(lambda sizes: sizes["T"] > 100 and sizes["T"] % 64 != 0, {"M": 7, "T": 130})
    assert tail[-1].right and tail[-1].sizes["T"] % 64 == 0 and not limit(Evidence(tried=tail))
    small = tried_at(lambda sizes: sizes["T"] > 20, {"M": 7, "T": 130})
    assert max(one.sizes["T"] for one in small) <= 65
    assert tried_at(lambda sizes: True, {"M": 7, "T": 130}, end=0.0) == []


def test_whole_tiles_are_tried_where_each_smaller_size_is_wrong() -> None:
    """A kernel that stores whole tiles alone is wrong at each size below one."""
    found = tried_at(lambda sizes: sizes["T"] % 128 != 0, {"M": 7, "T": 100})
    assert found[-1].right and found[-1].sizes["T"] == 128, found
    wrong = tried_at(lambda sizes: True, {"M": 7, "T": 130})
    assert not any(one.right for one in wrong) and len(wrong) < 25
    assert len({tuple(one.sizes.items()) for one in wrong}) == len(wrong), "no size twice"


@pytest.mark.parametrize(("crowd", "more"), [(1.0, False), (4.0, True)])
def test_more_time_is_taken_on_a_busy_machine(crowd: float, more: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(contrasts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(contrasts, "crowding", lambda: crowd)

    def slow(case: Any) -> bool:
        now[0] += 0.5
        return False

    found = contrast(ROWS, cases.case(ROWS, {"M": 7, "T": 130}, Family.OWN), slow, inf)
    assert (len(found) > 6) is more, "two seconds for the small sizes, and four times that"


def test_an_error_that_is_over_no_elements_limit_has_no_place() -> None:
    want = torch.full((1, 1), -9.78e-4, dtype=torch.float64)
    reference = Reference(want.float(), want)
    found = judged((want * (1 + 1.5e-5)).float(), reference)
    assert found is not None and found.rule == "frobenius"
    assert found.wrong is not None and not found.wrong.any()
    assert numeric((want * (1 + 1.5e-5)).float(), want, found) == "wrong-values", "neither too narrow sums nor a tail"


def test_padding_in_a_row_s_sum_is_no_loss_of_digits() -> None:
    weights = torch.randn(33, 255, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    sums = weights.sum(-1, keepdim=True)
    reference = Reference((weights / sums).float(), weights / sums)
    for name, total in {"off-by-scale": sums + 1, "accumulate-dtype": sums.bfloat16()}.items():
        got = (weights / total).float()
        found = judged(got, reference)
        assert found is not None
        assert numeric(got, reference.want, found) == name


def test_errors_within_one_place_of_a_dimension_are_no_edge() -> None:
    wrong = torch.zeros(12, 36, 36, dtype=torch.bool)
    wrong[5, 26:, 26:] = True
    assert not at_edge(wrong), "one matrix of a batch"
    wrong[-1, 26:, 26:] = True
    assert at_edge(wrong), "several"
    last = torch.zeros(12, 36, dtype=torch.bool)
    last[-1, 20:] = True
    assert at_edge(last), "what follows the last whole tile of a row of rows"


def test_errors_that_follow_a_diagonal_are_said_to() -> None:
    eye = torch.eye(36, dtype=torch.bool).expand(7, 36, 36)
    ones = torch.ones(7, 36, 36, dtype=torch.bool)
    got = torch.zeros(7, 36, 36)
    assert where(eye, got) == "only where the indices of dimensions 1 and 2 are equal"
    assert where(ones.triu(), got) == "only where the index of dimension 2 is at least that of dimension 1"
    assert where(ones.tril(), got) == "only where the index of dimension 1 is at least that of dimension 2"
    assert not scattered(eye) and not scattered(ones.tril(-1))
    # the places nearest to the errors are named: one side of a diagonal leaves its first or last row right
    assert where(ones.triu(1), got) == "only where the index of dimension 2 is greater than that of dimension 1"
    assert where(ones.tril(-1), got) == "only where the index of dimension 1 is greater than that of dimension 2"
    corner = ones.clone()
    corner[:, :34] = False
    assert where(corner.tril(), got) == "only from 34 to the end (36) of dimension 1", "fewer places than one side"
    few = torch.zeros(8, 1000, dtype=torch.bool)
    few.view(-1)[torch.randperm(7992, generator=torch.Generator().manual_seed(0))[:40] + 8] = True
    assert where(few, torch.zeros(8, 1000)) == "scattered", "in a wide matrix most places lie on one side"


@pytest.mark.parametrize("piece", (1, 60, 100, 1 << 22))
def test_a_diagonal_is_looked_for_in_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_places, "_SIDES_PIECE", piece)
    for shape in ((36, 36), (50, 20), (20, 50)):
        rows, columns = torch.arange(shape[0])[:, None], torch.arange(shape[1])
        for wrong in (rows == columns, rows >= columns, rows <= columns, rows > columns, rows < columns):
            wrong = wrong & (torch.rand(shape) < 0.8)
            below, above = bool((wrong & (rows > columns)).any()), bool((wrong & (rows < columns)).any())
            assert error_places._sides(wrong) == (below, above)


def test_a_map_shows_the_wrong_corner() -> None:
    wrong = torch.zeros(64, 96, dtype=torch.bool)
    wrong[60:, :] = True
    assert at_edge(wrong) and not at_edge(~wrong)
    rows = error_map(wrong, torch.zeros(64, 96))
    assert rows[-1] == "x" * 48 and set("".join(rows[:-1])) == {"."}
    lone = torch.zeros(64, 96, dtype=torch.bool)
    lone[3, 5] = True
    assert not at_edge(lone)


def test_vectors_and_wide_matrices_are_compared_in_pieces() -> None:
    for shape in ((1 << 20,), (3, 300_001), (70, 5_001), (5, 33, 65)):
        reference = case(shape)
        mismatch, error = compare(reference.native, reference, F32)
        assert mismatch is None and error < 1e-6
        got = reference.native.clone()
        got.view(-1)[-1] += 1
        found = judged(got, reference)
        assert found is not None and found.wrong is not None and found.wrong.shape == got.shape
        assert first_wrong(found.wrong) == [n - 1 for n in shape]


@pytest.mark.parametrize("own", (1e-8, 3e-6, 1e-5, 1e-3))
def test_what_is_beyond_doubt_beside_eager_keeps_every_rule_beside_float64(own: float) -> None:
    """Whatever eager's own error is; and an output that is a floor away from eager is no longer beyond doubt."""
    draw = torch.Generator().manual_seed(7)
    limits = Limits.of("float32", {}, False)
    double = torch.randn(200, 300, generator=draw, dtype=torch.float64)
    taken = 0
    for off in (1e-7, 2e-6, 4e-6, 6e-6, 2e-5):
        eager = (double * (1 + own * torch.randn(double.shape, generator=draw, dtype=torch.float64))).float()
        got = eager * (1 + off * torch.randn(double.shape, generator=draw))
        sure = beyond_doubt(got, eager, limits)
        taken += sure is not None
        assert sure is None or compare(got, Reference(eager, double), limits)[0] is None
        assert sure is None or off < limits.floor
    assert 0 < taken < 5


def test_a_finite_element_is_never_within_a_share_of_an_infinite_one() -> None:
    want = torch.randn(24)
    want[3] = -torch.inf
    got = want.clamp_min(torch.finfo(torch.float32).min)
    assert beyond_doubt(got, want, Limits.of("float32")) is None
    assert compare(got, Reference(want, want.double()), Limits.of("float32"))[0] is not None


def test_a_row_of_another_order_of_equals_has_its_infinities_and_its_whole_numbers() -> None:
    """Where a mask follows from sorted places, a row may be the reference's under another order: wholly, or not."""
    inf = float("inf")
    native = torch.tensor([[1.0, -inf, 3.0, 1.0], [2.0, 4.0, -inf, 2.0]])
    turned = torch.tensor([[-inf, 1.0, 3.0, 1.0], [2.0, 4.0, -inf, 2.0]])
    reference = Reference(native, native.double(), tied=lambda: [native.double(), turned.double()])
    assert judged(turned, reference) is None
    unmasked = torch.tensor([[1.0, 1.0, 3.0, 1.0], [2.0, 4.0, 5.0, 2.0]])
    assert judged(unmasked, reference) is not None
    large = torch.tensor([(1 << 60) + 1, 7])
    whole = Reference(large, None, tied=lambda: [large])
    assert judged(large.clone(), whole) is None and judged(large - torch.tensor([1, 0]), whole) is not None
    some = torch.tensor([1 + 2j, 3 - 1j])
    assert judged(some.conj().resolve_conj(), Reference(some, None, tied=lambda: [some.real.double()])) is not None


def test_what_fresh_memory_held_is_told_from_a_nan_that_was_computed() -> None:
    reference = case((16, 65))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        got = reference.native.to(dtype)
        got[:, 3:9] = torch.full((16, 6 * got.element_size()), 0xFF, dtype=torch.uint8).view(dtype)
        wrong = ~torch.isfinite(got)
        assert int(wrong.sum()) == 96 and holds_fresh(got, wrong)
        got[0, 3] = float("nan")
        assert not holds_fresh(got, wrong)
    assert not holds_fresh(torch.full((4,), -2), torch.ones(4, dtype=torch.bool))
    assert not holds_fresh(torch.zeros(4), torch.ones(4, dtype=torch.bool))
    other = case((16, 65))
    got = other.native.clone()
    got[:, 3:9] = float("nan")
    found = judged(got, other)
    assert found is not None
    assert numeric(got, other.want, found) == "nan"
    assert numeric(got, other.want, found, fresh=True) == "unwritten"


def test_integers_to_which_nothing_was_stored_hold_what_fresh_memory_does() -> None:
    want = torch.arange(64).reshape(16, 4)
    got = want.clone()
    got[2:5] = -1
    reference = Reference(want, want.double())
    found = judged(got, reference)
    assert found is not None and found.wrong is not None and holds_fresh(got, found.wrong)
    assert numeric(got, want, found, fresh=True) == "unwritten"
    got[3, 0] = 7
    found = judged(got, reference)
    assert found is not None and found.wrong is not None and not holds_fresh(got, found.wrong)
    few = want.clone()
    few[2, 0] = -1
    assert not holds_fresh(few, few != want)


def test_a_right_answer_that_is_nearly_an_input_is_no_copy_of_it() -> None:
    """A cache with one row replaced, of which another row is wrong; and a copy where a result is asked."""
    held = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    want = held.clone()
    want[5] = 1.0
    reference = Reference(want.float(), want)
    found = judged(held.float(), reference)
    assert found is not None and numeric(held.float(), want, found, inputs=[held]) != "identity"
    asked = held * 2
    found = judged(held.float(), Reference(asked.float(), asked))
    assert found is not None and numeric(held.float(), asked, found, inputs=[held]) == "identity"


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [(torch.int64, torch.int32), (torch.int32, torch.int16), (torch.float64, torch.float32),
     (torch.float32, torch.bfloat16)],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 30])
def test_values_stored_through_a_pointer_of_a_narrower_type_are_told(
    wide: torch.dtype, narrow: torch.dtype, count: int
) -> None:
    want = torch.arange(count).to(wide) * 2
    got = torch.full((count * want.element_size(),), POISON, dtype=torch.uint8)
    got[: count * narrow.itemsize] = want.to(narrow).view(torch.uint8)
    assert stored_narrow(got.view(wide), want)
    half = got.clone()
    half[: count * narrow.itemsize] = POISON
    assert not stored_narrow(half.view(wide), want), "nothing was stored"
    assert not stored_narrow(want, want)
    assert not stored_narrow(got.view(wide), want + 1), "other values"


def test_errors_in_two_columns_follow_them() -> None:
    wrong = torch.zeros(32, 17, dtype=torch.bool)
    wrong[:9, 0] = wrong[3:11, 16] = wrong[14:, 16] = True
    assert where(wrong, torch.zeros(32, 17)) == "only at 0 and 16 of dimension 1" and not scattered(wrong)
    few = torch.zeros(32, 17, dtype=torch.bool)
    few[3, 0] = few[9, 16] = True
    assert "dimension" not in where(few, torch.zeros(32, 17))


def test_errors_are_scattered_only_where_they_follow_no_dimension() -> None:
    wrong = torch.zeros(64, 257, dtype=torch.bool)
    wrong[torch.arange(0, 64), (torch.arange(64) * 37) % 251] = True
    assert scattered(wrong)
    one_row = torch.zeros(64, 257, dtype=torch.bool)
    one_row[8, 50:66] = True
    assert not scattered(one_row)
    next_row = torch.zeros(64, 257, dtype=torch.bool)
    next_row[:, :7] = True
    assert not scattered(next_row) and not scattered(torch.ones(4, 4, dtype=torch.bool))


@pytest.mark.parametrize(
    ("size", "period", "residues", "words"),
    [
        (700, 16, range(8, 16), "index % 16 is 8 to 15"),
        (700, 24, [0, *range(20, 24)], "index % 24 is 0 or 20 to 23"),
        (512, 32, [0], "index % 32 is 0"),
        (900, 200, range(150, 200), "index % 200 is 150 to 199"),
    ],
)
def test_errors_that_repeat_along_a_dimension_are_named_by_their_remainders(
    size: int, period: int, residues: Sequence[int], words: str
) -> None:
    """The second half of each block of 16 rows that a shifted mask leaves out, and its kind."""
    generator = torch.Generator().manual_seed(3)
    for dense in (1.0, 0.4):
        wrong = torch.zeros(size, 8, dtype=torch.bool)
        for at in range(size):
            wrong[at] = (at % period in list(residues)) & (torch.rand(8, generator=generator) < dense)
        found = repeats(wrong)
        assert found is not None and found.dimension == 0 and found.words == words
        assert f"only where {words} along dimension 0" == where(wrong, torch.zeros(size, 8)) or len(residues) == 1
        assert not scattered(wrong)
    assert mapped(wrong) == (size, 8)


def test_errors_at_random_places_follow_no_period() -> None:
    generator = torch.Generator().manual_seed(5)
    for share in (0.003, 0.01, 0.05, 0.3):
        for size in (64, 257, 1000):
            for _ in range(20):
                wrong = torch.zeros(size, 3, dtype=torch.bool)
                wrong[:, 1] = torch.rand(size, generator=generator) < share
                assert repeats(wrong) is None
    block = torch.zeros(257, 4, dtype=torch.bool)
    block[40:90] = True
    assert repeats(block) is None  # one place, which is told as such


@pytest.mark.parametrize(
    ("dtype", "factor"), [(torch.bfloat16, 0.9873), (torch.bfloat16, 1.008), (torch.float16, 0.998)]
)
def test_sixteen_bits_have_the_scale_of_the_answer(dtype: torch.dtype, factor: float) -> None:
    """0.9873: a variance over 40 numbers divided by 39. The framework's roundings widen the norm's limit alone."""
    double = torch.randn(24, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    limits = Limits.of(str(dtype).removeprefix("torch."))
    native = (double.to(dtype).double() * (1 + limits.floor * (torch.arange(40) % 2 - 0.5))).to(dtype)
    reference = Reference(native, double)
    assert judged(double.to(dtype), reference, limits) is None
    found = judged((double * factor).to(dtype), reference, limits)
    assert found is not None and found.rule == "scale"


@pytest.mark.parametrize("shape", [(1,), (7,), (24, 40), (1, 4096)])
def test_honest_roundings_keep_the_scale(shape: tuple[int, ...]) -> None:
    reference = case(shape, torch.bfloat16)
    assert reference.double is not None
    truncated = (reference.double.float().view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()
    by_rounded_factor = (reference.double * (1 + 2.0**-9)).bfloat16()
    for got in (reference.native, truncated, by_rounded_factor):
        assert judged(got, reference, Limits.of("bfloat16")) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(24, 40), (1, 4096)])
def test_results_that_are_cut_off_are_found_and_rounded_ones_are_not(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    double = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 1e-3
    reference = Reference(double.to(dtype), double)
    nearest = double.to(dtype)
    toward_zero = torch.where(
        nearest.double().abs() > double.abs(), torch.nextafter(nearest, torch.zeros_like(nearest)), nearest
    )
    down = torch.where(nearest.double() > double, torch.nextafter(nearest, torch.full_like(nearest, -inf)), nearest)
    assert cut_off(toward_zero, reference) and cut_off(down, reference)
    by_rounded_factor = (double * (1 + 2.0**-9)).to(dtype)
    twice_rounded = (double.float().bfloat16().double() * 1.25).to(dtype)
    for got, exact in ((nearest, double), (by_rounded_factor, double), (twice_rounded, double * 1.25)):
        assert not cut_off(got, Reference(nearest if exact is double else (double * 1.25).to(dtype), exact))
    # a reference that cuts off is right so, and few elements show no direction
    assert not cut_off(toward_zero, Reference(toward_zero, double))
    assert not cut_off(toward_zero.reshape(-1)[:99], Reference(nearest.reshape(-1)[:99], double.reshape(-1)[:99]))
