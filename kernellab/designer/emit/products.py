"""A product of matrices as sketch text: one accumulator, and a loop over the summed axis."""

from __future__ import annotations

from kernellab.designer.emit.loops import begin, grid, loop
from kernellab.designer.emit.pads import at_edge
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.text import Text, accumulator, indented, plus
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Axis, Dot, Expr
from kernellab.designer.passes.triangles import kept_triangle

#: products of parts of both factors (0 the highest), smallest first
_PARTS = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))


def product(w: Writer) -> list[str]:
    """The statements of a launch that multiplies."""
    par, red = begin(w)
    dot, row = w.k.product, w.scopes[0]
    full = w.tile_axes(w.free(dot))
    name = w.names.fresh("acc")
    dtype = DTYPES[dot.dtype if dot.dtype in ("float64", "int32", "int64") else "float32"]
    row.lines.append(accumulator(name, w.shape(full), dtype))
    hint = '@llm_hint("pipeline", num_stages)' if w.t.swizzle else '@llm_hint("pipeline")'
    test = _reached(w, dot, full)
    if test:
        row.lines.append(f"if {test}:")
    start = len(row.lines)
    loop(w, [a for a in red if a not in w.t.whole], lambda: _multiply(w, dot, name, full, red[-1]), hint)
    if test:
        row.lines[start:] = indented(row.lines[start:])
    row.known[id(dot)] = Text(name, full)
    store_all(w, w.k.outs)
    return grid(w, par, row.lines)


def _reached(w: Writer, dot: Dot, full: tuple[Axis, ...]) -> str:
    """Which tiles hold an element that is kept, where the outputs keep a triangle; "" where all are wanted."""
    band = kept_triangle([o.expr for o in w.k.outs], dot)
    if band is None or {band.row, band.col} != set(full) or any(a not in w.t.blocks for a in full):
        return ""
    row, col = w.vars[band.row], w.vars[band.col]
    if band.upper:
        return f"{col} + {w.extent(band.col)} > {plus(row, band.distance)}"
    return f"{col} < {plus(f'{row} + {w.extent(band.row)}', band.distance)}"


def _multiply(w: Writer, dot: Dot, name: str, full: tuple[Axis, ...], k: Axis) -> None:
    """One step of the loop: a tile of each factor."""
    rows, cols = full
    turned = rows not in w.free(dot.a)
    if dot.parts:
        lefts, rights = (dot.a, *dot.parts[:2]), (dot.b, *dot.parts[2:])
        if turned:
            lefts, rights = rights, lefts
        left = [w.spread(w.text_of(e), (rows, k)).text for e in lefts]
        right = [w.spread(w.text_of(e), (k, cols)).text for e in rights]
        # summed apart from the accumulator: in a long chain tensor cores round towards zero
        step = w.names.fresh("step")
        w.lines.append(accumulator(step, w.shape(full), "f32"))
        multiply_parts(w, step, left, right)
        w.lines.append(f"{name} = {name} + {step}")
        return
    first, second = inside(w, (dot.b, dot.a) if turned else (dot.a, dot.b), k)
    pair = f"{w.spread(first, (rows, k)).text}, {w.spread(second, (k, cols)).text}"
    w.lines.append(f"gemm({pair}, {name}{precise(w)})")


def multiply_parts(w: Writer, name: str, left: list[str], right: list[str]) -> None:
    """Adds to ``name`` the six products of two factors of three parts each that f32 can tell."""
    for i, j in _PARTS:
        w.lines.append(f"gemm({left[i]}, {right[j]}, {name})")


def inside(w: Writer, factors: tuple[Expr, Expr], axis: Axis) -> tuple[Text, Text]:
    """Both factors; 0 past the end of the summed axis, where one would be anything else there."""
    left, right = (w.text_of(e) for e in factors)
    if all(zero_at_edge(w, e, axis) for e in factors):
        return left, right
    return keep_inside(w, left, axis), keep_inside(w, right, axis)


def zero_at_edge(w: Writer, e: Expr, axis: Axis) -> bool:
    """Is ``e`` 0 past the end of ``axis``?"""
    return axis in w.t.exact or axis not in w.t.blocks or at_edge(e, axis, {}, w.free) == 0.0


def keep_inside(w: Writer, value: Text, axis: Axis) -> Text:
    return Text(f"where({w.valid(axis, value.axes)}, {value.text}, 0.0)", value.axes)


def precise(w: Writer) -> str:
    """The last argument of a product that is no exact one."""
    return f', precision="{w.t.precision}"' if w.t.precision else ""
