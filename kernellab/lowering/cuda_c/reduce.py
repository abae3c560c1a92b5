"""A reduction over a tile's elements: each thread folds its elements, then the threads combine their results."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.index import flat
from kernellab.lowering.c_family.nests import Nest
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, literal, strip
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.placement import Layout, MemorySpace
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.program import DType

if TYPE_CHECKING:
    from kernellab.lowering.cuda_c.elements import Context

_OPS = {
    "reduce_sum": "Sum", "reduce_mean": "Sum", "reduce_prod": "Prod", "reduce_any": "Any", "reduce_max": "Max",
    "reduce_min": "Min", "argmax": "ArgMax", "argmin": "ArgMin",
}  # fmt: skip


class Folded(Enum):
    """Which elements of a layout one result is folded from."""

    ONE = "one: the reduced dimensions have one element"
    ALL = "all"
    ROW = "those of a row"
    COLUMN = "those of a column"


def _folded_elements(nest: Nest, group: Group) -> Folded:
    is_reduced = [d in nest.axes for d in group.dims]
    if not any(is_reduced):
        return Folded.ONE
    if all(is_reduced):
        return Folded.ALL
    return Folded.ROW if is_reduced[-1] else Folded.COLUMN


class Fold:
    """One reduction of a group: each thread folds its elements into an accumulator, one for each result that it has
    elements of."""

    def __init__(self, nest: Nest, group: Group, layout: Layout, context: Context) -> None:
        assert nest.tile is not None
        self.nest, self.tile, self.layout, self.context = nest, nest.tile, layout, context
        self.group = group
        self.over = _folded_elements(nest, group)
        self.is_arg = nest.op in ("argmax", "argmin")
        self.dtype = nest.value.type.dtype if self.is_arg else self.tile.dtype
        kind = "int32_t" if nest.op == "reduce_any" else VALUE_TYPE[self.dtype]
        self.kind = f"kl::Best<{kind}>" if self.is_arg else kind
        self.op = f"kl::{_OPS[nest.op]}()"
        self.name = context.fresh(f"{self.tile.name}_own")

    def _start(self) -> str:
        if self.is_arg:
            return "{0, -1}"
        start = OPS[self.nest.op].identity
        assert start is not None, self.nest.op
        return literal(start, DType.I32 if self.nest.op == "reduce_any" else self.dtype)

    def before(self, w: Writer) -> None:
        """Write the declaration of each thread's accumulator."""
        if self.over is Folded.ONE:
            return
        if self.over is Folded.ALL:
            w(f"{self.kind} {self.name} = {self._start()};")
            return
        w(f"{self.kind} {self.name}[{self.layout.name}::{'R' if self.over is Folded.ROW else 'C'}];")
        start = f"{self.kind}{self._start()}" if self.is_arg else self._start()
        w(f"for (auto& own : {self.name}) own = {start};")

    def update(self, text: str) -> list[str]:
        """Return the lines that fold one element in."""
        source = self.nest.value.type.dtype
        text = converted(text, source, DType.BOOL if self.nest.op == "reduce_any" else self.dtype)
        if self.over is Folded.ONE:
            return [f"{self._place(self._result_index())} = {self._finish('0' if self.is_arg else strip(text))};"]
        accumulator = self._accumulator()
        if self.is_arg:
            positions = tuple(self.group.vars[d] for d in self.nest.axes)
            position = flat(positions, tuple(self.group.domain[d] for d in self.nest.axes), self.context.ints)
            return [f"{accumulator} = {self.op}({accumulator}, {self.kind}{{{strip(text)}, int64_t({position})}});"]
        symbol = {"Sum": "+=", "Prod": "*=", "Any": "|="}.get(_OPS[self.nest.op])
        if symbol:
            return [f"{accumulator} {symbol} {strip(text)};"]
        return [f"{accumulator} = kl::{_OPS[self.nest.op].lower()}({accumulator}, {strip(text)});"]

    def _accumulator(self) -> str:
        """Return the accumulator of the current element."""
        columns = f"{self.layout.name}::C"
        match self.over:
            case Folded.ROW:
                return f"{self.name}[at / {columns}]"
            case Folded.COLUMN:
                return f"{self.name}[at % {columns} + v]"
        return self.name

    def after(self, w: Writer) -> None:
        """Combine the threads' results and store them in the tile."""
        layout, line = self.layout.name, self.nest.line
        if self.over is Folded.ALL:
            joined = f"kl::across<THREADS, THREADS>({self.name}, {self.op})"
            if self.context.spaces[self.tile.uid] is MemorySpace.UNIFORM:
                w(f"{self.context.declare(self.tile)}{self.context.name(self.tile)} = {self._finish(joined)};", line)
            else:
                w(f"{self.name} = {joined};", line)
                w(f"if (threadIdx.x == 0) {self.context.name(self.tile)}[0] = {self._finish(self.name)};")
        elif self.over is Folded.ROW:
            w("#pragma unroll")
            with w.block(f"for (int r = 0; r < {layout}::R; ++r)", line):
                w(f"const auto joined = kl::across<{layout}::LANES, THREADS>({self.name}[r], {self.op});")
                w(f"const int row = {layout}::row_at(r);")
                target = f"{self.context.name(self.tile)}[row]"
                w(f"if ({layout}::lane() == 0 && row < {layout}::ROWS) {target} = {self._finish('joined')};")
        elif self.over is Folded.COLUMN:
            w(f"kl::down<{layout}>({self.name}, {self.op}, {self.context.name(self.tile)}, {self._functor()});", line)

    def _functor(self) -> str:
        """Return :meth:`_finish` as a functor; its result is rounded when it is stored."""
        if self.is_arg:
            return "kl::Place()"
        if self.nest.op == "reduce_mean":
            return f"kl::over({self._count()})"
        return "kl::NotZero()" if self.nest.op == "reduce_any" else "kl::AsIs()"

    def _count(self) -> str:
        return " * ".join(self.context.ints.operand(self.group.domain[d]) for d in self.nest.axes) or "1"

    def _finish(self, text: str) -> str:
        """Return the tile's value from a fold's result."""
        if self.is_arg:
            text = text if self.over is Folded.ONE else f"{text}.at"
            return text if self.tile.dtype is DType.I64 else f"{VALUE_TYPE[self.tile.dtype]}({text})"
        if self.nest.op == "reduce_mean":
            text = f"{text} / {VALUE_TYPE[self.tile.dtype]}({self._count()})"
        elif self.nest.op == "reduce_any":
            text = f"{text} != 0"
        memory = MEMORY_TYPE[self.tile.dtype]
        return f"kl::rounded<{memory}>({text})" if memory != VALUE_TYPE[self.tile.dtype] else text

    def _result_index(self) -> tuple[str, ...]:
        return tuple(v for d, v in enumerate(self.group.vars) if d not in self.nest.axes or self.nest.keepdims)

    def _place(self, index: tuple[str, ...]) -> str:
        return f"{self.context.name(self.tile)}[{flat(index, self.tile.shape, self.context.ints)}]"


__all__ = ["Fold"]
