"""The accuracy that the library of lowered Triton kernels states, in Triton's interpreter."""

from __future__ import annotations

import math
import os
import re
from importlib.resources import files

os.environ.setdefault("TRITON_INTERPRET", "1")

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kernellab.lowering.triton.library import MODULES
from kernellab.lowering.triton.library.functions import kl_expm1, kl_gelu_tanh, kl_log1p, kl_tanh
from kernellab.operations.sketch import OPS

BLOCK = 1 << 14


@triton.jit  # type: ignore[untyped-decorator]
def _apply(x: Any, y: Any, function: tl.constexpr, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, function(tl.load(x + at)))


def _values(low: float, high: float) -> torch.Tensor:
    """Evenly spaced ones, some around zero, and every order of magnitude, on both sides."""
    count = BLOCK
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-44, float(np.log10(max(-low, high))), count)
    near = torch.randn(count, generator=generator)
    found = torch.cat([torch.linspace(low, high, 4 * count), near, near * 1e-4, sizes, -sizes])
    return found.clamp(low, high)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("ours", "exact", "low", "high", "ulp"),
    [
        (kl_expm1, torch.expm1, -120.0, 89.0, 2.0),
        (kl_log1p, torch.log1p, -0.999, 1e30, 4.0),
        (kl_tanh, torch.tanh, -30.0, 30.0, 2.0),
    ],
    ids=["expm1", "log1p", "tanh"],
)
def test_a_function_is_as_exact_as_it_says(ours: Any, exact: Any, low: float, high: float, ulp: float) -> None:
    x = _values(low, high)
    y = torch.empty_like(x)
    _apply[(len(x) // BLOCK,)](x, y, ours, BLOCK)
    want = exact(x.double())
    spacing = torch.from_numpy(np.spacing(np.abs(want.float().numpy()))).double()
    off = ((y.double() - want).abs() / spacing)[want.float().isfinite()]
    assert float(off.max()) <= ulp


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gelu_by_tanh_is_exact_where_its_halves_would_cancel() -> None:
    x = _values(-30.0, 30.0)
    y = torch.empty_like(x)
    _apply[(len(x) // BLOCK,)](x, y, kl_gelu_tanh, BLOCK)
    u = 2 * math.sqrt(2 / math.pi) * (x.double() + 0.044715 * x.double() ** 3)
    want = x.double() * torch.sigmoid(u)
    seen = want.abs() > 1e-30  # below, the exponential is denormal
    off = ((y.double() - want).abs() / want.abs())[seen]
    assert float(off.max()) <= 2e-5 and float(off[x[seen] > -2].max()) <= 1e-6
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([0.0, -0.0, inf, -inf, nan, -1e30, 1e30, -60.0]).repeat(BLOCK // 8)
    _apply[(1,)](special, y, kl_gelu_tanh, BLOCK)
    torch.testing.assert_close(y[:8], torch.nn.functional.gelu(special[:8], approximate="tanh"), equal_nan=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_expm1_keeps_what_is_special() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, nan, inf, -inf, 88.72, 88.73, 1e-30, -1e-30]).repeat(BLOCK // 8)
    y = torch.empty_like(x)
    _apply[(1,)](x, y, kl_expm1, BLOCK)
    torch.testing.assert_close(y[:8], torch.expm1(x[:8]), rtol=2e-7, atol=0, equal_nan=True)


#: a function of C++, or a line of a table of such
_DEFINED = r"(?:KL_INLINE|inline)[^\n]*\b{0}\s*\(|KL_\w+\({0},"


@pytest.mark.parametrize(
    ("spelling", "calls", "defined", "texts"),
    [
        ("triton", r"\b(kl_\w+)\(", r"def {}\(", tuple(f"triton/library/{module}.py" for module in MODULES)),
        ("cpp", r"\bkl::(\w+)\(", _DEFINED, ("cpp/headers/kl_math.h", "cpp/headers/kl_special.h")),
        ("cuda_c", r"\bkl::(\w+)\(", _DEFINED, ("cuda_c/kl_cuda.h", "cuda_c/kl_special.h")),
    ],
    ids=["triton", "cpp", "cuda_c"],
)
def test_what_an_operation_is_spelt_with_is_defined(
    spelling: str, calls: str, defined: str, texts: tuple[str, ...]
) -> None:
    """No test compiles every operation for a GPU; a name that is missing would show there first."""
    text = "".join((files("kernellab.lowering") / name).read_text() for name in texts)
    used = {n for op in OPS.values() for n in re.findall(calls, op.spell.get(spelling, ""))}
    assert len(used) > 20
    assert not [n for n in sorted(used) if not re.search(defined.format(n), text)]


def test_cuda_c_is_spelt_without_the_standard_library_which_nvrtc_has_not() -> None:
    assert [op.name for op in OPS.values() if "std::" in op.spell.get("cuda_c", "")] == []
