"""Sketch -> CUDA C++: a .cu file for each sketch, kl_cuda.h, and kernel.py that compiles and launches them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.resources import files

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.helpers import defined_helpers, used_helpers
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.cuda_c.kernel import RESERVED, KernelWriter, Written
from kernellab.lowering.gpu_host import GpuHost
from kernellab.lowering.kernel_cache import remembered
from kernellab.lowering.library_call import own_kernels
from kernellab.lowering.python_text import tidy
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Kernel, Program
from kernellab.target import Target

HEADER = "kl_cuda.h"
#: functions that few kernels need, appended to the header of those kernels
SPECIAL = "kl_special.h"


def lower_cuda_c(program: Program, binding: Binding, target: Target) -> Source:
    """Return CUDA C++ source that computes ``program``; it needs torch, NumPy and cuda-core, and a GPU to import.

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
        if kernel.name in constants:  # both are at the top of the file
            raise LoweringError(f"The sketch {kernel.name!r} has the name of a constant.", "Rename the sketch.")
        key = ("cuda_c", kernel.name, runtime)
        writer, written = remembered(program, key, consts, partial(_write, program, kernel, runtime))
        compiled_in = ", ".join([*written.constants, "V", "THREADS"])
        about = [
            f"// {kernel.name}: a block for each iteration of the parallel loops. Written from a kernellab sketch.",
            f"// kernel.py compiles in {compiled_in} (V elements move at once).",
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
    return f"{text}\n{special}" if used_helpers(program, "cuda_c") & defined_helpers(special) else text


__all__ = ["HEADER", "lower_cuda_c"]


# -- host --------------------------------------------------------------------------------------------------------------


#: most elements of the largest tile that one thread holds; a product's tile has room for more
_SHARE = 32
#: if the sketch has no num_warps
_FREE_SHARE = 8
_PRODUCT_SHARE = 64
#: bytes that a thread moves in one access, and the most elements
_VECTOR_BYTES = 16
_MOST_WIDE = 8


class CudaHost:
    """The host function; each kernel is compiled by NVRTC at its first launch."""

    def __init__(self, program: Program, binding: Binding, kernels: list[Written], spelled: Mapping[str, str]) -> None:
        self.host = GpuHost(program, binding)
        self.written = kernels
        self.spelled = spelled

    def source(self) -> str:
        """Return the text of kernel.py."""
        title = f'"""{", ".join(k.name for k in self.written)}: written from a kernellab sketch."""\n\n'
        preamble = (files("kernellab.lowering.cuda_c") / "launch.py.in").read_text()
        return title + preamble + self.host.write(self._launches)

    def _launches(self) -> None:
        self.host.in_order({k.name: partial(self._start, k) for k in self.written})

    def _start(self, k: Written) -> None:
        blocks = " * ".join(f"({self.host.int_text(t)})" for t in k.grid.trips) or "1"
        constants = ", ".join(f'"{self.spelled.get(n, n)}": {n}' for n in k.constants)
        sizes = list(dict.fromkeys(self.host.int_text(e) for e in k.largest)) or ["1"]
        elements = f"max({', '.join(sizes)})" if len(sizes) > 1 else sizes[0]
        declared = self.host.program.declares(k.name, "num_warps")
        share = _PRODUCT_SHARE if k.is_product else _SHARE if declared else _FREE_SHARE
        warps = "num_warps" if declared else ("4" if k.is_product else "1")
        multiples = ", ".join(dict.fromkeys(self.host.int_text(e) for e in k.wishes.numbers.values()))
        most = min(_MOST_WIDE, _VECTOR_BYTES // k.narrowest) if k.wishes.numbers else 1
        most = min(most, 4) if k.is_product else most
        self.host.put(f"# {k.name}: a block for each iteration over {', '.join(k.grid.vars) or 'nothing'}")
        self.host.put(f"threads = _block({warps}, {elements}, {share})")
        self.host.put(f"width = _width({most}, [{multiples}], [{', '.join(k.wishes.tensors)}])")
        lists = [f"[{', '.join(names)}]" for names in (k.tensors, k.symbols, k.numbers)]
        self.host.put(f'_run("{k.name}", {tidy(blocks)}, {", ".join(lists)}, {{{constants}}}, threads, width)')
