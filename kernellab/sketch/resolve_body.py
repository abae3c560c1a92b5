"""Statements of the tree to statements of the program: scopes, writes, moves, loops and the shape of the grid."""

from __future__ import annotations

from kernellab.sketch import affine, tree, walk
from kernellab.sketch.hints import loop_hints, memory_hints
from kernellab.sketch.ints import IntExpr, int_op, num
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
    AtomicAdd,
    DType,
    Gemm,
    If,
    Load,
    Loop,
    LoopHints,
    MultiAssign,
    Point,
    Range,
    Read,
    Region,
    Scatter,
    Statement,
    Store,
    Tensor,
    TensorRole,
    Tile,
    Type,
    statements,
)
from kernellab.sketch.resolve_call import PRECISIONS, CallReader
from kernellab.sketch.resolve_gather import gathered, has_tile_index, scattered
from kernellab.sketch.resolve_sort import SORTS, sorted_pair
from kernellab.sketch.scope import LetEntry, PoisonEntry, Refused, TileEntry


class BodyReader(CallReader):
    """Reads the statements of one sketch. A wrong statement is noted and skipped; the rest is still read."""

    #: whether a parallel loop here would be part of the grid
    _in_grid = True

    def body(self, body: tuple[tree.Stmt, ...]) -> tuple[Statement, ...]:
        result: list[Statement] = []
        for i, stmt in enumerate(body):
            try:
                found = self._statement(stmt, body[i + 1 :])
            except Refused:
                for name in walk.written(stmt):
                    self.scope.poison(name)
                self.scope.pending.clear()
                continue
            if self.scope.pending:
                result.extend(self.scope.pending)
                self.scope.pending.clear()
            result.extend(found)
        self._grid(result)
        return tuple(result)

    def _statement(self, stmt: tree.Stmt, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        if isinstance(stmt, tree.Assign):
            return self._assign(stmt, rest)
        if isinstance(stmt, tree.Move):
            if stmt.op == "gather":
                return self._gather(stmt, rest)
            return [self._move(stmt)]
        if isinstance(stmt, tree.CallStmt):
            return self._call_statement(stmt, rest)
        if isinstance(stmt, tree.For):
            return [self._for(stmt)]
        return [self._if(stmt)]

    # -- writes to tiles

    def _assign(self, stmt: tree.Assign, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        value = stmt.value
        if isinstance(value, tree.Call):
            if value.func == "alloc" and len(stmt.targets) == 1:
                return [self._alloc(stmt, value)]
            if value.func == "load" and len(stmt.targets) == 1 and len(value.args) == 1:
                move = tree.Move("load", value.args[0], stmt.targets[0], value.keywords, span=stmt.span)
                return [self._move(move)]
            if value.func == "welford":
                return self._welford(stmt.targets, value, stmt)
            if value.func in SORTS:
                return sorted_pair(self, stmt.targets, value, stmt)
            if value.func == "gemm":
                raise self.gemm_value(value, stmt.targets[0].id)
        if len(stmt.targets) != 1:
            what = f"One value is assigned to {len(stmt.targets)} names."
            remedy = "Only welford, sort and topk give two results: mean, var = welford(x, axis=0)."
            raise self.scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
        return self._write(stmt.targets[0], self.known_operand(value), stmt, rest)

    def _write(
        self, target: tree.Name, operand: Operand, stmt: tree.Stmt, rest: tuple[tree.Stmt, ...]
    ) -> list[Statement]:
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
        tile = self._declare(name, shape_of(operand), dtype, (), True)
        return [Assign(tile, typed(operand, dtype), True, stmt.span)]

    def free(self, target: tree.Name) -> None:
        what = self.scope.declared_as(target.id)
        if what is not None:
            raise self.scope.refuse("declared-twice", target.span, name=target.id, what=what)

    def declare(self, name: str, shape: tuple[IntExpr, ...], dtype: DType) -> Tile:
        """A new tile that this statement writes."""
        return self._declare(name, shape, dtype, (), True)

    def _declare(
        self, name: str, shape: tuple[IntExpr, ...], dtype: DType, hints: tuple[str, ...], written: bool
    ) -> Tile:
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

    def _alloc(self, stmt: tree.Assign, call: tree.Call) -> Statement:
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
        return Alloc(self._declare(target.id, shape, dtype, hints, zero), zero, stmt.span)

    def _welford(self, targets: tuple[tree.Name, ...], call: tree.Call, stmt: tree.Stmt) -> list[Statement]:
        if len(targets) != 2:
            what = "welford gives two results."
            raise self.scope.refuse("arguments", stmt.span, what=what, remedy="Write mean, var = welford(x, axis=0).")
        value, axes, keepdims, shape = self.reduction(call)
        dtype = value.type.dtype.compute if value.type.dtype.is_float else DType.F32
        tiles, declares, after = [], [], []
        for target in targets:
            entry = self.scope.find(target.id)
            if isinstance(entry, PoisonEntry):
                raise Refused
            if not isinstance(entry, TileEntry):
                self.free(target)
                tiles.append(self._declare(target.id, shape, dtype, (), True))
                declares.append(True)
                continue
            tile = self.writable(entry, target)
            if not fits(shape, tile.shape):
                raise self.scope.refuse("new-name", target.span, name=target.id, old=show(tile.shape), new=show(shape))
            if tile.dtype is dtype and same_shape(shape, tile.shape):
                tiles.append(tile)
                declares.append(False)
                continue
            inner = Tile(f"{target.id}_welford", self.scope.uid(f"{target.id}_welford"), shape, dtype)
            tiles.append(inner)
            declares.append(True)
            after.append(Assign(tile, cast(Read(Type(shape, dtype), inner), tile.dtype), False, stmt.span))
        attrs = (("axes", axes), ("keepdims", keepdims))
        multi = MultiAssign(tuple(tiles), "welford", (cast(value, dtype),), attrs, tuple(declares), stmt.span)
        return [multi, *after]

    def _call_statement(self, stmt: tree.CallStmt, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        call = stmt.call
        if call.func in ("load", "store", "atomic_add", "gather", "scatter"):
            what, remedy = f"'{call.func}' has no '->'.", f"Write {call.func}(source -> destination)."
            raise self.scope.refuse("arguments", call.span, what=what, remedy=remedy)
        if call.func == "alloc":
            what, remedy = "This alloc has no name.", "Write name = alloc([...])."
            raise self.scope.refuse("arguments", call.span, what=what, remedy=remedy)
        if call.func == "gemm":
            return [self._gemm(call)]
        keywords = tuple(k for k in call.keywords if k.name != "dst")
        dests: tuple[tree.Expr | None, ...]
        args: tuple[tree.Expr, ...]
        if len(keywords) != len(call.keywords):
            dests, args = (walk.destination(call),), call.args
        else:
            count = 2 if call.func == "welford" or call.func in SORTS else 1
            dests, args = call.args[-count:], call.args[:-count]
        if call.misordered:
            self.scope.note("keyword-order", call.span, name=call.func)
        names = tuple(d for d in dests if isinstance(d, tree.Name))
        if not names or len(names) != len(dests):
            if call.func not in self.scope.names.opaques:
                self._known_operation(call)
            what = f"'{call.func}' has no destination."
            remedy = (
                f"Write {call.func}(..., dst) or dst = {call.func}(...) with dst a tile; tensors are written by store."
            )
            raise self.scope.refuse("arguments", call.span, what=what, remedy=remedy)
        inner = tree.Call(call.func, args, keywords, span=call.span)
        if call.func == "welford":
            return self._welford(names, inner, stmt)
        if call.func in SORTS:
            return sorted_pair(self, names, inner, stmt)
        if names[0].id in self.scope.names.tensors:
            what = f"'{call.func}' writes tensor '{names[0].id}'."
            remedy = f"Write to a tile, then store(tile -> {names[0].id}[...])."
            raise self.scope.refuse("arguments", names[0].span, what=what, remedy=remedy)
        return self._write(names[0], self.call(inner), stmt, rest)

    def _known_operation(self, call: tree.Call) -> None:
        from kernellab.sketch.ops import OPS

        if call.func not in OPS:
            raise self.scope.unknown_operation(call.func, call.span)

    def _gemm(self, call: tree.Call) -> Statement:
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

    # -- moves

    def _move(self, stmt: tree.Move) -> Statement:
        place = stmt.source if stmt.op == "load" else stmt.dest
        if stmt.op in ("load", "store") and has_tile_index(self, place):
            what = f"An index here is a tile, and {stmt.op} takes slices and index expressions."
            other = "gather(X[ids] -> tile)" if stmt.op == "load" else "scatter(tile -> Y[ids], unique=true)"
            raise self.scope.refuse("arguments", place.span, what=what, remedy=f"Write {other}.")
        if stmt.op == "load":
            return self._load(stmt)
        if stmt.op == "atomic_add" and has_tile_index(self, place):
            return scattered(self, stmt)
        if stmt.op in ("store", "atomic_add"):
            return self._store(stmt)
        if stmt.op == "scatter":
            return scattered(self, stmt)
        remedy = "Only load, store, atomic_add, gather and scatter move data with '->'."
        raise self.scope.refuse("unknown-operation", stmt.span, name=stmt.op, remedy=remedy)

    def _gather(self, stmt: tree.Move, rest: tuple[tree.Stmt, ...]) -> list[Statement]:
        if not isinstance(stmt.dest, tree.Name):
            what, remedy = "gather writes a whole tile.", "Write gather(X[ids] -> tile)."
            raise self.scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
        return self._write(stmt.dest, gathered(self, stmt), stmt, rest)

    def _load(self, stmt: tree.Move) -> Statement:
        scope, target = self.scope, stmt.dest
        if not isinstance(target, tree.Name):
            what, remedy = "load writes a whole tile.", "Write load(X[...] -> tile)."
            raise scope.refuse("arguments", stmt.span, what=what, remedy=remedy)
        if target.id in scope.names.tensors:
            what = f"load writes a tile, and '{target.id}' is a tensor."
            raise scope.refuse("arguments", target.span, what=what, remedy="Write store(tile -> Y[...]).")
        pad = 0.0
        for keyword in stmt.keywords:
            if keyword.name != "pad":
                what = f"load has no parameter '{keyword.name}'."
                raise scope.refuse("arguments", keyword.span, what=what, remedy="Write load(X[...] -> tile, pad=0).")
            if not isinstance(keyword.value, tree.Num):
                what = "pad is a number."
                raise scope.refuse("arguments", keyword.span, what=what, remedy="Write 0, another number, inf or -inf.")
            pad = float(keyword.value.value)
        entry = scope.find(target.id)
        if isinstance(entry, PoisonEntry):
            raise Refused
        region = self._region(stmt.source, "read")
        if isinstance(entry, TileEntry):
            tile = self.writable(entry, target)
            region = _widened(region, tile.shape)
            if not same_shape(region.shape, tile.shape):
                raise scope.refuse(
                    "shape-mismatch", stmt.span,
                    what=f"The slice has shape {show(region.shape)} and tile '{tile.name}' has {show(tile.shape)}.",
                    remedy="Give both the same shape; a scalar index drops its dimension.",
                )  # fmt: skip
            return Load(tile, region, pad, False, stmt.span)
        self.free(target)
        tile = self._declare(target.id, region.shape, region.tensor.dtype, (), True)
        return Load(tile, region, pad, True, stmt.span)

    def _store(self, stmt: tree.Move) -> Statement:
        for keyword in stmt.keywords:
            what = f"{stmt.op} has no parameter '{keyword.name}'."
            remedy = f"Write {stmt.op}(tile -> Y[...]): writing past the edge writes nothing."
            raise self.scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
        operand = self.known_operand(stmt.source)
        region = self._region(stmt.dest, "added to" if stmt.op == "atomic_add" else "written")
        region = _widened(region, shape_of(operand))
        if not fits(shape_of(operand), region.shape):
            raise self.scope.refuse(
                "shape-mismatch", stmt.span,
                what=f"A value of shape {show(shape_of(operand))} is written to a slice of shape {show(region.shape)}.",
                remedy="Give both the same shape; a scalar index drops its dimension.",
            )  # fmt: skip
        value = typed(operand, region.tensor.dtype)
        if stmt.op == "store":
            return Store(region, value, stmt.span)
        return AtomicAdd(region, value, stmt.span)

    def _region(self, expr: tree.Expr, what: str) -> Region:
        scope, tensor = self.scope, self.tensor_of(expr, what)
        items: tuple[tree.Expr | tree.Slice | tree.NewAxis, ...]
        items = expr.items if isinstance(expr, tree.Subscript) else (tree.Slice(),) * len(tensor.shape)
        if len(items) != len(tensor.shape):
            raise scope.refuse("rank", expr.span, name=tensor.name, rank=len(tensor.shape), given=len(items))
        index = tuple(self.index_item(i, d, expr.span) for i, d in zip(items, tensor.shape, strict=True))
        return Region(tensor, index)

    def tensor_of(self, expr: tree.Expr, what: str) -> Tensor:
        """The tensor that ``expr`` is a part of, noted as ``what`` (read, written, added to)."""
        scope = self.scope
        named = walk.tensor_of(expr)
        if named is None:
            raise scope.refuse("arguments", expr.span, what="This is not a part of a tensor.", remedy="Write X[...].")
        tensor = scope.names.tensors.get(named.id)
        if tensor is None:
            if isinstance(scope.find(named.id), PoisonEntry):
                raise Refused
            if isinstance(scope.find(named.id), TileEntry):
                message = f"'{named.id}' is a tile, not a tensor."
                raise scope.refuse("arguments", expr.span, what=message, remedy="Copy a tile with y = x.")
            raise scope.refuse(
                "unknown-name", named.span, name=named.id,
                remedy=_nearest_tensor(named.id, list(scope.names.tensors)),
            )  # fmt: skip
        self._role(tensor, what, named.span)
        return tensor

    def _role(self, tensor: Tensor, what: str, span: tree.Span) -> None:
        if what == "read":
            if tensor.role is TensorRole.OUT:
                remedy = "Declare it inout, or temp when a later sketch reads it."
                self.scope.note("role", span, name=tensor.name, role="out", what=what, remedy=remedy)
            self.scope.reads.add(tensor.name)
        else:
            if tensor.role is TensorRole.IN:
                remedy = "Declare it out, inout, or temp."
                self.scope.note("role", span, name=tensor.name, role="in", what=what, remedy=remedy)
            self.scope.writes.add(tensor.name)

    def index_item(self, item: tree.Expr | tree.Slice | tree.NewAxis, dim: IntExpr, span: tree.Span) -> Point | Range:
        if isinstance(item, tree.NewAxis):
            message = "A tensor's slice cannot add a dimension."
            raise self.scope.refuse("arguments", item.span, what=message, remedy="Load it, then write x[:, None].")
        if not isinstance(item, tree.Slice):
            return Point(self.index(item))
        start = self.index(item.start) if item.start is not None else num(0)
        stop = self.index(item.stop) if item.stop is not None else dim
        step = self.index(item.step) if item.step is not None else num(1)
        known = affine.constant(step)
        if known is not None and known < 1:
            message = f"The step {known} of a slice is not positive."
            raise self.scope.refuse("arguments", item.span, what=message, remedy="Write a step of 1 or more.")
        extent = affine.difference(stop, start)
        if not step.is_one:
            extent = affine.simplify(int_op("cdiv", extent, step))
        place = item.span if item.span.line else span
        self.fixed(extent, place)
        size = affine.constant(extent)
        if size is not None and size < 0:
            message = f"The slice has extent {size}."
            raise self.scope.refuse(
                "out-of-range", place, what=message, remedy="Write start:stop with stop after start."
            )
        return Range(start, extent, step)

    # -- control

    def _for(self, stmt: tree.For) -> Statement:
        scope = self.scope
        values = [self.index(a) for a in stmt.range]
        start, stop, step = num(0), values[0], num(1)
        if len(values) > 1:
            start, stop = values[0], values[1]
        if len(values) > 2:
            step = values[2]
        known = affine.constant(step)
        if known is not None and known < 1:
            raise scope.refuse(
                "arguments", stmt.range[2].span, what=f"The step {known} of a loop is not positive.",
                remedy="Write a step of 1 or more; index with N - 1 - i to run backwards.",
            )  # fmt: skip
        taken = scope.declared_as(stmt.var) or ("a tile" if isinstance(scope.find(stmt.var), TileEntry) else None)
        if taken is not None:
            scope.note("declared-twice", stmt.span, name=stmt.var, what=taken)
        hints = loop_hints(stmt.hints, self)
        if hints.parallel and not self._in_grid:
            outer = scope.loops[-1] if scope.loops else "if"
            scope.note("nested-parallel", stmt.hints[0].span, var=stmt.var, outer=outer)
            hints = LoopHints(**{**hints.__dict__, "parallel": False})
        was = self._in_grid
        self._in_grid = was and hints.parallel
        with scope.loop(stmt.var, hints.parallel):
            body = self.body(stmt.body)
        self._in_grid = was
        return Loop(stmt.var, start, stop, step, body, hints, stmt.span)

    def _if(self, stmt: tree.If) -> Statement:
        cond = self.condition(stmt.cond)
        was, self._in_grid = self._in_grid, False
        with self.scope.block():
            then = self.body(stmt.then)
        with self.scope.block():
            orelse = self.body(stmt.orelse)
        self._in_grid = was
        return If(cond, then, orelse, stmt.span)

    def _grid(self, body: list[Statement]) -> None:
        """Parallel loops form one grid: the inner one is last, and nothing before it writes memory."""
        if not self._in_grid:
            return
        at = next((i for i, s in enumerate(body) if isinstance(s, Loop) and s.hints.parallel), None)
        if at is None:
            return
        loop = body[at]
        assert isinstance(loop, Loop)
        top = not self.scope.loops
        for stmt in body[:at]:
            if any(isinstance(s, (Store, AtomicAdd, Scatter)) for s in statements((stmt,))):
                self.scope.note("side-effect", stmt.span, var=loop.var)
            elif top and isinstance(stmt, Loop):
                self.scope.note("second-nest", loop.span)
        if at + 1 < len(body):
            after = body[at + 1]
            if top and any(isinstance(s, Loop) for s in body[at + 1 :]):
                nest = next(s for s in body[at + 1 :] if isinstance(s, Loop))
                self.scope.note("second-nest", nest.span)
            else:
                remedy = "Move it before the loop or into it" + (", or start a second sketch." if top else ".")
                self.scope.note("parallel-tail", after.span, var=loop.var, remedy=remedy)


def _widened(region: Region, shape: tuple[IntExpr, ...]) -> Region:
    """``Y[b]`` for a tile of shape [1]: the last scalar indices become slices of one element."""
    if region.shape or not shape or not all(d.is_one for d in shape):
        return region
    count = min(len(shape), len(region.index))
    kept = region.index[: len(region.index) - count]
    points = [i for i in region.index[len(kept) :] if isinstance(i, Point)]
    return Region(region.tensor, (*kept, *(Range(p.at, num(1), num(1)) for p in points)))


def _nearest_tensor(name: str, known: list[str]) -> str:
    from kernellab.sketch.messages import nearest

    return nearest(name, known) or "Declare it under tensors:."
