"""The parallel loops of a kernel as one flat grid of blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernellab.lowering.bounds import Bounds
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.writer import Writer
from kernellab.sketch.program.ints import IntExpr, IntKind, num
from kernellab.sketch.program.program import Loop


@dataclass(frozen=True)
class Grid:
    """The number of iterations of each parallel loop, outermost first; their product is the number of blocks."""

    trips: tuple[IntExpr, ...]
    vars: tuple[str, ...]


def write_grid(loops: list[Loop], ints: Ints, w: Writer, fresh: Callable[[str], str]) -> Grid:
    """Write the value of each loop's variable in this block; the innermost varies fastest. Returns the grid."""
    bounds = Bounds(ints.consts, loops={loop.var: loop for loop in loops})
    trips = [bounds.iterations(loop) for loop in loops]
    for loop, number in zip(loops, _numbers(loops, trips, ints, w, fresh), strict=True):
        text = number
        if not ints.is_one(loop.step):
            text = f"{number} * {ints.operand(loop.step)}"
        if loop.start != num(0):
            text = f"{ints.operand(loop.start)} + {text}"
        w(f"const index_t {ints.cpp(IntExpr(IntKind.LOOP, name=loop.var))} = {text};", loop.span.line)
    for loop in loops:
        if loop.start.loop_vars() | loop.stop.loop_vars():
            # the same for all threads of the block
            w(f"if ({ints.cpp(IntExpr(IntKind.LOOP, name=loop.var))} >= {ints.cpp(loop.stop)}) return;")
    return Grid(tuple(trips), tuple(loop.var for loop in loops))


def _numbers(loops: list[Loop], trips: list[IntExpr], ints: Ints, w: Writer, fresh: Callable[[str], str]) -> list[str]:
    if len(loops) < 2:
        return ["index_t(blockIdx.x)"] * len(loops)
    group = next((loop.hints.swizzle for loop in loops if loop.hints.swizzle), None)
    numbers: list[str] = []
    left = "index_t(blockIdx.x)"
    if group:
        # rows in groups: blocks that run at once share both their rows of a and their columns of b
        rows, columns = (ints.operand(t) for t in trips[-2:])
        first, count, within = fresh("group_row"), fresh("group_rows"), fresh("in_group")
        plane = f"{left} % ({rows} * {columns})" if len(loops) > 2 else left
        w(f"const index_t {first} = {plane} / ({group} * {columns}) * {group};")
        w(f"const index_t {count} = kl::imin(index_t({group}), {rows} - {first});")
        w(f"const index_t {within} = {plane} % ({group} * {columns});")
        numbers = [f"({first} + {within} % {count})", f"({within} / {count})"]
        left = f"{left} / ({rows} * {columns})"
        trips = trips[:-2]
    for n in range(len(trips) - 1, 0, -1):
        count = ints.operand(trips[n])
        numbers.insert(0, f"({left} % {count})")
        left = f"{left} / {count}"
    return [f"({left})", *numbers] if trips else numbers


__all__ = ["Grid", "write_grid"]
