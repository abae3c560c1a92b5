"""The symbols that a built object imports from the C library, and those by which it may do more than compute. A source
may hide a name from readers of its text, but the loader needs it."""

from __future__ import annotations

import ctypes
import io
import os
import re
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.attribution.counters import executable
from kernellab.verifier.attribution.proof import READ
from kernellab.verifier.judge import process_stats

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker

#: largest object that is inspected
_MOST = 64 << 20
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
    table = elf.get_section_by_name(".dynsym")
    tables = [table] if table is not None else [s for s in elf.iter_segments() if s["p_type"] == "PT_DYNAMIC"]
    return [s.name for t in tables for s in t.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name]


def beyond_computing(worker: Worker) -> list[str]:
    """Sorted names of the C library that the objects below a worker's scratch folder import and that do more than
    compute. Objects written by torch.compile are left out."""
    pids = (worker.first, *process_stats.descendants(worker.first, CAPS.processes))
    paths = {m.path for pid in pids for m in executable(pid)}
    below, compiled = f"{worker.scratch}/", f"{worker.scratch}/cache/inductor/"
    own_objects = [p for p in sorted(paths) if p.startswith(below) and not p.startswith(compiled)]
    return more_than_computes(name for path in own_objects for name in _imported(path))


def more_than_computes(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the C library defines and that neither compute nor manage memory, each once, without the
    leading underscores of aliases."""
    return sorted({n.lstrip("_") for n in names if not _COMPUTES.fullmatch(n) and _is_of_libc(n)})


def _imported(path: str) -> Sequence[str]:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        file = os.open(path, READ)
    except OSError:
        return ()
    try:
        status = os.fstat(file)
        content = os.pread(file, _MOST, 0) if stat.S_ISREG(status.st_mode) and status.st_size <= _MOST else b""
    except OSError:
        return ()
    finally:
        os.close(file)
    try:
        return imported(ELFFile(io.BytesIO(content)))
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, UnicodeError, OverflowError):
        return ()  # a candidate's file may hold anything


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None  # a system with another C library


@lru_cache(maxsize=4096)
def _is_of_libc(name: str) -> bool:
    # ctypes searches the library's handle, as dlsym(3) does
    library = _libc()
    return library is not None and "\0" not in name and hasattr(library, name)
