"""Reads by which C++ may distinguish a judge's process from a user's, as patterns.

A finding quotes what matched in brackets: "reads the environment (getenv("HOME")". Each is flagged; none is refused for
this. Python's are in :mod:`kernellab.verifier.static.surroundings`.
"""

from __future__ import annotations

import re

from kernellab.sandbox.seccomp import MEMFD, OF_FIRST, REFUSED
from kernellab.verifier.static.surroundings import PATHS

#: calls that the sandbox refuses but a user's program may make
_REFUSED = "|".join([*(name for name in {**REFUSED, **MEMFD, **OF_FIRST} if "_" in name), "ptrace", "unshare", "setns"])

#: pattern in code without comments, and what code that matches does
IN_CPP = (
    # system calls that the sandbox refuses: a user's program sees them succeed
    (rf"(?<![\w.>])(?:{_REFUSED}|(?:shm|msg|sem)get|socket(?:pair)?)\s*\(", "makes a call that the sandbox refuses"),
    # a variable by its name, and by a name that is computed
    (r"\b(?:secure_)?getenv\s*\(\s*\"(?!OMP_)(\w+)\"", "reads the environment"),
    (r"\b(?:secure_)?getenv\s*\(\s*[^\"\s]|\benviron\b", "reads the environment"),
    # who and where the process is: user, host, terminal, limits, cores, clock ticks, rounding mode
    (r"\b(?:getuid|geteuid|getppid|getlogin(?:_r)?|cuserid|getpwuid(?:_r)?|gethostname|uname|sysinfo|localtime(?:_r)?|"
     r"gmtime(?:_r)?|strftime|prctl|getcwd|get_current_dir_name|isatty|ttyname(?:_r)?|getrlimit|prlimit|getauxval|getpid|"
     r"getpgrp|getsid|syscall|wordexp|getrusage|fe(?:testexcept|getround|getenv)|_mm_getcsr|__builtin_ia32_stmxcsr|"
     r"backtrace|dladdr1?|dl_iterate_phdr|tempnam|(?:pthread|sched)_getaffinity(?:_np)?|sched_getcpu|getcpu|get_nprocs(?:_conf)?|"
     r"__rdtscp?|__builtin_ia32_rd\w+|_?_rdpmc|_rdrand\d+_step|__builtin_readcyclecounter)\s*\(", "calls"),
    # the same by an instruction, or by bytes that may be any
    (r"\b(?:asm|__asm__|__asm)\b[^{}]{0,400}?\b(?:rdtscp?|rdpmc|rdrand|rdseed|cpuid|syscall|sysenter|int\s+\$?0x80)\b",
     "has an instruction that asks the processor or the system"),
    (r"\b(?:asm|__asm__|__asm)\b[^{}]{0,400}?\.(?:[248]?byte|short|word|long|quad|incbin)\b",
     "puts code together from bytes"),
    # whether files exist
    (r"(?<![.>])\b(?:(?:eu)?access|l?stat|opendir|readlink)\s*\(\s*\"|\bfstat\s*\(\s*[012]\b", "asks for files by"),
    (r"\b(?:filesystem|fs)\s*::\s*(?:exists|is_\w+|file_size|last_write_time|(?:recursive_)?directory_iterator|status|"
     r"current_path|temp_directory_path|space|read_symlink|(?:weakly_)?canonical|equivalent|hard_link_count)\s*[({]|"
     r"\bw?i?fstream\s*\w*\s*[({]|\bbasic_(?:i?fstream|filebuf)\s*<|\bw?filebuf\s+\w", "asks for files by"),
    # what differs from process to process: entropy, an earlier time, an address
    (r"\brandom_device\b", "draws numbers that no seed gives, by"),
    (r"\bstatic\b[^;{}\n]{0,80}?\b\w+_clock\s*::\s*now\s*\(", "keeps the time of another call, by"),
    (r"\buintptr_t\b\s*[)\w][^;{}\n]{0,80}>>\s*\(?\d", "asks where code or data lies by"),
    # the date
    (r"\btime\s*\(\s*(?:NULL|nullptr|0|&\w+|\{\s*\})\s*\)|\btime_since_epoch\s*\(|\bsystem_clock\s*::\s*to_time_t\b|"
     r"\b(?:gettimeofday|timespec_get|ftime)\s*\(|\bclock_gettime\s*\(\s*(?:CLOCK_(?:REALTIME|TAI)|0)\b|\b__(?:TIME|DATE)__\b",
     "reads the date"),
    # a file about the process or the machine
    (rf"\"[^\"\n]*(?:{PATHS.pattern})[^\"\n]*\"", "opens"),
    # a static number that is incremented
    (r"\bstatic\s+(?:thread_local\s+)?(?:(?:std::)?atomic(?:<[^>\n]*>|_\w+)|(?:unsigned\s+|signed\s+)?(?:int|long|short|"
     r"size_t|u?int\d+_t)(?:\s+long)?)\s+(\w+)\b(?=[\s\S]{0,400}?(?:\+\+\s*\1\b|\b\1\s*(?:\+\+|\+=|\.fetch_add)))",
     "counts its calls"),
)  # fmt: skip

_GETENV = re.compile(r"\b(?:secure_)?getenv\b")
_GETENV_OF_THREADS = re.compile(r"\b(?:secure_)?getenv\s*\(\s*\"OMP_")


def asks_for_threads_alone(text: str) -> bool:
    """Whether C++ code reads the environment, and only variables for a team of threads."""
    return 0 < len(_GETENV.findall(text)) == len(_GETENV_OF_THREADS.findall(text))
