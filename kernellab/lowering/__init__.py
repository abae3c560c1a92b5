"""Sketch -> Source, one package a DSL.

:func:`lower` is the only entry point. A lowering reads the resolved
:class:`~kernellab.sketch.program.program.Program` and its :class:`~kernellab.sketch.program.bind.Binding`, never the
text. To add one for a DSL that is not here, put a
``lowering.py`` with a function ``lower(program, binding, target) -> Source`` into ``knowledge/dsl/<name>/``, of this
installation or of a workspace: it is found by its path, as adapters are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from kernellab.dsls import imported_file
from kernellab.dsls.spec import spec_files
from kernellab.errors import LoweringError
from kernellab.lowering.embedded_sketch import with_sketch
from kernellab.lowering.tunables import fixed_tunables
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Program
from kernellab.target import Target

#: writes the source of one DSL; raises LoweringError, with the line, for a statement that it cannot express
Lowering = Callable[[Program, Binding, Target], Source]

#: DSL -> (module, function) of the lowerings of this package, imported when they are first used
_OWN: Mapping[str, tuple[str, str]] = {
    "cpp": ("kernellab.lowering.cpp", "lower_cpp"),
    "triton": ("kernellab.lowering.triton.source", "lower_triton"),
    "cuda_c": ("kernellab.lowering.cuda_c", "lower_cuda_c"),
}
#: the file with which the rules Coder writes a DSL of ``knowledge/dsl``
LOWERING = "lowering.py"


def lowered_dsls() -> tuple[str, ...]:
    """Return the DSLs that a sketch can be lowered to, those of this package first."""
    return tuple(dict.fromkeys([*_OWN, *spec_files(file=LOWERING)]))


def lower(program: Program, binding: Binding, target: Target) -> Source:
    """Return source in ``target.dsl`` that computes what ``program`` means and carries its sketch.

    Raises:
        LoweringError: the DSL has no lowering, or a statement cannot be expressed in it (named, with the line).
    """
    if program.opaque:
        raise LoweringError(
            f"The sketch uses the opaque operation {program.opaque[0]!r}, which has no meaning to lower.",
            "Let a model or a person write the code, or spell the operation out.",
        )
    lowering = _lowering(target.dsl)
    held = fixed_tunables(program, binding, lambda bound: lowering(program, bound, target))
    return with_sketch(lowering(program, replace(binding, held=held), target), program, binding)


def _lowering(dsl: str) -> Lowering:
    if dsl in _OWN:
        module, function = _OWN[dsl]
        lowering: Lowering = getattr(import_module(module), function)
        return lowering
    path = spec_files(file=LOWERING).get(dsl)
    if path is None:
        names = ", ".join(lowered_dsls())
        raise LoweringError(f"There is no lowering to {dsl!r}.", f"Choose one of {names}, or a model or human Coder.")
    return _read(path)


def _read(path: Path) -> Lowering:
    """The function ``lower`` of the file at ``path``."""
    function = getattr(imported_file(path, LoweringError), "lower", None)
    if not callable(function):
        raise LoweringError(f"{path} defines no function 'lower'.", "Define lower(program, binding, target) -> Source.")
    lowering: Lowering = function
    return lowering


__all__ = ["LOWERING", "Lowering", "lower", "lowered_dsls"]
