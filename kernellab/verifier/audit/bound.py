"""The speed of light of a task: the time for its compulsory bytes and FLOPs at this machine's measured roofs."""

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
#: data up to this size may stay in the caches, where no byte floor applies
_CACHED_BYTES = 256 << 20
_SYSTEM = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Roofs:
    """Bytes/s of a copy (read + write) into pages in use and into fresh ones, and FLOP/s of a float32 and of a float64
    matmul; ``day`` is the date of the last measurement."""

    copy: float
    copy_fresh: float
    flops: float
    double: float
    day: str = ""


@dataclass(frozen=True)
class Bound:
    """``ms`` is the larger of the byte and the FLOP time. ``byte_floor_ms`` is only set for data far beyond the caches.

    ``bandwidth`` (bytes/s), ``rate`` and ``doubles`` (FLOP/s of a float32 and a float64 product) were measured on
    ``day``; 0 if they were not. ``by_bytes``: the byte time is the larger one.
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
        """The rates in the form of an :class:`~kernellab.records.Environment`."""
        return {"bandwidth": self.bandwidth, "flops": self.rate, "doubles": self.doubles, "rated": self.day}


@lru_cache(maxsize=4)
def roofs(threads: int) -> Roofs:
    """The best of several runs, since a roof is a maximum; 0.3 s once per machine, then from the user's cache."""
    return _known(threads) or _kept(threads, _measured(threads))


def roofs_again(threads: int) -> Roofs:
    """Measure the roofs again, and return the best ever measured of each."""
    best, measured = roofs(threads), _measured(threads)
    roofs.cache_clear()
    copy, fresh, flops, double, _ = (max(pair) for pair in zip(astuple(best), astuple(measured), strict=True))
    return _kept(threads, Roofs(copy, fresh, flops, double, measured.day))


def _known(threads: int) -> Roofs | None:
    path = _cache_file(threads)
    if path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            stored = Roofs(**json.loads(path.read_text()))
            # without a date: measured again
            return stored if stored.day else None
    return None


def _kept(threads: int, found: Roofs) -> Roofs:
    path = _cache_file(threads)
    if path is not None:
        with contextlib.suppress(KernellabError):  # without a cache, the next process measures again
            written(path, json.dumps(asdict(found)))
    return found


def _measured(threads: int) -> Roofs:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # other work must not reduce a roof, and timed calls have priority too
        with as_timed(os.getpid()):
            count = _COPY_BYTES // 4
            source, target = torch.rand(count), torch.rand(count)
            copy = _best(lambda: target.copy_(source), 5)
            fresh = _best(source.clone, 3)
            a, b = torch.rand(_GEMM, _GEMM), torch.rand(_GEMM, _GEMM)
            gemm = _best(lambda: a @ b, 5)
            a, b = a.double(), b.double()
            double = _best(lambda: a @ b, 3)
    finally:
        torch.set_num_threads(before)
    return Roofs(2 * _COPY_BYTES / copy, 2 * _COPY_BYTES / fresh, 2 * _GEMM**3 / gemm, 2 * _GEMM**3 / double, today())


def today() -> str:
    return time.strftime("%Y-%m-%d")


def _cache_file(threads: int) -> Path | None:
    """One file for each machine, torch version and number of threads; None if the caller set no folder."""
    import torch

    folder = os.environ.get(CACHE)
    if not folder:
        return None
    cpu = cpu_fields().get("model name") or platform.processor()
    key = f"{cpu}:{platform.machine()}:{os.cpu_count()}:{threads}:{torch.__version__}"
    return Path(folder) / f"roofs-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


@lru_cache(maxsize=4)
def caches(system: Path = _SYSTEM) -> int:
    """Total bytes of the machine's last-level caches, with shared ones counted once; 0 if the system does not say."""
    sizes: dict[tuple[int, str], int] = {}
    for folder in system.glob("cpu[0-9]*/cache/index[0-9]*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            level, shared, size = ((folder / n).read_text().strip() for n in ("level", "shared_cpu_list", "size"))
            sizes[int(level), shared] = int(size[:-1]) * _UNITS[size[-1]]
    last = max((level for level, _ in sizes), default=0)
    return sum(size for (level, _), size in sizes.items() if level == last)


def speed_of_light(task: Task, threads: int) -> Bound | None:
    """The bound at the task's own sizes; None if the reference's operators cannot be counted."""
    cost = counted(task)
    if cost is None:
        return None
    roof = roofs(threads)
    size = input_bytes(task)
    by_bytes = size / roof.copy * 1e3
    # no float64 computation is faster than its products
    flops = roof.double if set(cost.flops) == {"float64"} else roof.flops
    rates = Rates(roof.copy, flops, flops, shared=True)
    floor = by_bytes if size > max(_CACHED_BYTES, DEVICE.floor_caches * caches()) and reads_everything(task) else None
    line = roofline(cost, rates)
    by_bytes = line.bytes_ms >= line.flops_ms
    return Bound(size, cost.total_flops, line.ms, floor, roof.copy, roof.flops, roof.double, by_bytes, roof.day)


@dataclass(frozen=True)
class Rates:
    """Bytes/s, FLOP/s of products and of other arithmetic; ``shared``: by the same units, one after the other."""

    bandwidth: float
    products: float
    other: float
    shared: bool


@dataclass(frozen=True)
class Roofline:
    """The least cost of a task: the time (ms) for its bytes, and for its arithmetic."""

    bytes_ms: float
    flops_ms: float

    @property
    def ms(self) -> float:
        return max(self.bytes_ms, self.flops_ms)


def roofline(cost: Cost, rates: Rates) -> Roofline:
    """The bound of a task, the same for every caller: each byte once, and all of the reference's arithmetic."""
    products = cost.total_flops / rates.products if cost.total_flops else 0.0
    other = cost.other_flops / rates.other if cost.other_flops else 0.0
    arithmetic = products + other if rates.shared else max(products, other)
    return Roofline(1e3 * cost.compulsory_bytes / rates.bandwidth, 1e3 * arithmetic)


def reads_everything(task: Task) -> bool:
    """Does every input element matter, so that no right kernel can read fewer bytes?"""
    return audit(task).every_element


def counted(task: Task) -> Cost | None:
    """The cost of one run of the reference at the task's own sizes; None if its operators cannot be counted."""
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
