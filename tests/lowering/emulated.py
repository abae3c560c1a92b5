"""Runs a lowered CUDA-C source on the CPU: its kernel.py as it is, its device code as C++ over ``emulated.h``."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernellab.records import Source

_HEADER = Path(__file__).parent / "emulated.h"
_COMPILE = ("g++", "-O1", "-std=c++17", "-w", "-fpermissive", "-fPIC")
_HALVES = """
KL_INLINE void wait_copies() { emulated::finish_copies(); }
KL_INLINE uint16_t brain_bits(float x) {
  const uint32_t u = __float_as_uint(x);
  return x != x ? 0x7fc0u : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
KL_INLINE uint16_t half_bits(float x) { _Float16 h = x; uint16_t u; std::memcpy(&u, &h, 2); return u; }
KL_INLINE float half_value(uint16_t u) { _Float16 h; std::memcpy(&h, &u, 2); return h; }
"""


class Program:
    """Stands in for cuda.core.Program: compiles for the host."""

    def __init__(self, code: str, kind: str, options: Any) -> None:
        self.code = code

    def compile(self, kind: str) -> Program:
        return self

    def get_kernel(self, name: str) -> Callable[..., None]:
        code = re.sub(r"KL_INLINE \w+ (?:half|brain)_\w+\(.*asm\(.*\n", "", self.code)
        code = re.sub(r"template <int BYTES> KL_INLINE.*\n|KL_INLINE void wait_copies.*\n", "", code)
        code = re.sub(
            r"copy_bytes<BYTES>\(.*\);", "emulated::copies[threadIdx.x].push_back({to, from, BYTES, inside});", code
        )
        code = code.replace("struct bf16 {", _HALVES + "\nstruct bf16 {", 1)
        found = re.search(rf"void __launch_bounds__\(THREADS\) {name}\(([^)]*)\)", code)
        assert found is not None, code
        kinds = ["p" if "*" in p else "d" if p.strip().startswith("double") else "i" for p in found[1].split(",")]
        types_ = {"p": "void*", "d": "double", "i": "index_t"}
        given = ", ".join(f"{types_[k]} a{n}" for n, k in enumerate(kinds))
        passed = ", ".join(f"emulated::Any{{a{n}}}" if k == "p" else f"a{n}" for n, k in enumerate(kinds))
        code = (
            f'#include "{_HEADER.name}"\n{code}\n'
            f'extern "C" void emulate(unsigned blocks, {given}) {{\n'
            f"  emulated::run(blocks, THREADS, [&] {{ {name}({passed}); }});\n}}\n"
        )
        folder = Path(_folder())
        stem = hashlib.sha256(code.encode()).hexdigest()[:16]
        library = folder / f"{stem}.so"
        if not library.exists():
            path = folder / f"{stem}.cpp"
            path.write_text(code)
            command = [*_COMPILE, "-I", _precompiled(), "-shared", str(path), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[:4000]
        return ctypes.CDLL(str(library)).emulate  # type: ignore[no-any-return]


@cache
def _precompiled() -> str:
    """A folder with the header as the compiler keeps it, for this process: to read it is most of a kernel's build."""
    folder = tempfile.mkdtemp(prefix="kernellab-emulated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    header = shutil.copy(_HEADER, folder)
    subprocess.run([*_COMPILE, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    return folder


class LaunchConfig:
    def __init__(self, grid: int, block: int) -> None:
        self.grid, self.block = grid, block


class Stream:
    @staticmethod
    def from_handle(handle: int) -> None:
        return None


def launch(stream: object, config: LaunchConfig, kernel: Callable[..., None], *arguments: object) -> None:
    passed: list[Any] = [ctypes.c_uint(config.grid)]
    for argument in arguments:
        if isinstance(argument, np.int64):
            passed.append(ctypes.c_longlong(int(argument)))
        elif isinstance(argument, np.int32):
            passed.append(ctypes.c_int(int(argument)))
        elif isinstance(argument, float):
            passed.append(ctypes.c_double(argument))
        else:
            assert isinstance(argument, int)
            passed.append(ctypes.c_void_p(argument))
    kernel(*passed)


def kernel_of(source: Source, folder: Path, monkeypatch: Any) -> Callable[..., Any]:
    """``kernel`` of the source's kernel.py, with cuda-core and torch's CUDA stood in for."""
    global _FOLDER
    _FOLDER = folder
    for name, text in source.files.items():
        (folder / name).write_text(text)
    core: Any = types.ModuleType("cuda.core")
    core.LaunchConfig, core.Program, core.Stream, core.launch = LaunchConfig, Program, Stream, launch
    core.ProgramOptions = lambda **options: options
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: types.SimpleNamespace(cuda_stream=0))
    space: dict[str, Any] = {"__file__": str(folder / "kernel.py"), "__name__": "lowered"}
    exec(compile(source.files["kernel.py"], "kernel.py", "exec"), space)
    return space["kernel"]  # type: ignore[no-any-return]


_FOLDER = Path()


def _folder() -> Path:
    return _FOLDER
