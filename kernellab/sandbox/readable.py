"""What a worker may read: the interpreter, its packages, the system's libraries and compilers; no home or project."""

from __future__ import annotations

import glob
import os
import shutil
import site
import stat
import sys
import sysconfig
from collections.abc import Sequence

#: what libraries, compilers and GPU drivers look up; the rest of /etc may contain keys
_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime",
    "timezone", "os-release", "OpenCL", "nvidia", "mime.types",
)  # fmt: skip


def trees() -> list[str]:
    """The trees that a worker may read: interpreter, packages, system libraries and compilers, kernel information."""
    paths = {
        *interpreter(), *packages(),
        *(os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH") if name in os.environ),
        "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/nix/store", "/gnu/store",
        "/opt/cuda", "/opt/rocm", "/opt/intel", "/opt/nvidia", "/opt/conda",
        *compilers(), *_build_tool(), *(f"/etc/{name}" for name in _ETC),
        "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom",
    }  # fmt: skip
    return sorted(p for p in paths if os.path.exists(p))


def packages() -> set[str]:
    """Folders with installed packages: the interpreter's, and those in PYTHONPATH or a user site; not a project or home
    folder that PYTHONPATH may contain too."""
    named = (p for p in sys.path if os.path.isdir(p) and glob.glob(os.path.join(glob.escape(p), "*.dist-info")))
    return {*site.getsitepackages(), *map(sysconfig.get_paths().__getitem__, ("purelib", "platlib")), *named}


def compilers() -> set[str]:
    """Folders of compilers that the environment names, for Triton and torch.compile; not all of /opt (homes)."""
    names = ("cc", "gcc", "g++", "c++", "clang", "clang++", "ld", "nvcc", "ptxas", *map(os.environ.get, ("CC", "CXX")))
    paths = (shutil.which(name.split()[0]) for name in names if name and name.strip())
    places = {os.path.dirname(os.path.dirname(path)) for p in paths if p for path in (p, os.path.realpath(p))}
    return {place for place in places if place not in ("", "/")}


def _build_tool() -> set[str]:
    """What ``ninja`` on PATH reads: only its file, since its folder may hold much else (~/bin), and for a script the
    virtual environment of its interpreter."""
    ninja = shutil.which("ninja")
    if ninja is None:
        return set()
    with open(ninja, "rb") as file:
        words = os.fsdecode(file.readline(4096)).split() if file.read(2) == b"#!" else []
    prefix = os.path.dirname(os.path.dirname(words[0])) if words else ""
    is_environment = os.path.exists(os.path.join(prefix, "pyvenv.cfg"))
    return {ninja, os.path.realpath(ninja), *([prefix] if is_environment else words[:1])}


def interpreter() -> set[str]:
    """Folders of this interpreter, its standard library and packages, and of this package."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = sysconfig.get_paths()
    return {
        sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable)), package,
        paths["stdlib"], paths["platlib"], paths["purelib"],
    }  # fmt: skip


def open_to_all(folders: Sequence[str], devices: Sequence[str]) -> bool:
    """May an unprivileged user enter ``folders``, and read and write ``devices``?"""
    try:
        for folder in folders:
            path = os.path.realpath(folder)
            while True:
                if not os.stat(path).st_mode & stat.S_IXOTH:
                    return False
                if path == os.path.dirname(path):
                    break
                path = os.path.dirname(path)
        both = stat.S_IROTH | stat.S_IWOTH
        return all(os.path.isdir(d) or os.stat(d).st_mode & both == both for d in devices)
    except OSError:
        return False
