"""A comparison leaves what it compares as it was, to the bit, whatever the dtype, the size and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.records import Stage
from kernellab.task import load_task
from kernellab.task.dtypes import alike
from kernellab.verifier.compare import chunked, close, compare, fast_accept
from kernellab.verifier.compare.compare import PIECE, Limits, Reference
from kernellab.verifier.compare.error_places import error_map, where
from kernellab.verifier.compare.signature import numeric
from kernellab.verifier.protocol.rules import DEVICE

from .kit import Judge

#: the dtypes that alias in ``.double()`` first
DTYPES = (
    torch.float64, torch.complex128, torch.float32, torch.complex64, torch.float16, torch.bfloat16,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64, torch.bool,
)  # fmt: skip
#: a piece of 2 tiles and an output of 4 are the largest that are compared whole, so that few elements cross each limit
SMALL = replace(DEVICE, piece_elements=2 * 64 * 64, whole_elements=4 * 64 * 64, glance_elements=3 * 64 * 64)
SMALL_PIECE = 2 * 64 * 64


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the judge."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=draw)
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=draw).to(dtype)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()


def outputs(want: torch.Tensor) -> list[torch.Tensor]:
    """Right, negated in sum (which an in-place difference turns into right), scaled, one element off, not a number."""
    wide = want.to(torch.complex128 if want.is_complex() else torch.float64)
    changed = [wide, 0 * wide, 2 * wide]
    one = wide.clone()
    one.reshape(-1)[want.numel() // 2 :][:1] += 7
    nan = wide.clone()
    if want.is_floating_point() or want.is_complex():
        nan.reshape(-1)[-1:] = float("nan")
    return [t.to(want.dtype) for t in (*changed, one, nan)]


def compared(got: torch.Tensor, want: torch.Tensor) -> None:
    """All comparisons of the judge, of which some end early."""
    limits = Limits.of(str(want.dtype).removeprefix("torch."))
    double = want.double() if want.is_floating_point() else None
    moved = None if double is None else double * (1 + 1e-7)
    answers = (Reference(want, None), Reference(want, double), Reference(want, double, moved))
    fast_accept.beyond_doubt(got, want, limits)
    for reference in answers:
        for allowed in (limits, replace(limits, close=True), replace(limits, floor=10.0, tau=1.0)):
            mismatch, _ = compare.compare(got, reference, allowed)
            if mismatch is not None and mismatch.wrong is not None and got.is_floating_point() and got.dim() > 1:
                where(mismatch.wrong, got)
                if got.element_size() > 1:
                    error_map(mismatch.wrong, got)
                    numeric(got, reference.want, mismatch, earlier=[want], inputs=[want])
    if want.is_floating_point() and want.element_size() > 1 and want.numel():
        chunked.compare_pieces(got, answers[2], limits)
        close.not_close(got, answers[2])
    alike(got, want)


def is_unchanged(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> None:
    want = drawn(shape, dtype, seed)
    for got in outputs(want):
        before = bits(got), bits(want)
        compared(got, want)
        assert (bits(got), bits(want)) == before, (shape, dtype)


#: about the limits of a tile, of a piece and of what is compared whole
SIDES = st.sampled_from([0, 1, 2, 63, 64, 65, 127, 128, 129])
SHAPES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 3), SIDES, SIDES),
    st.tuples(
        st.sampled_from(
            [n + d for n in (64, SMALL_PIECE, SMALL.glance_elements, SMALL.whole_elements) for d in (-1, 0, 1)]
        )
    ),
    st.just(()),
)


@settings(max_examples=50, deadline=None)
@given(SHAPES, st.sampled_from(DTYPES), st.integers(0, 1 << 20))
def test_no_comparison_changes_what_it_compares(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (compare, fast_accept, chunked, close):
            patch.setattr(module, "DEVICE", SMALL)
        for module in (compare, fast_accept):
            patch.setattr(module, "PIECE", SMALL_PIECE)
        is_unchanged(shape, dtype, seed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(PIECE - 1,), (PIECE + 1,), (1025, 129)])
def test_nor_at_the_sizes_of_real_pieces(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    is_unchanged(shape, dtype)


@pytest.mark.parametrize("more", [0, 1])
def test_nor_where_outputs_begin_to_be_compared_in_pieces(more: int) -> None:
    want = torch.linspace(1.0, 2.0, DEVICE.whole_elements + more, dtype=torch.float64)
    got = torch.zeros_like(want)
    mismatch, _ = compare.compare(got, Reference(want, None), Limits.of("float64"))
    assert mismatch is not None and not bool(got.any())
    assert bool(want[-1] == 2.0) and bool(want[0] == 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_answer_is_accepted_and_its_zeros_and_double_are_not(dtype: torch.dtype) -> None:
    """0 and 2 x want become want where the difference is written over the output."""
    want = drawn((96, 70), dtype)
    want = want.abs() if dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16) else want
    limits = Limits.of(str(dtype).removeprefix("torch."))
    reference = Reference(want, want.double() if want.is_floating_point() else None)
    right, zeros, twice, *_ = outputs(want)
    assert (
        compare.compare(right, reference, limits)[0] is None
        and fast_accept.beyond_doubt(right, want, limits) is not None
    )
    for wrong in (zeros,) if dtype == torch.bool else (zeros, twice):
        assert fast_accept.beyond_doubt(wrong, want, limits) is None
        assert compare.compare(wrong, reference, limits)[0] is not None
        assert compare.compare(wrong, reference, limits)[0] is not None, "the second look sees what the first saw"


SQUARES = """
import torch
def reference(x):
    return x * x + 1
def inputs():
    return (torch.randn(48, 70, dtype=torch.float64),)
"""
COMPLEX = """
import torch
def reference(x, y):
    return x * y
def inputs():
    return torch.randn(40, 50, dtype=torch.complex128), torch.randn(40, 50, dtype=torch.complex128)
"""
#: tells timed calls by the places of their inputs, which take turns, and by results of before that nothing holds
ZEROS_WHEN_TIMED = """
import torch, weakref
seen, results = [], []
def kernel(x):
    seen.append(x.data_ptr())
    last = seen[-12:]
    timed = len(last) == 12 and last[0] != last[1] and last == last[:2] * 6
    timed = timed and not any(one() is not None for one in results[-8:-2])
    result = torch.zeros_like(x) if timed else x * x + 1
    results.append(weakref.ref(result))
    return result
"""


def test_zeros_in_timed_calls_of_float64_are_refused(judge: Judge) -> None:
    verdict = judge.parts("fast", ZEROS_WHEN_TIMED, load_task(SQUARES))
    assert not verdict.passed and verdict.stage in (Stage.ROBUST, Stage.FAST), verdict.reason
    # calls of many contents follow each other as timed ones do
    signature = "all-zero" if verdict.stage is Stage.FAST else "race"
    assert verdict.evidence is not None and verdict.evidence.signature == signature, verdict.reason


def test_an_honest_kernel_of_complex128_passes(judge: Judge) -> None:
    verdict = judge("def kernel(x, y):\n    return x * y\n", load_task(COMPLEX))
    assert verdict.passed, verdict.reason
