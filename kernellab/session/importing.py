"""Imports external kernels into the memory: files are read, each kernel is verified here, and only then stored.

A file has JSON lines: kernels (``task``, ``dsl``, ``files``) or exported trajectories (whose ``source`` is the
kernel). A folder has such files, or one folder per kernel with its ``task.py``. A kernel is judged once, so an
interrupted import continues with the same call.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernellab.capture import capture
from kernellab.dsls.machine import detect_target
from kernellab.dsls.sources import read_source
from kernellab.errors import MOST_BYTES, KernellabError, MemoryStoreError, counted
from kernellab.lowering.headers import with_headers, without_headers
from kernellab.memory.memory import Memory
from kernellab.memory.records import Kernel, Provenance
from kernellab.records import Source
from kernellab.session.memory_export import Machine, carrying, is_worth, kernel_of
from kernellab.target import Backend
from kernellab.task import load_task
from kernellab.verifier import Verifier

#: The task's file in a folder with one kernel.
_TASK = "task.py"


@dataclass(frozen=True)
class ToImport:
    """A kernel to import: its task's text and name, the source, the licence, and its origin."""

    text: str
    name: str
    source: Source
    licence: str
    place: str
    #: Its entry in the memory that exported it.
    entry: Kernel | None = None


@dataclass
class Import:
    """An import that runs in the background: ``wait`` for it, or read its figures at any time."""

    total: int
    kept: int = 0
    done: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    #: The fault that ended it, in a sentence.
    fault: str = ""
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def wait(self, seconds: float | None = None) -> Import:
        """Wait until the import ends, or for ``seconds``."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self

    def stop(self) -> None:
        """Stop after the kernel that is being judged; the same import called again continues."""
        self._stop.set()

    @property
    def words(self) -> str:
        """The progress and the results, in one sentence."""
        progress = f"{self.done} of {counted(self.total, 'kernel')} judged"
        return f"{progress}, {self.kept} remembered, {len(self.refused)} refused. {self.fault}".strip()

    def __repr__(self) -> str:
        return f"<Import: {self.words}>"


def begin(
    memory: Memory, items: Sequence[ToImport], wait: bool = True, tell: Callable[[str], None] = lambda _: None
) -> Import:
    """Verify and store ``items``; in the background unless ``wait``. ``tell`` receives a sentence for each refusal."""
    running = Import(total=len(items))
    if wait:
        _work(memory, items, running, tell)
        return running
    running._thread = threading.Thread(
        target=_guarded, args=(memory, items, running, tell), name="kernellab-import", daemon=True
    )
    running._thread.start()
    return running


def _guarded(memory: Memory, items: Sequence[ToImport], running: Import, tell: Callable[[str], None]) -> None:
    try:
        _work(memory, items, running, tell)
    except KernellabError as error:
        running.fault = str(error)
    except Exception as error:  # nothing waits for this thread
        running.fault = f"The import broke: {type(error).__name__}: {error}"


def _work(memory: Memory, items: Sequence[ToImport], running: Import, tell: Callable[[str], None]) -> None:
    judged = memory.judged_before()
    with Verifier() as verifier:
        for item in items:
            if running._stop.is_set():
                return
            if item.source.hash not in judged:
                reason = _import_one(memory, verifier, item)
                running.kept += not reason
                if reason:
                    running.refused.append((item.place, reason))
                    tell(f"{item.place}: {reason}")
            running.done += 1


def _import_one(memory: Memory, verifier: Verifier, item: ToImport) -> str:
    """Verify an external kernel and store it, once. Return why not, "" if it was stored."""
    reason_before = memory.judged_before().get(item.source.hash)
    if reason_before is not None:
        return reason_before or "It was imported before."
    reason = _refusal(memory, verifier, item)
    memory.looked(item.source.hash, reason)
    return reason


def _refusal(memory: Memory, verifier: Verifier, item: ToImport) -> str:
    try:
        task = load_task(item.text, item.name)
        graph = capture(task)
        target = detect_target(item.source.dsl)
        verdict = verifier.verify(task, with_headers(item.source), target)
    except KernellabError as error:
        return error.message
    if not is_worth(verdict) or target.backend is Backend.INTERPRETER:
        return verdict.reason
    provenance = Provenance(origin="import", place=item.place, licence=item.licence)
    kernel = kernel_of(task, graph, without_headers(item.source), Machine.of(target), verdict, provenance)
    # an entry's sketch, notes and ratings are copied, its figures measured again
    stored = carrying(kernel, item.entry) if item.entry is not None else kernel
    is_stored = memory.remember(stored, task.text)
    return "" if is_stored else "It was forgotten before, or is slower than those that are kept."


def read(path: Path, licence: str) -> list[ToImport]:
    """Return the kernels in ``path``. Raises MemoryStoreError if there are none, or for a line that is no kernel."""
    if not path.exists():
        raise MemoryStoreError(f"{path} does not exist.", "Name a .jsonl file or a folder.")
    if path.is_file():
        return list(_lines(path, licence))
    items = [item for file in sorted(path.glob("*.jsonl")) for item in _lines(file, licence)]
    for task in sorted(path.rglob(_TASK)):
        items.append(_folder(task, licence))
    if not items:
        raise MemoryStoreError(
            f"{path} holds no .jsonl file and no folder with a task.py.", "Name a file with a JSON object on each line."
        )
    return items


def _folder(task: Path, licence: str) -> ToImport:
    """Return a folder's kernel: all files except the task."""
    source = read_source(task.parent)
    files = {name: text for name, text in source.files.items() if name != _TASK}
    entry = source.entry_file if source.entry_file in files else next(iter(files), "kernel.py")
    text = task.read_text(encoding="utf-8")
    kernel = source.model_copy(update={"files": files, "entry_file": entry})
    return ToImport(text, task.parent.name, kernel, licence, str(task.parent))


def _lines(file: Path, licence: str) -> Iterator[ToImport]:
    texts: dict[str, str] = {}
    for number, line in enumerate(_text(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            for source_file in row.get("source") or ():
                # a helper's text is only at its first occurrence in a file of trajectories
                source_file["text"] = (
                    texts.setdefault(source_file["sha256"], source_file["text"])
                    if "sha256" in source_file
                    else source_file["text"]
                )
            item = _row(row, licence, f"{file.name}:{number}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MemoryStoreError(
                f"{file}, line {number}, is not a kernel: {type(error).__name__}: {error}.",
                'Write {"task": TEXT, "dsl": "cpp", "files": {"kernel.py": TEXT}} on each line.',
            ) from None
        if item is not None:
            yield item


def _row(row: dict[str, Any], licence: str, place: str) -> ToImport | None:
    """Return a line's kernel; for a trajectory, the kernel that it led to, or None if that did not pass."""
    row_licence = row.get("licence") or ""
    if "messages" in row:
        verdict = row.get("verdict") or {}
        if not row.get("source") or not verdict.get("passed"):
            return None
        files = {f["name"]: f["text"] for f in row["source"]}
        name = row.get("operator") or "task"
    else:
        files, name = row["files"], row.get("name") or "task"
    source = Source(dsl=row["dsl"], files=files)
    entry = Kernel.model_validate({**row["entry"], "source": source}) if "entry" in row else None
    stated = row_licence if row_licence not in ("", "unspecified") else licence
    return ToImport(row["task"], name, source if entry is None else entry.source, stated, place, entry)


def _text(file: Path) -> str:
    with suppress(OSError, UnicodeError):
        if file.stat().st_size <= 64 * MOST_BYTES:
            return file.read_text(encoding="utf-8")
        raise MemoryStoreError(
            f"{file} is larger than {64 * MOST_BYTES // 1_000_000} MB.", "Cut it into several files."
        )
    raise MemoryStoreError(f"{file} cannot be read as text.", "Name a .jsonl file in UTF-8.")


__all__ = ["Import", "ToImport", "begin", "read"]
