"""What a run has learnt: the Analyst's plan after each round, and a new direction where nothing gains any more."""

from __future__ import annotations

from kernellab.evolve.analyst.rules import plan, preferred
from kernellab.evolve.analyst.supervisor import suggestion

__all__ = ["plan", "preferred", "suggestion"]
