"""Sketch expressions for the values of one launch: loads, arithmetic, and reductions of tiles on chip."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Union

from kernellab.designer.emit.nodes import (
    INFIX,
    ONE,
    TITLES,
    ZERO,
    Names,
    Value,
    call,
    combined,
    compute_dtype,
    extent,
    let,
    listed,
    move,
    number,
    plus,
    times,
)
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import (
    Axis,
    Expr,
    Free,
    Frontier,
    Index,
    Iota,
    Ix,
    Leaf,
    Num,
    Op,
    Red,
    SymNum,
    Tap,
    walk,
)
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


#: the content of a place for one dimension
Item = Union[tree.Expr, tree.Slice, tree.NewAxis]


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
        self.k, self.t, self.layout, self.names = launch, tiling, layout, names
        #: number of stages of the loop whose loads are prefetched
        self.stages = stages
        self.free = Free()
        #: axes that run inside the blocks of the grid
        self.inner = launch.red | frozenset(tiling.inner_loops)
        self.uses = _count_uses(launch)
        self.keep: list[Expr] = []
        #: blocks around the next statement, outermost first
        self.scopes: list[Scope] = []
        #: the position of each axis, and its loop variable if the position runs in the opposite direction
        self.vars: dict[Axis, tree.Expr] = {}
        self.counters: dict[Axis, str] = {}
        self._has_doubles = "float64" in {*(e.dtype for e in launch.loads), *(o.dtype for o in launch.outs)}
        #: loads used as integer divisors, and the values these read past the edge
        self.divisors = divisor_pads(launch.roots)
        #: values read past the edge, if not 0
        self.pads = dict(self.divisors)
        #: output axes of a window that run by phase: the stride and the phase's variable
        self.phase: dict[Axis, tuple[int, str]] = {}
        #: the current tap of a window
        self.at_tap: dict[Tap, tree.Expr] = {}
        #: positions of a tile are 32-bit integers: a GPU compares those at twice the rate
        self.narrow = False
        #: a place that several values read along different axes is loaded once
        self.loads_once = False
        #: a loop begins where a vector does, before its row
        self.from_vector = False

    @property
    def body(self) -> list[tree.Stmt]:
        """The statements of the innermost block."""
        return self.scopes[-1].body

    def variable(self, axis: Axis) -> str:
        """Return the loop variable of an axis."""
        at = self.vars[axis]
        if axis in self.counters:
            return self.counters[axis]
        assert isinstance(at, Name), at
        return at.id

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
            arg = Value(call("broadcast", arg.tree, listed(self.shape(lanes))), lanes)
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
            name = self.names.fresh(f"{self.variable(axis)}_inside")
            here = Binary("+", self.vars[axis], self.lanes(axis))
            before_end: tree.Expr = Binary("<", here, extent(axis.extent))
            if self.begins(axis) != ZERO:
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
        return tuple(a for a in self.tile_axes(self.free(r)))

    def lane_axes(self, r: Red) -> tuple[Axis, ...]:
        """Return the tiled axes of the operand of ``r``."""
        return tuple(a for a in self.tile_axes(self.free(r.arg)))

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
        axes = self.tile_axes(frozenset().union(*(p.axes for p in parts)) if parts else frozenset())
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
        tiled = axis in self.t.blocks or axis in self.t.whole
        axes = (axis,) if tiled else ()
        if axis in self.phase:
            stride, name = self.phase[axis]
            lanes = Binary("+", self.vars[axis], self.lanes(axis)) if axis in self.t.blocks else self.vars[axis]
            return Value(Binary("+", times(lanes, stride), Name(name)), axes if axis in self.t.blocks else ())
        here = plus(self.start(axis), self.lanes(axis)) if tiled else self.vars[axis]
        if ix.sign == -1:
            return Value(Binary("-", extent(ix.offset), here), axes)
        return Value(Binary("+", here, extent(ix.offset)) if ix.offset != 0 else here, axes)

    def spread(self, value: Value, axes: tuple[Axis, ...]) -> Value:
        """Return ``value`` with new dimensions where it must broadcast against ``axes``."""
        if not value.axes or value.axes == axes[len(axes) - len(value.axes) :]:
            return value
        name = self.named(value, "column" if len(value.axes) == 1 else "plane").tree
        assert isinstance(name, Name), name
        first = axes.index(value.axes[0])
        marks = tuple(tree.Slice() if a in value.axes else tree.NewAxis() for a in axes[first:])
        return Value(tree.Subscript(name.id, marks), axes[first:])

    def tile_axes(self, axes: frozenset[Axis]) -> tuple[Axis, ...]:
        """Return the members of ``axes`` that are tiled, in the launch's order."""
        return tuple(a for a in self.t.order if a in axes and (a in self.t.blocks or a in self.t.whole))

    def extent(self, axis: Axis) -> tree.Expr:
        """Return the number of elements of a tile along ``axis``."""
        block = self.t.blocks.get(axis)
        if not block:
            return extent(axis.extent)
        per_lane = self.t.stream.elements_per_lane
        return Name(block) if per_lane == 1 else Binary("*", tree.Num(per_lane), Name(block))

    def begins(self, axis: Axis) -> tree.Expr:
        """Return where the loop over a blocked axis begins: at 0, or where a vector begins before a row.

        The first element of the row is counted in the tensor of rows that is read or written along the axis. A row
        that is a part of its tensor's begins at 0: what lies before it is the tensor's, too, and no pad."""
        if not self.t.stream.vector or axis not in self.inner or axis not in self.t.blocks:
            return ZERO
        tensors = [*((e.tensor, e.index) for e in self.k.loads), *((o.tensor, o.index) for o in self.k.outs)]
        along = [(self.layout.views[tensor][d], ix) for tensor, index in tensors for d, ix in enumerate(index)]
        if not all(ix.plain and size == ix.extent for size, ix in along if axis in ix.leaves()):
            return ZERO
        for tensor, index in tensors:
            *rows, columns = index or (Ix(),)
            names = [ix.leaves()[0] for ix in rows if ix.plain and len(ix.leaves()) == 1]
            separate = all(a in self.vars and a not in self.t.blocks and a not in self.inner for a in names)
            if not rows or len(names) < len(rows) or not separate or columns.leaves() != (axis,):
                continue
            first: tree.Expr = self.vars[names[0]]
            for row, size in zip(names[1:], self.layout.views[tensor][1:-1], strict=True):
                first = Binary("+", times(first, extent(size)), self.vars[row])
            self.from_vector = True
            return Binary("-", ZERO, Binary("%", times(first, extent(axis.extent)), tree.Num(self.t.stream.vector)))
        return ZERO

    def start(self, axis: Axis) -> tree.Expr:
        """Return the start of the tile along ``axis``."""
        return ZERO if axis in self.t.whole else self.vars[axis]

    def lanes(self, axis: Axis) -> tree.Expr:
        """Return 0, 1, 2... along a tile."""
        lanes = call("arange", self.extent(axis))
        return call("cast", lanes, Name("i32")) if self.narrow else lanes

    def shape(self, axes: Iterable[Axis]) -> list[tree.Expr]:
        """Return the extents of a tile."""
        return [self.extent(a) for a in axes]

    def transposed(self, value: tree.Expr, found: Sequence[Axis], wanted: Sequence[Axis]) -> tree.Expr:
        """Permute ``value`` from axes ``found`` to axes ``wanted``."""
        return call("transpose", value, perm=listed(tree.Num(found.index(a)) for a in wanted))

    # -- loads

    def _load(self, e: Leaf, scope: Scope) -> Value:
        """Return a tile of the elements of ``e``, named in ``scope``."""
        gathered = e.operands or any(self._backwards(ix) for ix in e.index)
        return self.known_as(e, scope, self._gather(e, scope) if gathered else self._load_slice(e, scope))

    def _backwards(self, ix: Ix) -> bool:
        """Return whether a tile reads the dimension in reverse, which a slice cannot express."""
        return ix.sign == -1 and bool(self.tile_axes(frozenset(ix.leaves())))

    def _load_slice(self, e: Leaf, scope: Scope) -> Value:
        place, loaded = self.place(e.tensor, e.index)
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
        order = self.tile_axes(frozenset(loaded))
        if tuple(loaded) == order:
            return Value(Name(name), order)
        transposed_name = self.names.fresh(f"{tensor}_turned")
        scope.body.append(let(transposed_name, self.transposed(Name(name), loaded, order)))
        return Value(Name(transposed_name), order)

    def _pad(self, e: Leaf) -> tree.Expr | None:
        pad = self.pads.get(id(e), 0.0)
        return number(int(pad) if id(e) in self.divisors else pad) if pad else None

    def own(self, tensor: str) -> str:
        """Return the tensor's original name: inside the Designer a tensor may have a second name for another view."""
        return self.layout.name(tensor)

    # -- places in tensors

    def place(self, tensor: str, index: Index) -> tuple[tree.Subscript, list[Axis]]:
        """Return a place in a tensor and the axes of the tile at that place, in the tensor's order."""
        pairs = [self.item(ix) for ix in index]
        items = tuple(item for item, _ in pairs) or (ZERO,)
        return tree.Subscript(self.own(tensor), items), [axis for _, axes in pairs for axis in axes]

    def item(self, ix: Ix) -> tuple[Item, tuple[Axis, ...]]:
        """Return one index of a place, and the axes of the tile that a slice reads along."""
        leaves = ix.leaves()
        if ix.win is not None:
            stride = 1 if ix.win.transposed else ix.win.stride
            return self._steps(ix.win.out, self._position(ix.win), stride)
        if not leaves:
            return extent(ix.offset), ()
        axis = leaves[0]
        if axis in self.phase:
            stride, name = self.phase[axis]
            return self._steps(axis, plus(Binary("+", times(self.vars[axis], stride), Name(name)), ix.offset), stride)
        if len(leaves) > 1:
            return self._side_by_side(leaves)
        if axis in self.t.whole or axis in self.t.blocks:
            start = plus(self.start(axis), ix.offset)
            return tree.Slice(start, plus(start, self.extent(axis))), (axis,)
        at = self.vars[axis]
        return (Binary("-", extent(ix.offset), at) if ix.sign == -1 else plus(at, ix.offset)), ()

    def _steps(self, axis: Axis | None, start: tree.Expr, step: int) -> tuple[Item, tuple[Axis, ...]]:
        """Return a slice of every ``step``-th element, or the element itself if ``axis`` is not tiled."""
        if axis is None or (axis not in self.t.blocks and axis not in self.t.whole):
            return start, ()
        if step == 1:
            return tree.Slice(start, Binary("+", start, self.extent(axis))), (axis,)
        stop = Binary("+", start, times(self.extent(axis), step))
        return tree.Slice(start, stop, tree.Num(step)), (axis,)

    def _position(self, tap: Tap) -> tree.Expr:
        """Return the input position of the tile's first output at the current tap."""
        at = self.vars[tap.out] if tap.out is not None and tap.out not in self.t.whole else ZERO
        k = self.at_tap.get(tap) or (self.vars.get(tap.k, ZERO) if tap.k is not None else ZERO)
        if phases(tap) > 1:
            phase = Name(self.phase[tap.out][1]) if tap.out is not None else ZERO
            reach = combined([(phase, 1), (ONE, tap.pad), (k, -tap.dilation)])
            return plus(at, Binary("//", reach, tree.Num(tap.stride)))
        if tap.transposed:
            return combined([(at, 1), (ONE, tap.pad), (k, -tap.dilation)])
        return combined([(at, tap.stride), (k, tap.dilation), (ONE, -tap.pad)])

    def _side_by_side(self, leaves: tuple[Axis, ...]) -> tuple[Item, tuple[Axis, ...]]:
        """Return the elements of all taps in a packed copy, each with its channels, which are the last axis."""
        *taps, channel = leaves
        at = self.vars[taps[0]]
        for tap in taps[1:]:
            at = Binary("+", times(at, extent(tap.extent)), self.vars[tap])
        start = times(at, extent(channel.extent))
        if channel in self.t.blocks:
            start = plus(start, self.vars[channel])
        return tree.Slice(start, Binary("+", start, self.extent(channel))), (channel,)

    def indexed(self, tensor: str, index: Index, ats: list[Value]) -> tuple[tree.Subscript, list[Axis]]:
        """Like :meth:`place`, with ``ats`` for the entries of the index that are values.

        If an axis of a tiled index also runs over a separate dimension, that dimension is indexed by a tile of
        positions: slices would be independent of it.
        """
        reversed_axes = {a for ix in index if self._backwards(ix) for a in ix.leaves()}
        shared = self.tile_axes(frozenset(a for at in ats for a in at.axes) | reversed_axes)
        remaining = iter(ats)
        items: list[Item] = []
        order: list[Axis] = []
        shared_placed = False
        for ix in index:
            leaves = ix.leaves()
            axis = leaves[0] if leaves else None
            tiled = axis is not None and (axis in self.t.whole or axis in self.t.blocks)
            if ix.at is not None or (tiled and axis in shared):
                at = _moved(next(remaining), ix) if ix.at is not None else self._positions(ix)
                items.append(self.spread(at, shared).tree)
                order += () if shared_placed else shared
                shared_placed = True
            else:
                item, along = self.item(ix)
                items.append(item)
                order += along
        return tree.Subscript(self.own(tensor), tuple(items)), order

    def _positions(self, ix: Ix) -> Value:
        """Return the positions along a tiled axis as a tile of integers."""
        axis = ix.leaves()[0]
        here = plus(self.start(axis), call("arange", self.extent(axis)))
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
