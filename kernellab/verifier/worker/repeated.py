"""Functions that call a kernel many times and return one answer: the one that is wrong, if there is any.

Each is called by the worker in place of the kernel, between one go and its answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from kernellab.verifier.worker import caller_states
from kernellab.verifier.worker.guards import heap
from kernellab.verifier.worker.results import flatten

Function = Callable[..., Any]

#: largest number of back-to-back calls, and seconds for them; the same for calls whose results are held
_BURST, _BURST_SECONDS = 4000, 0.04
_HELD, _HELD_SECONDS = 400, 0.08
#: upper bound of their wall-clock time, as a multiple of those seconds
_MOST_WALL = 4
#: calls on nearly the same contents as preceding ones, and the number of dropped results before each
_REPEATS, _DROPPED = 3, 3
_HOUR = 3600


def burst(function: Function, *, is_held: bool) -> Function:
    """Many consecutive calls, as in a loop of a user's program, each on its own copies; the last result is the answer.
    ``is_held``: all results stay alive until then, and one that differs from the last is the answer instead."""
    import torch

    most, seconds = (_HELD, _HELD_SECONDS) if is_held else (_BURST, _BURST_SECONDS)

    def loop(*args: Any) -> Any:
        held: list[list[Any]] = []
        # this thread's own time, so that a busy machine makes as many calls, unless it waits
        spent, end = time.thread_time() + seconds, time.perf_counter() + _MOST_WALL * seconds
        for _ in range(most):
            result = function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
            if is_held:
                held.append([tensor.detach() for tensor in flatten(result, True)])
            del result
            # as before each call
            torch.set_flush_denormal(False)
            if time.thread_time() > spent or time.perf_counter() > end:
                break
        last = function(*args)
        # each is in another place
        return next((outputs for outputs in held if not caller_states.same(outputs, flatten(last, True))), last)

    return loop


def after_others(function: Function, written: Sequence[int]) -> Function:
    """Calls directly after others on nearly the same contents, whose results were dropped: the memory of a new result
    then still holds their answers. Returns the first answer that differs from the last one."""
    import torch

    def loop(*args: Any) -> Any:
        answers: list[Any] = []
        for _ in range(_REPEATS):
            # an allocator reuses the memory of one of several dropped results; that of the arguments is elsewhere until
            # then
            variants = [caller_states.nearly(args) for _ in range(_DROPPED)]
            # contents that the task's own inputs never have may raise an exception
            with contextlib.suppress(Exception):
                results = [function(*variant) for variant in variants]
                results.clear()
            # as before each call
            torch.set_flush_denormal(False)
            answers.append(function(*caller_states.copies(args, written)))
            torch.set_flush_denormal(False)
        last = function(*args)
        expected = flatten(last, True)
        return next((a for a in answers if not caller_states.same(flatten(a, True), expected)), last)

    return loop


def unstacked(function: Function, stacked: Sequence[int]) -> Function:
    """One call for each of the contents that are stacked in the arguments ``stacked``, with the results returned as
    stacks; a result of another form than the first one's is returned unstacked."""
    import torch

    def each(*args: Any) -> Any:
        rows: list[list[Any]] = []
        for i in range(len(args[stacked[0]])):
            call_args = [a[i].clone() if position in stacked else a for position, a in enumerate(args)]
            rows.append([tensor.detach() for tensor in flatten(function(*call_args), True)])
            # as before each call
            torch.set_flush_denormal(False)
            if [(t.shape, t.dtype) for t in rows[-1]] != [(t.shape, t.dtype) for t in rows[0]]:
                return rows[-1]
        return [torch.stack(outputs) for outputs in zip(*rows, strict=True)]

    return each


def an_hour_later(function: Function) -> Function:
    """A call one hour later by the C library's clocks; now if no allocator was preloaded that can shift them."""
    preloaded = heap()
    if preloaded is None:
        return function

    def call(*args: Any) -> Any:
        preloaded.kernellab_heap_forward(_HOUR)
        try:
            return function(*args)
        finally:
            preloaded.kernellab_heap_forward(0)

    return call
