"""Calls that scan or sort rows. Contiguous rows are read, and results of scans written, in place: a tile would only be
a copy, and that of a long row does not fit the nearest cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import (
    Block,
    Fetch,
    IfItem,
    LoopItem,
    Nest,
    NestKind,
    ScanCall,
    SortCall,
    Step,
    drop_steps,
    steps_of,
)
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE
from kernellab.lowering.cpp.site import start_of_region
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Point, Read, Region, Tile

_SCANS = {"add": "Add", "mul": "Mul", "max": "Most", "min": "Least"}


def place_rows(block: Block, ints: Ints, read: frozenset[str], written: frozenset[str]) -> None:
    """Make scans and sorts read tensors, and scans write them, without tiles; drop steps that only copied.

    ``read`` and ``written`` name the tensors that the kernel reads and changes: one that it does both to is copied.
    """
    steps = list(steps_of(block))
    writers = Counter(uid for step in steps for uid in step.writes)
    readers = Counter(uid for step in steps for uid in step.reads)
    once = {uid for uid, n in writers.items() if n == 1}
    placing = _Placing(ints, read, written, once, readers)
    placing.visit(block)
    drop_steps(block, placing.dropped)


@dataclass
class _Placing:
    """What the steps of a kernel read and write, for a visit of all its calls."""

    ints: Ints
    #: names of tensors
    read: frozenset[str]
    written: frozenset[str]
    #: uids of tiles that one step writes, and the number of steps that still read each tile
    once: set[str]
    readers: Counter[str]
    #: ids of steps that only copy what a call now accesses in place
    dropped: set[int] = field(default_factory=set)

    def visit(self, block: Block) -> None:
        writers: dict[str, Nest] = {}
        for at, step in enumerate(block.steps):
            if isinstance(step, LoopItem):
                self.ints.loops[step.loop.var] = step.loop
                self.visit(step.body)
                del self.ints.loops[step.loop.var]
            elif isinstance(step, IfItem):
                self.visit(step.then)
                self.visit(step.orelse)
            elif isinstance(step, Nest):
                if step.kind is NestKind.POINT and step.tile is not None and step.tile.uid in self.once:
                    writers[step.tile.uid] = step
            elif isinstance(step, (ScanCall, SortCall)):
                self._read_in_place(step, writers)
                if isinstance(step, ScanCall) and at + 1 < len(block.steps):
                    self._write_in_place(step, block.steps[at + 1])

    def _read_in_place(self, call: ScanCall | SortCall, writers: Mapping[str, Nest]) -> None:
        """Let the call read tensors where its tiles are copies of them; ``writers``: steps before it, by their
        tile."""
        for tile in dict.fromkeys(call.source if isinstance(call, ScanCall) else (call.source,)):
            load = writers.get(tile.uid)
            if load is None or not isinstance(load.value, Fetch) or load.value.region.tensor.name in self.written:
                continue
            if _as_tile(load.value.region, tile) and _side_by_side(load.value.region, self.ints):
                call.placed[tile.uid] = load.value.region
                self.readers[tile.uid] -= 1
                if not self.readers[tile.uid]:
                    self.dropped.add(id(load))
                    call.silent.append(load.line)

    def _write_in_place(self, call: ScanCall, store: Step) -> None:
        """Let the scan write its result to a tensor that is not read, if ``store`` only copies it there."""
        tile = call.tile
        if not isinstance(store, Nest) or store.kind is not NestKind.STORE or store.region is None:
            return
        if (
            isinstance(store.value, Read)
            and store.value.tile.uid == tile.uid
            and tile.uid in self.once
            and self.readers[tile.uid] == 1
            and _as_tile(store.region, tile)
            and store.region.tensor.name not in self.read
            and self.ints.same_shape(store.value.type.shape, tile.shape)
            and _side_by_side(store.region, self.ints)
        ):
            call.placed[tile.uid] = store.region
            self.dropped.add(id(store))
            call.silent.append(store.line)


def _as_tile(region: Region, tile: Tile) -> bool:
    """Have the elements of the tensor and of the tile one C++ type?"""
    return region.tensor.dtype is tile.dtype and MEMORY_TYPE[tile.dtype] == VALUE_TYPE[tile.dtype]


def _side_by_side(region: Region, ints: Ints) -> bool:
    """Has the region the memory layout of a tile of its shape, entirely inside the tensor?"""
    #: dimensions inside of the current one are whole; the current one is inside of a range
    whole, begun = True, False
    for item, size in reversed(list(zip(region.index, region.tensor.shape, strict=True))):
        if isinstance(item, Point):
            if not begun and not ints.is_one(size):
                return False
            whole = False
            if not (ints.nonnegative(item.at) and ints.below(item.at, size)):
                return False
        else:
            if not whole or not ints.is_one(item.step) or not ints.fits(item.start, item.extent, item.step, size):
                return False
            begun, whole = True, ints.const(item.start) == 0 and ints.equal(item.extent, size)
    return begun


# -- text --------------------------------------------------------------------------------------------------------------


def row_text(call: ScanCall | SortCall, ints: Ints, names: Callable[[Tile], str]) -> str:
    """Return the C++ call.

    Raises:
        LoweringError: operands of a scan of other shapes than its result.
    """
    return _scan_text(call, ints, names) if isinstance(call, ScanCall) else _sort_text(call, ints, names)


def _scan_text(call: ScanCall, ints: Ints, names: Callable[[Tile], str]) -> str:
    """Return ``kl::scan<...>(result, operands, outer, n, inner);``."""
    for source in call.source:
        if not ints.same_shape(source.shape, call.tile.shape):
            raise LoweringError("The scan's operands differ in shape.", "Broadcast them first.", call.line)
    operands = [_row(call, tile, ints, names) for tile in (call.tile, *call.source)]
    back = str(call.reverse).lower()
    word = f"kl::linear_scan<{back}>" if call.combine == "linear" else f"kl::scan<kl::{_SCANS[call.combine]}, {back}>"
    return f"{word}({', '.join([*operands, *_sizes(call.tile.shape, call.axis, ints)])});"


def _sort_text(call: SortCall, ints: Ints, names: Callable[[Tile], str]) -> str:
    """Return ``kl::in_order<...>(values, order, source, outer, n, inner, k);``."""
    sizes = [*_sizes(call.source.shape, call.axis, ints), ints.operand(call.order.shape[call.axis])]
    operands = [_row(call, tile, ints, names) for tile in (call.values, call.order, call.source)]
    return f"kl::in_order<{'true' if call.descending else 'false'}>({', '.join([*operands, *sizes])});"


def _sizes(shape: tuple[IntExpr, ...], axis: int, ints: Ints) -> list[str]:
    parts = (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :])
    return [" * ".join(ints.operand(e) for e in part) or "1" for part in parts]


def _row(call: ScanCall | SortCall, tile: Tile, ints: Ints, names: Callable[[Tile], str]) -> str:
    """Return the tile, or the place in a tensor that replaces it."""
    region = call.placed.get(tile.uid)
    return names(tile) if region is None else start_of_region(region, ints)
