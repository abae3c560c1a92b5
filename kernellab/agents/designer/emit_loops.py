"""The loops of a kernel as sketch text: the grid of its parallel axes, and nests around what a writer adds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from kernellab.agents.designer import extents
from kernellab.agents.designer.emit_values import Scope, ValueWriter
from kernellab.agents.designer.expr import Axis
from kernellab.agents.designer.puts import slice_axes


class LoopWriter(ValueWriter, ABC):
    """Adds loops to the writer of values; a tiled axis runs in steps of its tile."""

    @abstractmethod
    def body(self) -> list[str]:
        """The lines of the kernel's body, indented from the left margin."""

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
        if self.k.chunk is not None and axis is first and axis in self.counters:
            # pieces are walked from the end, past the edge of the last one too
            return f"range(0, {self.t.chunk}, {step})" if step else f"range({self.t.chunk})"
        if self.k.chunk is not None and axis is first:
            at = f"{self.vars[self.k.chunk]}*{self.t.chunk}"
            stop = f"min({at} + {self.t.chunk}, {axis.extent})"
            return f"range({at}, {stop}, {step})" if step else f"range({at}, {stop})"
        return f"range(0, {axis.extent}, {step})" if step else f"range({axis.extent})"

    def _last(self, axis: Axis) -> str:
        """Where the last tile of an axis starts that is walked from its end."""
        step = self.t.blocks.get(axis)
        if self.k.chunk is not None:
            at = self.vars[self.k.chunk]
            return f"{at}*{self.t.chunk} + {self.t.chunk} - {step or 1}"
        if not step:
            return str(extents.add(axis.extent, -1))
        stop = f"{axis.extent}" if axis in self.t.exact else f"ceil({axis.extent}, {step})*{step}"
        return f"{stop} - {step}"

    def _letter(self, axis: Axis) -> str:
        text = str(axis.extent)
        if text.isidentifier() and text.upper() == text:
            return text.lower()
        position = self.t.order.index(axis) if axis in self.t.order else 0
        return "chunk" if axis is self.k.chunk else "ijkabcdefgh"[position % 11]

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

    def _filled(self, shape: list[str], value: str, dtype: str) -> str:
        return f"full([{', '.join(shape)}], {value}, {dtype})" if shape else f"cast({value}, {dtype})"
