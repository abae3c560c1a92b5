"""Products whose blocks share loads in a cluster, and results that leave in parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernellab.lowering import lower
from kernellab.lowering.gluon.names import unavailable
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import load_task

HOPPER = Target("triton", Backend.CUDA, find_chip("NVIDIA H200"))
TASK = """
import torch

def reference(a, b):
    return a @ b

def inputs():
    return torch.randn(2048, 1024, dtype=torch.bfloat16), torch.randn(1024, 4096, dtype=torch.bfloat16)
"""
#: the left factor as it lies, and with its rows along the second dimension
SKETCH = """
sketch case {
    tensors: a[2048, 1024]: bf16; b[1024, 4096]: bf16; y[2048, 4096]: bf16 out;
    constexpr: BM = 128 in {64, 128}; BN = 256 in {128, 256}; BK = 64; num_warps = 8 in {4, 8};
        num_stages = 4 in {3, 4};
    @llm_hint("parallel", "grididx.y", "cluster", 2)
    for i in range(0, 2048, BM):
        @llm_hint("parallel", "grididx.x", "swizzle", 8, "persistent", "async_store", 4)
        for k in range(0, 4096, BN):
            acc = alloc([BM, BN], f32, llm_hint=["fastest", "accumulator", "init_zero"])
            @llm_hint("pipeline", num_stages, "copy_engine", "warp_roles", 1, "ahead")
            for j in range(0, 1024, BK):
                load(a[i:i+BM, j:j+BK] -> a_tile)
                load(b[j:j+BK, k:k+BN] -> b_tile)
                gemm(a_tile, b_tile, acc)
            store(acc -> y[i:i+BM, k:k+BN])
}
"""
TURNED_TASK = TASK.replace("a @ b", "a.t() @ b").replace("randn(2048, 1024", "randn(1024, 2048")
TURNED = (
    SKETCH.replace("a[2048, 1024]", "a[1024, 2048]")
    .replace(
        "load(a[i:i+BM, j:j+BK] -> a_tile)",
        "load(a[j:j+BK, i:i+BM] -> a_tile)\n                a_turned = transpose(a_tile)",
    )
    .replace("gemm(a_tile", "gemm(a_turned")
)


def lowered(sketch: str, task: str = TASK) -> str:
    program = load_program(sketch)
    return lower(program, bind(program, load_task(task, "case"), {}, HOPPER), HOPPER).files["kernel.py"]


def code(source: str) -> str:
    return source.split("#| sketch")[0]


def test_results_that_leave_in_parts_leave_room_for_a_stage() -> None:
    whole = lowered(SKETCH.replace('"async_store", 4', '"async_store"'))
    assert "case: Triton, since its buffers take" in whole and "warp_specialize" not in whole
    parts = lowered(SKETCH)
    assert "case: Gluon" in parts
    assert parts.count("tma_store(") == 4 and "[2, BM, BN // 4]" in parts
    assert "k + 3 * (BN // 4)" in parts, "the last part's columns"
    assert (
        lowered(
            SKETCH.replace('"async_store", 4', '"async_store", 2').replace("num_stages = 4", "num_stages = 3")
        ).count("tma_store(")
        == 2
    )


def test_a_part_of_a_result_is_at_least_a_line_of_it() -> None:
    narrow = SKETCH.replace("BN = 256", "BN = 128").replace('"async_store", 4', '"async_store", 8')
    assert lowered(narrow).count("tma_store(") == 2


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"async_store", 4', '"async_store", 3', "its results leave in 3 parts, which is no power of two"),
        ('"cluster", 2', '"cluster", 4', "a cluster is of 2 blocks along the loop over the products' rows"),
        ("2048", "1920", "its rows are no multiple of the 2 tiles of a cluster"),
        (', "persistent"', "", "clusters need a persistent grid"),
        (', "ahead"', "", "clusters need a persistent grid"),
        ('"warp_roles", 1', '"warp_roles", 2', "clusters need a persistent grid, one group"),
    ],
)
def test_a_hint_that_is_not_followed_is_named(old: str, new: str, reason: str) -> None:
    source = lowered(SKETCH.replace(old, new), TASK.replace(old, new))
    assert f"case: Triton, since {reason}" in source
    assert "warp_specialize" not in source


@pytest.mark.parametrize(("hint", "without"), [(', "cluster", 2', ""), ('"async_store", 4', '"async_store", 2')])
def test_without_a_hint_the_source_is_another(hint: str, without: str) -> None:
    assert code(lowered(SKETCH)) != code(lowered(SKETCH.replace(hint, without)))


@pytest.mark.parametrize(("sketch", "task"), [(SKETCH, TASK), (TURNED, TURNED_TASK)], ids=["rows", "turned"])
def test_what_both_blocks_need_is_loaded_once(sketch: str, task: str) -> None:
    source = lowered(sketch, task)
    assert "case: Gluon" in source
    assert (
        source.count("multicast=True)") == 1 and "tma_load(b_source, [j, k], a_ready.index(slot), b_buffers" in source
    )
    assert "a_source.block_type.nbytes // CLUSTER + b_source.block_type.nbytes" in source
    divided = "(1, 0)" if sketch is SKETCH else "(0, 1)"
    assert f"{divided}, _cluster), kl_blocks(b, (1024, 4096), (BK, BN), (0, 0), _cluster)" in source
    assert "num_ctas=_cluster" in source and "_cores // _cluster" in source


@pytest.fixture(scope="module")
def sass(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Facts of the machine code of both kernels, by file."""
    if unavailable():
        pytest.skip(unavailable())
    folder = tmp_path_factory.mktemp("clusters")
    for name, sketch, task in (("rows", SKETCH, TASK), ("turned", TURNED, TURNED_TASK)):
        (folder / f"{name}.py").write_text(lowered(sketch, task))
        shapes = [(1024, 2048) if name == "turned" else (2048, 1024), (1024, 4096)]
        torch.save([torch.empty(*shape, dtype=torch.bfloat16) for shape in shapes], folder / f"{name}.pt")
    script = Path(__file__).parent / "sass_for_hopper.py"
    env = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")}
    env.pop("TRITON_INTERPRET", None)
    files = [str(folder / f"{name}.py") for name in ("rows", "turned")]
    done = subprocess.run([sys.executable, str(script), *files], capture_output=True, text=True, env=env, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return {Path(path).stem: kernels["case_asynchronous"] for path, kernels in json.loads(line).items()}


@pytest.mark.parametrize("name", ["rows", "turned"])
def test_the_sass_multicasts_where_this_triton_can_and_spills_nothing(
    sass: dict[str, dict[str, int]], name: str
) -> None:
    facts, namespace = sass[name], {}
    head = lowered(SKETCH).split("_routes = {}")[0]
    exec(head, namespace)
    assert facts["HGMMA"] and facts["UTMALDG"] and facts["UTMASTG"] == 4
    assert bool(facts["MULTICAST"]) == namespace["kl_clusters"]
    assert facts["stack"] == facts["LDL"] == facts["STL"] == 0
    assert facts["registers"] <= 168 and facts["shared"] <= 232448
