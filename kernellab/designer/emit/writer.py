"""Sketch expressions for the values of one launch: loads, arithmetic, and reductions of tiles on chip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernellab.designer.emit.nodes import (
    INFIX,
    TITLES,
    ZERO,
    Names,
    Value,
    call,
    compute_dtype,
    extent,
    let,
    listed,
    move,
    number,
    plus,
    times,
)
from kernellab.designer.emit.tile import Item, Place, Tile
from kernellab.designer.ir.axes import Axis, Free, Index, Ix
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Expr, Frontier, Iota, Leaf, Num, Op, Red, SymNum, walk
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.normal import Layout
from kernellab.designer.ir.pads import IDENTITY, at_edge, best_pads, divides, divisor_pads, neutral
from kernellab.designer.ir.tiling import Tiling
from kernellab.errors import DesignError
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.printer import format_expr
from kernellab.sketch.syntax.tree import Binary, Name

#: expressions longer than this many characters get a name
_LONG = 84


@dataclass
class Scope:
    """One block of statements; ``axes`` are the reduced axes fixed by its loops and those around it."""

    axes: frozenset[Axis]
    body: list[tree.Stmt] = field(default_factory=list)
    known: dict[int, Value] = field(default_factory=dict)
    #: places already loaded, as text, and the names of their tiles
    loaded: dict[str, str] = field(default_factory=dict)


class Writer:
    """Writes each value of one launch into the outermost block that knows all of its axes.

    The parts specific to a kind of launch (loops, passes, products, stores) are functions in the other modules that
    accept a writer.
    """

    def __init__(
        self, launch: Launch, tiling: Tiling, layout: Layout, names: Names, stages: tree.Expr | None = None
    ) -> None:
        self.k, self.layout, self.names = launch, layout, names
        self.tile = Tile(tiling, layout)
        #: number of stages of the loop whose loads are prefetched
        self.stages = stages
        self.free = Free()
        #: axes that run inside the blocks of the grid
        self.inner = launch.red | frozenset(tiling.inner_loops)
        self.uses = _count_uses(launch)
        self.keep: list[Expr] = []
        #: blocks around the next statement, outermost first
        self.scopes: list[Scope] = []
        self._has_doubles = "float64" in {*(e.dtype for e in launch.loads), *(o.dtype for o in launch.outs)}
        #: loads used as integer divisors, and the values these read past the edge
        self.divisors = divisor_pads(launch.roots)
        #: values read past the edge, if not 0
        self.pads = dict(self.divisors)
        #: a place that several values read along different axes is loaded once
        self.loads_once = False
        #: whether a loop begins where a vector does, before its row
        self.starts_at_vector = False

    @property
    def t(self) -> Tiling:
        """The tiling of the launch."""
        return self.tile.tiling

    @property
    def body(self) -> list[tree.Stmt]:
        """The statements of the innermost block."""
        return self.scopes[-1].body

    # -- reductions

    def reduced(self, r: Red) -> Value:
        """Return a reduction over axes that are whole tiles, in one statement."""
        arg = self.masked(r)
        if r.kind == "any":
            inner = Value(call("cast", arg.tree, Name("i32")), arg.axes)
            return Value(Binary(">", self.reduce_call(r, inner, "reduce_max"), ZERO), self.kept(r))
        if r.kind.startswith("arg") and len(r.axes) > 1:
            raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
        return Value(self.reduce_call(r, arg), self.kept(r))

    def reduce_call(self, r: Red, arg: Value, word: str = "") -> tree.Expr:
        """Return the call that reduces a tile's axes; ``word`` replaces the reduction's name."""
        dims = [tree.Num(i) for i, a in enumerate(arg.axes) if a in r.axes]
        function_name = word or (r.kind if r.kind.startswith("arg") else f"reduce_{r.kind}")
        return call(function_name, arg.tree, axis=dims[0] if len(dims) == 1 else listed(dims))

    def masked(self, r: Red) -> Value:
        """Return the reduction's operand, with the identity in lanes past the edge if the padding does not supply
        it."""
        arg = self.value_of(r.arg)
        lanes = self.lane_axes(r)
        ragged = self._ragged(r, lanes)
        arg = self.spread(arg, lanes)
        if any(a not in arg.axes for a in lanes):
            arg = Value(call("broadcast", arg.tree, listed(self.tile.shape(lanes))), lanes)
        identity_value = IDENTITY[r.kind]
        for axis in ragged:
            if identity_value is None or at_edge(r.arg, axis, self.pads, self.free, self.layout.ends) != identity_value:
                filler = tree.Bool(False) if r.kind == "any" else identity(r)
                arg = Value(call("where", self.valid(axis, lanes), arg.tree, filler), lanes)
        return arg

    def _ragged(self, r: Red, lanes: tuple[Axis, ...]) -> list[Axis]:
        return [a for a in lanes if a in r.axes and a in self.t.blocks and a not in self.t.exact]

    def inside(self, r: Red, lanes: tuple[Axis, ...]) -> tree.Expr | None:
        """Return the mask of existing elements of a tile that ``r`` reduces; None if all exist."""
        mask: tree.Expr | None = None
        for axis in self._ragged(r, lanes):
            here = self.valid(axis, lanes)
            mask = here if mask is None else call("logical_and", mask, here)
        return mask

    def valid(self, axis: Axis, lanes: tuple[Axis, ...]) -> tree.Expr:
        """Return the mask of elements of a tile over ``lanes`` that ``axis`` has."""
        scope = self.scope_of(frozenset([axis]))
        key = -axis.uid - 1
        if key not in scope.known:
            name = self.names.fresh(f"{self.tile.variable(axis)}_inside")
            here = Binary("+", self.tile.vars[axis], self.tile.lanes(axis))
            before_end: tree.Expr = Binary("<", here, extent(axis.extent))
            if self.loop_start(axis) != ZERO:
                before_end = call("logical_and", Binary(">=", here, ZERO), before_end)
            scope.body.append(let(name, before_end))
            scope.known[key] = Value(Name(name), (axis,))
        return self.spread(scope.known[key], lanes).tree

    def pads_for(self, group: list[Red], loops: list[Axis]) -> None:
        """Choose the padding of the loads in the pass that computes ``group``."""
        ragged = [a for a in loops if a in self.t.blocks and a not in self.t.exact]
        best = best_pads(group, ragged[0], self.free, self.layout.ends) if ragged else {}
        self.pads = {**best, **self.divisors}

    def kept(self, r: Red) -> tuple[Axis, ...]:
        """Return the tiled axes of the result of ``r``."""
        return self.tile.axes(self.free(r))

    def lane_axes(self, r: Red) -> tuple[Axis, ...]:
        """Return the tiled axes of the operand of ``r``."""
        return self.tile.axes(self.free(r.arg))

    # -- values

    def value_of(self, e: Expr) -> Value:
        """Return ``e`` in the current scope; a value that is used again or is long gets a name."""
        for scope in reversed(self.scopes):
            if id(e) in scope.known:
                return scope.known[id(e)]
        scope = self.scope_of(self.free(e))
        match e:
            case Num():
                return Value(number(e.value))
            case SymNum() if e.expr.is_function and e.dtype == "float32" and not self._has_doubles:
                # compute a root of a size once, before all loops; as a double it adopts the dtype of the other operand
                value = Value(call("cast", extent(e.expr), Name(DTYPES[e.dtype])))
                return self.define(e, self.scope_of(frozenset()), value, "factor")
            case SymNum():
                return Value(extent(e.expr))
            case Leaf():
                return self._load(e, scope)
        outer = scope is not self.scopes[-1]
        saved = self.scopes
        if outer:
            self.scopes = self.scopes[: self.scopes.index(scope) + 1]
        value = self._iota(e) if isinstance(e, Iota) else self.reduced(e) if isinstance(e, Red) else self._apply(e)
        self.scopes = saved
        if isinstance(e, Iota) or (isinstance(e, Op) and e.op == "neg"):
            return value
        if self.uses.get(id(e), 0) > 1 or outer or len(format_expr(value.tree)) > _LONG:
            return self.define(e, scope, value, self.title(e))
        return value

    def scope_of(self, axes: frozenset[Axis]) -> Scope:
        """Return the outermost block that knows all of ``axes``."""
        needed = axes & self.inner
        for scope in self.scopes:
            if needed <= scope.axes:
                return scope
        return self.scopes[-1]

    def define(self, e: Expr, scope: Scope, value: Value, title: str) -> Value:
        """Name ``e`` in ``scope``; later uses refer to it by this name."""
        name = self.names.fresh(title)
        scope.body.append(let(name, value.tree))
        return self.known_as(e, scope, Value(Name(name), value.axes))

    def known_as(self, e: Expr, scope: Scope, value: Value) -> Value:
        """Register ``value`` as the value of ``e`` inside ``scope``."""
        scope.known[id(e)] = value
        self.keep.append(e)
        return value

    def named(self, value: Value, title: str) -> Value:
        """Return ``value`` as a name, which is created if needed."""
        if value.is_word:
            return value
        name = self.names.fresh(title)
        self.body.append(let(name, value.tree))
        return Value(Name(name), value.axes)

    def title(self, e: Expr) -> str:
        """Return a descriptive name for the value of ``e``."""
        if isinstance(e, Red):
            inner = [a for a in self.t.order if a in self.k.par or a in self.k.red][-1]
            side = "row" if inner in e.axes else "col"
            squared = isinstance(e.arg, Op) and e.arg.op == "mul" and e.arg.args[0] is e.arg.args[1]
            word = "squares" if e.kind == "sum" and squared else e.kind if e.kind in ("max", "min") else TITLES[e.kind]
            return f"{side}_{word}"
        if isinstance(e, Op) and e.op == "div" and isinstance(e.args[0], Red) and isinstance(e.args[1], (Num, SymNum)):
            return "mean"
        return TITLES.get(e.op, "value") if isinstance(e, Op) else "value"

    def _apply(self, e: Expr) -> Value:
        assert isinstance(e, Op)
        parts = [self.value_of(a) for a in e.args]
        axes = self.tile.axes(frozenset().union(*(p.axes for p in parts)) if parts else frozenset())
        # values shared by a whole tile are computed once, before the tile
        parts = [
            self.define(a, self.scope_of(self.free(a)), p, self.title(a))
            if isinstance(a, Op) and p.axes != axes and not p.is_word
            else p
            for a, p in zip(e.args, parts, strict=True)
        ]
        trees = [self.spread(p, axes).tree for p in parts]
        if divides(e):
            trees[1] = self._divisor(e.args[1], trees[1], axes)
        if e.op in ("cast", "bitcast"):
            return Value(call(e.op, trees[0], Name(DTYPES[e.dtype])), axes)
        if e.op == "neg":
            return Value(tree.Unary("-", trees[0]), axes)
        if e.op in INFIX:
            left, right = trees
            return Value(Binary(INFIX[e.op], left, right), axes)
        return Value(call(e.op, *trees), axes)

    def _divisor(self, e: Expr, divisor: tree.Expr, axes: tuple[Axis, ...]) -> tree.Expr:
        """Return a divisor with 1 in lanes past the edge if it may be 0 there."""
        for axis in axes:
            ragged = axis in self.free(e) and axis in self.t.blocks and axis not in self.t.exact
            edge = at_edge(e, axis, self.pads, self.free, self.layout.ends) if ragged else 1.0
            if not edge or math.isnan(edge):
                divisor = call("where", self.valid(axis, axes), divisor, tree.Num(1))
        return divisor

    def _iota(self, e: Iota) -> Value:
        ix = e.index
        if not ix.axes:
            return Value(extent(ix.offset))
        axis = ix.leaves()[0]
        if axis in self.tile.phases:
            return self._iota_of_phase(axis)
        tiled = self.tile.covers(axis)
        axes = (axis,) if tiled else ()
        here = plus(self.tile.start(axis), self.tile.lanes(axis)) if tiled else self.tile.vars[axis]
        if ix.sign == -1:
            return Value(Binary("-", extent(ix.offset), here), axes)
        return Value(Binary("+", here, extent(ix.offset)) if ix.offset != 0 else here, axes)

    def _iota_of_phase(self, axis: Axis) -> Value:
        stride, variable = self.tile.phases[axis]
        steps, axes = self.tile.vars[axis], tuple[Axis, ...]()
        if axis in self.t.blocks:
            steps, axes = Binary("+", steps, self.tile.lanes(axis)), (axis,)
        return Value(Binary("+", times(steps, stride), Name(variable)), axes)

    def spread(self, value: Value, axes: tuple[Axis, ...]) -> Value:
        """Return ``value`` with new dimensions where it must broadcast against ``axes``."""
        if not value.axes or value.axes == axes[len(axes) - len(value.axes) :]:
            return value
        name = self.named(value, "column" if len(value.axes) == 1 else "plane").tree
        assert isinstance(name, Name), name
        first = axes.index(value.axes[0])
        marks = tuple(tree.Slice() if a in value.axes else tree.NewAxis() for a in axes[first:])
        return Value(tree.Subscript(name.id, marks), axes[first:])

    def loop_start(self, axis: Axis) -> tree.Expr:
        """Return where the loop over a blocked axis begins: at 0, or where a vector begins before the row."""
        vector = self.t.stream.vector
        if not vector or axis not in self.inner or axis not in self.t.blocks:
            return ZERO
        row = self._row_number(axis)
        if row is None:
            return ZERO
        self.starts_at_vector = True
        return Binary("-", ZERO, Binary("%", times(row, extent(axis.extent)), tree.Num(vector)))

    def _row_number(self, axis: Axis) -> tree.Expr | None:
        """Return the number of the current row in a tensor of rows that is read or written along ``axis``.

        None if no tensor has such rows, or if the row is a part of its tensor's: what lies before it is the tensor's,
        too, and no pad.
        """
        tensors = [*((e.tensor, e.index) for e in self.k.loads), *((o.tensor, o.index) for o in self.k.outs)]
        dimensions = [(ix, self.layout.views[tensor][d]) for tensor, index in tensors for d, ix in enumerate(index)]
        if not all(ix.plain and size == ix.extent for ix, size in dimensions if axis in ix.leaves()):
            return None
        for tensor, index in tensors:
            *rows, columns = index or (Ix(),)
            axes = [ix.leaves()[0] for ix in rows if ix.plain and len(ix.leaves()) == 1]
            is_tensor_of_rows = bool(rows) and len(axes) == len(rows) and columns.leaves() == (axis,)
            if not is_tensor_of_rows or not all(map(self._is_fixed, axes)):
                continue
            number_of_row: tree.Expr = self.tile.vars[axes[0]]
            for row, size in zip(axes[1:], self.layout.views[tensor][1:-1], strict=True):
                number_of_row = Binary("+", times(number_of_row, extent(size)), self.tile.vars[row])
            return number_of_row
        return None

    def _is_fixed(self, axis: Axis) -> bool:
        """Return whether a block of the grid has one position of ``axis``."""
        return axis in self.tile.vars and axis not in self.t.blocks and axis not in self.inner

    def transposed(self, value: tree.Expr, found: Sequence[Axis], wanted: Sequence[Axis]) -> tree.Expr:
        """Permute ``value`` from axes ``found`` to axes ``wanted``."""
        return call("transpose", value, perm=listed(tree.Num(found.index(a)) for a in wanted))

    # -- loads

    def _load(self, e: Leaf, scope: Scope) -> Value:
        """Return a tile of the elements of ``e``, named in ``scope``."""
        gathered = e.operands or any(self.tile.is_reversed(ix) for ix in e.index)
        return self.known_as(e, scope, self._gather(e, scope) if gathered else self._load_slice(e, scope))

    def _load_slice(self, e: Leaf, scope: Scope) -> Value:
        place, loaded = self.tile.place(e.tensor, e.index)
        text = format_expr(place)
        if self.loads_once and text in scope.loaded:
            return self.in_order(e.tensor, scope.loaded[text], loaded, scope)
        name = self.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
        scope.body.append(move("load", place, Name(name), pad=self._pad(e)))
        scope.loaded[text] = name
        return self.in_order(e.tensor, name, loaded, scope)

    def _gather(self, e: Leaf, scope: Scope) -> Value:
        """Return elements at indices that are values."""
        saved, self.scopes = self.scopes, self.scopes[: self.scopes.index(scope) + 1]
        ats = [self.value_of(ix.at) for ix in e.index if ix.at is not None]
        place, loaded = self.indexed(e.tensor, e.index, ats)
        name = self.names.fresh(f"{e.tensor}_{'picked' if loaded else 'one'}")
        scope.body.append(move("gather", place, Name(name), pad=self._pad(e)))
        value = self.in_order(e.tensor, name, loaded, scope)
        self.scopes = saved
        return value

    def in_order(self, tensor: str, name: str, loaded: list[Axis], scope: Scope) -> Value:
        """Return a loaded tile with its axes in the launch's order."""
        order = self.tile.axes(frozenset(loaded))
        if tuple(loaded) == order:
            return Value(Name(name), order)
        transposed_name = self.names.fresh(f"{tensor}_turned")
        scope.body.append(let(transposed_name, self.transposed(Name(name), loaded, order)))
        return Value(Name(transposed_name), order)

    def _pad(self, e: Leaf) -> tree.Expr | None:
        pad = self.pads.get(id(e), 0.0)
        return number(int(pad) if id(e) in self.divisors else pad) if pad else None

    # -- elements at indices that are values

    def indexed(self, tensor: str, index: Index, ats: list[Value]) -> Place:
        """Like :meth:`Tile.place`, with ``ats`` for the entries of the index that are values.

        If an axis of a tiled index also runs over a separate dimension, that dimension is indexed by a tile of
        positions: slices would be independent of it.
        """
        reversed_axes = {a for ix in index if self.tile.is_reversed(ix) for a in ix.leaves()}
        shared = self.tile.axes(frozenset(a for at in ats for a in at.axes) | reversed_axes)
        remaining = iter(ats)
        items: list[Item] = []
        order: list[Axis] = []
        shared_placed = False
        for ix in index:
            leaves = ix.leaves()
            axis = leaves[0] if leaves else None
            if ix.at is not None or (axis is not None and self.tile.covers(axis) and axis in shared):
                at = _moved(next(remaining), ix) if ix.at is not None else self._positions(ix)
                items.append(self.spread(at, shared).tree)
                order += () if shared_placed else shared
                shared_placed = True
            else:
                item, along = self.tile.item(ix)
                items.append(item)
                order += along
        return Place(tree.Subscript(self.layout.name(tensor), tuple(items)), order)

    def _positions(self, ix: Ix) -> Value:
        """Return the positions along a tiled axis as a tile of integers."""
        axis = ix.leaves()[0]
        here = plus(self.tile.start(axis), call("arange", self.tile.extent(axis)))
        return Value(Binary("-", extent(ix.offset), here) if ix.sign == -1 else plus(here, ix.offset), (axis,))


def _moved(value: Value, ix: Ix) -> Value:
    if ix.sign == -1:
        return Value(Binary("-", extent(ix.offset), value.tree), value.axes)
    return Value(plus(value.tree, ix.offset), value.axes)


def _count_uses(k: Launch) -> dict[int, int]:
    """Count how often each expression is an operand or an output's value, by its id."""
    uses: dict[int, int] = {}
    visited: dict[int, object] = {}
    for root in k.roots:
        uses[id(root)] = uses.get(id(root), 0) + (0 if isinstance(root, Frontier) else 1)
        for e in walk(root, visited):
            for a in e.operands:
                uses[id(a)] = uses.get(id(a), 0) + 1
    return uses


def identity(r: Red) -> tree.Expr:
    """Return the identity element of ``r``, in the dtype in which it compares or adds."""
    if r.kind in ("argmax", "argmin"):
        return number(neutral(r.kind[3:], compute_dtype(r.arg.dtype)))
    return number(neutral(r.kind, r.arg.dtype))
