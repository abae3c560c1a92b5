"""What a person does with the memory, the same for the notebook and the command line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernellab.capture import capture
from kernellab.capture.family import family_of
from kernellab.content import written
from kernellab.dsls import get_adapter
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, MemoryStoreError, ModelError
from kernellab.lowering.headers import with_headers
from kernellab.memory.embedding import open_embedder
from kernellab.memory.features import features
from kernellab.memory.memory import Memory
from kernellab.memory.recall import place_named
from kernellab.memory.records import Kernel, Provenance
from kernellab.memory.retrieval import Query
from kernellab.memory.stale import stale
from kernellab.memory.tables import text_of
from kernellab.memory.texts import Texts, fused
from kernellab.session.config import memory_defaults, model_settings
from kernellab.session.memory_export import is_worth, kernel_of
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier


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
    #: why its figures do not hold on this machine; "" where they do
    stale: str = ""

    def as_dict(self) -> dict[str, Any]:
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
    """The memory at ``uri``; else the one that ``kernellab.toml`` names, else the workspace's own.

    Raises:
        MemoryStoreError: it cannot be opened. SessionError: the file is wrong.
    """
    return Memory.open(workspace, uri or place_named(memory_defaults(workspace).use))


def by_task(
    memory: Memory, task: Task, dsl: str = "", k: int = 5, leave_out: bool = False, said: Sequence[str] = ()
) -> list[Found]:
    """Kernels of computations like ``task``'s; ``leave_out`` those of the same. ``said`` are operations that somebody
    names in addition to the graph's. Raises CaptureError, TargetError: there is no such DSL."""
    if dsl:
        get_adapter(dsl)
    graph = capture(task)
    seen = features(task, graph, said=said)
    # a machine without the device still finds what was made for it elsewhere
    backend, chip = (dsl and _machine(dsl)) or ("", "")
    query = Query(
        seen, dsl, backend, family_of(graph).value, chip, without=(seen.hash,) if leave_out else ()
    )  # fmt: skip
    hits = [hit.on(stale_here(hit.kernel)) for hit in memory.search(query, k)]
    return [Found(h.kernel, h.why, h.score, h.logic, h.shape, h.value, h.relaxed, h.stale) for h in hits]


def by_words(
    memory: Memory, words: str, k: int = 5, workspace: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> list[Found]:
    """Kernels whose name, operations or rationale hold ``words``, best first.

    Where ``[memory] embed`` of the ``workspace`` names an embedding model, what means nearly the same counts as well;
    a fault of that model leaves the words alone, and ``tell`` is given it.
    """
    found = {row.kernel.id: row.kernel for row in memory.store.words(words, k)}
    ranked = list(found)
    embed = memory_defaults(workspace).embed if workspace is not None else ""
    if embed and workspace is not None:
        try:
            embedder = open_embedder(embed, model_settings(workspace))
            entries = ((row.kernel.id, text_of(row.kernel)) for row in memory.store.kernels())
            near = Texts(memory.store.uri, embedder).nearest(words, entries, k, tell)
            ranked = fused(ranked, near)[:k]
        except (ModelError, MemoryStoreError) as error:
            tell(f"Words alone: {error}")
    for id in ranked:
        row = None if id in found else memory.store.get(id)
        if row is not None:
            found[id] = row.kernel
    told = [(found[id], stale_here(found[id])) for id in ranked if id in found]
    return [Found(kernel, f"{kernel.name}: {figures(kernel, old)}", stale=old) for kernel, old in told]


def figures(kernel: Kernel, old: str = "") -> str:
    """``cpp on a CPU, 1.50x eager, T2``, and why they do not hold here where they do not."""
    speedup = kernel.measured.speedup
    fast = f"{speedup:.2f}x {kernel.measured.baseline}" if speedup is not None else "not compared"
    stale = f", stale: {old}" if old else ""
    return f"{kernel.dsl} on {kernel.chip}, {fast}, {kernel.measured.trust.value}{stale}"


def stats(memory: Memory) -> dict[str, int]:
    """How many entries there are, by table, DSL and class of operators."""
    kernels = [row.kernel for row in memory.store.kernels()]
    columns = Counter(word for k in kernels for word in (k.dsl, k.operator_class or "other"))
    return {**memory.store.count(), **dict(sorted(columns.items())), "stale": sum(bool(stale_here(k)) for k in kernels)}


def export(memory: Memory, out: Path) -> int:
    """Write every kernel as a JSON line that :mod:`kernellab.session.importing` reads; how many.

    Raises:
        KernellabError: the file cannot be written.
    """
    texts = {event.kernel.id: event.text for event in memory.events() if event.kind == "remembered"}
    lines = [
        json.dumps({
            "task": texts[row.kernel.id], "name": row.kernel.name, "dsl": row.kernel.dsl,
            "files": row.kernel.source.files, "licence": row.kernel.provenance.licence,
            "entry": row.kernel.model_dump(mode="json", exclude={"source"}),
        })
        for row in memory.store.kernels() if row.kernel.id in texts  # the shipped library needs no export
    ]  # fmt: skip
    written(out, "".join(f"{line}\n" for line in lines))
    return len(lines)


def refresh(memory: Memory) -> int:
    """Mark what was measured elsewhere or with other versions as stale, and what was measured as here as not."""
    return memory.mark_stale(lambda kernel: stale(kernel, _chip(kernel.dsl)))


def stale_here(kernel: Kernel) -> str:
    """Why the kernel's figures do not hold on this machine; "" where they do."""
    return kernel.stale or stale(kernel, _chip(kernel.dsl))


def to_verify(memory: Memory, library: bool = False) -> list[str]:
    """Ids of stale entries that this machine can judge and has not judged before, ``library``: the shipped ones too."""
    own = {event.kernel.id for event in memory.events() if event.kind == "remembered"}
    held = {row.kernel.id: row.kernel for row in memory.store.kernels()}
    found = []
    for id, kernel in held.items():
        machine = _machine(kernel.dsl)
        if machine is None or not stale_here(kernel) or (id not in own and not library):
            continue
        here = held.get(kernel.model_copy(update={"chip": machine[1]}).id)
        if here is None or here.id == id or stale_here(here):
            found.append(id)
    return found


def verify_again(
    memory: Memory, verifier: Verifier, ids: Sequence[str], tell: Callable[[str], None],
    known: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Judge entries again on this machine: one that passes is remembered with today's figures, one that fails is
    forgotten. How many passed. ``known`` are texts and names of tasks of the shipped library, by their places.

    Raises:
        MemoryStoreError: there is no such entry, or its task is neither in the journal nor among ``known``.
    """
    texts = {
        event.kernel.id: (event.text, event.kernel.name) for event in memory.events() if event.kind == "remembered"
    }
    passed = 0
    for id in ids:
        row = memory.store.get(id)
        given = texts.get(id) or (known.get(row.kernel.provenance.place) if row is not None else None)
        if row is None or given is None:
            raise MemoryStoreError(f"The task of {id!r} is not in the journal.", "`kernellab memory search` shows ids.")
        kernel = row.kernel
        try:
            task = load_task(*given)
            target = detect_target(kernel.dsl)
            verdict = verifier.verify(task, with_headers(kernel.source), target)
        except KernellabError as error:
            tell(f"{kernel.name}: {error.message}")
            continue
        if not is_worth(verdict):
            memory.forget(id)
            tell(f"{kernel.name} fails now and is forgotten: {verdict.reason}")
            continue
        made = Provenance(**{**kernel.provenance.model_dump(), "origin": "verified again"})
        where = target.backend.value, target.chip.name
        again = kernel_of(task, capture(task), kernel.source, where, verdict, made)
        kept = {"sketch": kernel.sketch, "constexpr": kernel.constexpr, "rationale": kernel.rationale}
        memory.remember(again.model_copy(update=kept), task.text)
        tell(f"{kernel.name}: {figures(again)}")
        passed += 1
    return passed


@lru_cache(maxsize=8)
def _machine(dsl: str) -> tuple[str, str] | None:
    """Backend and chip on which the DSL runs here; None where this machine has no such device."""
    try:
        target = detect_target(dsl)
    except KernellabError:
        return None
    return target.backend.value, target.chip.name


def _chip(dsl: str) -> str:
    found = _machine(dsl)
    return found[1] if found else "no device of this machine"


__all__ = [
    "Found",
    "by_task",
    "by_words",
    "export",
    "figures",
    "open_memory",
    "refresh",
    "stale_here",
    "stats",
    "to_verify",
    "verify_again",
]
