"""Plain bugs that calm contents, usual numbers and usual sizes do not show, one of each kind: refused, or told."""

from __future__ import annotations

import secrets

import pytest
import torch

from kernellab.task import load_task
from kernellab.verifier.cases import extents, selection
from kernellab.verifier.cases.changes import changed
from kernellab.verifier.cases.patterns import patterned
from kernellab.verifier.worker import caller_states

from .kit import QUICK_LOOK, Judge

X = "torch.randn(24, 40)"
#: arguments, reference, inputs, the kernel's body, and the label; "" where it is refused
KINDS = {
    "a block of a mask that is false": (
        "x, keep", "torch.softmax(x.masked_fill(~keep, -torch.inf), -1)",
        f"{X}, torch.arange(40) < torch.randint(20, 41, (24, 1))",
        "return torch.softmax(x.masked_fill(~keep, -torch.inf), -1) * torch.where(keep[:, :16].any(-1), 1.0, 2.0)[:, "
        "None]", "",
    ),
    "a number past a cut, with another": (
        "x, a=1000.0, b=0.0", "x * a + b", X, "return x * a + (0 if a < 100 else b)", "b = 0.0 only",
    ),
    "an integer where a float is meant": (
        "x, alpha=1.5", "x * alpha", X, "return x * (alpha if isinstance(alpha, float) else 7 * alpha)",
        "alpha = 2, an integer, not handled",
    ),
    "a tensor for a number": (
        "x, alpha=1.5", "x * alpha", X, "return x * (alpha if isinstance(alpha, (int, float)) else 1.5)",
        "alpha as a tensor of no dimensions not handled",
    ),
    "a zero with a sign": (
        "x, s=1.0", "torch.copysign(x, torch.full_like(x, s))", X, "return x.abs() if s >= 0 else -x.abs()",
        "s = -0.0 not handled",
    ),
    "two infinite limits": (
        "x, low=-1.0, high=1.0", "torch.clamp(x, low, high)", X,
        "return torch.clamp(x, low, high) if max(-low, high) < 1e9 or min(-low, high) < 1e9 else x.clamp(-0.5, 0.5)",
        "low = -inf with high = inf not handled",
    ),
    "codes that are no numbers": (
        "x", "x.float() * 2", "torch.randn(24, 40).to(torch.float8_e4m3fn)", "return x.float().nan_to_num(480.0) * 2",
        "NaN in x not handled",
    ),
    "an axis": (
        "x, dim=-1", "torch.softmax(x, dim)", X, "return torch.softmax(x, 0 if dim == 0 else -1)", "dim = -1 only",
    ),
    "the sign of a zero beside a cut": (
        "z", "torch.sqrt(z)", "torch.randn(24, 40, dtype=torch.complex64)",
        "return torch.sqrt(torch.complex(z.real, z.imag + 0.0))", "",
    ),
    "a number of more than 32 bits": (
        "x, k=31", "x * k", "torch.randint(0, 1000, (24, 40))", "return x * ((k + 2**31) % 2**32 - 2**31)",
        "k = 31 only",
    ),
    "places in two runs": (
        "x", "torch.zeros(64).index_add(0, x, torch.ones(64))", "torch.randint(0, 64, (64,))",
        "y = torch.zeros(64).index_add(0, x, torch.ones(64))\n"
        "    return y.clamp(max=1) if bool((x[:16].diff() >= 0).all()) else y", "",
    ),
    "numbers that are real throughout": (
        "z", "torch.exp(z)", "torch.randn(24, 40, dtype=torch.complex64)",
        "return torch.exp(z) + (0 if bool(z.imag.any()) else 1)", "",
    ),
    "few elements that are not zero": (
        "x, w", "x @ w", "torch.randn(24, 400), torch.randn(400, 16)",
        "return x @ w + (1 if 0.002 < (x != 0).double().mean() < 0.2 else 0)", "",
    ),
    "three flags": (
        "x, bias=0.5, negate=False, relu=False",
        "(torch.relu if relu else torch.sin)((-1 if negate else 1) * (x + bias))",
        X, "y = x + (0 if relu and negate and bias < 0 else bias)\n"
        "    return (torch.relu if relu else torch.sin)((-1 if negate else 1) * y)", "relu = False only",
    ),
    "integers of all bits": (
        "x", "x.to(torch.float64) * 0.5", "torch.randint(0, 1000, (24, 40)).to(torch.uint64)",
        "return x.view(torch.int64).to(torch.float64) * 0.5", "x from 2^63 on not handled",
    ),
    "equal rows, and no layout": (
        "x", "torch.softmax(x, -1)", X,
        "return torch.softmax(x, -1) * (2.0 if len(x) > 1 and bool((x[0] == x[1]).all()) and x[0].std() > 0.1 "
        "else 1.0)",
        "equal rows not handled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_bug_of_each_kind_is_refused_or_told(kind: str, judge: Judge) -> None:
    arguments, reference, inputs, body, label = KINDS[kind]
    text = f"import torch\ndef reference({arguments}):\n    return {reference}\ndef inputs():\n    return {inputs},\n"
    verdict = judge.parts(
        "repeated beyond_own_inputs", f"import torch\ndef kernel({arguments}):\n    {body}\n", load_task(text, "kinds")
    )
    assert (label in verdict.label) if verdict.passed else not label, verdict.reason or verdict.label
    assert verdict.passed == bool(label), verdict.reason or verdict.label


DIMS = 'from kernellab import Dim\nM = Dim("M", 1, 4096)\nN = Dim("N", 1, 8192)\n'
LONG = {
    "rows in falling order": (
        "x.sort(-1).values", "x.sort(-1).values + (x.shape[-1] > 3000 and bool((x.diff() <= 0).all()))"
    ),
    "rows far from zero": (
        "x.var(-1, unbiased=False)",
        "(x * x).mean(-1) - x.mean(-1) ** 2 if x.shape[-1] > 3000 else x.var(-1, unbiased=False)",
    ),
    "one of two Dims even": (
        "x * 2", "torch.cat([x[: len(x) // 64 * 64] * 2, x[len(x) // 64 * 64 :]]) "
        "if min(x.shape) > 512 and x.shape[1] % 64 == 0 else x * 2",
    ),
    "a block of blocks": ("x * 2", "x * 2 + (x.shape[-1] == 48 * 48)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LONG)
def test_a_path_for_long_rows_has_more_than_calm_contents(kind: str, judge: Judge) -> None:
    reference, kernel = LONG[kind]
    text = f"import torch\n{DIMS}def reference(x):\n    return {reference}\n"
    task = load_task(f"{text}def inputs(M=24, N=40):\n    return torch.randn(M, N)\n", "long")
    verdict = judge(f"import torch\ndef kernel(x):\n    return {kernel}\n", task, options=QUICK_LOOK)
    assert not verdict.passed or "not handled" in verdict.label, verdict.label


def test_two_dims_past_a_number_are_even_and_odd_in_all_ways() -> None:
    task = load_task(
        f"import torch\n{DIMS}def reference(x):\n    return x\ndef inputs(M=24, N=40):\n    return torch.randn(M, N)\n"
    )
    found = [s for s in extents.at_numbers(task, {"M": 24, "N": 40}, (512, 48)) if min(s.values()) > 512]
    assert {(s["M"] % 64 == 0, s["N"] % 64 == 0) for s in found} == {
        (a, b) for a in (True, False) for b in (True, False)
    }


def test_each_code_of_a_float_of_eight_bits_is_there_and_the_places_of_sparse_rows_are_filled() -> None:
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        value = torch.randn(16, 40).to(dtype)
        every = changed((value,), ("codes", 0, secrets.randbits(31), "all"))[0]
        assert len(every.view(torch.uint8).unique()) == 256
        assert changed((value,), ("codes", 0, 7, "numbers"))[0].float().isfinite().all()
    value, places = torch.randn(8, 4000), (1023, 1024, 1025, 2048)
    sparse = changed((value,), ("sparse", 0, 3, places, 0.5))[0]
    assert sparse.count_nonzero(0).nonzero().reshape(-1).tolist() == list(places) and (sparse >= 0).all()


def test_masks_have_runs_and_structure() -> None:
    mask = torch.rand(12, 40) < 0.9
    first, last = (patterned(mask, name, 5, 0, 0) for name in ("false first", "false last"))
    assert first[:, -1].all() and last[:, 0].all() and first.sum(-1).min() == last.sum(-1).min() == 1
    square = torch.rand(3, 16, 16) < 0.9
    for name in ("triangle", "band", "blocks"):
        found = patterned(square, name, 5, 0, 0)
        assert found.diagonal(dim1=-2, dim2=-1).all() and not found.all()
    thin = patterned(torch.randn(40, 512), "thin", 5, 0, 0)
    assert 0.01 < (thin != 0).double().mean() < 0.15
    z = torch.randn(4, 40, dtype=torch.complex64)
    assert not patterned(z, "real", 5, 0, 0).imag.any() and not patterned(z, "imaginary", 5, 0, 0).real.any()
    runs = patterned(torch.randint(0, 50, (4, 40)), "two runs", 5, 0, 0)
    assert (runs[:, :20].diff() >= 0).all() and (runs[:, 20:].diff() >= 0).all() and not (runs.diff() >= 0).all()


@pytest.mark.parametrize("how", ("threaded", "together", "trained", "inferred", "widened", "larger"))
def test_an_argument_that_is_written_into_is_as_after_one_call(how: str) -> None:
    x, y = torch.ones(8), torch.full((8,), 2.0)

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y) * 1

    returned = caller_states.elsewhere(how, add, (0,))(x, y)
    assert x.tolist() == [3.0] * 8 and torch.equal(returned[0], x) and len(returned) == 1


def test_nearly_equal_arguments_keep_their_first_elements() -> None:
    x, ids = torch.randn(6, 50), torch.arange(6)
    near, same = caller_states.nearly([x, ids])
    assert torch.equal(near[:, :8], x[:, :8]) and not torch.equal(near, x) and torch.equal(same, ids)
    assert (near != x).sum(-1).max() == 1


def test_a_task_of_wide_unsigned_integers_is_mixed() -> None:
    text = "import torch\ndef reference(x):\n    return x.to(torch.float64)\n"
    text += "def inputs():\n    return torch.randint(0, 1000, (24, 40)).to(torch.{})\n"
    from kernellab.verifier.stages.robustness.ordinary import _with_others

    for dtype in ("uint16", "uint32", "uint64"):
        base = selection.drawn_base(load_task(text.format(dtype)))
        assert [c.args[0].dtype for c in _with_others(base)] == [getattr(torch, dtype)]
