"""The address of an element of a region at one index, and the conditions under which it is inside the tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.sketch.program.program import Region

#: first index inside and first past the end, as C++
Span = tuple[str, str]


@dataclass
class Site:
    """An element of a region at one index: its address, valid spans by loop dimension, and checks of single elements.

    If the last index counts elements one by one, it is ``last``, and ``base`` is the address without it ("" for 0)."""

    region: Region
    address: str
    last: str = ""
    base: str = ""
    #: the names in the address, and those in ``base``
    made_of: frozenset[str] = frozenset()
    base_of: frozenset[str] = frozenset()
    spans: dict[int, Span] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def row(self, var: str) -> str | None:
        """Return the base of a row of contiguous elements along ``var``; None if there is no such row."""
        return self.base if self.last == var and var not in self.base_of else None


def between(var: str, span: Span) -> list[str]:
    """Return the conditions under which ``var`` is in ``span``."""
    low, high = span
    return [f"{var} < {high}"] if low == "0" else [f"{low} <= {var}", f"{var} < {high}"]
