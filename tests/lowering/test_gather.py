"""Indices that are tiles: the interpreter, C++ and Triton read and write what PyTorch does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.lowering import lower
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target

from .gather_cases import PICKS, SIZES, Inputs
from .test_cpp import load
from .test_triton import call

CPP = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=256, l1_bytes=32 << 10, l2_bytes=1 << 20))
TRITON = Target("triton", Backend.INTERPRETER, Chip("a GPU", "gpu", 132))

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path_factory.mktemp("build")))
        yield


def inputs_of(name: str, sizes: tuple[int, int, int]) -> Inputs:
    torch.manual_seed(sum(sizes))
    return PICKS[name].inputs(*sizes)


@pytest.mark.parametrize("name", PICKS)
def test_the_interpreter_means_what_torch_does(name: str) -> None:
    program = load_program(PICKS[name].text)
    for sizes in SIZES:
        given = inputs_of(name, sizes)
        (got,) = run(program, given).values()
        torch.testing.assert_close(got, PICKS[name].expected(given), msg=lambda m, s=sizes: f"{s}: {m}")


@pytest.mark.parametrize("name", PICKS)
def test_cpp_computes_it(name: str, tmp_path: Path) -> None:
    program = load_program(PICKS[name].text)
    source = lower(program, bind(program, None, None, CPP), CPP)
    module = load(source, tmp_path)
    for sizes in SIZES:
        given = inputs_of(name, sizes)
        got = module.kernel(*(given[t.name] for t in program.inputs))
        torch.testing.assert_close(got, PICKS[name].expected(given), msg=lambda m, s=sizes: f"{s}: {m}")


@pytest.mark.parametrize("name", PICKS)
def test_triton_computes_it(name: str, tmp_path: Path) -> None:
    program = load_program(PICKS[name].text)
    source = lower(program, bind(program, None, None, TRITON), TRITON)
    for sizes in SIZES:
        given = inputs_of(name, sizes)
        (got,) = call(source, tmp_path, *(given[t.name] for t in program.inputs))
        torch.testing.assert_close(got, PICKS[name].expected(given), msg=lambda m, s=sizes: f"{s}: {m}")


def test_triton_takes_single_places_and_numbers_of_more_than_32_bits(tmp_path: Path) -> None:
    program = load_program("""sketch keys {
    tensors: at[6]: i32; x[40]: f32; y[6]: f32 out; z[6]: i64 out;
    @llm_hint("parallel", "grididx")
    for i in range(6):
        load(at[i] -> here)
        gather(x[here] -> picked)
        store(picked -> y[i])
        store(cast(here, i64) + i * 4294967296 -> z[i])
}
""")
    given = {"at": torch.tensor([3, 39, 0, 7, -1, 50], dtype=torch.int32), "x": torch.randn(40)}
    got = call(lower(program, bind(program, None, None, TRITON), TRITON), tmp_path, *given.values())
    expected = run(program, given)
    assert [torch.equal(value, expected[t.name]) for value, t in zip(got, program.outputs, strict=True)] == [True, True]


def test_no_atomics_where_parallel_iterations_have_columns_of_their_own() -> None:
    for name, atomic in (("in order", False), ("index_add", True)):
        program = load_program(PICKS[name].text)
        text = lower(program, bind(program, None, None, CPP), CPP).files["kernel.cpp"]
        assert ("kl::atomic_add" in text) is atomic, text
