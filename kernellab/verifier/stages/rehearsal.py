"""Compile ahead what a JIT would compile at each new size, in several parallel processes that end before the candidate
is checked.

The processes run the same source in the same sandbox and share its compile cache (its folder, and so its user). They
see only sizes: their tensors are zeros, and a number is replaced by one that a JIT specialises alike. They can leave
only what the candidate itself may write there, possibly including the sizes. So a few secret sizes are left to the
candidate, and a kernel that is right only for the sizes it knows is wrong there. Their calls wait for a verdict of the
same user that is being timed. Nothing is compiled ahead if a parent runs several judges.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernellab.errors import VerifierError, counted, lasting
from kernellab.sandbox.caps import CAPS
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Place, lay_out
from kernellab.verifier.protocol.rules import CORRECT, DEVICE
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker
    from kernellab.verifier.stages.candidate import Stages


@contextmanager
def rehearsed(stages: Stages, note: list[str]) -> Iterator[None]:
    """Start such processes, and call them at the sizes of the stage correct if the context's body succeeds; the time
    goes into the stage's ``note``. Their failures do not count against the candidate, which runs each size itself."""
    workers: list[Worker] = []
    try:
        with contextlib.suppress(VerifierError, WorkerFailure, OSError):
            _begin(stages, workers)
        yield
        if workers:
            ready = time.monotonic()
            with turns.on_device():
                began = time.monotonic()
                # Time used by other processes does not count against the candidate.
                stages.context.wait(began - ready)
                count = _call(stages, workers)
                _end(workers)
            took = lasting(time.monotonic() - began)
            note.append(f"(of its time {took} for {counted(count, 'size')} compiled ahead)")
    finally:
        _end(workers)


def _end(workers: list[Worker]) -> None:
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker.first_fd, signal.SIGKILL)
    while workers:
        workers.pop().close()


def _begin(stages: Stages, workers: list[Worker]) -> None:
    context, source = stages.context, stages.source
    if context.interpreted or not stages.task.dims or not context.adapter.compiles_in_calls:
        return
    # Each of these processes would time an autotuned kernel's configurations.
    if turns.are_given() or any("autotune" in text for text in source.files.values()):
        return
    backend = context.request.backend
    # The judge waits for all of them.
    for _ in range(min(DEVICE.rehearsal_processes, len(os.sched_getaffinity(0)))):
        cache = stages.worker.scratch / "cache"
        worker = context.pool.worker(source.dsl, backend, "candidate", stages.threads, cache)
        workers.append(worker)
        worker.memory_limit = memory_limit(stages.task, backend)
        write_files(worker.scratch / "src", source.files)
        worker.begin_build(stages.build_message(source))


def _call(stages: Stages, workers: list[Worker]) -> int:
    """Give each worker a list of calls, the largest sizes first because they compile longest; return the number of
    sizes."""
    task = stages.task
    calls: dict[tuple[tuple[str, int], ...], list[dict[str, Any]]] = {}
    for case in stages.ahead.sized():
        if case.sizes not in calls and input_bytes(task, dict(case.sizes)) <= CORRECT.large_bytes:
            calls[case.sizes] = [_form(place) for place in lay_out(case.args).places]
    ordered = sorted(calls, key=lambda sizes: -input_bytes(task, dict(sizes)))
    # The candidate compiles the secret sizes alone, and the largest sizes take seconds.
    small = ordered[len(ordered) // 4 :]
    secret = set(random.SystemRandom().sample(small, min(DEVICE.unrehearsed_sizes, len(small))))
    rehearsed_sizes = [sizes for sizes in ordered if sizes not in secret]
    end = time.monotonic() + stages.context.left(DEVICE.rehearsal_seconds)
    posted = []
    for number, worker in enumerate(workers):
        own = [calls[sizes] for sizes in rehearsed_sizes[number :: len(workers)]]
        while len(json.dumps(own)) > CAPS.message // 2:
            own.pop()
        with contextlib.suppress(WorkerFailure):
            worker.finish_build(max(end - time.monotonic(), 0.0))
            worker.post({"op": "rehearse", "calls": own})
            posted.append(worker)
    for worker in posted:
        with contextlib.suppress(WorkerFailure):
            worker.receive(max(end - time.monotonic(), 0.0))
    return len(rehearsed_sizes)


def _form(place: Place) -> dict[str, Any]:
    return {"shape": place.shape, "dtype": place.dtype} if place.dtype else {"value": _alike(place.value)}


def _alike(value: object) -> object:
    """Return a number that Triton specialises like ``value``: 1, a multiple of 16, or another; floats are not
    specialised."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if isinstance(value, (bool, str, type(None))) else 1.0
    if isinstance(value, float):
        return 1.0
    return 1 if value == 1 else 16 if value % 16 == 0 else 3
