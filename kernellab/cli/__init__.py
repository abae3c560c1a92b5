"""The command line: the same jobs without a notebook."""

from __future__ import annotations

from kernellab.cli.main import STOPPED, app, main

__all__ = ["STOPPED", "app", "main"]
