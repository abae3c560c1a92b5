"""What of a lowered kernel decides the number of its warps and stages, where the sketch does not say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.lowering.triton.shapes import Elements, Shapes
from kernellab.sketch.program.program import Alloc, Apply, Assign, Gemm, Kernel, Load, Loop, Program, Statement, Value
from kernellab.sketch.program.walk import statements, subvalues

#: most warps of a program
_MOST_WARPS = 32
#: bytes of a row for each warp of a scan along columns
_SCAN_BYTES = 512


@dataclass(frozen=True)
class LaunchFacts:
    """Sizes of a kernel's tiles."""

    #: of the largest tile
    elements: Elements
    has_dot: bool
    #: known elements of all accumulators of products
    sums: int
    #: bytes of the widest element that is read or written
    widest: int
    #: stages in the hints of its loops with products; 0 without one
    stages: int
    #: warps for a scan along columns, each of which one lane holds; 0 without one
    scan_warps: int


def launch_facts(
    program: Program, kernel: Kernel, shapes: Shapes, scans: Sequence[str], *, has_dot: bool
) -> LaunchFacts:
    """Return the facts of ``kernel``; ``scans``: the operations that are scans."""
    inside = list(statements(kernel.body))
    tiles = {s.tile.shape for s in inside if isinstance(s, (Alloc, Load, Assign))}
    largest = max(
        (shapes.elements(shape) for shape in tiles),
        key=lambda each: (len(each.padded), each.known), default=Elements(1, []),
    )  # fmt: skip
    sums = {s.acc.uid: s.acc.shape for s in inside if isinstance(s, Gemm)}
    moved = kernel.reads | kernel.writes
    stages = [s.hints.pipeline or 0 for s in inside if isinstance(s, Loop) and dots_in(s.body)]
    return LaunchFacts(
        elements=largest,
        has_dot=has_dot,
        sums=sum(shapes.elements(shape).known for shape in sums.values()),
        widest=max((t.dtype.bytes for t in program.tensors if t.name in moved), default=4),
        stages=max(stages, default=0),
        scan_warps=_scan_warps(program, kernel, shapes, scans),
    )


def _scan_warps(program: Program, kernel: Kernel, shapes: Shapes, scans: Sequence[str]) -> int:
    """Return one warp for each 512 bytes of a row of the narrowest tensor that is read: its lanes hold all rows of a
    tile, and no lane waits for another. 0 if rows are shorter; at most the warps of a program."""
    values = (v for s in statements(kernel.body) if isinstance(s, Assign) for v in subvalues(s.value))
    scanned = [v for v in values if isinstance(v, Apply) and v.op in scans and len(v.type.shape) > 1]
    rows = [v.type.shape[-1] for v in scanned if v.attr("axis", 0) not in (-1, len(v.type.shape) - 1)]
    sizes = [shapes.elements((row,)) for row in rows]
    if not sizes or any(size.padded for size in sizes):
        return 0
    narrowest = min((t.dtype.bytes for t in program.tensors if t.name in kernel.reads), default=4)
    return min(_MOST_WARPS, max(size.known for size in sizes) * narrowest // _SCAN_BYTES)


def dots_in(body: Sequence[Statement]) -> list[tuple[Value, Value]]:
    """Return the factors of every product in ``body``."""
    factors: list[tuple[Value, Value]] = []
    for stmt in statements(tuple(body)):
        if isinstance(stmt, Gemm):
            factors.append((stmt.a, stmt.b))
        for value in stmt.values:
            factors += [(v.args[0], v.args[1]) for v in subvalues(value) if isinstance(v, Apply) and v.op == "dot"]
    return factors


__all__ = ["LaunchFacts", "dots_in", "launch_facts"]
