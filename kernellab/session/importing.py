"""Others' kernels on their way into the memory: files are read, each kernel is verified here, and only then kept.

A file has JSON lines, kernels (``task``, ``dsl``, ``files``) or exported trajectories (whose ``source`` is the kernel);
a folder has such files, or a folder a kernel with its ``task.py``. What was judged once is not judged again, so that an
import that was cut off continues with the same call.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernellab.dsls.sources import read_source
from kernellab.errors import MOST_BYTES, KernellabError, MemoryStoreError, counted
from kernellab.memory.memory import Memory
from kernellab.memory.records import Kernel
from kernellab.records import Source
from kernellab.session.memory_export import imported
from kernellab.verifier import Verifier

#: of a folder with one kernel: its task
_TASK = "task.py"


@dataclass(frozen=True)
class Given:
    """A kernel to import: its task's text and name, the source, the licence, and where it is from."""

    text: str
    name: str
    source: Source
    licence: str
    place: str
    #: its entry in the memory that it was exported from
    entry: Kernel | None = None


@dataclass
class Import:
    """An import that continues in the background; ``wait`` for it, or look at its figures. Safe to look at any time."""

    total: int
    kept: int = 0
    done: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    #: the fault that ended it, in a sentence
    fault: str = ""
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def wait(self, seconds: float | None = None) -> Import:
        if self._thread is not None:
            self._thread.join(seconds)
        return self

    def stop(self) -> None:
        """After the kernel that is judged now; the same import made again continues."""
        self._stop.set()

    @property
    def words(self) -> str:
        """One sentence: how far it is, and what came of it."""
        told = f"{self.done} of {counted(self.total, 'kernel')} judged"
        return f"{told}, {self.kept} remembered, {len(self.refused)} refused. {self.fault}".strip()

    def __repr__(self) -> str:
        return f"<Import: {self.words}>"


def begin(
    memory: Memory, found: Sequence[Given], wait: bool = True, tell: Callable[[str], None] = lambda _: None
) -> Import:
    """Verify and keep ``found``; in the background unless ``wait``. ``tell`` is given a sentence for each refusal."""
    running = Import(total=len(found))
    if wait:
        _work(memory, found, running, tell)
        return running
    running._thread = threading.Thread(
        target=_guarded, args=(memory, found, running, tell), name="kernellab-import", daemon=True
    )
    running._thread.start()
    return running


def _guarded(memory: Memory, found: Sequence[Given], running: Import, tell: Callable[[str], None]) -> None:
    try:
        _work(memory, found, running, tell)
    except KernellabError as error:
        running.fault = str(error)
    except Exception as error:  # no one waits for this thread
        running.fault = f"The import broke: {type(error).__name__}: {error}"


def _work(memory: Memory, found: Sequence[Given], running: Import, tell: Callable[[str], None]) -> None:
    known = memory.judged_before()
    with Verifier() as verifier:
        for one in found:
            if running._stop.is_set():
                return
            if one.source.hash not in known:
                why = imported(memory, verifier, (one.text, one.name), one.source, one.licence, one.place, one.entry)
                running.kept += not why
                if why:
                    running.refused.append((one.place, why))
                    tell(f"{one.place}: {why}")
            running.done += 1


def read(path: Path, licence: str) -> list[Given]:
    """What ``path`` holds. Raises MemoryStoreError: nothing, or a line that is no kernel (named)."""
    if not path.exists():
        raise MemoryStoreError(f"{path} does not exist.", "Name a .jsonl file or a folder.")
    if path.is_file():
        return list(_lines(path, licence))
    found = [given for file in sorted(path.glob("*.jsonl")) for given in _lines(file, licence)]
    for task in sorted(path.rglob(_TASK)):
        found.append(_folder(task, licence))
    if not found:
        raise MemoryStoreError(
            f"{path} holds no .jsonl file and no folder with a task.py.", "Name a file with a JSON object on each line."
        )
    return found


def _folder(task: Path, licence: str) -> Given:
    """A folder's kernel: all files but the task."""
    source = read_source(task.parent)
    files = {name: text for name, text in source.files.items() if name != _TASK}
    entry = source.entry_file if source.entry_file in files else next(iter(files), "kernel.py")
    text = task.read_text(encoding="utf-8")
    kernel = source.model_copy(update={"files": files, "entry_file": entry})
    return Given(text, task.parent.name, kernel, licence, str(task.parent))


def _lines(file: Path, licence: str) -> Iterator[Given]:
    texts: dict[str, str] = {}
    for number, line in enumerate(_text(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            for one in row.get("source") or ():
                # a helper's text stands at its first place in a file of trajectories
                one["text"] = texts.setdefault(one["sha256"], one["text"]) if "sha256" in one else one["text"]
            found = _row(row, licence, f"{file.name}:{number}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MemoryStoreError(
                f"{file}, line {number}, is not a kernel: {type(error).__name__}: {error}.",
                'Write {"task": TEXT, "dsl": "cpp", "files": {"kernel.py": TEXT}} on each line.',
            ) from None
        if found is not None:
            yield found


def _row(row: dict[str, Any], licence: str, place: str) -> Given | None:
    """A kernel's line; of a trajectory the kernel that it led to, None where that never passed."""
    said = row.get("licence") or ""
    if "messages" in row:
        verdict = row.get("verdict") or {}
        if not row.get("source") or not verdict.get("passed"):
            return None
        files = {f["name"]: f["text"] for f in row["source"]}
        called = row.get("operator") or "task"
    else:
        files, called = row["files"], row.get("name") or "task"
    source = Source(dsl=row["dsl"], files=files)
    entry = Kernel.model_validate({**row["entry"], "source": source}) if "entry" in row else None
    stated = said if said not in ("", "unspecified") else licence
    return Given(row["task"], called, source if entry is None else entry.source, stated, place, entry)


def _text(file: Path) -> str:
    with suppress(OSError, UnicodeError):
        if file.stat().st_size <= 64 * MOST_BYTES:
            return file.read_text(encoding="utf-8")
        raise MemoryStoreError(
            f"{file} is larger than {64 * MOST_BYTES // 1_000_000} MB.", "Cut it into several files."
        )
    raise MemoryStoreError(f"{file} cannot be read as text.", "Name a .jsonl file in UTF-8.")


__all__ = ["Given", "Import", "begin", "read"]
