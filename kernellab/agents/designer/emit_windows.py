"""A window operator as sketch text: slices of the input that move with the taps, in one of two forms.

*Matrices*: for each tap and block of channels, the input under a tile of outputs is one operand of a product and that
tap's weights the other: an implicit product, nothing is unfolded in memory. *Direct*: taps of a tile of outputs are
joined one by one (pooling, depthwise). Transposed windows run by the outputs' phase (``position % stride``), each of
which reads its own taps, so that no work is spent on the zeros between.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from kernellab.agents.designer.emit import Emitter
from kernellab.agents.designer.emit_values import Scope, Tiling
from kernellab.agents.designer.expr import Axis, Expr, Ix, Leaf, Tap, Win
from kernellab.agents.designer.text import DTYPES, Text, plus
from kernellab.agents.designer.windows import phases, tap_range, taps_of

_LETTERS = {1: ("kw",), 2: ("kh", "kw"), 3: ("kd", "kh", "kw")}
#: taps whose loads are written out one by one; a C++ compiler takes long over the edges of more
UNROLLED = 32
UNROLLED_CPP = 9


def why_window(win: Win, t: Tiling) -> list[str]:
    if win.last:
        why = ["A product for each tap that is left: rows of the copy under a tile of outputs, and rows of weights."]
    elif win.packed:
        why = ["Each tap's channels are multiplied as matrices; the input is read in place, the edge rule pads it."]
    else:
        why = ["The taps of a tile of outputs are joined one by one; neighbouring reads meet in the cache."]
    if t.run:
        why.append("The weights stay on chip while a program's tiles of positions stream past.")
    if any(phases(tap) > 1 for tap in win.taps):
        why.append("Outputs of one phase (position % stride) read the same taps: no work on the zeros between.")
    return why


class WindowEmitter(Emitter):
    """Writes the kernel of one window operator."""

    def body(self) -> list[str]:
        t, k = self.t, self.k
        win = k.dot
        assert isinstance(win, Win)
        self.win = win
        order = [a for a in t.order if a in k.par]
        spatial = [tap.out for tap in win.taps if tap.out is not None]
        self._name(order, spatial)
        #: axes along which one program computes several tiles: the variable of its first
        self.runs: dict[Axis, str] = {}
        #: output axes that run by phase: stride and the phase's variable
        self.phase: dict[Axis, tuple[int, str]] = {}
        self.at_tap: dict[Tap, str] = {}
        for tap in win.taps:
            if tap.out is not None and phases(tap) > 1:
                self.phase[tap.out] = (tap.stride, self.names.fresh(f"{self.vars[tap.out]}_phase"))
        self.scopes = [Scope(frozenset())]
        #: weights that stay on chip while positions stream past, where they do
        self.held: Text | None = None
        if t.run:
            self._stream(order)
        else:
            self._finish()
        return self._window_grid(order, self.scopes[0].lines)

    def _finish(self) -> None:
        """The sums of a tile of outputs, and what is stored of them."""
        accumulated = self._matrices() if self.win.packed else self._direct()
        self.scopes[0].known[id(self.win)] = accumulated
        self.keep.append(self.win)
        for o in self.k.outs:
            self._store(o)

    def _stream(self, order: list[Axis]) -> None:
        """Tile after tile along the innermost positions; what they share is loaded once, before."""
        (c,) = self.win.sums
        inner = [a for a in order if a in self.free(self.win.a)][-1]
        outer = self.scopes[0]
        outer.lines.append(f"{self.vars[c]} = 0")
        self.held = self._load(self.win.b)
        first, block = self.names.fresh(f"{self.vars[inner]}_first"), self.t.blocks[inner]
        tile = self.names.fresh("tile")
        self.vars[inner] = f"{first} + {tile}*{block}"
        self.scopes = [Scope(frozenset())]
        self._finish()
        lines, self.scopes = self.scopes[0].lines, [outer]
        outer.lines.append('@llm_hint("pipeline", num_stages)')
        outer.lines.append(f"for {tile} in range({self.t.run}):")
        outer.lines += ["    " + line for line in lines]
        self.runs = {inner: first}

    def _name(self, order: list[Axis], spatial: list[Axis]) -> None:
        rank = len(spatial)
        letters = {1: ("ow",), 2: ("oh", "ow"), 3: ("od", "oh", "ow")}.get(rank, ())
        known = dict(zip([a for a in order if a in spatial], letters, strict=False))
        for axis in order:
            self.vars[axis] = self.names.fresh(known.get(axis) or self._letter(axis))
        for axis in self.win.sums:
            self.vars[axis] = self.names.fresh("c")

    def _letter(self, axis: Axis) -> str:
        b = self.win.b
        free_b = self.free(b) if self.win.pairs else frozenset()
        if axis in free_b:
            return "g" if axis in self.free(self.win.a) else "co"
        return super()._letter(axis)

    # -- the grid

    def _window_grid(self, order: list[Axis], body: list[str]) -> list[str]:
        weights = self.free(self.win.b) - self.free(self.win.a) if self.win.pairs else frozenset()
        # neighbouring programs share the input's tile, and differ in the output's channels
        order = [a for a in order if a not in weights] + [a for a in order if a in weights]
        heads = [f"for {self.runs.get(axis, self.vars[axis])} in {self._span(axis)}:" for axis in order]
        # the phases of one place write to the same lines of memory
        heads += [f"for {name} in range({stride}):" for stride, name in self.phase.values()]
        heads = heads or [f"for {self.names.fresh('once')} in range(1):"]
        lines: list[str] = []
        for depth, head in enumerate(heads):
            lines.append("    " * depth + f'@llm_hint("parallel", "{self.t.core}")')
            lines.append("    " * depth + head)
        return lines + ["    " * len(heads) + line for line in body]

    def _span(self, axis: Axis) -> str:
        stop = str(axis.extent)
        if axis in self.phase:
            stride = self.phase[axis][0]
            stop = str(-(-axis.extent // stride)) if isinstance(axis.extent, int) else f"ceil({stop}, {stride})"
        step = self.t.blocks.get(axis)
        if axis in self.runs:
            step = f"{self.t.run}*{step}"
        return f"range(0, {stop}, {step})" if step else f"range({stop})"

    # -- places

    def _region(self, tensor: str, index: tuple[Ix, ...]) -> tuple[str, list[Axis]]:
        items: list[str] = []
        axes: list[Axis] = []
        for ix in index:
            if ix.win is not None:
                self._item(
                    items, axes, ix.win.out, self._position(ix.win), ix.win.stride if not ix.win.transposed else 1
                )
                continue
            leaf = ix.leaves()[0] if ix.leaves() else None
            if leaf is not None and leaf in self.phase:
                stride, name = self.phase[leaf]
                self._item(items, axes, leaf, plus(f"{self.vars[leaf]}*{stride} + {name}", ix.offset), stride)
                continue
            text, found = super()._region(tensor, (ix,))
            items.append(text)
            axes += found
        return ", ".join(items) or "0", axes

    def _item(self, items: list[str], axes: list[Axis], axis: Axis | None, start: str, step: int) -> None:
        if axis is None or axis not in self.t.blocks:
            items.append(start)
            return
        extent = self._extent(axis)
        items.append(f"{start}:{start} + {extent}*{step}:{step}" if step > 1 else f"{start}:{start} + {extent}")
        axes.append(axis)

    def _position(self, tap: Tap) -> str:
        """Where in the input the first output of the tile looks at the current tap."""
        at = self.vars[tap.out] if tap.out is not None else ""
        k = self.at_tap.get(tap, "0")
        if phases(tap) > 1:
            phase = self.phase[tap.out][1] if tap.out is not None else "0"
            reach = _sum([(phase, 1), ("1", tap.pad), (k, -tap.dilation)])
            return f"{at} + ({reach}) // {tap.stride}" if at else f"({reach}) // {tap.stride}"
        if tap.transposed:
            return _sum([(at, 1), ("1", tap.pad), (k, -tap.dilation)])
        return _sum([(at, tap.stride), (k, tap.dilation), ("1", -tap.pad)])

    def _iota(self, e) -> Text:  # type: ignore[no-untyped-def]
        leaves = e.index.leaves()
        if leaves and leaves[0] in self.phase:
            stride, name = self.phase[leaves[0]]
            here = self.vars[leaves[0]]
            if leaves[0] in self.t.blocks:
                return Text(f"({here} + arange({self._extent(leaves[0])}))*{stride} + {name}", (leaves[0],), 5)
            return Text(f"{here}*{stride} + {name}", (), 5)
        return super()._iota(e)

    # -- taps

    def _loops(self, taps: list[Tap], body: Callable[[], None]) -> None:
        """Loops over ``taps`` and over blocks of the summed channels, around what ``body`` writes."""
        letters = dict(zip(self.win.taps, _LETTERS.get(len(self.win.taps), ()), strict=False))
        heads: list[str] = []
        for tap in taps:
            name = self.names.fresh(letters.get(tap, "k"))
            self._set_tap(tap, name)
            phase = self.phase[tap.out][1] if tap.out in self.phase else "0"
            start, step = tap_range(tap, phase)
            if step == 1 and start == "0":
                heads.append(f"for {name} in range({tap.kernel}):")
            else:
                heads.append(f"for {name} in range({start}, {tap.kernel}, {step}):")
        for axis in self.win.sums:
            block = self.t.blocks.get(axis)
            span = f"range(0, {axis.extent}, {block})" if block else f"range({axis.extent})"
            heads.append(f"for {self.vars[axis]} in {span}:")
        self._nest(heads, body)

    def _nest(self, heads: list[str], body: Callable[[], None], hint: str = "") -> None:
        if not heads:
            body()
            return
        inner = Scope(frozenset())
        self.scopes.append(inner)
        self._nest(heads[1:], body, hint)
        self.scopes.pop()
        lines = self.scopes[-1].lines
        if hint and len(heads) == 1:
            lines.append(hint)
        lines.append(heads[0])
        lines += ["    " + line for line in inner.lines]

    def _set_tap(self, tap: Tap, text: str) -> None:
        self.at_tap[tap] = text
        if tap.k is not None:
            self.vars[tap.k] = text

    def _moving(self) -> list[Tap]:
        """Taps with a choice: more than one, or (by phase) one or none."""
        return [tap for tap in self.win.taps if tap.kernel > 1 or phases(tap) > 1]

    def _load(self, e: Expr, pad: str = "") -> Text:
        """A load at the current taps, never kept for other ones."""
        assert isinstance(e, Leaf)
        region, loaded = self._region(e.tensor, e.index)
        name = self.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
        self.scopes[-1].lines.append(f"load({e.tensor}[{region}] -> {name}{pad})")
        return Text(name, tuple(loaded))

    # -- taps joined one by one

    def _direct(self) -> Text:
        win = self.win
        axes = self._tile_axes(self.free(win))
        moving, count = self._moving(), 1
        most = UNROLLED if self.t.core == "grididx" else UNROLLED_CPP
        written: list[Tap] = []
        for tap in reversed(moving):
            if phases(tap) > 1 or count * tap.kernel > most:
                break
            written.insert(0, tap)
            count *= tap.kernel
        looped = [tap for tap in moving if tap not in written]
        name = self.names.fresh("best" if win.join == "max" else "acc")
        shape = [self._extent(a) for a in axes]
        dtype = DTYPES[win.dtype if win.dtype == "float64" else "float32"]
        self.scopes[0].lines.append(f"{name} = {self._filled(shape, '-inf' if win.join == 'max' else '0', dtype)}")
        self._loops(looped, lambda: self._join(name, written, axes))
        return Text(name, axes)

    def _join(self, name: str, written: list[Tap], axes: tuple[Axis, ...]) -> None:
        rows = written[:-1]
        for outer in product(*(range(tap.kernel) for tap in rows)):
            terms = []
            for inner in range(written[-1].kernel) if written else (0,):
                for tap, at in zip(written, (*outer, inner), strict=False):
                    self._set_tap(tap, str(at))
                terms.append(self._term(axes))
            lines = self.scopes[-1].lines
            if self.win.join == "max":
                while len(terms) > 1:
                    terms = [f"max({', '.join(terms[i : i + 2])})" if i + 1 < len(terms) else terms[i]
                             for i in range(0, len(terms), 2)]  # fmt: skip
                lines.append(f"{name} = max({name}, {terms[0]})")
            else:
                lines.append(f"{name} = {' + '.join([name, *terms])}")

    def _term(self, axes: tuple[Axis, ...]) -> str:
        x = self._load(self.win.a, ", pad=-inf" if self.win.join == "max" else "")
        value = self._ordered_as(x, tuple(a for a in axes if a in x.axes))
        if not self.win.pairs:
            return self._spread(value, axes).text
        w = self._load(self.win.b)
        return f"{self._spread(value, axes).text}*{self._spread(w, axes).text}"

    def _ordered_as(self, value: Text, axes: tuple[Axis, ...]) -> Text:
        if value.axes == axes:
            return value
        turned = self.names.fresh(f"{value.text}_turned")
        perm = ", ".join(str(value.axes.index(a)) for a in axes)
        self.scopes[-1].lines.append(f"{turned} = transpose({value.text}, perm=[{perm}])")
        return Text(turned, axes)

    # -- products of matrices

    def _matrices(self) -> Text:
        win, t = self.win, self.t
        gpu, first = t.core == "grididx", t.positions_first
        (c,) = win.sums
        full = self._tile_axes(self.free(win))
        (co,) = [a for a in full if a in self.free(win.b)]
        positions = [a for a in full if a is not co]
        many = "*".join(self._extent(a) for a in positions)
        shape = f"{many}, {self._extent(co)}" if first else f"{self._extent(co)}, {many}"
        name = self.names.fresh("acc")
        dtype = DTYPES[win.dtype if win.dtype == "float64" else "float32"]
        row = self.scopes[0]
        row.lines.append(f'{name} = alloc([{shape}], {dtype}, llm_hint=["fastest", "accumulator", "init_zero"])')

        def multiply() -> None:
            x = self._load(win.a)
            if win.last:
                self._multiply_rows(x, co, positions, name)
                return
            x = self._ordered_as(x, (c, *positions))
            x_text = x.text if len(positions) == 1 else f"reshape({x.text}, [{self._extent(c)}, {many}])"
            w = self._ordered_as(self.held or self._load(win.b), (co, c))
            precision = f', precision="{t.precision}"' if t.precision != "ieee" else ""
            pair = f"transpose({x_text}), transpose({w.text})" if first else f"{w.text}, {x_text}"
            self.scopes[-1].lines.append(f"gemm({pair}, {name}{precision})")

        if self.held is not None:
            multiply()
        elif gpu:
            self._one_loop(c, multiply)
        else:
            self._loops(self._moving(), multiply)
        result = f"transpose({name})" if first else name
        if len(positions) > 1:
            result = f"reshape({result}, [{', '.join(self._extent(a) for a in (co, *positions))}])"
        found = Text(result, (co, *positions))
        if self.uses.get(id(win), 0) > 1 or found.axes != full:
            found = self._named(found, "sums")
        return self._ordered_as(found, full)

    def _multiply_rows(self, x: Text, co: Axis, positions: list[Axis], name: str) -> None:
        """The product where both factors have the summed axis last."""
        (c,) = self.win.sums
        x = self._ordered_as(x, (*positions, c))
        many = "*".join(self._extent(a) for a in positions)
        x_text = x.text if len(positions) == 1 else f"reshape({x.text}, [{many}, {self._extent(c)}])"
        w = self._ordered_as(self._load(self.win.b), (co, c))
        precision = f', precision="{self.t.precision}"' if self.t.precision != "ieee" else ""
        pair = f"{x_text}, transpose({w.text})" if self.t.positions_first else f"{w.text}, transpose({x_text})"
        self.scopes[-1].lines.append(f"gemm({pair}, {name}{precision})")

    def _one_loop(self, c: Axis, multiply: Callable[[], None]) -> None:
        """Taps and blocks of channels as one loop, which the hardware's pipeline runs through without a stop."""
        moving = self._moving()
        block = self.t.blocks[c]
        hint = '@llm_hint("pipeline", num_stages)'
        if not moving:
            self._nest([f"for {self.vars[c]} in range(0, {c.extent}, {block}):"], multiply, hint)
            return
        letters = dict(zip(self.win.taps, _LETTERS.get(len(self.win.taps), ()), strict=False))
        blocks = f"ceil({c.extent}, {block})"
        single = self.t.whole_channels
        row, counts, lets = self.scopes[0], {}, []
        step = self.names.fresh("step")
        for tap in moving:
            name = self.names.fresh(letters.get(tap, "k"))
            self._set_tap(tap, name)
            phase = self.phase[tap.out][1] if tap.out in self.phase else "0"
            start, stride = tap_range(tap, phase)
            count = str(tap.kernel)
            if start != "0":
                first, taps = self.names.fresh(f"{name}_first"), self.names.fresh(f"{name}_taps")
                row.lines.append(f"{first} = {start}")
                row.lines.append(f"{taps} = max(0, ceil({tap.kernel} - {first}, {stride}))")
                start, count = first, taps
            counts[tap] = (count, start, stride)
        at = step if single else f"{step} // {blocks}"
        for n, tap in enumerate(reversed(moving)):
            count, start, stride = counts[tap]
            here = f"({at})" if " " in at and stride != 1 else at
            last = n == len(moving) - 1
            value = at if last else f"({at}) % {count}" if " " in at else f"{at} % {count}"
            if last and stride != 1:
                value = f"({here})*{stride}" if here == at and " " in at else f"{here}*{stride}"
            elif stride != 1:
                value = f"({value})*{stride}"
            lets.append(f"{self.at_tap[tap]} = {value}" + (f" + {start}" if start != "0" else ""))
            at = f"({at}) // {count}" if " " in at else f"{at} // {count}"
        total = "*".join(counts[tap][0] for tap in moving)
        if single:
            row.lines.append(f"{self.vars[c]} = 0")
        else:
            lets.append(f"{self.vars[c]} = ({step} % {blocks})*{block}")
            total = f"{total}*{blocks}"

        def body() -> None:
            self.scopes[-1].lines.extend(lets)
            multiply()

        self._nest([f"for {step} in range({total}):"], body, hint)


def _sum(terms: list[tuple[str, int]]) -> str:
    """``a*x + b*y - c`` without what adds nothing; numbers fold."""
    constant, text = 0, ""
    for name, factor in terms:
        if not name or not factor or name == "0":
            continue
        if name.isdigit():
            constant += int(name) * factor
            continue
        part = name if abs(factor) == 1 else f"{name}*{abs(factor)}"
        text = f"{text} {'-' if factor < 0 else '+'} {part}" if text else part if factor > 0 else f"0 - {part}"
    if not text:
        return str(constant)
    return plus(text, constant)


__all__ = ["WindowEmitter", "taps_of", "why_window"]
