"""One kernel of the plan as sketch text.

The kernel's parallel axes become parallel loops, its reduced axes sequential loops; an axis that is tiled contributes a
slice instead. Reductions that need earlier ones run in a later pass over the reduced axes, unless the whole row is one
tile. Values that a loop does not change are computed outside it.
"""

from __future__ import annotations

from kernellab.agents.designer.emit_products import ProductWriter
from kernellab.agents.designer.emit_scans import ScanWriter
from kernellab.agents.designer.emit_values import Scope, compute_dtype, identity, joined
from kernellab.agents.designer.expr import Axis, Op, Red, walk
from kernellab.agents.designer.normal import Output
from kernellab.agents.designer.text import DTYPES, Text
from kernellab.errors import DesignError


class Emitter(ScanWriter, ProductWriter):
    """Writes a kernel of reductions, scans or a product in passes over its reduced axes."""

    def body(self) -> list[str]:
        t, k = self.t, self.k
        par = [a for a in t.order if a in k.par and a not in t.whole]
        red = [a for a in t.order if a in k.red]
        for axis in (*par, *red):
            self.vars[axis] = self.names.fresh(self._letter(axis))
            if k.scans and k.scans[0].reverse and axis in k.scans[0].axes:
                # a reverse scan walks its axis from the end
                self.counters[axis] = self.vars[axis]
                self.vars[axis] = f"{self._last(axis)} - {self.vars[axis]}"
        row = Scope(frozenset(a for a in red if a in t.whole))
        self.scopes = [row]
        if k.dot is not None:
            self._product(red)
        elif k.scans:
            self._passes(red, scan=True)
        else:
            self._passes(red, scan=False)
        return self._grid(par, row.lines)

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

    def _pass(self, group: list[Red], loops: list[Axis]) -> None:
        row = self.scopes[0]
        accumulators: dict[int, tuple[str, str]] = {}
        found_with = self._found_with(group)
        group = [r for r in group if r not in found_with.values()]
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
            if best and self._by_lanes(r):
                name = self._first_of_lanes(r, name, best, found_with.get(id(r)))
            elif self._by_lanes(r):
                final = self.names.fresh(self._title(r))
                row.lines.append(f"{final} = {self._reduce_call(r, Text(name, self._lane_axes(r)))}")
                name = final
            row.known[id(r)] = Text(name, self._kept(r))
            self.keep.append(r)

    def _by_lanes(self, r: Red) -> bool:
        kinds = ("sum", "max", "min", "prod", "argmax", "argmin")
        return self.t.lanes and r.kind in kinds and self._lane_axes(r) != self._kept(r)

    def _found_with(self, group: list[Red]) -> dict[int, Red]:
        """The largest or smallest values that are found beside their places, by the search for the places."""
        searches = [r for r in group if r.kind.startswith("arg") and self._by_lanes(r)]
        pairs = ((s, r) for s in searches for r in group if r.kind == s.kind[3:] and r.arg is s.arg)
        return {id(s): r for s, r in pairs}

    def _first_of_lanes(self, r: Red, name: str, best: str, value: Red | None) -> str:
        """The first place of the best value, of every lane's own best and where that was met; ``value``: that best."""
        row, lanes, axis = self.scopes[0], self._lane_axes(r), r.axes[0]
        word = "reduce_max" if r.kind == "argmax" else "reduce_min"
        last, final = self.names.fresh(f"{best}2"), self.names.fresh(self._title(r))
        row.lines.append(f"{last} = {self._reduce_call(r, Text(best, lanes), word)}")
        if value is not None:
            row.known[id(value)] = Text(last, self._kept(r))
            self.keep.append(value)
        equal = f"{best} == {self.spread(Text(last, self._kept(r)), lanes).text}"
        places = self.spread(Text(f"arange({self.extent(axis)})", (axis,)), lanes).text
        chosen = f"where(logical_or({equal}, isnan({best})), {name} + {places}, {2**31 - 1})"
        row.lines.append(f"{final} = {self._reduce_call(r, Text(chosen, lanes), 'reduce_min')}")
        return final

    def _initialise(self, r: Red, name: str, best: str, row: Scope) -> None:
        dtype = DTYPES[r.dtype]
        shape = [self.extent(a) for a in (self._lane_axes(r) if self._by_lanes(r) else self._kept(r))]
        if r.kind == "any":
            row.lines.append(f"{name} = {self._filled(shape, '0', 'i32')}")
            return
        if best:
            row.lines.append(f"{best} = {self._filled(shape, identity(r), DTYPES[compute_dtype(r.arg.dtype)])}")
            # a narrow place leaves registers for the elements
            narrow = self._by_lanes(r) and all(isinstance(a.extent, int) and a.extent < 2**31 for a in r.axes)
            row.lines.append(f"{name} = {self._filled(shape, '0', 'i32' if narrow else 'i64')}")
            return
        row.lines.append(f"{name} = {self._filled(shape, identity(r), dtype)}")

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
            value = self.spread(arg, self._lane_axes(r))
        else:
            value = Text(self._reduce_call(r, arg)) if tiled else self.spread(arg, self._kept(r))
        scope.lines.append(f"{name} = {joined(r.kind, name, value)}")

    def _accumulate_at(self, r: Red, name: str, best: str, arg: Text, tiled: list[Axis]) -> None:
        """Keep the best value and where it was first; a NaN beats everything, once."""
        scope = self.scopes[-1]
        if len(r.axes) != 1:
            raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
        axis = r.axes[0]
        here, at = self.names.fresh("best"), self.vars[axis]
        better = self.names.fresh("better")
        if self._by_lanes(r):
            here = self._named(arg, "candidates").text
        elif tiled:
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


__all__ = ["Emitter"]
