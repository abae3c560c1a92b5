"""A wheel of a package, built by hatchling; with ``prebuilt``, the compiled C++ goes along."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from kernellab.errors import KernellabError
from kernellab.export.exportable import VerifiedKernel, packages_of
from kernellab.export.package import Package
from kernellab.export.runtime.prebuilt import LIBRARY, MACHINE, loaded_by, machine_text
from kernellab.records import Author
from kernellab.target import Backend

_PROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = {title}
version = {version}
description = {about}
requires-python = ">=3.10"
dependencies = [{needs}]

[tool.hatch.build.targets.wheel]
packages = [{name}]
artifacts = ["*.so"]
"""
_HOOK = """\
[tool.hatch.build.targets.wheel.hooks.custom]
"""
#: what is needed of a package at the least; of another that a kernel imports, any version
_LEAST = {
    "torch": "torch>=2.6",
    "triton": "triton>=3.2; sys_platform == 'linux'",
    "tvm_ffi": "apache-tvm-ffi>=0.1.5",
    "cuda": "cuda-core[cu13]>=1.0; sys_platform == 'linux'",
}
#: compiled code is for one system, whatever the Python
_TAG = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tagged(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = {tag}
"""


def write_wheel(package: Package, folder: Path, version: str = "0.1.0", prebuilt: bool = False) -> Path:
    """The wheel's path, in ``folder``. Its dependencies are torch and what its kernels' DSLs need at run time.

    ``prebuilt`` compiles C++ kernels here: they are used where the machine has this one's instructions, and built again
    elsewhere.

    Raises:
        KernellabError: hatchling is not installed, a version is none, there is nothing to prebuild, or what would be
            compiled was written by a model.
    """
    try:
        from hatchling.builders.wheel import WheelBuilder
    except ImportError:
        raise KernellabError("Building a wheel needs hatchling.", "pip install hatchling") from None
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)?", version):
        raise KernellabError(f"{version!r} is not a package version.", "Write one such as 0.1.0.")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        inside = package.write(root)
        values = {
            "{title}": package.name.replace("_", "-"), "{version}": version, "{name}": package.name,
            "{about}": package.kernels[0].task.signature,
        }  # fmt: skip
        text = _PROJECT.replace("{needs}", ", ".join(f'"{n}"' for n in sorted(_needs(package))))
        for key, value in values.items():
            text = text.replace(key, _quoted(value))
        if prebuilt:
            _prebuild(package, inside)
            text += _HOOK
            tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            (root / "hatch_build.py").write_text(_TAG.replace("{tag}", _quoted(tag)), encoding="utf-8")
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _quiet():
                built = list(WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"]))
        except OSError as error:
            raise KernellabError(f"{folder} cannot be written: {error.strerror}.", "Give another folder.") from None
    return Path(built[0])


def _needs(package: Package) -> set[str]:
    distributions = packages_distributions()
    needs = {_LEAST["torch"]}
    for name in {n for kernel in package.kernels for n in packages_of(kernel.source)}:
        needs.add(_LEAST.get(name) or next(iter(distributions.get(name, ())), name))
    return needs


def _prebuild(package: Package, inside: Path) -> None:
    """Each C++ kernel's library next to its source, with the instructions that it may use."""
    compiled = [k for k in package.kernels if k.backend is Backend.CPU and "tvm_ffi.cpp" in _python(k)]
    if not compiled:
        raise KernellabError("There is no C++ to compile in this package.", "Leave out --prebuilt.")
    for kernel in compiled:
        if kernel.source.origin is Author.MODEL:
            raise KernellabError(
                f"{kernel.name}'s kernel was written by a model, and compiling it runs its code with your rights.",
                "Leave out --prebuilt: it is then compiled where it is used.",
            )
        library = _library(kernel)
        place = inside / "kernels" / f"k{kernel.source.hash}"
        shutil.copy(library, place / LIBRARY)
        (place / MACHINE).write_text(machine_text(), encoding="utf-8")


def _python(kernel: VerifiedKernel) -> str:
    return "".join(text for name, text in kernel.source.files.items() if name.endswith(".py"))


def _library(kernel: VerifiedKernel) -> str:
    """Where the kernel's own build puts its library, told by the builder that it calls."""
    import tvm_ffi.cpp

    found: list[str] = []
    build: Any = tvm_ffi.cpp.build

    def told(*args: Any, **options: Any) -> Any:
        found.append(str(build(*args, **options)))
        return found[-1]

    with tempfile.TemporaryDirectory() as scratch:
        for name, text in kernel.source.files.items():
            path = Path(scratch) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        loaded_by(told, Path(scratch) / kernel.source.entry_file)
    if len(found) != 1:
        raise KernellabError(
            f"{kernel.name} builds {len(found)} libraries, and a wheel carries one.", "Leave out --prebuilt."
        )
    return found[0]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """hatchling reads SOURCE_DATE_EPOCH: without one, the wheel of one kernel is the same each time."""
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1735689600")
    try:
        yield
    finally:
        if before is None:
            del os.environ["SOURCE_DATE_EPOCH"]
