"""Checks the hints ``cluster`` and ``async_store`` with a number: blocks of a cluster, parts of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.lowering.bounds import Bounds
from kernellab.lowering.gluon.boxes import Refused
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import Load, Store

if TYPE_CHECKING:
    from kernellab.lowering.gluon.plan import Plan

#: least bytes of a row of a result that leaves in parts: those of the copy engine's widest pattern in shared memory
STORED_BYTES = 128


def cluster_of(p: Plan, wanted: int, facts: Bounds) -> int:
    """Return the blocks of a cluster.

    Raises:
        Refused: the kernel is not one that this lowering writes for clusters.
    """
    if wanted == 1:
        return 1
    rows = p.row_loop
    if wanted != 2 or rows is None or rows.hints.cluster != wanted:
        raise Refused("a cluster is of 2 blocks along the loop over the products' rows")
    plain = p.persistent and p.ahead and p.accumulates and p.groups == 1 and p.rows_name and p.outer is None
    if not plain or p.async_store is None or p.resident or any(isinstance(s, Load) for s in p.before):
        raise Refused("clusters need a persistent grid, one group, products that only add up, and an async_store")
    span, tile = facts.const(rows.stop), facts.const(p.tile_rows)
    regions = [*(load.region for load in p.streams[0]), p.async_store.region]
    if any(len(region.shape) != 2 or len(region.index) != 2 for region in regions):
        raise Refused("a cluster's tiles are blocks of tensors of two dimensions")
    if rows.start != num(0) or span is None or not tile or span % (wanted * tile):
        raise Refused(f"its rows are no multiple of the {wanted} tiles of a cluster")
    return wanted


def store_parts_of(store: Store, wanted: int, facts: Bounds) -> int:
    """Return the parts in which ``store`` writes its columns: those ``wanted`` if each is at least a whole line.

    Raises:
        Refused: the number is no power of two.
    """
    if wanted & (wanted - 1):
        raise Refused(f"its results leave in {wanted} parts, which is no power of two")
    columns = facts.const(store.region.shape[-1]) or 0
    return min(wanted, max(1, columns * store.region.tensor.dtype.bytes // STORED_BYTES))


__all__ = ["cluster_of", "store_parts_of"]
