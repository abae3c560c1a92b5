"""Matrix products: operands that are read in place, and the call that multiplies them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import (
    Block,
    Fetch,
    GatherCall,
    GemmCall,
    LoopItem,
    Matrix,
    Nest,
    NestKind,
    Step,
    drop_steps,
    steps_of,
)
from kernellab.lowering.cpp.site import start_of_region
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Apply, Point, Range, Read, Region, Tile, Value


def read_in_place(block: Block, ints: Ints, written: frozenset[str]) -> None:
    """Make products read operands from their tensors if a tile would only be a copy, and drop tiles that are then
    unused.

    ``written`` names the tensors that the kernel changes: these are always copied first.
    """
    steps = list(steps_of(block))
    writers: dict[str, list[Step]] = defaultdict(list)
    readers: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        for uid in step.writes:
            writers[uid].append(step)
        for uid in step.reads:
            readers[uid].append(step)
    once = {uid: steps_of_tile[0] for uid, steps_of_tile in writers.items() if len(steps_of_tile) == 1}
    _visit(block, ints, written, once)
    used = {uid for step in steps for uid in step.reads}
    copies = {id(step) for uid, step in once.items() if readers[uid] and uid not in used and isinstance(step, Nest)}
    while copies:
        drop_steps(block, copies)
        used = {uid for step in steps_of(block) for uid in step.reads}
        copies = {
            id(step)
            for step in steps_of(block)
            if isinstance(step, Nest) and step.kind is NestKind.POINT and step.tile is not None
            and step.tile.uid in once and readers[step.tile.uid] and step.tile.uid not in used
        }  # fmt: skip


def gemm_text(call: GemmCall, ints: Ints, name: Callable[[Tile], str], batch: str = "") -> str:
    """Return the C++ call; ``batch`` is the loop variable over leading dimensions of the accumulator.

    Raises:
        LoweringError: an operand without two dimensions, or with other batch dimensions than the accumulator.
    """
    acc = _place(call.acc, call, ints, name, batch)
    operands = [operand_text(operand, call, ints, name, batch) for operand in (call.a, call.b)]
    return f"kl::gemm({acc}, {ints.cpp(call.acc.shape[-1])}, {', '.join(operands)});"


def operand_text(
    operand: Tile | Matrix, call: GemmCall, ints: Ints, name: Callable[[Tile], str], batch: str = ""
) -> str:
    """Return an operand of a product, in a tile or in place."""
    if isinstance(operand, Matrix):
        return _matrix(operand, ints)
    rows, cols = (ints.cpp(e) for e in operand.shape[-2:]) if len(operand.shape) > 1 else ("", "")
    return f"kl::matrix({_place(operand, call, ints, name, batch)}, {cols}, 1, {rows}, {cols})"


def _place(tile: Tile, call: GemmCall, ints: Ints, name: Callable[[Tile], str], batch: str) -> str:
    if len(tile.shape) < 2:
        raise LoweringError("gemm needs operands of two dimensions.", "Add one with x[:, None].", call.line)
    if len(tile.shape) == 2:
        return name(tile)
    if not ints.same_shape(tile.shape[:-2], call.acc.shape[:-2]):
        raise LoweringError("The batch dimensions of gemm's operands differ.", "Broadcast them first.", call.line)
    return f"{name(tile)} + {batch} * {' * '.join(ints.operand(e) for e in tile.shape[-2:])}"


def _matrix(matrix: Matrix, ints: Ints) -> str:
    region = matrix.region
    strides, extents, stride = [], [], num(1)
    for item, size in reversed(list(zip(region.index, region.tensor.shape, strict=True))):
        if isinstance(item, Range):
            strides.append(ints.cpp(int_op("*", item.step, stride)))
            extents.append(_inside(item, size, ints))
        stride = int_op("*", size, stride)
    right, down = strides
    cols, rows = extents
    if matrix.transposed:
        down, right, rows, cols = right, down, cols, rows
    return f"kl::matrix({start_of_region(region, ints)}, {down}, {right}, {rows}, {cols})"


def _inside(item: Range, size: IntExpr, ints: Ints) -> str:
    if ints.fits(item.start, item.extent, item.step, size):
        return ints.cpp(item.extent)
    step = "" if ints.is_one(item.step) else f", {ints.cpp(item.step)}"
    return f"kl::inside({ints.cpp(size)}, {ints.cpp(item.start)}, {ints.cpp(item.extent)}{step})"


# -- operands that are read in place -----------------------------------------------------------------------------------


def _visit(block: Block, ints: Ints, written: frozenset[str], once: dict[str, Step]) -> None:
    before: set[int] = set()
    for step in block.steps:
        before.add(id(step))
        if isinstance(step, LoopItem):
            ints.loops[step.loop.var] = step.loop
            _visit(step.body, ints, written, once)
            del ints.loops[step.loop.var]
            continue
        for inner in step.blocks:
            _visit(inner, ints, written, once)
        if isinstance(step, GemmCall) and len(step.acc.shape) == 2:
            mine = {uid: s for uid, s in once.items() if id(s) in before}
            step.a = _source(step.a, step.acc, ints, written, mine) or step.a
            if not isinstance(step, GatherCall):
                step.b = _source(step.b, step.acc, ints, written, mine) or step.b


def _source(
    operand: Tile | Matrix, acc: Tile, ints: Ints, written: frozenset[str], once: dict[str, Step]
) -> Matrix | None:
    nest = once.get(operand.uid) if isinstance(operand, Tile) else None
    if not isinstance(operand, Tile) or not isinstance(nest, Nest) or nest.kind is not NestKind.POINT:
        return None
    value: Value | Fetch = nest.value
    if isinstance(value, Fetch):
        region = value.region
        same = region.tensor.dtype == operand.dtype and operand.dtype.compute == acc.dtype
        plain = value.pad == 0 and same and region.tensor.name not in written
        return Matrix(region, transposed=False) if plain and _readable(region, ints) else None
    if not isinstance(value, Apply) or value.op != "transpose" or value.attr("perm") not in (None, (1, 0)):
        return None
    inner = value.args[0]
    if not isinstance(inner, Read) or len(inner.tile.shape) != 2:
        return None
    untransposed = _source(inner.tile, acc, ints, written, once)
    return untransposed and replace(untransposed, transposed=not untransposed.transposed)


def _readable(region: Region, ints: Ints) -> bool:
    """Has the region two dimensions, nothing before the tensor's start, and single indices that are surely inside?"""
    ranges = [i for i in region.index if isinstance(i, Range)]
    if len(ranges) != 2 or not all(ints.nonnegative(r.start) and (ints.const(r.step) or 0) > 0 for r in ranges):
        return False
    return all(
        ints.nonnegative(item.at) and ints.below(item.at, size)
        for item, size in zip(region.index, region.tensor.shape, strict=True)
        if isinstance(item, Point)
    )
