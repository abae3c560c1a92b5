"""The folder that stores audits and measured roofs between judges."""

from __future__ import annotations

#: the variable that names the folder; nothing is stored if it is not set
CACHE = "KERNELLAB_CACHE"
