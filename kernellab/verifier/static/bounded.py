"""The static analysis in a child process with limits, so that no source can end the judge."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from typing import Any

from kernellab.dsls.base import Adapter, Finding
from kernellab.errors import MOST_BYTES, JudgeBusy
from kernellab.records import CompilerLine, Source
from kernellab.verifier.protocol.rules import STATIC
from kernellab.verifier.static.check import check


@dataclass(frozen=True)
class Analysis:
    """The result of the analysis: syntax errors, findings of the rules and of the DSL. ``refused`` says in one sentence
    why the analysis failed. ``model``: is a class ModelNew the thing to call?"""

    findings: tuple[Finding, ...] = ()
    errors: tuple[CompilerLine, ...] = ()
    model: bool = False
    refused: str = ""


def analyse(source: Source, adapter: Adapter) -> Analysis:
    """Analyse ``source`` within limits of size, time, memory and depth.

    Raises:
        JudgeBusy: the machine was too busy for a result.
    """
    size = sum(len(text) for text in source.files.values())
    if size > MOST_BYTES:
        return Analysis(refused=f"The source has {size / 1e6:.0f} MB of text; at most {MOST_BYTES / 1e6:.0f} are read")
    if len(source.files) > STATIC.max_files:
        return Analysis(refused=f"The source has {len(source.files)} files; at most {STATIC.max_files} are read")
    answer = _in_child(lambda: _found(source, adapter))
    if isinstance(answer, str):
        return Analysis(refused=answer)
    return Analysis(
        tuple(Finding(**f) for f in answer["findings"]),
        tuple(CompilerLine(**e) for e in answer["errors"]),
        answer["model"],
    )


def _found(source: Source, adapter: Adapter) -> dict[str, Any]:
    result = check(source)
    findings = list(result.findings)
    if not result.errors and not any(f.rule == "hidden-code" and f.fatal for f in findings):
        findings += adapter.static(source)
    shortened = [_shortened(f) for f in findings[: STATIC.max_findings]]
    errors = [line.model_dump() for line in result.errors[: STATIC.max_findings]]
    return {"findings": [asdict(f) for f in shortened], "errors": errors, "model": result.model}


def _shortened(finding: Finding) -> Finding:
    return Finding(finding.rule, finding.message[:500], finding.file, finding.line, finding.fatal)


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The result of ``work`` in a child of this process, or the reason why there is none. Raises JudgeBusy."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # the child runs no other thread's code, and ends without the interpreter's own exit
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _child(work, read, write)
    os.close(write)
    try:
        body = _read(read, time.monotonic() + STATIC.wall_seconds)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if body is None:
        raise JudgeBusy(
            f"The machine is too busy: the source was not read within {STATIC.wall_seconds:.0f} s.",
            "Verify it again when less runs there.",
        )
    if os.WIFSIGNALED(status) and not body:
        most = f"{STATIC.processor_seconds:.0f} s"
        return f"The source cannot be analysed: reading it takes more than {most} of the processor's time"
    try:
        answer = json.loads(body)
    except ValueError:
        return "The source cannot be analysed"
    return str(answer["refused"]) if "refused" in answer else dict(answer)


def _child(work: Callable[[], dict[str, Any]], read: int, write: int) -> None:
    """Run ``work`` in the child and send its result. Does not return."""
    try:
        gc.disable()
        # the parser's warnings would appear on the terminal, with text that the source controls
        warnings.simplefilter("ignore")
        os.close(read)
        seconds = int(STATIC.processor_seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        with open("/proc/self/statm", "rb") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + STATIC.memory_bytes, used + STATIC.memory_bytes))
        try:
            answer = work()
        except RecursionError:
            answer = {"refused": "The source cannot be analysed: it is nested too deeply"}
        except MemoryError:
            answer = {
                "refused": "The source cannot be analysed: it is nested too deeply, or reading it takes too much memory"
            }
        os.set_blocking(write, True)
        body = json.dumps(answer).encode()
        while body:
            body = body[os.write(write, body) :]
    finally:
        os._exit(0)


def _read(fd: int, end: float) -> bytes | None:
    """All data until the other side closes; None on timeout."""
    parts: list[bytes] = []
    while True:
        if not wait([fd], max(0.0, end - time.monotonic())):
            return None
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
