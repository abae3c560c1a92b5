"""Recognises the DSL of a source."""

from __future__ import annotations

from kernellab.dsls import ADAPTERS
from kernellab.records import Source

#: tried first, in this order: a Triton file may have C++ in a string, and CUDA is C++ too
_FIRST = ("tilelang", "triton", "cuda_c")
_LAST = ("cpp",)


def dsl_of(files: dict[str, str]) -> str | None:
    """Return the DSL whose adapter recognises the files, by imports and text alone; None if none does (plain
    PyTorch)."""
    source = Source(dsl="", files=files)
    others = [name for name in ADAPTERS if name not in (*_FIRST, *_LAST)]
    for name in (*_FIRST, *others, *_LAST):
        if name in ADAPTERS and ADAPTERS[name].recognises(source):
            return name
    return None
