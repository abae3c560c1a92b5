"""What a person does with the memory, the same for the notebook and the command line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.capture import capture
from kernellab.capture.family import family_of
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, MemoryStoreError, ModelError
from kernellab.lowering.headers import with_headers
from kernellab.memory.embedding import open_embedder
from kernellab.memory.features import features
from kernellab.memory.memory import Memory
from kernellab.memory.records import Kernel, Provenance
from kernellab.memory.retrieval import Query
from kernellab.memory.stale import stale
from kernellab.memory.tables import text_of
from kernellab.memory.texts import Texts, fused
from kernellab.session.config import memory_defaults, model_settings
from kernellab.session.offer import is_worth, kernel_of
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

    def as_dict(self) -> dict[str, Any]:
        scores = {"logic": self.logic, "shape": self.shape, "value": self.value, "score": self.score}
        kernel = self.kernel
        return {
            "id": kernel.id, "task": kernel.name, "why": self.why, "relaxed": list(self.relaxed), "scores": scores,
            "speedup": kernel.measured.speedup, "sketch": kernel.sketch, "dsl": kernel.dsl, "chip": kernel.chip,
            "stale": kernel.stale, "thumb": kernel.thumb, "pinned": kernel.pinned,
            "draft": kernel.draft.model_dump(), "refine": kernel.refine.model_dump(),
            "provenance": kernel.provenance.model_dump(mode="json"),
        }  # fmt: skip


def by_task(
    memory: Memory, task: Task, dsl: str = "", k: int = 5, leave_out: bool = False, said: Sequence[str] = ()
) -> list[Found]:
    """Kernels of computations like ``task``'s; ``leave_out`` those of the same. ``said`` are operations that somebody
    names beside the graph's. Raises CaptureError, TargetError."""
    graph = capture(task)
    seen, target = features(task, graph, said=said), detect_target(dsl) if dsl else None
    backend, chip = (target.backend.value, target.chip.name) if target else ("", "")
    query = Query(
        seen, dsl, backend, family_of(graph).value, chip, without=(seen.hash,) if leave_out else ()
    )  # fmt: skip
    hits = [h.on(stale(h.kernel, chip)) if chip else h for h in memory.search(query, k)]
    return [Found(h.kernel, h.why, h.score, h.logic, h.shape, h.value, h.relaxed) for h in hits]


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
    return [Found(found[id], f"{found[id].name}: {figures(found[id])}") for id in ranked if id in found]


def figures(kernel: Kernel) -> str:
    """``cpp on a CPU, 1.50x eager, T2``."""
    speedup = kernel.measured.speedup
    fast = f"{speedup:.2f}x {kernel.measured.baseline}" if speedup is not None else "not compared"
    old = f", stale: {kernel.stale}" if kernel.stale else ""
    return f"{kernel.dsl} on {kernel.chip}, {fast}, {kernel.measured.trust.value}{old}"


def stats(memory: Memory) -> dict[str, int]:
    """How many entries there are, by table, DSL and class of operators."""
    kernels = [row.kernel for row in memory.store.kernels()]
    columns = Counter(word for k in kernels for word in (k.dsl, k.operator_class or "other"))
    return {**memory.store.count(), **dict(sorted(columns.items())), "stale": sum(bool(k.stale) for k in kernels)}


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
    try:
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise KernellabError(f"{out} cannot be written: {error.strerror}.", "Choose another file.") from None
    return len(lines)


def refresh(memory: Memory) -> int:
    """Mark what was measured elsewhere or with other versions as stale, and what was measured as here as not."""
    return memory.mark_stale(lambda kernel: stale(kernel, _chip(kernel.dsl)))


def verify_again(memory: Memory, verifier: Verifier, ids: Sequence[str], tell: Callable[[str], None]) -> int:
    """Judge entries anew on this machine: one that passes is remembered with today's figures, one that fails is
    forgotten. How many passed.

    Raises:
        MemoryStoreError: there is no such entry, or its task is not in the journal (the shipped library's are not).
    """
    texts = {
        event.kernel.id: (event.text, event.kernel.name) for event in memory.events() if event.kind == "remembered"
    }
    passed = 0
    for id in ids:
        row = memory.store.get(id)
        if row is None or id not in texts:
            raise MemoryStoreError(f"The task of {id!r} is not in the journal.", "`kernellab memory search` shows ids.")
        kernel = row.kernel
        try:
            task = load_task(*texts[id])
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
        passed += 1
    return passed


def _chip(dsl: str) -> str:
    try:
        return detect_target(dsl).chip.name
    except KernellabError:
        return "no device of this machine"


__all__ = ["Found", "by_task", "by_words", "export", "figures", "refresh", "stats", "verify_again"]
