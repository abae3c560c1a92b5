"""A product of matrices as sketch text: one accumulator, and a loop over the summed axis."""

from __future__ import annotations

from kernellab.agents.designer.emit_loops import LoopWriter
from kernellab.agents.designer.expr import Axis, Dot, Expr
from kernellab.agents.designer.pads import at_edge
from kernellab.agents.designer.text import DTYPES, Text, plus
from kernellab.agents.designer.triangles import kept_triangle


class ProductWriter(LoopWriter):
    """Writes the pass of a kernel that multiplies."""

    def _product(self, red: list[Axis]) -> None:
        dot, row = self.k.dot, self.scopes[0]
        assert dot is not None
        full = self.tile_axes(self.free(dot))
        name = self.names.fresh("acc")
        shape = ", ".join(self.extent(a) for a in full)
        dtype = DTYPES[dot.dtype if dot.dtype in ("float64", "int32", "int64") else "float32"]
        row.lines.append(f'{name} = alloc([{shape}], {dtype}, llm_hint=["fastest", "accumulator", "init_zero"])')
        hint = '@llm_hint("pipeline", num_stages)' if self.t.swizzle else '@llm_hint("pipeline")'
        loops = [a for a in red if a not in self.t.whole]
        test = self._reached(dot, full)
        if test:
            row.lines.append(f"if {test}:")
        start = len(row.lines)
        self._loop(loops, lambda: self._multiply(dot, name, full, red[-1]), hint)
        if test:
            row.lines[start:] = ["    " + line for line in row.lines[start:]]
        row.known[id(dot)] = Text(name, full)
        for o in self.k.outs:
            self._store(o)

    def _reached(self, dot: Dot, full: tuple[Axis, ...]) -> str:
        """Which tiles hold an element that is kept, where the outputs keep a triangle; "" where all are wanted."""
        band = kept_triangle([o.expr for o in self.k.outs], dot)
        if band is None or {band.row, band.col} != set(full) or any(a not in self.t.blocks for a in full):
            return ""
        row, col = self.vars[band.row], self.vars[band.col]
        if band.upper:
            return f"{col} + {self.extent(band.col)} > {plus(row, band.distance)}"
        return f"{col} < {plus(f'{row} + {self.extent(band.row)}', band.distance)}"

    def _multiply(self, dot: Dot, name: str, full: tuple[Axis, ...], k: Axis) -> None:
        rows, cols = full
        if dot.parts:
            self._multiply_parts(dot, name, full, k)
            return
        a, b = dot.a, dot.b
        if rows not in self.free(a):
            a, b = b, a
        left, right = self.text_of(a), self.text_of(b)
        if not self._zero_at_edge(a, k) or not self._zero_at_edge(b, k):
            left, right = self._keep_inside(left, k), self._keep_inside(right, k)
        left, right = self.spread(left, (rows, k)), self.spread(right, (k, cols))
        precision = f', precision="{self.t.precision}"' if self.t.precision else ""
        self.scopes[-1].lines.append(f"gemm({left.text}, {right.text}, {name}{precision})")

    def _multiply_parts(self, dot: Dot, name: str, full: tuple[Axis, ...], k: Axis) -> None:
        """Six products of parts, smallest first, summed apart from the accumulator."""
        rows, cols = full
        lefts, rights = (dot.a, *dot.parts[:2]), (dot.b, *dot.parts[2:])
        if rows not in self.free(dot.a):
            lefts, rights = rights, lefts
        left = [self.spread(self.text_of(e), (rows, k)).text for e in lefts]
        right = [self.spread(self.text_of(e), (k, cols)).text for e in rights]
        step = self.names.fresh("step")
        shape = ", ".join(self.extent(a) for a in full)
        lines = self.scopes[-1].lines
        lines.append(f'{step} = alloc([{shape}], f32, llm_hint=["fastest", "accumulator", "init_zero"])')
        for i, j in ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)):
            lines.append(f"gemm({left[i]}, {right[j]}, {step})")
        lines.append(f"{name} = {name} + {step}")

    def _zero_at_edge(self, e: Expr, axis: Axis) -> bool:
        return axis in self.t.exact or axis not in self.t.blocks or at_edge(e, axis, {}, self.free) == 0.0

    def _keep_inside(self, value: Text, axis: Axis) -> Text:
        return Text(f"where({self.valid(axis, value.axes)}, {value.text}, 0.0)", value.axes)
