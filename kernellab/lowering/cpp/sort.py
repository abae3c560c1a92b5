"""A call that puts rows in order."""

from __future__ import annotations

from collections.abc import Callable

from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import SortCall
from kernellab.sketch.program.program import Tile


def sort_text(call: SortCall, ints: Ints, names: Callable[[Tile], str]) -> str:
    """``kl::in_order<...>(values, order, source, outer, n, inner, k);``"""
    shape, axis = call.source.shape, call.axis
    parts = (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :], call.order.shape[axis : axis + 1])
    sizes = [" * ".join(ints.operand(e) for e in part) or "1" for part in parts]
    tiles = [names(t) for t in (call.values, call.order, call.source)]
    return f"kl::in_order<{'true' if call.down else 'false'}>({', '.join([*tiles, *sizes])});"
