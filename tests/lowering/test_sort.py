"""Sorting and top-k: the interpreter, C++ and Triton order rows as PyTorch's stable sort does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.errors import LoweringError
from kernellab.lowering import lower
from kernellab.sketch.check import check, load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target

from .sort_cases import COLUMNS, DTYPES, SORT, TOPK, expected, rows
from .test_cpp import load
from .test_triton import call

CPP = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
TRITON = Target("triton", Backend.INTERPRETER, Chip("a GPU", "gpu", 132))
SHAPES = [(1, 1), (3, 2), (2, 37), (5, 64), (0, 3)]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


CASES = [
    *[("sort", SORT, dtype, down) for dtype in DTYPES for down in (False, True)],
    *[("columns", COLUMNS, "f32", down) for down in (False, True)],
    *[(f"top {k}", TOPK, dtype, down) for k in (1, 2, 5) for dtype in ("f32", "i32") for down in (True, False)],
    *[("top 3", TOPK, dtype, down) for dtype in ("f64", "i64") for down in (True, False)],
]


def text_of(kind: str, template: str, dtype: str, down: bool) -> tuple[str, int, int]:
    k = int(kind.split()[1]) if " " in kind else 0
    word = "largest" if k else "descending"
    option = f", {word}={str(down).lower()}"
    return template.format(dtype=dtype, option=option, k=k), k, 0 if kind == "columns" else 1


def inputs_of(dtype: str, k: int) -> Iterator[torch.Tensor]:
    for seed, shape in enumerate(SHAPES):
        if shape[1] >= k:
            yield rows(shape, DTYPES[dtype], seed)


def agrees(got: tuple[torch.Tensor, ...], x: torch.Tensor, k: int, dim: int, down: bool) -> None:
    values, order = expected(x, k or x.shape[dim], dim, down)
    assert torch.equal(got[1], order), (got[1], order)
    torch.testing.assert_close(got[0], values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("kind", "template", "dtype", "down"), CASES)
def test_the_interpreter_means_the_stable_order(kind: str, template: str, dtype: str, down: bool) -> None:
    text, k, dim = text_of(kind, template, dtype, down)
    assert check(text).errors == ()
    for x in inputs_of(dtype, k):
        agrees(tuple(run(load_program(text), {"X": x}).values()), x, k, dim, down)


@pytest.mark.parametrize(("kind", "template", "dtype", "down"), CASES)
def test_cpp_gives_it(kind: str, template: str, dtype: str, down: bool, tmp_path: Path) -> None:
    text, k, dim = text_of(kind, template, dtype, down)
    program = load_program(text)
    module = load(lower(program, bind(program, None, None, CPP), CPP), tmp_path)
    for x in (*inputs_of(dtype, k), rows((2, 3000), DTYPES[dtype], 9)):
        agrees(module.kernel(x), x, k, dim, down)


@pytest.mark.parametrize(
    ("kind", "template", "dtype", "down"), [c for c in CASES if c[2] != "f64" and (c[2], c[1]) != ("i64", TOPK)]
)
def test_triton_gives_it(kind: str, template: str, dtype: str, down: bool, tmp_path: Path) -> None:
    text, k, dim = text_of(kind, template, dtype, down)
    program = load_program(text)
    source = lower(program, bind(program, None, None, TRITON), TRITON)
    for x in inputs_of(dtype, k):
        agrees(call(source, tmp_path, x), x, k, dim, down)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i64", "i32"])
def test_triton_sorts_values_alone(dtype: str, down: bool, tmp_path: Path) -> None:
    text = text_of("sort", SORT, dtype, down)[0].replace(" I[M, N]: i64 out;", "")
    text = "\n".join(line for line in text.splitlines() if "I[" not in line)
    source = lower(load_program(text), bind(load_program(text), None, None, TRITON), TRITON)
    for x in inputs_of(dtype, 0):
        got, want = call(source, tmp_path, x)[0], torch.sort(x, descending=down).values
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_triton_says_which_dtypes_it_cannot_sort() -> None:
    program = load_program(SORT.format(dtype="f64", option=""))
    with pytest.raises(LoweringError, match="up to 32 bits, not f64"):
        lower(program, bind(program, None, None, TRITON), TRITON)


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("values, order = sort(x, axis=0)", "values = sort(x, axis=0)", "sort gives two results"),
        ("sort(x, axis=0)", "sort(x, axis=1)", "Axis 1 does not exist"),
        ("sort(x, axis=0)", "sort(x, axis=0, descending=1)", "descending is true or false"),
        ("values, order = sort(x, axis=0)", "x, order = topk(x, 3, axis=0)", "'x' is a tile of shape [N]"),
        ("sort(x, axis=0)", "sort(m)", "is a scalar"),
    ],
)
def test_a_wrong_sort_gets_one_sentence(was: str, now: str, says: str) -> None:
    errors = check(SORT.format(dtype="f32", option="").replace(was, now)).errors
    assert errors and says in errors[0].message, errors


def test_more_than_there_is_cannot_be_taken() -> None:
    text = TOPK.format(dtype="f32", option="", k=9).replace("0:N]", "0:8]").replace("X[M, N]", "X[M, 8]")
    assert "topk takes" not in "".join(d.message for d in check(text).errors), "K may be set to another value"
    fixed = text.replace("topk(x, K,", "topk(x, 9,").replace("0:K]", "0:9]").replace("M, K]", "M, 9]")
    assert "topk takes 9 of 8 elements." in [d.message for d in check(fixed).errors]


def test_padding_must_come_last() -> None:
    text = SORT.format(dtype="f32", option="").replace("X[m, 0:N]", "X[m, 0:N+4]").replace("Y[m, 0:N]", "Y[m, 0:N+4]")
    text = text.replace("I[m, 0:N]", "I[m, 0:N+4]")
    assert "pad-identity" in {d.rule for d in check(text).diagnostics}
    assert "pad-identity" not in {d.rule for d in check(text.replace("-> x)", "-> x, pad=inf)")).diagnostics}
