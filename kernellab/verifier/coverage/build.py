"""A second build of a candidate's sources, in which the compiler counts which of their blocks run.

Programs with the compilers' names come first on the worker's PATH. They call the same compiler with the same options,
and add those that count (GCC's ``--coverage``, whose notes hold each function's graph too) and that report operands of
comparisons. ``trace-pc`` would give addresses alone, without the graph by which code that only raises is known.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import lru_cache
from pathlib import Path

from kernellab.sandbox.readable import packages

#: the object that each of the candidate's objects is linked with
_HOOKS = Path(__file__).with_name("hooks.c")
#: names by which builds call a compiler
_NAMES = ("c++", "g++", "cc", "gcc")
#: -O1 keeps the source's blocks apart; a later -O wins over the source's own
_OPTIONS = (
    "-O1", "-fno-early-inlining", "-g1", "--coverage", "-fprofile-update=single", "-fsanitize-coverage=trace-cmp",
    "-fno-lto",
)  # fmt: skip
#: folder of the programs, below the scratch folder
FOLDER = "counting"

_SCRIPT = """#!/bin/sh
for option; do
  case "$option" in
    -c|-S|-E|-M|-MM|-fsyntax-only|--version|-dump*|-print*) exec {compiler} "$@" {options} ;;
  esac
done
exec {compiler} "$@" {options} -x none {hooks}
"""


def environment(scratch: Path, path: str) -> dict[str, str]:
    """Return the variables with which builds below ``scratch`` find the programs, before those of ``path`` ("" for this
    process's PATH)."""
    folder = scratch / FOLDER
    found = {"PATH": os.pathsep.join([str(folder), path or os.environ.get("PATH", os.defpath)])}
    return {**found, "CXX": str(folder / "c++")} if os.environ.get("CXX") else found


def install(scratch: Path, seen_at: Path) -> bool:
    """Write the programs for builds below ``scratch``, which the worker sees at ``seen_at``. False if there is no GCC
    here that can build so."""
    compilers = {name: found for name in _NAMES if (found := _compiler(name)) is not None}
    if not compilers or (hooks := _hooks(next(iter(compilers.values())))) is None:
        return False
    folder = scratch / FOLDER
    folder.mkdir(mode=0o755)
    (folder / "hooks.o").write_bytes(hooks)
    options = shlex.join([*_OPTIONS, f"-fprofile-exclude-files={_others()}"])
    for name, compiler in compilers.items():
        text = _SCRIPT.format(compiler=compiler, options=options, hooks=shlex.quote(str(seen_at / FOLDER / "hooks.o")))
        program = folder / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    return True


def _compiler(name: str) -> str | None:
    """The path of the GCC that a build would call by ``name``."""
    wanted = os.environ.get("CXX", name) if name == "c++" else name
    found = shutil.which(wanted)
    return found if found is not None and _is_gcc(found) else None


def _is_gcc(path: str) -> bool:
    try:
        return _says_gcc(path)
    except (OSError, subprocess.SubprocessError):
        return False


@lru_cache(maxsize=16)
def _says_gcc(path: str) -> bool:
    """Ask the compiler. A failure, as of a machine that is too busy, is no answer, so it raises and is not kept."""
    command = [path, "-dM", "-E", "-x", "c", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return "__GNUC__" in done.stdout and "__clang__" not in done.stdout


def _hooks(compiler: str) -> bytes | None:
    try:
        return _compiled_hooks(compiler)
    except (OSError, subprocess.SubprocessError):
        return None


@lru_cache(maxsize=4)
def _compiled_hooks(compiler: str) -> bytes:
    """Compile them; a failure raises and is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "hooks.o")
        command = [compiler, "-x", "c", "-O2", "-fPIC", "-c", str(_HOOKS), "-o", str(target)]
        subprocess.run(command, capture_output=True, timeout=20, check=True)
        return target.read_bytes()


def _others() -> str:
    """Patterns of files that are not the candidate's: the system's, this Python's and its packages' headers."""
    folders = ["/usr", "/opt", *sysconfig.get_paths().values(), *packages(), sys.prefix, sys.base_prefix]
    kept = sorted({os.path.realpath(f) for f in folders} | set(folders))
    return ";".join(f"{folder}/.*" for folder in kept)
