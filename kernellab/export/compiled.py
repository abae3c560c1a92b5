"""Compiled code in a package, so that users compile nothing.

A C++ kernel comes with its library, a Triton or CUDA C++ kernel with its cubins for the chip where it was verified, and
Triton's launches with the library that replays them. Code for another machine is compiled by the user, with a
message."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernellab.content import written
from kernellab.dsls.machine import named_chip
from kernellab.errors import KernellabError
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.package import Package
from kernellab.records import Author
from kernellab.target import Backend

#: DSLs whose cubins a dry call compiles
_GPU = ("triton", "cuda_c")


def compiled(package: Package) -> Package:
    """Return ``package`` with the compiled code of its kernels; ``source_only`` has the reasons for kernels without
    any.

    Each is compiled here and now: C++ by its own build, GPU code by a call without a GPU, on the task's sizes.
    """
    from kernellab.export.runtime import launcher
    from kernellab.export.runtime.recording import Unavailable

    binaries: dict[str, bytes] = {}
    reasons: list[str] = []
    trained = package.training.parts if package.training is not None else {}
    kernels = [(f"kernels/k{k.source.hash}", k) for k in package.kernels]  # several may be of one source
    kernels += [(f"{word}/kernels/k{k.source.hash}", k) for word, k in trained.items()]
    for folder, kernel in kernels:
        try:
            binaries |= {f"{folder}/{name}": data for name, data in _compiled(kernel)}
        except KernellabError as error:
            reasons.append(f"{error.message} {error.remedy}".strip())
    if any(k.facts("")["repeatable"] for k in package.kernels):
        try:
            built = Path(launcher.extension().__file__)
            binaries[f"runtime/{built.name}"] = built.read_bytes()
        except (OSError, Unavailable) as error:
            reasons.append(f"Its launches are not compiled: {error}.")
    return replace(package, binaries=binaries, source_only=tuple(dict.fromkeys(reasons)))


def _compiled(kernel: VerifiedKernel) -> Iterator[tuple[str, bytes]]:
    """Yield its compiled files, by path in the kernel's folder. Raises KernellabError: there are none."""
    from kernellab.export.runtime import prebuilt

    by_tvm = kernel.backend is Backend.CPU and any("tvm_ffi.cpp" in t for t in _python(kernel))
    if not by_tvm and not (kernel.backend is Backend.CUDA and kernel.source.dsl in _GPU):
        raise KernellabError(f"{kernel.name}'s kernel of {kernel.source.dsl} has nothing that is compiled before.", "")
    if kernel.source.origin is Author.MODEL:
        raise KernellabError(
            f"{kernel.name}'s kernel was written by a model, and compiling it runs its code with your rights.",
            "It is compiled where it is used.",
        )
    if by_tvm:
        yield prebuilt.LIBRARY, Path(_library(kernel)).read_bytes()
        yield prebuilt.MACHINE, prebuilt.machine_text().encode()
        return
    from kernellab.lens.gpu.limits import capability_of
    from kernellab.lens.gpu.look import cubins
    from kernellab.lens.look import arguments

    chip = named_chip(kernel.verdict.environment.chip)
    sizes = kernel.task.module().default_sizes()
    # for sizes that are multiples of 16 the compiler makes another kernel
    rounded = {d.name: min(max(sizes[d.name] // 16 * 16, 16), d.max) for d in kernel.task.dims}
    odd = {d.name: min(rounded[d.name] + 1, d.max) for d in kernel.task.dims}
    files: dict[str, bytes] = {}
    for extents in (sizes, rounded, odd) if sizes else (sizes,):
        by_name = cubins(kernel.source, arguments(kernel.task, extents), chip)
        named = {prebuilt.cubin_name(text): data for text, data in by_name.programs.items()}
        files |= {f"{prebuilt.CUBINS}/{name}": data for name, data in {**by_name.triton, **named}.items()}
    if not files:
        raise KernellabError(f"{kernel.name}'s kernel leaves no cubin.", "It is compiled where it is used.")
    yield from files.items()
    # Triton reads only cubins of its version
    compiler = prebuilt.triton_version() if kernel.source.dsl == "triton" else ""
    facts = {"capability": capability_of(chip), "chip": chip.name, "compiler": compiler}
    yield prebuilt.CHIP, (json.dumps(facts) + "\n").encode()


def _python(kernel: VerifiedKernel) -> Iterator[str]:
    return (text for name, text in kernel.source.files.items() if name.endswith(".py"))


def _library(kernel: VerifiedKernel) -> str:
    """Return the library of the kernel's build, from the builder that it calls."""
    import tvm_ffi.cpp

    from kernellab.export.runtime import prebuilt

    files: list[str] = []
    build: Any = tvm_ffi.cpp.build

    def build_and_note(*args: Any, **options: Any) -> Any:
        files.append(str(build(*args, **options)))
        return files[-1]

    with tempfile.TemporaryDirectory() as scratch:
        for name, text in kernel.source.files.items():
            written(Path(scratch) / name, text)
        try:
            prebuilt.loaded_by(build_and_note, Path(scratch) / kernel.source.entry_file)
        except Exception as error:  # a missing compiler may raise anything
            raise KernellabError(f"{kernel.name}'s kernel cannot be built here: {error}", "") from None
    if len(files) != 1:
        raise KernellabError(f"{kernel.name} builds {len(files)} libraries, and one can go along.", "")
    return files[0]
