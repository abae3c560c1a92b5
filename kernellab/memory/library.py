"""A library of kernels for all classes of operators, made and verified by kernellab, next to this module.

``library.jsonl`` has one kernel per line with its two vectors (float16, base64), so that nothing is captured when it is
read. ``python tools/make_library.py`` makes it. Its figures apply to the machine named in each entry: elsewhere an
entry is labelled as an example or a start, and never a result.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernellab.errors import MemoryStoreError
from kernellab.memory.records import Kernel
from kernellab.memory.tables import Row

if TYPE_CHECKING:
    from kernellab.memory.memory import Memory

FILE = Path(__file__).with_name("library.jsonl")


def version(file: Path = FILE) -> str:
    """A hash of the library's file; "" if there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file.exists() else ""


def shipped(file: Path = FILE) -> Iterator[Row]:
    """The library's kernels; empty if there is no library."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        row = json.loads(line)
        yield Row(Kernel.model_validate(row["kernel"]), decoded(row["logic"]), decoded(row["shape"]))


def write(rows: Iterable[Row], file: Path = FILE) -> int:
    """Write the library, ordered by its kernels' names. Return their number."""
    lines = [
        json.dumps({"kernel": row.kernel.model_dump(mode="json", exclude_defaults=True), "logic": encoded(row.logic),
                    "shape": encoded(row.shape)}, sort_keys=True)
        for row in sorted(rows, key=lambda r: (r.kernel.operator_class, r.kernel.name))
    ]  # fmt: skip
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def seed(memory: Memory) -> int:
    """Store the library in ``memory`` unless this version is present. Return the number of stored kernels.

    Raises:
        MemoryStoreError: this installation has no library.
    """
    current_version = version()
    if not current_version:
        raise MemoryStoreError(
            "This installation carries no library of kernels.",
            "Make one on this machine: tools/make_library.py --work FOLDER, then the same with --write.",
        )
    if any(e.kind == "seeded" and e.version == current_version for e in memory.events()):
        return 0
    return memory.seed(shipped(), current_version)


def encoded(vector: np.ndarray) -> str:
    """Encode a vector for the library's file: float16, base64."""
    return base64.b64encode(vector.astype(np.float16).tobytes()).decode()


def decoded(text: str) -> np.ndarray:
    """Decode a vector of the library's file, as float32."""
    return np.frombuffer(base64.b64decode(text), dtype=np.float16).astype(np.float32)


__all__ = ["decoded", "encoded", "seed", "shipped", "version", "write"]
