"""The number of torch's threads: one for small work; and the runtimes in which threads wait."""

from __future__ import annotations

import os.path
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: OpenMP's runtimes, in which threads start and wait
_OPENMP = ("libgomp", "libomp", "libiomp")
_LOCK = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """While active, torch's operators that this thread calls run on it alone.

    A team must be woken for every operator and waits for its slowest thread: without one, a thousand operators on small
    tensors take a tenth of the time and of the cores, and far less on a busy machine. The previous number is restored
    when the block ends; several threads may be inside at once."""
    import torch

    global _inside, _before
    with _LOCK:
        if not _inside:
            _before = torch.get_num_threads()
        _inside += 1
        # the number is a thread's, so each thread sets and resets it
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            torch.set_num_threads(_before)


@contextmanager
def all_threads() -> Iterator[None]:
    """Inside :func:`one_thread`, for a large operation: restores the previous number of threads."""
    import torch

    torch.set_num_threads(_before)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def is_openmp(path: str) -> bool:
    """Is a file one of OpenMP's runtimes, which computes nothing?"""
    return os.path.basename(path).startswith(_OPENMP)
