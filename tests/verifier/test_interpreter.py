"""In Triton's interpreter an access outside of a launch's tensors is named, and an autotuned kernel runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernellab.dsls.interpreter import correct_interpreter
from kernellab.records import Author, Source, Trust, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.worker.guards import Trespass
from kernellab.verifier.worker.interpreter import Bounds, Limit, Race, _tf32, _undefined

from .kit import Judge

pytest.importorskip("triton")
TASK = load_task(
    "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 100000)\n"
    "def reference(x, w):\n    return x * w + 1\n"
    "def inputs(N=1000):\n    return torch.randn(N), torch.randn(N)\n", "scaled",
)  # fmt: skip
TARGET = Target("triton", Backend.INTERPRETER, Chip("test", "cpu", 2))
KERNEL = """
import torch, triton
import triton.language as tl

{decorator}
@triton.jit
def scale(x, w, y, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, {load} * tl.load(w + at, at < N) + 1, at < N)

def kernel(x, w):
    y = torch.empty_like(x)
    {launch}
    return y
"""
PLAIN = "scale[(triton.cdiv(len(x), 256),)](x, w, y, len(x), BLOCK=256)"
TUNED = "scale[lambda meta: (triton.cdiv(len(x), meta['BLOCK']),)](x, w, y, len(x))"
CONFIGS = "@triton.autotune([triton.Config({'BLOCK': 128}), triton.Config({'BLOCK': 512})], key=['N'])"


def verified(verifier: Verifier, load: str, launch: str = PLAIN, decorator: str = "") -> Verdict:
    code = KERNEL.format(load=load, launch=launch, decorator=decorator)
    source = Source(dsl="triton", files={"kernel.py": code}, origin=Author.HUMAN)
    return verifier.verify(TASK, source, TARGET, options=VerifyOptions(allow_library=True, deadline=300))


def test_a_read_past_an_input_is_named(verifier: Verifier) -> None:
    verdict = verified(verifier, "tl.load(x + at)")
    assert not verdict.passed and "beyond the end of x (element " in verdict.reason, verdict.reason
    assert verdict.evidence is not None and verdict.evidence.signature in ("out-of-bounds", "edge-tile")


def test_a_masked_kernel_passes_and_an_autotuned_one_runs_one_configuration_and_says_so(verifier: Verifier) -> None:
    plain = verified(verifier, "tl.load(x + at, at < N)")
    assert plain.passed and not plain.marked("one-configuration"), plain.reason
    tuned = verified(verifier, "tl.load(x + at, at < N)", TUNED, CONFIGS)
    assert tuned.passed and tuned.marked("one-configuration"), tuned.reason
    assert any(flag.startswith("autotuned: one configuration") for flag in tuned.flags)


def test_a_grid_that_no_gpu_launches_is_refused_at_the_end_of_its_dim(judge: Judge) -> None:
    launch = "scale[(1, triton.cdiv(len(x), 256))](x, w, y, len(x), BLOCK=256)"
    along_y = PLAIN.replace("BLOCK=256", "BLOCK=1").replace("(triton.cdiv(len(x), 256),)", "(1, len(x))")
    for text, passes in ((launch, True), (along_y, False)):
        code = KERNEL.format(load="tl.load(x + at, at < N)", launch=text, decorator="").replace("id(0)", "id(1)")
        source = Source(dsl="triton", files={"kernel.py": code}, origin=Author.HUMAN)
        verdict = judge.parts("launches", source, TASK, target=TARGET)
        assert verdict.passed is passes, verdict.reason
        assert passes or (verdict.evidence is not None and verdict.evidence.signature == "launch-limit")
    Bounds().grid((1 << 31) - 1, 65535, 65535)
    with pytest.raises(Limit, match="65536 programs along axis z"):
        Bounds().grid(1, 1, 65536)


def test_products_in_tf32_lose_the_bits_that_a_tensor_core_does_not_read() -> None:
    values = np.array([1 + 2.0**-10, 1 + 2.0**-11, -3.0, np.inf, np.nan], np.float32)
    assert np.array_equal(_tf32(values), np.array([1 + 2.0**-10, 1, -3, np.inf, np.nan], np.float32), equal_nan=True)
    assert _tf32(values.astype(np.float64)).dtype == np.float64


def test_accesses_are_looked_at_where_the_mask_lets_them_through() -> None:
    x, strided = torch.zeros(8), torch.zeros(4, 8)[:, :3]
    bounds = Bounds()
    bounds.begin({"x": x, "n": 8, "tables": (strided,)})
    places = np.array([x.data_ptr() + 4 * i for i in range(10)], dtype=np.uint64)
    bounds.check("reads", places, np.arange(10) < 8, 4)
    with pytest.raises(Trespass, match=r"reads beyond the end of x \(element 8 of 8\)"):
        bounds.check("reads", places, np.arange(10) < 9, 4)
    with pytest.raises(Trespass, match="writes before the beginning of x"):
        bounds.check("writes", places[:1] - np.uint64(4), None, 4)
    ends = np.array([strided.data_ptr() + 4 * (3 * 8 + 2)], dtype=np.uint64)
    bounds.check("reads", ends, None, 4)
    with pytest.raises(Trespass, match="tables"):
        bounds.check("reads", ends + np.uint64(4), None, 4)
    bounds.free = True
    bounds.check("reads", ends + np.uint64(400), None, 4)


SCAN = """
import torch, triton
import triton.language as tl

@triton.jit
def scan(x, y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0) * N
    carry = 0.0
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, at < N, 0.0)
        tl.store(y + row + at, carry + tl.cumsum(part, axis=0), at < N)
        carry {carry} tl.sum(part, axis=0)

def kernel(x):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    scan[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=256)
    return y
"""


@pytest.mark.parametrize(("carry", "right"), [("+=", True), ("=", False)])
def test_what_goes_from_tile_to_tile_is_looked_at_beyond_two_tiles(verifier: Verifier, carry: str, right: bool) -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 4096)\n"
        "def reference(x):\n    return x.cumsum(-1)\ndef inputs(M=16, N=100):\n    return torch.randn(M, N)\n", "sums",
    )  # fmt: skip
    source = Source(dsl="triton", files={"kernel.py": SCAN.replace("{carry}", carry)}, origin=Author.HUMAN)
    target = Target("triton", Backend.INTERPRETER, Chip("test", "cpu", 2))
    verdict = verifier.verify(task, source, target, options=VerifyOptions(level=Trust.T1, deadline=300))
    assert verdict.passed is right, verdict.reason


@pytest.mark.parametrize(
    ("rows", "cast", "told"), [(1 << 22, "", True), (1 << 22, ".to(tl.int64)", False), (99, "", False)]
)
def test_offsets_of_32_bits_are_told_where_a_tensor_may_have_more_elements(
    verifier: Verifier, rows: int, cast: str, told: bool
) -> None:
    task = load_task(
        f"import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, {rows}), Dim('N', 1, 2048)\n"
        "def reference(x, w):\n    return x * w + 1\ndef inputs(M=3, N=70):\n"
        "    return torch.randn(M, N), torch.randn(N)\n",
        "rows",
    )
    code = f"""import torch, triton, triton.language as tl

@triton.jit
def scale(x, w, y, N, BLOCK: tl.constexpr):
    m, at = tl.program_id(0){cast}, tl.arange(0, BLOCK)
    tl.store(y + m * N + at, tl.load(x + m * N + at, at < N) * tl.load(w + at, at < N) + 1, at < N)

def kernel(x, w):
    x, y = x.contiguous(), torch.empty(x.shape)
    scale[(len(x),)](x, w.contiguous(), y, x.shape[1], BLOCK=2048)
    return y
"""
    target = Target("triton", Backend.INTERPRETER, Chip("test", "cpu", 2))
    source = Source(dsl="triton", files={"kernel.py": code}, origin=Author.HUMAN)
    verdict = verifier.verify(task, source, target, options=VerifyOptions(level=Trust.T0))
    assert any(flag.startswith("narrow-offsets: offsets of 32 bits, and x has up to") for flag in verdict.flags) is told


def test_programs_that_meet_are_named_as_a_race() -> None:
    y = torch.zeros(8)
    places = np.array([y.data_ptr() + 4 * i for i in range(8)], dtype=np.uint64)
    bounds = Bounds()

    def started() -> None:
        bounds.begin({"y": y})
        bounds.next_program()

    def store(at: np.ndarray, changed: bool = True) -> None:
        bounds.check("writes", at, None, 4, lambda: np.full(len(at), changed))

    started()
    store(places[:4])
    bounds.check("reads", places[:4], None, 4)
    bounds.next_program()
    with pytest.raises(Race, match=r"reads y \(element 3\) where another program of the launch stores"):
        bounds.check("reads", places[3:], None, 4)
    store(places[:4], changed=False)
    with pytest.raises(Race, match=r"writes y \(element 0\) where another program"):
        started()
        store(places[:1])
        bounds.next_program()
        store(places[:2])
    started()
    bounds.check("reads", places, None, 4)
    bounds.next_program()
    with pytest.raises(Race, match="writes y"):
        store(places[2:3])
    started()
    store(places)
    bounds.next_program()
    bounds.ordered = True
    bounds.check("reads", places, None, 4)
    started()
    bounds.check("reads", places, None, 4)


def test_a_thread_that_reads_what_another_has_stored_needs_a_barrier() -> None:
    y = torch.zeros(8)
    places = np.array([y.data_ptr() + 4 * i for i in range(8)], dtype=np.uint64)
    bounds = Bounds()
    bounds.begin({"y": y})
    bounds.next_program()
    bounds.check("writes", places, None, 4, lambda: np.ones(8, bool))
    bounds.check("reads", places, None, 4)
    bounds.barriers += 1
    bounds.check("reads", places[::-1], None, 4)
    bounds.check("writes", places, None, 4, lambda: np.ones(8, bool))
    with pytest.raises(Race, match="another thread of its program has stored"):
        bounds.check("reads", places[::-1], None, 4)


RACES = """
import torch, triton
import triton.language as tl

@triton.jit
def total(x, y, N, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0)
    part = tl.sum({load})
    {add}

def kernel(x):
    x, y = x.contiguous(), torch.zeros(x.shape[0])
    total[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, y, x.shape[1], BLOCK=64)
    return y
"""
LOAD = "tl.load(x + row * N + at, at < N, 0.0)"
ROW_SUMS = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 4096)\n"
    "def reference(x):\n    return x.sum(-1)\ndef inputs(M=4, N=100):\n    return torch.randn(M, N)\n", "row_sums",
)  # fmt: skip


@pytest.mark.parametrize(
    ("add", "right"),
    [("tl.store(y + row, tl.load(y + row) + part)", False), ("tl.atomic_add(y + row, part)", True)],
)
def test_updates_that_a_gpu_would_lose_are_refused(verifier: Verifier, add: str, right: bool) -> None:
    source = Source(
        dsl="triton", files={"kernel.py": RACES.replace("{add}", add).replace("{load}", LOAD)}, origin=Author.HUMAN
    )
    target = Target("triton", Backend.INTERPRETER, Chip("test", "cpu", 2))
    verdict = verifier.verify(ROW_SUMS, source, target, options=VerifyOptions(level=Trust.T1, deadline=300))
    assert verdict.passed is right, verdict.reason
    if not right:
        assert verdict.evidence is not None and verdict.evidence.signature in ("race", "edge-tile"), verdict.reason
        assert "race" in verdict.reason


def test_what_a_masked_load_leaves_undefined_is_no_zero(verifier: Verifier) -> None:
    code = RACES.replace("{add}", "tl.atomic_add(y + row, part)").replace("{load}", LOAD.replace(", 0.0)", ")"))
    source = Source(dsl="triton", files={"kernel.py": code}, origin=Author.HUMAN)
    verdict = verifier.verify(ROW_SUMS, source, TARGET, options=VerifyOptions(level=Trust.T1, deadline=300))
    assert not verdict.passed


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16", "float8_e5m2", "int32", "uint8", "int1"))
def test_undefined_values_are_nan_or_a_number_that_is_not_small(dtype: str) -> None:
    from triton import language as tl
    from triton.runtime import interpreter

    kind = tl.dtype(
        {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e5m2": "fp8e5"}.get(dtype, dtype)
    )
    pointers = interpreter.TensorHandle(np.zeros(4, np.uint64), tl.pointer_type(kind))
    values = _undefined(interpreter, pointers).data
    assert values.shape == (4,)
    if kind.is_floating():
        bits = torch.from_numpy(values.view(np.uint8).copy()).view(getattr(torch, dtype))
        assert bool(bits.float().isnan().all())
    else:
        assert bool((np.abs(values.astype(np.int64)) >= (1 if dtype == "int1" else 64)).all())


def test_bfloat16_is_computed_by_value() -> None:
    """Triton's interpreter holds it as 16 bits of an integer."""
    from triton.runtime import interpreter

    correct_interpreter()
    tl, builder = interpreter.tl, interpreter.interpreter_builder
    a, b = (torch.tensor(values, dtype=torch.bfloat16) for values in ([1.5, -2.25, 3e38, 0.1], [-0.75, 3.0, 2.0, 0.3]))
    left, right = (interpreter.TensorHandle(t.view(torch.uint16).numpy(), tl.bfloat16) for t in (a, b))

    def values(handle: Any) -> torch.Tensor:
        assert handle.dtype == tl.bfloat16 and handle.data.dtype == np.uint16
        return torch.from_numpy(handle.data).view(torch.bfloat16)

    assert torch.equal(values(builder.create_fmul(left, right)), a * b)
    assert torch.equal(values(builder.create_fsub(left, right)), a - b)
    assert torch.equal(values(builder.create_fneg(left)), -a)
    assert torch.equal(values(builder.create_fma(left, right, right)), (a.float() * b.float() + b.float()).bfloat16())
    assert (builder.create_fcmpOLT(left, right).data == (a < b).numpy()).all()
    assert (builder.create_fp_to_si(right, tl.int32).data == b.to(torch.int32).numpy()).all()
    floats = torch.cat((torch.randn(500) * 3, torch.tensor([float("nan"), float("inf"), -0.0, 3.4e38, 1e-40])))
    rounded = values(builder.create_fp_trunc(interpreter.TensorHandle(floats.numpy(), tl.float32), tl.bfloat16))
    assert torch.allclose(rounded, floats.bfloat16(), rtol=0, atol=0, equal_nan=True)
    numbers = interpreter.TensorHandle(np.array([3, -7, 1 << 20], dtype=np.int32), tl.int32)
    expected = torch.tensor([3, -7, 1 << 20]).bfloat16()
    assert torch.equal(values(builder.create_si_to_fp(numbers, tl.bfloat16)), expected)
