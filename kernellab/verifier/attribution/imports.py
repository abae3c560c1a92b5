"""The symbols that a built object imports from the C library, and those by which it may do more than compute. A source
may hide a name from readers of its text, but the loader needs it."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.sandbox.caps import CAPS
from kernellab.sandbox.run import confined, environment
from kernellab.verifier.attribution.counters import executable
from kernellab.verifier.attribution.proof import READ
from kernellab.verifier.judge import process_stats

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker

#: largest object that is inspected
_MOST = 64 << 20
#: strong names of the C++ runtime that an object defines where the runtime is linked in (hundreds; else none)
_RUNTIME_NAMES = 32
#: functions of the C library that compute, manage memory, threads and errors, or print; whole names
_COMPUTES = re.compile(
    r"_*(?:w?mem(?:cpy|p?move|pcpy|set|cmp|r?chr|mem|ccpy)|rawmemchr|bcopy|bcmp|bzero|"
    r"(?:str|wcs)(?:n?(?:cpy|cat|cmp|casecmp|len|dup)|r?chr(?:nul)?|str|c?spn|pbrk|tok(?:_r)?|"
    r"to(?:u?ll?|u?max|imax|d|f|ld|f\d+))|stpn?cpy|isoc\d+_(?:strto\w+|v?sscanf)|v?sscanf|"
    r"malloc|calloc|realloc(?:array)?|c?free|(?:posix_)?memalign|aligned_alloc|p?valloc|"
    r"mmap(?:64)?|munmap|mremap|(?:posix_)?madvise|mprotect|mlock|munlock|"
    r"v?(?:f|s|sn|as|d)?printf|f?puts|f?putc|putchar|fwrite|fflush|write|perror|stdout|stderr|"
    r"qsort(?:_r)?|bsearch|l?labs|abs|l?l?div|ato(?:i|l|ll|f)|rand(?:_r)?|srand(?:om)?|random|[del]?[jlmn]?rand48(?:_r)?|"
    r"(?:frexp|ldexp|scalbl?n|modf|copysign|isnan|isinf|finite|signbit|fpclassify)[fl]?|"
    # the page size and the number of processors do not distinguish a judge from a user
    r"exit|strerror(?:_r)?|nanosleep|usleep|sleep|getpagesize|sysconf|"
    r"abort|assert(?:_fail|_perror_fail)?|stack_chk_fail|chk_fail|cxa_\w+|errno_location|tls_get_addr|gmon_start__|"
    r"ctype_\w+_loc|to(?:low|upp)er|is(?:al(?:num|pha)|blank|cntrl|x?digit|graph|lower|print|punct|space|upper)|"
    r"pthread_(?:create|join|detach|self|equal|exit|once|(?:mutex|mutexattr|cond|condattr|rwlock|spin|barrier|key)_\w+|"
    r"[gs]etspecific|attr_(?:init|destroy|setstacksize|setdetachstate))|sched_yield|sem_(?:init|wait|post|destroy)|"
    r"(?:thrd|mtx|cnd|tss)_\w+|call_once|(?:sig)?setjmp|(?:sig)?longjmp)(?:_chk)?"
)


def imported(elf: Any) -> list[str]:
    """The undefined symbols of an object (pyelftools' ``ELFFile``), also if its section table was removed."""
    return [s.name for s in _dynamic(elf) if s["st_shndx"] == "SHN_UNDEF" and s.name]


def _defined(elf: Any) -> list[str]:
    """The strong symbols that an object defines for others."""
    strong = (s for s in _dynamic(elf) if s["st_info"]["bind"] == "STB_GLOBAL")
    return [s.name for s in strong if s["st_shndx"] != "SHN_UNDEF" and s.name]


def _dynamic(elf: Any) -> Iterator[Any]:
    table = elf.get_section_by_name(".dynsym")
    tables = [table] if table is not None else [s for s in elf.iter_segments() if s["p_type"] == "PT_DYNAMIC"]
    return (symbol for t in tables for symbol in t.iter_symbols())


@dataclass(frozen=True)
class Symbols:
    """The names that an object imports, and how many strong names of the C++ runtime it defines."""

    imported: tuple[str, ...] = ()
    of_runtime: int = 0

    @property
    def holds_runtime(self) -> bool:
        """Is the C++ runtime linked into the object? Templates are weak there, so that a source defines none of these
        by using it."""
        return self.of_runtime >= _RUNTIME_NAMES


@dataclass(frozen=True)
class Beyond:
    """What a worker's objects import and that does more than compute: sorted ``names`` of the C library. ``runtime``:
    an object holds the C++ runtime, which a plain build on this machine would not put there; its imports cannot be
    told from the candidate's own, and ``names`` leaves them out."""

    names: tuple[str, ...]
    runtime: bool = False


def beyond_computing(worker: Worker) -> Beyond:
    """Look at the objects below a worker's scratch folder. Objects written by torch.compile are left out."""
    pids = (worker.first, *process_stats.descendants(worker.first, CAPS.processes))
    paths = {m.path for pid in pids for m in executable(pid)}
    below, compiled = f"{worker.scratch}/", f"{worker.scratch}/cache/inductor/"
    return judged([_symbols(p) for p in sorted(paths) if p.startswith(below) and not p.startswith(compiled)])


def judged(objects: Sequence[Symbols]) -> Beyond:
    """What the objects import beyond computing, without what a linked C++ runtime imports for itself."""
    names = [n for o in objects for n in o.imported if not (o.holds_runtime and n.lstrip("_") in _runtime_imports())]
    asked = any(o.holds_runtime for o in objects) and not _plain_build_holds_runtime()
    return Beyond(tuple(more_than_computes(names)), asked)


def more_than_computes(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the C library defines and that neither compute nor manage memory, each once, without the
    leading underscores of aliases."""
    return sorted({n.lstrip("_") for n in names if not _COMPUTES.fullmatch(n) and _is_of_libc(n)})


def _symbols(path: str) -> Symbols:
    """An object's symbols; none if the file is no object."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        file = os.open(path, READ)
    except OSError:
        return Symbols()
    try:
        status = os.fstat(file)
        content = os.pread(file, _MOST, 0) if stat.S_ISREG(status.st_mode) and status.st_size <= _MOST else b""
    except OSError:
        return Symbols()
    finally:
        os.close(file)
    try:
        elf = ELFFile(io.BytesIO(content))
        return Symbols(tuple(imported(elf)), sum(map(_is_of_runtime, _defined(elf))))
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, UnicodeError, OverflowError):
        return Symbols()  # a candidate's file may hold anything


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL | None:
    return _library("libc.so.6")


@lru_cache(maxsize=1)
def _runtime() -> ctypes.CDLL | None:
    return _library("libstdc++.so.6")


def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None  # a system with another C or C++ library


@lru_cache(maxsize=4096)
def _is_of_libc(name: str) -> bool:
    return _has(_libc(), name)


@lru_cache(maxsize=4096)
def _is_of_runtime(name: str) -> bool:
    # a search of the C++ runtime's handle finds names of the libraries that it needs, too
    return name.startswith(("_ZS", "_ZNS", "_ZNKS", "_ZT")) and _has(_runtime(), name)


def _has(library: ctypes.CDLL | None, name: str) -> bool:
    # ctypes searches the library's handle, as dlsym(3) does
    return library is not None and "\0" not in name and hasattr(library, name)


@lru_cache(maxsize=1)
def _runtime_imports() -> frozenset[str]:
    """What the system's C++ runtime imports, without the leading underscores of aliases."""
    runtime = _runtime()
    if runtime is None:
        return frozenset()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(" ", 5)[-1].strip() for line in maps if "libstdc++.so" in line}
    return frozenset(name.lstrip("_") for path in loaded for name in _symbols(path).imported)


@lru_cache(maxsize=1)
def _plain_build_holds_runtime() -> bool:
    """Does a C++ compiler of this machine, called in the sandbox, link the C++ runtime into an object whose build does
    not ask for it?"""
    code = '#include <stdexcept>\nvoid run(int n) { if (n < 0) throw std::runtime_error("n"); }\n'
    for compiler in {os.environ.get("CXX", "c++"), "c++", "g++", "clang++"}:
        with tempfile.TemporaryDirectory(prefix="kernellab-link-", ignore_cleanup_errors=True) as folder:
            Path(folder, "plain.cpp").write_text(code, encoding="utf-8")
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):  # ValueError: quotes in CXX
                command = [*shlex.split(compiler), "-O1", "-shared", "-fPIC", "plain.cpp", "-o", "plain.so"]
                subprocess.run(
                    confined(folder, command), cwd=folder, env=environment(folder), capture_output=True, timeout=20,
                    check=True,
                )  # fmt: skip
                if _symbols(str(Path(folder, "plain.so"))).holds_runtime:
                    return True
    return False
