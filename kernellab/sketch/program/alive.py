"""The tiles of a block that are live at the same time, and their total size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from kernellab.sketch.program.program import Alloc, Assign, Load, MultiAssign, Read, Statement, Tile
from kernellab.sketch.program.walk import statements, subvalues, written_tiles


def most_alive(body: Sequence[Statement], size: Callable[[Tile], int]) -> tuple[int, list[Tile]]:
    """Return the largest total ``size`` of tiles that are live at one time in ``body``, and these tiles: those of the
    block, each from its first statement to the last that names it, and those of the inner block that runs meanwhile."""
    began: dict[str, tuple[int, Tile]] = {}
    last: dict[str, int] = {}
    for n, stmt in enumerate(body):
        began |= {tile.uid: (n, tile) for tile in declared_tiles(stmt)}
        last |= dict.fromkeys(named_tiles(stmt), n)
    most: tuple[int, list[Tile]] = (0, [])
    for n, stmt in enumerate(body):
        own = [tile for uid, (first, tile) in began.items() if first <= n <= last[uid]]
        inner = max((most_alive(block, size) for block in stmt.bodies), key=itemgetter(0), default=(0, []))
        most = max(most, (sum(map(size, own)) + inner[0], own + inner[1]), key=itemgetter(0))
    return most


def declared_tiles(stmt: Statement) -> tuple[Tile, ...]:
    """Return the tiles that ``stmt`` declares."""
    if isinstance(stmt, Alloc):
        return (stmt.tile,)
    if isinstance(stmt, (Load, Assign)):
        return (stmt.tile,) if stmt.declares else ()
    if isinstance(stmt, MultiAssign):
        return tuple(t for t, new in zip(stmt.tiles, stmt.declares, strict=True) if new)
    return ()


def named_tiles(stmt: Statement) -> Iterator[str]:
    """Yield the tiles that a statement or a block inside it reads or writes."""
    for inner in statements((stmt,)):
        if isinstance(inner, Alloc):
            yield inner.tile.uid
        yield from (tile.uid for tile in written_tiles(inner))
        for root in inner.values:
            yield from (value.tile.uid for value in subvalues(root) if isinstance(value, Read))


__all__ = ["declared_tiles", "most_alive", "named_tiles"]
