"""May a GPU's counters be read here? If not: why, and how to get permission.

Source: NVIDIA, "Permission issue with performance counters" (ERR_NVGPUCTRPERM)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from kernellab.dsls.cuda_c import toolkit
from kernellab.dsls.triton import has_cuda_device

#: CAP_SYS_ADMIN's bit
_ADMIN = 1 << 21
_PARAMETERS = Path("/proc/driver/nvidia/params")
PERMISSION = (
    "Run it as root in a container with --cap-add=SYS_ADMIN, or let an administrator write `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` to /etc/modprobe.d/nvidia-profiling.conf and load the driver again."
)


@dataclass(frozen=True)
class Preflight:
    """``ncu`` is its path, "" where counters cannot be read; then ``reason`` and ``remedy`` are a sentence each."""

    ncu: str = ""
    reason: str = ""
    remedy: str = ""


def preflight() -> Preflight:
    """Return whether counters can be read, from files alone: no program runs, and no GPU is initialised."""
    if not has_cuda_device():
        return Preflight(reason="There are no counters to read: this machine has no NVIDIA GPU.",
                         remedy="The facts of the texts need none.")  # fmt: skip
    ncu = ncu_path()
    if ncu is None:
        return Preflight(reason="ncu (Nsight Compute), which reads a GPU's counters, is not installed.",
                         remedy="It comes with the CUDA toolkit, or as the package nsight-compute.")  # fmt: skip
    if _restricted() and not _is_admin():
        return Preflight(reason="The driver lets only administrators read counters (RmProfilingAdminOnly is 1).",
                         remedy=PERMISSION)  # fmt: skip
    return Preflight(ncu=ncu)


def ncu_path() -> str | None:
    """Return the path of ncu: on PATH, in the toolkit, or in Nsight Compute's folder; "" without one."""
    if path := shutil.which("ncu"):
        return path
    home = toolkit()
    places = [f"{home}/bin/ncu"] if home else []
    places += sorted(glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)
    return next((place for place in places if Path(place).is_file()), None)


def _restricted() -> bool:
    try:
        lines = _PARAMETERS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.replace(" ", "") == "RmProfilingAdminOnly:1" for line in lines)


def _is_admin() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return False
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) & _ADMIN)


__all__ = ["PERMISSION", "Preflight", "ncu_path", "preflight"]
