"""A CPU's rates: measured once on this machine, and stored in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernellab.content import written
from kernellab.dsls.host_cpu import cpu_facts, usable_cores
from kernellab.errors import KernellabError
from kernellab.records import Environment
from kernellab.target import JUDGED, Chip
from kernellab.target.chips import known_chips


@dataclass(frozen=True)
class Rates:
    """Copy bandwidth in bytes read and written per second; FLOP/s of matmul; ``source`` says how and when they were
    measured."""

    bandwidth: float
    f32: float
    f64: float
    source: str
    judged: bool = False


def keep_judged(environment: Environment) -> None:
    """Store the rates that a verdict's judge measured on all cores of this CPU. From the next process on they are the
    chip's, so that doctor, prompts, views and verdicts agree."""
    chip = cpu_facts()
    measured = environment.bandwidth and environment.flops and environment.doubles
    # rates that were measured next to other work are no facts about the chip
    if environment.load > _most_load():
        return
    if not measured or (environment.chip, environment.threads) != (chip.name, chip.cores):
        return
    path = _cache_file(chip)
    rates = Rates(
        environment.bandwidth, environment.flops, environment.doubles, JUDGED.format(day=environment.rated), judged=True
    )
    if _stored(path) != rates:
        _store(path, rates)


def measure_rates(cores: int) -> Rates:
    """Measure rates in about 0.3 s: a copy of 128 MiB by ``cores`` threads, and NumPy's matmul; the best of a few."""
    import numpy as np

    parts = [np.ones(2**25 // cores, np.float32) for _ in range(cores)]
    outs = [np.empty_like(part) for part in parts]

    def copy() -> None:
        threads = [threading.Thread(target=np.copyto, args=pair, daemon=True) for pair in zip(outs, parts, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    copied = 2 * sum(part.nbytes for part in parts) / _best_time(copy, 4)
    flops = {}
    for dtype in (np.float32, np.float64):
        a = np.ones((768, 768), dtype)
        flops[dtype] = 2 * 768**3 / _best_time(partial(np.matmul, a, a), 3)
    day = time.strftime("%Y-%m-%d")
    source = f"measured here on {day}: threaded NumPy copy of 128 MiB, NumPy matmul 768^3; best of a few"
    return Rates(copied, flops[np.float32], flops[np.float64], source)


def _best_time(work: Callable[[], object], times: int) -> float:
    """Return the shortest of ``times`` calls in seconds."""
    best = float("inf")
    for _ in range(times + 1):  # the first call faults pages in and is never the best
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def with_rates(chip: Chip) -> Chip:
    """Return the CPU with its rates: stored ones, or measured now."""
    path = _cache_file(chip)
    rates = _stored(path)
    if rates is None:
        try:
            rates = measure_rates(chip.cores)
        except (ImportError, MemoryError):
            return _estimated(chip)
        if busy():  # rates next to other work are no facts about the chip: used now, measured again next time
            return _bounded(_rated(chip, rates), _estimated(chip))
        _store(path, rates)
    return _rated(chip, rates)


def _bounded(measured: Chip, estimated: Chip) -> Chip:
    """Return the higher of the rates measured on a busy machine and those of its class: a bound from lower rates can be
    exceeded."""
    peaks = {name: max(rate, estimated.peak_flops.get(name, 0.0)) for name, rate in measured.peak_flops.items()}
    source = f"{measured.source}; the machine was busy, so the rates {estimated.source} count where they are higher"
    return replace(
        measured, bandwidth=max(measured.bandwidth, estimated.bandwidth), peak_flops=peaks, source=source, rough=True
    )


def _store(path: Path, rates: Rates) -> None:
    with suppress(KernellabError):  # a read-only home: measured again next time
        written(path, json.dumps(rates.__dict__))


def _rated(chip: Chip, rates: Rates) -> Chip:
    peaks = {"f32": rates.f32, "f64": rates.f64}
    return replace(chip, bandwidth=rates.bandwidth, peak_flops=peaks, source=rates.source, judged=rates.judged)


def busy() -> bool:
    """Does other work run here, so that measurements are rough?"""
    try:
        return os.getloadavg()[0] > _most_load()
    except OSError:
        return False


def _most_load() -> float:
    """Return the load average up to which measurements count: half of the cores are idle; chosen, not measured."""
    return usable_cores() / 2 + 0.5


def _estimated(chip: Chip) -> Chip:
    """Return the rates of the server class in knowledge/hardware, scaled by cores and SIMD width."""
    server = next((entry.chip for entry in known_chips() if entry.chip.kind == "cpu"), None)
    if server is None:
        return chip
    scale = chip.cores / server.cores * (chip.simd_bits or 128) / server.simd_bits
    peaks = {name: rate * scale for name, rate in server.peak_flops.items()}
    return replace(chip, bandwidth=server.bandwidth, peak_flops=peaks, source=f"estimated from {server.name}")


def _cache_file(chip: Chip) -> Path:
    key = f"{chip.name}|{chip.cores}|{chip.memory_bytes}|{platform.node()}"
    return user_cache() / f"rates-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


def user_cache() -> Path:
    """Return the user's cache folder for kernellab, which may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or (
        Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    )
    return Path(base) / "kernellab"


def _stored(path: Path) -> Rates | None:
    try:
        rates = Rates(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return rates if rates.bandwidth > 0 and rates.f32 > 0 else None


__all__ = ["Rates", "busy", "keep_judged", "measure_rates", "user_cache", "with_rates"]
