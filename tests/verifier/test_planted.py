"""The judge tests its own comparison in each verification, by answers that are wrong for certain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import VerifierError
from kernellab.task import Task, load_task
from kernellab.verifier.cases import judged
from kernellab.verifier.cases.judged import Comparison, case_of
from kernellab.verifier.compare import compare, fast_accept
from kernellab.verifier.compare.compare import Limits
from kernellab.verifier.compare.planted import PLANTED, planted
from kernellab.verifier.protocol.rules import ERROR

from .kit import TARGET

FLOATS = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")
WHOLE = ("int64", "int32", "int8", "uint8", "uint16", "uint32", "uint64")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def task_of(reference: str, drawn: str) -> Task:
    return load_task(f"import torch\ndef reference(x):\n    return {reference}\ndef inputs():\n    return ({drawn},)\n")


def judged_by_itself(task: Task) -> Comparison:
    """A comparison that has judged the reference's own answer."""
    args = task.module().sample()
    native = task.module().results(args)
    comparison = Comparison(task)
    assert comparison.first_wrong(case_of(task, args, native), [n.clone() for n in native]) is None
    return comparison


DRAWS = {
    **{d: ("x * 1", f"torch.randn(96, 70, dtype=torch.{d})") for d in FLOATS},
    "float8": ("x.to(torch.float8_e4m3fn)", "torch.randn(96, 70)"),
    "float8 to its ends": (
        "(x * 448 / x.abs().amax(-1, keepdim=True)).to(torch.float8_e4m3fn)", "torch.randn(96, 70)"
    ),
    **{d: (f"(x + 0).to(torch.{d})", "torch.randint(0, 100, (96, 70))") for d in WHOLE},
    "pieces": ("x * 1", "torch.randn(400, 400)"),
    "infinite": ("torch.where(x > 0, x, float('-inf'))", "torch.randn(96, 70)"),
    "partly NaN": ("torch.log(x)", "torch.randn(96, 70)"),
    "denormal": ("x * 1e-40", "torch.randn(96, 70)"),
    "tiny float64": ("x * 1e-200", "torch.randn(96, 70, dtype=torch.float64)"),
    "huge": ("x * 1e38", "torch.randn(96, 70)"),
    "transposed": ("x.t()", "torch.randn(96, 70)"),
    "expanded": ("x[:1].expand(96, 70)", "torch.randn(96, 70)"),
    "conjugated": ("x.conj()", "torch.randn(96, 70, dtype=torch.complex64)"),
    "one number": ("x.sum()", "torch.randn(96, 70)"),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_a_sound_comparison_passes_its_test_whatever_it_compares(name: str) -> None:
    tests = judged_by_itself(task_of(*DRAWS[name])).tests
    assert tests.done + tests.skipped == 1 + PLANTED and tests.done >= 5


#: what has no wrong answer of a kind leaves that kind out, and says so
WITHOUT = {
    "zeros": ("x * 0", "torch.randn(96, 70)", 3),
    "constant": ("x * 0 + 3", "torch.randn(96, 70)", 1),
    "empty": ("x[:0] * 1", "torch.randn(96, 70)", 0),
    "one bool": ("(x > 0).any()", "torch.randn(96, 70)", 3),
    "all NaN": ("x * float('nan')", "torch.randn(96, 70)", 4),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_wrong_answer_that_would_be_right_is_left_out_and_counted(name: str) -> None:
    *texts, skipped = WITHOUT[name]
    assert judged_by_itself(task_of(*texts)).tests.skipped == skipped


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(1,), (2,), (63, 65), (3, 64, 64), ()]), st.sampled_from(FLOATS + WHOLE + ("bool",)),
    st.integers(0, 1 << 20),
)  # fmt: skip
def test_what_is_planted_is_wrong_by_plain_arithmetic_and_is_put_back(
    shape: tuple[int, ...], dtype: str, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, dtype=torch.complex128 if "complex" in dtype else torch.float64, generator=draw)
    want = (values if dtype in FLOATS else values.abs() * 30).to(getattr(torch, dtype))
    limits, scratch = Limits.of(dtype), want.clone()
    names = []
    for wrongly in planted(want, limits, scratch):
        names.append(wrongly.name)
        if wrongly.got is None:
            continue
        assert wrongly.got.shape == want.shape and wrongly.got.dtype == want.dtype
        wide = torch.complex128 if "complex" in dtype else torch.float64
        off = (wrongly.got.to(wide) - want.to(wide)).abs()
        if dtype not in FLOATS:
            assert bool((off > 0).any())
            continue
        size = want.to(wide).abs()
        rms = float(size.square().mean().sqrt())
        far = bool((~(off <= ERROR.element_factor * limits.floor * (size + rms) / 2)).any())
        assert far or float(off.square().sum().sqrt()) > limits.floor * float(size.square().sum().sqrt())
    assert len(names) == PLANTED and torch.equal(scratch.view(-1).view(torch.uint8), want.view(-1).view(torch.uint8))


def _over_the_output(every: bool) -> Callable[..., float | None]:
    """The comparison as it was: the difference is written over a float64 output, or over ``every`` one."""

    def accepts(got: torch.Tensor, reference: torch.Tensor, limits: Limits) -> float | None:
        norm = float(torch.linalg.vector_norm(reference, dtype=torch.float64))
        if not 0.0 < norm < float("inf"):
            return None
        rms = norm / reference.numel() ** 0.5
        want = reference.double()
        error = (got.sub_(reference) if every else got.double().sub_(want)).abs_()
        if not bool((error <= (want.abs() + rms) * 100 * limits.floor).all()):
            return None
        return float(error.double().square().sum()) ** 0.5 / norm

    return accepts


def _patched(patch: pytest.MonkeyPatch, accepts: Callable[..., float | None]) -> None:
    patch.setattr(compare, "accepts", accepts)
    patch.setattr(fast_accept, "accepts", accepts)
    # what is near in every element is done before
    patch.setattr(fast_accept, "near", lambda *_: None)


@pytest.mark.parametrize("formula", ["x * x + 1", "x * 1", "x.abs().neg()"])
@pytest.mark.parametrize(("dtype", "every"), [("float64", False), ("complex128", False), *((d, True) for d in FLOATS)])
def test_a_comparison_that_writes_over_the_output_is_a_fault_of_the_judge(
    monkeypatch: pytest.MonkeyPatch, dtype: str, every: bool, formula: str
) -> None:
    task = task_of(formula, f"torch.randn(48, 70, dtype=torch.{dtype})")
    _patched(monkeypatch, _over_the_output(every))
    with pytest.raises(VerifierError, match="own test"):
        judged_by_itself(task)


#: comparisons that are wrong otherwise, and what finds them
FAULTY: dict[str, Callable[..., Any]] = {
    "all is right": lambda got, native, limits: 0.0,
    "NaN is right": lambda got, native, limits: 0.0 if bool((got != got).any()) else None,
    "the last rows are not looked at": lambda got, native, limits: 0.0 if torch.equal(got[:-1], native[:-1]) else None,
    "order does not count": lambda got, native, limits: (
        0.0 if torch.equal(got.reshape(-1).sort().values, native.reshape(-1).sort().values) else None
    ),
    "only signs count": lambda got, native, limits: 0.0 if torch.equal(got.sign(), native.sign()) else None,
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("size", ["48, 70", "400, 400"])
def test_a_comparison_that_accepts_too_much_is_a_fault_of_the_judge(
    monkeypatch: pytest.MonkeyPatch, name: str, size: str
) -> None:
    monkeypatch.setattr(judged, "beyond_doubt", FAULTY[name])
    with pytest.raises(VerifierError, match="own test"):
        judged_by_itself(task_of("x * 1", f"torch.randn({size})"))


def test_a_comparison_that_refuses_the_answer_is_a_fault_of_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = compare.Mismatch("elements", "no")
    monkeypatch.setattr(judged, "beyond_doubt", lambda *_: None)
    monkeypatch.setattr(judged, "compare", lambda *_: (refuse, 1.0))
    with pytest.raises(VerifierError, match="the reference's own answer was refused"):
        judged_by_itself(task_of("x * 1", "torch.randn(48, 70)"))


@pytest.mark.parametrize("kernel", ["x * x + 1", "torch.zeros_like(x)"])
def test_each_verification_by_a_faulty_comparison_ends_without_a_verdict(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """In this process, where the fault can be put back: whether the kernel is right or wrong."""
    from kernellab.records import Source
    from kernellab.verifier.judge.pool import Pool
    from kernellab.verifier.stages.context import Request
    from kernellab.verifier.stages.pipeline import Verification

    from .kit import QUICK

    _patched(monkeypatch, _over_the_output(every=False))
    text = "import torch\ndef reference(x):\n    return x * x + 1\ndef inputs():\n"
    text += "    return (torch.randn(48, 70, dtype=torch.float64),)\n"
    source = Source(dsl="cpp", files={"kernel.py": f"import torch\ndef kernel(x):\n    return {kernel}\n"})
    pool = Pool()
    try:
        request = Request(text, "squares", source, TARGET.backend, "test", QUICK)
        with pytest.raises(VerifierError, match="own test"):
            Verification(request, pool, lambda _: None).run()
    finally:
        pool.close()
