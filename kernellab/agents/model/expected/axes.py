"""Maps the axes of tiles to the axes of a stored region, to locate the values on the way to one element.

store(reduce_sum(d * d, axis=1) -> P[i:i+B])      d[n, :] leads to P[i+n]: its axis 0 follows the region's, 1 is whole
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import (
    Apply,
    Assign,
    AtomicAdd,
    Gemm,
    Kernel,
    MultiAssign,
    Read,
    Scatter,
    Statement,
    Store,
    Value,
)
from kernellab.sketch.program.walk import statements

#: An axis all of whose places lead to the element, and one for which this is unknown.
WHOLE, UNKNOWN = -1, -2
Axes = tuple[int, ...]


def axes_of(kernel: Kernel, tensor: str) -> dict[str, Axes]:
    """By a tile's ``uid``: for each of its axes, the stored region's axis that it follows, WHOLE or UNKNOWN.

    Tiles that do not lead to ``tensor`` are omitted.
    """
    axes: dict[str, Axes] = {}
    backwards = [*statements(kernel.body)][::-1]
    previous: dict[str, Axes] | None = None
    while previous != axes:  # a value carried by a loop is read before it is written
        previous = dict(axes)
        for stmt in backwards:
            for value, value_axes in _wanted(stmt, tensor, axes):
                _flow(value, value_axes, axes)
    return axes


def _wanted(stmt: Statement, tensor: str, axes: dict[str, Axes]) -> Iterator[tuple[Value, Axes]]:
    """The values of a statement with the axes that their axes follow."""
    match stmt:
        case Store() | AtomicAdd() if stmt.region.tensor.name == tensor:
            yield stmt.value, tuple(range(len(stmt.region.shape)))
        case Scatter() if stmt.tensor.name == tensor:
            yield from ((value, tuple(range(len(stmt.shape)))) for value in stmt.values)
        case Assign() if stmt.tile.uid in axes:
            yield stmt.value, axes[stmt.tile.uid]
        case Gemm() if stmt.acc.uid in axes:
            yield from _factors((stmt.a, stmt.b), axes[stmt.acc.uid])
        case MultiAssign():
            for tile in stmt.tiles:
                if tile.uid in axes:
                    yield from (
                        (value, _before(stmt.op, dict(stmt.attrs), value, axes[tile.uid])) for value in stmt.args
                    )


def _flow(value: Value, wanted: Axes, axes: dict[str, Axes]) -> None:
    """Record the axes of every tile that ``value`` reads."""
    shape = value.type.shape
    # the literal 1 broadcasts, as do values with fewer axes
    value_axes = tuple(
        WHOLE if extent == num(1) else axis
        for extent, axis in zip(shape, wanted[len(wanted) - len(shape) :], strict=True)
    ) if len(shape) <= len(wanted) else (UNKNOWN,) * len(shape)  # fmt: skip
    if isinstance(value, Read):
        earlier = axes.get(value.tile.uid, value_axes)
        axes[value.tile.uid] = tuple(a if a == b else UNKNOWN for a, b in zip(earlier, value_axes, strict=True))
    elif isinstance(value, Apply) and value.op == "dot":
        for factor, of_it in _factors(value.args, value_axes):
            _flow(factor, of_it, axes)
    elif isinstance(value, Apply):
        for arg in value.args:
            _flow(arg, _before(value.op, dict(value.attrs), arg, value_axes), axes)


def _factors(factors: Sequence[Value], wanted: Axes) -> Iterator[tuple[Value, Axes]]:
    """A product's rows follow its left factor's rows, its columns its right factor's columns."""
    *batch, row, column = wanted
    yield factors[0], (*batch, row, WHOLE)
    yield factors[1], (*batch, WHOLE, column)


def _before(op: str, attrs: dict[str, object], arg: Value, wanted: Axes) -> Axes:
    """The axes of an operation's operand, from those of its result."""
    rank = len(arg.type.shape)
    kind = OPS[op].kind if op in OPS else OpKind.SHAPE
    if kind in (OpKind.POINTWISE, OpKind.COMPARE, OpKind.PICK) or op == "broadcast":
        return wanted
    reduced = attrs.get("axes")
    if kind is OpKind.REDUCE and isinstance(reduced, tuple):
        remaining = iter(wanted if len(wanted) < rank else [axis for n, axis in enumerate(wanted) if n not in reduced])
        return tuple(WHOLE if n in reduced else next(remaining) for n in range(rank))
    if kind is OpKind.SCAN:
        return wanted
    if op == "transpose" and isinstance(perm := attrs.get("perm"), tuple):
        return tuple(wanted[perm.index(n)] for n in range(rank))
    if op == "newaxis" and isinstance(reduced, tuple):
        return tuple(axis for n, axis in enumerate(wanted) if n not in reduced)
    if kind is OpKind.SORT or op == "concat":
        place = attrs.get("axis")
        return tuple(UNKNOWN if n == place else axis for n, axis in enumerate(wanted))
    return (UNKNOWN,) * rank
