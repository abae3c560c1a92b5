"""Values of one launch as sketch text: loads, arithmetic, and reductions of what is on chip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernellab.designer.emit.pads import IDENTITY, at_edge, best_pads, neutral
from kernellab.designer.emit.text import ATOM, INFIX, TITLES, Names, Text, combined, compute_dtype, infix, number, plus
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
    operands,
    walk,
)
from kernellab.designer.ir.extents import Extent
from kernellab.designer.ir.launch import Launch
from kernellab.designer.ir.normal import Layout
from kernellab.designer.ir.tiling import Tiling
from kernellab.errors import DesignError

_LONG = 84


@dataclass
class Scope:
    """One block of statements; ``axes`` are the reduced axes that its loops (and those around it) fix."""

    axes: frozenset[Axis]
    lines: list[str] = field(default_factory=list)
    known: dict[int, Text] = field(default_factory=dict)


class Writer:
    """Writes the values of one launch where they belong: each in the outermost block that knows all of its axes.

    What a launch of its kind adds (loops, passes, products, stores) are functions of a writer in the other modules.
    """

    def __init__(self, launch: Launch, tiling: Tiling, layout: Layout, names: Names) -> None:
        self.k, self.t, self.layout, self.names = launch, tiling, layout, names
        self.free = Free()
        self.uses = _count_uses(launch)
        self.keep: list[Expr] = []
        #: blocks around the next statement, outermost first
        self.scopes: list[Scope] = []
        #: an axis' position, and its loop's variable where the position runs against that
        self.vars: dict[Axis, str] = {}
        self.counters: dict[Axis, str] = {}
        #: what loads read past the edge, where it is not 0
        self.pads: dict[int, float] = {}
        #: output axes of a window that run by phase: stride and the phase's variable
        self.phase: dict[Axis, tuple[int, str]] = {}
        #: the tap of a window that is looked at, as text
        self.at_tap: dict[Tap, str] = {}
        #: positions of a tile are 32-bit integers: a GPU compares those at twice the rate
        self.narrow = False

    @property
    def lines(self) -> list[str]:
        """The statements of the innermost block."""
        return self.scopes[-1].lines

    # -- reductions

    def reduced(self, r: Red) -> Text:
        """A reduction over axes that are whole tiles, in one statement."""
        arg = self.masked(r)
        if r.kind == "any":
            inner = Text(f"cast({arg.text}, i32)", arg.axes)
            return Text(f"{self.reduce_call(r, inner, 'reduce_max')} > 0", self.kept(r), 3)
        if r.kind.startswith("arg") and len(r.axes) > 1:
            raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
        return Text(self.reduce_call(r, arg), self.kept(r))

    def reduce_call(self, r: Red, arg: Text, word: str = "") -> str:
        dims = [i for i, a in enumerate(arg.axes) if a in r.axes]
        named = word or (r.kind if r.kind.startswith("arg") else f"reduce_{r.kind}")
        axis = str(dims[0]) if len(dims) == 1 else f"[{', '.join(map(str, dims))}]"
        return f"{named}({arg.text}, axis={axis})"

    def masked(self, r: Red) -> Text:
        """The reduction's operand, with the identity in lanes beyond the edge where the pad does not give it."""
        arg = self.text_of(r.arg)
        lanes = self.lane_axes(r)
        ragged = [a for a in lanes if a in r.axes and a in self.t.blocks and a not in self.t.exact]
        arg = self.spread(arg, lanes)
        missing = [a for a in lanes if a not in arg.axes]
        if missing:
            shape = ", ".join(self.extent(a) for a in lanes)
            arg = Text(f"broadcast({arg.text}, [{shape}])", lanes)
        wanted = IDENTITY[r.kind]
        for axis in ragged:
            if wanted is None or at_edge(r.arg, axis, self.pads, self.free) != wanted:
                filler = "false" if r.kind == "any" else identity(r)
                arg = Text(f"where({self.valid(axis, lanes)}, {arg.text}, {filler})", lanes)
        return arg

    def valid(self, axis: Axis, lanes: tuple[Axis, ...]) -> str:
        scope = self.scope_of(frozenset([axis]))
        key = -axis.uid - 1
        if key not in scope.known:
            name = self.names.fresh(f"{self.counters.get(axis, self.vars[axis])}_inside")
            scope.lines.append(f"{name} = {self.vars[axis]} + {self.lanes(axis)} < {axis.extent}")
            scope.known[key] = Text(name, (axis,))
        return self.spread(scope.known[key], lanes).text

    def pads_for(self, group: list[Red], loops: list[Axis]) -> None:
        ragged = [a for a in loops if a in self.t.blocks and a not in self.t.exact]
        self.pads = best_pads(group, ragged[0], self.free) if ragged else {}

    def kept(self, r: Red) -> tuple[Axis, ...]:
        return tuple(a for a in self.tile_axes(self.free(r)))

    def lane_axes(self, r: Red) -> tuple[Axis, ...]:
        return tuple(a for a in self.tile_axes(self.free(r.arg)))

    # -- values

    def text_of(self, e: Expr) -> Text:
        """``e`` as text in the current scope; makes names where a value is used again or is long."""
        for scope in reversed(self.scopes):
            if id(e) in scope.known:
                return scope.known[id(e)]
        if isinstance(e, Num):
            return Text(number(e.value), (), ATOM if not number(e.value).startswith("-") else 7)
        if isinstance(e, SymNum):
            return Text(e.expr, (), ATOM if e.expr.isidentifier() else 0)
        scope = self.scope_of(self.free(e))
        if isinstance(e, Leaf):
            return self._load(e, scope)
        outer = scope is not self.scopes[-1]
        saved = self.scopes
        if outer:
            self.scopes = self.scopes[: self.scopes.index(scope) + 1]
        value = self._iota(e) if isinstance(e, Iota) else self.reduced(e) if isinstance(e, Red) else self._apply(e)
        self.scopes = saved
        if isinstance(e, Iota):
            return value
        heavy = not isinstance(e, Op) or e.op not in ("neg",)
        if (self.uses.get(id(e), 0) > 1 or outer or len(value.text) > _LONG) and heavy:
            return self.define(e, scope, value, self.title(e))
        return value

    def scope_of(self, axes: frozenset[Axis]) -> Scope:
        needed = axes & self.k.red
        for scope in self.scopes:
            if needed <= scope.axes:
                return scope
        return self.scopes[-1]

    def define(self, e: Expr, scope: Scope, value: Text, title: str) -> Text:
        name = self.names.fresh(title)
        scope.lines.append(f"{name} = {value.text}")
        scope.known[id(e)] = Text(name, value.axes)
        self.keep.append(e)
        return scope.known[id(e)]

    def named(self, value: Text, title: str) -> Text:
        if value.text.isidentifier():
            return value
        name = self.names.fresh(title)
        self.lines.append(f"{name} = {value.text}")
        return Text(name, value.axes)

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

    def _apply(self, e: Expr) -> Text:
        assert isinstance(e, Op)
        parts = [self.text_of(a) for a in e.args]
        axes = self.tile_axes(frozenset().union(*(p.axes for p in parts)) if parts else frozenset())
        # what a whole tile shares is computed once, before the tile
        parts = [
            self.define(a, self.scope_of(self.free(a)), p, self.title(a))
            if isinstance(a, Op) and p.axes != axes and not p.text.isidentifier()
            else p
            for a, p in zip(e.args, parts, strict=True)
        ]
        parts = [self.spread(p, axes) for p in parts]
        if e.op == "cast":
            return Text(f"cast({parts[0].text}, {DTYPES[e.dtype]})", axes)
        if e.op == "neg":
            return Text(f"-{parts[0].wrap(7)}", axes, 7)
        if e.op in INFIX:
            text, binds = infix(e.op, parts[0], parts[1])
            return Text(text, axes, binds)
        return Text(f"{e.op}({', '.join(p.text for p in parts)})", axes)

    def _iota(self, e: Iota) -> Text:
        ix = e.index
        if not ix.axes:
            return Text(str(ix.offset), (), 0)
        axis = ix.leaves()[0]
        if axis in self.phase:
            stride, name = self.phase[axis]
            lanes = f"({self.vars[axis]} + {self.lanes(axis)})" if axis in self.t.blocks else self.vars[axis]
            return Text(f"{lanes}*{stride} + {name}", (axis,) if axis in self.t.blocks else (), 5)
        if axis in self.t.blocks or axis in self.t.whole:
            start = "0" if axis in self.t.whole else self.vars[axis]
            text = self.lanes(axis) if start == "0" else f"{start} + {self.lanes(axis)}"
            here = Text(text, (axis,), ATOM if start == "0" else 5)
        else:
            here = Text(self.vars[axis], ())
        if ix.sign == -1:
            return Text(f"{_grouped(ix.offset)} - {here.wrap(6)}", here.axes, 5)
        if ix.offset != 0:
            return Text(f"{here.text} + {_grouped(ix.offset)}", here.axes, 5)
        return here

    def spread(self, value: Text, axes: tuple[Axis, ...]) -> Text:
        """``value`` with new dimensions where it must broadcast against ``axes``."""
        if not value.axes or value.axes == axes[len(axes) - len(value.axes) :]:
            return value
        named = self.named(value, "column" if len(value.axes) == 1 else "plane")
        first = axes.index(value.axes[0])
        marks = [":" if a in value.axes else "None" for a in axes[first:]]
        return Text(f"{named.text}[{', '.join(marks)}]", axes[first:])

    def tile_axes(self, axes: frozenset[Axis]) -> tuple[Axis, ...]:
        return tuple(a for a in self.t.order if a in axes and (a in self.t.blocks or a in self.t.whole))

    def extent(self, axis: Axis) -> str:
        """Elements of a tile along ``axis``."""
        return self.t.blocks.get(axis) or str(axis.extent)

    def lanes(self, axis: Axis) -> str:
        """0, 1, 2... along a tile."""
        lanes = f"arange({self.extent(axis)})"
        return f"cast({lanes}, i32)" if self.narrow else lanes

    def shape(self, axes: Iterable[Axis]) -> str:
        """The extents of a tile, as the language lists them."""
        return f"[{', '.join(self.extent(a) for a in axes)}]"

    def transposed(self, name: str, found: Sequence[Axis], wanted: Sequence[Axis]) -> str:
        """``name``, whose axes are ``found``, with its axes as ``wanted``."""
        return f"transpose({name}, perm=[{', '.join(str(found.index(a)) for a in wanted)}])"

    # -- loads

    def _load(self, e: Leaf, scope: Scope) -> Text:
        """A tile with the elements of ``e``, named in ``scope``."""
        scope.known[id(e)] = self._gather(e, scope) if operands(e) else self._load_slice(e, scope)
        self.keep.append(e)
        return scope.known[id(e)]

    def _load_slice(self, e: Leaf, scope: Scope) -> Text:
        region, loaded = self.region(e.index)
        name = self.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
        scope.lines.append(f"load({self.own(e.tensor)}[{region}] -> {name}{self._pad(e)})")
        return self._in_order(e.tensor, name, loaded, scope)

    def _gather(self, e: Leaf, scope: Scope) -> Text:
        """Elements at indices that are values."""
        saved, self.scopes = self.scopes, self.scopes[: self.scopes.index(scope) + 1]
        texts = [self.text_of(ix.at) for ix in e.index if ix.at is not None]
        region, loaded = self.indexed(e.index, texts)
        name = self.names.fresh(f"{e.tensor}_{'picked' if loaded else 'one'}")
        scope.lines.append(f"gather({self.own(e.tensor)}[{region}] -> {name}{self._pad(e)})")
        found = self._in_order(e.tensor, name, loaded, scope)
        self.scopes = saved
        return found

    def _in_order(self, tensor: str, name: str, loaded: list[Axis], scope: Scope) -> Text:
        """A loaded tile, its axes in the order of the launch."""
        order = self.tile_axes(frozenset(loaded))
        if tuple(loaded) == order:
            return Text(name, order)
        turned = self.names.fresh(f"{tensor}_turned")
        scope.lines.append(f"{turned} = {self.transposed(name, loaded, order)}")
        return Text(turned, order)

    def _pad(self, e: Leaf) -> str:
        pad = self.pads.get(id(e), 0.0)
        return f", pad={number(pad)}" if pad else ""

    def own(self, tensor: str) -> str:
        """The tensor's own name: inside the Designer it may have a second one, in another view."""
        return self.layout.name(tensor)

    # -- places in tensors

    def region(self, index: Index) -> tuple[str, list[Axis]]:
        """What stands between the brackets, and the axes of the tile that it names, in its order."""
        found = [self.item(ix) for ix in index]
        return ", ".join(text for text, _ in found) or "0", [axis for _, axes in found for axis in axes]

    def item(self, ix: Ix) -> tuple[str, tuple[Axis, ...]]:
        """One index of a place as text, and the axes of the tile that a slice reads along."""
        leaves = ix.leaves()
        if ix.win is not None:
            stride = 1 if ix.win.transposed else ix.win.stride
            return self._steps(ix.win.out, self._position(ix.win), stride)
        if not leaves:
            return str(ix.offset), ()
        axis = leaves[0]
        if axis in self.phase:
            stride, name = self.phase[axis]
            return self._steps(axis, plus(f"{self.vars[axis]}*{stride} + {name}", ix.offset), stride)
        if len(leaves) > 1:
            return self._side_by_side(leaves)
        if axis in self.t.whole or axis in self.t.blocks:
            start = plus("0" if axis in self.t.whole else self.vars[axis], ix.offset)
            return f"{start}:{plus(start, self.extent(axis))}", (axis,)
        return (f"{ix.offset} - {self.vars[axis]}" if ix.sign == -1 else plus(self.vars[axis], ix.offset)), ()

    def _steps(self, axis: Axis | None, start: str, step: int) -> tuple[str, tuple[Axis, ...]]:
        """A slice of every ``step``-th element; the element itself where ``axis`` is not tiled."""
        if axis is None or axis not in self.t.blocks:
            return start, ()
        extent = self.extent(axis)
        return (f"{start}:{start} + {extent}*{step}:{step}" if step > 1 else f"{start}:{start} + {extent}"), (axis,)

    def _position(self, tap: Tap) -> str:
        """Where in the input the first output of the tile looks at the current tap."""
        at = self.vars[tap.out] if tap.out is not None else ""
        k = self.at_tap.get(tap, "0")
        if phases(tap) > 1:
            phase = self.phase[tap.out][1] if tap.out is not None else "0"
            reach = combined([(phase, 1), ("1", tap.pad), (k, -tap.dilation)])
            return f"{at} + ({reach}) // {tap.stride}" if at else f"({reach}) // {tap.stride}"
        if tap.transposed:
            return combined([(at, 1), ("1", tap.pad), (k, -tap.dilation)])
        return combined([(at, tap.stride), (k, tap.dilation), ("1", -tap.pad)])

    def _side_by_side(self, leaves: tuple[Axis, ...]) -> tuple[str, tuple[Axis, ...]]:
        """The taps' elements of a copy, each with its channels, which are the last axis."""
        *taps, channel = leaves
        at = self.vars[taps[0]]
        for tap in taps[1:]:
            at = f"({at})*{tap.extent} + {self.vars[tap]}" if " " in at else f"{at}*{tap.extent} + {self.vars[tap]}"
        start = f"({at})*{channel.extent}" if " " in at else f"{at}*{channel.extent}"
        if channel in self.t.blocks:
            start = plus(start, self.vars[channel])
        return f"{start}:{start} + {self.extent(channel)}", (channel,)

    def indexed(self, index: Index, texts: list[Text]) -> tuple[str, list[Axis]]:
        """As :meth:`region`, with ``texts`` where the index has values.

        An axis of a tile index that runs over a dimension of its own, too, is a tile of positions there: slices would
        be apart from it.
        """
        shared = self.tile_axes(frozenset(a for t in texts for a in t.axes))
        left = iter(texts)
        items: list[str] = []
        order: list[Axis] = []
        placed = False
        for ix in index:
            leaves = ix.leaves()
            axis = leaves[0] if leaves else None
            tiled = axis is not None and (axis in self.t.whole or axis in self.t.blocks)
            if ix.at is not None or (tiled and axis in shared):
                text = _moved(next(left), ix) if ix.at is not None else self._positions(ix)
                items.append(self.spread(text, shared).text)
                order += () if placed else shared
                placed = True
            else:
                item, along = self.item(ix)
                items.append(item)
                order += along
        return ", ".join(items), order

    def _positions(self, ix: Ix) -> Text:
        """The places along a tiled axis as a tile of integers."""
        axis = ix.leaves()[0]
        start = "0" if axis in self.t.whole else self.vars[axis]
        lanes = f"arange({self.extent(axis)})"
        here = lanes if start == "0" else f"{start} + {lanes}"
        return Text(f"{ix.offset} - ({here})" if ix.sign == -1 else plus(here, ix.offset), (axis,), 5)


def _moved(text: Text, ix: Ix) -> Text:
    if ix.sign == -1:
        return Text(f"{ix.offset} - {text.wrap(6)}", text.axes, 5)
    return text if ix.offset == 0 else Text(plus(text.text, ix.offset), text.axes, 5)


def _count_uses(k: Launch) -> dict[int, int]:
    """How often each expression is an operand or an output's value, by its id."""
    uses: dict[int, int] = {}
    seen: dict[int, object] = {}
    for root in k.roots:
        uses[id(root)] = uses.get(id(root), 0) + (0 if isinstance(root, Frontier) else 1)
        for e in walk(root, seen):
            for a in operands(e):
                uses[id(a)] = uses.get(id(a), 0) + 1
    return uses


def identity(r: Red) -> str:
    """What changes nothing in ``r``, in the dtype that it compares or adds in."""
    if r.kind in ("argmax", "argmin"):
        return number(neutral(r.kind[3:], compute_dtype(r.arg.dtype)))
    return number(neutral(r.kind, r.arg.dtype))


def _grouped(offset: Extent) -> str:
    return str(offset) if isinstance(offset, int) else f"({offset})"
