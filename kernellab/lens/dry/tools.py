"""NVIDIA's disassembler and resource lister: from the CUDA toolkit, else those that Triton's wheel brings."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from kernellab.dsls.cuda_c import toolkit

_SECONDS = 60


def tool(name: str) -> str | None:
    """Return the path of nvdisasm or cuobjdump; None without one."""
    path = shutil.which(name)
    if path:
        return path
    homes = [Path(home) / "bin" for home in [toolkit()] if home]
    spec = find_spec("triton")
    homes += (
        [Path(place) / "backends" / "nvidia" / "bin" for place in (spec.submodule_search_locations or [])]
        if spec
        else []
    )
    return next((str(home / name) for home in homes if (home / name).is_file()), None)


def disassembled(cubin: bytes) -> str:
    """Return SASS with source lines; "" without a disassembler."""
    return _run("nvdisasm", ["-gi", "-c"], cubin)


def resources(cubin: bytes) -> dict[str, str]:
    """Return ``REG:32 STACK:0 SHARED:0 LOCAL:0 ...`` by kernel; empty without the tool."""
    output = _run("cuobjdump", ["--dump-resource-usage"], cubin)
    return {match["name"]: match["usage"] for match in _USAGE.finditer(output)}


_USAGE = re.compile(r"Function (?P<name>[^\s:]+):\s*\n\s*(?P<usage>REG:.*)")


def _run(name: str, options: list[str], cubin: bytes) -> str:
    program = tool(name)
    if program is None or not cubin:
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [program, *options, file.name], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    return done.stdout if done.returncode == 0 else ""
