"""A person's searches in the memory: by a task's computation, or by words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kernellab.capture import capture
from kernellab.capture.family import family_of
from kernellab.content import WORKSPACE, find_workspace, written
from kernellab.dsls import get_adapter
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, MemoryStoreError, ModelError
from kernellab.memory.features import Features, features
from kernellab.memory.layers import LIBRARY
from kernellab.memory.library import decoded, encoded
from kernellab.memory.memory import Memory
from kernellab.memory.recall import place_named
from kernellab.memory.records import Kernel
from kernellab.memory.retrieval import Query
from kernellab.memory.stale import stale
from kernellab.memory.tables import Row, text_of
from kernellab.memory.texts import Embedder, Texts, fused
from kernellab.options.memory import memory_defaults
from kernellab.task import Task, load_task

#: Version of the features' definition.
_VERSION = 1
#: Maximum number of tasks with stored features; the newest.
_MOST = 200


class Computation(NamedTuple):
    """A task's features and its class of operators."""

    features: Features
    family: str


def _computation(task: Task, words: Sequence[str]) -> Computation:
    graph = capture(task)
    return Computation(features(task, graph, words=words), family_of(graph).value)


class FeatureCache:
    """Cached features of a workspace's task files by their texts; an unreadable cache file counts as empty."""

    def __init__(self, workspace: Path) -> None:
        self._file = workspace / WORKSPACE / "features.json"

    def get(self, text: str) -> Computation | None:
        """Return the computation of a task's text; None if it was not captured yet."""
        row = self._read().get(_key(text))
        if row is None:
            return None
        with suppress(KeyError, TypeError, ValueError):
            logic, shape = decoded(row["logic"]), decoded(row["shape"])
            return Computation(Features(row["hash"], {}, {}, logic, shape, row["dtype"]), row["family"])
        return None

    def put(self, text: str, computation: Computation) -> None:
        """Store the computation of a task's text; does nothing if the workspace is not writable."""
        features = computation.features
        row = {
            "hash": features.hash, "dtype": features.dtype, "family": computation.family,
            "logic": encoded(features.logic), "shape": encoded(features.shape),
        }  # fmt: skip
        entries = {**self._read(), _key(text): row}
        with suppress(OSError, KernellabError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            written(self._file, json.dumps(dict(list(entries.items())[-_MOST:])))

    def _read(self) -> dict[str, dict[str, str]]:
        with suppress(OSError, ValueError):
            entries = json.loads(self._file.read_text(encoding="utf-8"))
            return entries if isinstance(entries, dict) else {}
        return {}


def _key(text: str) -> str:
    # another version may name computations differently
    return hashlib.sha256(f"{_VERSION}\0{text}".encode()).hexdigest()[:20]


#: Number of rows that a search by words reads per shown row: of one computation only one is shown.
_MORE = 6


@dataclass(frozen=True)
class Found:
    """An entry as a search shows it; a search by words has no scores."""

    kernel: Kernel
    why: str
    score: float | None = None
    logic: float | None = None
    shape: float | None = None
    value: float | None = None
    relaxed: tuple[str, ...] = ()
    #: Why its figures do not apply on this machine; "" if they do.
    stale: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data."""
        scores = {"logic": self.logic, "shape": self.shape, "value": self.value, "score": self.score}
        kernel = self.kernel
        return {
            "id": kernel.id, "task": kernel.name, "why": self.why, "relaxed": list(self.relaxed), "scores": scores,
            "speedup": kernel.measured.speedup, "sketch": kernel.sketch, "dsl": kernel.dsl, "chip": kernel.chip,
            "stale": self.stale, "thumb": kernel.thumb, "pinned": kernel.pinned,
            "draft": kernel.draft.model_dump(), "refine": kernel.refine.model_dump(),
            "provenance": kernel.provenance.model_dump(mode="json"),
        }  # fmt: skip


def open_memory(workspace: Path, uri: str = "") -> Memory:
    """Open the memory at ``uri``, otherwise the one in ``kernellab.toml``, otherwise the workspace's own.

    Raises:
        MemoryStoreError: it cannot be opened. SessionError: the file is invalid.
    """
    return Memory.open(workspace, uri or place_named(memory_defaults(workspace).use))


def by_task(
    memory: Memory, task: Task, dsl: str = "", k: int = 5, leave_out: bool = False, words: Sequence[str] = ()
) -> list[Found]:
    """Return kernels of computations like ``task``'s; ``leave_out`` excludes the same computation. ``words`` are
    operations in addition to the graph's. Raises CaptureError, TargetError if there is no such DSL."""
    return _nearest(memory, _computation(task, words), dsl, k, leave_out)


def by_file(
    memory: Memory, path: Path, dsl: str = "", k: int = 5, leave_out: bool = False, words: Sequence[str] = ()
) -> list[Found]:
    """Like :func:`by_task`, for a task's file. Captured features are cached; with them torch is not imported.

    Raises:
        TaskError, CaptureError, TargetError.
    """
    cache = FeatureCache(find_workspace())
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    computation = None if words else cache.get(text)
    if computation is None:
        computation = _computation(load_task(path), words)
        if not words:
            cache.put(text, computation)
    return _nearest(memory, computation, dsl, k, leave_out)


def _nearest(memory: Memory, computation: Computation, dsl: str, k: int, leave_out: bool) -> list[Found]:
    if dsl:
        get_adapter(dsl)
    # a machine without the device still finds kernels from other machines
    host = (machine(dsl) if dsl else None) or Host()
    without = (computation.features.hash,) if leave_out else ()
    query = Query(
        computation.features, dsl, host.backend, computation.family, host.chip, without=without, distinct=True
    )  # fmt: skip
    hits = [hit.on(stale_here(hit.kernel), _family(hit.kernel.dsl)) for hit in memory.search(query, k)]
    return [Found(h.kernel, h.why, h.score, h.logic, h.shape, h.value, h.relaxed, h.stale) for h in hits]


def by_words(
    memory: Memory, words: str, k: int = 5, embedder: Callable[[], Embedder] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Found]:  # fmt: skip
    """Return kernels whose name, operations or rationale contain ``words``, best first.

    With an ``embedder``, texts with a similar meaning count too; after a fault of it only the words count, and ``tell``
    receives the fault.
    """
    rows = memory.layered.words(words, _MORE * k)
    # of one computation in one DSL only the first
    rows = list({(row.kernel.graph, row.kernel.dsl): row for row in reversed(rows)}.values())[::-1][:k]
    by_id = {row.kernel.id: row for row in rows}
    ranked = list(by_id)
    own_store = memory.own
    if embedder is not None and own_store is not None:
        try:
            entries = ((row.kernel.id, text_of(row.kernel)) for row in own_store.kernels())
            nearest_ids = Texts(own_store.uri, embedder()).nearest(words, entries, k, tell)
            ranked = fused(ranked, nearest_ids)[:k]
        except (ModelError, MemoryStoreError) as error:
            tell(f"Words alone: {error}")
    for id in ranked:
        row = None if id in by_id or own_store is None else own_store.get(id)
        if row is not None:
            by_id[id] = row
    hits = [(by_id[id], stale_here(by_id[id].kernel)) for id in ranked if id in by_id]
    return [
        Found(row.kernel, f"{row.kernel.name}: {figures(row.kernel, stale)}{_layer(row)}", stale=stale)
        for row, stale in hits
    ]


def figures(kernel: Kernel, old: str = "") -> str:
    """The figures, such as ``cpp on a CPU, 1.50x eager, T2``, and why they do not apply here, if so."""
    speedup = kernel.measured.speedup
    speedup_text = f"{speedup:.2f}x {kernel.measured.baseline}" if speedup is not None else "not compared"
    stale = f", stale: {old}" if old else ""
    return f"{kernel.dsl} on {kernel.chip}, {speedup_text}, {kernel.measured.trust.value}{stale}"


def stale_here(kernel: Kernel) -> str:
    """Why the kernel's figures do not apply on this machine; "" if they do."""
    return kernel.stale or stale_of(kernel)


def stale_of(kernel: Kernel) -> str:
    """Like :func:`stale_here`, without the entry's own mark."""
    host = machine(kernel.dsl) or Host(chip="no device of this machine")
    return stale(kernel, host.chip, None, host.family)


def _layer(row: Row) -> str:
    verified = "" if row.layer in ("", LIBRARY) else ", not verified here"
    return f", in {row.layer}{verified}" if row.layer else ""


class Host(NamedTuple):
    """Where a DSL runs on this machine; empty if that is unknown."""

    backend: str = ""
    chip: str = ""
    family: str = ""


@lru_cache(maxsize=8)
def machine(dsl: str) -> Host | None:
    """Where the DSL runs here; None if this machine has no such device."""
    try:
        target = detect_target(dsl, rates=False)
    except KernellabError:
        return None
    return Host(target.backend.value, target.chip.name, target.chip.family)


def _family(dsl: str) -> str:
    host = machine(dsl)
    return host.family if host else ""


__all__ = ["Found", "by_file", "by_task", "by_words", "figures", "machine", "open_memory", "stale_here", "stale_of"]
