"""A block of sketch statements as loop nests: every operation that is not pointwise gets a separate tile.

After this, a value holds only pointwise and index-moving operations, so one element of it can be computed from one
element of each operand; reductions, scans and matrix products stand alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import (
    Block,
    Fetch,
    GemmCall,
    IfItem,
    LoopItem,
    Nest,
    NestKind,
    ScanCall,
    SortCall,
    subvalues,
    tiles_read,
)
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.check.gather import keeps_apart
from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    AtomicAdd,
    Const,
    DType,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    MultiAssign,
    Program,
    Read,
    Scatter,
    Statement,
    Store,
    Tile,
    Type,
    Value,
)
from kernellab.sketch.program.walk import statements

#: operations whose result may change by a whole step if the operand is rounded differently
_STEPS = frozenset({"round", "floor", "ceil", "trunc", "mod", "floordiv", "bitcast"})


def has_steps(program: Program, kernel: Kernel) -> bool:
    """Does ``kernel``, or a later kernel of ``program``, which may read its results, round anything to a grid?"""
    later = program.kernels[program.kernels.index(kernel) :]
    return any(
        isinstance(value, Apply) and (value.op in _STEPS or _to_integer(value))
        for k in later
        for stmt in statements(k.body)
        for root in stmt.values
        for value in subvalues(root)
    )


def _to_integer(value: Apply) -> bool:
    return value.op == "cast" and value.args[0].type.dtype.is_float and not value.type.dtype.is_float


class Flattener:
    """Convert a kernel's statements to a :class:`Block`, with extra tiles where they are needed."""

    def __init__(self, ints: Ints, taken: set[str], steps: bool = False) -> None:
        """``steps``: the kernel has steps (:func:`has_steps`), so a quotient must be exactly rounded."""
        self.ints = ints
        self._steps = steps
        self._taken = taken
        self._block = Block()
        #: line of the statement, and the start of the names of its extra tiles
        self._line = 0
        self._base = "value"
        #: values that the statement uses more than once, and the tiles that hold those computed so far
        self._repeated: frozenset[Value] = frozenset()
        self._computed: dict[Value, Read] = {}
        #: tensors that exactly one statement of the kernel scatters to
        self.scattered_once: frozenset[str] = frozenset()

    def block(self, body: tuple[Statement, ...]) -> Block:
        outer, self._block = self._block, Block()
        for stmt in body:
            self._line = stmt.span.line
            self._computed, self._repeated = {}, _repeated(stmt)
            _RULES[type(stmt)](self, stmt)
        inner, self._block = self._block, outer
        return inner

    def alloc(self, stmt: Alloc) -> None:
        self._block.declares.append(stmt.tile)
        if stmt.init_zero:
            self._point(stmt.tile, Const(Type((), stmt.tile.dtype), 0))

    def load(self, stmt: Load) -> None:
        self._declare(stmt.tile, stmt.declares)
        self._point(stmt.tile, Fetch(Type(stmt.region.shape, stmt.region.tensor.dtype), stmt.region, stmt.pad))

    def store(self, stmt: Store | AtomicAdd) -> None:
        kind = NestKind.STORE if isinstance(stmt, Store) else NestKind.ATOMIC
        self._base = stmt.region.tensor.name.lower()
        value = self._prepare(stmt.value, stmt.region.shape)
        self._block.steps.append(Nest(kind, stmt.region.shape, value, self._line, region=stmt.region))

    def scatter(self, stmt: Scatter) -> None:
        self._base = stmt.tensor.name.lower()
        packed = Apply(Type(stmt.shape, stmt.tensor.dtype), "scatter", (stmt.value, *stmt.index))
        conflict_free = stmt.tensor.name in self.scattered_once and keeps_apart(stmt, tuple(self.ints.loops.values()))
        value = self._prepare(packed, stmt.shape)
        self._block.steps.append(
            Nest(NestKind.SCATTER, stmt.shape, value, self._line, scatter=stmt, conflict_free=conflict_free)
        )

    def assign(self, stmt: Assign) -> None:
        self._base = stmt.tile.name
        self._assign(stmt.tile, stmt.value, stmt.declares)

    def gemm(self, stmt: Gemm) -> None:
        self._base = stmt.acc.name
        self._gemm(stmt.acc, stmt.a, stmt.b)

    def several(self, stmt: MultiAssign) -> None:
        self._base = stmt.tiles[0].name
        self._several(stmt)

    def loop(self, stmt: Loop) -> None:
        self.ints.loops[stmt.var] = stmt
        self._block.steps.append(LoopItem(stmt, self.block(stmt.body)))
        del self.ints.loops[stmt.var]

    def branch(self, stmt: If) -> None:
        line = self._line
        self._block.steps.append(IfItem(stmt.cond, self.block(stmt.then), self.block(stmt.orelse), line))

    def _declare(self, tile: Tile, fresh: bool) -> None:
        if fresh:
            self._block.declares.append(tile)

    def _point(self, tile: Tile, value: Value | Fetch) -> None:
        self._block.steps.append(Nest(NestKind.POINT, tile.shape, value, self._line, tile=tile))

    def _temp(self, kind: str, shape: tuple[IntExpr, ...], dtype: DType) -> Tile:
        name = base = f"{self._base}_{kind}"
        count = 1
        while name in self._taken:
            count += 1
            name = f"{base}{count}"
        self._taken.add(name)
        tile = Tile(name, f"temp:{name}", shape, dtype)
        self._block.declares.append(tile)
        return tile

    # -- values --------------------------------------------------------------------------------------------------------

    def _assign(self, tile: Tile, value: Value, fresh: bool) -> None:
        reads = tiles_read(value)
        direct = (
            isinstance(value, Apply)
            and value.op in OPS
            and OPS[value.op].kind in (OpKind.REDUCE, OpKind.SCAN, OpKind.MATRIX)
            and value.type.dtype == tile.dtype
            and tile.uid not in reads
            and self.ints.same_shape(value.type.shape, tile.shape)
        )
        if direct and isinstance(value, Apply):
            self._declare(tile, fresh)
            self._standalone(value, tile)
            return
        prepared = self._prepare(value, tile.shape)
        self._declare(tile, fresh)
        if tile.uid in reads and moves_index(prepared, tile.uid):
            copy = self._temp("new", tile.shape, tile.dtype)
            self._point(copy, prepared)
            prepared = Read(Type(tile.shape, tile.dtype), copy)
        self._point(tile, prepared)

    def _prepare(self, value: Value, domain: tuple[IntExpr, ...]) -> Value:
        """Return ``value`` after everything in it that cannot be computed element by element is in tiles."""
        if not isinstance(value, Apply):
            return value
        kind = OPS[value.op].kind
        if value in self._repeated:
            return self._computed_once(value)
        if kind in (OpKind.REDUCE, OpKind.SCAN, OpKind.MATRIX):
            tile = self._temp(value.op.removeprefix("reduce_"), value.type.shape, value.type.dtype)
            self._standalone(value, tile)
            return Read(value.type, tile)
        inner = domain if kind in (OpKind.POINTWISE, OpKind.COMPARE, OpKind.PICK) else value.type.shape
        if inner is domain and self._repeats(value, domain):
            tile = self._temp("part", value.type.shape, value.type.dtype)
            args = tuple(self._prepare(a, value.type.shape) for a in value.args)
            self._point(tile, replace(value, args=args))
            return Read(value.type, tile)
        narrower = value.op == "div" and value.type.dtype is DType.F32 and self._is_narrower(value.args[1], domain)
        if narrower and not self._steps:
            return self._times_reciprocal(value, domain)
        return replace(value, args=tuple(self._prepare(a, inner) for a in value.args))

    def _computed_once(self, value: Apply) -> Read:
        """Return the tile that holds a value that the statement uses more than once."""
        read = self._computed.get(value)
        if read is None:
            tile = self._temp(value.op.removeprefix("reduce_"), value.type.shape, value.type.dtype)
            if OPS[value.op].kind in (OpKind.REDUCE, OpKind.SCAN, OpKind.MATRIX):
                self._standalone(value, tile)
            else:
                args = tuple(self._prepare(a, value.type.shape) for a in value.args)
                self._point(tile, replace(value, args=args))
            read = self._computed[value] = Read(value.type, tile)
        return read

    def _is_narrower(self, value: Value, domain: tuple[IntExpr, ...]) -> bool:
        """Does ``value`` broadcast along the last dimension of ``domain``?"""
        if not domain or self.ints.is_one(domain[-1]) or not any(isinstance(v, Read) for v in subvalues(value)):
            return False
        shape = value.type.shape
        return not shape or self.ints.is_one(shape[-1])

    def _times_reciprocal(self, value: Apply, domain: tuple[IntExpr, ...]) -> Value:
        """Divide once for each row instead of once for each element; the result differs by one rounding."""
        bottom = value.args[1]
        one = Const(Type((), bottom.type.dtype), 1)
        tile = self._temp("inverse", bottom.type.shape, bottom.type.dtype)
        self._point(tile, Apply(bottom.type, "div", (one, self._prepare(bottom, bottom.type.shape))))
        return Apply(value.type, "mul", (self._prepare(value.args[0], domain), Read(bottom.type, tile)), ())

    def _repeats(self, value: Apply, domain: tuple[IntExpr, ...]) -> bool:
        """Would computing ``value`` inside a loop over ``domain`` repeat real work?"""
        rank = sum(not self.ints.is_one(e) for e in value.type.shape)
        if rank >= sum(not self.ints.is_one(e) for e in domain):
            return False
        work = [v for v in subvalues(value) if isinstance(v, Apply) and OPS[v.op].flops > 0]
        varies = any(isinstance(v, Read) for v in subvalues(value))
        return varies and sum(OPS[v.op].flops for v in work) > 1

    def _tile_of(self, value: Value, kind: str) -> Read:
        """Return a tile that holds ``value``; ``value`` itself may be one."""
        if isinstance(value, Read):
            return value
        prepared = self._prepare(value, value.type.shape)
        if isinstance(prepared, Read):
            return prepared
        tile = self._temp(kind, value.type.shape, value.type.dtype)
        self._point(tile, prepared)
        return Read(value.type, tile)

    # -- operations with a separate step -------------------------------------------------------------------------------

    def _standalone(self, value: Apply, tile: Tile) -> None:
        kind = OPS[value.op].kind
        if kind is OpKind.REDUCE:
            arg = value.args[0]
            inner = self._prepare(arg, arg.type.shape)
            self._block.steps.append(
                Nest(
                    NestKind.REDUCE,
                    arg.type.shape,
                    inner,
                    self._line,
                    tile=tile,
                    op=value.op,
                    axes=_axes(value),
                    keepdims=bool(value.attr("keepdims", False)),
                )
            )
        elif kind is OpKind.SCAN:
            self._scan(value, tile)
        else:
            self._point(tile, Const(Type((), tile.dtype), 0))
            self._gemm(tile, value.args[0], value.args[1])

    def _scan(self, value: Apply, tile: Tile) -> None:
        combine = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}.get(value.op)
        combine = combine or str(value.attr("combine"))
        axis = int(value.attr("axis", 0))  # type: ignore[call-overload]
        args = []
        for arg in value.args:
            if arg.type.dtype != tile.dtype:
                arg = Apply(Type(arg.type.shape, tile.dtype), "cast", (arg,))
            args.append(self._tile_of(arg, "in").tile)
        reverse = bool(value.attr("reverse", False))
        self._block.steps.append(ScanCall(tile, tuple(args), combine, axis % len(tile.shape), self._line, reverse))

    def _gemm(self, acc: Tile, a: Value, b: Value) -> None:
        tiles = []
        for value, kind in ((a, "a"), (b, "b")):
            if value.type.dtype.compute != acc.dtype:
                value = Apply(Type(value.type.shape, acc.dtype), "cast", (value,))
            tiles.append(self._tile_of(value, kind).tile)
        self._block.steps.append(GemmCall(acc, tiles[0], tiles[1], self._line))

    def _several(self, stmt: MultiAssign) -> None:
        if stmt.op in ("sort", "topk"):
            self._sort(stmt)
        elif stmt.op == "welford":
            self._moments(stmt)
        else:
            raise LoweringError(
                f"{stmt.op} with several results has no C++ lowering.", "Write it with other operations.", self._line
            )

    def _declare_all(self, stmt: MultiAssign) -> None:
        for tile, fresh in zip(stmt.tiles, stmt.declares, strict=True):
            self._declare(tile, fresh)

    def _sort(self, stmt: MultiAssign) -> None:
        options = dict(stmt.attrs)
        source = self._tile_of(stmt.args[0], "row").tile
        self._declare_all(stmt)
        values, order = stmt.tiles
        if source.uid in (values.uid, order.uid):
            source = self._temp("row", source.shape, source.dtype)
            self._point(source, stmt.args[0])
        axis = int(options["axis"])  # type: ignore[call-overload]
        self._block.steps.append(SortCall(values, order, source, axis, bool(options["descending"]), self._line))

    def _moments(self, stmt: MultiAssign) -> None:
        """Compute the mean, then the mean square of the differences from it."""
        mean, variance = stmt.tiles[:2]
        dtype = variance.dtype
        axes, shape = _axes(stmt), stmt.args[0].type.shape
        source = self._tile_of(stmt.args[0], "x")
        kept = Type(tuple(num(1) if d in axes else e for d, e in enumerate(shape)), dtype)
        centre = self._temp("centre", kept.shape, dtype)
        self._standalone(Apply(kept, "reduce_mean", (source,), (("axes", axes), ("keepdims", True))), centre)
        read, full = Read(kept, centre), Type(shape, dtype)
        cast = source if source.type.dtype == dtype else Apply(full, "cast", (source,))
        difference = Apply(full, "sub", (cast, read))
        square = Apply(full, "mul", (difference, difference))
        keepdims = len(mean.shape) == len(shape)
        self._declare_all(stmt)
        self._point(mean, read if keepdims else Apply(Type(mean.shape, dtype), "reshape", (read,)))
        attrs = (("axes", axes), ("keepdims", keepdims))
        self._standalone(Apply(Type(variance.shape, dtype), "reduce_mean", (square,), attrs), variance)


_RULES: dict[type, Callable[[Flattener, Any], None]] = {
    Alloc: Flattener.alloc,
    Load: Flattener.load,
    Store: Flattener.store,
    AtomicAdd: Flattener.store,
    Scatter: Flattener.scatter,
    Assign: Flattener.assign,
    Gemm: Flattener.gemm,
    MultiAssign: Flattener.several,
    Loop: Flattener.loop,
    If: Flattener.branch,
}


def _repeated(stmt: Statement) -> frozenset[Value]:
    """Return the values that occur more than once in the statement and are not trivial to compute."""
    applies = [v for root in stmt.values for v in subvalues(root) if isinstance(v, Apply) and OPS[v.op].flops > 0]
    if len(applies) < 2:
        return frozenset()
    counts = Counter(applies)
    worth = (OpKind.POINTWISE, OpKind.COMPARE, OpKind.REDUCE, OpKind.SCAN, OpKind.MATRIX)
    return frozenset(
        v
        for v, n in counts.items()
        if n > 1 and OPS[v.op].kind in worth and (OPS[v.op].flops > 2 or OPS[v.op].kind is not OpKind.POINTWISE)
    )


def _axes(of: Apply | MultiAssign) -> tuple[int, ...]:
    attrs = dict(of.attrs)
    rank = len(of.args[0].type.shape)
    axes = attrs.get("axes", attrs.get("axis"))
    if axes is None:
        return tuple(range(rank))
    chosen = (axes,) if isinstance(axes, int) else tuple(axes)  # type: ignore[arg-type]
    return tuple(sorted(a % rank for a in chosen))


def moves_index(value: Value | Fetch, uid: str) -> bool:
    """Is the tile ``uid`` read under an operation that moves elements, or broadcast?"""
    if not isinstance(value, Apply):
        return False
    moving = OPS[value.op].kind is OpKind.SHAPE and value.op not in ("full", "arange")
    return any((moving and uid in tiles_read(a)) or moves_index(a, uid) for a in value.args)
