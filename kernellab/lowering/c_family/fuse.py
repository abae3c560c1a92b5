"""Fuses loop nests over one domain, and decides where each tile lives.

Nests join while every dependence between them is from an element to the same element. A tile that one fused nest writes
and reads is a scalar there; a tile that is a copy of an input is read from the input where it is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from kernellab.lowering.c_family.index import ZERO, Index, align, leaves
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import (
    Block,
    Fetch,
    Flat,
    GatherCall,
    GemmCall,
    IfItem,
    LoopItem,
    Nest,
    Nested,
    NestKind,
    ScanCall,
    SortCall,
    tiles_read,
    with_tile,
)
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Loop, Region, Tile


class Place(str, Enum):
    """Where a tile lives: a C++ variable, a scalar inside one fused nest, or an array."""

    VARIABLE = "variable"
    LOCAL = "local"
    ARRAY = "array"


@dataclass(eq=False)
class Group(Flat):
    """Nests over one domain that run as one loop nest; ``vars`` name their variables (``ZERO`` for an extent of 1)."""

    domain: tuple[IntExpr, ...]
    vars: Index
    nests: list[Nest] = field(default_factory=list)

    @property
    def dims(self) -> list[int]:
        """The dimensions that have a loop, in order: those of more than one element."""
        return [d for d, var in enumerate(self.vars) if var != ZERO]

    @property
    def innermost(self) -> str | None:
        """The variable of the innermost loop; None without a loop."""
        return next((self.vars[d] for d in reversed(self.dims)), None)

    @property
    def reads(self) -> Collection[str]:
        return [uid for nest in self.nests for uid in nest.reads]

    @property
    def writes(self) -> Collection[str]:
        return [uid for nest in self.nests for uid in nest.writes]


@dataclass(eq=False)
class FusedLoop(Nested):
    loop: Loop
    body: FusedBlock
    gathers: GatherCall | None = None

    @property
    def blocks(self) -> tuple[FusedBlock, ...]:
        return (self.body,)


@dataclass(eq=False)
class FusedIf(Nested):
    cond: IntExpr
    then: FusedBlock
    orelse: FusedBlock
    line: int

    @property
    def blocks(self) -> tuple[FusedBlock, ...]:
        return (self.then, self.orelse)


FusedStep = Union[Group, ScanCall, SortCall, GemmCall, FusedLoop, FusedIf]


@dataclass(eq=False)
class FusedBlock:
    steps: list[FusedStep] = field(default_factory=list)
    declares: list[Tile] = field(default_factory=list)


class _Dependence(Enum):
    NONE = 0
    SAME_ELEMENT = 1
    ORDERED = 2


@dataclass
class _Touches:
    """Elements that a nest reads and writes; an index of None means "any element"."""

    reads: dict[str, set[Index | None]] = field(default_factory=lambda: defaultdict(set))
    writes: dict[str, set[Index | None]] = field(default_factory=lambda: defaultdict(set))
    tensor_reads: dict[str, list[Region]] = field(default_factory=lambda: defaultdict(list))
    tensor_writes: dict[str, list[Region]] = field(default_factory=lambda: defaultdict(list))


class Fuser:
    """Fuses nests; ``apart`` decides whether one loop over two nests would be slower than two loops."""

    def __init__(
        self, ints: Ints, names: tuple[str, ...], apart: Callable[[Nest, Nest], bool] = lambda one, other: False
    ) -> None:
        self.ints = ints
        self._names = names
        self._apart = apart
        #: accesses by the id of a nest, with the nest itself, which keeps the id from being reused
        self._touched: dict[tuple[int, Index | None], tuple[Nest, _Touches]] = {}

    def block(self, block: Block) -> FusedBlock:
        fused = FusedBlock(declares=block.declares)
        open_groups: list[Group] = []
        for step in block.steps:
            if isinstance(step, Nest):
                self._place(step, open_groups, fused)
                continue
            open_groups = []
            if isinstance(step, LoopItem):
                self.ints.loops[step.loop.var] = step.loop
                fused.steps.append(FusedLoop(step.loop, self.block(step.body), step.gathers))
                del self.ints.loops[step.loop.var]
            elif isinstance(step, IfItem):
                fused.steps.append(FusedIf(step.cond, self.block(step.then), self.block(step.orelse), step.line))
            else:
                fused.steps.append(step)
        return fused

    def _place(self, nest: Nest, groups: list[Group], fused: FusedBlock) -> None:
        joined = self._find(nest, groups)
        if joined is None:
            joined = Group(nest.domain, self._loop_vars(nest.domain))
            groups.append(joined)
            fused.steps.append(joined)
        joined.nests.append(nest)

    def _find(self, nest: Nest, groups: list[Group]) -> Group | None:
        """Return the group that ``nest`` may join: the last one, or one after which there is only scalar work."""
        if nest.never_fused:
            return None
        for group in reversed(groups):
            same = self.ints.same_shape(group.domain, nest.domain)
            worst = max((self._dependence(m, nest, group.vars) for m in group.nests), key=lambda d: d.value)
            if same and worst is not _Dependence.ORDERED and not any(self._apart(m, nest) for m in group.nests):
                return group
            if worst is not _Dependence.NONE or self._rank(group.domain) > 0:
                return None
        return None

    def _rank(self, domain: tuple[IntExpr, ...]) -> int:
        return sum(not self.ints.is_one(e) for e in domain)

    def _loop_vars(self, domain: tuple[IntExpr, ...]) -> Index:
        free = iter(self._names)
        return tuple(ZERO if self.ints.is_one(e) else next(free) for e in domain)

    def _dependence(self, first: Nest, second: Nest, variables: Index) -> _Dependence:
        same = self.ints.same_shape(first.domain, second.domain)
        a, b = self.touches(first, variables), self.touches(second, variables if same else None)
        result = _Dependence.NONE
        for one, two in ((a.writes, b.reads), (a.reads, b.writes), (a.writes, b.writes)):
            for uid in one.keys() & two.keys():
                places = one[uid] | two[uid]
                if not same or None in places or len(places) > 1:
                    return _Dependence.ORDERED
                result = _Dependence.SAME_ELEMENT
        for ones, twos in ((a.tensor_writes, b.tensor_reads), (a.tensor_reads, b.tensor_writes)):
            for name in ones.keys() & twos.keys():
                if not same or any(r != ones[name][0] for r in (*ones[name], *twos[name])):
                    return _Dependence.ORDERED
                result = _Dependence.SAME_ELEMENT
        shared = a.tensor_writes.keys() & b.tensor_writes.keys()
        # regions of an out tensor never overlap: each element is written once
        if any(r.tensor.role.value in ("inout", "temp") for name in shared for r in a.tensor_writes[name]):
            return _Dependence.ORDERED
        return result

    def touches(self, nest: Nest, variables: Index | None) -> _Touches:
        key = (id(nest), variables)
        if key not in self._touched:
            self._touched[key] = nest, self._touches(nest, variables)
        return self._touched[key][1]

    def _touches(self, nest: Nest, variables: Index | None) -> _Touches:
        touches = _Touches()
        index = variables if variables is not None else tuple("?" for _ in nest.domain)
        for leaf, at in leaves(nest.value, align(index, nest.value.type.shape, self.ints), self.ints):
            if isinstance(leaf, Fetch):
                touches.tensor_reads[leaf.region.tensor.name].append(leaf.region)
            else:
                touches.reads[leaf.tile.uid].add(at)
        if nest.tile is not None:
            whole = nest.kind is NestKind.REDUCE
            touches.writes[nest.tile.uid].add(None if whole else align(index, nest.tile.shape, self.ints))
        if nest.region is not None:
            touches.tensor_writes[nest.region.tensor.name].append(nest.region)
        if nest.scatter is not None:
            touches.tensor_writes[nest.scatter.tensor.name].append(Region(nest.scatter.tensor, ()))
        return touches


# -- where tiles live --------------------------------------------------------------------------------------------------


@dataclass
class _Uses:
    writers: list[tuple[object, Nest | None]] = field(default_factory=list)
    readers: list[tuple[object, Nest | None]] = field(default_factory=list)
    #: depth of loops at each use
    depths: list[int] = field(default_factory=list)
    write_depth: int = 0


class Placer:
    """Decide the :class:`Place` of every tile, and move reads of inputs to where they are needed."""

    def __init__(self, ints: Ints, written_tensors: frozenset[str]) -> None:
        self.ints = ints
        self._written = written_tensors
        self._uses: dict[str, _Uses] = defaultdict(_Uses)
        self._tiles: dict[str, Tile] = {}

    def places(self, block: FusedBlock) -> dict[str, Place]:
        self._collect(block, 0)
        moved = [uid for uid in self._tiles if self._may_fetch_again(uid)]
        if moved:
            self._fetch_where_needed(block, moved)
        self._uses.clear()
        self._collect(block, 0)
        return {uid: self._place(uid) for uid in self._tiles}

    def _collect(self, block: FusedBlock, depth: int) -> None:
        for tile in block.declares:
            self._tiles[tile.uid] = tile
        for step in block.steps:
            for inner in step.blocks:
                self._collect(inner, depth + isinstance(step, FusedLoop))
            if isinstance(step, Group):
                for nest in step.nests:
                    self._note(step, nest, depth)
            else:
                self._note_call(step, depth)

    def _note(self, group: Group, nest: Nest, depth: int) -> None:
        for uid in nest.reads:
            self._uses[uid].readers.append((group, nest))
            self._uses[uid].depths.append(depth)
        for uid in nest.writes:
            self._uses[uid].writers.append((group, nest))
            self._uses[uid].write_depth = depth

    def _note_call(self, step: FusedStep, depth: int) -> None:
        for uid in step.writes:
            self._uses[uid].writers.append((step, None))
        for uid in step.reads:
            self._uses[uid].readers.append((step, None))
            self._uses[uid].depths.append(depth)

    def _place(self, uid: str) -> Place:
        uses = self._uses[uid]
        if any(nest is None for _, nest in (*uses.writers, *uses.readers)):
            return Place.ARRAY
        if all(self.ints.is_one(e) for e in self._tiles[uid].shape):
            return Place.VARIABLE
        groups = {id(g) for g, _ in (*uses.writers, *uses.readers)}
        if len(groups) != 1 or not isinstance(uses.writers[0][0] if uses.writers else None, Group):
            return Place.ARRAY
        group = uses.writers[0][0]
        assert isinstance(group, Group)
        first = next(n for n in group.nests if (n.tile is not None and n.tile.uid == uid) or uid in tiles_read(n.value))
        made_here = first.kind is NestKind.POINT and first.tile is not None and first.tile.uid == uid
        fresh = made_here and uid not in tiles_read(first.value)
        reduced = any(n is not None and n.kind is NestKind.REDUCE for _, n in uses.writers)
        return Place.LOCAL if fresh and not reduced and self._pointwise_reads(group, uid) else Place.ARRAY

    def _pointwise_reads(self, group: Group, uid: str) -> bool:
        own = align(group.vars, self._tiles[uid].shape, self.ints)
        return all(
            at == own
            for nest in group.nests
            for leaf, at in leaves(nest.value, align(group.vars, nest.value.type.shape, self.ints), self.ints)
            if not isinstance(leaf, Fetch) and leaf.tile.uid == uid
        )

    # -- inputs that are read again instead of stored in a tile --------------------------------------------------------

    def _may_fetch_again(self, uid: str) -> bool:
        uses = self._uses[uid]
        if len(uses.writers) != 1 or all(self.ints.is_one(e) for e in self._tiles[uid].shape):
            return False
        group, nest = uses.writers[0]
        if nest is None or not isinstance(nest.value, Fetch) or not isinstance(group, Group):
            return False
        readers = {id(g) for g, _ in uses.readers}
        return (
            nest.value.region.tensor.name not in self._written
            and nest.value.region.tensor.dtype == self._tiles[uid].dtype
            and all(isinstance(g, Group) for g, _ in uses.readers)
            and len(readers) <= 3
            and readers != {id(group)}
            and all(d <= uses.write_depth for d in uses.depths)
            and all(self._same_place(g, uid) for g, _ in uses.readers if isinstance(g, Group))
        )

    def _same_place(self, group: Group, uid: str) -> bool:
        return self.ints.same_shape(group.domain, self._tiles[uid].shape) and self._pointwise_reads(group, uid)

    def _fetch_where_needed(self, block: FusedBlock, moved: list[str]) -> None:
        loads = {uid: self._uses[uid].writers[0] for uid in moved}
        for uid, (home, load) in loads.items():
            assert isinstance(home, Group) and load is not None
            groups = {id(g): g for g, _ in self._uses[uid].readers if isinstance(g, Group)}
            if id(home) not in groups:
                home.nests.remove(load)
            for position, group in enumerate(groups.values()):
                if group is not home:
                    copy = Tile(load.tile.name, f"{uid}@{position}", load.tile.shape, load.tile.dtype)  # type: ignore[union-attr]
                    self._read_copy(group, uid, copy, load)
        self._drop_empty(block)

    def _read_copy(self, group: Group, uid: str, copy: Tile, load: Nest) -> None:
        for nest in group.nests:
            nest.value = with_tile(nest.value, uid, copy)
        group.nests.insert(0, Nest(NestKind.POINT, load.domain, load.value, load.line, tile=copy))
        self._tiles[copy.uid] = copy

    def _drop_empty(self, block: FusedBlock) -> None:
        block.steps = [s for s in block.steps if not (isinstance(s, Group) and not s.nests)]
        for step in block.steps:
            for inner in step.blocks:
                self._drop_empty(inner)
