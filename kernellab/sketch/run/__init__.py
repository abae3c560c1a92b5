"""The interpreter: what a sketch means, computed over torch tensors."""

from __future__ import annotations

from kernellab.sketch.run.interpreter import constexpr_values, execute, run

__all__ = ["constexpr_values", "execute", "run"]
