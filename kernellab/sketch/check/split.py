"""May a loop be split over workers so that only rounding changes? Its carried tiles must combine associatively."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.sketch.program.alive import declared_tiles
from kernellab.sketch.program.program import (
    Apply,
    Assign,
    Gemm,
    If,
    Loop,
    Read,
    Statement,
    Tile,
    Value,
)
from kernellab.sketch.program.walk import statements, subvalues, written_tiles

#: operations whose results may be combined in parts
_ASSOCIATIVE = frozenset(("add", "mul", "min", "max", "sub", "fma", "logical_and", "logical_or"))


def cannot_split(loop: Loop) -> str:
    """Return why the tiles that ``loop`` carries cannot be combined from parts; "" if they can."""
    inside = {t.uid for s in statements(loop.body) for t in declared_tiles(s)}
    writes = [(t, s) for s in statements(loop.body) for t in written_tiles(s) if t.uid not in inside]
    carried = {t.uid for t, _ in writes}
    for tile, stmt in writes:
        if not _combines(tile, stmt, carried):
            return f"'{tile.name}' is not carried by +, *, min, max, gemm or welford alone"
    for stmt in statements(loop.body):
        if isinstance(stmt, (Loop, If)) or any(t.uid in carried for t in written_tiles(stmt)):
            continue
        for value in stmt.values:
            for part in subvalues(value):
                if isinstance(part, Read) and part.tile.uid in carried:
                    return f"'{part.tile.name}' is read before the loop has finished it"
    return ""


def _combines(tile: Tile, stmt: Statement, carried: set[str]) -> bool:
    """Does ``stmt`` only combine ``tile`` with values that no tile of ``carried`` enters?"""
    if isinstance(stmt, Gemm):
        return not any(_reads(v, carried) for v in (stmt.a, stmt.b))
    if not isinstance(stmt, Assign):
        return False
    value = _uncast(stmt.value)
    if not isinstance(value, Apply) or value.op not in _ASSOCIATIVE:
        return False
    args = [_uncast(a) for a in value.args]
    tile_at = [i for i, a in enumerate(args) if isinstance(a, Read) and a.tile.uid == tile.uid]
    # acc - x adds -x, x - acc is no sum; a * b + acc adds a product
    allowed = {"sub": (0,), "fma": (2,)}.get(value.op, (0, 1))
    if len(tile_at) != 1 or tile_at[0] not in allowed:
        # a chain such as acc + x + y
        return value.op in ("add", "mul", "min", "max") and _chain(value, value.op, tile, carried)
    return not any(_reads(a, carried) for i, a in enumerate(args) if i != tile_at[0])


def _chain(value: Value, op: str, tile: Tile, carried: set[str]) -> bool:
    """Is ``value`` ``op`` over leaves, exactly one of which is ``tile`` and none of the others carried?"""
    leaves = list(_leaves(value, op))
    reads = [v for v in leaves if isinstance(v, Read) and v.tile.uid == tile.uid]
    return len(reads) == 1 and not any(_reads(v, carried) for v in leaves if v is not reads[0])


def _leaves(value: Value, op: str) -> Iterator[Value]:
    value = _uncast(value)
    if isinstance(value, Apply) and value.op == op:
        for arg in value.args:
            yield from _leaves(arg, op)
    else:
        yield value


def _reads(value: Value, uids: set[str]) -> bool:
    return any(isinstance(v, Read) and v.tile.uid in uids for v in subvalues(value))


def _uncast(value: Value) -> Value:
    while isinstance(value, Apply) and value.op == "cast":
        value = value.args[0]
    return value
