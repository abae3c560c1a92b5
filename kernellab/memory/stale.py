"""Whether an entry's figures hold on this machine: they were measured with a compiler, a DSL and a Verifier."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from kernellab.memory.records import Kernel
from kernellab.verifier.protocol import rules

#: what decides how a kernel of a DSL is built and runs, and how far a version may differ: 2 is major and minor
_DECIDES: Mapping[str, Mapping[str, int]] = {
    "cpp": {"compiler": 2, "torch": 2},
    "cuda_c": {"torch": 2},
    "triton": {"triton": 2, "torch": 2},
}


@lru_cache(maxsize=1)
def verifier() -> str:
    """The Verifier's version: a hash of every number that its verdicts rest on."""
    numbers = {name: value for name, value in vars(rules).items() if name.isupper()}
    return hashlib.sha256(repr(sorted(numbers.items())).encode()).hexdigest()[:12]


@lru_cache(maxsize=8)
def versions(dsl: str) -> dict[str, str]:
    """The versions on this machine that decide a kernel of ``dsl``."""
    current = {"verifier": verifier()}
    for name in _DECIDES.get(dsl, {"torch": 2}):
        number = _compiler() if name == "compiler" else _distribution(name)
        if number:
            current[name] = number
    return current


def stale(kernel: Kernel, chip: str, here: Mapping[str, str] | None = None, family: str = "") -> str:
    """Why the kernel's figures do not hold on ``chip`` with the versions ``here`` (this machine's): "" where they do.

    A figure of another chip is none of this one's, so it is stale here, unless both are of one ``family``: then the
    chip's name alone differs, and a hit says so. What an entry does not say counts as the same.
    """
    if chip and kernel.chip != chip and not (family and kernel.chip_family == family):
        return f"measured on {kernel.chip}"
    here = versions(kernel.dsl) if here is None else here
    had = {**kernel.measured.versions, "verifier": kernel.measured.verifier}
    digits = {"verifier": 9, **_DECIDES.get(kernel.dsl, {"torch": 2})}
    for name, count in digits.items():
        if had.get(name) and here.get(name) and _short(had[name], count) != _short(here[name], count):
            what = "by another Verifier" if name == "verifier" else f"with {name} {had[name]}, here {here[name]}"
            return f"measured {what}"
    return ""


def _short(text: str, count: int) -> list[str]:
    return text.split("+")[0].split(".")[:count]


def _distribution(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _compiler() -> str:
    from kernellab.dsls.cpp import compiler

    path = compiler()
    if path is None:
        return ""
    try:
        asked = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip()


__all__ = ["stale", "verifier", "versions"]
