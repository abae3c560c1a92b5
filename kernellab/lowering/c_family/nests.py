"""Loop nests: the form of a block of sketch statements before loops are fused.

A :class:`Block` has steps in order. Most are a :class:`Nest`, a loop over the elements of a domain; scans, sorts and
products are calls of kl_tile.h, and loops and conditions have blocks inside. flatten.py makes blocks of statements,
fuse.py joins nests into loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Union, cast

from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Apply, Loop, Read, Region, Scatter, Tile, Type, Value


@dataclass(frozen=True)
class Fetch:
    """The elements of a tensor's region, ``pad`` outside the tensor; a leaf of a value."""

    type: Type
    region: Region
    pad: float


@dataclass(frozen=True)
class Shifted(Read):
    """Elements of a longer tile: every ``step``-th along the last dimension, from ``start`` on."""

    start: int
    step: IntExpr


class Flat:
    """A step without blocks inside. Each step has its blocks and the uids of the tiles that it reads and writes."""

    @property
    def blocks(self) -> tuple[()]:
        return ()


class Nested:
    """A step made of blocks; reads and writes are those of the blocks."""

    @property
    def reads(self) -> Collection[str]:
        return ()

    @property
    def writes(self) -> Collection[str]:
        return ()


class NestKind(str, Enum):
    """What a nest does with the value of each element: it writes a tile, stores to or adds to a region, folds into a
    tile, or writes at computed indices."""

    POINT = "point"
    STORE = "store"
    ATOMIC = "atomic"
    REDUCE = "reduce"
    SCATTER = "scatter"


@dataclass(eq=False)
class Nest(Flat):
    """``for each element of domain``: write ``value`` to a tile or a region, or fold it into a tile."""

    kind: NestKind
    domain: tuple[IntExpr, ...]
    value: Value | Fetch
    line: int
    tile: Tile | None = None
    region: Region | None = None
    op: str = ""
    axes: tuple[int, ...] = ()
    keepdims: bool = False
    #: the tensor that a scatter writes; its value and then its indices are the arguments of ``value``
    scatter: Scatter | None = None
    #: iterations that run in parallel add to different elements: no atomics are needed
    conflict_free: bool = False
    #: has separate edges, on which another nest's loop must not depend
    never_fused: bool = False

    @property
    def reads(self) -> Collection[str]:
        return tiles_read(self.value)

    @property
    def writes(self) -> Collection[str]:
        return () if self.tile is None else (self.tile.uid,)


@dataclass(eq=False)
class ScanCall(Flat):
    """``tile = scan(source)`` along ``axis``; ``source`` holds the operand tiles (two for a linear recurrence)."""

    tile: Tile
    source: tuple[Tile, ...]
    combine: str
    axis: int
    line: int
    #: from the last element to the first
    reverse: bool = False
    #: regions of tensors that replace tiles: operands that are read and results that are written in place
    placed: dict[str, Region] = field(default_factory=dict)
    #: sketch lines of the loads and stores that this removed
    silent: list[int] = field(default_factory=list)

    @property
    def reads(self) -> Collection[str]:
        return [t.uid for t in self.source if t.uid not in self.placed]

    @property
    def writes(self) -> Collection[str]:
        return () if self.tile.uid in self.placed else (self.tile.uid,)


@dataclass(eq=False)
class SortCall(Flat):
    """``values, order``: the first elements of ``source`` along ``axis`` in stable order, and their former
    positions."""

    values: Tile
    order: Tile
    source: Tile
    axis: int
    descending: bool
    line: int
    #: the region of a tensor that replaces the source's tile
    placed: dict[str, Region] = field(default_factory=dict)
    #: sketch lines of the loads that this removed
    silent: list[int] = field(default_factory=list)

    @property
    def reads(self) -> Collection[str]:
        return () if self.source.uid in self.placed else (self.source.uid,)

    @property
    def writes(self) -> Collection[str]:
        return (self.values.uid, self.order.uid)


@dataclass(frozen=True)
class Matrix:
    """A rectangle of a tensor that a product reads in place, transposed or not."""

    region: Region
    transposed: bool


@dataclass(eq=False)
class GemmCall(Flat):
    """``acc += a @ b``; an operand is a tile, or the rectangle of a tensor that the tile would have been loaded
    from."""

    acc: Tile
    a: Tile | Matrix
    b: Tile | Matrix
    line: int

    @property
    def reads(self) -> Collection[str]:
        return [t.uid for t in self.tiles]

    @property
    def writes(self) -> Collection[str]:
        return (self.acc.uid,)

    @property
    def tiles(self) -> tuple[Tile, ...]:
        return tuple(t for t in (self.acc, self.a, self.b) if isinstance(t, Tile))


@dataclass(frozen=True)
class Slab:
    """The box of a tensor that a nest of loops reads and that is copied once.

    The first coordinate and the number of coordinates that are held, for each dimension of the tensor.
    """

    region: Region
    low: tuple[IntExpr, ...]
    count: tuple[IntExpr, ...]
    #: the dimension that is summed, and that of the rows of positions (-1: none); the last one has their columns
    depth: int
    rows: int
    #: the length of the whole sum; 0 if unknown
    sum_length: int
    #: elements from one column of positions to the next
    step: int


@dataclass(eq=False)
class GatherCall(GemmCall):
    """A product whose operands are collected and multiplied together with others; ``b`` comes from ``region``.

    ``slab`` is the box that the ``b`` of all of them come from, if it is copied once."""

    region: Region | None = None
    slab: Slab | None = None

    @property
    def tiles(self) -> tuple[Tile, ...]:
        return tuple(t for t in (self.acc, self.a) if isinstance(t, Tile))


@dataclass(eq=False)
class LoopItem(Nested):
    loop: Loop
    body: Block
    #: the gathered product that runs inside and is finished after the loop
    gathers: GatherCall | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)


@dataclass(eq=False)
class IfItem(Nested):
    cond: IntExpr
    then: Block
    orelse: Block
    line: int

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.then, self.orelse)


Step = Union[Nest, ScanCall, SortCall, GemmCall, LoopItem, IfItem]


@dataclass(eq=False)
class Block:
    steps: list[Step] = field(default_factory=list)
    #: tiles that this block declares
    declares: list[Tile] = field(default_factory=list)


def steps_of(block: Block) -> Iterator[Step]:
    """Yield the steps of a block and of the blocks inside it, in order, without loops and conditions."""
    for step in block.steps:
        for inner in step.blocks:
            yield from steps_of(inner)
        if not step.blocks:
            yield step


def drop_steps(block: Block, which: set[int]) -> None:
    """Remove the steps with these ``id`` from a block and from the blocks inside it."""
    block.steps = [s for s in block.steps if id(s) not in which]
    for step in block.steps:
        for inner in step.blocks:
            drop_steps(inner, which)


def subvalues(value: Value | Fetch) -> Iterator[Value | Fetch]:
    """Yield ``value`` and all values inside it."""
    yield value
    if isinstance(value, Apply):
        for arg in value.args:
            yield from subvalues(arg)


def tiles_read(value: Value | Fetch) -> set[str]:
    return {v.tile.uid for v in subvalues(value) if isinstance(v, Read)}


def with_tile(value: Value | Fetch, uid: str, tile: Tile) -> Value | Fetch:
    """Return ``value`` with reads of the tile ``uid`` replaced by reads of ``tile``."""
    if isinstance(value, Read):
        return replace(value, tile=tile) if value.tile.uid == uid else value
    if isinstance(value, Apply):
        return replace(value, args=tuple(cast("Value", with_tile(a, uid, tile)) for a in value.args))
    return value
