"""Tree -> resolved program: names, shapes and dtypes made explicit."""

from __future__ import annotations

from kernellab.sketch.resolve.resolver import CHIP_FACTS, resolve
from kernellab.sketch.resolve.scope import Readings

__all__ = ["CHIP_FACTS", "Readings", "resolve"]
