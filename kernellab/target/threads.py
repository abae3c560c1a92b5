"""How many threads torch uses: one for what is small; and the runtimes in which threads wait."""

from __future__ import annotations

import os.path
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: OpenMP's runtimes, in which threads begin and wait
_OPENMP = ("libgomp", "libomp", "libiomp")
_LOCK = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch's operators called from this thread run on it alone.

    A team must be woken for every operator and waits for its slowest: a thousand operators on small tensors take a
    tenth of the time and of the cores without one, on a busy machine far less. The number that was set before comes
    back when the block ends; several threads may be inside at once.
    """
    import torch

    global _inside, _before
    with _LOCK:
        if not _inside:
            _before = torch.get_num_threads()
        _inside += 1
        # each thread has its own number, and so each sets and resets it
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            torch.set_num_threads(_before)


@contextmanager
def all_threads() -> Iterator[None]:
    """Inside :func:`one_thread`, for one operation on much: as many threads as there were before."""
    import torch

    torch.set_num_threads(_before)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def is_openmp(path: str) -> bool:
    """Is a file one of OpenMP's runtimes, which computes nothing?"""
    return os.path.basename(path).startswith(_OPENMP)
