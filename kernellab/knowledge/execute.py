"""Executes the jobs of the documents (:mod:`kernellab.knowledge.jobs`) in warm processes, two at a time.

Jobs of one DSL share the environment of their processes (:mod:`kernellab.knowledge.runner`), which run each in a child.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kernellab.content import module_command
from kernellab.dsls import Adapter
from kernellab.knowledge.jobs import Job
from kernellab.knowledge.runner import Answer, Request
from kernellab.sandbox.environment import clean_environment
from kernellab.target import Backend

#: seconds that one block may take
DEADLINE = 120.0
#: jobs that one warm process does; starting one costs as much as some ten of them
_JOBS_A_PROCESS = 20
#: what blocks import at their first use of torch.testing and torch.export
_PRELOAD = ("torch", "torch._dynamo", "torch.export", "torch.testing", "kernellab.task.module")


class State(str, Enum):
    """What became of a job."""

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
        futures = []
        for name, group in groups.items():
            parts = -(-len(group) // _JOBS_A_PROCESS)
            for part in range(parts):
                folder = Path(scratch) / f"{name or 'sketch'}-{part}"
                futures.append(pool.submit(_run_group, group[part::parts], folder, report))
        for future in futures:
            outcomes |= {outcome.where: outcome for outcome in future.result()}
    return [outcomes[job.where] for job in queue]


def _run_group(group: Sequence[Job], scratch: Path, report: Callable[[Outcome], None]) -> list[Outcome]:
    scratch.mkdir(parents=True)
    preload, environment = _warm(group[0].adapter, scratch)
    if all(job.payload["kind"] == "command" for job in group):
        preload = []
    request = Request(
        preload=preload, scratch=str(scratch), deadline=DEADLINE, jobs=[job.payload for job in group]
    )  # fmt: skip
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
            answer: Answer = json.loads(line)
            job = by_id.pop(answer["id"])
            state = State.FAILED if answer["failure"] else State.PASSED
            outcomes.append(Outcome(job.where, job.kind, state, answer["failure"], answer["seconds"], job.hash))
            report(outcomes[-1])
    finally:
        process.kill()
        process.wait()
    reason = f"Its process ended with {process.returncode} before it was run."
    return [*outcomes, *(Outcome(job.where, job.kind, State.FAILED, reason, 0.0, job.hash) for job in by_id.values())]


def _warm(adapter: Adapter | None, scratch: Path) -> tuple[list[str], dict[str, str]]:
    if adapter is None:
        return [*_PRELOAD, "kernellab.sketch.gate"], {}
    backend = adapter.readiness().backend or Backend.CPU
    return [*adapter.preload, *_PRELOAD], dict(adapter.environment(backend, scratch))
