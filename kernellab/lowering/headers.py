"""The headers that lowered C++ and CUDA C++ stand on: the same text in every source, so no one keeps them twice."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from kernellab.records import Source


@lru_cache(maxsize=4)
def headers(dsl: str) -> dict[str, str]:
    """The headers of ``dsl`` by name; none where its lowering needs none."""
    folder = Path(str(files("kernellab.lowering"))) / dsl
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.h"))}


def without_headers(source: Source) -> Source:
    """``source`` without the headers that are as they come."""
    come = headers(source.dsl)
    return source.model_copy(update={"files": {n: text for n, text in source.files.items() if come.get(n) != text}})


def with_headers(source: Source) -> Source:
    """``source`` with every header of its DSL that its files, or those headers, include."""
    held = dict(source.files)
    while True:
        told = "\n".join(held.values())
        added = {n: text for n, text in headers(source.dsl).items() if f'"{n}"' in told and n not in held}
        if not added:
            break
        held |= added
    return source.model_copy(update={"files": held})


__all__ = ["headers", "with_headers", "without_headers"]
