"""Values of one kernel as sketch text: loads, stores, arithmetic, and reductions of what is on chip."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.agents.designer.emit_gather import define_gather
from kernellab.agents.designer.expr import (
    Axis,
    Expr,
    Free,
    Frontier,
    Iota,
    Ix,
    Leaf,
    Num,
    Op,
    Red,
    SymNum,
    operands,
    walk,
)
from kernellab.agents.designer.extents import Extent
from kernellab.agents.designer.normal import Output
from kernellab.agents.designer.pads import IDENTITY, at_edge, best_pads, neutral
from kernellab.agents.designer.plan import Kernel
from kernellab.agents.designer.puts import store_put
from kernellab.agents.designer.text import ATOM, DTYPES, INFIX, TITLES, Names, Text, infix, number, plus
from kernellab.errors import DesignError

_LONG = 84


@dataclass
class Tiling:
    """How the axes of one kernel run. An axis in neither map is a loop over single elements.

    ``blocks``: axis -> name of the constexpr that is its tile size; ``whole``: axes that are one tile of their full
    extent; ``exact``: blocked axes whose extent every choice of the block divides.
    """

    order: tuple[Axis, ...]
    blocks: dict[Axis, str] = field(default_factory=dict)
    whole: frozenset[Axis] = frozenset()
    exact: frozenset[Axis] = frozenset()
    #: name of the constexpr with the chunk's size, where the first reduced axis is split over programs
    chunk: str = ""
    core: str = "grididx"
    lanes: bool = False
    precision: str = ""
    swizzle: int = 0
    #: launch options of a product, 0 where the tiles decide
    warps: int = 0
    stages: int = 0
    #: its loop may load through tensor descriptors: whether it does by default
    descriptors: bool | None = None
    #: a block of channels holds all of them (windows)
    whole_channels: bool = False
    #: positions are the rows of a window's product
    positions_first: bool = False
    #: name of the constexpr that says how many tiles of positions one program computes with the same weights (windows)
    run: str = ""


@dataclass
class Scope:
    """One block of statements; ``axes`` are the reduced axes that its loops (and those around it) fix."""

    axes: frozenset[Axis]
    lines: list[str] = field(default_factory=list)
    known: dict[int, Text] = field(default_factory=dict)


class ValueWriter:
    """Writes values where they belong: each in the outermost block that knows all of its axes."""

    def __init__(self, kernel: Kernel, tiling: Tiling, views: dict[str, tuple[Extent, ...]], names: Names) -> None:
        self.k, self.t, self.views, self.names = kernel, tiling, views, names
        self.free = Free()
        self.vars: dict[Axis, str] = {}
        self.pads: dict[int, float] = {}
        self.keep: list[Expr] = []
        self.uses = self._count_uses()
        self.scopes: list[Scope] = []
        #: loop variable, where the position runs against it
        self.counters: dict[Axis, str] = {}

    # -- reductions

    def _reduced(self, r: Red) -> Text:
        """A reduction over axes that are whole tiles, in one statement."""
        arg = self._masked(r)
        if r.kind == "any":
            inner = Text(f"cast({arg.text}, i32)", arg.axes)
            return Text(f"{self._reduce_call(r, inner, 'reduce_max')} > 0", self._kept(r), 3)
        if r.kind.startswith("arg") and len(r.axes) > 1:
            raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
        return Text(self._reduce_call(r, arg), self._kept(r))

    def _reduce_call(self, r: Red, arg: Text, word: str = "") -> str:
        dims = [i for i, a in enumerate(arg.axes) if a in r.axes]
        named = word or (r.kind if r.kind.startswith("arg") else f"reduce_{r.kind}")
        axis = str(dims[0]) if len(dims) == 1 else f"[{', '.join(map(str, dims))}]"
        return f"{named}({arg.text}, axis={axis})"

    def _masked(self, r: Red) -> Text:
        """The reduction's operand, with the identity in lanes beyond the edge where the pad does not give it."""
        arg = self.text_of(r.arg)
        lanes = self._lane_axes(r)
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
        scope = self._scope_of(frozenset([axis]))
        key = -axis.uid - 1
        if key not in scope.known:
            name = self.names.fresh(f"{self.counters.get(axis, self.vars[axis])}_inside")
            scope.lines.append(f"{name} = {self.vars[axis]} + arange({self.extent(axis)}) < {axis.extent}")
            scope.known[key] = Text(name, (axis,))
        return self.spread(scope.known[key], lanes).text

    def _pads_for(self, group: list[Red], loops: list[Axis]) -> None:
        ragged = [a for a in loops if a in self.t.blocks and a not in self.t.exact]
        self.pads = best_pads(group, ragged[0], self.free) if ragged else {}

    def _kept(self, r: Red) -> tuple[Axis, ...]:
        return tuple(a for a in self.tile_axes(self.free(r)))

    def _lane_axes(self, r: Red) -> tuple[Axis, ...]:
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
        scope = self._scope_of(self.free(e))
        if isinstance(e, Leaf):
            return self._define_load(e, scope)
        outer = scope is not self.scopes[-1]
        saved = self.scopes
        if outer:
            self.scopes = self.scopes[: self.scopes.index(scope) + 1]
        value = self._iota(e) if isinstance(e, Iota) else self._reduced(e) if isinstance(e, Red) else self._apply(e)
        self.scopes = saved
        if isinstance(e, Iota):
            return value
        heavy = not isinstance(e, Op) or e.op not in ("neg",)
        if (self.uses.get(id(e), 0) > 1 or outer or len(value.text) > _LONG) and heavy:
            return self._define(e, scope, value, self._title(e))
        return value

    def _scope_of(self, axes: frozenset[Axis]) -> Scope:
        needed = axes & self.k.red
        for scope in self.scopes:
            if needed <= scope.axes:
                return scope
        return self.scopes[-1]

    def _define(self, e: Expr, scope: Scope, value: Text, title: str) -> Text:
        name = self.names.fresh(title)
        scope.lines.append(f"{name} = {value.text}")
        scope.known[id(e)] = Text(name, value.axes)
        self.keep.append(e)
        return scope.known[id(e)]

    def _named(self, value: Text, title: str) -> Text:
        if value.text.isidentifier():
            return value
        name = self.names.fresh(title)
        self.scopes[-1].lines.append(f"{name} = {value.text}")
        return Text(name, value.axes)

    def _title(self, e: Expr) -> str:
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
            self._define(a, self._scope_of(self.free(a)), p, self._title(a))
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
        if axis in self.t.blocks or axis in self.t.whole:
            start = "0" if axis in self.t.whole else self.vars[axis]
            lanes = f"arange({self.extent(axis)})"
            text = lanes if start == "0" else f"{start} + {lanes}"
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
        named = self._named(value, "column" if len(value.axes) == 1 else "plane")
        first = axes.index(value.axes[0])
        marks = [":" if a in value.axes else "None" for a in axes[first:]]
        return Text(f"{named.text}[{', '.join(marks)}]", axes[first:])

    def tile_axes(self, axes: frozenset[Axis]) -> tuple[Axis, ...]:
        return tuple(a for a in self.t.order if a in axes and (a in self.t.blocks or a in self.t.whole))

    def extent(self, axis: Axis) -> str:
        return self.t.blocks.get(axis) or str(axis.extent)

    # -- memory

    def _define_load(self, e: Leaf, scope: Scope) -> Text:
        if operands(e):
            scope.known[id(e)] = define_gather(self, e, scope)
            self.keep.append(e)
            return scope.known[id(e)]
        region, loaded = self._region(e.tensor, e.index)
        order = self.tile_axes(frozenset(loaded))
        name = self.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
        pad = self.pads.get(id(e), 0.0)
        keyword = f", pad={number(pad)}" if pad else ""
        scope.lines.append(f"load({e.tensor}[{region}] -> {name}{keyword})")
        if tuple(loaded) != order:
            turned = self.names.fresh(f"{e.tensor}_turned")
            perm = [loaded.index(a) for a in order]
            scope.lines.append(f"{turned} = transpose({name}, perm=[{', '.join(map(str, perm))}])")
            name = turned
        scope.known[id(e)] = Text(name, order)
        self.keep.append(e)
        return scope.known[id(e)]

    def _store(self, o: Output) -> None:
        if o.put:
            store_put(self, o)
            return
        tensor, index, expr = o.tensor, o.index, o.expr
        value = self.text_of(expr)
        region, stored = self._region(tensor, index)
        canonical = self.tile_axes(frozenset(stored))
        value = self.spread(value, canonical)
        if tuple(stored) != canonical:
            value = self._named(value, "result")
            perm = [canonical.index(a) for a in stored]
            if value.axes != canonical:
                shape = ", ".join(self.extent(a) for a in canonical)
                value = Text(f"broadcast({value.text}, [{shape}])", canonical)
            value = Text(f"transpose({value.text}, perm=[{', '.join(map(str, perm))}])")
        self.scopes[-1].lines.append(f"store({value.text} -> {tensor}[{region}])")

    def _region(self, tensor: str, index: tuple[Ix, ...]) -> tuple[str, list[Axis]]:
        found = [self.item(ix) for ix in index]
        return ", ".join(text for text, _ in found) or "0", [axis for _, axis in found if axis is not None]

    def item(self, ix: Ix) -> tuple[str, Axis | None]:
        """One index of a place in a tensor as text, and the axis of the tile that a slice reads along."""
        leaves = ix.leaves()
        if not leaves:
            return str(ix.offset), None
        axis = leaves[0]
        if axis in self.t.whole or axis in self.t.blocks:
            start = plus("0" if axis in self.t.whole else self.vars[axis], ix.offset)
            return f"{start}:{plus(start, self.extent(axis))}", axis
        return (f"{ix.offset} - {self.vars[axis]}" if ix.sign == -1 else plus(self.vars[axis], ix.offset)), None

    def _count_uses(self) -> dict[int, int]:
        uses: dict[int, int] = {}
        seen: dict[int, object] = {}
        roots: list[Expr] = [*self.k.reds, *self.k.scans, *([self.k.dot] if self.k.dot else [])]
        roots += [o.expr for o in self.k.outs]
        for root in roots:
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


def compute_dtype(dtype: str) -> str:
    return dtype if dtype in ("float64", "int64", "int32") else "float32"


def joined(kind: str, name: str, value: Text) -> str:
    """The running result ``name`` of a reduction with one more value."""
    if kind == "sum":
        return f"{name} + {value.wrap(6)}"
    if kind == "prod":
        return f"{name} * {value.wrap(7)}"
    return f"{kind}({name}, {value.text})"
