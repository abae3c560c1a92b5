"""Dotted names in text."""

from __future__ import annotations

import re
from collections.abc import Iterable


def dotted(text: str, roots: Iterable[str]) -> list[str]:
    """Names in ``text`` that begin with one of ``roots`` and a dot (``tl.math.exp``), in order."""
    known = "|".join(map(re.escape, roots))
    return re.findall(rf"(?<![\w.\"'/])(?:{known})(?:\.[A-Za-z_]\w*)+", text) if known else []
