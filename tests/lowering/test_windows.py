"""Designed windows, lowered: C++ and Triton compute what PyTorch computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.designer import RulesDesigner
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.bind import bind
from kernellab.sketch.check import load_program
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from tests.agents.window_cases import WINDOWS

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


def lowered(name: str, target: Target, copied: bool = False) -> tuple[Task, Source]:
    task = load_task(WINDOWS[name], "windows")
    designs = [d.sketch for d in RulesDesigner().designs(DesignBrief(task, target))]
    program = load_program(next(d for d in designs if "_last" in d) if copied else designs[0])
    return task, lower(program, bind(program, task, {}, target), target)


@pytest.mark.parametrize("name", WINDOWS)
def test_cpp_computes_windows(name: str, tmp_path: Path) -> None:
    task, source = lowered(name, CPP)
    args = task.module().sample(seed=3)
    got = load(source, tmp_path).kernel(*args)
    torch.testing.assert_close(got, task.module().reference(args)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["one dimension", "depthwise", "phases without a tap", "max, dilated", "pointwise"])
def test_triton_computes_windows(name: str, tmp_path: Path) -> None:
    task, source = lowered(name, TRITON)
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    want = task.module().reference(args)[0]
    # factors are stored rounded to TF32
    assert (got - want).norm() < 1e-3 * want.norm()
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "name", ["stride, padding, dilation", "volume", "flat volume", "groups", "transposed by phases"]
)
def test_triton_computes_windows_over_a_copy(name: str, tmp_path: Path) -> None:
    chip = Chip("a GPU", "gpu", 132, bandwidth=4.28e12, peak_flops={"tf32": 3.57e11})
    task, source = lowered(name, Target("triton", Backend.INTERPRETER, chip), copied=True)
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    want = task.module().reference(args)[0]
    # factors are stored rounded to TF32
    assert (got - want).norm() < 1e-3 * want.norm()
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


def test_a_product_over_taps_copies_its_input_once() -> None:
    _, source = lowered("plain", CPP)
    assert "kl::Slab<float, 4, 1, 2>" in source.files["kernel.cpp"]
    assert "kl_window.h" in source.files


def test_rows_with_gaps_are_gathered_tap_by_tap() -> None:
    text = lowered("one dimension", CPP)[1].files["kernel.cpp"]
    assert "kl::Gathered<float>" in text and "kl::Slab" not in text


def test_a_window_is_loaded_in_the_shape_of_its_product() -> None:
    _, source = lowered("plain", TRITON)
    text = source.files["kernel.py"]
    product = next(line for line in text.splitlines() if "tl.dot(" in line)
    assert "reshape" not in product.split("#")[0]
