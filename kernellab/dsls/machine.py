"""This machine: facts about its chips, and the Target of a DSL on it.

Nothing here imports torch: a GPU's facts come from the driver's files (or from torch, if it is already loaded) and its
rates from ``knowledge/hardware``; a CPU's rates are measured once and stored in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from kernellab.content import written
from kernellab.dsls import get_adapter
from kernellab.errors import KernellabError, TargetError
from kernellab.records import Environment
from kernellab.target import JUDGED, Backend, Chip, Target
from kernellab.target.chips import find_chip, known_chips
from kernellab.target.cpu import cpu_fields, cpu_flags
from kernellab.target.target import VECTORS

_ISA = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "amx_tile",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "bf16",
    "sve",
    "sve2",
)


#: the GPU for which a kernel is designed if Triton is only interpreted
INTERPRETED_FOR = "a100"


def detect_target(dsl: str | None = None, chip: str | None = None, rates: bool = True) -> Target:
    """Return the Target for ``dsl`` on this machine; without a DSL triton with a GPU, else cpp.

    ``chip`` selects a chip of ``knowledge/hardware``, by file or product name, instead of this machine's;
    Triton's interpreter, which needs no GPU, designs for INTERPRETED_FOR. Without ``rates`` a CPU's are not measured.

    Raises:
        TargetError: an unknown DSL or chip, a chip that the DSL does not run on, a missing compiler, or a DSL without
            its hardware.
    """
    gpus = gpu_products()
    adapter = get_adapter(dsl or ("triton" if gpus else "cpp"))
    ready = adapter.readiness()
    if not ready.ready:
        raise TargetError(ready.reason or f"{adapter.name} cannot run here.", ready.remedy)
    backend = ready.backend or (adapter.backends[0] if adapter.backends else Backend.CPU)
    if chip is not None:
        wanted = named_chip(chip)
        # a kernel for a CPU, designed for a GPU's memories, would be labelled with the GPU's name
        if (wanted.kind == "cpu") != (backend is Backend.CPU):
            kind = "CPU" if backend is Backend.CPU else "GPU"
            raise TargetError(
                f"{adapter.name} is for a {kind} here, and {wanted.name} is not one.",
                "Choose another --dsl (triton for a GPU, cpp for a CPU), or leave out --chip.",
            )
        return Target(adapter.name, backend, wanted)
    if backend is Backend.INTERPRETER:
        # the interpreter checks a kernel for a GPU; one made for this CPU would have no use there
        return Target(adapter.name, backend, named_chip(INTERPRETED_FOR))
    if backend is not Backend.CUDA:
        return Target(adapter.name, backend, cpu_chip() if rates else cpu_facts())
    chip_here = gpu_chip()
    if chip_here is None:
        raise TargetError(
            f"{adapter.name} needs a CUDA device, and the driver shows none.",
            "Check nvidia-smi, or choose --dsl cpp.",
        )
    return Target(adapter.name, backend, chip_here)


def named_chip(name: str) -> Chip:
    """Return a chip of ``knowledge/hardware`` by its file's stem or product name.

    Raises:
        TargetError: no file describes it.
    """
    for entry in known_chips():
        if name.lower() in (entry.path.stem, entry.chip.name.lower()):
            return entry.chip
    described = find_chip(name)
    # h1000 begins with h100 and is another chip: the model's number must be a word of both names
    if described is None or not _model_words(name) & _model_words(described.name):
        listed = ", ".join(entry.path.stem for entry in known_chips())
        raise TargetError(f"No file of knowledge/hardware describes the chip {name!r}.", f"Choose one of {listed}.")
    return described


def _model_words(name: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9]+", name.lower()) if re.search(r"\d", word)}


# -- CPU ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def cpu_chip() -> Chip:
    """Return the CPU that this process may use: cores by affinity and quota, caches, instruction sets, measured
    rates."""
    return _with_rates(cpu_facts())


def cpu_facts() -> Chip:
    """Return the same without rates, which take a second to measure."""
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
        if _read(folder / "type").strip() == "Instruction":
            continue
        match = re.fullmatch(r"(\d+)([KM]?)", _read(folder / "size").strip())
        level = _read(folder / "level").strip()
        if match and level.isdigit():
            size = int(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]]
            sharers = _count_list(_read(folder / "shared_cpu_list").strip()) if level == "2" else 1
            threads = _count_list(_read(Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")).strip())
            sizes[int(level)] = size // max(1, sharers // max(1, threads))
    return sizes


def _count_list(text: str) -> int:
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


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# -- measured rates ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Copy bandwidth in bytes read and written per second; FLOP/s of matmul; ``source`` says how and when they were
    measured."""

    bandwidth: float
    f32: float
    f64: float
    source: str
    judged: bool = False


def keep_judged(where: Environment) -> None:
    """Store the rates that a verdict's judge measured on all cores of this CPU. From the next process on they are the
    chip's, so that doctor, prompts, views and verdicts agree."""
    chip = cpu_facts()
    measured = where.bandwidth and where.flops and where.doubles
    # rates that were measured next to other work are no facts about the chip
    if where.load > usable_cores() / 2 + 0.5:
        return
    if not measured or (where.chip, where.threads) != (chip.name, chip.cores):
        return
    path = _cache_file(chip)
    rates = Rates(where.bandwidth, where.flops, where.doubles, JUDGED.format(day=where.rated), judged=True)
    if _stored(path) != rates:
        _keep(path, rates)


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
        flops[dtype] = 2 * 768**3 / _best_time(lambda a=a: a @ a, 3)
    day = time.strftime("%Y-%m-%d")
    source = f"measured here on {day}: threaded NumPy copy of 128 MiB, NumPy matmul 768^3; best of a few"
    return Rates(copied, flops[np.float32], flops[np.float64], source)


def _best_time(work: object, times: int) -> float:
    best = float("inf")
    for _ in range(times + 1):  # the first call faults pages in and is never the best
        began = time.perf_counter()
        work()  # type: ignore[operator]
        best = min(best, time.perf_counter() - began)
    return best


def _with_rates(chip: Chip) -> Chip:
    path = _cache_file(chip)
    rates = _stored(path)
    if rates is None:
        try:
            rates = measure_rates(chip.cores)
        except (ImportError, MemoryError):
            return _estimated(chip)
        if busy():  # rates next to other work are no facts about the chip: used now, measured again next time
            return _rough(_rated(chip, rates), _estimated(chip))
        _keep(path, rates)
    return _rated(chip, rates)


def _rough(measured: Chip, estimated: Chip) -> Chip:
    """Return the higher of the rates measured on a busy machine and those of its class: a bound from lower rates can be
    exceeded."""
    peaks = {name: max(rate, estimated.peak_flops.get(name, 0.0)) for name, rate in measured.peak_flops.items()}
    source = f"{measured.source}; the machine was busy, so the rates {estimated.source} count where they are higher"
    return replace(
        measured, bandwidth=max(measured.bandwidth, estimated.bandwidth), peak_flops=peaks, source=source, rough=True
    )


def _keep(path: Path, rates: Rates) -> None:
    with suppress(KernellabError):  # a read-only home: measured again next time
        written(path, json.dumps(rates.__dict__))


def _rated(chip: Chip, rates: Rates) -> Chip:
    peaks = {"f32": rates.f32, "f64": rates.f64}
    return replace(chip, bandwidth=rates.bandwidth, peak_flops=peaks, source=rates.source, judged=rates.judged)


def busy() -> bool:
    """Does other work run here, so that measurements are rough?"""
    try:
        return os.getloadavg()[0] > usable_cores() / 2 + 0.5
    except OSError:
        return False


def _estimated(chip: Chip) -> Chip:
    """Return the rates of the server class in knowledge/hardware, scaled by cores and SIMD width."""
    like = next((entry.chip for entry in known_chips() if entry.chip.kind == "cpu"), None)
    if like is None:
        return chip
    scale = chip.cores / like.cores * (chip.simd_bits or 128) / like.simd_bits
    peaks = {name: rate * scale for name, rate in like.peak_flops.items()}
    return replace(chip, bandwidth=like.bandwidth, peak_flops=peaks, source=f"estimated from {like.name}")


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


# -- GPU ---------------------------------------------------------------------------------------------------------------


def gpu_products() -> tuple[str, ...]:
    """Return product names of the NVIDIA GPUs that this process may use, from the driver's files; "NVIDIA GPU" if there
    is only a device node."""
    return _visible(_driver_products(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(products: tuple[str, ...], named: str | None) -> tuple[str, ...]:
    """Return the products that CUDA_VISIBLE_DEVICES selects, in its order. Like the driver, this ends at the first
    unknown number."""
    if named is None:
        return products
    visible = []
    for word in map(str.strip, named.split(",")):
        # the driver's files do not map a UUID to its product; a machine's GPUs are nearly always alike
        at = 0 if word.startswith(("GPU-", "MIG-")) else int(word) if word.isdecimal() else len(products)
        if at >= len(products):
            break
        visible.append(products[at])
    return tuple(visible)


@lru_cache(maxsize=1)
def _driver_products() -> tuple[str, ...]:
    names = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        match = re.search(r"^Model:\s*(.+)$", _read(file), re.MULTILINE)
        names.append(match[1].strip() if match else "NVIDIA GPU")
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*"))
    wsl = Path("/dev/dxg").exists()
    if names or not (nodes or wsl):
        return tuple(names)
    return _ask_nvidia_smi() or ("NVIDIA GPU",) * max(1, len(nodes))


def _ask_nvidia_smi() -> tuple[str, ...]:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def gpu_chip(index: int = 0) -> Chip | None:
    """Return the GPU's facts: knowledge/hardware by product name, with torch's properties if torch is loaded.

    A GPU without a file has zeros for what cannot be read, and its ``source`` says so. None without a GPU."""
    products = gpu_products()
    if index >= len(products):
        return None
    product = products[index]
    chip = find_chip(product) or Chip(
        name=product, kind="gpu", cores=0, source=f"no file of knowledge/hardware matches {product!r}"
    )
    return _with_torch_facts(chip, index)


def _with_torch_facts(chip: Chip, index: int) -> Chip:
    if sys.modules.get("torch") is None:
        return chip
    import torch  # another thread may be initialising it: this waits

    if not torch.cuda.is_available():
        return chip
    properties = torch.cuda.get_device_properties(index)
    facts: Mapping[str, object] = {
        "name": properties.name,
        "cores": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", 0) or chip.l2_bytes,
        "shared_bytes": getattr(properties, "shared_memory_per_block_optin", 0) or chip.shared_bytes,
        "registers_per_core": getattr(properties, "regs_per_multiprocessor", 0) or chip.registers_per_core,
    }
    return replace(chip, **facts)  # type: ignore[arg-type]
