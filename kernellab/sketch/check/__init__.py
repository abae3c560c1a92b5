"""Text -> diagnostics and, where there is no error, the resolved program."""

from __future__ import annotations

from kernellab.sketch.check.checker import CheckResult, check, load_program

__all__ = ["CheckResult", "check", "load_program"]
