"""The API of the installed toolchain, read by ``inspect``: signatures and docstrings that fit the version.

The modules are imported in a separate process, since a DSL may read its environment when it is imported, and
what they say is cached by module and version. That process is this module, run with one argument, a :class:`_Question`
as JSON; it prints its answer as the last line::

    {"modules": {"tl": "triton.language"}, "names": null}         -> {"tl.sum": {"name": ..., "signature": ...}, ...}
    {"modules": {"tl": "triton.language"}, "names": ["tl.summe"]} -> {"tl.summe": false}
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from kernellab.content import module_command, written
from kernellab.dsls.machine import user_cache
from kernellab.errors import KernellabError

#: seconds for importing a toolchain's modules; the first import of one compiles its bytecode
_DEADLINE = 180


class _Question(TypedDict):
    """``names`` None asks for all names of ``modules``; a list asks whether each of these can be reached."""

    modules: Mapping[str, str]
    names: list[str] | None


@dataclass(frozen=True)
class Name:
    """One public name of a module, spelled as code spells it (``tl.sum``). ``signature`` is empty for what is no
    function; ``doc`` is its docstring, whole."""

    name: str
    signature: str
    doc: str


@dataclass(frozen=True)
class Toolchain:
    """What one or more modules offer. ``missing`` are those that are not installed here."""

    names: Mapping[str, Name]
    versions: Mapping[str, str]
    missing: tuple[str, ...] = ()


def toolchain(modules: Mapping[str, str]) -> Toolchain:
    """The names of ``modules`` (the name that code uses -> the module), from the cache where the version is known."""
    return _toolchain(tuple(sorted(modules.items())))


@lru_cache(maxsize=16)
def _toolchain(modules: tuple[tuple[str, str], ...]) -> Toolchain:
    missing = tuple(alias for alias, module in modules if not _installed(module))
    present = {alias: module for alias, module in modules if alias not in missing}
    packages = {module.split(".")[0] for module in present.values()}
    versions = {package: number for package in sorted(packages) if (number := _version(package))}
    if not present:
        return Toolchain({}, versions, missing)
    # a package without a version is a person's, and changes
    edited_at = {package: _edited_at(package) for package in sorted(packages - versions.keys())}
    key = json.dumps([present, versions, edited_at, sys.version, Path(__file__).stat().st_mtime_ns], sort_keys=True)
    path = user_cache() / "api" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    stored = _stored(path)
    if stored is None:
        stored = _answer({"modules": present, "names": None})
        with suppress(KernellabError):  # a read-only home: asked again next time
            written(path, json.dumps(stored))
    broken = tuple(alias for alias in present if alias not in stored)
    return Toolchain({name: Name(**row) for name, row in stored.items()}, versions, (*missing, *broken))


def missing_names(modules: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Which of ``names`` (``tl.sum``) the installed version does not have; modules not installed are left out."""
    offered = toolchain(modules)
    unlisted = sorted({n for n in names if n not in offered.names and n.split(".")[0] not in offered.missing})
    if not unlisted:
        return []
    present = {alias: module for alias, module in modules.items() if alias not in offered.missing}
    return [name for name, exists in _answer({"modules": present, "names": unlisted}).items() if not exists]


def dotted(text: str, roots: Iterable[str]) -> list[str]:
    """Names in ``text`` that begin with one of ``roots`` and a dot (``tl.math.exp``), in order."""
    alternatives = "|".join(map(re.escape, roots))
    return re.findall(rf"(?<![\w.\"'/])(?:{alternatives})(?:\.[A-Za-z_]\w*)+", text) if alternatives else []


def _installed(module: str) -> bool:
    try:
        return find_spec(module.split(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _edited_at(package: str) -> int:
    """The modification time of the package's file in ns; 0 if it has none."""
    spec = find_spec(package)
    with suppress(OSError, TypeError):
        return Path(spec.origin).stat().st_mtime_ns if spec and spec.origin else 0
    return 0


def _version(package: str) -> str:
    for distribution in packages_distributions().get(package, ()):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return ""


def _stored(path: Path) -> dict[str, dict[str, str]] | None:
    try:
        stored: dict[str, dict[str, str]] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return stored


def _answer(question: _Question) -> dict[str, Any]:
    """The answer of a separate process; empty if the modules cannot be imported there."""
    command = module_command("kernellab.knowledge.toolchain", json.dumps(question))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=True)
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}  # the caller lists the modules as missing
    return answer


def describe(modules: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The public names of ``modules``, two levels deep: a module's functions and classes, and a class's methods."""
    import importlib
    import inspect
    from types import ModuleType

    described: dict[str, dict[str, str]] = {}

    def add(name: str, value: object, package: str, depth: int) -> None:
        described.setdefault(name, asdict(Name(name, _signature(value), inspect.getdoc(_plain(value)) or "")))
        is_module = isinstance(value, ModuleType) and value.__name__.split(".")[0] == package
        if depth == 0 or not (isinstance(value, type) or is_module):
            return
        for member in dir(value):
            if not member.startswith("_"):
                with suppress(Exception):  # a property of a foreign class may raise anything
                    add(f"{name}.{member}", getattr(value, member), package, depth - 1)

    for alias, module in modules.items():
        with suppress(ImportError):
            add(alias, importlib.import_module(module), module.split(".")[0], 2)
    return described


def _plain(value: object) -> object:
    """The function behind a decorator's object (Triton's jit functions and builtins hold it as ``fn``)."""
    inner = getattr(value, "fn", None)
    return inner if callable(inner) else value


def _signature(value: object) -> str:
    import inspect

    value = _plain(value)
    if not callable(value):
        return ""
    try:
        return str(inspect.signature(value)).replace("_semantic=None", "").replace(", )", ")")
    except (TypeError, ValueError):
        return "(...)"


def resolve(modules: Mapping[str, str], names: Iterable[str]) -> dict[str, bool]:
    """Whether each dotted name can be reached, submodules included."""
    import importlib

    resolved = {}
    for name in names:
        alias, *parts = name.split(".")
        try:
            value = importlib.import_module(modules[alias])
            for at, part in enumerate(parts):
                if not hasattr(value, part):
                    importlib.import_module(".".join([modules[alias], *parts[: at + 1]]))
                value = getattr(value, part)
            resolved[name] = True
        except Exception:  # a property of a foreign class may raise anything
            resolved[name] = False
    return resolved


if __name__ == "__main__":
    question: _Question = json.loads(sys.argv[1])
    if question["names"] is None:
        print(json.dumps(describe(question["modules"])))
    else:
        print(json.dumps(resolve(question["modules"], question["names"])))
