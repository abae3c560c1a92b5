"""The chip's limits on an asynchronous kernel: rows of a group, registers of a thread, shared memory of a block, blocks
of a cluster, parts of a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernellab.lowering.bounds import Bounds
from kernellab.lowering.gluon.boxes import Refused
from kernellab.lowering.gluon.plan import Plan
from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import Alloc, Assign, Load, Program, Scatter, Store
from kernellab.target import Target

#: least rows that one group of four warps multiplies (PTX, wgmma)
GROUP_ROWS = 64
#: registers of an SM, the most and the least (ptxas refused 56) of a thread that multiplies, and those of one that
#: loads
REGISTERS, MOST_REGISTERS, LEAST_REGISTERS, LOADER_REGISTERS = 65536, 240, 80, 24
#: threads that setmaxnreg counts with the loader: its warp is one of a group of four
_LOADER_THREADS = 128
#: registers of a thread are given in multiples of this (PTX, setmaxnreg)
_REGISTER_UNIT = 8
#: registers of a thread that its sums leave for addresses and indices; chosen, not measured
_SPARE_REGISTERS = 24
#: bytes of shared memory for barriers and for the compiler
_SPARE_BYTES = 1024
#: least bytes of a row of a result that leaves in parts: those of the copy engine's widest pattern in shared memory
_STORED_BYTES = 128


def within_limits(program: Program, plan: Plan, facts: Bounds, target: Target) -> Plan:
    """Return the plan with the registers of a thread and the bytes of shared memory.

    Raises:
        Refused: rows, warps, registers or shared memory are none that the chip has.
    """
    if plan.ahead and plan.stages < 2:
        raise Refused("a step that begins ahead needs two buffers of each tile, and num_stages is 1")
    range_differs = bool(plan.loop.start.loop_vars() | plan.loop.stop.loop_vars())
    if plan.in_turn and (not plan.persistent or range_differs or plan.resident):
        raise Refused("groups take tiles in turn only of a persistent grid whose tiles all take as many steps")
    if plan.shares_rows:
        _check_shared_rows(program, plan)
    _check_group_rows(plan, facts.const(plan.tile_rows) or 0)
    registers = _registers(plan)
    _check_sums(plan, registers, facts)
    for product in plan.products:
        columns = facts.const(product.acc.shape[-1]) or 0
        if columns % 8 or columns & (columns - 1):
            raise Refused("a product's columns are no power of two")
    size = _shared_bytes(plan, facts)
    if size > target.chip.shared_bytes:
        raise Refused(
            f"its buffers take {size:,} bytes of shared memory; {target.chip.name} gives a block "
            f"{target.chip.shared_bytes:,}"
        )
    return replace(plan, registers=registers, shared_bytes=size)


def _check_shared_rows(program: Program, plan: Plan) -> None:
    if any(lp.step == plan.tile_rows and lp.start != num(0) for lp in plan.loops):
        raise Refused("groups share rows that do not begin at 0")
    if plan.rows_name not in {c.name for c in program.constexprs if c.choices}:
        # the edge of a group's rows is then tested at launch, for the whole tile
        raise Refused(f"{plan.rows_name} is no tunable, and several groups share its rows")


def _check_group_rows(plan: Plan, tile_rows: int) -> None:
    warps = plan.warps // plan.groups
    rows = tile_rows // plan.groups if plan.shares_rows else tile_rows
    least = GROUP_ROWS * (warps // 4)
    if plan.warps % (4 * plan.groups) or tile_rows % plan.groups or rows % least:
        raise Refused(f"{rows} rows of a group of {warps} warps are no multiple of {least}")


def _registers(plan: Plan) -> int:
    """Return the registers of a thread that multiplies: those that the hint asks for, where there are as many."""
    available = (REGISTERS - _LOADER_THREADS * LOADER_REGISTERS) // (32 * plan.warps)
    available = available // _REGISTER_UNIT * _REGISTER_UNIT
    registers = min(plan.registers or MOST_REGISTERS, available, MOST_REGISTERS)
    if registers < LEAST_REGISTERS:
        raise Refused(f"{plan.warps} warps leave each thread {registers} registers")
    return registers


def _check_sums(plan: Plan, registers: int, facts: Bounds) -> None:
    """Check that results of products, and tiles that the loop carries, fit into the registers of the threads."""
    sums = {product.acc.uid: _elements(product.acc.shape, facts) for product in plan.products}
    carried = {stmt.tile.uid: stmt.tile.shape for stmt in plan.before if isinstance(stmt, Alloc)}
    written = {stmt.tile.uid for stmt in plan.loop.body if isinstance(stmt, Assign)}
    sums |= {uid: _elements(shape, facts) for uid, shape in carried.items() if uid in written and len(shape) == 2}
    held = sum(sums.values()) + (_elements(plan.early.acc.shape, facts) if plan.early else 0)
    threads = 32 * plan.warps
    each = held // (threads // plan.groups if plan.in_turn else threads)
    if each > registers - _SPARE_REGISTERS:
        raise Refused(f"its sums take {each} registers of each thread, of {registers}")


def _shared_bytes(plan: Plan, facts: Bounds) -> int:
    size = _SPARE_BYTES
    for load in plan.buffered:
        copies = 1 if load in plan.resident else plan.stages
        size += _elements(load.tile.shape, facts) * load.tile.dtype.bytes * copies
    if plan.async_store is not None:
        stored = plan.async_store.region
        whole = _elements(stored.shape, facts) * stored.tensor.dtype.bytes * (plan.groups if plan.in_turn else 1)
        return size + (whole if plan.store_parts == 1 else 2 * whole // plan.store_parts)
    # results change their layout in shared memory for 16-byte stores: the bytes of one group's results
    results = [(s.region.shape, s.region.tensor.dtype) for s in plan.after if isinstance(s, Store)]
    results += [(s.shape, s.tensor.dtype) for s in plan.after if isinstance(s, Scatter)]
    return size + max((_elements(shape, facts) * dtype.bytes for shape, dtype in results), default=0) // plan.groups


def _elements(shape: Sequence[IntExpr], facts: Bounds) -> int:
    total = 1
    for extent in shape:
        total *= facts.const(extent) or 1
    return total


def cluster_of(plan: Plan, wanted: int, facts: Bounds) -> int:
    """Return the blocks of a cluster.

    Raises:
        Refused: the kernel is not one that this lowering writes for clusters.
    """
    if wanted == 1:
        return 1
    rows = plan.row_loop
    if wanted != 2 or rows is None or rows.hints.cluster != wanted:
        raise Refused("a cluster is of 2 blocks along the loop over the products' rows")
    is_plain = (
        plan.persistent
        and plan.ahead
        and plan.accumulates
        and plan.groups == 1
        and plan.rows_name
        and plan.outer is None
    )
    if not is_plain or plan.async_store is None or plan.resident or any(isinstance(s, Load) for s in plan.before):
        raise Refused("clusters need a persistent grid, one group, products that only add up, and an async_store")
    span, tile = facts.const(rows.stop), facts.const(plan.tile_rows)
    regions = [*(load.region for load in plan.streams[0]), plan.async_store.region]
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
    return min(wanted, max(1, columns * store.region.tensor.dtype.bytes // _STORED_BYTES))


__all__ = ["GROUP_ROWS", "LOADER_REGISTERS", "cluster_of", "store_parts_of", "within_limits"]
