"""Rewrites of sketches that keep the meaning, and the features by which sketches differ."""

from __future__ import annotations

from kernellab.sketch.rewrite.axes import Axes, Technique, axes
from kernellab.sketch.rewrite.catalogue import REWRITES, keeps, rewrites, variants
from kernellab.sketch.rewrite.features import Features, features
from kernellab.sketch.rewrite.record import Rewrite, Rewritten, Setting

__all__ = [
    "REWRITES",
    "Axes",
    "Features",
    "Rewrite",
    "Rewritten",
    "Setting",
    "Technique",
    "axes",
    "features",
    "keeps",
    "rewrites",
    "variants",
]
