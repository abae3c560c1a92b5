"""From a lowered source back to its sketch, proved by lowering it again."""

from __future__ import annotations

from kernellab.lowering.lift.lift import lift

__all__ = ["lift"]
