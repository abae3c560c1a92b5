"""The barriers of an asynchronous kernel: their names, and the phase that each wait names.

An mbarrier's phase is one bit, which flips when all expected arrivals have come; a wait names the phase whose end it
waits for. Step ``t`` uses the buffer ``t % STAGES`` for the ``n``-th time, ``n = t // STAGES``. For that use

    barrier   arrives                                    waits                            phase
    ready     the copy engine, with the last byte        the groups that read the buffer  n & 1
    free      each group that has read the buffer        the loader, before it fills it   (n & 1) ^ 1
    taken     each block of a cluster, likewise          the loader of its first block    (n & 1) ^ 1
    turns     the group ahead                            a group whose turn it is         see below

The phase before the first one counts as complete, so that no wait for a free buffer blocks in its first use.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.sketch.program.program import Load

#: the phases of a resident tile, which is loaded once for each of the tiles that a program computes
RESIDENT_READY, RESIDENT_FREE = "tile_count & 1", "(tile_count & 1) ^ 1"
#: groups take whole tiles in turn: a phase is one bit, so a group waits until the groups ahead have read their buffers
TILE_TURN = "(tile_count // GROUPS & 1) ^ (1 if who == 0 else 0)"
#: groups issue the products of step ``t`` in turn
STEP_TURN = "(t & 1) ^ (0 if who == 0 else 1)"


def name(loads: Sequence[Load], event: str) -> str:
    """Return the name of the barrier for ``event`` (ready, free, taken) of loads that arrive together."""
    return f"{loads[0].tile.name.removesuffix('_tile')}_{event}"


def slot(step: str) -> str:
    """Return the number of the buffer that ``step`` uses."""
    return f"{step} % STAGES"


def ready_phase(step: str) -> str:
    return f"{step} // STAGES & 1"


def free_phase(ready: str) -> str:
    """Return the phase to wait for before the buffer is filled, from that of ``ready``."""
    return f"{ready} ^ 1"


def wait(barrier: str, phase: str) -> str:
    return f"mbarrier.wait({barrier}, {phase})"


def arrive(barrier: str, pred: str = "") -> str:
    """Return an arrival; ``pred``: the condition under which it arrives."""
    return f"mbarrier.arrive({barrier}{f', pred={pred}' if pred else ''})"
