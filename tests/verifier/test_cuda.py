"""What of the judge's work on CUDA devices needs no device."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab.task import load_task
from kernellab.verifier import compare_pieces as pieces_module
from kernellab.verifier import cuda_driver, cuda_pool, device
from kernellab.verifier.compare import Limits, Reference, compare
from kernellab.verifier.compare_pieces import compare_pieces
from kernellab.verifier.control import Output
from kernellab.verifier.cuda_link import device_fault
from kernellab.verifier.cuda_memory import Segment, flush_words, output_bytes
from kernellab.verifier.cuda_trace import is_library, summary, without_frame
from kernellab.verifier.memory import Unreadable, equal
from kernellab.verifier.rules import DEVICE
from kernellab.verifier.timed_cuda import DeviceContents, disagreement

LIMITS = Limits.of("float32")
HEADER = Path("/usr/local/cuda/include/cuda.h")


# -- clocks ------------------------------------------------------------------------------------------------------------


def test_clocks_that_agree_say_nothing() -> None:
    assert disagreement(70e-6, 235e-6, 74e-6, 68e-6, (167e-6, 165e-6)) == ""
    assert disagreement(3.03e-3, 3.2e-3, 3.04e-3, 3.02e-3, (195e-6, 165e-6)) == ""
    # a launch takes the host longer than the device works
    assert disagreement(90e-6, 250e-6, 70e-6, 4e-6, None) == ""
    assert disagreement(30e-6, 195e-6, 33e-6, None, None) == ""


@pytest.mark.parametrize(
    ("clocks", "word"),
    [
        ((20e-6, 185e-6, 20e-6, 18e-6, (330e-6, 165e-6)), "after the answer"),
        ((400e-6, 560e-6, 8e-6, 8e-6, None), "judge's clock says"),
        ((70e-6, 235e-6, 400e-6, 68e-6, None), "events say"),
        ((400e-6, 560e-6, 395e-6, 900e-6, None), "the device was busy"),
        ((70e-6, 235e-6, 60e-6, 78e-6, None), "the device was busy"),
    ],
)
def test_each_clock_that_contradicts_is_named(clocks: tuple[Any, ...], word: str) -> None:
    assert word in disagreement(*clocks)


SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"


def test_a_stream_that_waits_for_nobody_and_one_that_nobody_waits_for_are_named() -> None:
    joined = [(SPIN, 0.0, 1.0, 7), ("side", 1.1, 0.5, 13), ("marker", 1.7, 0.1, 7)]
    events, unordered = without_frame(joined)
    assert events == [("side", 1.1, 0.5)] and unordered == ""
    early = [(SPIN, 0.0, 1.0, 7), ("side", 0.1, 0.5, 13), ("marker", 1.1, 0.1, 7)]
    assert without_frame(early)[1] == "side"
    unseen = [(SPIN, 0.0, 1.0, 7), ("side", 1.1, 0.5, 13), ("marker", 1.1, 0.1, 7)]
    assert without_frame(unseen)[1] == "side"
    plain = [(SPIN, 0.0, 1.0, 7), ("mine", 1.1, 0.5, 7), ("marker", 1.7, 0.1, 7)]
    assert without_frame(plain) == ([("mine", 1.1, 0.5)], "")


def test_a_flush_writes_twice_the_cache() -> None:
    assert flush_words(60 << 20) * 4 == 120 << 20


# -- contents ----------------------------------------------------------------------------------------------------------


def test_contents_are_new_in_every_place_and_stay_in_their_support() -> None:
    task = load_task("import torch\ndef reference(x, w):\n    return x * w\ndef inputs():\n"
                     "    return torch.rand(64, 33), torch.rand(33)\nSTATIC = ['w']\n", "scaled")  # fmt: skip
    base = (torch.rand(64, 33), torch.rand(33))
    contents = DeviceContents(task, base, [True, True])
    one = contents.next(0)[0].clone()
    two = contents.next(0)[0]
    assert one.shape == base[0].shape and contents.next(1)[1] is base[1]
    assert float((one == base[0]).float().mean()) < 0.01 and float((one == two).float().mean()) < 0.01
    assert float(two.min()) >= 0.0 and float(two.max()) <= 1.0


# -- comparison in pieces ----------------------------------------------------------------------------------------------


def spoiled(kind: str, want: torch.Tensor) -> torch.Tensor:
    got = want.clone()
    if kind == "element":
        got[-1, 3, 5] += 10.0
    elif kind == "tile":
        got[0, :64, 64:128] *= 1 + 3e-4
    elif kind == "noise":
        got *= 1 + 1e-4 * torch.randn_like(got)
    elif kind == "nan":
        got[1, 2, 3] = float("nan")
    elif kind == "tau":
        got += 2e-6 * torch.randn_like(got)
    return got


@pytest.mark.parametrize("shape", [(3, 150, 131), (2, 64, 256), (2, 7, 300)])
@pytest.mark.parametrize("kind", ["right", "element", "tile", "noise", "nan", "tau"])
@pytest.mark.parametrize("doubled", [True, False])
def test_pieces_judge_as_the_whole_does(
    kind: str, shape: tuple[int, ...], doubled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces_module, "DEVICE", replace(DEVICE, piece=1 << 13))
    torch.manual_seed(7)
    want = torch.randn(shape)
    reference = Reference(want, want.double() * (1 + 1e-8) if doubled else None)
    got = spoiled(kind, want)
    whole, error = compare(got, reference, LIMITS)
    parts, other = compare_pieces(got, reference, LIMITS)
    assert (whole is None) == (parts is None) == (kind == "right" or (whole is None and kind == "tau"))
    if whole is not None and parts is not None:
        assert (whole.rule, whole.message) == (parts.rule, parts.message)
        assert whole.wrong is not None and parts.wrong is not None
        # where a place is not finite the whole rule also marks elements that are far off
        assert bool((whole.wrong & parts.wrong == parts.wrong).all())
        assert kind == "nan" or torch.equal(whole.wrong, parts.wrong)
    assert error == pytest.approx(other, rel=1e-6, nan_ok=True) or whole is None


def test_a_large_output_goes_through_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernellab.verifier import compare as compare_module

    monkeypatch.setattr(compare_module, "DEVICE", replace(DEVICE, whole=1000))
    want = torch.randn(40, 50)
    got = want.clone()
    got[7, 8] = 30.0
    mismatch, _ = compare(got, Reference(want, want.double()), LIMITS)
    assert mismatch is not None and mismatch.rule == "elements"
    assert mismatch.wrong is not None and mismatch.wrong[7, 8] and int(mismatch.wrong.sum()) == 1
    assert compare(want, Reference(want, None), LIMITS)[0] is None


def test_equal_looks_at_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernellab.verifier import memory

    monkeypatch.setattr(memory, "_PIECE", 64)
    a = torch.arange(1000).reshape(50, 20)
    b = a.clone()
    assert equal(a, b)
    b[49, 19] = 0
    assert not equal(a, b) and not equal(a, b[:49])


# -- memory ------------------------------------------------------------------------------------------------------------


def output(data: int, shape: tuple[int, ...], strides: tuple[int, ...], storage: int, size: int) -> Output:
    return Output(data, storage, size, "float32", shape, strides)


def test_an_output_must_lie_in_its_storage() -> None:
    assert output_bytes(output(4096, (2, 3), (3, 1), 4096, 24)) == 24
    assert output_bytes(output(4096, (0, 3), (3, 1), 4096, 0)) == 0
    for wrong in (output(4096, (2, 3), (4, 1), 4096, 24), output(4098, (2,), (1,), 4096, 24)):
        with pytest.raises(Unreadable):
            output_bytes(wrong)


def test_a_segment_holds_what_is_wholly_inside() -> None:
    segment = Segment(1 << 20, 2 << 20, cuda_driver.Mapping(0, 2 << 20, 0, True))
    assert segment.holds(1 << 20, 2 << 20)
    assert not segment.holds(1 << 20, (2 << 20) + 1) and not segment.holds((1 << 20) - 1, 1)


@pytest.mark.skipif(not (shutil.which("g++") and HEADER.exists()), reason="needs g++ and CUDA's headers")
def test_the_driver_s_structures_are_those_of_the_header(tmp_path: Path) -> None:
    (tmp_path / "sizes.cpp").write_text(
        "#include <cuda.h>\n#include <cstddef>\n#include <cstdio>\n"
        'int main() { printf("%zu %zu %zu %zu %zu %zu", sizeof(CUmemAllocationProp),'
        " offsetof(CUmemAllocationProp, location), offsetof(CUmemAllocationProp, win32HandleMetaData),"
        " offsetof(CUmemAllocationProp, allocFlags), sizeof(CUmemAccessDesc), offsetof(CUmemAccessDesc, flags)); }\n"
    )
    program = str(tmp_path / "sizes")
    subprocess.run(["g++", f"-I{HEADER.parent}", str(tmp_path / "sizes.cpp"), "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    prop, access = cuda_driver.AllocationProperties, cuda_driver.Access
    ours = (ctypes.sizeof(prop), prop.location.offset, prop.win32.offset, prop.flags.offset,
            ctypes.sizeof(access), access.flags.offset)  # fmt: skip
    assert said == " ".join(map(str, ours))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_allocator_builds_once_and_gives_nothing_without_a_driver(tmp_path: Path) -> None:
    library = cuda_pool.build(tmp_path)
    assert library is not None and cuda_pool.build(tmp_path) == library
    loaded = ctypes.CDLL(str(library))
    loaded.kernellab_segments.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    table = (cuda_pool.Segment * 4)()
    assert loaded.kernellab_segments(0, 4, ctypes.byref(table)) == 0
    loaded.kernellab_alloc.restype = ctypes.c_void_p
    loaded.kernellab_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    assert loaded.kernellab_alloc(0, 0, None) is None


# -- own code and faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AbsFunctor<float>>(int)", True),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(...)", True),
        ("triton_poi_fused_relu_0", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", False),
        ("Memcpy DtoD (Device -> Device)", False),
        ("void at::native::elementwise_kernel<at::native::direct_copy_kernel_cuda(...)>", False),
        ("matmul_kernel", False),
        ("my_softmax", False),
    ],
)
def test_kernels_of_libraries_are_known_by_name(name: str, library: bool) -> None:
    assert is_library(name) is library


def test_what_the_candidate_defines_is_its_own_whatever_its_name() -> None:
    assert not is_library("triton_poi_mine", frozenset({"triton_poi_mine"}))


def test_the_share_leaves_fills_and_copies_out() -> None:
    found = summary([
        ("mine", 1.0, 0.3), ("Memset (Device)", 1.4, 5.0), ("ampere_sgemm_128x64_nn", 6.5, 0.1),
    ])  # fmt: skip
    assert found["total"] == pytest.approx(0.4) and found["library"] == {"ampere_sgemm_128x64_nn": 0.1}
    assert found["busy"] == pytest.approx(5.4) and found["kernels"]["mine"] == 1


def test_each_fault_of_the_device_has_one_name() -> None:
    assert device_fault("AcceleratorError: CUDA error: an illegal memory access was encountered") == (
        "crash", "reads or writes memory that is not its own (illegal memory access)",
    )  # fmt: skip
    assert (device_fault("OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB") or ("", ""))[0] == "memory"
    assert (device_fault("RuntimeError: CUDA error: device-side assert triggered") or ("", ""))[0] == "crash"
    assert device_fault("ValueError: the illegal memory access was mine") is None


# -- precision ---------------------------------------------------------------------------------------------------------

CONV = """
import torch
def reference(x, w):
    return torch.nn.functional.conv2d(x, w)
def inputs():
    return torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
"""


def test_a_convolution_is_of_tf32_s_class_on_a_device_and_a_product_is_not() -> None:
    conv = load_task(CONV, "conv")
    strict = load_task(CONV + "PRECISION = {'conv': 'ieee'}\n", "conv_ieee")
    product = load_task("import torch\ndef reference(a, b):\n    return a @ b\ndef inputs():\n"
                        "    return torch.randn(4, 5), torch.randn(5, 6)\n", "product")  # fmt: skip
    assert not device.runs_tf32(conv)
    with device.on("cuda"):
        assert device.runs_tf32(conv) and not device.runs_tf32(strict) and not device.runs_tf32(product)
    assert device.current() == "cpu"
