"""The system's description of the processor: its name and its instructions."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def cpu_fields() -> dict[str, str]:
    """Return the fields of Linux's /proc/cpuinfo for the first processor ("model name", "flags"); empty on other
    systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def cpu_flags() -> frozenset[str]:
    """Return the processor's instruction set flags in Linux's spelling; empty if unknown."""
    fields = cpu_fields()
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())
