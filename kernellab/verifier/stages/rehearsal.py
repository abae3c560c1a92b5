"""Compiles ahead what a JIT would compile at each new size in turn, several at once, in processes that are ended before
the candidate answers for anything.

They run the same source in the same sandbox, have its compile cache (its folder, and by that its user), and see sizes
alone: their tensors are zeros, and a number is one that a JIT specialises alike. What they leave is what the candidate
itself may write there, word of the sizes perhaps: so a few secret ones are left to the candidate, and a kernel that is
right for those alone that it knows is wrong there. Their calls wait for a verdict of the same user that is timed, and
where a parent keeps several judges at work nothing is compiled ahead.
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
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.pool import memory_limit
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Place, lay_out
from kernellab.verifier.protocol.rules import CAPS, CORRECT, DEVICE
from kernellab.verifier.worker.build import write_files

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker
    from kernellab.verifier.stages.candidate import Stages


@contextmanager
def rehearsed(stages: Stages, note: list[str]) -> Iterator[None]:
    """Begins such processes, and has them called at the sizes of the stage correct when what is done inside has ended
    well; the stage's ``note`` tells what that took. No fault of theirs is one of the candidate's, which comes to each
    size itself."""
    workers: list[Worker] = []
    try:
        with contextlib.suppress(VerifierError, WorkerFailure, OSError):
            _begin(stages, workers)
        yield
        if workers:
            asked = time.monotonic()
            with turns.on_device():
                began = time.monotonic()
                # the time of others is not the candidate's
                stages.context.end += began - asked
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
    # an autotuned kernel times its configurations in each of these processes
    if turns.are_given() or any("autotune" in text for text in source.files.values()):
        return
    backend = context.request.backend
    # the judge waits for them
    for _ in range(min(DEVICE.rehearsals, len(os.sched_getaffinity(0)))):
        cache = stages.worker.scratch / "cache"
        worker = context.pool.worker(source.dsl, backend, "candidate", stages.threads, cache)
        workers.append(worker)
        worker.memory_limit = memory_limit(stages.task, backend)
        write_files(worker.scratch / "src", source.files)
        worker.begin_build(stages.build_message(source))


def _call(stages: Stages, workers: list[Worker]) -> int:
    """One list of calls each, the largest sizes first, which take the longest to compile; how many sizes they are."""
    task = stages.task
    calls: dict[tuple[tuple[str, int], ...], list[dict[str, Any]]] = {}
    for case in stages.ahead.sized():
        if case.sizes not in calls and input_bytes(task, dict(case.sizes)) <= CORRECT.large_bytes:
            calls[case.sizes] = [_form(place) for place in lay_out(case.args).places]
    ordered = sorted(calls, key=lambda sizes: -input_bytes(task, dict(sizes)))
    # the candidate compiles those alone, and the largest take seconds
    small = ordered[len(ordered) // 4 :]
    secret = set(random.SystemRandom().sample(small, min(DEVICE.unrehearsed, len(small))))
    wanted = [sizes for sizes in ordered if sizes not in secret]
    end = time.monotonic() + stages.context.left(DEVICE.rehearsal_seconds)
    asked = []
    for number, worker in enumerate(workers):
        own = [calls[sizes] for sizes in wanted[number :: len(workers)]]
        while len(json.dumps(own)) > CAPS.message // 2:
            own.pop()
        with contextlib.suppress(WorkerFailure):
            worker.finish_build(max(end - time.monotonic(), 0.0))
            worker.post({"op": "rehearse", "calls": own})
            asked.append(worker)
    for worker in asked:
        with contextlib.suppress(WorkerFailure):
            worker.receive(max(end - time.monotonic(), 0.0))
    return len(wanted)


def _form(place: Place) -> dict[str, Any]:
    return {"shape": place.shape, "dtype": place.dtype} if place.dtype else {"value": _alike(place.value)}


def _alike(value: object) -> object:
    """A number that Triton specialises as it does ``value``: 1, a multiple of 16, another; a float is none of these."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if isinstance(value, (bool, str, type(None))) else 1.0
    if isinstance(value, float):
        return 1.0
    return 1 if value == 1 else 16 if value % 16 == 0 else 3
