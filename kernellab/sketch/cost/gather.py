"""Traffic at indices that are tiles: an element a place, and never more than the tensor holds."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.sketch.check.gather import box
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Region, Scatter, Statement, Tensor
from kernellab.sketch.program.walk import gathers


def picks(stmt: Statement) -> Iterator[tuple[Region, tuple[IntExpr, ...], bool, bool]]:
    """Each gather and scatter of ``stmt``: the box round what it may touch, its shape, is it written, is it read."""
    for value in gathers(stmt):
        tensor, items = value.attr("tensor"), value.attr("items")
        assert isinstance(tensor, Tensor) and isinstance(items, tuple)
        yield box(tensor, items), value.type.shape, False, True
    if isinstance(stmt, Scatter):
        yield box(stmt.tensor, stmt.items), stmt.shape, True, stmt.add
