"""Assemble asynchronous kernels for sm_90a without a GPU: ``python sass_for_hopper.py FILE...`` prints one JSON line.

For each file: instructions of its kernels by name, local memory in bytes, registers at entry, shared memory in bytes.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from compile_for_gpu import AbsentGPU
from triton.runtime import driver
from triton.runtime.jit import JITFunction

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_NAMES = ("HGMMA", "QGMMA", "UTMALDG", "UTMASTG", "HMMA", "LDL", "STL", "USETMAXREG")


def facts(kernel: Any) -> dict[str, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        sass = subprocess.run([_TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
        usage = subprocess.run([_TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True)
    counts = Counter(re.findall(rf"\b({'|'.join(_NAMES)})\b", sass))
    said = dict(re.findall(r"(REG|STACK):(\d+)", usage.stdout + usage.stderr))
    known = {"registers": int(said["REG"]), "stack": int(said["STACK"]), "shared": int(kernel.metadata.shared)}
    return {**{name: counts[name] for name in _NAMES}, **known}


def assembled(path: Path) -> dict[str, dict[str, int]]:
    """Kernel -> facts, of each launch of the file's function on empty arguments of the shapes beside it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.kl_asynchronous = lambda *_: True
    found: dict[str, dict[str, int]] = {}
    run = JITFunction.run

    def warm_up(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        found[self.fn.__name__] = facts(kernel)
        return kernel

    JITFunction.run = warm_up
    try:
        module.kernel(*torch.load(path.with_suffix(".pt")))
    finally:
        JITFunction.run = run
    return found


if __name__ == "__main__":
    driver.set_active(AbsentGPU())
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(multi_processor_count=132)  # type: ignore
    print(json.dumps({path: assembled(Path(path)) for path in sys.argv[1:]}))
