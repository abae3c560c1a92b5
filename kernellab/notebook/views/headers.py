"""The headers that lowered C++ and CUDA C++ stand on, told from a source's own files."""

from __future__ import annotations

from functools import lru_cache

from kernellab.lowering.headers import headers, without_headers
from kernellab.records import Source


def own_files(source: Source) -> dict[str, str]:
    """The files without our own library headers as they come: those are the same for every kernel, and long."""
    return without_headers(source).files


def is_library(name: str, text: str) -> bool:
    """Is a file such a header, unchanged?"""
    return any(headers(dsl).get(name) == text for dsl in ("cpp", "cuda_c"))


@lru_cache(maxsize=1)
def library() -> dict[str, str]:
    """Each header's text by its name, C++'s where CUDA C++ has one of the same name."""
    return {**headers("cuda_c"), **headers("cpp")}


__all__ = ["is_library", "library", "own_files"]
