"""Statements without a separate line in a lowered source, which shows them as comments."""

from __future__ import annotations

import re

from kernellab.sketch.program.program import Kernel, Loop, Program
from kernellab.sketch.program.walk import statements

_ASSIGNS = re.compile(r"\s*[A-Za-z_]\w*\s*=[^=]")


def index_lines(program: Program, kernel: Kernel) -> list[int]:
    """Return the lines of ``kernel`` that name index arithmetic, which is written inside the indices that use it."""
    spoken = {s.span.line for s in statements(kernel.body)}
    lines = program.text.splitlines()
    inside = range(kernel.span.line + 1, max(spoken, default=0))
    return [n for n in inside if n not in spoken and n <= len(lines) and _ASSIGNS.match(lines[n - 1])]


def lines_into(kernel: Kernel, line: int) -> list[int]:
    """Return the lines of the statements between the last loop that opens before ``line`` and the statement at
    ``line``."""
    every = [s.span.line for s in statements(kernel.body) if s.span.line < line]
    opened = [s.span.line for s in statements(kernel.body) if isinstance(s, Loop) and s.span.line < line]
    return sorted({n for n in every if n > max(opened, default=0)})
