"""The kind of code at a place of a mapped object: the candidate's, a library's, one that moves bytes, or another."""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernellab.sandbox.readable import packages
from kernellab.verifier.protocol.sanitize import shown

if TYPE_CHECKING:
    from kernellab.verifier.attribution.counters import Mapped

#: objects of packages that do not compute for a kernel: interpreters' bindings, allocators, compilers, launchers
_BINDINGS = re.compile(
    r"libtorch_python|libc10|libshm|torch/_C\b|libgomp|libomp|libiomp|libtvm_ffi|tvm_ffi|libtriton|llvmlite|_cffi|"
    r"omppool|tbbpool|workqueue|_dispatcher|"
    r"cython_(?:blas|lapack)|pybind|libgcc|libstdc\+\+|libpython"
)
#: libraries that are searched for a copy's origin, wherever they are installed
_SYSTEM = re.compile(
    r"gfortran|libgsl|blas|lapack|atlas|blis|mkl|dnnl|fftw|armpl|sleef|torch_cpu|libtorch_cuda|arm_compute|libgmp|mpfr"
)
#: dependencies of the system's loader, compilers and interpreter; any other object of the system is a library
_RUNTIME = re.compile(
    r"^(?:ld-|ld\.so|lib(?:c|m|mvec|dl|rt|pthread|util|resolv|nss_\w+|gcc_s|stdc\+\+|c\+\+|c\+\+abi|gomp|omp|iomp5|"
    r"atomic|quadmath|unwind|ffi|tbb|tbbmalloc|cuda|nvidia-\w+|clang\w*|gccjit|tcc|crypto)[-.]|libLLVM|libpython)"
)
#: the interpreter's program, and those of its modules that only bind, or compute a digest, which is not a result
_INTERPRETER = re.compile(r"^(?:libpython|python)\d*[\d.]*(?:\.so[\d.]*)?$")
_MODULES = re.compile(
    r"/lib-dynload/(?!(?:_ctypes|_struct|math|fcntl|select|mmap|_posix\w+|_queue|_contextvars|_blake2|_sha\w+|_md5|_hashlib)\.)"
)
#: functions that allocate, fill, cast or move, by their whole names: a single word is not conclusive (masked_fill)
_MOVES = re.compile(
    r"(?<![a-z_])(?:(?:direct_|float_bfloat16_|reduced_float_|bfloat16_float_)?copy_kernel|copy_impl|copy_same_dtype|"
    r"copy_transpose_valid|copy_value_with_pad|fill_kernel|fill_non_native_type|(?:cat|stack)_serial_kernel|_?copy_?\d*[EI]|"
    r"(?:empty|resize|zero|narrow_copy|transpose_copy)_?\w*|memcpy\w*|memset\w*)|"
    r"_to_(?:strided|contig)|_cast_|cast_\w+_to_",
)
#: exceptions whose names contain such a word: a kernel for contiguous numbers, a transposed convolution, a sort's merge
_COMPUTES = re.compile(
    r"gemm|gemv|blas|mkl|dnnl|copysign|norm|conv(?!ert)|search|histogram|sort|pool|softmax|reduction|scatter_reduce|"
    r"fft|bluestein|_lut_|_clamp_|omp_parallel|rankk",
    re.IGNORECASE,
)


#: upper bounds for a kernel's own object file and code; a library's are larger
_LARGE_FILE, _LARGE = 256 << 10, 2 << 20


_PREFIXES = {sys.prefix, sys.base_prefix, sys.exec_prefix}
_SYSTEM_FOLDERS = ("/usr/", "/lib/", "/lib64/", "/opt/", "/nix/", *(f"{os.path.realpath(p)}/" for p in _PREFIXES))


#: memory that the system fills with code
SYSTEM_CODE = ("[vdso]", "[vsyscall]", "[uprobes]")
#: paths of objects that the judge has loaded into its workers
NEUTRAL: set[str] = set()


class Kind(Enum):
    """The kind of code that a sample was found in."""

    OWN = "own"
    LIBRARY = "library"
    MOVE = "move"
    #: the interpreter itself
    INTERPRETER = "interpreter"
    #: the system's and the framework's runtime
    OTHER = "other"
    #: neither the candidate's nor known
    UNKNOWN = "unknown"


def kind_of(path: str, place: int, scratch: str) -> Kind:
    """The kind of code at ``place`` of the file ``path``, provided that the file's code runs there (:mod:`.proof`)."""
    if path.startswith(f"{scratch}/cache/inductor/"):
        # written by torch.compile
        return Kind.LIBRARY
    if path in SYSTEM_CODE or path in NEUTRAL:
        return Kind.OTHER
    if path.startswith(f"{scratch}/"):
        return Kind.OWN
    if not _installed(path):
        return Kind.UNKNOWN
    if _INTERPRETER.match(os.path.basename(path)):
        return Kind.INTERPRETER
    if not computes(path):
        return Kind.OTHER
    symbol = symbol_at(path, place)
    return Kind.MOVE if _MOVES.search(symbol) and not _COMPUTES.search(symbol) else Kind.LIBRARY


def computes(path: str) -> bool:
    """Is a file an object of a library that computes?"""
    name = os.path.basename(path)
    if _in_packages(path):
        return not _BINDINGS.search("/".join(path.split("/")[-2:]))
    if "/lib-dynload/" in path:
        return bool(_MODULES.search(path))
    return _installed(path) and not _RUNTIME.match(name)


def makes_code(path: str) -> bool:
    """Is a file an object of a library that generates code at run time and calls it? NumPy calls loops that a compiler
    has registered as universal functions, but generates none."""
    writes = _in_packages(path) or bool(_SYSTEM.search(os.path.basename(path)))
    return writes and computes(path) and not path.startswith(tuple(f"{p}/numpy/" for p in _packages()))


def is_of(path: str, packages: Sequence[str]) -> bool:
    """Is a file in one of these packages?"""
    return os.path.realpath(path).startswith(tuple(f"{folder}/{name}/" for folder in _packages() for name in packages))


def library_of(path: str) -> str:
    """A library's short name."""
    return shown(os.path.basename(path)).removeprefix("lib").split(".")[0]


@lru_cache(maxsize=1)
def _packages() -> tuple[str, ...]:
    import torch

    return tuple({os.path.realpath(f) for f in (*packages(), str(Path(torch.__file__).parent.parent))})


def _installed(path: str) -> bool:
    """Is a file where a candidate cannot write: with the interpreter, the packages or the system?"""
    return _in_packages(path) or os.path.realpath(path).startswith(_SYSTEM_FOLDERS)


def _in_packages(path: str) -> bool:
    folders = tuple(f"{p}/" for p in _packages())
    # a candidate cannot create links below them
    return (path.startswith(folders) and ".." not in path) or os.path.realpath(path).startswith(folders)


def may_be_copied(mapped: Mapped, code_bytes: int = 0) -> bool:
    """Is a piece of the process's own code large enough to be a library's? Or are the ``code_bytes`` bytes of all that
    code, which may be the pieces of a library?"""
    try:
        size = os.path.getsize(mapped.path) if mapped.path else 0
    except OSError:
        # the size of a deleted file is unknown
        size = _LARGE
    return size >= _LARGE_FILE or max(mapped.high - mapped.low, code_bytes) >= _LARGE


def own_bytes(maps: Sequence[Mapped]) -> int:
    """Bytes of a process's executable memory without an installed file."""
    own = (m for m in maps if not m.path or not (m.path in SYSTEM_CODE or _installed(m.path)))
    return sum(m.high - m.low for m in own)


def copied_from(code: Sequence[bytes]) -> str:
    """The short name of the installed library that contains each of these pieces of code; "" if there is none."""
    for path in _computing():
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            if code and all(whole.find(piece) >= 0 for piece in code):
                return library_of(path)
    return ""


@lru_cache(maxsize=1)
def _computing() -> tuple[str, ...]:
    """The largest computing objects of packages and system, small ones first: libraries, and NumPy's and SciPy's
    own."""
    places = [(root, p) for root in _packages() for p in ("*/lib*.so*", "*/lib/lib*.so*")]
    places += [(root, p) for root in ("/usr/lib", "/usr/lib64") for p in ("lib*.so.*", "*/lib*.so.*")]
    candidates = [path for root, pattern in places for path in Path(root).glob(pattern)]
    named = {str(p) for p in candidates if _SYSTEM.search(p.name)}
    named |= {str(p) for root in _packages() for name in ("numpy", "scipy") for p in Path(root, name).rglob("*.so")}
    return tuple(sorted((p for p in named if os.path.getsize(p) >= _LARGE_FILE), key=os.path.getsize))


class FunctionPlace(NamedTuple):
    """The mangled name of a function, "" if none is named, and a byte offset in it."""

    name: str
    offset: int


def symbol_at(path: str, place: int) -> str:
    """The mangled name of the function at a place of a file; "" if its table names none."""
    return function_at(path, place).name


def function_at(path: str, place: int) -> FunctionPlace:
    """The function at a place (bytes) of a file."""
    try:
        return _symbols(path).at(place)
    except (OSError, ValueError, IndexError, OverflowError, struct.error):
        return FunctionPlace("", 0)  # a candidate's file may hold anything


#: ELF, System V ABI: the first bytes of a file of 64 bits and little endian, and the offsets of two parts of its header
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_TABLES_AT, _SIZES_AT = 32, 54
#: a segment that is loaded; sections with all symbols, and with the exported ones; a symbol that is a function
_PT_LOAD, _SHT_SYMTAB, _SHT_DYNSYM, _STT_FUNC = 1, 2, 11, 2


class _Segment(NamedTuple):
    """A part of a file that is loaded: its offset there, its address and its bytes."""

    offset: int
    address: int
    size: int


class _Section(NamedTuple):
    """The header of a section (Elf64_Shdr)."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


class _Symbols:
    """The functions of an ELF file (64 bit, little endian) by start address."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = self.data
        if data[:6] != _ELF_64_LITTLE:
            raise ValueError("no ELF file of 64 bits")
        programs, sections = struct.unpack_from("<QQ", data, _TABLES_AT)
        program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", data, _SIZES_AT)
        self.segments: list[_Segment] = []
        for i in range(program_count):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", data, programs + i * program_size)
            if kind == _PT_LOAD:
                self.segments.append(_Segment(offset, address, size))
        headers = [
            _Section(*struct.unpack_from("<IIQQQQII", data, sections + i * section_size)) for i in range(section_count)
        ]
        # the full table unless it was stripped, otherwise the exported symbols
        tables = [h for h in headers if h.kind == _SHT_SYMTAB] or [h for h in headers if h.kind == _SHT_DYNSYM]
        if not tables:
            raise ValueError("no table of symbols")
        self.names_at = headers[tables[0].link].offset
        row = np.dtype(
            [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("at", "<u8"), ("n", "<u8")]
        )
        rows = np.frombuffer(data, row, tables[0].size // row.itemsize, tables[0].offset)
        rows = rows[(rows["info"] & 15 == _STT_FUNC) & (rows["at"] > 0)]
        order = np.argsort(rows["at"], kind="stable")
        self.starts, self.name_offsets = rows["at"][order], rows["name"][order]

    def at(self, place: int) -> FunctionPlace:
        """The function at a place of the file."""
        for offset, address, size in self.segments:
            if offset <= place < offset + size:
                wanted = place - offset + address
                index = int(np.searchsorted(self.starts, wanted, side="right")) - 1
                if index < 0:
                    break
                start = self.names_at + int(self.name_offsets[index])
                name = bytes(self.data[start : self.data.find(b"\0", start)]).decode(errors="replace")
                return FunctionPlace(name, wanted - int(self.starts[index]))
        return FunctionPlace("", 0)


@lru_cache(maxsize=16)
def _symbols(path: str) -> _Symbols:
    return _Symbols(path)
