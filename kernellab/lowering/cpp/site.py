"""Where a region of a tensor is reached at one index, and where that is inside the tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.sketch.program.program import Region

#: first index inside and first past the end, as C++
Span = tuple[str, str]


@dataclass
class Site:
    """How a region is reached at one index: address, valid spans by loop dimension, and checks of single elements."""

    region: Region
    address: str
    spans: dict[int, Span] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)


def between(var: str, span: Span) -> list[str]:
    """Conditions under which ``var`` is in ``span``."""
    low, high = span
    return [f"{var} < {high}"] if low == "0" else [f"{low} <= {var}", f"{var} < {high}"]
