"""A run under ncu, and its counters as facts with a sentence each."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.content import module_command
from kernellab.errors import SessionError
from kernellab.lens.counters.preflight import PERMISSION, preflight
from kernellab.lens.records import Fact
from kernellab.records import Source
from kernellab.records.counters import KernelCounters

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
#: descriptions of stall reasons
_WAITS = {
    "long_scoreboard": "data from memory or L2",
    "short_scoreboard": "shared memory or special functions",
    "barrier": "the other warps at a barrier",
    "math_pipe_throttle": "a busy arithmetic unit",
    "mio_throttle": "the queue to shared memory",
    "lg_throttle": "the queue to L1",
    "wait": "the fixed time of the instruction before",
}
_REGISTERS, _BLOCKS = "launch__registers_per_thread", "launch__occupancy_limit_{}"
#: descriptions of limits of the blocks of an SM
_LIMITS = {"registers": "registers", "shared_mem": "shared memory", "warps": "the size of a block"}
_METRICS = (
    _TIME, _DRAM, _SM, _READ, _WRITTEN, _WARPS, _L2, _L1, _TENSOR, _BANKS, _REGISTERS, *map(_BLOCKS.format, _LIMITS),
    *map(_STALL.format, _WAITS),
)  # fmt: skip


def count(source: Source, task: Task, unsandboxed: bool = False) -> tuple[KernelCounters, ...]:
    """Return the counters of one call of ``source`` on the task's inputs, for each launch. Blocks for seconds.

    ncu works inside the process, which no sandbox allows: the kernel runs with the person's rights.

    Raises:
        SessionError: this is not allowed, the preflight fails, the run fails, or ncu reports nothing.
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
        output = _run(ready.ncu, folder)
    kernels = tuple(map(counted, rows(output)))
    if not kernels:
        reason = f"ncu gave no counter: {_last_line(output)}"
        raise SessionError(reason, "Check with `kernellab verify` that the kernel runs.")
    return kernels


def counters(source: Source, task: Task, unsandboxed: bool = False) -> list[Fact]:
    """As :func:`count`, as facts with a sentence each. Raises SessionError, as that does."""
    return [fact for launch in count(source, task, unsandboxed) for fact in facts_of(launch)]


def _run(ncu: str, folder: Path) -> str:
    command = [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
        "--clock-control", "none", "--target-processes", "all", "--metrics", ",".join(_METRICS),
        *module_command("kernellab.lens.counters.run", str(folder)),
    ]  # fmt: skip
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise SessionError(f"ncu took longer than {_SECONDS} s.", "Take a smaller task.") from None
    output = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in output:
        raise SessionError("The driver does not let this user read the GPU's counters (ERR_NVGPUCTRPERM).", PERMISSION)
    return output


def rows(output: str) -> Iterator[dict[str, str]]:
    """Yield the table that ncu prints after its messages: one row for each kernel, after a row of units."""
    lines = output.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return
    table = [line for line in lines[start:] if line.startswith('"')]
    for row in csv.DictReader(io.StringIO("\n".join(table))):
        if row.get("ID", "").isdigit():
            yield row


def counted(row: Mapping[str, str]) -> KernelCounters:
    """Return the counters in one launch's row."""

    def value(name: str) -> float | None:
        try:
            return float(row.get(name, "").replace(",", ""))
        except ValueError:
            return None

    def named(form: str, names: Mapping[str, str]) -> dict[str, float]:
        return {name: number for name in names if (number := value(form.format(name))) is not None}

    time, blocks = value(_TIME), named(_BLOCKS, _LIMITS)
    return KernelCounters(
        kernel=row.get("Kernel Name", "")[:80], us=None if time is None else time / 1000, memory=value(_DRAM),
        sm=value(_SM), read_bytes=value(_READ), written_bytes=value(_WRITTEN), occupancy=value(_WARPS),
        registers=value(_REGISTERS), limit=_LIMITS[min(blocks, key=lambda name: blocks[name])] if blocks else "",
        l1_hits=value(_L1), l2_hits=value(_L2), tensor=value(_TENSOR), bank_conflicts=value(_BANKS),
        stalls=named(_STALL, _WAITS),
    )  # fmt: skip


#: per cent of its peak from which a unit bounds a kernel, and least share of a call for which its kernels account;
#: chosen, not measured
_BUSY_PERCENT, _KERNELS_SHARE = 60, 0.5


def time_summary(launches: Sequence[KernelCounters], call_ms: float | None = None) -> list[str]:
    """Return in at most three lines where a call's time goes by its counters, for the launch that takes most of it, or
    outside the launches if most of ``call_ms`` (the call's time without ncu) is spent there. The last line says what to
    examine."""
    timed = [launch for launch in launches if launch.us is not None]
    if not timed:
        return []
    longest, total = max(timed, key=lambda launch: launch.us or 0.0), sum(launch.us or 0.0 for launch in timed)
    share = "" if len(timed) == 1 else f", {(longest.us or 0.0) / total:.0%} of the {len(timed)} launches' time"
    sentences = {fact.name: fact.sentence for fact in facts_of(longest)}
    head = f"GPU kernel {longest.kernel}, {longest.us:.1f} us under ncu{share}."
    lines = [f"{head} {sentences.get('busy', '')}".rstrip()]
    if (rate := gb_s(longest)) is not None:
        lines[0] += f" It moves {rate:,.0f} GB/s."
    bound = "tensor pipe" if _near_tensor_peak(longest) else "waits for"
    lines += [sentences[name] for name in ("occupancy reached", bound) if name in sentences]
    if call_ms is not None and total < _KERNELS_SHARE * 1000 * call_ms:
        outside = f"A call takes {1000 * call_ms:.1f} us, its kernels {total:.1f} us: most goes to the host's code and"
        lines = [*lines[:2], f"{outside} the launches."]
    return lines


def _near_tensor_peak(launch: KernelCounters) -> bool:
    """Do the tensor cores bound it, so that warps wait for them?"""
    return launch.tensor is not None and launch.tensor >= max(_BUSY_PERCENT, launch.memory or 0.0)


def gb_s(launch: KernelCounters) -> float | None:
    """Return the GB/s that it moved from and to memory."""
    if not launch.us or launch.read_bytes is None or launch.written_bytes is None:
        return None
    return (launch.read_bytes + launch.written_bytes) / launch.us / 1e3


def facts_of(launch: KernelCounters) -> Iterator[Fact]:
    """Yield the counters of a launch as facts with a sentence each, without those that this GPU does not have."""
    c, kernel = launch, launch.kernel
    if c.us is not None:
        yield Fact("time under ncu", f"{c.us:.1f} us", "Of a watched call: for ratios alone.", kernel)
    if c.memory is not None and c.sm is not None:
        most = "memory" if c.memory >= c.sm else "the SMs"
        near = max(c.memory, c.sm)
        state = (
            f"{most} bound it" if near >= _BUSY_PERCENT else "neither is near its limit: it waits, or the grid is small"
        )
        sentence = f"Memory runs at {c.memory:.0f} % of its peak, the SMs at {c.sm:.0f} %; {state}."
        yield Fact("busy", f"{near:.0f} %", sentence, kernel)
    if c.read_bytes is not None and c.written_bytes is not None:
        rate = f", {moved:.0f} GB/s" if (moved := gb_s(c)) else ""
        read, written = c.read_bytes / 1e6, c.written_bytes / 1e6
        sentence = f"{read:.2f} MB came from memory and {written:.2f} MB went there{rate}."
        yield Fact("memory traffic", f"{(c.read_bytes + c.written_bytes) / 1e6:.2f} MB", sentence, kernel)
    if c.occupancy is not None:
        limit = f"; {c.limit} limit{'' if c.limit == 'registers' else 's'} the blocks of an SM" if c.limit else ""
        each = f" ({c.registers:.0f} registers a thread)" if c.registers else ""
        sentence = f"While an SM worked it held {c.occupancy:.0f} % of its warps on average{limit}{each}."
        yield Fact("occupancy reached", f"{c.occupancy:.0f} %", sentence, kernel)
    if c.l2_hits is not None and c.l1_hits is not None:
        sentence = f"{c.l1_hits:.0f} % of sectors were found in L1, {c.l2_hits:.0f} % of the rest in L2."
        yield Fact("cache hits", f"{c.l2_hits:.0f} %", sentence, kernel)
    if c.tensor:
        bound = "; they bound it" if _near_tensor_peak(c) else ""
        sentence = f"The tensor cores worked in {c.tensor:.0f} % of the cycles{bound}."
        yield Fact("tensor pipe", f"{c.tensor:.0f} %", sentence, kernel)
    if c.bank_conflicts:
        sentence = f"{c.bank_conflicts:,.0f} accesses of shared memory had to be repeated."
        yield Fact("bank conflicts", f"{c.bank_conflicts:,.0f}", sentence, kernel)
    if c.stalls:
        worst = max(c.stalls, key=lambda name: c.stalls[name])
        sentence = (
            f"A warp waits longest for {_WAITS[worst]}: {c.stalls[worst]:.1f} cycles for each instruction issued."
        )
        yield Fact("waits for", worst.replace("_", " "), sentence, kernel)


def _last_line(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")[:200]
