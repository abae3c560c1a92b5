"""Facts about this machine's CPU, from the system's files: usable cores, caches, instruction sets."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kernellab.target import Chip
from kernellab.target.cpu import cpu_fields, cpu_flags
from kernellab.target.target import VECTORS

#: instruction sets that a design may depend on, by the names that Linux gives them
_ISA = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512_fp16",
    "avx512_vnni", "amx_tile", "amx_bf16", "asimd", "asimdhp", "bf16", "sve", "sve2",
)  # fmt: skip


def cpu_facts() -> Chip:
    """Return the CPU that this process may use: cores by affinity and quota, caches, instruction sets; no rates."""
    return _mac_facts() if sys.platform == "darwin" else _linux_facts()


def usable_cores() -> int:
    """Return the cores that this process may use: its affinity, limited by a container's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    return cores


def _linux_facts() -> Chip:
    fields, flags = cpu_fields(), cpu_flags()
    isa = tuple(name for name in _ISA if name in flags)
    cores = usable_cores()
    simd = 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    product = fields.get("model name") or fields.get("Model") or f"{platform.machine()} CPU"
    caches = _linux_caches()
    return Chip(
        name=f"{_short_product(product)}, {cores} cores{_simd_word(isa)}",
        kind="cpu",
        cores=cores,
        simd_bits=simd,
        isa=isa,
        l1_bytes=caches.get(1, 0),
        l2_bytes=caches.get(2, 0),
        l3_bytes=caches.get(3, 0),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _linux_caches() -> dict[int, int]:
    """Return the bytes of one instance of each cache level (level 1: data); an L2 that cores share is divided among
    them."""
    sizes: dict[int, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if read_text(folder / "type").strip() == "Instruction":
            continue
        match = re.fullmatch(r"(\d+)([KM]?)", read_text(folder / "size").strip())
        level = read_text(folder / "level").strip()
        if match and level.isdigit():
            size = int(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]]
            sharers = _cpus_in_list(read_text(folder / "shared_cpu_list").strip()) if level == "2" else 1
            threads = _cpus_in_list(
                read_text(Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")).strip()
            )
            sizes[int(level)] = size // max(1, sharers // max(1, threads))
    return sizes


def _cpus_in_list(text: str) -> int:
    """Return the number of CPUs in a list such as ``0-3,8``."""
    total = 0
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return max(1, total)


def _mac_facts() -> Chip:
    def ask(name: str) -> str:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def number(*names: str) -> int:
        return next((int(value) for value in map(ask, names) if value.isdigit()), 0)

    arm = platform.machine() == "arm64"
    cores = number("hw.perflevel0.physicalcpu", "hw.physicalcpu") or 1
    sharers = number("hw.perflevel0.cpusperl2") or 1
    return Chip(
        name=f"{ask('machdep.cpu.brand_string') or 'Apple CPU'}, {cores} cores",
        kind="cpu",
        cores=cores,
        simd_bits=128 if arm else 256,
        isa=("asimd", "asimdhp") if arm else ("avx2", "fma"),
        l1_bytes=number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
        l2_bytes=number("hw.perflevel0.l2cachesize", "hw.l2cachesize") // sharers,
        l3_bytes=number("hw.l3cachesize"),
        memory_bytes=number("hw.memsize"),
    )


def _short_product(product: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*", " ", product)).strip() or "CPU"


def _simd_word(isa: tuple[str, ...]) -> str:
    word = next((word for flag, word in VECTORS if flag in isa), "")
    return f", {word}" if word else ""


def read_text(path: Path) -> str:
    """Return a file of the system; "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


__all__ = ["cpu_facts", "read_text", "usable_cores"]
