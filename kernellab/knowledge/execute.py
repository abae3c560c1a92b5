"""Executing every code block of the documents that can run here, each in a separate child process.

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
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from kernellab.content import module_command
from kernellab.dsls import Adapter, get_adapter
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.spec import SPEC, DslSpec, read_spec
from kernellab.knowledge.examples import read_example
from kernellab.knowledge.pages import Block, DocumentError, read_page
from kernellab.sandbox.environment import clean_environment
from kernellab.target import Backend

#: seconds that one block may take
DEADLINE = 120.0
#: jobs that one warm process does; starting one costs as much as some ten of them
_SHARE = 20
#: what blocks import at their first use of torch.testing and torch.export
_PRELOAD = ("torch", "torch._dynamo", "torch.export", "torch.testing", "kernellab.task.module")
_NOT_CODE = frozenset(["", "text", "console", "toml"])
_TASKS = Path(__file__).parent.parent / "bench" / "builtin"


class State(str, Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """What became of one block or example; ``where`` is document:line under the knowledge folder."""

    where: str
    kind: str
    state: State
    #: why it failed or was not run
    reason: str = ""
    seconds: float = 0.0
    hash: str = ""


@dataclass
class Job:
    """One thing to run; ``group`` names the warm process and its environment (a DSL, or empty for sketches)."""

    where: str
    kind: str
    group: str
    payload: dict[str, Any]
    reason: str = ""
    hash: str = ""
    #: of the DSL whose environment it runs in; None for the sketch language
    adapter: Adapter | None = None


@dataclass
class _Document:
    """What the blocks of one document hand to those after them."""

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
            spec = _spec_of(path)
            state = _Document()
            for block in read_page(path).blocks:
                job = _job(block, place, spec, state)
                if job is not None:
                    listed.append(job)
    for path in sorted(root.glob("dsl/*/examples/*/*.py")):
        place = path.relative_to(root).as_posix()
        if place.startswith(only):
            listed.append(_example_job(path, place))
    return listed


def execute(queue: Sequence[Job], report: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
    """Runs what can be run, two warm processes at a time; one outcome a job, in order."""
    groups: dict[str, list[Job]] = {}
    outcomes: dict[str, Outcome] = {}
    for job in queue:
        if job.reason:
            outcomes[job.where] = Outcome(job.where, job.kind, State.NOT_RUN, job.reason, 0.0, job.hash)
            report(outcomes[job.where])
        else:
            groups.setdefault(job.group, []).append(job)
    with tempfile.TemporaryDirectory(prefix="kernellab-docs-") as scratch, ThreadPoolExecutor(2) as pool:
        ran = []
        for name, group in groups.items():
            parts = -(-len(group) // _SHARE)
            for part in range(parts):
                folder = Path(scratch) / f"{name or 'sketch'}-{part}"
                ran.append(pool.submit(_run_group, group[part::parts], folder, report))
        for future in ran:
            outcomes |= {outcome.where: outcome for outcome in future.result()}
    return [outcomes[job.where] for job in queue]


# -- from blocks to jobs -----------------------------------------------------------------------------------------------


def _spec_of(path: Path) -> DslSpec | None:
    """The DSL that a document under ``dsl/<name>/`` speaks of."""
    spec = path.parent / SPEC
    return read_spec(spec) if spec.is_file() else None


def _job(block: Block, place: str, spec: DslSpec | None, state: _Document) -> Job | None:
    where = f"{place}:{block.line}"
    digest = hashlib.sha256(json.dumps([block.language, dict(block.options), block.text, state.files]).encode())
    job = Job(where, block.language, "", {"id": where, "text": block.text, "options": dict(block.options)})
    job.hash = digest.hexdigest()[:16]
    if block.language in _NOT_CODE:
        return None
    if block.language == "sketch":
        return _sketch_job(job, block, state)
    if block.language == "python" and "task" in block.options:
        state.tasks[block.options["task"]] = block.text
        job.kind, job.payload["kind"], job.payload["name"] = "task", "task", block.options["task"]
        return job
    if spec is None:
        raise DocumentError(f"{where}: nothing runs a {block.language!r} block here.", "Use sketch, or text.")
    job.group, job.adapter = spec.name, _adapter(spec)
    job.reason = _why_not(spec, job.adapter)
    if "file" in block.options:
        state.files[block.options["file"]] = block.text
        return None
    if block.language == "python":
        job.payload |= {"kind": "python", "files": dict(state.files)}
    elif block.language == "cpp":
        build = ["c++", "-std=c++17", "-O2", "-fopenmp", "-march=native", "block.cpp", "-o", "block"]
        job.payload |= {"kind": "command", "file": "block.cpp", "commands": [build, ["./block"]]}
    elif block.language == "cuda":
        job.payload |= {
            "kind": "command",
            "file": "block.cu",
            "commands": [["nvcc", "-ptx", "block.cu", "-o", "block.ptx"]],
        }
        job.kind = "cuda (compiled, not run)"
        job.reason = "" if shutil.which("nvcc") else "nvcc is not found"
    else:
        job.reason = job.reason or f"nothing here runs {block.language}"
    return job


def _sketch_job(job: Job, block: Block, state: _Document) -> Job:
    job.payload["kind"] = "sketch"
    name = block.options.get("task")
    if name is not None:
        job.kind = "sketch (run)"
        job.payload |= {"task": task_text(name, state.tasks, job.where), "task_name": _identifier(name)}
    return job


def _example_job(path: Path, place: str) -> Job:
    spec = read_spec(path.parents[2] / SPEC)
    example = read_example(path, spec.name)
    payload = {
        "id": place,
        "kind": "example",
        "text": example.text,
        "task": task_text(example.task, {}, place),
        "task_name": _identifier(example.task),
        "sizes": [dict(case) for case in example.sizes],
    }
    digest = hashlib.sha256(json.dumps([example.text, payload["task"]]).encode()).hexdigest()[:16]
    adapter = _adapter(spec)
    return Job(place, "example", spec.name, payload, _why_not(spec, adapter), digest, adapter)


def task_text(name: str, own: Mapping[str, str], where: str) -> str:
    """The text of a built-in task (``softmax/softmax``), or of a block's own (``:name``). Raises DocumentError."""
    if name.startswith(":"):
        if name[1:] not in own:
            raise DocumentError(f"{where}: no earlier block defines the task {name[1:]!r}.", "Write python task=NAME.")
        return own[name[1:]]
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


# -- running ---------------------------------------------------------------------------------------------------------


def _run_group(group: Sequence[Job], scratch: Path, report: Callable[[Outcome], None]) -> list[Outcome]:
    scratch.mkdir(parents=True)
    preload, environment = _warm(group[0].adapter, scratch)
    if all(job.payload["kind"] == "command" for job in group):
        preload = []
    request = {
        "preload": preload,
        "scratch": str(scratch),
        "deadline": DEADLINE,
        "jobs": [job.payload for job in group],
    }
    process = subprocess.Popen(
        module_command("kernellab.knowledge.runner"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment({**environment, "HOME": str(scratch), "OMP_NUM_THREADS": "2"}),
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    by_id = {job.payload["id"]: job for job in group}
    outcomes: list[Outcome] = []
    try:
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        for line in process.stdout:
            answer = json.loads(line)
            job = by_id.pop(answer["id"])
            state = State.FAILED if answer["failure"] else State.PASSED
            outcomes.append(Outcome(job.where, job.kind, state, answer["failure"], answer["seconds"], job.hash))
            report(outcomes[-1])
    finally:
        process.kill()
        process.wait()
    gone = f"Its process ended with {process.returncode} before it was run."
    return [*outcomes, *(Outcome(job.where, job.kind, State.FAILED, gone, 0.0, job.hash) for job in by_id.values())]


def _warm(adapter: Adapter | None, scratch: Path) -> tuple[list[str], dict[str, str]]:
    if adapter is None:
        return [*_PRELOAD, "kernellab.sketch.gate"], {}
    backend = adapter.readiness().backend or Backend.CPU
    return [*adapter.preload, *_PRELOAD], dict(adapter.environment(backend, scratch))
