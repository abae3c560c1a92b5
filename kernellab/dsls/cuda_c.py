"""CUDA C++ on an NVIDIA GPU, compiled in either of two ways when ``kernel.py`` is imported.

By NVRTC through cuda-core, from a .cu file next to it (half a second, no host code), or by nvcc through apache-tvm-ffi,
with host functions that launch (seconds, since host headers are compiled too). Code that torch's own loader compiles
with nvcc is read the same way.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from glob import glob
from importlib.util import find_spec
from pathlib import Path, PurePath

from kernellab.dsls.base import Adapter, Finding, Readiness
from kernellab.dsls.cpp import compiler, gcc_errors, linker_errors, ninja, ninja_path
from kernellab.dsls.text import Code, Texts, own_name, placed, quoted_after, texts
from kernellab.dsls.triton import has_cuda_device
from kernellab.records import CompilerLine, Source
from kernellab.target import Backend


class CudaCAdapter(Adapter):
    """CUDA C++ kernels."""

    name = "cuda_c"
    makes_code = False
    backends = (Backend.CUDA,)
    # not cuda.core: what it does to the driver when it is imported would be inherited by every worker
    preload = ("torch", "tvm_ffi", "tvm_ffi.cpp")
    suffixes = (".py", ".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp")

    def readiness(self) -> Readiness:
        if find_spec("torch") is None:
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
        """Caches under ``scratch``: what is found there is loaded. The GPU's architecture, so that no worker asks."""
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
        """Device code of CUDA in a file or a string; AscendC marks its own alike, and says so."""
        parts = texts(source)
        device = any("__global__" in code.text and "__aicore__" not in code.text for code in parts.code)
        return device or any(file.endswith((".cu", ".cuh")) for file in source.files)

    def static(self, source: Source) -> list[Finding]:
        """A ``__global__`` function must be defined and launched, and what launches it must be called from Python."""
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
        """The errors of nvcc, NVRTC, ptxas, the host's compiler and the linker, in the order in which they came."""
        errors = [line for _, line, _ in sorted(_errors(log, files), key=lambda e: e[0])]
        own = {PurePath(file).name for file in files}
        unique = list(dict.fromkeys(errors))
        unique.sort(key=lambda line: bool(own) and PurePath(line.file).name not in own)
        return unique + linker_errors(log, files)

    def explain(self, log: str, source: Source) -> list[CompilerLine]:
        """As :meth:`diagnostics`, with code of a Python string at the string's lines."""
        files = tuple(source.files)
        ordered = sorted(_errors(log, files), key=lambda e: e[0])
        return placed([(line, quoted) for _, line, quoted in ordered], source) + linker_errors(log, files)


def compilers() -> list[str]:
    """What can compile CUDA C++ here, in words."""
    names = []
    if _importable("cuda.core") and _importable("cuda.bindings.nvrtc"):
        names.append("NVRTC")
    whole = ninja() and compiler() and _importable("tvm_ffi")
    if whole and (shutil.which("nvcc") or toolkit()):
        names.append("nvcc")
    return names


def toolkit() -> str:
    """The CUDA toolkit's folder: CUDA_HOME, that of the nvcc on PATH, or the newest under /usr/local; else ""."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc")
    near = [Path(os.path.realpath(nvcc)).parent.parent] if nvcc else []
    usual = [Path(path) for path in sorted(glob("/usr/local/cuda*"), reverse=True)]
    for home in [*([Path(named)] if named else []), *near, *usual]:
        # an nvcc on PATH may be a script that runs another: the toolkit is where its headers are
        if (home / "bin" / "nvcc").exists() and (home / "include" / "cuda_runtime.h").exists():
            return str(home)
    return ""


@lru_cache
def compute_capability() -> str:
    """The first GPU's, ``"9.0"``; "" where the driver's tool does not say. Makes no CUDA context."""
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


def _importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


_KERNEL = re.compile(
    r"__global__\s+(?:(?:static|inline|void|__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\))\s+)*(?P<name>\w+)\s*\("
)
#: kernel<<<...>>>, kernel<T, 4><<<...>>>, and the calls that take a kernel's address
_CHEVRONS = re.compile(r"(?P<name>\w+)\s*(?:<[^<>;{}()]*(?:<[^<>;{}()]*>[^<>;{}()]*)*>)?\s*<<<")
_BY_ADDRESS = re.compile(r"cudaLaunch(?:Cooperative)?Kernel\w*\s*\(([^;]*);")


def _kernels(code: Code) -> Iterator[tuple[str, int]]:
    for match in _KERNEL.finditer(code.text):
        yield match["name"], code.line(match.start())


def _launched(code: Code) -> set[str]:
    names = {match["name"] for match in _CHEVRONS.finditer(code.text)}
    return names | {name for match in _BY_ADDRESS.finditer(code.text) for name in re.findall(r"\w+", match[1])}


def _named_in_python(parts: Texts) -> set[str]:
    """Words of Python strings that are not code themselves: ``get_kernel("name")``, ``"name<float>"``."""
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


def _errors(log: str, files: tuple[str, ...]) -> Iterator[tuple[int, CompilerLine, str]]:
    """Position in the log, the error, and the line of source that is quoted below it."""
    device = [file for file in files if file.endswith((".cu", ".cuh"))]
    for match in _NVCC.finditer(log):
        file = own_name(match["file"], files)
        if file == "default_program" and len(device) == 1:
            file = device[0]  # what cuda-core calls a program without a name
        message = f"{match['kind']}: {match['text'].strip()}"
        line = CompilerLine(file=file, line=int(match["line"]), message=message)
        yield match.start(), line, quoted_after(log, match.start())
    for match in _PTXAS.finditer(log):
        # a line of PTX is no line of anybody's source
        where = device[0] if device else (files[0] if files else "")
        yield match.start(), CompilerLine(file=where, line=None, message=f"ptxas: {match['text'].strip()}"), ""
    for line, quoted in gcc_errors(log, files):
        at = log.find(f":{line.line}:")
        yield at if at >= 0 else len(log), line, quoted
