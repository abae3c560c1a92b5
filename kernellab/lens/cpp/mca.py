"""llvm-mca: simulates a loop on this CPU's ports with LLVM's model; nothing is run.

Andrea Di Biagio, "llvm-mca: a static performance analysis tool", llvm.org/docs/CommandGuide/llvm-mca."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import dataclass

from kernellab.lens.cpp.loops import Loop

_SECONDS = 20
_ROUNDS = 100
#: per cent of the cycles from which a pressure is named; chosen, not measured
_BOTTLENECK = 10
_FIELD = re.compile(r"^(?P<name>[\w ]+?):\s+(?P<value>[\d.]+)\s*$", re.MULTILINE)
_PRESSURE = re.compile(
    r"(?P<what>Resource Pressure|(?:Data|Register|Memory) Dependencies)[:\s]+\[\s*(?P<share>[\d.]+)% \]"
)
#: lines that the analysis does not support inside a loop: jumps, calls, labels
_UNSUPPORTED = re.compile(r"^(?:call|ret|\.)")


@dataclass(frozen=True)
class Modelled:
    """Cycles of one iteration, instructions per cycle, and the bottleneck ("" if there is none)."""

    cpu: str
    cycles: float
    instructions_per_cycle: float
    bottleneck: str


def available() -> str | None:
    """Return the newest llvm-mca on PATH; None without one."""
    names = ["llvm-mca", *(f"llvm-mca-{version}" for version in range(22, 10, -1))]
    return next((path for name in names if (path := shutil.which(name))), None)


def modelled(loop: Loop) -> Modelled | None:
    """Return the simulation of ``loop``; None without llvm-mca, or if it does not know an instruction."""
    tool = available()
    body = [text for text in loop.instructions if not _UNSUPPORTED.match(text)]
    if tool is None or not body:
        return None
    intel = platform.machine() in ("x86_64", "AMD64")
    text = ("\t.intel_syntax noprefix\n" if intel else "") + "\n".join(f"\t{line}" for line in body) + "\n"
    text = re.sub(r"\.L\w+\s*$", "0", text, flags=re.MULTILINE)
    command = [tool, "-mcpu=native", f"-iterations={_ROUNDS}", "-bottleneck-analysis", "-instruction-info=false"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    fields = {match["name"].strip(): float(match["value"]) for match in _FIELD.finditer(done.stdout)}
    if done.returncode or "Total Cycles" not in fields:
        return None
    shares = {match["what"]: float(match["share"]) for match in _PRESSURE.finditer(done.stdout)}
    most = max(shares, key=lambda name: shares[name], default="")
    return Modelled(
        cpu=_cpu(tool), cycles=fields["Total Cycles"] / _ROUNDS, instructions_per_cycle=fields.get("IPC", 0.0),
        bottleneck=most.lower() if most and shares[most] >= _BOTTLENECK else "",
    )  # fmt: skip


def _cpu(tool: str) -> str:
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    match = re.search(r"Host CPU: (\S+)", done.stdout)
    return match[1] if match else "this CPU"


__all__ = ["Modelled", "available", "modelled"]
