"""Values of one launch as expressions of a sketch: loads, arithmetic, and reductions of what is on chip."""

from __future__ import annotations

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
from kernellab.designer.emit.pads import IDENTITY, at_edge, best_pads, divides, divisor_pads, neutral
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
from kernellab.designer.ir.tiling import Tiling
from kernellab.errors import DesignError
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.printer import format_expr
from kernellab.sketch.syntax.tree import Binary, Name

#: characters of an expression beyond which it gets a name
_LONG = 84


#: what a place holds for one dimension
Item = Union[tree.Expr, tree.Slice, tree.NewAxis]


@dataclass
class Scope:
    """One block of statements; ``axes`` are the reduced axes that its loops (and those around it) fix."""

    axes: frozenset[Axis]
    body: list[tree.Stmt] = field(default_factory=list)
    known: dict[int, Value] = field(default_factory=dict)
    #: places that have been loaded, as text, and their tiles' names
    loaded: dict[str, str] = field(default_factory=dict)


class Writer:
    """Writes the values of one launch where they belong: each in the outermost block that knows all of its axes.

    What a launch of its kind adds (loops, passes, products, stores) are functions of a writer in the other modules.
    """

    def __init__(
        self, launch: Launch, tiling: Tiling, layout: Layout, names: Names, stages: tree.Expr | None = None
    ) -> None:
        self.k, self.t, self.layout, self.names = launch, tiling, layout, names
        #: stages of the loop whose loads run ahead
        self.stages = stages
        self.free = Free()
        #: axes that run inside the blocks of the grid
        self.inner = launch.red | frozenset(tiling.inside)
        self.uses = _count_uses(launch)
        self.keep: list[Expr] = []
        #: blocks around the next statement, outermost first
        self.scopes: list[Scope] = []
        #: an axis' position, and its loop's variable where the position runs against that
        self.vars: dict[Axis, tree.Expr] = {}
        self.counters: dict[Axis, str] = {}
        self._has_doubles = "float64" in {*(e.dtype for e in launch.loads), *(o.dtype for o in launch.outs)}
        #: loads that whole numbers are divided by, and what these read past the edge
        self.divisors = divisor_pads(launch.roots)
        #: what loads read past the edge, where it is not 0
        self.pads = dict(self.divisors)
        #: output axes of a window that run by phase: stride and the phase's variable
        self.phase: dict[Axis, tuple[int, str]] = {}
        #: the tap of a window that is looked at
        self.at_tap: dict[Tap, tree.Expr] = {}
        #: positions of a tile are 32-bit integers: a GPU compares those at twice the rate
        self.narrow = False
        #: a place that several values read, along different axes, is loaded once
        self.loads_once = False

    @property
    def body(self) -> list[tree.Stmt]:
        """The statements of the innermost block."""
        return self.scopes[-1].body

    def variable(self, axis: Axis) -> str:
        """The variable of the loop over an axis."""
        at = self.vars[axis]
        if axis in self.counters:
            return self.counters[axis]
        assert isinstance(at, Name), at
        return at.id

    # -- reductions

    def reduced(self, r: Red) -> Value:
        """A reduction over axes that are whole tiles, in one statement."""
        arg = self.masked(r)
        if r.kind == "any":
            inner = Value(call("cast", arg.tree, Name("i32")), arg.axes)
            return Value(Binary(">", self.reduce_call(r, inner, "reduce_max"), ZERO), self.kept(r))
        if r.kind.startswith("arg") and len(r.axes) > 1:
            raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
        return Value(self.reduce_call(r, arg), self.kept(r))

    def reduce_call(self, r: Red, arg: Value, word: str = "") -> tree.Expr:
        """The call that reduces a tile's axes; ``word`` in place of the reduction's own."""
        dims = [tree.Num(i) for i, a in enumerate(arg.axes) if a in r.axes]
        named = word or (r.kind if r.kind.startswith("arg") else f"reduce_{r.kind}")
        return call(named, arg.tree, axis=dims[0] if len(dims) == 1 else listed(dims))

    def masked(self, r: Red) -> Value:
        """The reduction's operand, with the identity in lanes beyond the edge where the pad does not give it."""
        arg = self.value_of(r.arg)
        lanes = self.lane_axes(r)
        ragged = self._ragged(r, lanes)
        arg = self.spread(arg, lanes)
        if any(a not in arg.axes for a in lanes):
            arg = Value(call("broadcast", arg.tree, listed(self.shape(lanes))), lanes)
        wanted = IDENTITY[r.kind]
        for axis in ragged:
            if wanted is None or at_edge(r.arg, axis, self.pads, self.free, self.layout.ends) != wanted:
                filler = tree.Bool(False) if r.kind == "any" else identity(r)
                arg = Value(call("where", self.valid(axis, lanes), arg.tree, filler), lanes)
        return arg

    def _ragged(self, r: Red, lanes: tuple[Axis, ...]) -> list[Axis]:
        return [a for a in lanes if a in r.axes and a in self.t.blocks and a not in self.t.exact]

    def inside(self, r: Red, lanes: tuple[Axis, ...]) -> tree.Expr | None:
        """Which elements of a tile that ``r`` reduces exist; None: all of them."""
        found: tree.Expr | None = None
        for axis in self._ragged(r, lanes):
            here = self.valid(axis, lanes)
            found = here if found is None else call("logical_and", found, here)
        return found

    def valid(self, axis: Axis, lanes: tuple[Axis, ...]) -> tree.Expr:
        """Which elements of a tile over ``lanes`` lie before the end of ``axis``."""
        scope = self.scope_of(frozenset([axis]))
        key = -axis.uid - 1
        if key not in scope.known:
            name = self.names.fresh(f"{self.variable(axis)}_inside")
            here = Binary("+", self.vars[axis], self.lanes(axis))
            scope.body.append(let(name, Binary("<", here, extent(axis.extent))))
            scope.known[key] = Value(Name(name), (axis,))
        return self.spread(scope.known[key], lanes).tree

    def pads_for(self, group: list[Red], loops: list[Axis]) -> None:
        ragged = [a for a in loops if a in self.t.blocks and a not in self.t.exact]
        best = best_pads(group, ragged[0], self.free, self.layout.ends) if ragged else {}
        self.pads = {**best, **self.divisors}

    def kept(self, r: Red) -> tuple[Axis, ...]:
        return tuple(a for a in self.tile_axes(self.free(r)))

    def lane_axes(self, r: Red) -> tuple[Axis, ...]:
        return tuple(a for a in self.tile_axes(self.free(r.arg)))

    # -- values

    def value_of(self, e: Expr) -> Value:
        """``e`` in the current scope; makes names where a value is used again or is long."""
        for scope in reversed(self.scopes):
            if id(e) in scope.known:
                return scope.known[id(e)]
        scope = self.scope_of(self.free(e))
        match e:
            case Num():
                return Value(number(e.value))
            case SymNum() if e.expr.is_function and e.dtype == "float32" and not self._has_doubles:
                # a root of a size is taken once, before all loops; as a double it takes the dtype of what it meets
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
        needed = axes & self.inner
        for scope in self.scopes:
            if needed <= scope.axes:
                return scope
        return self.scopes[-1]

    def define(self, e: Expr, scope: Scope, value: Value, title: str) -> Value:
        """Gives ``e`` a name in ``scope``, by which it is known from there on."""
        name = self.names.fresh(title)
        scope.body.append(let(name, value.tree))
        return self.known_as(e, scope, Value(Name(name), value.axes))

    def known_as(self, e: Expr, scope: Scope, value: Value) -> Value:
        """``e`` is ``value`` wherever it is asked for inside ``scope``."""
        scope.known[id(e)] = value
        self.keep.append(e)
        return value

    def named(self, value: Value, title: str) -> Value:
        """``value`` by a name, which is made where it has none."""
        if value.is_word:
            return value
        name = self.names.fresh(title)
        self.body.append(let(name, value.tree))
        return Value(Name(name), value.axes)

    def title(self, e: Expr) -> str:
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
        # what a whole tile shares is computed once, before the tile
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
        """A divisor that is 1 in lanes beyond the edge where it may be 0 there."""
        for axis in axes:
            ragged = axis in self.free(e) and axis in self.t.blocks and axis not in self.t.exact
            if ragged and at_edge(e, axis, self.pads, self.free, self.layout.ends) in (None, 0.0):
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
        """``value`` with new dimensions where it must broadcast against ``axes``."""
        if not value.axes or value.axes == axes[len(axes) - len(value.axes) :]:
            return value
        named = self.named(value, "column" if len(value.axes) == 1 else "plane").tree
        assert isinstance(named, Name), named
        first = axes.index(value.axes[0])
        marks = tuple(tree.Slice() if a in value.axes else tree.NewAxis() for a in axes[first:])
        return Value(tree.Subscript(named.id, marks), axes[first:])

    def tile_axes(self, axes: frozenset[Axis]) -> tuple[Axis, ...]:
        """Those of ``axes`` that are tiles, in the launch's order."""
        return tuple(a for a in self.t.order if a in axes and (a in self.t.blocks or a in self.t.whole))

    def extent(self, axis: Axis) -> tree.Expr:
        """Elements of a tile along ``axis``."""
        block = self.t.blocks.get(axis)
        if not block:
            return extent(axis.extent)
        return Name(block) if self.t.parts == 1 else Binary("*", tree.Num(self.t.parts), Name(block))

    def start(self, axis: Axis) -> tree.Expr:
        """Where the tile along ``axis`` starts."""
        return ZERO if axis in self.t.whole else self.vars[axis]

    def lanes(self, axis: Axis) -> tree.Expr:
        """0, 1, 2... along a tile."""
        lanes = call("arange", self.extent(axis))
        return call("cast", lanes, Name("i32")) if self.narrow else lanes

    def shape(self, axes: Iterable[Axis]) -> list[tree.Expr]:
        """The extents of a tile."""
        return [self.extent(a) for a in axes]

    def transposed(self, value: tree.Expr, found: Sequence[Axis], wanted: Sequence[Axis]) -> tree.Expr:
        """``value``, whose axes are ``found``, with its axes as ``wanted``."""
        return call("transpose", value, perm=listed(tree.Num(found.index(a)) for a in wanted))

    # -- loads

    def _load(self, e: Leaf, scope: Scope) -> Value:
        """A tile with the elements of ``e``, named in ``scope``."""
        gathered = e.operands or any(self._backwards(ix) for ix in e.index)
        return self.known_as(e, scope, self._gather(e, scope) if gathered else self._load_slice(e, scope))

    def _backwards(self, ix: Ix) -> bool:
        """Does a tile read it from its end, as no slice does?"""
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
        """Elements at indices that are values."""
        saved, self.scopes = self.scopes, self.scopes[: self.scopes.index(scope) + 1]
        ats = [self.value_of(ix.at) for ix in e.index if ix.at is not None]
        place, loaded = self.indexed(e.tensor, e.index, ats)
        name = self.names.fresh(f"{e.tensor}_{'picked' if loaded else 'one'}")
        scope.body.append(move("gather", place, Name(name), pad=self._pad(e)))
        found = self.in_order(e.tensor, name, loaded, scope)
        self.scopes = saved
        return found

    def in_order(self, tensor: str, name: str, loaded: list[Axis], scope: Scope) -> Value:
        """A loaded tile, its axes in the order of the launch."""
        order = self.tile_axes(frozenset(loaded))
        if tuple(loaded) == order:
            return Value(Name(name), order)
        turned = self.names.fresh(f"{tensor}_turned")
        scope.body.append(let(turned, self.transposed(Name(name), loaded, order)))
        return Value(Name(turned), order)

    def _pad(self, e: Leaf) -> tree.Expr | None:
        pad = self.pads.get(id(e), 0.0)
        return number(int(pad) if id(e) in self.divisors else pad) if pad else None

    def own(self, tensor: str) -> str:
        """The tensor's own name: inside the Designer it may have a second one, in another view."""
        return self.layout.name(tensor)

    # -- places in tensors

    def place(self, tensor: str, index: Index) -> tuple[tree.Subscript, list[Axis]]:
        """A place in a tensor, and the axes of the tile that it names, in its order."""
        found = [self.item(ix) for ix in index]
        items = tuple(item for item, _ in found) or (ZERO,)
        return tree.Subscript(self.own(tensor), items), [axis for _, axes in found for axis in axes]

    def item(self, ix: Ix) -> tuple[Item, tuple[Axis, ...]]:
        """One index of a place, and the axes of the tile that a slice reads along."""
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
        """A slice of every ``step``-th element; the element itself where ``axis`` is not tiled."""
        if axis is None or (axis not in self.t.blocks and axis not in self.t.whole):
            return start, ()
        if step == 1:
            return tree.Slice(start, Binary("+", start, self.extent(axis))), (axis,)
        stop = Binary("+", start, times(self.extent(axis), step))
        return tree.Slice(start, stop, tree.Num(step)), (axis,)

    def _position(self, tap: Tap) -> tree.Expr:
        """Where in the input the first output of the tile looks at the current tap."""
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
        """The taps' elements of a copy, each with its channels, which are the last axis."""
        *taps, channel = leaves
        at = self.vars[taps[0]]
        for tap in taps[1:]:
            at = Binary("+", times(at, extent(tap.extent)), self.vars[tap])
        start = times(at, extent(channel.extent))
        if channel in self.t.blocks:
            start = plus(start, self.vars[channel])
        return tree.Slice(start, Binary("+", start, self.extent(channel))), (channel,)

    def indexed(self, tensor: str, index: Index, ats: list[Value]) -> tuple[tree.Subscript, list[Axis]]:
        """As :meth:`place`, with ``ats`` where the index has values.

        An axis of a tile index that also runs over a separate dimension is a tile of positions there: slices would
        be apart from it.
        """
        turned = {a for ix in index if self._backwards(ix) for a in ix.leaves()}
        shared = self.tile_axes(frozenset(a for at in ats for a in at.axes) | turned)
        left = iter(ats)
        items: list[Item] = []
        order: list[Axis] = []
        placed = False
        for ix in index:
            leaves = ix.leaves()
            axis = leaves[0] if leaves else None
            tiled = axis is not None and (axis in self.t.whole or axis in self.t.blocks)
            if ix.at is not None or (tiled and axis in shared):
                at = _moved(next(left), ix) if ix.at is not None else self._positions(ix)
                items.append(self.spread(at, shared).tree)
                order += () if placed else shared
                placed = True
            else:
                item, along = self.item(ix)
                items.append(item)
                order += along
        return tree.Subscript(self.own(tensor), tuple(items)), order

    def _positions(self, ix: Ix) -> Value:
        """The places along a tiled axis as a tile of integers."""
        axis = ix.leaves()[0]
        here = plus(self.start(axis), call("arange", self.extent(axis)))
        return Value(Binary("-", extent(ix.offset), here) if ix.sign == -1 else plus(here, ix.offset), (axis,))


def _moved(value: Value, ix: Ix) -> Value:
    if ix.sign == -1:
        return Value(Binary("-", extent(ix.offset), value.tree), value.axes)
    return Value(plus(value.tree, ix.offset), value.axes)


def _count_uses(k: Launch) -> dict[int, int]:
    """How often each expression is an operand or an output's value, by its id."""
    uses: dict[int, int] = {}
    seen: dict[int, object] = {}
    for root in k.roots:
        uses[id(root)] = uses.get(id(root), 0) + (0 if isinstance(root, Frontier) else 1)
        for e in walk(root, seen):
            for a in e.operands:
                uses[id(a)] = uses.get(id(a), 0) + 1
    return uses


def identity(r: Red) -> tree.Expr:
    """What changes nothing in ``r``, in the dtype that it compares or adds in."""
    if r.kind in ("argmax", "argmin"):
        return number(neutral(r.kind[3:], compute_dtype(r.arg.dtype)))
    return number(neutral(r.kind, r.arg.dtype))
