"""Kernels that were compiled elsewhere: used if this machine matches, else compiled from source, with a message."""

from __future__ import annotations

import hashlib
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

import torch

LIBRARY = "prebuilt.so"
MACHINE = "prebuilt.json"
#: compiled GPU code: a folder for each entry of Triton's cache, and files of CUDA C++; and its chip
CUBINS = "cubins"
CHIP = "cubins.json"
#: fields of /proc/cpuinfo with instruction sets that a compiler may use
_INSTRUCTIONS = re.compile(
    r"(?:sse|avx|fma|bmi|f16c|popcnt|lzcnt|abm|movbe|adx|aes|vaes|sha|gfni|vpclmul|pclmul|amx|asimd|sve|fphp|crc32)"
)
_LOCK = threading.RLock()


def machine_text() -> str:
    """Return this machine's description, in the form of prebuilt.json."""
    return json.dumps({"machine": platform.machine(), "system": platform.system(), "flags": sorted(_flags())}) + "\n"


def _flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return {word for word in match[1].split() if _INSTRUCTIONS.match(word)} if match else set()


def usable(folder: Path) -> bool:
    """Can this machine run the compiled library in ``folder``?"""
    try:
        facts = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same = (facts["machine"], facts["system"]) == (platform.machine(), platform.system())
    return same and set(facts["flags"]) <= _flags() and (folder / LIBRARY).exists()


def load(path: Path, name: str, report: Callable[[str], None] = lambda _: None) -> ModuleType:
    """Return a kernel's module; compiled code next to it replaces its build. Otherwise ``report`` gets the reason."""
    folder = path.parent
    if (folder / MACHINE).exists():
        if not usable(folder):
            report("its library is for another processor or system")
        else:
            try:
                return loaded_by(lambda *args, **options: str(folder / LIBRARY), path, name)
            except Exception as error:  # with another libc or runtime the loader may raise anything
                report(f"its library cannot be loaded here ({type(error).__name__})")
    elif (folder / CHIP).exists():
        facts = json.loads((folder / CHIP).read_text(encoding="utf-8"))
        needs = f"its cubins are for sm_{facts['capability']} ({facts['chip']})"
        major, minor = torch.cuda.get_device_capability()
        if facts["capability"] != 10 * major + minor:
            report(f"{needs}, and this GPU is sm_{major}{minor}")
        elif not facts["compiler"]:
            return _with_programs(folder / CUBINS, path, name)
        elif facts["compiler"] != triton_version():
            report(f"{needs} and {facts['compiler']}, and {triton_version()} is here")
        else:
            _fill_cache(folder / CUBINS)
    return imported(path, name)


def triton_version() -> str:
    """Return Triton's version, since it reads only cubins of its version."""
    import triton  # type: ignore[import-untyped]

    return f"Triton {triton.__version__}"


def _fill_cache(folder: Path) -> None:
    """Copy the entries of a Triton cache, folders named by key, into this user's cache."""
    from triton.runtime.cache import get_cache_manager  # type: ignore[import-untyped]

    for entry in folder.iterdir():
        manager = get_cache_manager(entry.name)
        files = list(entry.iterdir())
        group = next((f.name for f in files if f.suffix == ".json"), "")
        if manager.get_group(group) if group else all(manager.get_file(f.name) for f in files):
            continue
        entries = {f.name: manager.put(f.read_bytes(), f.name) for f in files}
        if group:
            manager.put_group(group, entries)


def _with_programs(folder: Path, path: Path, name: str) -> ModuleType:
    """Import a kernel's module while cuda-core's Program uses the cubin of its text in ``folder``, if there is one."""
    from cuda import core  # type: ignore[import-untyped, import-not-found, unused-ignore]

    compiler: Any = core.Program

    class Program:
        def __init__(self, code: str, code_type: str = "c++", options: Any = None) -> None:
            self.cubin, self.given, self.options = folder / cubin_name(code), (code, code_type, options), options

        def compile(self, target_type: str = "cubin", *args: Any, **more: Any) -> Any:
            options = core.ProgramOptions(**self.options) if isinstance(self.options, dict) else self.options
            # other options give another cubin for the same text
            plain = options is None or (
                options == core.ProgramOptions(name=options.name, std=options.std, arch=options.arch)
            )
            if target_type == "cubin" and plain and not args and not more and self.cubin.exists():
                return core.ObjectCode.from_cubin(self.cubin.read_bytes())
            return compiler(*self.given).compile(target_type, *args, **more)

    with _LOCK:
        core.Program = Program
        try:
            return imported(path, name)
        finally:
            core.Program = compiler


def cubin_name(code: str) -> str:
    """Return the name of the cubin's file for a text of CUDA C++."""
    return f"{hashlib.sha256(code.encode()).hexdigest()[:32]}.cubin"


def loaded_by(build: Callable[..., Any], path: Path, name: str = "_kernel_being_built") -> ModuleType:
    """Import a kernel's module while ``build`` replaces tvm_ffi.cpp.build."""
    import tvm_ffi.cpp

    with _LOCK:
        before: Any = tvm_ffi.cpp.build
        tvm_ffi.cpp.build = build
        try:
            return imported(path, name)
        finally:
            tvm_ffi.cpp.build = before


def imported(path: Path, name: str) -> ModuleType:
    """Import a file as a module named ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


__all__ = [
    "CHIP",
    "CUBINS",
    "LIBRARY",
    "MACHINE",
    "cubin_name",
    "imported",
    "load",
    "loaded_by",
    "machine_text",
    "triton_version",
    "usable",
]
