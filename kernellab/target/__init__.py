"""Targets of kernels: DSL x backend x chip."""

from __future__ import annotations

from kernellab.target.target import JUDGED, Backend, Chip, Target

__all__ = ["JUDGED", "Backend", "Chip", "Target"]
