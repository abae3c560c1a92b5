"""One kernel of the plan as sketch text.

The kernel's parallel axes become parallel loops, its reduced axes sequential loops; an axis that is tiled contributes a
slice instead. Reductions that need earlier ones run in a later pass over the reduced axes, unless the whole row is one
tile. Values that a loop does not change are computed outside it.
"""

from __future__ import annotations

from collections.abc import Callable

from kernellab.agents.designer.emit_values import Scope, Tiling, ValueWriter, compute_dtype, identity
from kernellab.agents.designer.expr import Axis, Dot, Expr, Op, Order, Red, Scan, walk
from kernellab.agents.designer.normal import Output
from kernellab.agents.designer.orders import define_order
from kernellab.agents.designer.pads import at_edge
from kernellab.agents.designer.puts import slice_axes
from kernellab.agents.designer.text import DTYPES, Text, plus
from kernellab.agents.designer.triangles import kept_triangle
from kernellab.errors import DesignError


class Emitter(ValueWriter):
    """Writes the loops, passes and scans of one kernel."""

    # -- the whole kernel

    def body(self) -> list[str]:
        """The lines of the kernel's body, indented from the left margin."""
        t, k = self.t, self.k
        par = [a for a in t.order if a in k.par and a not in t.whole]
        red = [a for a in t.order if a in k.red]
        for axis in (*par, *red):
            self.vars[axis] = self.names.fresh(self._letter(axis))
            if k.scans and k.scans[0].reverse and axis in k.scans[0].axes and axis not in t.blocks:
                # a reverse scan walks its axis from the end
                self.counters[axis] = self.vars[axis]
                last = axis.extent - 1 if isinstance(axis.extent, int) else f"{axis.extent} - 1"
                self.vars[axis] = f"{last} - {self.vars[axis]}"
        row = Scope(frozenset(a for a in red if a in t.whole))
        self.scopes = [row]
        if k.dot is not None:
            self._product(red)
        elif k.scans:
            self._passes(red, scan=True)
        else:
            self._passes(red, scan=False)
        return self._grid(par, row.lines)

    def _grid(self, par: list[Axis], body: list[str]) -> list[str]:
        lines: list[str] = []
        adds = self.t.core == "coreidx" and any(o.put == "add" for o in self.k.outs)
        keeps = set(slice_axes(self.k)) if adds else set()
        if keeps & set(par):
            # additions in order: iterations that run at once have columns of their own
            body = self._in_order([a for a in par if a not in keeps], body)
            par = [a for a in par if a in keeps]
        dims = {1: ("",), 2: (".y", ".x"), 3: (".z", ".y", ".x")}.get(len(par), ("",) * len(par))
        for depth, (axis, dim) in enumerate(zip(par, dims, strict=True)):
            hint = f'"parallel", "{self.t.core}{dim if self.t.core == "grididx" else ""}"'
            if self.t.swizzle and axis is par[-1]:
                hint += f', "swizzle", {self.t.swizzle}'
            lines.append("    " * depth + f"@llm_hint({hint})")
            lines.append("    " * depth + f"for {self.vars[axis]} in {self._range(axis)}:")
        depth = len(par)
        if not par:
            name = self.names.fresh("once")
            lines += [f'@llm_hint("parallel", "{self.t.core}")', f"for {name} in range(1):"]
            depth = 1
        return lines + ["    " * depth + line for line in body]

    def _in_order(self, axes: list[Axis], body: list[str]) -> list[str]:
        for axis in reversed(axes):
            body = [f"for {self.vars[axis]} in {self._range(axis)}:", *("    " + line for line in body)]
        return body

    def _range(self, axis: Axis) -> str:
        if axis is self.k.chunk:
            return f"range({axis.extent})"
        step = self.t.blocks.get(axis)
        first = next((a for a in self.t.order if a in self.k.red), None)
        if self.k.chunk is not None and axis is first:
            at = f"{self.vars[self.k.chunk]}*{self.t.chunk}"
            stop = f"min({at} + {self.t.chunk}, {axis.extent})"
            return f"range({at}, {stop}, {step})" if step else f"range({at}, {stop})"
        return f"range(0, {axis.extent}, {step})" if step else f"range({axis.extent})"

    def _letter(self, axis: Axis) -> str:
        text = str(axis.extent)
        if text.isidentifier() and text.upper() == text:
            return text.lower()
        position = self.t.order.index(axis) if axis in self.t.order else 0
        return "chunk" if axis is self.k.chunk else "ijkabcdefgh"[position % 11]

    # -- passes

    def _passes(self, red: list[Axis], scan: bool) -> None:
        loops = [a for a in red if a not in self.t.whole]
        levels = self._levels()
        for level in range(max(levels.values(), default=-1) + 1):
            group = [r for r in self.k.reds if levels[id(r)] == level]
            self._pads_for(group, loops)
            if loops:
                self._pass(group, loops)
            else:
                for r in group:
                    self._define(r, self.scopes[0], self._reduced(r), self._title(r))
                self._forget_cheap()
        self.pads = {}
        tail = [o for o in self.k.outs if scan or self._varies(o)]
        if scan:
            self._scan_pass(tail, loops)
        elif tail and loops:
            self._loop(loops, lambda: self._store_all(tail))
        else:
            for o in tail:
                self._store(o)
        for o in self.k.outs:
            if o not in tail:
                self._store(o)

    def _forget_cheap(self) -> None:
        """On a CPU one addition costs less than a row of results kept for the next pass: make it again there."""
        if self.t.core != "coreidx":
            return
        known = self.scopes[0].known
        for e in self.keep:
            wide = isinstance(e, Op) and e.op in ("add", "sub", "mul") and bool(self.free(e) & self.k.red)
            if wide and not any(isinstance(a, Op) and self.free(a) & self.k.red for a in e.args):  # type: ignore[union-attr]
                known.pop(id(e), None)

    def _store_all(self, outs: list[Output]) -> None:
        for o in outs:
            self._store(o)

    def _varies(self, o: Output) -> bool:
        axes = {leaf for ix in o.index for leaf in ix.leaves()}
        return bool(axes & self.k.red)

    def _levels(self) -> dict[int, int]:
        levels: dict[int, int] = {}
        for r in self._ordered():
            inside = [x for x in walk(r, inside=True) if isinstance(x, Red) and x is not r and id(x) in levels]
            levels[id(r)] = 1 + max((levels[id(x)] for x in inside), default=-1)
        return levels

    def _ordered(self) -> list[Red]:
        mine = {id(r): r for r in self.k.reds}
        order: list[Red] = []
        seen: dict[int, object] = {}
        for r in self.k.reds:
            order += [x for x in walk(r, seen) if id(x) in mine]  # type: ignore[misc]
        return order

    def _loop(
        self, loops: list[Axis], body: Callable[[], None], hint: str = "", ranges: dict[Axis, str] | None = None
    ) -> None:
        """Nest ``loops`` in the current scope around what ``body()`` writes."""
        axis, *rest = loops
        inner = Scope(self.scopes[-1].axes | {axis})
        self.scopes.append(inner)
        if rest:
            self._loop(rest, body, hint, ranges)
        else:
            body()
        self.scopes.pop()
        lines = self.scopes[-1].lines
        if hint and not rest:
            lines.append(hint)
        span = (ranges or {}).get(axis) or self._range(axis)
        lines.append(f"for {self.counters.get(axis, self.vars[axis])} in {span}:")
        lines += ["    " + line for line in inner.lines]

    def _pass(self, group: list[Red], loops: list[Axis]) -> None:
        row = self.scopes[0]
        accumulators: dict[int, tuple[str, str]] = {}
        for r in group:
            name = self.names.fresh(self._title(r))
            best = self.names.fresh(f"{name}_value") if r.kind.startswith("arg") else ""
            self._initialise(r, name, best, row)
            accumulators[id(r)] = (name, best)

        def body() -> None:
            for r in group:
                self._accumulate(r, *accumulators[id(r)], loops)

        self._loop(loops, body)
        for r in group:
            name, best = accumulators[id(r)]
            if self._by_lanes(r):
                final = self.names.fresh(self._title(r))
                row.lines.append(f"{final} = {self._reduce_call(r, Text(name, self._lane_axes(r)))}")
                name = final
            row.known[id(r)] = Text(name, self._kept(r))
            self.keep.append(r)

    def _by_lanes(self, r: Red) -> bool:
        return self.t.lanes and r.kind in ("sum", "max", "min", "prod") and self._lane_axes(r) != self._kept(r)

    def _initialise(self, r: Red, name: str, best: str, row: Scope) -> None:
        dtype = DTYPES[r.dtype]
        shape = [self._extent(a) for a in (self._lane_axes(r) if self._by_lanes(r) else self._kept(r))]
        if r.kind == "any":
            row.lines.append(f"{name} = {self._filled(shape, '0', 'i32')}")
            return
        if best:
            worst = "-inf" if r.kind == "argmax" else "inf"
            row.lines.append(f"{best} = {self._filled(shape, worst, DTYPES[compute_dtype(r.arg.dtype)])}")
            row.lines.append(f"{name} = {self._filled(shape, '0', 'i64')}")
            return
        row.lines.append(f"{name} = {self._filled(shape, identity(r), dtype)}")

    def _filled(self, shape: list[str], value: str, dtype: str) -> str:
        return f"full([{', '.join(shape)}], {value}, {dtype})" if shape else f"cast({value}, {dtype})"

    def _accumulate(self, r: Red, name: str, best: str, loops: list[Axis]) -> None:
        scope = self.scopes[-1]
        arg = self._masked(r)
        tiled = [a for a in self._lane_axes(r) if a in r.axes]
        if best:
            self._accumulate_at(r, name, best, arg, tiled)
            return
        if r.kind == "any":
            value = Text(f"cast({arg.text}, i32)", arg.axes)
            part = self._reduce_call(r, value, "reduce_max") if tiled else value.text
            scope.lines.append(f"{name} = max({name}, {part})")
            return
        if self._by_lanes(r):
            value = self._spread(arg, self._lane_axes(r))
        else:
            value = Text(self._reduce_call(r, arg)) if tiled else self._spread(arg, self._kept(r))
        scope.lines.append(f"{name} = {_joined(r.kind, name, value)}")

    def _accumulate_at(self, r: Red, name: str, best: str, arg: Text, tiled: list[Axis]) -> None:
        """Keep the best value and where it was first; a NaN beats everything, once."""
        scope = self.scopes[-1]
        if len(r.axes) != 1:
            raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
        axis = r.axes[0]
        here, at = self.names.fresh("best"), self.vars[axis]
        better = self.names.fresh("better")
        if tiled:
            named = self._named(arg, "candidates")
            word = "reduce_max" if r.kind == "argmax" else "reduce_min"
            scope.lines.append(f"{here} = {self._reduce_call(r, named, word)}")
            at = f"{self._reduce_call(r, named)} + {at}"
        else:
            scope.lines.append(f"{here} = {arg.text}")
        sign = ">" if r.kind == "argmax" else "<"
        scope.lines.append(
            f"{better} = logical_or({here} {sign} {best}, logical_and(isnan({here}), logical_not(isnan({best}))))"
        )
        scope.lines.append(f"{name} = where({better}, {at}, {name})")
        scope.lines.append(f"{best} = where({better}, {here}, {best})")

    # -- scans

    def _scan_pass(self, outs: list[Output], loops: list[Axis]) -> None:
        scans = self.k.scans
        axis = scans[0].axes[0]
        reverse = scans[0].reverse
        row = self.scopes[0]
        if isinstance(scans[0], Order):
            define_order(self, [s for s in scans if isinstance(s, Order)], row)
            for o in outs:
                self._store(o)
            return
        if not loops:
            for s in scans:
                self._define(s, row, self._scanned(s, None), s.kind)
            for o in outs:
                self._store(o)
            return
        carries = {}
        for s in scans:
            carries[id(s)] = name = self.names.fresh("carry")
            kept = [self._extent(a) for a in self._tile_axes(self.free(s)) if a is not axis]
            row.lines.append(f"{name} = {self._filled(kept, _SCAN_START[s.kind], DTYPES[s.dtype])}")

        def body() -> None:
            for s in scans:
                self._scan_step(s, carries[id(s)], axis)
            for o in outs:
                self._store(o)

        self._loop(loops, body)
        if reverse:
            assert loops == [axis]

    def _scan_step(self, s: Scan, carry: str, axis: Axis) -> None:
        scope = self.scopes[-1]
        join = _SCAN_JOIN[s.kind]
        if axis not in self.t.blocks:
            value = self._text(s.arg)
            joined = _joined(join, carry, self._spread(value, tuple(a for a in self._tile_axes(self.free(s)))))
            scope.lines.append(f"{carry} = {joined}")
            scope.known[id(s)] = Text(carry, tuple(a for a in self._tile_axes(self.free(s))))
            self.keep.append(s)
            return
        full = tuple(self._tile_axes(self.free(s)))
        arg = self._named(self._text(s.arg), "items")
        dim = full.index(axis)
        kept = tuple(a for a in full if a is not axis)
        before = self._spread(Text(carry, kept), full).text
        if s.reverse:
            total = self.names.fresh("block_total")
            scope.lines.append(f"{total} = reduce_sum({arg.text}, axis={dim})")
            inner = f"{self._spread(Text(total, kept), full).text} - cumsum({arg.text}, axis={dim}) + {arg.text}"
        else:
            inner = f"{s.kind}({arg.text}, axis={dim})"
        name = self.names.fresh("running")
        scope.lines.append(f"{name} = {_joined(join, before, Text(inner, full, 5))}")
        word = {"sum": "reduce_sum", "prod": "reduce_prod", "max": "reduce_max", "min": "reduce_min"}[join]
        scope.lines.append(f"{carry} = {_joined(join, carry, Text(f'{word}({arg.text}, axis={dim})'))}")
        scope.known[id(s)] = Text(name, full)
        self.keep.append(s)

    def _scanned(self, s: Scan, _: None) -> Text:
        full = tuple(self._tile_axes(self.free(s)))
        dim = full.index(s.axes[0])
        arg = self._text(s.arg)
        if not s.reverse:
            return Text(f"{s.kind}({arg.text}, axis={dim})", full)
        items = self._named(arg, "items")
        total = f"reduce_sum({items.text}, axis={dim}, keepdims=true)"
        return Text(f"{total} - cumsum({items.text}, axis={dim}) + {items.text}", full, 5)

    # -- matrix products

    def _product(self, red: list[Axis]) -> None:
        dot, row = self.k.dot, self.scopes[0]
        assert dot is not None
        full = tuple(self._tile_axes(self.free(dot)))
        name = self.names.fresh("acc")
        shape = ", ".join(self._extent(a) for a in full)
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
            return f"{col} + {self._extent(band.col)} > {plus(row, band.distance)}"
        return f"{col} < {plus(f'{row} + {self._extent(band.row)}', band.distance)}"

    def _multiply(self, dot: Dot, name: str, full: tuple[Axis, ...], k: Axis) -> None:
        rows, cols = full
        if dot.parts:
            self._multiply_parts(dot, name, full, k)
            return
        a, b = dot.a, dot.b
        if rows not in self.free(a):
            a, b = b, a
        left, right = self._text(a), self._text(b)
        if not self._zero_at_edge(a, k) or not self._zero_at_edge(b, k):
            left, right = self._keep_inside(left, k), self._keep_inside(right, k)
        left, right = self._spread(left, (rows, k)), self._spread(right, (k, cols))
        precision = f', precision="{self.t.precision}"' if self.t.precision else ""
        self.scopes[-1].lines.append(f"gemm({left.text}, {right.text}, {name}{precision})")

    def _multiply_parts(self, dot: Dot, name: str, full: tuple[Axis, ...], k: Axis) -> None:
        """Six products of parts, smallest first, summed apart from the accumulator."""
        rows, cols = full
        lefts, rights = (dot.a, *dot.parts[:2]), (dot.b, *dot.parts[2:])
        if rows not in self.free(dot.a):
            lefts, rights = rights, lefts
        left = [self._spread(self._text(e), (rows, k)).text for e in lefts]
        right = [self._spread(self._text(e), (k, cols)).text for e in rights]
        step = self.names.fresh("step")
        shape = ", ".join(self._extent(a) for a in full)
        lines = self.scopes[-1].lines
        lines.append(f'{step} = alloc([{shape}], f32, llm_hint=["fastest", "accumulator", "init_zero"])')
        for i, j in ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)):
            lines.append(f"gemm({left[i]}, {right[j]}, {step})")
        lines.append(f"{name} = {name} + {step}")

    def _zero_at_edge(self, e: Expr, axis: Axis) -> bool:
        return axis in self.t.exact or axis not in self.t.blocks or at_edge(e, axis, {}, self.free) == 0.0

    def _keep_inside(self, value: Text, axis: Axis) -> Text:
        return Text(f"where({self._valid(axis, value.axes)}, {value.text}, 0.0)", value.axes)


_SCAN_START = {"cumsum": "0", "cumprod": "1", "cummax": "-inf", "cummin": "inf"}
_SCAN_JOIN = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


def _joined(kind: str, name: str, value: Text) -> str:
    if kind == "sum":
        return f"{name} + {value.wrap(6)}"
    if kind == "prod":
        return f"{name} * {value.wrap(7)}"
    return f"{kind}({name}, {value.text})"


__all__ = ["Emitter", "Tiling"]
