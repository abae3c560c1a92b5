"""A window's sums as products of matrices in sketch text: a product for each tap and block of channels."""

from __future__ import annotations

from collections.abc import Callable

from kernellab.agents.designer.emit_window_loops import LETTERS, WindowWriter
from kernellab.agents.designer.expr import Axis
from kernellab.agents.designer.text import DTYPES, Text
from kernellab.agents.designer.windows import tap_range


class TapProductWriter(WindowWriter):
    """The sums of a tile of outputs in one accumulator; nothing is unfolded in memory."""

    def _matrices(self) -> Text:
        win, t = self.win, self.t
        gpu, first = t.core == "grididx", t.positions_first
        (c,) = win.sums
        full = self.tile_axes(self.free(win))
        (co,) = [a for a in full if a in self.free(win.b)]
        positions = [a for a in full if a is not co]
        many = "*".join(self.extent(a) for a in positions)
        shape = f"{many}, {self.extent(co)}" if first else f"{self.extent(co)}, {many}"
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
            x_text = x.text if len(positions) == 1 else f"reshape({x.text}, [{self.extent(c)}, {many}])"
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
            result = f"reshape({result}, [{', '.join(self.extent(a) for a in (co, *positions))}])"
        found = Text(result, (co, *positions))
        if self.uses.get(id(win), 0) > 1 or found.axes != full:
            found = self._named(found, "sums")
        return self._ordered_as(found, full)

    def _multiply_rows(self, x: Text, co: Axis, positions: list[Axis], name: str) -> None:
        """The product where both factors have the summed axis last."""
        (c,) = self.win.sums
        x = self._ordered_as(x, (*positions, c))
        many = "*".join(self.extent(a) for a in positions)
        x_text = x.text if len(positions) == 1 else f"reshape({x.text}, [{many}, {self.extent(c)}])"
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
        letters = dict(zip(self.win.taps, LETTERS.get(len(self.win.taps), ()), strict=False))
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
