"""A reduction inside a loop nest: the place, the update and the end of its accumulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernellab.lowering.c_family.fuse import Place
from kernellab.lowering.c_family.index import ZERO, align, flat, wrap
from kernellab.lowering.c_family.nests import Nest
from kernellab.lowering.c_family.scalar import place
from kernellab.lowering.c_family.types import VALUE_TYPE, converted, literal, strip
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.program import DType

if TYPE_CHECKING:
    from kernellab.lowering.cpp.group import GroupEmitter

_WORDS = {
    "reduce_sum": "kl::Sum", "reduce_mean": "kl::Sum", "reduce_prod": "kl::Prod", "reduce_any": "kl::Any",
    "reduce_max": "kl::Max", "reduce_min": "kl::Min",
}  # fmt: skip
#: the number of a scratch buffer: above those that kernel.py (KernelEmitter) counts
_SLOT = "__COUNTER__ + 1000"
#: operators of OpenMP's reduction clause
_CLAUSE = {"reduce_sum": "+", "reduce_mean": "+", "reduce_prod": "*", "reduce_any": "|"}


class Reduction:
    """Folds one value for each loop element into a tile.

    If the reduced dimensions are the innermost loops, a scalar accumulates and the tile is written once; otherwise the
    tile accumulates, with a scalar across the innermost loop if that one is reduced."""

    def __init__(self, nest: Nest, emitter: GroupEmitter) -> None:
        assert nest.tile is not None
        self.nest, self.tile, self.emitter = nest, nest.tile, emitter
        dims = emitter.dims
        self.reduced = [d for d in dims if d in nest.axes]
        self.first = min(self.reduced, default=-1)
        self.trailing = bool(self.reduced) and all(d in self.reduced for d in dims if d >= self.first)
        self.at_innermost = bool(dims) and dims[-1] in self.reduced
        self.is_arg = nest.op in ("argmax", "argmin")
        self.vectorises = not self.is_arg or not self.at_innermost
        self.dtype = nest.value.type.dtype if self.is_arg else self.tile.dtype
        self.ctype = "int32_t" if nest.op == "reduce_any" else VALUE_TYPE[self.dtype]
        #: names: the accumulator, or for a position the best value so far
        self._scalar = ""
        #: of a position: the variable with the position so far, or the array of the best values
        self._array = ""
        #: inside a fold's lambda, which returns the value instead of accumulating it
        self.returns = False

    @property
    def clause(self) -> str:
        if self.is_arg or not self.at_innermost or not self._scalar:
            return ""
        word = _CLAUSE.get(self.nest.op) or ("kl_max" if self.nest.op == "reduce_max" else "kl_min")
        return f"{word}:{self._scalar}"

    @property
    def searches(self) -> bool:
        """Can the innermost loop search for the best element block by block, in order?"""
        return self.is_arg and self.trailing and self.reduced == [self.first]

    def search(self, var: str, low: str, high: str) -> str:
        word = "kl::Max" if self.nest.op == "argmax" else "kl::Min"
        return f"kl::find_best<{word}>({self._scalar}, {self._array}, {low}, {high}, 0, [&](int64_t {var})"

    @property
    def scalar(self) -> str:
        return self._scalar

    @property
    def word(self) -> str:
        return _WORDS[self.nest.op]

    # -- around the loops ----------------------------------------------------------------------------------------------

    def before_loops(self) -> None:
        if not self.trailing:
            if self.is_arg:
                self._array = self.emitter.fresh(f"{self.tile.name}_best")
                count = " * ".join(self.emitter.ints.operand(x) for x in self.tile.shape) or "1"
                self.emitter.w(f"{self.ctype}* const {self._array} = kl::scratch<{self.ctype}, {_SLOT}>({count});")
            self._fill(self._initial(), self.nest.line)

    def before_loop(self, dim: int) -> None:
        starts = dim == self.first if self.trailing else self.at_innermost and dim == self.emitter.dims[-1]
        if not starts or (self.is_arg and not self.trailing):
            return
        is_tile = self.trailing and dim == self.emitter.dims[0] and self.emitter.places[self.tile.uid] is Place.VARIABLE
        if is_tile and not self.is_arg and self.nest.op != "reduce_any":
            self._scalar = self.emitter.names(self.tile)
            self.emitter.w(
                f"{self.emitter.declare(self.tile)}{self._scalar} = {self._initial()};", self.nest.line, comment=False
            )
            return
        self._scalar = self.emitter.fresh(f"{self.tile.name}_{'best' if self.is_arg else self.nest.op.split('_')[-1]}")
        self.emitter.w(f"{self.ctype} {self._scalar} = {self._initial()};")
        if self.is_arg:
            self._array = self.emitter.fresh(f"{self.tile.name}_at")
            self.emitter.w(f"int64_t {self._array} = -1;")

    def after_loop(self, dim: int) -> None:
        if self.trailing and dim == self.first:
            result = self._array if self.is_arg else self._scalar
            if self.nest.op == "reduce_mean":
                result = f"{self._scalar} / {self._count()}"
            elif self.nest.op == "reduce_any":
                result = f"{self._scalar} != 0"
            target = self._target()
            if target != result:
                prefix = self.emitter.declare(self.tile) if self.emitter.places[self.tile.uid] is Place.VARIABLE else ""
                value = f"{result} < 0 ? 0 : {result}" if self.is_arg else result
                self.emitter.w(f"{prefix}{target} = {value};")
        elif not self.trailing and self.at_innermost and not self.is_arg and dim == self.emitter.dims[-1]:
            self.emitter.w(f"{self._combined(self._target(), self._scalar)};")

    def after_loops(self) -> None:
        if not self.trailing and self.nest.op == "reduce_mean":
            self._each(f"/= {self._count()}")

    # -- in the body ---------------------------------------------------------------------------------------------------

    def update(self, text: str) -> Iterator[str]:
        """Yield lines that fold in the element with the source's value ``text``."""
        text = self._converted(text)
        if self.is_arg:
            yield from self._update_arg(text)
        else:
            yield f"{self._combined(self._scalar or self._target(), text)};"

    def value(self, text: str) -> str:
        """Return the element as a fold's lambda returns it."""
        text = self._converted(text)
        return strip(text) if text.startswith(self.ctype) else f"{self.ctype}({strip(text)})"

    def _converted(self, text: str) -> str:
        target = DType.BOOL if self.nest.op == "reduce_any" else self.dtype
        return converted(text, self.nest.value.type.dtype, target)

    def _combined(self, target: str, text: str) -> str:
        if self.nest.op in ("reduce_max", "reduce_min"):
            return f"{target} = kl::{self.nest.op[-3:]}({target}, {strip(text)})"
        symbol = {"reduce_prod": "*=", "reduce_any": "|="}.get(self.nest.op, "+=")
        return f"{target} {symbol} {strip(text)}"

    def _update_arg(self, text: str) -> Iterator[str]:
        value = self.emitter.fresh(f"{self.tile.name}_value")
        sign = ">" if self.nest.op == "argmax" else "<"
        positions = tuple(self.emitter.group.vars[d] for d in self.nest.axes)
        position = flat(positions, tuple(self.emitter.group.domain[d] for d in self.nest.axes), self.emitter.ints)
        if self.trailing:
            best, at = self._scalar, self._array
        else:
            index = flat(self._index(), self.tile.shape, self.emitter.ints)
            best, at = f"{self._array}[{index}]", self._target()
        # the first NaN wins, else the first of the best; iterations may come out of order at an edge
        better = f"{at} < 0 || {value} {sign} {best} || ({value} == {best} && {wrap(position)} < {at})"
        if self.dtype.is_float:
            earlier = f"{value} != {value} && {wrap(position)} < {at}"
            better = f"({best} == {best} && ({better} || {value} != {value})) || ({best} != {best} && {earlier})"
        yield f"const {self.ctype} {value} = {strip(text)};"
        yield f"if ({better}) {{ {best} = {value}; {at} = {position}; }}"

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _initial(self) -> str:
        identity = OPS[self.nest.op].identity
        assert identity is not None, self.nest.op
        return literal(identity, DType.I32 if self.nest.op == "reduce_any" else self.dtype)

    def _index(self) -> tuple[str, ...]:
        """Return the tile's index at the current loop element."""
        kept = [
            ZERO if d in self.nest.axes else v
            for d, v in enumerate(self.emitter.group.vars)
            if self.nest.keepdims or d not in self.nest.axes
        ]
        return align(tuple(kept), self.tile.shape, self.emitter.ints)

    def _target(self) -> str:
        if self.emitter.places[self.tile.uid] is Place.VARIABLE:
            return self.emitter.names(self.tile)
        return place(self.emitter.names(self.tile), self._index(), self.tile.shape, self.emitter.ints)

    def _count(self) -> str:
        extents = " * ".join(self.emitter.ints.operand(self.emitter.group.domain[d]) for d in self.nest.axes) or "1"
        return f"{VALUE_TYPE[self.tile.dtype]}({extents})"

    def _fill(self, initial: str, line: int) -> None:
        if self.is_arg:
            self._each(f"= {initial}", self._array)
            self._each("= -1")
            return
        if self.emitter.places[self.tile.uid] is Place.VARIABLE:
            self.emitter.w(
                f"{self.emitter.declare(self.tile)}{self.emitter.names(self.tile)} = {initial};", line, comment=False
            )
            return
        self._each(f"= {initial}")

    def _each(self, change: str, name: str = "") -> None:
        if not name and self.emitter.places[self.tile.uid] is Place.VARIABLE:
            self.emitter.w(f"{self.emitter.names(self.tile)} {change};")
            return
        name = name or self.emitter.names(self.tile)
        count = " * ".join(self.emitter.ints.operand(x) for x in self.tile.shape) or "1"
        var = self.emitter.fresh("at")
        self.emitter.w(f"for (int64_t {var} = 0; {var} < {count}; ++{var}) {name}[{var}] {change};")
