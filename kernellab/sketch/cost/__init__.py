"""The cost of a sketch: FLOPs, bytes, footprint and a roofline time."""

from __future__ import annotations

from kernellab.sketch.cost.estimate import Cost, LaunchCost, LoopCost, OperationCost, cost

__all__ = ["Cost", "LaunchCost", "LoopCost", "OperationCost", "cost"]
