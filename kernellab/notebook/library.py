"""The headers that lowered C++ and CUDA-C stand on, told from a source's own files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from kernellab.records import Source


def own_files(source: Source) -> dict[str, str]:
    """The files without our own library headers as they come: those are the same for every kernel, and long."""
    return {name: text for name, text in source.files.items() if not is_library(name, text)}


def is_library(name: str, text: str) -> bool:
    """Is a file such a header, unchanged?"""
    return library().get(name) == text


@lru_cache(maxsize=1)
def library() -> dict[str, str]:
    """Each header's text by its name."""
    import kernellab.lowering

    folder = Path(kernellab.lowering.__file__).parent
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*/*.h"))}


__all__ = ["is_library", "library", "own_files"]
