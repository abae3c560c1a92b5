"""Compile lowered kernels for a GPU that is not here: ``python compile_for_gpu.py FOLDER`` prints one JSON line.

Triton's compiler and ptxas need no device; only loading and launching do. A stand-in for the driver answers what the
compiler asks, and every launch becomes a warm-up. FOLDER holds ``NAME.py`` and its arguments ``NAME.pt``.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.runtime import driver  # type: ignore[import-untyped]
from triton.runtime.jit import JITFunction  # type: ignore[import-untyped]

HOPPER = GPUTarget("cuda", 90, 32)
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Utils:
    def load_binary(self, *_: Any) -> tuple[int, ...]:
        return (0, 0, 0, 0, 1024)

    def unload_module(self, *_: Any) -> None:
        pass

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "max_num_regs": 65536, "warpSize": 32}


class AbsentGPU:
    """What the compiler asks of a driver."""

    utils = Utils()

    def get_current_target(self) -> GPUTarget:
        return HOPPER

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int = 0) -> int:
        return 0

    def launcher_cls(self, *_: Any) -> Any:
        return lambda *_args, **_options: None


def module_of(path: Path) -> Any:
    """What a lowered source defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def warm_ups() -> Iterator[list[tuple[str, Any]]]:
    """Each launch in it is compiled and not run: its function's name and what was compiled, in order."""
    compiled: list[tuple[str, Any]] = []
    run = JITFunction.run

    def warm_up(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        compiled.append((self.fn.__name__, kernel))
        return kernel

    JITFunction.run = warm_up
    try:
        yield compiled
    finally:
        JITFunction.run = run


def disassembled(kernel: Any) -> tuple[str, int, int]:
    """SASS, registers of a thread, and its bytes of local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        sass = subprocess.run([_TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
        usage = subprocess.run([_TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True)
    said = dict(re.findall(r"(REG|STACK):(\d+)", usage.stdout + usage.stderr))
    return sass, int(said["REG"]), int(said["STACK"])


def fences(ptx: str) -> dict[str, int]:
    """How many groups of ``wgmma`` follow a wait for ``cp.async`` with a fence between the two, and without."""
    found, state = {"fenced": 0, "unfenced": 0}, ""
    for word in re.findall(r"cp\.async\.wait_group|fence\.proxy\.async|wgmma\.fence", ptx):
        if word != "wgmma.fence":
            state = "unfenced" if word.startswith("cp") else "fenced" if state else ""
        elif state:
            found[state] += 1
            state = ""
    return found


def compile_all(folder: Path) -> dict[str, dict[str, int] | str]:
    """NAME -> how often each global load and store occurs in its PTX, its ``fences``, waits that leave products
    ``in_flight``, and products in its TTIR; or the compiler's error."""
    driver.set_active(AbsentGPU())
    found: dict[str, dict[str, int] | str] = {}
    for path in sorted(folder.glob("*.py")):
        try:
            with warm_ups() as compiled:
                module_of(path).kernel(*torch.load(path.with_suffix(".pt")))
        except Exception as error:  # the test shows it with the case's name
            found[path.stem] = f"{type(error).__name__}: {error}"
            continue
        ptx = "\n".join(kernel.asm["ptx"] for _, kernel in compiled)
        found[path.stem] = dict(Counter(re.findall(r"(?:ld|st)\.global[\w.:]*", ptx))) | fences(ptx)
        found[path.stem] |= {"in_flight": len(re.findall(r"wgmma\.wait_group\.sync\.aligned [1-9]", ptx))}
        found[path.stem] |= {"dots": sum(kernel.asm["ttir"].count("tt.dot") for _, kernel in compiled)}
    return found


if __name__ == "__main__":
    print(json.dumps(compile_all(Path(sys.argv[1]))))
