"""Which levels C++ has here, before anything is compiled."""

from __future__ import annotations

from kernellab.dsls.cpp import compiler
from kernellab.lens.cpp.build import is_clang


def levels_of() -> tuple[str, ...]:
    """The text before the assembly, which depends on the compiler, and the assembly; none without a compiler."""
    found = compiler()
    return () if found is None else ("llir" if is_clang(found) else "gimple", "asm")
