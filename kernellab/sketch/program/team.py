"""The hint ``team``: the programs of one tile divide a plain loop's iterations and wait for each other after it.

A state that each step reads whole and writes in blocks (that of a recurrent layer) is then spread over many cores. The
hint does not change the meaning, so a loop gets a team only if its iterations are proved to be independent."""

from __future__ import annotations

from collections.abc import Iterable

from kernellab.sketch.program import affine
from kernellab.sketch.program.access import Access, accesses, cover
from kernellab.sketch.program.alive import declared_tiles, named_tiles
from kernellab.sketch.program.ints import int_op
from kernellab.sketch.program.program import (
    Alloc,
    Assign,
    Gemm,
    Kernel,
    Load,
    Loop,
    MultiAssign,
    Point,
    Region,
    Scatter,
    Statement,
    Touch,
)
from kernellab.sketch.program.walk import gathers, parallel_loops, statements


def team_loops(kernel: Kernel) -> list[Loop]:
    """Return the loops hinted ``team``, if a team may divide the iterations of all of them, else none."""
    loops = team_hinted(kernel)
    return [] if why_no_team(kernel) else loops


def why_no_team(kernel: Kernel) -> str:
    """Return why each program runs all iterations of the hinted loops of ``kernel``; "" if a team may divide them."""
    loops = team_hinted(kernel)
    if not loops:
        return ""
    grid = parallel_loops(kernel.body).loops
    touched = accesses(kernel)
    if any(loop.hints.persistent for loop in grid):
        return "a persistent grid has no programs to spare"
    if any(isinstance(s, Scatter) or list(gathers(s)) for s in statements(kernel.body)):
        return "places of a scatter or gather are not known before they run"
    if any(a.kind is Touch.ADD for a in touched):
        return "each program of the team would add"
    inside = [a for a in touched if any(outer is loop for outer in a.loops for loop in loops)]
    stored = {a.tensor for a in touched if a.kind is Touch.WRITE}
    for access in touched:
        if access.tensor in stored and not any(access is a for a in inside):
            return f"{access.tensor!r} is used outside of the loop"
    for loop in loops:
        reason = _why_not_divided(kernel, loop, [a for a in inside if any(outer is loop for outer in a.loops)])
        if reason:
            return reason
    return ""


def team_hinted(kernel: Kernel) -> list[Loop]:
    """Return the plain loops of ``kernel`` that are hinted ``team``."""
    return [s for s in statements(kernel.body) if isinstance(s, Loop) and s.hints.team and not s.hints.parallel]


def _why_not_divided(kernel: Kernel, loop: Loop, touched: Iterable[Access]) -> str:
    """Return why another program may not run an iteration of ``loop``; "" if it may."""
    inner = list(statements(loop.body))
    if any(isinstance(s, Loop) and s.hints.team for s in inner):
        return "a team's loop holds another"
    if loop.start.loop_vars() | loop.stop.loop_vars() | loop.step.loop_vars():
        return "how often it runs differs between iterations of an outer loop"
    inner_ids = {id(s) for s in inner}
    outside = [s for s in statements(kernel.body) if id(s) not in inner_ids and not s.bodies]
    changed = {uid for s in inner for uid in _changed(s)}
    declared = {tile.uid for s in inner for tile in declared_tiles(s)}
    if changed - declared or changed & {uid for s in outside for uid in named_tiles(s)}:
        return "a tile goes from one iteration to the next"
    moving = frozenset([loop.var]) | {s.var for s in inner if isinstance(s, Loop)}
    stores = [a for a in touched if a.kind is Touch.WRITE]
    for store in stores:
        loops = store.loops[next(n for n, outer in enumerate(store.loops) if outer is loop) :]
        covers = [cover(item, loops) for item in store.region.index]
        if not any(c is not None and loop.var in c.apart for c in covers):
            return f"its iterations may write one element of {store.tensor!r}"
        others = [a.region for a in touched if a is not store and a.tensor == store.tensor]
        if not all(_separate(store.region, other, moving) for other in others):
            return f"an iteration may use what another writes to {store.tensor!r}"
    return ""


def _separate(a: Region, b: Region, moving: frozenset[str]) -> bool:
    """Are both the same elements in one iteration, or always different while only loops of ``moving`` run?"""
    if a.index == b.index:
        return True
    pairs = zip(a.index, b.index, strict=True)
    points = [(one.at, other.at) for one, other in pairs if isinstance(one, Point) and isinstance(other, Point)]
    distances = (int_op("-", p, q) for p, q in points if not moving & (p.loop_vars() | q.loop_vars()))
    return any(affine.constant(distance) not in (None, 0) for distance in distances)


def _changed(stmt: Statement) -> tuple[str, ...]:
    """Return the tiles that ``stmt`` itself writes."""
    match stmt:
        case Alloc() | Load() | Assign():
            return (stmt.tile.uid,)
        case MultiAssign():
            return tuple(tile.uid for tile in stmt.tiles)
        case Gemm():
            return (stmt.acc.uid,)
    return ()
