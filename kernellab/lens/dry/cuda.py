"""CUDA C++ in a dry call: code that the host passes to NVRTC (cuda-core) or nvcc (tvm_ffi, torch) is compiled and
recorded.

A library built by nvcc cannot be called without a GPU: its functions do nothing, so its launches stay unknown."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from kernellab.dsls.cuda_c import toolkit
from kernellab.lens.dry.recorder import Binary, Recorder
from kernellab.lens.dry.records import Built, Request

_SECONDS = 120


#: the file name of lines that a host adds before a kernel's
BEFORE = "before"
_RENAMED = re.compile(r'^#line 1 "', re.MULTILINE)


class Refused(Exception):
    """The compiler's log."""


class Compiler:
    """Compiles device code for one architecture; equal texts are compiled once."""

    def __init__(self, request: Request) -> None:
        self.arch = f"sm_{request.capability}"
        self._nvrtc = _nvrtc()
        #: by text, file name and flags
        self._binaries: dict[tuple[str, ...], Binary] = {}

    def nvrtc(self, text: str, name: str, options: dict[str, Any]) -> Binary:
        """Return what NVRTC compiles ``text`` to.

        Raises:
            Refused: NVRTC does not take it, or there is none.
        """
        flags = [f"--std={options.get('std') or 'c++17'}"]
        flags += ["--use_fast_math"] if options.get("use_fast_math") else []
        flags += ["--fmad=false"] if options.get("fmad") is False else []
        flags += [f"-D{_defined(one)}" for one in _listed(options.get("define_macro"))]
        flags += [f"-I{one}" for one in _listed(options.get("include_path"))]
        if self._nvrtc is None:
            return self.nvcc(text, name, flags)
        key = (text, name, *flags)
        if key not in self._binaries:
            if _RENAMED.search(text):
                # lines before the kernel's would count as lines of the same file
                text = f'#line 1 "{BEFORE}"\n{text}'
            arch = str(options.get("arch") or self.arch)
            self._binaries[key] = _by_nvrtc(
                self._nvrtc, text, name, [f"--gpu-architecture={arch}", "-lineinfo", *flags]
            )
        return self._binaries[key]

    def nvcc(self, text: str, name: str, flags: Sequence[str]) -> Binary:
        """Return what nvcc compiles ``text`` to.

        Raises:
            Refused: nvcc does not take it, or there is none.
        """
        home = toolkit()
        if not home:
            raise Refused("there is no nvcc here")
        key = (text, name, *flags)
        if key not in self._binaries:
            place = Path(name)
            place.write_text(text, encoding="utf-8")
            compiled = []
            for kind in ("ptx", "cubin"):
                out = place.with_suffix(f".{kind}.out")
                command = [
                    f"{home}/bin/nvcc",
                    f"-{kind}",
                    "-lineinfo",
                    f"-arch={self.arch}",
                    *flags,
                    str(place),
                    "-o",
                    str(out),
                ]
                done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
                if done.returncode:
                    raise Refused(done.stderr or done.stdout)
                compiled.append(out.read_bytes())
            ptx, cubin = compiled
            self._binaries[key] = Binary(ptx.decode(), cubin)
        return self._binaries[key]


@contextlib.contextmanager
def compiled(request: Request, recorder: Recorder) -> Iterator[None]:
    """While active, programs of cuda-core and inline sources of tvm_ffi and torch are compiled into ``recorder``."""
    compiler = Compiler(request)
    modules = _recording_core(compiler, recorder)
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    undo = _replace_loaders(compiler, recorder)
    try:
        yield
    finally:
        for restore in undo:
            restore()
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _listed(value: Any) -> list[Any]:
    """Return the values of an option; cuda-core takes one or several."""
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _defined(one: Any) -> str:
    return "=".join(map(str, one)) if isinstance(one, tuple) else str(one)


def _nvrtc() -> Any:
    """Return the NVRTC module; None if it or its library is missing. cuda-core's Program needs a driver."""
    try:
        module = import_module("cuda.bindings.nvrtc")
        module.nvrtcVersion()
    except Exception:
        return None
    return module


def _by_nvrtc(nvrtc: Any, text: str, name: str, flags: Sequence[str]) -> Binary:
    error, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    options = [flag.encode() for flag in flags]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(error):
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        raise Refused(bytes(log).decode(errors="replace").rstrip("\0"))
    results = []
    for kind in ("PTX", "CUBIN"):
        content = bytearray(getattr(nvrtc, f"nvrtcGet{kind}Size")(program)[1])
        getattr(nvrtc, f"nvrtcGet{kind}")(program, content)
        results.append(bytes(content))
    nvrtc.nvrtcDestroyProgram(program)
    ptx, cubin = results
    return Binary(ptx.decode().rstrip("\0"), cubin)


# -- a cuda.core that compiles programs for the request's architecture and only records launches ----------------------


class _Options:
    """ProgramOptions."""

    def __init__(self, **values: Any) -> None:
        self.values = values


@dataclass(frozen=True)
class _Kernel:
    name: str
    code: _Code


@dataclass(frozen=True)
class _Code:
    """ObjectCode: the text that was compiled, and its binary."""

    text: str
    binary: Binary

    def get_kernel(self, name: Any) -> _Kernel:
        return _Kernel(name.decode() if isinstance(name, bytes) else str(name), self)


class _LaunchConfig:
    def __init__(self, grid: Any = 1, block: Any = 1, shmem_size: int | None = 0, **_: Any) -> None:
        self.grid, self.block, self.shared = _three(grid), _three(block), int(shmem_size or 0)


class _Stream:
    handle = 0

    @staticmethod
    def from_handle(handle: int) -> _Stream:
        return _Stream()

    def sync(self) -> None: ...


def _program_class(compiler: Compiler, recorder: Recorder) -> type:
    class Program:
        def __init__(self, code: str, code_type: str = "c++", options: Any = None) -> None:
            self.code, self.options = code, options if isinstance(options, dict) else getattr(options, "values", {})

        def compile(self, target_type: str = "cubin", **_: Any) -> _Code:
            file = str(self.options.get("name") or "kernel.cu")
            binary = compiler.nvrtc(self.code, file, self.options)
            # with other options the same text is another program
            if set(self.options) <= {"name", "std", "arch"}:
                recorder.programs[self.code] = binary
            return _Code(self.code, binary)

    return Program


def _device_class(arch: str) -> type:
    digits = arch.removeprefix("sm_").rstrip("a")

    class Device:
        def __init__(self, number: int = 0) -> None:
            self.device_id, self.arch, self.default_stream = number, digits, _Stream()
            self.compute_capability = (int(digits[:-1]), int(digits[-1]))

        def set_current(self) -> None: ...

        def create_stream(self, *_: Any) -> _Stream:
            return _Stream()

        def sync(self) -> None: ...

    return Device


def _recording_core(compiler: Compiler, recorder: Recorder) -> dict[str, types.ModuleType]:
    """Return the modules that replace cuda.core."""

    def launch(stream: Any, config: _LaunchConfig, kernel: _Kernel, *args: Any) -> None:
        x, y, z = config.block
        built = Built(
            name=kernel.name, texts={"ptx": kernel.code.binary.ptx}, grid=list(config.grid), block=x * y * z,
            shared=config.shared, source=kernel.code.text,
        )  # fmt: skip
        recorder.add(built, kernel.code.binary.cubin)

    core = types.ModuleType("cuda.core")
    for name, value in {
        "Program": _program_class(compiler, recorder), "ProgramOptions": _Options, "LaunchConfig": _LaunchConfig,
        "launch": launch, "Stream": _Stream, "Device": _device_class(compiler.arch),
    }.items():  # fmt: skip
        setattr(core, name, value)
    core.experimental = core  # type: ignore[attr-defined]
    return {"cuda.core": core, "cuda.core.experimental": core}


def _three(size: Any) -> tuple[int, int, int]:
    sizes = [int(n) for n in size] if isinstance(size, (tuple, list)) else [int(size)]
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


class _Library:
    """Stands in for a library built by nvcc: each function does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None

    def __getitem__(self, name: str) -> Any:
        return lambda *args, **options: None


def _replace_loaders(compiler: Compiler, recorder: Recorder) -> list[Callable[[], None]]:
    """Replace the loaders that run nvcc. Returns the functions that undo it."""
    undo: list[Callable[[], None]] = []
    for module, names in (
        ("tvm_ffi.cpp", ("load_inline", "load")),
        ("torch.utils.cpp_extension", ("load_inline", "load")),
    ):
        try:
            loader = import_module(module)
        except Exception:
            continue
        for name in names:
            original = getattr(loader, name, None)
            if original is None:
                continue
            setattr(loader, name, _recording_loader(module, compiler, recorder))
            undo.append(partial(setattr, loader, name, original))
    return undo


def _recording_loader(module: str, compiler: Compiler, recorder: Recorder) -> Any:
    def take(*args: Any, **options: Any) -> _Library:
        for text in _device_texts(args, options):
            flags = [str(f) for f in options.get("extra_cuda_cflags") or []]
            binary = compiler.nvcc(text, "device.cu", [*flags, *_includes(module)])
            recorder.add(Built(name="", texts={"ptx": binary.ptx}, source=text), binary.cubin)
        recorder.note("nvcc's host code was not run: blocks and their threads are not known.")
        return _Library()

    return take


def _device_texts(args: Sequence[Any], options: dict[str, Any]) -> Iterator[str]:
    sources = [*args[1:], *(options.get(k) for k in ("cuda_sources", "cuda_source", "sources", "cuda_files"))]
    for value in sources:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            text = str(one) if isinstance(one, (str, Path)) else ""
            if text.endswith((".cu", ".cuh")) and Path(text).is_file():
                text = Path(text).read_text(encoding="utf-8")
            if "__global__" in text:
                yield text


def _includes(module: str) -> list[str]:
    if module.startswith("tvm_ffi"):
        from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

        return ["-std=c++17", f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}"]
    from torch.utils.cpp_extension import include_paths

    return ["-std=c++17", *(f"-I{path}" for path in include_paths())]
