"""Twenty-four operators with a kernel written by hand for each, fixed before a search saw them.

Twelve in C++ and twelve in Triton: products with epilogues, gates, scans, stencils, segments, few bits, attention. The
kernels know the one shape of their task, as a person's kernel for a model does. ``tests.evolve.figures --hand``
searches the same tasks and times what it calls its best next to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.records import Author, Source

#: how a C++ kernel of the set is built; what it sums it says itself
_FLAGS = '["-O3", "-march=native", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]'


@dataclass(frozen=True)
class Hand:
    """A task's text, and the kernel as Python."""

    task: str
    kernel: str

    def source(self, dsl: str) -> Source:
        return Source(dsl=dsl, files={"kernel.py": self.kernel}, origin=Author.HUMAN)


def task(reference: str, inputs: str) -> str:
    """A task of one shape: the lines of its reference, and what ``inputs`` returns."""
    lines = "\n".join(f"    {line}" for line in inputs.strip().splitlines())
    return f"import torch\nimport torch.nn.functional as F\n\n\n{reference.strip()}\n\n\ndef inputs():\n{lines}\n"


def in_cpp(code: str, function: str, kernel: str) -> str:
    """Python that builds ``code``, which defines ``function``, and the lines of ``kernel`` that call it."""
    from tests.evolve.hand.cpp_head import HEAD

    return (
        f'import torch\nimport tvm_ffi.cpp\n\nCODE = r"""{HEAD}{code}"""\n'
        f'module = tvm_ffi.cpp.load_inline(\n    name="{function}", cpp_sources=CODE, functions="{function}",\n'
        f'    extra_cflags={_FLAGS}, extra_ldflags=["-fopenmp"],\n)\n\n\n{kernel.strip()}\n'
    )


def in_triton(code: str) -> str:
    """Python with Triton's imports."""
    return f"import torch\nimport triton\nimport triton.language as tl\n\n\n{code.strip()}\n"
