"""Bit operators: the interpreter means what torch means, and every lowering computes what the interpreter does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.sketch.check import check, load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.sketch.syntax.docs import sentence
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format
from kernellab.target import Backend, Chip, Target

from .emulated import kernel_of
from .test_cpp import load
from .test_triton import call

CPP = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
TRITON = Target("triton", Backend.INTERPRETER, Chip("a GPU", "gpu", 132))
CUDA = Target("cuda_c", Backend.CUDA, Chip("a GPU", "gpu", 132))
DTYPES = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}

#: every operator on two tensors, with a literal mask and a shift by the loop's own number
EVERY = """sketch bits {{
    symbols: N;
    tensors: A[N]: {dtype}; S[N]: {dtype}; Y[7, N]: {dtype} out;
    constexpr: B = 32;

    @llm_hint("parallel", "grididx")
    for n in range(0, N, B):
        load(A[n:n+B] -> a)
        load(S[n:n+B] -> s)
        store(a & s -> Y[0, n:n+B])
        store(a | s -> Y[1, n:n+B])
        store(a ^ 0x55 -> Y[2, n:n+B])
        store(~a -> Y[3, n:n+B])
        store(a << s -> Y[4, n:n+B])
        store(a >> s -> Y[5, n:n+B])
        y = a
        for k in range(3):
            y = y ^ a >> k
        store(y -> Y[6, n:n+B])
}}
"""
#: two 4-bit numbers a byte, the lower one first, less 8
UNPACK = """sketch unpack {
    symbols: M, N;
    tensors: Q[M, N]: u8; Y[M, 2*N]: f32 out;
    constexpr: B = 16;

    @llm_hint("parallel", "grididx")
    for m in range(M):
        for n in range(0, N, B):
            load(Q[m, n:n+B] -> q)
            low = cast(q & 15, f32) - 8
            high = cast(q >> 4, f32) - 8
            store(low -> Y[m, 2*n:2*(n+B):2])
            store(high -> Y[m, 2*n+1:2*(n+B):2])
}
"""
#: bits of an index, of an even number of rows: row m ^ 1, and the sign of its bit 1
SWAPPED = """sketch swapped {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;

    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m ^ 1, 0:N] -> x)
        sign = 1 - (m >> 1 & 1) * 2
        store(x * sign -> Y[m, 0:N])
}
"""
#: ten bits of mantissa
ROUNDED = """sketch rounded {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    constexpr: B = 32;

    @llm_hint("parallel", "grididx")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store(round_tf32(x) -> Y[n:n+B])
}
"""
#: the lowest bit of each float turned over, and what the bits are as an integer
TURNED = """sketch turned {{
    symbols: N;
    tensors: X[N]: {dtype}; Y[N]: {dtype} out;
    constexpr: B = 32;

    @llm_hint("parallel", "grididx")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store(bitcast(bitcast(x, {whole}) ^ 1, {dtype}) -> Y[n:n+B])
}}
"""
READ = """sketch doubled {{
    symbols: N;
    tensors: X[N]: {dtype}; Y[N]: {whole} out;
    constexpr: B = 32;

    @llm_hint("parallel", "grididx")
    for n in range(0, N, B):
        load(X[n:n+B] -> x)
        store(bitcast(cast(x * 2, {dtype}), {whole}) -> Y[n:n+B])
}}
"""
FLOATS = {
    "f64": (torch.float64, "i64"), "f32": (torch.float32, "i32"), "f16": (torch.float16, "i16"),
    "bf16": (torch.bfloat16, "i16"), "f8e4m3": (torch.float8_e4m3fn, "u8"), "f8e5m2": (torch.float8_e5m2, "u8"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


def inputs_of(dtype: str) -> dict[str, torch.Tensor]:
    """All kinds of bits, and counts of shifts inside the width, at its edge, beyond it and below 0."""
    info = torch.iinfo(DTYPES[dtype])
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(info.min, min(info.max, 2**62), (100,), generator=generator).to(DTYPES[dtype])
    a[:4] = torch.tensor([info.min, info.max, 0, 1]).to(DTYPES[dtype])
    counts = [0, 1, 3, info.bits - 1, info.bits, info.bits + 3, *([-1] if info.min else [7])]
    return {"A": a, "S": torch.tensor(counts).repeat(15)[:100].to(DTYPES[dtype])}


def expected(a: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    mixed = a ^ a ^ (a >> 1) ^ (a >> 2)
    return torch.stack([a & s, a | s, a ^ 0x55, ~a, a << s, a >> s, mixed])


def swapped(x: torch.Tensor) -> torch.Tensor:
    m = torch.arange(x.shape[0])
    return x[m ^ 1] * (1 - (m >> 1 & 1) * 2)[:, None]


def unpacked(q: torch.Tensor) -> torch.Tensor:
    return torch.stack([q & 15, q >> 4], -1).reshape(q.shape[0], -1).float() - 8


def lowered(text: str, target: Target, folder: Path, patch: Any, *inputs: torch.Tensor) -> torch.Tensor:
    program = load_program(text)
    source = lower(program, bind(program, None, None, target), target)
    folder.mkdir(exist_ok=True)
    if target is CPP:
        found = load(source, folder).kernel(*inputs)
    elif target is TRITON:
        (found,) = call(source, folder, *inputs)
    else:
        found = kernel_of(source, folder, patch)(*inputs)
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_interpreter_means_what_torch_does(dtype: str) -> None:
    text, given = EVERY.format(dtype=dtype), inputs_of(dtype)
    assert check(text).diagnostics == ()
    assert torch.equal(run(load_program(text), given)["Y"], expected(given["A"], given["S"]))
    assert torch.equal(run(load_program(text), given, f64=True)["Y"], expected(given["A"], given["S"]))


@pytest.mark.parametrize("target", [CPP, TRITON, CUDA], ids=lambda t: t.dsl)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_lowering_gives_it(dtype: str, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs_of(dtype)
    found = lowered(EVERY.format(dtype=dtype), target, tmp_path, monkeypatch, *given.values())
    assert torch.equal(found, expected(given["A"], given["S"]))


@pytest.mark.parametrize("target", [CPP, TRITON, CUDA], ids=lambda t: t.dsl)
def test_bits_of_indices_and_of_packed_numbers(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(10, 5)
    assert torch.equal(run(load_program(SWAPPED), {"X": x})["Y"], swapped(x))
    assert torch.equal(lowered(SWAPPED, target, tmp_path / "swapped", monkeypatch, x), swapped(x))
    q = torch.arange(3 * 37).reshape(3, 37).mul(7).to(torch.uint8)
    assert check(UNPACK).diagnostics == ()
    assert torch.equal(run(load_program(UNPACK), {"Q": q})["Y"], unpacked(q))
    assert torch.equal(lowered(UNPACK, target, tmp_path / "unpack", monkeypatch, q), unpacked(q))


def floats(dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(100, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[:6] = torch.tensor([0.0, 3.0, 1.0, -2.0, 1e-5, -192.0])
    return x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_of_floats_are_those_of_their_dtype_in_float64_too(dtype: str) -> None:
    kind, whole = FLOATS[dtype]
    x = floats(kind)
    bits = x.view(DTYPES[whole])
    turned = run(load_program(TURNED.format(dtype=dtype, whole=whole)), {"X": x})["Y"]
    assert torch.equal(turned.view(DTYPES[whole]), bits ^ 1)
    wide = run(load_program(TURNED.format(dtype=dtype, whole=whole)), {"X": x.double()}, f64=True)["Y"]
    assert torch.equal(wide, (bits ^ 1).view(kind).double())
    read = run(load_program(READ.format(dtype=dtype, whole=whole)), {"X": x})["Y"]
    assert torch.equal(read, (x.to(torch.float64) * 2).to(kind).view(DTYPES[whole]))


@pytest.mark.parametrize("target", [CPP, TRITON, CUDA], ids=lambda t: t.dsl)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_lowering_reads_the_bits_of_floats(
    dtype: str, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, whole = FLOATS[dtype]
    x = floats(kind)
    found = lowered(TURNED.format(dtype=dtype, whole=whole), target, tmp_path / "turned", monkeypatch, x)
    assert torch.equal(found.view(DTYPES[whole]), x.view(DTYPES[whole]) ^ 1)
    read = lowered(READ.format(dtype=dtype, whole=whole), target, tmp_path / "read", monkeypatch, x)
    assert torch.equal(read, (x.to(torch.float64) * 2).to(kind).view(DTYPES[whole]))


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("bitcast(x, i64)", "bitcast reads f32 (4 bytes) as i64 (8 bytes)."),
        ("bitcast(cast(x, f16) * 2, i16)", "bitcast reads f32 (4 bytes) as i16 (2 bytes)."),
        ("bitcast(x > 0, u8)", "bitcast reads bool (1 byte) as u8 (1 byte)."),
    ],
)
def test_bits_are_read_as_a_dtype_of_as_many_bytes(expr: str, said: str) -> None:
    text = TURNED.format(dtype="f32", whole="i32").replace("store(", f"y = {expr}\n        store(")
    found = check(text).diagnostics
    assert [d.message for d in found] == [said] and "as many bytes" in found[0].remedy


def test_an_index_is_not_shifted_by_a_count_that_may_be_anything() -> None:
    program = load_program(SWAPPED.replace("m >> 1 & 1", "m >> M & 1"))
    with pytest.raises(LoweringError, match=r"^(Line \d+: )?The count M of a shift of an index is not known"):
        lower(program, bind(program, None, None, CPP), CPP)


@pytest.mark.parametrize(
    ("expr", "printed"),
    [
        ("(a & 15) | (s << 2)", "a & 15 | s << 2"), ("a & (15 | s) << 2", "a & (15 | s) << 2"),
        ("(a ^ s) & 0xF0", "(a ^ s) & 0xF0"), ("~(a & s)", "~(a & s)"), ("~a & s", "~a & s"),
        ("(a + 1) >> (s - 1)", "a + 1 >> s - 1"), ("a >> 1 >> 2", "a >> 1 >> 2"), ("a >> (1 >> 2)", "a >> (1 >> 2)"),
    ],
)  # fmt: skip
def test_operators_bind_as_in_python(expr: str, printed: str) -> None:
    text = EVERY.format(dtype="i32").replace("store(a & s ->", f"store({expr} ->")
    assert f"store({printed} -> Y[0, n:n+B])" in format(text)
    assert parse(format(text)) == parse(text)
    given = inputs_of("i32")
    wanted = eval(expr, {"a": given["A"], "s": given["S"]})
    assert torch.equal(run(load_program(text), given)["Y"][0], wanted)


@pytest.mark.parametrize(
    ("expr", "dtype"), [("a & s", "i32"), ("a & 3", "i32"), ("(a > 0) & (s > 0)", "bool"), ("~(a > 0)", "bool"),
                        ("a << cast(s, i64)", "i64"), ("a & (s > 0)", "i32")]
)  # fmt: skip
def test_dtypes_are_those_of_the_operands(expr: str, dtype: str) -> None:
    text = EVERY.format(dtype="i32").replace("y = a\n", f"y = a\n        t = {expr}\n")
    kernel = load_program(text).kernels[0]
    tiles = {s.tile.name: s.tile.dtype.value for s in kernel.body[0].body if hasattr(s, "tile")}  # type: ignore[union-attr]
    assert tiles["t"] == dtype


def test_truth_values_of_indices_take_them_as_logic() -> None:
    text = SWAPPED.replace("sign = 1 - (m >> 1 & 1) * 2", "sign = where((m > 2) & ~(m > 4), 1.0, 0.0)")
    x = torch.ones(8, 2)
    assert run(load_program(text), {"X": x})["Y"][:, 0].tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("expr", ["cast(a, f32) & 1", "a << 1.5", "~cast(a, bf16)"])
def test_bits_of_a_float_are_refused_in_one_sentence(expr: str) -> None:
    (error,) = check(EVERY.format(dtype="i32").replace("store(a & s ->", f"store({expr} ->")).errors
    assert error.message.endswith("works on the bits of integers, and this is a float.")
    assert error.remedy == "Write cast(x, i32), or bitcast(x, i32) for the bits of the float."


def test_they_cost_an_operation_an_element_and_say_what_they_mean() -> None:
    one = cost(load_program(EVERY.format(dtype="i32").replace("store(a & s", "store(a")), {"N": 64})
    two = cost(load_program(EVERY.format(dtype="i32")), {"N": 64})
    assert sum(two.flops.values()) - sum(one.flops.values()) == 64
    assert sentence("bit_not") == "Elementwise bitwise_not(a), also written ~x."
    assert sentence("shift_left") == "Elementwise bitwise_left_shift(a, b), also written a << b."


@pytest.mark.parametrize("target", [CPP, TRITON, CUDA], ids=lambda t: t.dsl)
def test_tf32_is_the_nearest_of_ten_bits(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves away from zero; NaN and infinities stay, and in float64 every number does."""
    inf, half = float("inf"), 1 + 2.0**-11
    whole = torch.tensor([float("nan"), inf, -inf, 0.0, half, -half, half - 2.0**-23, 1e-30, 3e38])
    x = torch.cat([whole, torch.randn(90, generator=torch.Generator().manual_seed(1))])
    part, exponent = torch.frexp(x.double())
    near = torch.ldexp(part.sign() * (part.abs() * 2**11 + 0.5).floor(), exponent - 11)
    want = torch.where(x.isfinite(), near.float(), x)
    got = lowered(ROUNDED, target, tmp_path, monkeypatch, x)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    program = load_program(ROUNDED)
    torch.testing.assert_close(run(program, {"X": x})["Y"], want, rtol=0, atol=0, equal_nan=True)
    exact = run(program, {"X": x.double()}, f64=True)["Y"]
    torch.testing.assert_close(exact, x.double(), rtol=0, atol=0, equal_nan=True)
