"""A kernel whose source reads what a judge may be known by is also called in an ordinary process: started by a shell,
with a user's environment, without memory that is shared, after many earlier calls, built there once more.

The process is in the sandbox as a worker is, and begins as soon as the candidate is built; which cases it is given is
drawn in secret.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernellab.conditions import StaticFinding, of
from kernellab.records import Evidence
from kernellab.target import Backend
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import CORRECT, DEADLINES
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.worker import ordinary as program
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.judge.worker_client import Worker
    from kernellab.verifier.stages.candidate import Stages


@dataclass(frozen=True)
class Ordinary:
    """The process, and what it was asked."""

    worker: Worker
    cases: tuple[Case, ...]

    def answers(self, number: int) -> list[Path]:
        return [self.worker.scratch / "work" / f"{number}-{i}" for i in range(len(self.cases[number].native))]


def begin(stages: Stages) -> Ordinary | None:
    """Starts it where the source was flagged for what it reads; not for a ModelNew or what writes into arguments."""
    context, source = stages.context, stages.source
    flagged = any(finding.rule == "surroundings" for finding in of(context.findings.conditions, StaticFinding))
    plain = source.dsl == "cpp" and not stages.written and not any("ModelNew" in t for t in source.files.values())
    if not flagged or not plain or context.request.backend is not Backend.CPU:
        return None
    cases = tuple(stages.ahead.small() for _ in range(1 + secrets.randbelow(CORRECT.ordinary)))
    worker = context.pool.worker(source.dsl, Backend.CPU, "ordinary", stages.threads)
    worker.memory_limit = memory_limit(stages.task, Backend.CPU)
    found = Ordinary(worker, cases)
    work = worker.scratch / "work"
    write_files(worker.scratch / "src", source.files)
    calls = []
    for number, case in enumerate(cases):
        specs: list[dict[str, Any]] = []
        for arg in case.args[: stages.worker.accepted]:
            if not isinstance(arg, torch.Tensor):
                specs.append({"value": arg})
                continue
            file = work / secrets.token_hex(8)
            file.write_bytes(arg.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if arg.numel() else b"")
            specs.append({"file": file.name, "shape": arg.shape, "dtype": str(arg.dtype).removeprefix("torch.")})
        calls.append({"args": specs, "answers": [str(path) for path in found.answers(number)]})
    entry = Path(source.entry_file)
    job = {
        "folder": str(worker.scratch / "src"), "path": str(worker.scratch / "src" / entry), "module": entry.stem,
        "entry": source.entry, "threads": stages.threads, "calls": calls, "earlier": CORRECT.earlier_calls,
        "seconds": CORRECT.earlier_seconds,
    }  # fmt: skip
    (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
    shutil.copy(program.__file__, work / "run.py")
    worker.post({"op": "run"})
    return found


def check(stages: Stages, found: Ordinary) -> str:
    """Waits for the answers and compares them; the stage's words.

    Raises:
        Refused: it fails there, or an answer is wrong.
    """
    worker = found.worker
    end = time.monotonic() + stages.context.left(DEADLINES.build)
    try:
        worker.poll((worker.first_fd,), end)
        worker.drain()
    except WorkerFailure as failure:
        raise Refused(
            f"In an ordinary process the kernel {failure.message}.", Evidence(signature=failure.kind)
        ) from None
    for number, case in enumerate(found.cases):
        outputs = [_read(path, native) for path, native in zip(found.answers(number), case.native, strict=True)]
        told = [output for output in outputs if output is not None]
        if len(told) < len(outputs):
            last = next((line for line in reversed(worker.log.splitlines()) if line.strip()), "there is no answer")
            words = f"The kernel fails in an ordinary process: {last.rstrip('.')}."
            raise Refused(words, Evidence(signature="environment"))
        wrong = stages.comparison.first_wrong(case, told)
        if wrong is not None:
            reference = case.references[wrong.output]
            at = evidence.of_mismatch(
                stages.source, case, wrong.output, wrong.got, reference, wrong.mismatch, name="environment"
            )
            words = "Right where the judge calls it, but not in an ordinary process"
            raise Refused(f"{words}: {wrong.mismatch.message} ({case.words}).", at)
    return "right in an ordinary process too"


def _read(path: Path, native: torch.Tensor) -> torch.Tensor | None:
    """An answer as the reference's is formed; None where the file is not that."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode) or held.st_size != native.numel() * native.element_size():
            return None
        data = file.read(held.st_size)
    if len(data) != held.st_size:
        return None
    if not data:
        return native.clone()
    return torch.frombuffer(bytearray(data), dtype=native.dtype).reshape(native.shape)
