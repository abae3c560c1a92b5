"""Where audits and measured roofs are kept from one judge to the next."""

from __future__ import annotations

#: the variable that names the folder; nothing is kept where it is not set
CACHE = "KERNELLAB_CACHE"
