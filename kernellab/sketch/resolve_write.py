"""Writes to tiles: which name a value goes to, and whether that declares a tile or updates one."""

from __future__ import annotations

from kernellab.sketch import tree, walk
from kernellab.sketch.hints import memory_hints
from kernellab.sketch.ints import IntExpr
from kernellab.sketch.operands import (
    Operand,
    cast,
    default_dtype,
    fits,
    is_condition,
    same_shape,
    shape_of,
    show,
    strong_dtype,
    typed,
)
from kernellab.sketch.program import (
    Alloc,
    Assign,
    DType,
    Gemm,
    Statement,
    Tile,
)
from kernellab.sketch.resolve_call import PRECISIONS
from kernellab.sketch.resolve_place import PlaceReader
from kernellab.sketch.scope import LetEntry, PoisonEntry, Refused, TileEntry


class WriteReader(PlaceReader):
    """Adds writes to tiles to the reader of places."""

    def write(
        self, target: tree.Name, operand: Operand, stmt: tree.Stmt, rest: tuple[tree.Stmt, ...]
    ) -> list[Statement]:
        """``target = operand``: updates the tile of that name, or declares one; an index that ``rest`` never
        writes again stays an index, and needs no statement.
        """
        scope, name = self.scope, target.id
        entry = scope.find(name)
        if isinstance(entry, PoisonEntry):
            raise Refused
        if isinstance(entry, TileEntry):
            tile = self.writable(entry, target)
            if not fits(shape_of(operand), tile.shape):
                raise scope.refuse(
                    "new-name", target.span, name=name, old=show(tile.shape), new=show(shape_of(operand))
                )
            return [Assign(tile, typed(operand, tile.dtype), False, stmt.span)]
        self.free(target)
        if isinstance(operand, IntExpr) and not is_condition(operand) and not walk.is_written(name, rest):
            scope.bind(name, LetEntry(operand))
            return []
        dtype = strong_dtype(operand) or scope.dtypes.get(id(stmt)) or default_dtype(operand)
        tile = self.declare(name, shape_of(operand), dtype)
        return [Assign(tile, typed(operand, dtype), True, stmt.span)]

    def free(self, target: tree.Name) -> None:
        """Refuses a name that already means something other than a tile."""
        what = self.scope.declared_as(target.id)
        if what is not None:
            raise self.scope.refuse("declared-twice", target.span, name=target.id, what=what)

    def declare(self, name: str, shape: tuple[IntExpr, ...], dtype: DType) -> Tile:
        """A new tile that this statement writes."""
        return self._bind(name, shape, dtype, (), True)

    def _bind(self, name: str, shape: tuple[IntExpr, ...], dtype: DType, hints: tuple[str, ...], written: bool) -> Tile:
        tile = Tile(name, self.scope.uid(name), shape, dtype, hints)
        self.scope.bind(name, TileEntry(tile, len(self.scope.parallel), written))
        return tile

    def writable(self, entry: TileEntry, target: tree.Name) -> Tile:
        """The tile of ``entry``, marked written; a tile from outside the parallel loop is refused."""
        scope = self.scope
        if entry.parallel < len(scope.parallel):
            var = scope.parallel[entry.parallel]
            scope.note("carried", target.span, var=var, tile=entry.tile.name)
        entry.written = True
        return entry.tile

    def alloc(self, stmt: tree.Assign, call: tree.Call) -> Statement:
        """``name = alloc([..], dtype, llm_hint=[..])``."""
        target = stmt.targets[0]
        bound = self.bind(call, ("shape", "dtype?", "llm_hint?"))
        if call.misordered:
            self.scope.note("keyword-order", call.span, name="alloc")
        entry = self.scope.find(target.id)
        if isinstance(entry, TileEntry):
            raise self.scope.refuse("alloc-visible", target.span, name=target.id)
        self.free(target)
        shape = self.shape(bound["shape"])
        dtype = self.dtype(bound["dtype"]) if "dtype" in bound else self.scope.dtypes.get(id(stmt), DType.F32)
        hints = memory_hints(bound.get("llm_hint"), self)
        zero = "init_zero" in hints
        return Alloc(self._bind(target.id, shape, dtype, hints, zero), zero, stmt.span)

    def gemm(self, call: tree.Call) -> Statement:
        """``gemm(a, b, acc)``, which adds to a tile of the accumulator's dtype."""
        keywords = tuple(tree.Keyword("acc", k.value, k.span) if k.name == "dst" else k for k in call.keywords)
        inner = tree.Call(call.func, call.args, keywords, span=call.span)
        bound = self.bind(inner, ("a", "b", "acc", "precision?"))
        target = bound["acc"]
        if not isinstance(target, tree.Name):
            what, remedy = (
                "gemm adds to a tile.",
                'Write gemm(a, b, acc) with acc = alloc([...], llm_hint=["init_zero"]).',
            )
            raise self.scope.refuse("arguments", target.span, what=what, remedy=remedy)
        entry = self.scope.find(target.id)
        if isinstance(entry, PoisonEntry):
            raise Refused
        if not isinstance(entry, TileEntry):
            raise self.scope.unknown(target.id, target.span)
        if not entry.written:
            self.scope.note("undefined-read", target.span, name=target.id)
        a, b, result = self.matrix(bound["a"], bound["b"], "gemm", call.span)
        tile = self.writable(entry, target)
        if not same_shape(tile.shape, result.shape):
            raise self.scope.refuse(
                "shape-mismatch", call.span,
                what=f"gemm gives shape {show(result.shape)} and '{tile.name}' has {show(tile.shape)}.",
                remedy=f"Allocate {tile.name} with shape {show(result.shape)}.",
            )  # fmt: skip
        if tile.dtype is DType.F64 and result.dtype is DType.F32:
            a, b = cast(a, DType.F64), cast(b, DType.F64)
        elif tile.dtype is not result.dtype:
            what = f"gemm adds in {result.dtype.value} and '{tile.name}' is {tile.dtype.value}."
            remedy = f"Allocate {tile.name} as {result.dtype.value}; round when storing it."
            raise self.scope.refuse("dtype", call.span, what=what, remedy=remedy)
        precision = self.word(bound.get("precision"), PRECISIONS, "precision")
        return Gemm(tile, a, b, precision, call.span)
