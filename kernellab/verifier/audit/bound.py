"""The speed of light of a task: what its compulsory bytes and FLOPs cost on this machine's measured roofs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from dataclasses import asdict, astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernellab.content import written
from kernellab.errors import KernellabError
from kernellab.target.cpu import cpu_fields
from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.audit.audit import audit
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.audit.trace import Cost
from kernellab.verifier.judge.placement import as_timed
from kernellab.verifier.protocol.rules import DEVICE

_COPY_BYTES = 64 << 20
_GEMM = 768
#: data this small may stay in the caches, where no byte floor holds
_CACHED_BYTES = 256 << 20
_SYSTEM = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Roofs:
    """Bytes/s of a copy (read + write) into pages in use and into fresh ones, and FLOP/s of a float32 and of a float64
    matmul; ``day`` is when they were measured last."""

    copy: float
    copy_fresh: float
    flops: float
    double: float
    day: str = ""


@dataclass(frozen=True)
class Bound:
    """``ms`` is the larger of the byte and the FLOP time. ``byte_floor_ms`` only where data is well past the caches.

    ``bandwidth`` in bytes/s, ``rate`` and ``doubles`` of a product of float32 and of float64 in FLOP/s were measured
    on ``day``; 0 where they were not. ``by_bytes``: the bytes take the longer.
    """

    bytes: int
    flops: int
    ms: float
    byte_floor_ms: float | None
    bandwidth: float = 0.0
    rate: float = 0.0
    doubles: float = 0.0
    by_bytes: bool = False
    day: str = ""

    @property
    def measured(self) -> dict[str, Any]:
        """The rates as an :class:`~kernellab.records.Environment` keeps them."""
        return {"bandwidth": self.bandwidth, "flops": self.rate, "doubles": self.doubles, "rated": self.day}


@lru_cache(maxsize=4)
def roofs(threads: int) -> Roofs:
    """The best of several runs, since a roof is a maximum; 0.3 s once a machine, then from the user's cache folder."""
    return _known(threads) or _kept(threads, _measured(threads))


def roofs_again(threads: int) -> Roofs:
    """The roofs measured once more; of each the best that was ever measured."""
    known, found = roofs(threads), _measured(threads)
    roofs.cache_clear()
    copy, fresh, flops, double, _ = (max(pair) for pair in zip(astuple(known), astuple(found), strict=True))
    return _kept(threads, Roofs(copy, fresh, flops, double, found.day))


def _known(threads: int) -> Roofs | None:
    path = _cache_file(threads)
    if path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            kept = Roofs(**json.loads(path.read_text()))
            # of an unknown day: measured again
            return kept if kept.day else None
    return None


def _kept(threads: int, found: Roofs) -> Roofs:
    path = _cache_file(threads)
    if path is not None:
        with contextlib.suppress(KernellabError):  # a cache that cannot be written is measured again next time
            written(path, json.dumps(asdict(found)))
    return found


def _measured(threads: int) -> Roofs:
    import torch

    torch.set_num_threads(threads)
    # what other work leaves over is no fact of the machine, and timed calls go first, too
    with as_timed(os.getpid()):
        count = _COPY_BYTES // 4
        source, target = torch.rand(count), torch.rand(count)
        copy = _best(lambda: target.copy_(source), 5)
        fresh = _best(source.clone, 3)
        a, b = torch.rand(_GEMM, _GEMM), torch.rand(_GEMM, _GEMM)
        gemm = _best(lambda: a @ b, 5)
        a, b = a.double(), b.double()
        double = _best(lambda: a @ b, 3)
    torch.set_num_threads(1)
    return Roofs(2 * _COPY_BYTES / copy, 2 * _COPY_BYTES / fresh, 2 * _GEMM**3 / gemm, 2 * _GEMM**3 / double, today())


def today() -> str:
    return time.strftime("%Y-%m-%d")


def _cache_file(threads: int) -> Path | None:
    """One file for each machine, torch and number of threads; None when the caller gave no folder."""
    import torch

    folder = os.environ.get(CACHE)
    if not folder:
        return None
    cpu = cpu_fields().get("model name") or platform.processor()
    key = f"{cpu}:{platform.machine()}:{os.cpu_count()}:{threads}:{torch.__version__}"
    return Path(folder) / f"roofs-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


@lru_cache(maxsize=4)
def caches(system: Path = _SYSTEM) -> int:
    """Bytes of the machine's last-level caches together, each shared one once; 0 where the system does not say."""
    found: dict[tuple[int, str], int] = {}
    for folder in system.glob("cpu[0-9]*/cache/index[0-9]*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            level, shared, size = ((folder / n).read_text().strip() for n in ("level", "shared_cpu_list", "size"))
            found[int(level), shared] = int(size[:-1]) * _UNITS[size[-1]]
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)


def speed_of_light(task: Task, threads: int) -> Bound | None:
    """The bound at the task's own sizes; None when the reference's operators cannot be counted."""
    cost = counted(task)
    if cost is None:
        return None
    found = roofs(threads)
    size = input_bytes(task)
    by_bytes = size / found.copy * 1e3
    # nothing that computes float64 is faster than its products
    flops = found.double if set(cost.flops) == {"float64"} else found.flops
    rates = Rates(found.copy, flops, flops, shared=True)
    floor = by_bytes if size > max(_CACHED_BYTES, DEVICE.floor_caches * caches()) and reads_everything(task) else None
    line = roofline(cost, rates)
    by_bytes = line.bytes_ms >= line.flops_ms
    return Bound(size, cost.total_flops, line.ms, floor, found.copy, found.flops, found.double, by_bytes, found.day)


@dataclass(frozen=True)
class Rates:
    """Bytes/s, FLOP/s of products and of other arithmetic; ``shared``: by the same units, one after the other."""

    bandwidth: float
    products: float
    other: float
    shared: bool


@dataclass(frozen=True)
class Roofline:
    """What a task costs at least: the time in ms for its bytes, and for its arithmetic."""

    bytes_ms: float
    flops_ms: float

    @property
    def ms(self) -> float:
        return max(self.bytes_ms, self.flops_ms)


def roofline(cost: Cost, rates: Rates) -> Roofline:
    """The one bound of a task, by whoever asks: each byte once, and all of the reference's arithmetic."""
    products = cost.total_flops / rates.products if cost.total_flops else 0.0
    other = cost.other_flops / rates.other if cost.other_flops else 0.0
    arithmetic = products + other if rates.shared else max(products, other)
    return Roofline(1e3 * cost.compulsory_bytes / rates.bandwidth, 1e3 * arithmetic)


def reads_everything(task: Task) -> bool:
    """Does every input element matter, so that no right kernel can do with fewer bytes?"""
    return audit(task).every_element


def counted(task: Task) -> Cost | None:
    """What one run of the reference takes at the task's own sizes; None when its operators cannot be counted."""
    cost = audit(task).cost
    if task.framework == "numpy":
        return Cost(compulsory_bytes=cost.compulsory_bytes)
    return None if cost.problem and not cost.operators else cost


def _best(work: Any, runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
