"""Where a kernel runs: DSL x backend x chip."""

from __future__ import annotations

from kernellab.target.target import Backend, Chip, Target

__all__ = ["Backend", "Chip", "Target"]
