"""The built-in suite's tasks as entries of a memory; their features are kept in a file: capturing takes minutes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernellab.bench.suites import load_suite
from kernellab.capture import capture
from kernellab.capture.family import family_of
from kernellab.errors import KernellabError
from kernellab.memory.features import Features, features
from kernellab.memory.records import Kernel, Measured, Provenance
from kernellab.memory.store import Row
from kernellab.records import Source, Trust
from kernellab.task import load_task


@dataclass(frozen=True)
class Entry:
    """A task with its features; ``folder`` is the suite's name for its class of operators."""

    name: str
    folder: str
    family: str
    text: str
    features: Features

    @property
    def key(self) -> str:
        return f"{self.folder}/{self.name}"


def builtin(cache: Path) -> list[Entry]:
    """Every task of the built-in suite that can be captured."""
    if cache.exists():
        found: list[Entry] = pickle.loads(cache.read_bytes())
        return found
    entries = []
    for task in load_suite("builtin"):
        try:
            loaded = load_task(task.text, task.name)
            graph = capture(loaded)
            family = family_of(graph).value
            entries.append(Entry(task.name, task.category, family, task.text, features(loaded, graph)))
        except KernellabError as error:
            print(f"{task.name} is left out: {error.message}")
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_bytes(pickle.dumps(entries))
    return entries


def row(entry: Entry, number: int = 0, rng: np.random.Generator | None = None, noise: float = 0.0) -> Row:
    """The entry as a row; with ``noise`` a neighbour of it: its vectors with that much Gaussian noise."""
    logic, shape = entry.features.logic, entry.features.shape
    if rng is not None:
        logic = logic + noise * rng.normal(size=logic.shape).astype(np.float32) / np.sqrt(len(logic))
        logic = logic / np.linalg.norm(logic)
        shape = shape + 0.1 * rng.normal(size=shape.shape).astype(np.float32)
    dsls = (("cpp", "cpu", "a CPU"), ("triton", "cuda", "a GPU"), ("cuda_c", "cuda", "another GPU"))
    dsl, backend, chip = dsls[number % 3]
    kernel = Kernel(
        name=entry.key, task=entry.key, graph=f"{entry.features.hash}{number or ''}", operator_class=entry.family,
        words=tuple(sorted({w.split(' ')[0] for w in entry.features.words})), dsl=dsl, backend=backend, chip=chip,
        dtype=entry.features.dtype, source=Source(dsl=dsl, files={"kernel.py": f"# {entry.name} {number}\n" * 20}),
        measured=Measured(trust=Trust.T2, speedup=1.5), sketch=f"sketch {entry.name} {number}",
        provenance=Provenance(origin="library", created=1.0),
    )  # fmt: skip
    return Row(kernel, logic, shape)
