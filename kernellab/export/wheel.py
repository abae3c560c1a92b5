"""A wheel of a package, built by hatchling."""

from __future__ import annotations

import contextlib
import os
import re
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from kernellab.errors import KernellabError
from kernellab.export.exportable import packages_of
from kernellab.export.package import Package

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
artifacts = ["*.so", "*.cubin"]
"""
_HOOK = """\
[tool.hatch.build.targets.wheel.hooks.custom]
"""
#: least versions of packages; of others that a kernel imports, any version
_LEAST = {
    "torch": "torch>=2.11",
    "triton": "triton>=3.6; sys_platform == 'linux'",
    "tvm_ffi": "apache-tvm-ffi[cpp]>=0.1.5",
    "cuda": "cuda-core[cu13]>=1.0; sys_platform == 'linux'",
}
#: compiled code is for one system and any Python
_TAG = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tagged(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = {tag}
"""


def write_wheel(package: Package, folder: Path, version: str = "0.1.0") -> Path:
    """Write a wheel into ``folder`` and return its path. Its dependencies are torch and the run-time needs of its
    kernels' DSLs.

    A wheel with compiled code (:func:`kernellab.export.compiled.compiled`) is only for this platform.

    Raises:
        KernellabError: hatchling is not installed, or the version is invalid.
    """
    try:
        from hatchling.builders.wheel import WheelBuilder
    except ImportError:
        raise KernellabError("Building a wheel needs hatchling.", "pip install hatchling") from None
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)?", version):
        raise KernellabError(f"{version!r} is not a package version.", "Write one such as 0.1.0.")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        package.write(root)
        values = {
            "{title}": package.name.replace("_", "-"), "{version}": version, "{name}": package.name,
            "{about}": package.kernels[0].task.signature,
        }  # fmt: skip
        text = _PROJECT.replace("{needs}", ", ".join(f'"{n}"' for n in sorted(_needs(package))))
        for key, value in values.items():
            text = text.replace(key, _quoted(value))
        if package.binaries:
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


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """While active, SOURCE_DATE_EPOCH, which hatchling reads, has a default, so that the wheel of one kernel is always
    the same."""
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1735689600")
    try:
        yield
    finally:
        if before is None:
            del os.environ["SOURCE_DATE_EPOCH"]
