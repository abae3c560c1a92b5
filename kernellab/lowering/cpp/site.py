"""The address of an element of a region at one index, and the conditions under which it is inside the tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.lowering.c_family.index import ZERO, plus
from kernellab.lowering.c_family.ints import Ints, Sum
from kernellab.sketch.program.ints import int_op, num
from kernellab.sketch.program.program import Point, Region

#: first index inside and first past the end, as C++
Span = tuple[str, str]


@dataclass
class Site:
    """An element of a region at one index: its address, valid spans by loop dimension, and checks of single elements.

    If the last index counts elements one by one, it is ``last``, and ``base`` is the address without it."""

    region: Region
    address: str = ZERO
    last: str = ""
    base: str = ZERO
    #: the names in the address, and those in ``base``
    address_names: frozenset[str] = frozenset()
    base_names: frozenset[str] = frozenset()
    spans: dict[int, Span] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def extend(self, address: str, base: str, last: Sum) -> None:
        """Take the address with one more dimension, whose position has the parts ``last``."""
        self.address, self.base, self.last = address, base, last.last
        self.base_names = self.address_names | last.base_names
        self.address_names |= last.names

    def row(self, var: str) -> str | None:
        """Return the base of a row of contiguous elements along ``var``; None if there is no such row."""
        return self.base if self.last == var and var not in self.base_names else None


def between(var: str, span: Span) -> list[str]:
    """Return the conditions under which ``var`` is in ``span``."""
    low, high = span
    return [f"{var} < {high}"] if low == ZERO else [f"{low} <= {var}", f"{var} < {high}"]


def start_of_region(region: Region, ints: Ints) -> str:
    """Return the pointer to the first element of ``region``, as C++."""
    offset, stride = num(0), num(1)
    for item, size in reversed(list(zip(region.index, region.tensor.shape, strict=True))):
        start = item.at if isinstance(item, Point) else item.start
        offset = int_op("+", int_op("*", start, stride), offset)
        stride = int_op("*", size, stride)
    text = ints.cpp(offset if ints.const(offset) is None else ints.fold(offset))
    return plus(ints.tensor(region.tensor), text)
