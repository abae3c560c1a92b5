"""A run under ncu, and its counters as facts with a sentence each."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.content import module_command
from kernellab.dsls.cuda_c import toolkit
from kernellab.dsls.triton import has_cuda_device
from kernellab.errors import SessionError
from kernellab.lens.records import Fact
from kernellab.records import Source

if TYPE_CHECKING:
    from kernellab.task import Task

_SECONDS = 180
_TIME = "gpu__time_duration.sum"
_DRAM, _SM = "dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
_L2, _L1 = "lts__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate.pct"
_TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
_BANKS = "l1tex__data_bank_conflicts_pipe_lsu.sum"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
#: what a warp waits for, in words
_WAITS = {
    "long_scoreboard": "data from memory or L2",
    "short_scoreboard": "shared memory or special functions",
    "barrier": "the other warps at a barrier",
    "math_pipe_throttle": "a busy arithmetic unit",
    "mio_throttle": "the queue to shared memory",
    "lg_throttle": "the queue to L1",
    "wait": "the fixed time of the instruction before",
}
_METRICS = (_TIME, _DRAM, _SM, _READ, _WRITTEN, _WARPS, _L2, _L1, _TENSOR, _BANKS, *map(_STALL.format, _WAITS))


def counters(source: Source, task: Task, unsandboxed: bool = False) -> list[Fact]:
    """Of one call of ``source`` on the task's own inputs, kernel by kernel. Blocking: seconds.

    ncu works from within the process, which no sandbox allows: the kernel runs with the person's own rights.

    Raises:
        SessionError: no one allowed that, the preflight says no, the run fails, or ncu gives nothing.
    """
    ready = preflight()
    if not ready.ncu:
        raise SessionError(ready.reason, ready.remedy)
    if not unsandboxed:
        raise SessionError(
            "Under ncu a kernel runs with your own rights, outside the sandbox.",
            "If you trust its author, allow it: --unsandboxed.",
        )
    with tempfile.TemporaryDirectory(prefix="kernellab-ncu-") as place:
        folder = Path(place)
        request = {
            "name": task.name, "text": task.module().text,
            "source": {
                "entry_file": source.entry_file, "entry": source.entry,
                "arguments": len(task.args), "defaults": task.last_defaults,
            },
        }  # fmt: skip
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        for name, text in source.files.items():
            path = folder / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        said = _run(ready.ncu, folder)
    found = [fact for row in rows(said) for fact in facts(row)]
    if not found:
        raise SessionError(f"ncu gave no counter: {_last(said)}", "Check with `kernellab verify` that the kernel runs.")
    return found


def _run(ncu: str, folder: Path) -> str:
    command = [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
        "--target-processes", "all", "--metrics", ",".join(_METRICS),
        *module_command("kernellab.lens.counters.run", str(folder)),
    ]  # fmt: skip
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise SessionError(f"ncu took longer than {_SECONDS} s.", "Take a smaller task.") from None
    said = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in said:
        raise SessionError("The driver does not let this user read the GPU's counters (ERR_NVGPUCTRPERM).", PERMISSION)
    return said


def rows(said: str) -> Iterator[dict[str, str]]:
    """The table that ncu prints behind its own lines: one row a kernel, after one of units."""
    lines = said.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return
    table = [line for line in lines[start:] if line.startswith('"')]
    for row in csv.DictReader(io.StringIO("\n".join(table))):
        if row.get("ID", "").isdigit():
            yield row


def facts(row: Mapping[str, str]) -> Iterator[Fact]:
    """Of one kernel's row; counters that this GPU does not have are left out."""
    kernel = row.get("Kernel Name", "")[:80]

    def value(name: str) -> float | None:
        try:
            return float(row.get(name, "").replace(",", ""))
        except ValueError:
            return None

    time, dram, sm = value(_TIME), value(_DRAM), value(_SM)
    read, written = value(_READ), value(_WRITTEN)
    if time is not None:
        yield Fact(
            "time under ncu",
            f"{time / 1000:.1f} us",
            "With clocks that ncu holds: for ratios, not for speedups.",
            kernel,
        )
    if dram is not None and sm is not None:
        most = "memory" if dram >= sm else "the SMs"
        state = (
            f"{most} bound it" if max(dram, sm) >= 60 else "neither is near its limit: it waits, or the grid is small"
        )
        yield Fact(
            "busy",
            f"{max(dram, sm):.0f} %",
            f"Memory runs at {dram:.0f} % of its peak, the SMs at {sm:.0f} %; {state}.",
            kernel,
        )
    if read is not None and written is not None:
        rate = f", {(read + written) / time:.0f} GB/s" if time else ""
        sentence = f"{read / 1e6:.2f} MB came from memory and {written / 1e6:.2f} MB went there{rate}."
        yield Fact("memory traffic", f"{(read + written) / 1e6:.2f} MB", sentence, kernel)
    if (warps := value(_WARPS)) is not None:
        yield Fact(
            "occupancy reached",
            f"{warps:.0f} %",
            f"While an SM worked it held {warps:.0f} % of its warps on average.",
            kernel,
        )
    if (l2 := value(_L2)) is not None and (l1 := value(_L1)) is not None:
        yield Fact(
            "cache hits",
            f"{l2:.0f} %",
            f"{l1:.0f} % of sectors were found in L1, {l2:.0f} % of the rest in L2.",
            kernel,
        )
    if tensor := value(_TENSOR):
        yield Fact(
            "tensor pipe", f"{tensor:.0f} %", f"The tensor cores worked in {tensor:.0f} % of the cycles.", kernel
        )
    if banks := value(_BANKS):
        yield Fact(
            "bank conflicts", f"{banks:,.0f}", f"{banks:,.0f} accesses of shared memory had to be repeated.", kernel
        )
    waits = {name: got for name in _WAITS if (got := value(_STALL.format(name))) is not None}
    if waits:
        worst = max(waits, key=lambda name: waits[name])
        sentence = f"A warp waits longest for {_WAITS[worst]}: {waits[worst]:.1f} cycles for each instruction issued."
        yield Fact("waits for", worst.replace("_", " "), sentence, kernel)


def _last(said: str) -> str:
    return next((line for line in reversed(said.splitlines()) if line.strip()), "it printed nothing")[:200]


# -- may counters be read here? If not: why, and how to get permission -------------------------------------------------
# Source: NVIDIA, "Permission issue with performance counters" (ERR_NVGPUCTRPERM).

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
    """Asks files alone: no program is run, and no GPU woken."""
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
    """The path of ncu: on PATH, in the toolkit, or where Nsight Compute installs itself."""
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
