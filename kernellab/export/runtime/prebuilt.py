"""C++ that was compiled elsewhere: used where the machine has the instructions, built from source where not."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARY = "prebuilt.so"
MACHINE = "prebuilt.json"
#: words of /proc/cpuinfo that name instructions a compiler may emit
_INSTRUCTIONS = re.compile(
    r"(?:sse|avx|fma|bmi|f16c|popcnt|lzcnt|abm|movbe|adx|aes|vaes|sha|gfni|vpclmul|pclmul|amx|asimd|sve|fphp|crc32)"
)
_LOCK = threading.RLock()


def machine_text() -> str:
    """This machine as prebuilt.json keeps it."""
    return json.dumps({"machine": platform.machine(), "system": platform.system(), "flags": sorted(_flags())}) + "\n"


def _flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return {word for word in found[1].split() if _INSTRUCTIONS.match(word)} if found else set()


def usable(folder: Path) -> bool:
    """Is there a compiled library that this machine can run?"""
    try:
        facts = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same = (facts["machine"], facts["system"]) == (platform.machine(), platform.system())
    return same and set(facts["flags"]) <= _flags() and (folder / LIBRARY).exists()


def load(path: Path, name: str) -> ModuleType:
    """A kernel's module; the library next to it is taken for what it would build."""
    if not usable(path.parent):
        return imported(path, name)
    return loaded_by(lambda *args, **options: str(path.parent / LIBRARY), path, name)


def loaded_by(build: Callable[..., Any], path: Path, name: str = "_kernel_being_built") -> ModuleType:
    """A kernel's module, imported while ``build`` stands for tvm_ffi.cpp.build."""
    import tvm_ffi.cpp

    with _LOCK:
        before: Any = tvm_ffi.cpp.build
        tvm_ffi.cpp.build = build
        try:
            return imported(path, name)
        finally:
            tvm_ffi.cpp.build = before


def imported(path: Path, name: str) -> ModuleType:
    """The module of a file, under ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


__all__ = ["LIBRARY", "MACHINE", "imported", "load", "loaded_by", "machine_text", "usable"]
