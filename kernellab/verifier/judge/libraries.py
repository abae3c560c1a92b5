"""Small shared objects of the verifier, built on this machine if it has a compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_COMPILERS = {".c": ("gcc", "cc", "clang"), ".cpp": ("g++", "c++", "clang++")}


def built(source: Path, folder: Path, flags: Sequence[str] = ()) -> Path | None:
    """The object of ``source``, built in ``folder`` if it is missing (0.3 s); None if no compiler can build it."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS[source.suffix])), None)
    if compiler is None:
        return None
    name = f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    target = folder / name
    if not target.exists():
        part = folder / f".{name}"
        command = [compiler, "-O2", *flags, "-shared", "-fPIC", str(source), "-o", str(part), "-ldl"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        part.replace(target)
    return target


def preloadable(library: Path) -> bool:
    """Can the system's loader preload it?"""
    program = shutil.which("true")
    if program is None:
        return False
    done = subprocess.run([program], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr
