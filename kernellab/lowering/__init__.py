"""Sketch -> Source, one package a DSL.

:func:`lower` is the only way in. A lowering reads the resolved :class:`~kernellab.sketch.program.Program` and its
:class:`~kernellab.sketch.bind.Binding`, never the text.
"""

from __future__ import annotations

from kernellab.errors import LoweringError
from kernellab.records import Source
from kernellab.sketch.bind import Binding
from kernellab.sketch.program import Program
from kernellab.target import Target

DSLS = ("cpp", "triton", "cuda_c")


def lower(program: Program, binding: Binding, target: Target) -> Source:
    """Source in ``target.dsl`` that computes what ``program`` means.

    Raises:
        LoweringError: the DSL has no lowering, or a statement cannot be expressed in it (named, with the line).
    """
    if program.opaque:
        raise LoweringError(
            f"The sketch uses the opaque operation {program.opaque[0]!r}, which has no meaning to lower.",
            "Let a model or a person write the code, or spell the operation out.",
        )
    if target.dsl == "cpp":
        from kernellab.lowering.cpp import lower_cpp

        return lower_cpp(program, binding, target)
    if target.dsl == "triton":
        from kernellab.lowering.triton import lower_triton

        return lower_triton(program, binding, target)
    if target.dsl == "cuda_c":
        from kernellab.lowering.cuda_c import lower_cuda_c

        return lower_cuda_c(program, binding, target)
    raise LoweringError(
        f"There is no lowering to {target.dsl!r}.", f"Choose one of {', '.join(DSLS)}, or a model or human Coder."
    )
