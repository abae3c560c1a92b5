"""Headers of lowered C++ and CUDA C++: their text is the same in every source, so it is stored once."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path

from kernellab.records import Source


@lru_cache(maxsize=4)
def headers(dsl: str) -> dict[str, str]:
    """Return the headers of ``dsl`` by name; empty if its lowering needs none."""
    folder = Path(str(resources.files("kernellab.lowering"))) / dsl
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.h"))}


def without_headers(source: Source) -> Source:
    """Return ``source`` without the headers that are unchanged."""
    shared = headers(source.dsl)
    return source.model_copy(update={"files": {n: text for n, text in source.files.items() if shared.get(n) != text}})


def with_headers(source: Source) -> Source:
    """Return ``source`` with every header of its DSL that its files, or those headers, include."""
    files = dict(source.files)
    while True:
        text_of_all = "\n".join(files.values())
        added = {n: text for n, text in headers(source.dsl).items() if f'"{n}"' in text_of_all and n not in files}
        if not added:
            return source.model_copy(update={"files": files})
        files |= added


__all__ = ["headers", "with_headers", "without_headers"]
