"""Measured search over a sketch's schedules and tunables: the cost model ranks, workers of the Verifier measure."""

from kernellab.tuning.measure import Measured, WorkerMeasure
from kernellab.tuning.search import Tuned, tune

__all__ = ["Measured", "Tuned", "WorkerMeasure", "tune"]
