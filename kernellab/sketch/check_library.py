"""Is a sketch that is hinted ``library`` one call of the library, and nothing else?"""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.records import Diagnostic
from kernellab.sketch.library import NoCall, hinted_loop, library_call
from kernellab.sketch.messages import diagnostic
from kernellab.sketch.program import Program


def check_library(program: Program, constexpr: Mapping[str, int | float]) -> list[Diagnostic]:
    """One error for each sketch whose hint no library call can keep."""
    found = []
    for kernel in program.kernels:
        loop = hinted_loop(kernel)
        if loop is None:
            continue
        try:
            library_call(kernel, constexpr)
        except NoCall as error:
            span = error.span or loop.span
            found.append(diagnostic("library", span.line, span.col, what=error.what, remedy=error.remedy))
    return found
