"""Where a region of a tensor is reached at one index, and where that is inside the tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.sketch.program.program import Region

#: first index inside and first past the end, as C++
Span = tuple[str, str]


@dataclass
class Site:
    """How a region is reached at one index: address, valid spans by loop dimension, and checks of single elements.

    Where the last index counts elements one by one, it is ``last``, and ``base`` is the address without it ("" for 0).
    """

    region: Region
    address: str
    last: str = ""
    base: str = ""
    #: what the address is made of, and what ``base`` is
    made_of: frozenset[str] = frozenset()
    base_of: frozenset[str] = frozenset()
    spans: dict[int, Span] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def row(self, var: str) -> str | None:
        """The base of a row of elements side by side along ``var``; None where there is no such row."""
        return self.base if self.last == var and var not in self.base_of else None


def between(var: str, span: Span) -> list[str]:
    """Conditions under which ``var`` is in ``span``."""
    low, high = span
    return [f"{var} < {high}"] if low == "0" else [f"{low} <= {var}", f"{var} < {high}"]
