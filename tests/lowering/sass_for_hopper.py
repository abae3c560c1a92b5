"""Assemble asynchronous kernels for sm_90a without a GPU: ``python sass_for_hopper.py FILE...`` prints one JSON line.

For each file: instructions of its kernels by name, local memory in bytes, registers at entry, shared memory in bytes.
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
from triton.runtime import driver  # type: ignore[import-untyped]

_NAMES = ("HGMMA", "QGMMA", "UTMALDG", "UTMASTG", "HMMA", "LDL", "STL", "USETMAXREG", "MULTICAST")


def facts(kernel: Any) -> dict[str, int]:
    sass, registers, stack = disassembled(kernel)
    counts = Counter(re.findall(rf"\b({'|'.join(_NAMES)})\b", sass))
    known = {"registers": registers, "stack": stack, "shared": int(kernel.metadata.shared)}
    return {**{name: counts[name] for name in _NAMES}, **known}


def assembled(path: Path) -> dict[str, dict[str, int]]:
    """Kernel -> facts, of each launch of the file's function on empty arguments of the shapes next to it."""
    module = module_of(path)
    module.kl_asynchronous = lambda *_: True
    with warm_ups() as compiled:
        module.kernel(*torch.load(path.with_suffix(".pt")))
    return {name: facts(kernel) for name, kernel in compiled}


if __name__ == "__main__":
    driver.set_active(AbsentGPU())
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(multi_processor_count=132)  # type: ignore
    print(json.dumps({path: assembled(Path(path)) for path in sys.argv[1:]}))
