"""Whether an entry's figures apply on this machine: they depend on a compiler, a DSL and a Verifier."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from kernellab.memory.records import Kernel
from kernellab.verifier.coverage.limits import COVERAGE
from kernellab.verifier.protocol import rules

#: Packages that determine how a kernel of a DSL is built and run, and the compared parts of a version: 2 is major,
#: minor.
_DECIDES: Mapping[str, Mapping[str, int]] = {
    "cpp": {"compiler": 2, "torch": 2},
    "cuda_c": {"torch": 2},
    "triton": {"triton": 2, "torch": 2},
}


#: Versions of the Verifier that had the same numbers under other names.
_SAME_NUMBERS = {"b9a5b23e7433": "6d68bd180639"}


@lru_cache(maxsize=1)
def verifier() -> str:
    """The Verifier's version: a hash of every number on which its verdicts depend."""
    numbers = {name: value for name, value in vars(rules).items() if name.isupper()} | {"COVERAGE": COVERAGE}
    return hashlib.sha256(repr(sorted(numbers.items())).encode()).hexdigest()[:12]


@lru_cache(maxsize=8)
def versions(dsl: str) -> dict[str, str]:
    """The versions on this machine that affect a kernel of ``dsl``."""
    current = {"verifier": verifier()}
    for name in _DECIDES.get(dsl, {"torch": 2}):
        number = _compiler() if name == "compiler" else _distribution(name)
        if number:
            current[name] = number
    return current


def stale(kernel: Kernel, chip: str, here: Mapping[str, str] | None = None, family: str = "") -> str:
    """Why the kernel's figures do not apply on ``chip`` with the versions ``here`` (this machine's); "" if they do.

    Figures of another chip do not apply, unless both are of one ``family``: then only the chip's name differs, and a
    hit says so. Missing facts of an entry count as equal.
    """
    if chip and kernel.chip != chip and not (family and kernel.chip_family == family):
        return f"measured on {kernel.chip}"
    here = versions(kernel.dsl) if here is None else here
    judged_by = _SAME_NUMBERS.get(kernel.measured.verifier, kernel.measured.verifier)
    entry_versions = {**kernel.measured.versions, "verifier": judged_by}
    digits = {"verifier": 9, **_DECIDES.get(kernel.dsl, {"torch": 2})}
    for name, count in digits.items():
        if (
            entry_versions.get(name)
            and here.get(name)
            and _short(entry_versions[name], count) != _short(here[name], count)
        ):
            difference = (
                "by another Verifier"
                if name == "verifier"
                else f"with {name} {entry_versions[name]}, here {here[name]}"
            )
            return f"measured {difference}"
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
        result = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip()


__all__ = ["stale", "verifier", "versions"]
