"""CUDA C++ on an NVIDIA GPU, compiled in one of two ways when ``kernel.py`` is imported.

By NVRTC through cuda-core, from a .cu file next to it (half a second, no host code), or by nvcc through apache-tvm-ffi,
with host functions that launch (seconds, since host headers are compiled too). Code that torch's loader compiles with
nvcc is read in the same way."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from glob import glob
from pathlib import Path, PurePath
from typing import NamedTuple

from kernellab.dsls.base import Adapter, Finding, Readiness, is_importable
from kernellab.dsls.cpp import compiler, gcc_errors, linker_errors, ninja, ninja_path
from kernellab.dsls.text import Code, NamedLine, QuotedError, Texts, own_name, placed, quoted_after, texts
from kernellab.dsls.triton import has_cuda_device
from kernellab.records import CompilerLine, Source
from kernellab.target import Backend


class CudaCAdapter(Adapter):
    """CUDA C++ kernels."""

    name = "cuda_c"
    makes_code = False
    backends = (Backend.CUDA,)
    # not cuda.core: its import changes the driver's state, which every worker would inherit
    preload = ("torch", "tvm_ffi", "tvm_ffi.cpp")
    suffixes = (".py", ".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp")

    def readiness(self) -> Readiness:
        if not is_importable("torch"):
            return Readiness(
                False, "CUDA C++ needs the Python package torch, which is not installed.", "pip install torch."
            )
        ways = compilers()
        if not ways:
            return Readiness(
                False,
                "CUDA C++ needs NVRTC through cuda-core, or nvcc with ninja, a C++ compiler and apache-tvm-ffi.",
                "pip install 'kernellab[cuda]', or install the CUDA toolkit.",
            )
        if not has_cuda_device():
            return Readiness(
                False,
                f"CUDA C++ needs an NVIDIA GPU, and this machine has none ({' and '.join(ways)} can compile it here).",
                "Use a machine with an NVIDIA GPU, or choose the DSL cpp.",
            )
        return Readiness(True, backend=Backend.CUDA)

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        """Return variables for caches under ``scratch``, whose contents are loaded, and the GPU's architecture, so that
        no worker queries it."""
        variables = {
            "TVM_FFI_CACHE_DIR": str(scratch / "tvm-ffi"),
            "TVM_FFI_GPU_BACKEND": "cuda",
            "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
            "CUDA_CACHE_PATH": str(scratch / "driver"),
            **ninja_path(),
        }
        home = toolkit()
        if home and "CUDA_HOME" not in os.environ:
            variables["CUDA_HOME"] = home
        capability = compute_capability()
        if capability:
            variables |= {"TVM_FFI_CUDA_ARCH_LIST": capability, "TORCH_CUDA_ARCH_LIST": capability}
        return variables

    def recognises(self, source: Source) -> bool:
        """Is there device code of CUDA in a file or a string? AscendC uses the same marks, and names itself."""
        parts = texts(source)
        device = any("__global__" in code.text and "__aicore__" not in code.text for code in parts.code)
        return device or any(file.endswith((".cu", ".cuh")) for file in source.files)

    def static(self, source: Source) -> list[Finding]:
        """Require a ``__global__`` function that is defined and launched, and whose launching function is called from
        Python."""
        parts = texts(source)
        if parts.broken is not None:
            file, error = parts.broken
            return [Finding("syntax", f"{error.msg}.", file, error.lineno, fatal=True)]
        kernels = {name: (code.file, line) for code in parts.code for name, line in _kernels(code)}
        if not kernels:
            return [Finding("no-kernel", "No __global__ function is defined.", source.entry_file, fatal=True)]
        by_host = kernels.keys() & {name for code in parts.code for name in _launched(code)}
        by_name = kernels.keys() & _named_in_python(parts)
        if not by_host and not by_name:
            file, line = next(iter(kernels.values()))
            return [Finding("no-launch", "No __global__ function is launched.", file, line, fatal=True)]
        exported = parts.exported
        if not by_name and exported and not exported.keys() & parts.used:
            file, line = next(iter(exported.values()))
            return [Finding("no-launch", "No host function of the CUDA source is called.", file, line, fatal=True)]
        return []

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        """Return the errors of nvcc, NVRTC, ptxas, the host's compiler and the linker, in order."""
        errors = [quoted.error for quoted in _errors(log, files)]
        own = {PurePath(file).name for file in files}
        unique = list(dict.fromkeys(errors))
        unique.sort(key=lambda line: bool(own) and PurePath(line.file).name not in own)
        return unique + linker_errors(log, files)

    def explain(self, log: str, source: Source) -> list[CompilerLine]:
        """As :meth:`diagnostics`, with code in a Python string at the string's lines."""
        files = tuple(source.files)
        return placed(_errors(log, files), source) + linker_errors(log, files)


def compilers() -> list[str]:
    """Return the names of compilers of CUDA C++ here."""
    names = []
    if is_importable("cuda.core") and is_importable("cuda.bindings.nvrtc"):
        names.append("NVRTC")
    whole = ninja() and compiler() and is_importable("tvm_ffi")
    if whole and (shutil.which("nvcc") or toolkit()):
        names.append("nvcc")
    return names


def toolkit() -> str:
    """Return the CUDA toolkit's folder: CUDA_HOME, that of the nvcc on PATH, or the newest under /usr/local; else
    ""."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc")
    on_path = [Path(os.path.realpath(nvcc)).parent.parent] if nvcc else []
    usual = [Path(path) for path in sorted(glob("/usr/local/cuda*"), reverse=True)]
    for home in [*([Path(named)] if named else []), *on_path, *usual]:
        # an nvcc on PATH may be a script that runs another one: the toolkit is the folder with the headers
        if (home / "bin" / "nvcc").exists() and (home / "include" / "cuda_runtime.h").exists():
            return str(home)
    return ""


@lru_cache
def compute_capability() -> str:
    """Return that of the first GPU, ``"9.0"``; "" if the driver's tool does not report it. Makes no CUDA context."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        asked = [tool, "--query-gpu=compute_cap", "--format=csv,noheader"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    first = done.stdout.strip().splitlines()[:1]
    return first[0].strip() if first and re.fullmatch(r"\d+\.\d+", first[0].strip()) else ""


_KERNEL = re.compile(
    r"__global__\s+(?:(?:static|inline|void|__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\))\s+)*(?P<name>\w+)\s*\("
)
#: launches: kernel<<<...>>>, kernel<T, 4><<<...>>>, and calls that take a kernel's address
_CHEVRONS = re.compile(r"(?P<name>\w+)\s*(?:<[^<>;{}()]*(?:<[^<>;{}()]*>[^<>;{}()]*)*>)?\s*<<<")
_BY_ADDRESS = re.compile(r"cudaLaunch(?:Cooperative)?Kernel\w*\s*\(([^;]*);")


def _kernels(code: Code) -> Iterator[NamedLine]:
    for match in _KERNEL.finditer(code.text):
        yield NamedLine(match["name"], code.line(match.start()))


def _launched(code: Code) -> set[str]:
    names = {match["name"] for match in _CHEVRONS.finditer(code.text)}
    return names | {name for match in _BY_ADDRESS.finditer(code.text) for name in re.findall(r"\w+", match[1])}


def _named_in_python(parts: Texts) -> set[str]:
    """Return words of Python strings that are not code: ``get_kernel("name")``, ``"name<float>"``."""
    names: set[str] = set()
    for _, tree in parts.trees:
        documents = {id(d) for node in ast.walk(tree) if (d := _docstring(node)) is not None}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or id(node) in documents:
                continue
            if "__global__" not in node.value and "\n" not in node.value:
                names |= set(re.findall(r"\w+", node.value.partition("<")[0]))
    return names


def _docstring(node: ast.AST) -> ast.Constant | None:
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.value
    return None


_NVCC = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
    r"(?P<kind>catastrophic error|error|fatal error)(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)
_PTXAS = re.compile(r"^ptxas (?:[^\s,]+, line \d+; )?(?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)


def _errors(log: str, files: tuple[str, ...]) -> list[QuotedError]:
    """Return the errors of nvcc, NVRTC, ptxas and the host's compiler, in the log's order."""
    return [logged.error for logged in sorted(_logged(log, files), key=lambda logged: logged.position)]


class _Logged(NamedTuple):
    """An error, and where it begins in the log."""

    position: int
    error: QuotedError


def _logged(log: str, files: tuple[str, ...]) -> Iterator[_Logged]:
    device = [file for file in files if file.endswith((".cu", ".cuh"))]
    for match in _NVCC.finditer(log):
        file = own_name(match["file"], files)
        if file == "default_program" and len(device) == 1:
            file = device[0]  # cuda-core's name of a program without one
        message = f"{match['kind']}: {match['text'].strip()}"
        line = CompilerLine(file=file, line=int(match["line"]), message=message)
        yield _Logged(match.start(), QuotedError(line, quoted_after(log, match.start())))
    for match in _PTXAS.finditer(log):
        # a line of PTX is not a line of the source
        file = device[0] if device else (files[0] if files else "")
        line = CompilerLine(file=file, line=None, message=f"ptxas: {match['text'].strip()}")
        yield _Logged(match.start(), QuotedError(line, ""))
    for error in gcc_errors(log, files):
        at = log.find(f":{error.error.line}:")
        yield _Logged(at if at >= 0 else len(log), error)
