"""Statements that leave no separate line in a lowered source, which says them in a comment all the same."""

from __future__ import annotations

import re

from kernellab.sketch.program.program import Kernel, Loop, Program
from kernellab.sketch.program.walk import statements

_ASSIGNS = re.compile(r"\s*[A-Za-z_]\w*\s*=[^=]")


def index_lines(program: Program, kernel: Kernel) -> list[int]:
    """Lines of ``kernel`` that name index arithmetic: it stands in the indices that use it."""
    spoken = {s.span.line for s in statements(kernel.body)}
    lines = program.text.splitlines()
    inside = range(kernel.span.line + 1, max(spoken, default=0))
    return [n for n in inside if n not in spoken and n <= len(lines) and _ASSIGNS.match(lines[n - 1])]


def lines_into(kernel: Kernel, line: int) -> list[int]:
    """Lines of the statements between the one at ``line`` and the last loop that opens before it."""
    every = [s.span.line for s in statements(kernel.body) if s.span.line < line]
    opened = [s.span.line for s in statements(kernel.body) if isinstance(s, Loop) and s.span.line < line]
    return sorted({n for n in every if n > max(opened, default=0)})
