"""Operations of a person on the memory, shared by the notebook and the command line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from kernellab.capture import capture
from kernellab.content import written
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, MemoryStoreError
from kernellab.lowering.headers import with_headers
from kernellab.memory import search
from kernellab.memory.memory import Memory
from kernellab.memory.records import Kernel, Provenance
from kernellab.memory.search import Found, by_task, figures, machine, open_memory, stale_here, stale_of
from kernellab.memory.texts import open_embedder
from kernellab.options.memory import memory_defaults
from kernellab.session.config import model_settings
from kernellab.session.memory_export import Machine, carrying, is_worth, kernel_of
from kernellab.task import load_task
from kernellab.verifier import Verifier


def by_words(
    memory: Memory, words: str, k: int = 5, workspace: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> list[Found]:
    """Search like :func:`kernellab.memory.search.by_words`, with the embedding model of ``[memory] embed``, if any."""
    embed = memory_defaults(workspace).embed if workspace is not None else ""
    embedder = partial(open_embedder, embed, model_settings(workspace)) if embed and workspace is not None else None
    return search.by_words(memory, words, k, embedder, tell)


def stats(memory: Memory) -> dict[str, int]:
    """Return the number of entries by table, DSL and class of operators."""
    kernels = [row.kernel for row in memory.store.kernels()]
    columns = Counter(word for k in kernels for word in (k.dsl, k.operator_class or "other"))
    return {**memory.store.count(), **dict(sorted(columns.items())), "stale": sum(bool(stale_here(k)) for k in kernels)}


def export(memory: Memory, out: Path) -> int:
    """Write every kernel as a JSON line that :mod:`kernellab.session.importing` reads. Return their number.

    Raises:
        KernellabError: the file cannot be written.
    """
    texts = {event.kernel.id: event.text for event in memory.events() if event.kind == "remembered"}
    # changes by use and by people are only in the store
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
    """Update every entry's stale mark: stale if measured on another machine or with other versions."""
    return memory.mark_stale(stale_of)


def to_verify(memory: Memory, library: bool = False) -> list[str]:
    """Ids of stale entries that this machine can judge and has not judged yet; ``library``: including shipped ones."""
    own_ids = {event.kernel.id for event in memory.events() if event.kind == "remembered"}
    kernels = {row.kernel.id: row.kernel for row in memory.store.kernels()}
    ids = []
    for id, kernel in kernels.items():
        place = machine(kernel.dsl)
        if place is None or not stale_here(kernel) or (id not in own_ids and not library):
            continue
        local_kernel = kernels.get(kernel.model_copy(update={"chip": place[1]}).id)
        if local_kernel is None or local_kernel.id == id or stale_here(local_kernel):
            ids.append(id)
    return ids


def verify_again(
    memory: Memory, verifier: Verifier, ids: Sequence[str], tell: Callable[[str], None],
    known: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Judge entries again on this machine. An entry that passes is stored with the new figures; one that fails is
    deleted. Return the number that passed. ``known`` are texts and names of the shipped library's tasks, by place.

    Raises:
        MemoryStoreError: there is no such entry, or its task is neither in the journal nor in ``known``.
    """
    texts = {
        event.kernel.id: (event.text, event.kernel.name) for event in memory.events() if event.kind == "remembered"
    }
    passed = 0
    for id in ids:
        row = memory.layered.get(id)
        task_text = texts.get(id) or (_task_of(row.kernel, known) if row is not None else None)
        if row is None or task_text is None:
            raise MemoryStoreError(f"The task of {id!r} is not in the journal.", "`kernellab memory search` shows ids.")
        kernel = row.kernel
        try:
            task = load_task(*task_text)
            target = detect_target(kernel.dsl)
            verdict = verifier.verify(task, with_headers(kernel.source), target)
        except KernellabError as error:
            tell(f"{kernel.name}: {error.message}")
            continue
        if not is_worth(verdict):
            memory.forget(id)
            tell(f"{kernel.name} fails now and is forgotten: {verdict.reason}")
            continue
        provenance = Provenance(**{**kernel.provenance.model_dump(), "origin": "verified again"})
        judged_kernel = kernel_of(task, capture(task), kernel.source, Machine.of(target), verdict, provenance)
        memory.remember(carrying(judged_kernel, kernel), task.text)
        tell(f"{kernel.name}: {figures(judged_kernel)}")
        passed += 1
    return passed


def _task_of(kernel: Kernel, known: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    return (kernel.text, kernel.name) if kernel.text else known.get(kernel.provenance.place)


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
