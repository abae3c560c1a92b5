"""A matrix product: one accumulator, and a loop over the summed axis."""

from __future__ import annotations

from kernellab.designer.emit.loops import begin, grid, guarded, loop
from kernellab.designer.emit.nodes import Value, accumulator, call, hint, let, listed, multiply, pipeline, plus
from kernellab.designer.emit.nodes import product as product_of
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import DTYPES, FLOAT8, HALVES
from kernellab.designer.ir.expr import Dot, Expr
from kernellab.designer.ir.pads import at_edge
from kernellab.designer.passes.triangles import kept_triangle
from kernellab.sketch.syntax.tree import Binary, Name, Num, Stmt, Str
from kernellab.sketch.syntax.tree import Expr as Node

#: products of parts of both factors (0 the highest), smallest first, by the number of parts of a factor
_PARTS = {2: ((1, 0), (0, 1), (0, 0)), 3: ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))}
#: a loop of at most this many steps is unrolled
_UNROLLED = 4


def product(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that multiplies."""
    par, inner = begin(w)
    red = [a for a in inner if a in w.k.red]
    dot, row = w.k.product, w.scopes[0]
    full = w.tile.axes(w.free(dot))
    name = w.names.fresh("acc")
    dtype = DTYPES[dot.dtype if dot.dtype in ("float64", "int32", "int64") else "float32"]
    row.body.append(accumulator(name, w.tile.shape(full), dtype))
    test = _reached(w, dot, full)
    start = len(row.body)
    loops = [a for a in red if a not in w.t.whole]
    steps = tuple(a for a in red if a in w.t.whole) if red[-1] in w.t.whole else (red[-1],)
    hints = pipeline(w.stages, w.t.product.roles, not w.k.of_float8)
    short = loops[-1].extent if len(loops) > 1 and loops[-1] not in w.t.blocks else 0
    if isinstance(short, int) and 1 < short <= _UNROLLED:
        # a loop of few steps cannot prefetch: the loop around it does
        few = hint(Str("unroll"), Num(short))
        loop(w, loops[:-1], lambda: loop(w, loops[-1:], lambda: _multiply(w, dot, name, full, steps), few), hints)
    else:
        loop(w, loops, lambda: _multiply(w, dot, name, full, steps), hints)
    if test is not None:
        row.body[start:] = [guarded(test, row.body[start:])]
    row.known[id(dot)] = Value(Name(name), full)
    if w.t.inner_loops:
        loop(w, list(w.t.inner_loops), lambda: store_all(w, w.k.outs))
    else:
        store_all(w, w.k.outs)
    return grid(w, par, row.body)


def _reached(w: Writer, dot: Dot, full: tuple[Axis, ...]) -> Node | None:
    """Return the condition for tiles with kept elements if the outputs keep a triangle; None if all tiles are
    needed."""
    band = kept_triangle([o.expr for o in w.k.outs], dot)
    if band is None or {band.row, band.col} != set(full) or any(a not in w.t.blocks for a in full):
        return None
    row, col = w.tile.vars[band.row], w.tile.vars[band.col]
    if band.upper:
        return Binary(">", plus(col, w.tile.extent(band.col)), plus(row, band.distance))
    return Binary("<", col, plus(plus(row, w.tile.extent(band.row)), band.distance))


def _multiply(w: Writer, dot: Dot, name: str, full: tuple[Axis, ...], steps: tuple[Axis, ...]) -> None:
    """Write one step of the loop, along one axis or several: a tile of each factor."""
    rows, cols = full
    k = steps[-1]
    swapped = rows not in w.free(dot.a)
    if dot.parts:
        each = len(dot.parts) // 2
        lefts, rights = (dot.a, *dot.parts[:each]), (dot.b, *dot.parts[each:])
        if swapped:
            lefts, rights = rights, lefts
        left = [w.spread(w.value_of(e), (rows, k)).tree for e in lefts]
        right = [w.spread(w.value_of(e), (k, cols)).tree for e in rights]
        # summed separately from the accumulator: in a long chain tensor cores round towards zero
        step = w.names.fresh("step")
        w.body.append(accumulator(step, w.tile.shape(full), "f32"))
        multiply_parts(w, step, left, right)
        w.body.append(let(name, Binary("+", Name(name), Name(step))))
        return
    first, second = inside(w, (dot.b, dot.a) if swapped else (dot.a, dot.b), k)
    if len(steps) == 1:
        pair = w.spread(first, (rows, k)).tree, w.spread(second, (k, cols)).tree
    else:  # in the order in which they are stored, so that a step's values stay in their threads
        turned = _flat(w, second, (cols, *steps))
        pair = _flat(w, first, (rows, *steps)), call("transpose", turned)
    if dot.a.dtype in FLOAT8 and not w.k.of_float8:
        pair = call("cast", pair[0], Name("f16")), call("cast", pair[1], Name("f16"))
    if dot.steps or w.k.of_float8:
        # tensor cores keep 14 bits of a chain of f8 products: no chain is longer than a step
        scales = [w.spread(w.value_of(e), full).tree for e in dot.steps]
        sums = w.named(Value(call("dot", *pair), full), "step").tree
        w.body.append(let(name, Binary("+", Name(name), product_of([sums, *scales]))))
        return
    w.body.append(multiply(*pair, name, w.t.product.precision))


def _flat(w: Writer, value: Value, axes: tuple[Axis, ...]) -> Node:
    """Return a factor of two dimensions: the axes after the first are one."""
    value = w.spread(value, axes)
    if value.axes != axes:
        value = Value(call("broadcast", value.tree, listed(w.tile.shape(axes))), axes)
    first, *steps = w.tile.shape(axes)
    return call("reshape", value.tree, listed([first, product_of(steps)]))


def multiply_parts(w: Writer, name: str, left: list[Node], right: list[Node]) -> None:
    """Add to ``name`` the products of the parts of two factors that are significant in f32."""
    for i, j in _PARTS[len(left)]:
        w.body.append(multiply(left[i], right[j], name))


def inside(w: Writer, factors: tuple[Expr, Expr], axis: Axis) -> tuple[Value, Value]:
    """Return both factors; 0 past the end of the summed axis if one of them would have another value there."""
    left, right = (w.value_of(e) for e in factors)
    if all(zero_at_edge(w, e, axis) for e in factors):
        return left, right
    narrow = all(e.dtype in HALVES for e in factors)
    masked = [keep_inside(w, v, axis, e.dtype if narrow else "") for v, e in zip((left, right), factors, strict=True)]
    return masked[0], masked[1]


def zero_at_edge(w: Writer, e: Expr, axis: Axis) -> bool:
    """Return whether ``e`` is 0 past the end of ``axis``."""
    return axis in w.t.exact or axis not in w.t.blocks or at_edge(e, axis, {}, w.free, w.layout.ends) == 0.0


def keep_inside(w: Writer, value: Value, axis: Axis, dtype: str = "") -> Value:
    """Return ``value`` with 0 past the end of ``axis``, cast back to a two-byte ``dtype``: the selected value is a
    float32, which tensor cores would not multiply."""
    chosen = call("where", w.valid(axis, value.axes), value.tree, Num(0.0))
    return Value(call("cast", chosen, Name(DTYPES[dtype])) if dtype in HALVES else chosen, value.axes)
