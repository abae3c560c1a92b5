"""The parts of the stage robust: other calls, callers, processes and inputs than those of the stage correct."""
