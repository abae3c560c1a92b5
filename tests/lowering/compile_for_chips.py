"""Compile lowered kernels for chips that are not here: ``python compile_for_chips.py FOLDER`` prints one JSON line.

FOLDER holds ``NAME.py`` with ``NAME.json``: the architecture (``sm_90``, ``gfx942``), its cores, and the arguments as a
dry call of the lens takes them. For each NAME its kernels with registers, bytes of local memory a thread, bytes of
shared memory and the matrix instructions of their assembly; or the compiler's error. Nothing is launched.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from compile_for_gpu import AbsentGPU, disassembled, module_of, warm_ups
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.runtime import driver  # type: ignore[import-untyped]

from kernellab.lens.dry import main as dry

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
    sass, registers, local = disassembled(kernel)
    return {"registers": registers, "local": local, **shared, **Counter(re.findall(_MATRIX, sass))}


def compiled(path: Path) -> dict[str, dict[str, int]] | str:
    """Kernel -> facts, of each launch of the file's function; or the error of the first that is refused."""
    request = SimpleNamespace(**json.loads(path.with_suffix(".json").read_text()))
    architecture = request.architecture
    request.capability = int(architecture[3:]) if architecture.startswith("sm_") else 94
    driver.set_active(Absent(architecture))
    try:
        module = module_of(path)
        if hasattr(module, "kl_asynchronous"):
            module.kl_asynchronous = lambda *_: True
        with warm_ups() as launches, dry.gpu(request):  # type: ignore[arg-type]
            module.kernel(*dry.arguments(request.arguments))
        return {name: facts(kernel) for name, kernel in launches}
    except Exception as error:  # the test shows it with the task's name
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    print(json.dumps({path.stem: compiled(path) for path in sorted(Path(sys.argv[1]).glob("*.py"))}))
