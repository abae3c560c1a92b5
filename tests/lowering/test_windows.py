"""Designed windows, lowered: C++, Triton and CUDA-C compute what PyTorch computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import named_chip
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from tests.designer.window_cases import WINDOWS

from .emulated import kernel_of
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
    return task, _lowered(task, target, copied)


def _lowered(task: Task, target: Target, copied: bool = False) -> Source:
    designs = [d.sketch for d in RulesDesigner().designs(DesignBrief(task, target))]
    program = load_program(next(d for d in designs if "_last" in d) if copied else designs[0])
    return lower(program, bind(program, task, {}, target), target)


def _convolution(result: str, x: str, w: str) -> tuple[Task, Source]:
    """One that is no case of a table: its task, and its C++."""
    text = (
        "import torch\nimport torch.nn.functional as F\n"
        f"def reference(x, w):\n    return {result}\n"
        f"def inputs():\n    return torch.randn({x}), torch.randn({w})\n"
    )
    task = load_task(text, "convolution")
    return task, _lowered(task, CPP)


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
    # factors are rounded to TF32
    assert (got - want).norm() < 1e-3 * want.norm()
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["plain", "groups", "depthwise", "pointwise", "transposed by phases", "max, dilated"])
def test_cuda_c_computes_windows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its device code runs on the CPU."""
    task, source = lowered(name, Target("cuda_c", Backend.CUDA, named_chip("h200")))
    args = task.module().sample(seed=3)
    got = kernel_of(source, tmp_path, monkeypatch)(*args)
    want = task.module().reference(args)[0]
    # its products are of scalars, which are whole
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["stride, padding, dilation", "volume", "flat volume", "groups", "transposed by phases"]
)
def test_triton_computes_windows_over_a_copy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # so few channels are summed directly otherwise
    monkeypatch.setattr("kernellab.designer.reading._DIRECT_PAIRS", 0)
    chip = Chip("a GPU", "gpu", 132, bandwidth=4.28e12, peak_flops={"tf32": 3.57e11})
    task, source = lowered(name, Target("triton", Backend.INTERPRETER, chip), copied=True)
    args = task.module().sample(seed=3)
    (got,) = call(source, tmp_path, *args)
    want = task.module().reference(args)[0]
    # factors are rounded to TF32
    assert (got - want).norm() < 1e-3 * want.norm()
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


def test_a_product_over_taps_copies_its_input_once() -> None:
    _, source = lowered("plain", CPP)
    assert "kl::Slab<float, 4, 1, 2>" in source.files["kernel.cpp"]
    assert "kl_window.h" in source.files


#: result, shapes of input and weight: what lies across vectors, ends in part of one, or falls outside the input
ACROSS = {
    "a vector alone behind a pair": ("F.conv2d(x, w)", "2, 3, 9, 14", "24, 3, 3, 3"),
    "part of a vector": ("F.conv2d(x, w, padding=1)", "2, 5, 9, 29", "21, 5, 3, 3"),
    "several steps of a long sum": ("F.conv2d(x, w, padding=(2, 3))", "2, 40, 7, 9", "16, 40, 5, 7"),
    "rows that only see the edge": ("F.conv2d(x, w, padding=(4, 2))", "1, 6, 5, 6", "12, 6, 3, 3"),
    "planes that only see the edge": ("F.conv_transpose3d(x, w)", "1, 20, 4, 5, 6", "20, 19, 3, 5, 3"),
    "steps of two along a row": ("F.conv2d(x, w, stride=2, padding=3)", "2, 3, 20, 23", "13, 3, 7, 7"),
    "double precision": ("F.conv2d(x.double(), w.double())", "1, 5, 8, 9", "11, 5, 3, 3"),
}


@pytest.mark.parametrize("name", ACROSS)
def test_output_channels_lie_across_vectors(name: str, tmp_path: Path) -> None:
    task, source = _convolution(*ACROSS[name])
    assert "kl::Slab<" in source.files["kernel.cpp"]
    kernel, module = load(source, tmp_path).kernel, task.module()
    for seed in (3, 4):  # the second call packs the weights anew
        args = module.sample(seed=seed)
        torch.testing.assert_close(kernel(*args), module.reference(args)[0], rtol=1e-4, atol=1e-4)


def test_few_output_channels_are_gathered_along_the_positions(tmp_path: Path) -> None:
    task, source = _convolution("F.conv2d(x, w, padding=1)", "2, 5, 9, 29", "3, 5, 3, 3")
    assert "kl::Gathered<float>" in source.files["kernel.cpp"]
    args = task.module().sample(seed=3)
    want = task.module().reference(args)[0]
    torch.testing.assert_close(load(source, tmp_path).kernel(*args), want, rtol=1e-4, atol=1e-5)


def test_rows_with_gaps_are_read_in_steps() -> None:
    text = lowered("one dimension", CPP)[1].files["kernel.cpp"]
    assert "kl::Slab<float, 3, 1, -1, 3>" in text and "kl::Gathered" not in text


def test_taps_that_meet_the_edge_are_one_loop_over_copies_of_their_rows(tmp_path: Path) -> None:
    task, source = _convolution("F.conv2d(x, w, padding=1, stride=(1, 2), groups=4)", "2, 4, 5, 29", "4, 1, 3, 3")
    body = source.files["kernel.cpp"].split("for (int64_t j = 0; j < BW; ++j) {")[1].split("}")[0]
    assert body.count(" = x_row") == 9 and "y[" in body
    args = task.module().sample(seed=3)
    want = task.module().reference(args)[0]
    torch.testing.assert_close(load(source, tmp_path).kernel(*args), want, rtol=1e-4, atol=1e-5)


def test_a_window_is_loaded_in_the_shape_of_its_product() -> None:
    _, source = lowered("plain", TRITON)
    text = source.files["kernel.py"]
    product = next(line for line in text.splitlines() if "tl.dot(" in line)
    assert "reshape" not in product.split("#")[0]
