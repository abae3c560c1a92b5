"""The tiles of a block that are live at the same time, and their total size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kernellab.sketch.program.program import Alloc, Assign, Load, MultiAssign, Read, Statement, Tile
from kernellab.sketch.program.walk import statements, subvalues, written_tiles


class LiveTiles(NamedTuple):
    """Tiles that are live at one time, and their total size."""

    size: int
    tiles: list[Tile]


def most_alive(body: Sequence[Statement], size: Callable[[Tile], int]) -> LiveTiles:
    """Return the tiles of ``body`` with the largest total ``size`` that are live at one time: those of the block, each
    from its first statement to the last that names it, and those of the inner block that runs meanwhile."""
    tiles: dict[str, Tile] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, stmt in enumerate(body):
        for tile in declared_tiles(stmt):
            tiles[tile.uid], first[tile.uid] = tile, at
        last |= dict.fromkeys(named_tiles(stmt), at)
    most = LiveTiles(0, [])
    for at, stmt in enumerate(body):
        block = [tile for uid, tile in tiles.items() if first[uid] <= at <= last[uid]]
        inner = max((most_alive(b, size) for b in stmt.bodies), key=lambda live: live.size, default=LiveTiles(0, []))
        here = LiveTiles(sum(map(size, block)) + inner.size, block + inner.tiles)
        most = max(most, here, key=lambda live: live.size)
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
