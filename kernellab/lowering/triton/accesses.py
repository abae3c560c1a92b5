"""How a kernel's accesses to memory decide the order of a tile's lanes, barriers, and what stays in the cache."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.sketch.program.program import If, Kernel, Load, Loop, Point, Region, Statement, Store
from kernellab.sketch.program.walk import statements


def reads_earlier_stores(loop: Loop) -> bool:
    """May an iteration read what another thread stored in an earlier one? Then all threads must have stored before."""
    inner = list(statements(loop.body))
    stored = [s.region for s in inner if isinstance(s, Store)]
    loaded = [s.region for s in inner if isinstance(s, Load)]
    return any(a.tensor.name == b.tensor.name and a.index != b.index for a in stored for b in loaded)


def is_scattered(region: Region) -> bool:
    """May a warp's lanes be spread over distant rows? Among dimensions of equal contiguity, Triton assigns the lanes to
    the first: it must be the one whose elements are closest. Measured on an H200, stores of every second element: 5
    times as fast."""
    return is_strided(region) or len(region.shape) > 2


def is_strided(region: Region) -> bool:
    """Is no dimension of the tile contiguous in memory?"""
    last = region.index[-1]
    return isinstance(last, Point) or not last.step.is_one


def streamed_tensors(kernel: Kernel) -> frozenset[str]:
    """Return the tensors whose elements are read once, in a kernel that reads another tensor repeatedly.

    Loads of the other one are marked to stay in the cache while these stream past."""
    reads_once: dict[str, bool] = {}

    def walk(body: Sequence[Statement], around: frozenset[str]) -> None:
        for stmt in body:
            if isinstance(stmt, Loop):
                walk(stmt.body, around | {stmt.var})
            elif isinstance(stmt, If):
                walk((*stmt.then, *stmt.orelse), around)
            elif isinstance(stmt, Load):
                index = stmt.region.index
                names = [frozenset().union(*(e.loop_vars() for e in vars(i).values())) for i in index]
                name = stmt.region.tensor.name
                # several loops in an index: overlapping windows
                is_single = all(len(n) <= 1 for n in names) and around <= frozenset().union(*names)
                reads_once[name] = name not in reads_once and is_single

    walk(kernel.body, frozenset())
    streamed = frozenset(name for name, once in reads_once.items() if once)
    return streamed if len(streamed) < len(reads_once) else frozenset()


__all__ = ["is_scattered", "is_strided", "reads_earlier_stores", "streamed_tensors"]
