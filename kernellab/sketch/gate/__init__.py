"""The sketch gate: a sketch is run against the task's reference before a line of code exists."""

from __future__ import annotations

from kernellab.sketch.gate.case_outputs import outputs
from kernellab.sketch.gate.stages import gate

__all__ = ["gate", "outputs"]
