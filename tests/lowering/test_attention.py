"""Designed attention, lowered: C++ and Triton compute what PyTorch computes, at odd shapes and behind masks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from tests.designer.attention_cases import ATTENTION, DECODE, attention_task

from .test_cpp import load
from .test_triton import call

CPP = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
TRITON = Target("triton", Backend.INTERPRETER, Chip("a GPU", "gpu", 132))
#: so fast a memory that storing the parts of f32 always pays
PARTS = Chip("a GPU", "gpu", 132, bandwidth=1e18, peak_flops={"f32": 1e12, "bf16": 1e14})

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


def lowered(text: str, target: Target, sign: str = "online") -> tuple[Task, Source]:
    """The first design that has ``sign`` in its text, lowered."""
    task = load_task(text, "attention")
    sketch = next(r.sketch for r in RulesDesigner().designs(DesignBrief(task, target)) if sign in r.sketch)
    program = load_program(sketch)
    return task, lower(program, bind(program, task, {}, target), target)


def close(got: torch.Tensor, task: Task, args: tuple[object, ...]) -> None:
    want = task.module().reference(args)[0]
    narrow = want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2 if narrow else 1e-4, atol=2e-2 if narrow else 1e-5, equal_nan=True)


@pytest.mark.parametrize(
    "name",
    [
        "sdpa_dims", "sdpa_causal_fewer_keys", "sdpa_mask_with_hidden_rows", "sdpa_shared_heads", "sdpa_wide_heads",
        "sdpa_bf16", "sdpa_f64", "by_hand_window", "by_hand_buffer_mask", "heads_from_one_projection",
    ],
)  # fmt: skip
def test_cpp_computes_attention(name: str, tmp_path: Path) -> None:
    task, source = lowered(ATTENTION[name], CPP)
    args = task.module().sample(seed=3)
    close(load(source, tmp_path).kernel(*args), task, args)


def test_cpp_takes_fixed_rows_and_keys_in_equal_pieces(tmp_path: Path) -> None:
    text = attention_task("q, k, v", "F.scaled_dot_product_attention(q, k, v)", _shapes((2, 70, 37, 11)))
    task, source = lowered(text, CPP)
    kernel = source.files["kernel.cpp"]
    assert "BM = 48" in kernel and "BN = 37" in kernel
    assert "inside" not in "".join(line for line in kernel.splitlines() if "scores" in line)
    args = task.module().sample(seed=3)
    close(load(source, tmp_path).kernel(*args), task, args)


def _shapes(sizes: tuple[int, int, int, int]) -> str:
    heads, rows, keys, width = sizes
    return ", ".join(f"torch.randn({heads}, {n}, {width})" for n in (rows, keys, keys))


@pytest.mark.parametrize(
    "name",
    [
        "sdpa_dims", "sdpa_causal", "sdpa_mask_with_hidden_rows", "sdpa_shared_heads", "sdpa_wide_heads", "sdpa_bf16",
        "by_hand_masked_fill", "self_attention",
    ],
)  # fmt: skip
def test_triton_computes_attention(name: str, tmp_path: Path) -> None:
    task, source = lowered(ATTENTION[name], TRITON)
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    close(got, task, args)


@pytest.mark.parametrize("name", ["sdpa", "sdpa_causal"])
def test_triton_computes_attention_of_stored_parts(name: str, tmp_path: Path) -> None:
    task, source = lowered(ATTENTION[name], Target("triton", Backend.INTERPRETER, PARTS))
    assert "k_mid" in source.files["kernel.py"]
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    close(got, task, args)


def test_attention_with_stored_scores_multiplies_narrow_factors_as_they_are(tmp_path: Path) -> None:
    task, source = lowered(ATTENTION["sdpa_bf16"], TRITON, sign="finish")
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    close(got, task, args)


def test_rows_that_see_nothing(tmp_path: Path) -> None:
    """A mask that hides all keys gives zeros in scaled_dot_product_attention, and NaN where it is written by hand."""
    given = (
        "torch.randn(9, 8), torch.randn(40, 8), torch.randn(40, 8), (torch.arange(9)[:, None] + torch.arange(40)) > 30"
    )
    by_hand = "s = (q @ k.T).masked_fill(~m, float('-inf')); torch.softmax(s, -1) @ v"
    for body, empty in (("F.scaled_dot_product_attention(q, k, v, attn_mask=m)", 0.0), (by_hand, float("nan"))):
        task, source = lowered(attention_task("q, k, v, m", body, given), CPP)
        q, k, v, m = task.module().sample(seed=3)
        m = torch.arange(40)[None] >= 16 * torch.arange(9)[:, None]
        got = load(source, tmp_path).kernel(q, k, v, m)
        close(got, task, (q, k, v, m))
        assert torch.equal(got[3:].isnan(), torch.full((6, 8), empty != empty))


@pytest.mark.parametrize("seed", range(4))
def test_cpp_at_random_shapes(seed: int, tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(seed)
    heads, rows, keys, width, columns = (
        int(torch.randint(2, most, (), generator=draw)) for most in (4, 90, 300, 70, 90)
    )
    causal = seed % 2 == 1
    shapes = f"torch.randn({heads}, {rows}, {width}), torch.randn({heads}, {keys}, {width})"
    text = attention_task(
        "q, k, v",
        f"F.scaled_dot_product_attention(q * 3, k, v, is_causal={causal})",
        f"{shapes}, torch.randn({heads}, {keys}, {columns})",
    )
    task, source = lowered(text, CPP)
    args = task.module().sample(seed=seed)
    close(load(source, tmp_path).kernel(*args), task, args)


@pytest.mark.parametrize("name", ["grouped_heads", "own_keys", "lengths", "any_length", "narrow", "pages"])
def test_triton_joins_the_pieces_of_the_keys(name: str, tmp_path: Path) -> None:
    """Three pieces, the last of which is short: no power of two."""
    task, source = lowered(DECODE[name], TRITON, "log_sum")
    args = task.module().sample(seed=3)
    close(call(source, tmp_path, *args)[0], task, args)
