"""The code blocks and examples of the documents as jobs to run, each in a separate child process.

What a block's opening fence says decides what is done with it:

- ``sketch``: checked by the real checker; ``fails=RULE`` must be diagnosed so; ``task=NAME`` is run by the sketch gate
  against the reference of a built-in task, or of a ``python task=NAME`` block earlier in the document (``task=:NAME``).
- ``python`` in a DSL's documents: run in that DSL's environment, in order, with the files of earlier blocks.
- a language with ``file=NAME``: written to that file for the Python blocks after it.
- ``cpp``: compiled and run (it has a ``main``); ``cuda``: compiled where nvcc is.
- ``text``, ``console``, ``toml`` and no language: not code.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernellab.dsls import Adapter, get_adapter
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.spec import SPEC, DslSpec, read_spec
from kernellab.knowledge.examples import read_example
from kernellab.knowledge.pages import Block, DocumentError, read_page
from kernellab.knowledge.runner import Payload

_NOT_CODE = frozenset(["", "text", "console", "toml"])
_TASKS = Path(__file__).parent.parent / "bench" / "builtin"
_CPP = (["c++", "-std=c++17", "-O2", "-fopenmp", "-march=native", "block.cpp", "-o", "block"], ["./block"])
_CUDA = (["nvcc", "-ptx", "block.cu", "-o", "block.ptx"],)


@dataclass(frozen=True)
class Job:
    """One thing to run; ``group`` names the warm process and its environment (a DSL, or empty for sketches)."""

    where: str
    kind: str
    group: str
    payload: Payload
    #: Why it cannot be run here; "" if it can.
    reason: str = ""
    hash: str = ""
    #: Of the DSL whose environment it runs in; None for the sketch language.
    adapter: Adapter | None = None


@dataclass
class _Document:
    """What the blocks of one document hand to those after them: files and tasks, by name."""

    place: str
    spec: DslSpec | None
    files: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)


def jobs(root: Path, only: str = "") -> list[Job]:
    """Every block and example under ``root`` whose place begins with ``only``, those that cannot run with a reason.

    Raises:
        DocumentError: a document that cannot be read, or a fence that says what there is not.
    """
    listed: list[Job] = []
    for path in sorted(root.rglob("*.md")):
        place = path.relative_to(root).as_posix()
        if place.startswith(only):
            listed += _document_jobs(path, place)
    for path in sorted(root.glob("dsl/*/examples/*/*.py")):
        place = path.relative_to(root).as_posix()
        if place.startswith(only):
            listed.append(_example_job(path, place))
    return listed


def _document_jobs(path: Path, place: str) -> Iterator[Job]:
    spec_file = path.parent / SPEC
    document = _Document(place, read_spec(spec_file) if spec_file.is_file() else None)
    for block in read_page(path).blocks:
        job = _job(block, document)
        if job is not None:
            yield job


def _job(block: Block, document: _Document) -> Job | None:
    """The job of a block; None if it is not code, or a file for later blocks."""
    if block.language in _NOT_CODE:
        return None
    where, options = f"{document.place}:{block.line}", dict(block.options)
    digest = _digest([block.language, options, block.text, document.files])
    payload = Payload(id=where, text=block.text, options=options)
    if block.language == "sketch":
        if "task" not in options:
            return Job(where, "sketch", "", {**payload, "kind": "sketch"}, hash=digest)
        name = options["task"]
        text = task_text(name, document.tasks, where)
        payload = {**payload, "kind": "sketch", "task": text, "task_name": _identifier(name)}
        return Job(where, "sketch (run)", "", payload, hash=digest)
    if block.language == "python" and "task" in options:
        document.tasks[options["task"]] = block.text
        return Job(where, "task", "", {**payload, "kind": "task", "name": options["task"]}, hash=digest)
    if document.spec is None:
        raise DocumentError(f"{where}: nothing runs a {block.language!r} block here.", "Use sketch, or text.")
    if "file" in options:
        document.files[options["file"]] = block.text
        return None
    return _dsl_job(block.language, document.spec, document.files, payload, digest)


def _dsl_job(language: str, spec: DslSpec, files: Mapping[str, str], payload: Payload, digest: str) -> Job:
    """The job of a block in a DSL's documents."""
    kind, adapter = language, _adapter(spec)
    reason = _why_not(spec, adapter)
    if language == "python":
        payload = {**payload, "kind": "python", "files": dict(files)}
    elif language == "cpp":
        payload = {**payload, "kind": "command", "file": "block.cpp", "commands": list(_CPP)}
    elif language == "cuda":
        payload = {**payload, "kind": "command", "file": "block.cu", "commands": list(_CUDA)}
        kind, reason = "cuda (compiled, not run)", "" if shutil.which("nvcc") else "nvcc is not found"
    else:
        reason = reason or f"nothing here runs {language}"
    return Job(payload["id"], kind, spec.name, payload, reason, digest, adapter)


def _example_job(path: Path, place: str) -> Job:
    spec = read_spec(path.parents[2] / SPEC)
    example = read_example(path, spec.name)
    payload = Payload(
        id=place, kind="example", text=example.text, task=task_text(example.task, {}, place),
        task_name=_identifier(example.task), sizes=[dict(case) for case in example.sizes],
    )  # fmt: skip
    adapter = _adapter(spec)
    digest = _digest([example.text, payload["task"]])
    return Job(place, "example", spec.name, payload, _why_not(spec, adapter), digest, adapter)


def task_text(name: str, defined: Mapping[str, str], where: str) -> str:
    """The text of a built-in task (``softmax/softmax``), or of a block's own (``:name``). Raises DocumentError."""
    if name.startswith(":"):
        if name[1:] not in defined:
            raise DocumentError(f"{where}: no earlier block defines the task {name[1:]!r}.", "Write python task=NAME.")
        return defined[name[1:]]
    path = _TASKS / f"{name}.py"
    if not path.is_file():
        raise DocumentError(f"{where}: there is no built-in task {name!r}.", "Name one as category/task.")
    return path.read_text(encoding="utf-8")


def _identifier(name: str) -> str:
    return name.rpartition("/")[2].lstrip(":")


def _adapter(spec: DslSpec) -> Adapter:
    """The adapter of the documents at hand, which need not be those of the current workspace."""
    return get_adapter(spec.name) if spec.adapter == "python" else DocumentedAdapter(spec)


def _why_not(spec: DslSpec, adapter: Adapter) -> str:
    """Why nothing of this DSL can be run here; empty when it can."""
    if spec.documents.not_run:
        return spec.documents.not_run
    ready = adapter.readiness()
    return "" if ready.ready else ready.reason


def _digest(content: list[object]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
