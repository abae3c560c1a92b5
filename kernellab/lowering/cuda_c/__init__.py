"""Sketch -> CUDA C++: a .cu file for each sketch, kl_cuda.h, and kernel.py that compiles and launches them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.resources import files

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.helpers import defined_helpers, used_helpers
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.cuda_c.host import CudaHost
from kernellab.lowering.cuda_c.kernel import RESERVED, KernelWriter, Written
from kernellab.lowering.kernel_cache import remembered
from kernellab.lowering.library_call import own_kernels
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Kernel, Program
from kernellab.target import Target

HEADER = "kl_cuda.h"
#: functions that few kernels need, appended to the header of those
SPECIAL = "kl_special.h"


def lower_cuda_c(program: Program, binding: Binding, target: Target) -> Source:
    """CUDA C++ that computes what ``program`` means; needs torch, NumPy and cuda-core, and a GPU to import.

    Raises:
        LoweringError: a statement that has no CUDA-C form here, with its line.
    """
    extents = {c.name for c in program.constexprs if c.is_extent}
    runtime = tuple(n for n in binding.scalars if n not in extents)
    consts = {n: int(v) for n, v in binding.constexpr.items() if n not in runtime and float(v).is_integer()}
    consts |= binding.fixed
    sources: dict[str, str] = {}
    lines: dict[str, dict[int, int]] = {}
    kernels = []
    constants = {c.name for c in program.constexprs} | set(program.symbols)
    for kernel in own_kernels(program):
        if kernel.name in constants:  # both stand at the top of the file
            raise LoweringError(f"The sketch {kernel.name!r} has the name of a constant.", "Rename the sketch.")
        key = ("cuda_c", kernel.name, runtime)
        writer, written = remembered(program, key, consts, partial(_write, program, kernel, runtime))
        given = ", ".join([*written.constants, "V", "THREADS"])
        about = [
            f"// {kernel.name}: a block for each iteration of the parallel loops. Written from a kernellab sketch.",
            f"// kernel.py compiles in {given} (V elements move at once).",
        ]
        file = f"{kernel.name}.cu"
        sources[file] = "\n".join(about) + "\n" + writer.text
        lines[file] = {n + len(about): line for n, line in writer.line_map.items()}
        kernels.append(written)
    spelled = {n: f"{n}_" for n in RESERVED}
    return Source(
        dsl="cuda_c",
        files={
            "kernel.py": CudaHost(program, binding, kernels, spelled).source(),
            **sources,
            HEADER: _header(program),
        },
        entry_file="kernel.py",
        entry="kernel",
        line_map=lines,
    )


def _write(
    program: Program, kernel: Kernel, runtime: tuple[str, ...], consts: Mapping[str, int]
) -> tuple[Writer, Written]:
    writer = Writer(program.text, index_lines(program, kernel))
    try:
        return writer, KernelWriter(program, kernel, consts, runtime).write(writer)
    except LoweringError as error:
        if error.line:
            raise
        raise LoweringError(f"In sketch {kernel.name!r}: {error.message}", error.remedy) from error


def _header(program: Program) -> str:
    text, special = ((files("kernellab.lowering.cuda_c") / name).read_text() for name in (HEADER, SPECIAL))
    return f"{text}\n{special}" if used_helpers(program) & defined_helpers(special) else text


__all__ = ["HEADER", "lower_cuda_c"]
