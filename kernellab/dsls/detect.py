"""Which DSL is a source written in, where no one says?"""

from __future__ import annotations

from kernellab.dsls import ADAPTERS
from kernellab.records import Source

#: asked first, in this order: a Triton file may hold C++ in a string, CUDA is C++ too
_FIRST = ("tilelang", "triton", "cuda_c")
_LAST = ("cpp",)


def dsl_of(files: dict[str, str]) -> str | None:
    """The DSL whose adapter recognises the files, by imports and text alone; None when none does (plain PyTorch)."""
    source = Source(dsl="", files=files)
    others = [name for name in ADAPTERS if name not in (*_FIRST, *_LAST)]
    for name in (*_FIRST, *others, *_LAST):
        if name in ADAPTERS and ADAPTERS[name].recognises(source):
            return name
    return None
