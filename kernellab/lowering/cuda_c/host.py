"""kernel.py: checks the arguments, makes the outputs, compiles each .cu by NVRTC and launches it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.resources import files

from kernellab.lowering.cuda_c.kernel import Written
from kernellab.lowering.gpu_host import GpuHost
from kernellab.lowering.python_text import tidy
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Program

#: elements of the largest tile that one thread holds at most; a product's tile has room for more
_SHARE = 32
#: where the sketch says nothing of warps
_FREE_SHARE = 8
_PRODUCT_SHARE = 64
#: bytes that a thread moves at once, and the most elements
_VECTOR_BYTES = 16
_MOST_WIDE = 8


class CudaHost:
    """The host function; each kernel is compiled by NVRTC at its first launch."""

    def __init__(self, program: Program, binding: Binding, kernels: list[Written], spelled: Mapping[str, str]) -> None:
        self.host = GpuHost(program, binding)
        self.written = kernels
        self.spelled = spelled

    def source(self) -> str:
        """The whole of kernel.py."""
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
        declared = self.host.declares(k.name, "num_warps")
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


__all__ = ["CudaHost"]
