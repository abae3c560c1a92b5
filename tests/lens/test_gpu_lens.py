"""A GPU's kernels under the lens, on a machine without a GPU."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernellab.dsls.machine import named_chip
from kernellab.errors import SessionError, TargetError
from kernellab.lens import Lens, look
from kernellab.lens.dry.tools import tool
from kernellab.lens.gpu.limits import capability_of, occupancy
from kernellab.records import Author, Source
from kernellab.target import Chip
from kernellab.task import Task, load_task

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="Triton and NVIDIA's tools run on Linux")

TASK = """
import torch
def reference(x: torch.Tensor, scale: float):
    return x * scale
def inputs():
    return torch.randn(64, 256), 3.0
"""
TRITON = """import torch, triton
import triton.language as tl

@triton.jit
def twice(v):
    return v + v

@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def scaled(x, y, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + at)
    tl.store(y + at, twice(tile) * scale)

def kernel(x, scale):
    assert torch.cuda.get_device_capability() == (9, 0)
    y = torch.empty_like(x)
    n = x.numel()
    scaled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, scale)
    return y
"""
CUDA = '''import torch
from cuda.core import LaunchConfig, Program, ProgramOptions, Stream, launch

CODE = r"""
extern "C" __global__ void scaled(const float* x, float* y, float scale) {
  __shared__ double held[128];
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  held[threadIdx.x] = x[at];
  __syncthreads();
  y[at] = float(held[127 - threadIdx.x]) * scale;
}
"""

def kernel(x, scale):
    y = torch.empty_like(x)
    made = Program(CODE, "c++", options=ProgramOptions(arch="sm_90")).compile("cubin").get_kernel("scaled")
    launch(None, LaunchConfig(grid=x.numel() // 128, block=128), made, x.data_ptr(), y.data_ptr(), scale)
    return y
'''


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(TASK, "scaled")


def seen(text: str, dsl: str, task: Task) -> Lens:
    source = Source(dsl=dsl, files={"kernel.py": text}, origin=Author.RULES)
    return look(source, task, named_chip("h200"))


@needs_linux
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_triton_is_compiled_for_a_named_chip_and_each_level_links_to_its_lines(task: Task) -> None:
    lens = seen(TRITON, "triton", task)
    expected = ["ttir", "ttgir", "llir", "ptx", *(["sass"] if tool("nvdisasm") else [])]
    assert lens.names == expected and lens.file == "kernel.py" and "sm_90" in lens.target
    load, store, inner = (TRITON[: TRITON.index(part)].count("\n") + 1 for part in ("tl.load", "tl.store", "v + v"))
    for name, mark in (("ttir", "tt.load"), ("ttgir", "tt.load"), ("ptx", "ld.global"), ("sass", "LDG")):
        level = lens.level(name)
        if level is None:
            continue
        text = level.text.split("\n")
        loads = [n for n, line in enumerate(text, 1) if mark in line]
        # also in PTX and SASS, where LLVM counts the lines of a load's inline assembly on
        assert loads and all(level.up[n] == (load,) for n in loads), name
        # the helper's sum comes from its own line and from the line that calls it
        sums = [n for n in level.down[inner] if set(level.up[n]) == {inner, store}]
        assert sums, name
        assert "loc(" not in level.text and ".loc" not in level.text
    facts = {fact.name: fact for fact in lens.facts}
    assert facts["shared memory"].value == "0 B"
    if tool("nvdisasm"):
        assert int(facts["registers"].value) > 8 and facts["spills"].value == "0 B"
        # 256 elements for 64 threads: four of 32 bits at once
        assert facts["vector width"].value == "128 bits"
        assert "blocks of 64 threads" in facts["occupancy"].sentence
    assert any("2 configurations" in note for note in lens.notes)


@needs_linux
@pytest.mark.skipif(find_spec("cuda.bindings") is None, reason="NVRTC is not installed")
def test_cuda_of_a_string_links_to_the_string_and_its_facts_are_told(task: Task) -> None:
    lens = seen(CUDA, "cuda_c", task)
    ptx = lens.level("ptx")
    assert ptx is not None and lens.file == "kernel.py"
    barrier = CUDA[: CUDA.index("__syncthreads")].count("\n") + 1
    assert any("bar.sync" in ptx.text.split("\n")[n - 1] for n in ptx.down[barrier])
    facts = {fact.name: fact for fact in lens.facts}
    assert facts["shared memory"].value == "1,024 B"
    if tool("nvdisasm"):
        assert facts["vector width"].value == "32 bits"
        assert "128 blocks" in facts["waves"].sentence


@needs_linux
def test_host_code_runs_in_the_sandbox_and_what_it_raises_is_one_sentence_with_its_line(
    task: Task, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    text = f"def kernel(x, scale):\n    raise ValueError(open({str(secret)!r}).read())\n"
    source = Source(dsl="triton", files={"kernel.py": text}, origin=Author.MODEL)
    with pytest.raises(SessionError, match=r"kernel.py:2: (PermissionError|FileNotFoundError)|no sandbox"):
        look(source, task, named_chip("h200"))
    with pytest.raises(SessionError, match="none was given"):
        look(source, None)


def test_occupancy_is_what_binds_first() -> None:
    # 65,536 registers hold 512 threads of 128, 228 KB hold two blocks of 100 KB, 64 warps hold 2 blocks of 1,024
    cases = [
        ((90, 128, 128, 0), "registers", 4),
        ((90, 128, 32, 100 << 10), "shared memory", 2),
        ((90, 1024, 32, 0), "warps", 2),
        ((90, 32, 16, 0), "blocks", 32),
        ((89, 256, 40, 0), "warps", 6),
    ]
    for given, limited, blocks in cases:
        found = occupancy(*given)
        assert found is not None and (found.limited_by, found.blocks) == (limited, blocks), given
    assert capability_of(named_chip("a100")) == 80 and capability_of(named_chip("rtx4090")) == 89
    with pytest.raises(TargetError, match="compute capability"):
        capability_of(Chip(name="Somebody's Chip", kind="npu", cores=1))
