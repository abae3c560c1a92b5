"""The loops of a launch: the grid of its parallel axes, and loop nests around a rule's statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernellab.designer.emit.nodes import ZERO, call, extent, hint, plus, times
from kernellab.designer.emit.writer import Scope, Writer
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.normal import ADD
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, For, Hint, Name, Num, Stmt, Str
from kernellab.task.formula import Formula


@dataclass(frozen=True)
class Head:
    """A loop without its body: the variable, the arguments of ``range``, and the hints above it."""

    var: str
    range: tuple[Expr, ...]
    hints: tuple[Hint, ...] = ()

    def around(self, body: Iterable[Stmt]) -> For:
        """Return the loop with this body."""
        return For(self.var, self.range, tuple(body), self.hints)


def begin(w: Writer, letters: Mapping[Axis, str] | None = None) -> tuple[list[Axis], list[Axis]]:
    """Name the loops and open the outermost block. Return the parallel axes that are loops, and those that run inside
    the grid's blocks (reduced, or hoisted over)."""
    k, t = w.k, w.t
    par = [a for a in t.order if a in k.par and a not in t.whole and a not in t.inner_loops]
    red = [a for a in t.order if a in w.inner]
    for axis in (*par, *red):
        name = w.names.fresh((letters or {}).get(axis) or letter(w, axis))
        w.tile.vars[axis] = Name(name)
        if k.scans and k.scans[0].reverse and axis in k.scans[0].axes:
            # a reverse scan traverses its axis from the end
            w.tile.counters[axis] = name
            w.tile.vars[axis] = Binary("-", _last(w, axis), Name(name))
    w.scopes = [Scope(frozenset(a for a in red if a in t.whole))]
    return par, red


def letter(w: Writer, axis: Axis) -> str:
    """Return the variable of a loop: that of a Dim if the axis is one."""
    name = axis.extent.name if isinstance(axis.extent, Formula) else ""
    if name and name.upper() == name:
        return name.lower()
    position = w.t.order.index(axis) if axis in w.t.order else 0
    return "chunk" if axis is w.k.chunk else "ijkabcdefgh"[position % 11]


def grid(w: Writer, par: list[Axis], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return parallel loops over ``par`` around ``body``."""
    on_cpu = w.t.core == "coreidx"
    keeps = set(w.k.stored_axes) if on_cpu and any(o.put == ADD for o in w.k.outs) else set()
    if keeps & set(par):
        # additions in order: concurrent iterations have separate columns
        for axis in reversed([a for a in par if a not in keeps]):
            body = [Head(w.tile.variable(axis), span(w, axis)).around(body)]
        par = [a for a in par if a in keeps]
    dims = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(par), ("",) * len(par))
    heads = []
    for axis, dim in zip(par, dims, strict=True):
        tiles = w.t.product.swizzle
        swizzle = (Str("swizzle"), Num(tiles)) if tiles and axis is par[-1] else ()
        core = w.t.core if on_cpu else f"{w.t.core}{dim}"
        leaves = (Str("persistent"), Str("async_store")) if w.t.multiplying_groups and swizzle else ()
        heads.append(Head(w.tile.variable(axis), span(w, axis), (hint(Str("parallel"), Str(core), *swizzle, *leaves),)))
    return parallel(w, heads, body)


def parallel(w: Writer, heads: list[Head], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return loops around ``body``, outermost first; a single iteration if there are none."""
    for head in reversed(heads or [Head(w.names.fresh("once"), (Num(1),), (on_cores(w),))]):
        body = [head.around(body)]
    return tuple(body)


def on_cores(w: Writer) -> Hint:
    """Return the hint of a loop whose iterations run in parallel."""
    return hint(Str("parallel"), Str(w.t.core))


def span(w: Writer, axis: Axis) -> tuple[Expr, ...]:
    """Return the range of the loop over an axis, in steps of its tile."""
    step = w.t.blocks.get(axis)
    chunk = w.k.chunk
    if chunk is None or axis is chunk or axis is not next((a for a in w.t.order if a in w.k.red), None):
        return (
            (w.loop_start(axis), extent(axis.extent), w.tile.extent(axis))
            if step
            else span_to(extent(axis.extent), None)
        )
    size = chunk_size(w)
    if axis in w.tile.counters:
        # pieces are traversed from the end, also past the edge of the last one
        return span_to(size, step)
    at = times(w.tile.vars[chunk], size)
    stop = call("min", plus(at, size), extent(axis.extent))
    return (at, stop, Name(step)) if step else (at, stop)


def span_to(stop: Expr, step: str | None) -> tuple[Expr, ...]:
    """Return the range from 0 to ``stop`` in tiles of the constexpr ``step``, or by single elements."""
    return (ZERO, stop, Name(step)) if step else (stop,)


def chunk_size(w: Writer) -> Name:
    """Return the constexpr with the elements of a piece, if programs reduce one each."""
    assert w.k.chunk is not None and isinstance(w.k.chunk.extent, Chunks)
    return Name(w.k.chunk.extent.size)


def _last(w: Writer, axis: Axis) -> Expr:
    """Return the start of the last tile of an axis that is traversed from its end."""
    block = w.t.blocks.get(axis)
    step = Name(block) if block else Num(1)
    if w.k.chunk is not None:
        size = chunk_size(w)
        return Binary("-", plus(times(w.tile.vars[w.k.chunk], size), size), step)
    if block is None:
        return extent(extents.add(axis.extent, -1))
    length = extent(axis.extent)
    stop = length if axis in w.t.exact else times(call("ceil", length, step), step)
    return Binary("-", stop, step)


def loop(
    w: Writer,
    axes: list[Axis],
    body: Callable[[], None],
    hint: Hint | None = None,
    ranges: Mapping[Axis, tuple[Expr, ...]] | None = None,
) -> None:
    """Nest loops over ``axes`` in the current block around the statements of ``body()``; the innermost has the
    ``hint``."""
    axis, *rest = axes
    inner = Scope(w.scopes[-1].axes | {axis})
    w.scopes.append(inner)
    if rest:
        loop(w, rest, body, hint, ranges)
    else:
        body()
    w.scopes.pop()
    head = Head(w.tile.variable(axis), (ranges or {}).get(axis) or span(w, axis), (hint,) if hint and not rest else ())
    w.body.append(head.around(inner.body))


def nest(w: Writer, heads: list[Head], body: Callable[[], None]) -> None:
    """Like :func:`loop`, for loops with given heads."""
    if not heads:
        body()
        return
    inner = Scope(frozenset())
    w.scopes.append(inner)
    nest(w, heads[1:], body)
    w.scopes.pop()
    w.body.append(heads[0].around(inner.body))


def guarded(test: Expr, body: Iterable[Stmt]) -> Stmt:
    """Return ``body`` under the condition ``test``."""
    return tree.If(test, tuple(body))
