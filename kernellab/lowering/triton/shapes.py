"""Tile shapes in Triton: each extent padded to a power of two, with a test of which lanes are real.

Extents that are known at lowering time are padded then; the others become ``tl.constexpr`` parameters that the host
computes at launch, like the flags that turn a mask off if no lane needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kernellab.errors import LoweringError
from kernellab.lowering.bounds import Bounds
from kernellab.lowering.python_text import Names, python_int, tidy
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Apply, Assign, Const, Index, Read, Value

if TYPE_CHECKING:
    from kernellab.lowering.triton.values import Text, Values

#: Triton's limit on the elements of one tile
MAX_ELEMENTS = 1 << 20
#: least extent of a dimension in tl.dot
MIN_DOT = 16


@dataclass
class Ints(Bounds):
    """Facts about the integers of one kernel, and their Triton text."""

    def spell(self, expr: IntExpr, name: Callable[[IntExpr], str]) -> str:
        """Return ``expr`` as Triton; ``name`` returns the text of a symbol, constexpr or loop variable."""
        if expr.kind is IntKind.NUM:
            # Triton refuses a number of more than 32 bits in an operation with 32 bits
            return str(expr.value) if -(2**31) <= expr.value < 2**31 else f"tl.full([], {expr.value}, tl.int64)"
        if expr.kind is not IntKind.OP:
            return name(expr)
        args = [self.spell(a, name) for a in expr.args]
        if expr.op in ("//", "%", "cdiv"):
            return self._division(expr, args)
        if expr.op in ("min", "max"):
            return f"tl.{expr.op}imum({args[0]}, {args[1]})"
        if len(args) == 1:
            return f"({expr.op} {args[0]})"
        if expr.op in ("<<", ">>"):
            self.check_shift(expr)
        return f"({args[0]} {expr.op} {args[1]})"

    def is_wide(self, expr: IntExpr) -> bool:
        """Has its text 64 bits? A floor division of a number that may be negative has (``kl_floor_div``)."""
        floors = expr.op in ("//", "%", "cdiv") and not all(self.nonnegative(a) for a in expr.args)
        return floors or any(self.is_wide(a) for a in expr.args)

    def _division(self, expr: IntExpr, args: list[str]) -> str:
        # Triton divides towards zero, the language floors; the results are equal if nothing is negative
        if all(self.nonnegative(a) for a in expr.args):
            return f"tl.cdiv({args[0]}, {args[1]})" if expr.op == "cdiv" else f"({args[0]} {expr.op} {args[1]})"
        if expr.op == "cdiv":
            return f"(-kl_floor_div(-({args[0]}), {args[1]}))"
        return f"{'kl_floor_div' if expr.op == '//' else 'kl_floor_mod'}({args[0]}, {args[1]})"


@dataclass(frozen=True)
class Extent:
    """One dimension of a tile: ``padded`` is its text in the kernel.

    ``exact``: every lane is real. ``flag`` names the constexpr with this answer at launch, if it is not known before.
    """

    expr: IntExpr
    padded: str
    value: int | None
    padded_value: int | None
    exact: bool
    flag: str = ""


class Elements(NamedTuple):
    """The number of a tile's elements: the product of known extents, and the names of the other padded extents."""

    known: int
    padded: list[str]


@dataclass(frozen=True)
class Computed:
    """A constexpr parameter that the host computes: its Python text, and the names in it."""

    text: str
    names: frozenset[str]


@dataclass
class Shapes:
    """The padded extents of one kernel's tiles, and the constexprs that the host computes for them."""

    ints: Ints
    names: Names
    #: constexpr parameters that the host computes
    computed: dict[str, Computed] = field(default_factory=dict)
    #: returns the text of a vector of lane numbers
    arange: str = "tl.arange"
    #: canonical extents of operands of tl.dot
    dotted: set[str] = field(default_factory=set)
    _extents: dict[str, Extent] = field(default_factory=dict)
    #: facts without the value of any name
    _symbolic: Bounds = field(default_factory=lambda: Bounds({}))

    def key(self, expr: IntExpr) -> str:
        return self.ints.canonical(expr)

    def mark_dot(self, expr: IntExpr) -> None:
        """Pad this extent to at least the minimum of tl.dot, wherever it occurs."""
        self.dotted.add(self.key(expr))

    def extent(self, expr: IntExpr) -> Extent:
        # by its text, so that a kernel uses BK where the sketch does, even if BM has the same value
        text = self._symbolic.canonical(expr)
        if text not in self._extents:
            self._extents[text] = self._make(expr, self.key(expr))
        return self._extents[text]

    def _make(self, expr: IntExpr, key: str) -> Extent:
        least = MIN_DOT if key in self.dotted else 1
        value = self.ints.const(expr)
        if value is None:
            power = f"triton.next_power_of_2(max({tidy(python_int(expr))}, 1))"
            host = f"max({MIN_DOT}, {power})" if least > 1 else power
            padded = self.constexpr(_label(expr) + "_P", host, expr.names())
            full = f"{padded} == {tidy(python_int(expr))}"
            flag = self.constexpr(f"FULL_{_label(expr)}", full, expr.names() | {padded})
            return Extent(expr, padded, None, None, False, flag)
        size = max(least, 1 << max(value - 1, 0).bit_length())
        if size == value:
            text = python_int(expr) if expr.kind is not IntKind.OP else tidy(python_int(expr))
            return Extent(expr, text, value, size, True)
        if expr.kind is IntKind.NUM:
            return Extent(expr, str(size), value, size, False)
        power = f"triton.next_power_of_2({tidy(python_int(expr))})"
        host = f"max({MIN_DOT}, {power})" if least > 1 else power
        padded = self.constexpr(_label(expr) + "_P", host, expr.names())
        return Extent(expr, padded, value, size, False)

    def constexpr(self, preferred: str, host: str, names: frozenset[str]) -> str:
        """Return the name of the constexpr parameter that the host computes as ``host``, which contains ``names``."""
        name = self.names.of(("computed", host), preferred)
        self.computed.setdefault(name, Computed(host, names))
        return name

    def flag(self, preferred: str, condition: IntExpr) -> str:
        return self.constexpr(preferred, tidy(python_int(condition)), condition.names())

    def padded(self, shape: tuple[IntExpr, ...]) -> list[str]:
        return [self.extent(e).padded for e in shape]

    def text(self, shape: tuple[IntExpr, ...]) -> str:
        return f"[{', '.join(self.padded(shape))}]"

    def check_size(self, what: str, shape: tuple[IntExpr, ...]) -> None:
        total = 1
        for expr in shape:
            total *= self.extent(expr).padded_value or 1
        if total > MAX_ELEMENTS:
            raise LoweringError(
                f"{what} has {total} elements when padded to powers of two; a Triton tile holds {MAX_ELEMENTS}.",
                "Split a dimension into a loop over blocks.",
            )

    def elements(self, shape: tuple[IntExpr, ...]) -> Elements:
        """Return the number of elements of a tile of ``shape`` when padded."""
        known, padded = 1, []
        for expr in shape:
            extent = self.extent(expr)
            if extent.padded_value is None:
                padded.append(extent.padded)
            else:
                known *= extent.padded_value
        return Elements(known, padded)

    def lanes(self, expr: IntExpr, axis: int, rank: int) -> str:
        return shaped(f"{self.arange}(0, {self.extent(expr).padded})", axis, rank)

    def real(self, expr: IntExpr, size: str, axis: int, rank: int) -> str:
        """Return the condition under which a lane of this dimension is real; "" if all are."""
        extent = self.extent(expr)
        if extent.exact:
            return ""
        test = f"({self.lanes(expr, axis, rank)} < {size})"
        return f"({test} | {extent.flag})" if extent.flag else test


def shaped(vector: str, axis: int, rank: int) -> str:
    """Return a vector as dimension ``axis`` of ``rank`` dimensions."""
    if rank == 1:
        return vector
    index = ", ".join(":" if k == axis else "None" for k in range(rank))
    return f"{vector}[{index}]"


def minus_one(expr: IntExpr) -> IntExpr:
    return int_op("-", expr, num(1))


def _label(expr: IntExpr) -> str:
    if expr.kind is not IntKind.OP:
        return expr.name or f"N{expr.value}"
    words = {"+": "plus", "-": "minus", "*": "x", "//": "over", "%": "mod", "cdiv": "blocks"}
    parts = [_label(a) for a in expr.args]
    return f"_{words.get(expr.op, expr.op)}_".join(parts) if len(parts) == 2 else f"neg_{parts[0]}"


# -- quotients and remainders of lane numbers: the floor's correction would hide neighbouring lanes from Triton ------


def division(values: Values, value: Apply) -> Text:
    """Write ``floordiv`` or ``mod``: with Triton's own operator where both operands are known not to be negative."""
    lanes, divisor = value.args
    size = _size(divisor)
    if not is_lane_numbers(lanes) or size is None or not values.shapes.ints.nonnegative(int_op("-", size, num(1))):
        return values.pointwise(value, OPS[value.op].spell["triton"])
    return values.pointwise(value, "({0} // {1})" if value.op == "floordiv" else "({0} % {1})")


def is_lane_numbers(value: Value) -> bool:
    """Is it ``arange(n)``, the numbers of lanes?"""
    return isinstance(value, Apply) and value.op == "arange" and value.attr("start", num(0)) == num(0)


def remainders(assigned: Iterable[Assign]) -> Mapping[str, IntExpr]:
    """Return, by tile, what the lanes of each tile ``arange(n) % size`` are less than."""
    sizes = ((s.tile.uid, _remainder(s.value)) for s in assigned)
    return {uid: size for uid, size in sizes if size is not None}


def is_below(values: Values, value: Value, size: IntExpr) -> bool:
    """Are all elements known to be at least 0 and less than ``size``?"""
    if isinstance(value, Apply) and value.op == "newaxis":
        return is_below(values, value.args[0], size)
    end = values.remainders.get(value.tile.uid) if isinstance(value, Read) else _remainder(value)
    ints = values.shapes.ints
    return end is not None and ints.nonnegative(int_op("-", end, num(1))) and ints.nonnegative(int_op("-", size, end))


def _remainder(value: Value) -> IntExpr | None:
    if not isinstance(value, Apply) or value.op != "mod" or not is_lane_numbers(value.args[0]):
        return None
    return _size(value.args[1])


def _size(value: Value) -> IntExpr | None:
    if isinstance(value, Const):
        return num(value.value) if type(value.value) is int else None
    return value.expr if isinstance(value, Index) else None
