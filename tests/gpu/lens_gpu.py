"""The lens on one Triton, one CUDA and one C++ kernel of the same sketch, beside what the GPU's driver says of them.

``python tests/gpu/lens_gpu.py [--html FOLDER]``. The dry call's registers, spills and instructions must be those of the
kernel that really ran, and its occupancy the driver's; then ncu's counters, after the preflight. Prints a short table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TASK = """
import torch

def reference(x: torch.Tensor, w: torch.Tensor):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

def inputs():
    return torch.randn(8192, 4096), torch.randn(4096)
"""
SKETCH = """
sketch rms {
    tensors: x[8192, 4096]: f32; w[4096]: f32; y[8192, 4096]: f32 out;

    @llm_hint("parallel", "coreidx")
    for i in range(8192):
        load(x[i, 0:4096] -> x_tile)
        row_squares = reduce_sum(x_tile * x_tile, axis=0)
        scale = rsqrt(row_squares / 4096.0 + 1e-06)
        load(w[0:4096] -> w_tile)
        store(x_tile * scale * w_tile -> y[i, 0:4096])
}
"""
DSLS = ("triton", "cuda_c", "cpp")


def lowered(dsl: str, task: Any) -> Any:
    from kernellab.dsls.machine import cpu_chip, gpu_chip, named_chip
    from kernellab.lowering import lower
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.bind import bind
    from kernellab.target import Backend, Target

    chip = cpu_chip() if dsl == "cpp" else gpu_chip() or named_chip("h200")
    target = Target(dsl, Backend.CPU if dsl == "cpp" else Backend.CUDA, chip)
    program = load_program(SKETCH)
    return lower(program, bind(program, task, None, target), target)


def as_run(source: Any, task: Any) -> dict[str, Any]:
    """Registers, spills, instructions and blocks on an SM of the Triton kernel that really ran, from the driver."""
    import ctypes
    import importlib.util

    import torch
    from triton.compiler import CompiledKernel

    from kernellab.lens.dry.tools import disassembled
    from kernellab.lens.read.sass import instructions

    kept: list[Any] = []
    original = CompiledKernel._init_handles

    def note(self: Any) -> None:
        original(self)
        if self not in kept:
            kept.append(self)

    CompiledKernel._init_handles = note
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(source.files[source.entry_file])
        spec = importlib.util.spec_from_file_location("as_run", path)
        assert spec is not None and spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        given = [a.cuda() for a in task.module().sample()]
        out = module.kernel(*given)
        torch.cuda.synchronize()
        (wanted,) = task.module().reference(given)
        assert torch.allclose(out, wanted, rtol=1e-4, atol=1e-4)
    (kernel,) = kept
    blocks = ctypes.c_int()
    error = ctypes.CDLL("libcuda.so.1").cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(blocks), ctypes.c_void_p(kernel.function), kernel.metadata.num_warps * 32,
        ctypes.c_size_t(kernel.metadata.shared),
    )  # fmt: skip
    assert error == 0
    return {
        "registers": kernel.n_regs, "spills": kernel.n_spills, "blocks": blocks.value,
        "instructions": instructions(disassembled(kernel.asm["cubin"])),
    }  # fmt: skip


def check(lens: Any, run: dict[str, Any]) -> list[str]:
    """What the dry call says otherwise than the driver."""
    facts = {fact.name: fact for fact in lens.facts}
    sass = [line.strip() for line in lens.level("sass").text.split("\n") if line.startswith("    ")]
    wrong = []
    if facts["registers"].value != str(run["registers"]):
        wrong.append(f"registers {facts['registers'].value}, the driver says {run['registers']}")
    if (facts["spills"].value != "0 B") != bool(run["spills"]):
        wrong.append(f"spills {facts['spills'].value}, the driver says {run['spills']}")
    if not facts["occupancy"].sentence.startswith(f"{run['blocks']} blocks"):
        wrong.append(f"occupancy: {facts['occupancy'].sentence}; the driver says {run['blocks']} blocks")
    if sass != run["instructions"]:
        wrong.append(f"{len(sass)} instructions differ from the {len(run['instructions'])} that ran")
    return wrong


def main() -> int:
    from kernellab.lens import look
    from kernellab.lens.counters.preflight import preflight
    from kernellab.lens.counters.read import counters
    from kernellab.lens.page import page
    from kernellab.task import load_task

    parser = argparse.ArgumentParser()
    parser.add_argument("--html", type=Path)
    args = parser.parse_args()
    begun, failed = time.perf_counter(), 0
    task = load_task(TASK, "rms")
    sources = {dsl: lowered(dsl, task) for dsl in DSLS}

    def timed(dsl: str) -> tuple[Any, float]:
        start = time.perf_counter()
        try:
            return look(sources[dsl], task), time.perf_counter() - start
        except Exception:
            traceback.print_exc()
            return None, time.perf_counter() - start

    with ThreadPoolExecutor(3) as pool:
        found = dict(zip(DSLS, pool.map(timed, DSLS), strict=True))
    for dsl, (lens, seconds) in found.items():
        if lens is None:
            failed += 1
            continue
        print(f"\n== {dsl}: {lens.target}, {seconds:.1f} s")
        for level in lens.levels:
            linked = f"{len(level.up)} linked to {len(level.down)} lines of {lens.file}"
            print(f"  {level.name:7}{level.text.count(chr(10)) + 1:6} lines, {linked}")
        for fact in lens.facts:
            print(f"  {fact.name:22}{fact.value:>16}  {fact.sentence}")
        for note in lens.notes:
            print(f"  - {note}")
        if args.html:
            args.html.mkdir(parents=True, exist_ok=True)
            (args.html / f"{dsl}.html").write_text(page(f"RMS norm, {dsl}", [lens]))
    try:
        wrong = check(found["triton"][0], as_run(sources["triton"], task))
        print(
            "\n== dry call against the driver:",
            "; ".join(wrong) or "the same registers, spills, blocks and instructions",
        )
        failed += len(wrong)
    except Exception:
        traceback.print_exc()
        failed += 1
    ready = preflight()
    print(f"\n== preflight: {ready.ncu or f'{ready.reason} {ready.remedy}'}")
    for dsl in ("triton", "cuda_c") if ready.ncu else ():
        try:
            for fact in counters(sources[dsl], task, unsandboxed=True):
                print(f"  {dsl:8}{fact.name:18}{fact.value:>14}  {fact.sentence}")
        except Exception as error:
            print(f"  {dsl:8}{error}")
    print(f"\n{time.perf_counter() - begun:.0f} s in all, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
