"""This machine: its chips, and the Target of a DSL on it.

Nothing here imports torch: a GPU's facts come from the driver's files (or from torch, if it is already loaded) and its
rates from ``knowledge/hardware``; a CPU's rates are measured once and stored (rates.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kernellab.dsls import get_adapter
from kernellab.dsls.host_cpu import cpu_facts, read_text, usable_cores
from kernellab.dsls.rates import Rates, busy, keep_judged, measure_rates, user_cache, with_rates
from kernellab.errors import TargetError
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip, known_chips

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
        named = named_chip(chip)
        # a kernel for a CPU, designed for a GPU's memories, would be labelled with the GPU's name
        if (named.kind == "cpu") != (backend is Backend.CPU):
            kind = "CPU" if backend is Backend.CPU else "GPU"
            raise TargetError(
                f"{adapter.name} is for a {kind} here, and {named.name} is not one.",
                "Choose another --dsl (triton for a GPU, cpp for a CPU), or leave out --chip.",
            )
        return Target(adapter.name, backend, named)
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


# -- chips -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def cpu_chip() -> Chip:
    """Return the CPU that this process may use: cores by affinity and quota, caches, instruction sets, measured
    rates."""
    return with_rates(cpu_facts())


def gpu_products() -> tuple[str, ...]:
    """Return product names of the NVIDIA GPUs that this process may use, from the driver's files; "NVIDIA GPU" if there
    is only a device node."""
    return _visible(_driver_products(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(products: tuple[str, ...], selected: str | None) -> tuple[str, ...]:
    """Return the products that CUDA_VISIBLE_DEVICES selects, in its order. Like the driver, this ends at the first
    unknown number."""
    if selected is None:
        return products
    visible = []
    for word in map(str.strip, selected.split(",")):
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
        match = re.search(r"^Model:\s*(.+)$", read_text(file), re.MULTILINE)
        names.append(match[1].strip() if match else "NVIDIA GPU")
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*"))
    wsl = Path("/dev/dxg").exists()
    if names or not (nodes or wsl):
        return tuple(names)
    return _ask_nvidia_smi() or ("NVIDIA GPU",) * max(1, len(nodes))


def _ask_nvidia_smi() -> tuple[str, ...]:
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
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


__all__ = [
    "INTERPRETED_FOR", "Rates", "busy", "cpu_chip", "cpu_facts", "detect_target", "gpu_chip", "gpu_products",
    "keep_judged", "measure_rates", "named_chip", "usable_cores", "user_cache",
]  # fmt: skip
