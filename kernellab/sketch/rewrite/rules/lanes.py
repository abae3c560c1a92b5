"""A loop's iterations as lanes of wider tiles: each tile that differs between them gets a first axis.

With ``LANES`` iterations of ``for i in range(n)`` at once, ``load(X[i, 0:K] -> x)`` becomes ``load(X[i:i+LANES, 0:K] ->
x)``, ``reduce_sum(x, axis=0)`` becomes ``reduce_sum(x, axis=1)``, and ``i`` as a value becomes the vector ``i_lanes``,
which is ``i + arange(LANES)``. A tile that is the same in all iterations stays as it is and broadcasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import SHAPED, Unknown, argument, axes_of, keeps, rank_of, ranks, region_rank
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

#: numbers of lanes; chosen, not measured
_LANES = (2, 4, 8, 16)
#: a position that no argument of a call has
_BY_NAME_ALONE = 9
#: operations of a row that take their axis from 0
_ALONG = frozenset((OpKind.REDUCE, OpKind.SCAN, OpKind.SORT))


def vectorise(setting: Setting) -> Iterator[Change]:
    """Compute several iterations of a parallel loop in steps of 1 at once: their values are one tile with a row each.

    Iterations of a parallel loop are independent, so lanes are too. A lane past the end of the
    loop reads padding and writes nothing where the loop runs over the whole dimension of what it stores; elsewhere
    lanes divide the extent.
    """
    for place in edit.places(setting.tree):
        loop = place.loop
        start, stop, step = edit.bounds(loop)
        if not edit.is_parallel(loop) or step != edit.number(1) or start != edit.number(0):
            continue
        sketch = setting.tree.sketches[place.launch]
        used = edit.used_names(setting.tree)
        word = edit.fresh("LANES", used)
        try:
            lifting = _Lifting(loop.var, tree.Name(word), ranks(sketch), used)
            body = lifting.loop_body(loop.body)
        except Unknown:
            continue
        options = _options(sketch, loop)
        if not options:
            continue
        changed = place.put(replace(loop, range=(start, stop, tree.Name(word)), body=body))
        declared = edit.declare_tunable(changed.sketches[place.launch], word, options)
        why = f"made {word} iterations of the loop over {loop.var} in {sketch.name} the lanes of one tile"
        yield edit.with_launch(changed, place.launch, declared), why


def lifted(sketch: tree.Sketch, loop: tree.For, lanes: tree.Name, values: Sequence[int]) -> edit.Body | None:
    """Return the body of a parallel loop in steps of 1 with ``lanes`` iterations at once, which may have any of
    ``values``; None if something in it has no meaning with one more axis, or a value does not divide the extent."""
    trips = edit.trips(sketch, loop)
    divides = bool(trips and values) and all(v > 0 and trips is not None and trips % v == 0 for v in values)
    if not divides and not _ends_there(sketch, loop):
        return None
    try:
        return _Lifting(loop.var, lanes, ranks(sketch), edit.used_names(sketch)).loop_body(loop.body)
    except Unknown:
        return None


def lifted_loop(var: str, lanes: tree.Name, tile_ranks: dict[str, int], used: set[str], body: edit.Body) -> edit.Body:
    """Return ``body`` with ``lanes`` values of ``var`` at once, from ``var`` on.

    Raises:
        Unknown: a statement of the body has no meaning with one more axis.
    """
    return _Lifting(var, lanes, tile_ranks, used).loop_body(body)


def _ends_there(sketch: tree.Sketch, loop: tree.For) -> bool:
    """Does the loop run over a whole dimension of each tensor that it stores to?"""
    tensors, stop = edit.tensors(sketch), edit.bounds(loop).stop
    for store in nodes(loop.body):
        if edit.is_store(store) and isinstance(store.dest, tree.Subscript):
            tensor = tensors.get(store.dest.name)
            extents = zip(store.dest.items, tensor.shape if tensor is not None else (), strict=False)
            if [extent for item, extent in extents if item == tree.Name(loop.var)] != [stop]:
                return False
    return True


def _options(sketch: tree.Sketch, loop: tree.For) -> list[int]:
    """Return the possible numbers of lanes: divisors of the extent, unless stored tensors end where the loop does."""
    trips = edit.trips(sketch, loop)
    if not _ends_there(sketch, loop):
        return [n for n in _LANES if trips and trips % n == 0]
    return [n for n in _LANES if trips is None or n <= trips]


class _Lifted(NamedTuple):
    """An expression of the new body, its rank without the lanes, and whether the lanes are its first axis."""

    expr: tree.Expr
    rank: int
    has_lanes: bool


@dataclass
class _Lifting:
    """Writes a loop's body with ``lanes`` iterations at once. ``lifted`` are the tiles that have the lanes as axis."""

    var: str
    lanes: tree.Name
    #: tile -> its rank without the lanes
    ranks: dict[str, int]
    used: set[str]
    lifted: set[str] = field(default_factory=set)
    #: the name of the vector with the loop variable of each lane; "" while nothing reads it
    lane_indices: str = ""
    #: statements to insert before the current one
    pending: list[tree.Stmt] = field(default_factory=list)

    def loop_body(self, body: edit.Body) -> edit.Body:
        """Return ``body`` with the lanes. Raises Unknown: something in it has no meaning with one more axis."""
        while True:
            size = len(self.lifted)
            self._mark_lifted(body)
            if len(self.lifted) == size:
                break
        statements = self._body(body)
        if not self.lane_indices:
            return statements
        arange = tree.Call("arange", (self.lanes,))
        indices = tree.Assign((tree.Name(self.lane_indices),), tree.Binary("+", tree.Name(self.var), arange))
        return (indices, *statements)

    # -- which tiles differ between iterations

    def _mark_lifted(self, body: edit.Body) -> None:
        """Add to ``lifted`` the tiles whose values differ between iterations."""
        for stmt in body:
            if isinstance(stmt, tree.For):
                if edit.mentions(stmt.range, self.var):
                    raise Unknown
                self._mark_lifted(stmt.body)
            elif isinstance(stmt, tree.Assign):
                if self._differs(stmt.value):
                    self.lifted |= {t.id for t in stmt.targets}
            elif isinstance(stmt, tree.Move):
                if isinstance(stmt.dest, tree.Name) and self._differs(stmt.source):
                    self.lifted.add(stmt.dest.id)
            elif isinstance(stmt, tree.If) or self._differs(stmt):
                raise Unknown

    def _differs(self, node: object) -> bool:
        """Does ``node`` have another value in each iteration?"""
        return any(edit.mentions(node, word) for word in (self.var, *self.lifted))

    # -- statements

    def _body(self, body: edit.Body) -> edit.Body:
        statements: list[tree.Stmt] = []
        for stmt in body:
            if isinstance(stmt, tree.For):
                statements.append(replace(stmt, body=self._body(stmt.body)))
                continue
            changed = self._statement(stmt)
            statements += [*self.pending, changed]
            self.pending = []
        return tuple(statements)

    def _statement(self, stmt: tree.Stmt) -> tree.Stmt:
        if isinstance(stmt, tree.Assign):
            return self._assign(stmt)
        if isinstance(stmt, tree.Move):
            return self._move(stmt)
        return stmt

    def _assign(self, stmt: tree.Assign) -> tree.Stmt:
        if stmt.targets[0].id not in self.lifted:
            return stmt
        value = stmt.value
        if self._differs(value):
            lifted = self.expr(value)
            if not lifted.has_lanes:
                raise Unknown
            return replace(stmt, value=lifted.expr)
        if not isinstance(value, tree.Call):
            raise Unknown
        # a tile that later gets values that differ: the same initial value in every lane
        if value.func in ("alloc", "full"):
            return replace(stmt, value=self._with_lanes(value))
        if value.func == "cast" and isinstance(value.args[0], tree.Num):
            args = (tree.List((self.lanes,)), value.args[0], *value.args[1:])
            return replace(stmt, value=tree.Call("full", args, value.keywords))
        raise Unknown

    def _move(self, stmt: tree.Move) -> tree.Stmt:
        if stmt.op == "load" and isinstance(stmt.dest, tree.Name):
            if self._differs(stmt.source) != (stmt.dest.id in self.lifted):
                raise Unknown
            return replace(stmt, source=self._region(stmt.source))
        if stmt.op == "gather" and isinstance(stmt.dest, tree.Name):
            return replace(stmt, source=self._indices(stmt.source)) if stmt.dest.id in self.lifted else stmt
        if stmt.op not in ("store", "atomic_add") or not edit.mentions(stmt.dest, self.var):
            raise Unknown
        rank = region_rank(stmt.dest)
        lifted = self.expr(stmt.source)
        value = self._spread(lifted, rank) if lifted.has_lanes and lifted.rank != rank else lifted.expr
        return replace(stmt, source=value, dest=self._region(stmt.dest))

    def _region(self, region: tree.Expr) -> tree.Expr:
        """Return a rectangle with the lanes as its first dimension."""
        if not isinstance(region, tree.Subscript) or any(edit.mentions(region, tile) for tile in self.ranks):
            raise Unknown
        items = list(region.items)
        moving = [n for n, item in enumerate(items) if edit.mentions(item, self.var)]
        if not moving:
            return region
        at = moving[0]
        item = items[at]
        if len(moving) > 1 or isinstance(item, (tree.Slice, tree.NewAxis)):
            raise Unknown
        if any(isinstance(i, tree.Slice) for i in items[:at]):
            raise Unknown
        stride = _coefficient(item, self.var)
        if stride is None or stride < 1:
            raise Unknown
        size = edit.binary("*", self.lanes, edit.number(stride))
        step = None if stride == 1 else edit.number(stride)
        items[at] = tree.Slice(item, edit.binary("+", item, size), step)
        return replace(region, items=tuple(items))

    def _indices(self, region: tree.Expr) -> tree.Expr:
        """Return single elements at computed indices, one for each lane."""
        if not isinstance(region, tree.Subscript):
            raise Unknown
        items: list[tree.Expr | tree.Slice | tree.NewAxis] = []
        for item in region.items:
            if isinstance(item, (tree.Slice, tree.NewAxis)):
                raise Unknown
            expr, rank, _ = self.expr(item)
            if rank:
                raise Unknown
            items.append(expr)
        return replace(region, items=tuple(items))

    # -- expressions

    def expr(self, expr: tree.Expr) -> _Lifted:
        """Return ``expr`` in the new body."""
        if not self._differs(expr):
            return _Lifted(expr, rank_of(expr, self.ranks), False)
        match expr:
            case tree.Name(id=self.var):
                self.lane_indices = self.lane_indices or edit.fresh(f"{self.var}_lanes", self.used)
                return _Lifted(tree.Name(self.lane_indices), 0, True)
            case tree.Name():
                return _Lifted(expr, self.ranks[expr.id], True)
            case tree.Subscript():
                return _Lifted(replace(expr, items=(tree.Slice(), *expr.items)), len(expr.items), True)
            case tree.Unary():
                inner = self.expr(expr.operand)
                return inner._replace(expr=replace(expr, operand=inner.expr))
            case tree.Binary():
                (left, right), rank = self._together((expr.left, expr.right))
                return _Lifted(replace(expr, left=left, right=right), rank, True)
            case tree.Call():
                return self._call(expr)
        raise Unknown

    def _together(self, operands: tuple[tree.Expr, ...]) -> tuple[tuple[tree.Expr, ...], int]:
        """Return the operands of one operation, aligned at the right after the lanes, and their rank."""
        lifted = [self.expr(e) for e in operands]
        rank = max(e.rank for e in lifted)
        spread = (self._spread(e, rank) if e.has_lanes and e.rank < rank else e.expr for e in lifted)
        return tuple(spread), rank

    def _spread(self, lifted: _Lifted, rank: int) -> tree.Expr:
        """Return an expression with new axes after the lanes. Only a name can be indexed, so any other value is
        assigned to a new tile first."""
        if lifted.rank > rank:
            raise Unknown
        tile = lifted.expr
        if not isinstance(tile, tree.Name):
            tile = tree.Name(edit.fresh("wide", self.used))
            self.pending.append(tree.Assign((tile,), lifted.expr))
        items: list[tree.Expr | tree.Slice | tree.NewAxis] = [tree.Slice()]
        items += [tree.NewAxis()] * (rank - lifted.rank) + [tree.Slice()] * lifted.rank
        return tree.Subscript(tile.id, tuple(items))

    def _call(self, call: tree.Call) -> _Lifted:
        if call.func in ("reshape", "broadcast") and self._differs(call.args[0]):
            shaped = self._with_lanes(replace(call, args=(self.expr(call.args[0]).expr, *call.args[1:])))
            return _Lifted(shaped, rank_of(call, self.ranks), True)
        if call.func in ("cast", "bitcast"):
            inner = self.expr(call.args[0])
            return inner._replace(expr=replace(call, args=(inner.expr, *call.args[1:])))
        op = OPS.get(call.func)
        if op is not None and op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            if call.keywords:
                raise Unknown
            args, rank = self._together(call.args)
            return _Lifted(replace(call, args=args), rank, True)
        if call.func == "transpose":
            return self._transposed(call)
        if (op is not None and op.kind in _ALONG) or call.func in ("welford", "sort", "topk"):
            return self._row_operation(call)
        raise Unknown

    def _row_operation(self, call: tree.Call) -> _Lifted:
        """Return a reduction, scan or sort, whose axes move by one."""
        inner, rank, _ = self.expr(call.args[0])
        axis = argument(call, _BY_NAME_ALONE, "axis")
        if axis is None or rank < 1 or any(self._differs(a) for a in call.args[1:]):
            raise Unknown
        moved = tuple(edit.number(a + 1) for a in axes_of(call, rank))
        new = moved[0] if len(moved) == 1 and not isinstance(axis, tree.List) else tree.List(moved)
        keywords = tuple(replace(k, value=new) if k.name == "axis" else k for k in call.keywords)
        reduces = call.func == "welford" or (call.func in OPS and OPS[call.func].kind is OpKind.REDUCE)
        left = rank - len(moved) if reduces and not keeps(call) else rank
        return _Lifted(replace(call, args=(inner, *call.args[1:]), keywords=keywords), left, True)

    def _transposed(self, call: tree.Call) -> _Lifted:
        inner, rank, _ = self.expr(call.args[0])
        perm = argument(call, 1, "perm")
        if not isinstance(perm, tree.List) or len(edit.integers(perm.items)) != rank:
            raise Unknown
        moved = [i.value + 1 for i in perm.items if isinstance(i, tree.Num)]
        items = tuple(edit.number(int(p)) for p in (0, *moved))
        return _Lifted(tree.Call("transpose", (inner,), (tree.Keyword("perm", tree.List(items)),)), rank, True)

    def _with_lanes(self, call: tree.Call) -> tree.Call:
        """Return ``call`` with the lanes before its shape argument."""
        position = SHAPED[call.func]
        shape = call.args[position] if len(call.args) > position else None
        if not isinstance(shape, tree.List):
            raise Unknown
        wide = replace(shape, items=(self.lanes, *shape.items))
        return replace(call, args=(*call.args[:position], wide, *call.args[position + 1 :]))


def _coefficient(expr: tree.Expr, var: str) -> int | None:
    """Return the coefficient of ``var`` in ``expr``; None if it is not a number."""
    if not edit.mentions(expr, var):
        return 0
    if isinstance(expr, tree.Name):
        return 1
    if isinstance(expr, tree.Binary) and expr.op in "+-*":
        left, right = _coefficient(expr.left, var), _coefficient(expr.right, var)
        if left is None or right is None:
            return None
        if expr.op != "*":
            return left + right if expr.op == "+" else left - right
        for factor, other in ((left, expr.right), (right, expr.left)):
            if factor and isinstance(other, tree.Num) and isinstance(other.value, int):
                return factor * other.value
    return None
