"""Compile lowered kernels for chips that are not here: ``python compile_for_chips.py FOLDER`` prints one JSON line.

FOLDER holds ``NAME.py`` with ``NAME.json``: the architecture (``sm_90``, ``gfx942``), its cores, and the arguments as a
dry call of the lens takes them. For each NAME its kernels with registers, bytes of local memory a thread, bytes of
shared memory and the matrix instructions of their assembly; or the compiler's error. Nothing is launched.
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
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.runtime import driver  # type: ignore[import-untyped]
from triton.runtime.jit import JITFunction  # type: ignore[import-untyped]

from kernellab.lens.dry import main as dry

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
#: matrix instructions: of SASS from sm_80 to sm_120, and of AMD's assembly
_MATRIX = r"\b(HMMA|IMMA|DMMA|QMMA|HGMMA|IGMMA|QGMMA|UTCHMMA|UTCQMMA|UTCOMMA|v_mfma)"
_AMD = {"registers": r"\.vgpr_count:\s*(\d+)", "local": r"\.private_segment_fixed_size:\s*(\d+)"}


class Absent(AbsentGPU):
    def __init__(self, architecture: str) -> None:
        amd = architecture.startswith("gfx")
        self.target = GPUTarget("hip", architecture, 64) if amd else GPUTarget("cuda", int(architecture[3:]), 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


def facts(kernel: Any) -> dict[str, int]:
    shared = {"shared": int(kernel.metadata.shared)}
    if "amdgcn" in kernel.asm:
        text = kernel.asm["amdgcn"]
        known = {name: max(map(int, re.findall(pattern, text)), default=0) for name, pattern in _AMD.items()}
        return {**known, **shared, **Counter(re.findall(_MATRIX, text))}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        sass = subprocess.run([_TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True)
        usage = subprocess.run([_TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True)
    said = dict(re.findall(r"(REG|STACK):(\d+)", usage.stdout + usage.stderr))
    known = {"registers": int(said["REG"]), "local": int(said["STACK"])}
    return {**known, **shared, **Counter(re.findall(_MATRIX, sass.stdout))}


def compiled(path: Path) -> dict[str, dict[str, int]] | str:
    """Kernel -> facts, of each launch of the file's function; or the error of the first that is refused."""
    request = SimpleNamespace(**json.loads(path.with_suffix(".json").read_text()))
    architecture = request.architecture
    request.capability = int(architecture[3:]) if architecture.startswith("sm_") else 94
    driver.set_active(Absent(architecture))
    found: dict[str, dict[str, int]] = {}
    run = JITFunction.run

    def warm_up(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        found[self.fn.__name__] = facts(kernel)
        return kernel

    JITFunction.run = warm_up
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "kl_asynchronous"):
            module.kl_asynchronous = lambda *_: True
        with dry.gpu(request):  # type: ignore[arg-type]
            module.kernel(*dry.arguments(request.arguments))
    except Exception as error:  # the test shows it with the task's name
        return f"{type(error).__name__}: {error}"
    finally:
        JITFunction.run = run
    return found


if __name__ == "__main__":
    print(json.dumps({path.stem: compiled(path) for path in sorted(Path(sys.argv[1]).glob("*.py"))}))
