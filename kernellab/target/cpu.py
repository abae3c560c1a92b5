"""What the system says of the processor, read by whatever asks for its name or its instructions."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def cpu_fields() -> dict[str, str]:
    """The fields of Linux's /proc/cpuinfo for the first processor ("model name", "flags"); empty elsewhere."""
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
    """Words for the instructions that the processor has, as Linux writes them; empty where the system does not say."""
    fields = cpu_fields()
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())
