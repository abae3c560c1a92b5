"""Values of a Program as Triton expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import Names
from kernellab.lowering.triton.shapes import Shapes, division, is_lane_numbers, shaped
from kernellab.lowering.triton.text import Writer, is_atom
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import FLOAT8, Apply, Const, DType, Index, Param, Read, Tile, Value

TL_DTYPES = {
    DType.F64: "tl.float64", DType.F32: "tl.float32", DType.F16: "tl.float16", DType.BF16: "tl.bfloat16",
    DType.F8E4M3: "tl.float8e4nv", DType.F8E5M2: "tl.float8e5", DType.I64: "tl.int64", DType.I32: "tl.int32",
    DType.I16: "tl.int16", DType.I8: "tl.int8", DType.U8: "tl.uint8", DType.BOOL: "tl.int1",
}  # fmt: skip

_INT_LIMITS = {
    DType.I64: (-(2**63), 2**63 - 1), DType.I32: (-(2**31), 2**31 - 1), DType.I16: (-(2**15), 2**15 - 1),
    DType.I8: (-128, 127), DType.U8: (0, 255), DType.BOOL: (0, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """An expression, its actual shape (its user broadcasts it), and whether it is a bare number.

    A bare number (a literal, a constexpr, an index) takes its dtype from the other operand."""

    code: str
    shape: tuple[IntExpr, ...]
    bare: bool = False


class Layouts(Protocol):
    """Layouts of tiles over threads, for a DSL in which they are explicit (Gluon)."""

    def of(self, shape: tuple[IntExpr, ...]) -> str:
        """Return the layout of a tile of that shape; "" if the compiler chooses it."""

    def for_new_axes(self, code: str, shape: tuple[IntExpr, ...], axes: tuple[int, ...]) -> str:
        """Return ``code``, of that shape, in the layout that it needs before ``axes`` of extent 1 are added."""


class Values:
    """Writes values; operands that a template uses several times become temporaries in ``out`` first.

    ``rules`` has the operations for which a template is not enough."""

    def __init__(
        self,
        shapes: Shapes,
        names: Names,
        out: Writer,
        tile_name: Callable[[Tile], str],
        int_text: Callable[[IntExpr], str],
        rules: Mapping[str, Rule],
        *,
        interpreter: bool,
        layouts: Layouts | None = None,
    ) -> None:
        self.layouts = layouts
        self.shapes = shapes
        self.names = names
        self.out = out
        self.tile_name = tile_name
        self.int_text = int_text
        self.interpreter = interpreter
        self._rules = rules
        #: uids of tiles that distinguish the first of two from the second
        self.halves: frozenset[str] = frozenset()
        #: what lanes are less than, by tiles that are their remainders
        self.remainders: Mapping[str, IntExpr] = {}

    # -- whole values --------------------------------------------------------------------------------------------------

    def typed(self, value: Value) -> Text:
        """Return ``value`` as a Triton tensor of its dtype, never a bare number."""
        text = self.write(value)
        if not text.bare:
            return text
        return Text(self.scalar(text.code, value.type.dtype), ())

    def scalar(self, code: str, dtype: DType) -> str:
        # tl.cast would first round a float64 literal to float32
        return f"{'tl' if self.layouts is None else 'gl'}.full([], {code}, {TL_DTYPES[dtype]})"

    def filled(self, value: Value, shape: tuple[IntExpr, ...]) -> str:
        """Return ``value`` as a tensor of exactly ``shape`` and its dtype."""
        text = self.write(value)
        if text.bare or (not text.shape and shape):
            return self.full(shape, text.code, value.type.dtype)
        return self.spread(text, shape)

    def full(self, shape: tuple[IntExpr, ...], code: str, dtype: DType) -> str:
        """Return a tile of that shape, filled with ``code``."""
        arguments = f"{self.shapes.text(shape)}, {code}, {TL_DTYPES[dtype]}"
        if self.layouts is None:
            return f"tl.full({arguments})"
        layout = self.layouts.of(shape)
        return f"gl.full({arguments}{f', {layout}' if layout else ''})"

    def spread(self, text: Text, shape: tuple[IntExpr, ...]) -> str:
        """Return ``text`` broadcast to exactly ``shape``."""
        if len(text.shape) == len(shape) and all(map(self.shapes.ints.equal, text.shape, shape)):
            return text.code
        code = text.code
        if text.shape and len(text.shape) < len(shape):
            index = ", ".join(["None"] * (len(shape) - len(text.shape)) + [":"] * len(text.shape))
            code = f"({code})" if self.layouts is None else self._before_new_axes(code, text.shape, len(shape))
            code = f"{code}[{index}]"
        return f"tl.broadcast_to({code}, {self.shapes.text(shape)})"

    def write(self, value: Value) -> Text:
        match value:
            case Read():
                return Text(self.tile_name(value.tile), value.tile.shape)
            case Const():
                return self._constant(value)
            case Param():
                return Text(value.name, (), bare=True)
            case Index():
                code = self.int_text(value.expr)
                return Text(code if is_atom(code) else f"({code})", (), bare=True)
            case Apply():
                return self._apply(value)

    def _constant(self, value: Const) -> Text:
        number = value.value
        if isinstance(number, float) and not math.isfinite(number):
            return Text(f'float("{number}")', (), bare=True)
        if value.type.dtype.is_float:
            return Text(repr(float(number)), (), bare=True)
        return Text(repr(bool(number)) if value.type.dtype is DType.BOOL else repr(int(number)), (), bare=True)

    # -- operations ----------------------------------------------------------------------------------------------------

    def _apply(self, value: Apply) -> Text:
        rule = self._rules.get(value.op)
        if rule is not None:
            return rule(self, value)
        op = OPS.get(value.op)
        if op is not None and op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            return self.pointwise(value, op.spell["triton"])
        raise LoweringError(f"The Triton lowering has no operation {value.op!r}.", "Write it with other operations.")

    def pointwise(self, value: Apply, template: str) -> Text:
        args = [self.write(a) for a in value.args]
        if all(a.bare for a in args) or (args[0].bare and not template.startswith("(")):
            # a template may read its first operand's dtype
            args[0] = self.typed(value.args[0])
        if any(a.type.dtype is DType.F64 for a in value.args) or value.op == "pow":
            # a bare float would pass through float32 in some of Triton's functions
            args = [t if not t.bare else self.typed(a) for t, a in zip(args, value.args, strict=True)]
        for i, arg in enumerate(args):
            if template.count(f"{{{i}}}") > 1 and not is_atom(arg.code):
                args[i] = Text(self.temporary(arg.code), arg.shape, arg.bare)
        shape = self.broadcast([a.shape for a in args])
        if self.interpreter and shape and value.op.startswith("logical_"):
            args = [a if a.shape else Text(self._spread_condition(a.code, shape), shape) for a in args]
        return Text(template.format(*(self.ranked(a, shape) for a in args)), shape)

    def _before_new_axes(self, code: str, shape: tuple[IntExpr, ...], rank: int) -> str:
        assert self.layouts is not None
        return self.layouts.for_new_axes(code, shape, tuple(range(rank - len(shape))))

    def ranked(self, text: Text, shape: tuple[IntExpr, ...]) -> str:
        """Return ``text`` for an operation of ``shape``: with all dimensions if layouts are explicit."""
        missing = len(shape) - len(text.shape)
        if self.layouts is None or not text.shape or not missing:
            return text.code
        code = self._before_new_axes(text.code, text.shape, len(shape))
        return f"{code}[{', '.join(['None'] * missing + [':'] * len(text.shape))}]"

    def _spread_condition(self, code: str, shape: tuple[IntExpr, ...]) -> str:
        # in the interpreter a scalar condition has the operands' dtype, and is broadcast as numbers of that dtype
        return f"(tl.full({self.shapes.text(shape)}, tl.where({code}, 1, 0), tl.int32) != 0)"

    def temporary(self, code: str) -> str:
        name = self.names.fresh("t")
        self.out.put(f"{name} = {code}")
        return name

    def broadcast(self, shapes: Sequence[tuple[IntExpr, ...]]) -> tuple[IntExpr, ...]:
        rank = max(map(len, shapes), default=0)
        out = [num(1)] * rank
        for shape in shapes:
            for k, dim in enumerate(shape, rank - len(shape)):
                if not dim.is_one:
                    out[k] = dim
        return tuple(out)

    def cast(self, text: Text, source: DType, target: DType) -> Text:
        if source is target and not text.bare:
            return text
        if text.bare:
            code = self.scalar(text.code, source)
            return Text(code, ()) if source is target else self.cast(Text(code, ()), source, target)
        if target is DType.BOOL:
            return Text(f"({text.code} != 0)", text.shape)
        if target is DType.BF16 and source is not DType.BF16 and self.interpreter:
            return Text(f"kl_bf16({text.code})", text.shape)
        if target in FLOAT8:
            return Text(f"kl_{target.value}({text.code})", text.shape)
        return Text(f"({text.code}).to({TL_DTYPES[target]})", text.shape)

    def neutral(self, code: str, shape: tuple[IntExpr, ...], axes: Sequence[int], dtype: DType, identity: float) -> str:
        """Return ``code`` with ``identity`` in the lanes that padding added along ``axes``."""
        tests = [self.shapes.real(shape[a], self.int_text(shape[a]), a, len(shape)) for a in sorted(axes)]
        tests = [t for t in tests if t]
        if not tests:
            return code
        if dtype.is_float:
            number = f'float("{identity:g}")' if math.isinf(identity) else repr(identity)
        elif dtype is DType.BOOL:
            number = "False"
        else:
            low, high = _INT_LIMITS[dtype]
            number = str(int(min(max(identity, low), high)))
        return f"tl.where({' & '.join(tests)}, {code}, {number})"


# -- operations without a template -------------------------------------------------------------------------------------


def _pow(values: Values, value: Apply) -> Text:
    exponent = value.args[1]
    product = _POWERS.get(exponent.value) if isinstance(exponent, Const) and value.type.dtype.is_float else None
    if product is None:
        return values.pointwise(value, OPS["pow"].spell["triton"])
    base = values.typed(value.args[0])
    code = base.code if is_atom(base.code) else values.temporary(base.code)
    return Text(product.format(code), base.shape)


def tells_halves(value: Value) -> bool:
    """Is it ``arange(2) < 1``, the first of two?"""
    if not isinstance(value, Apply) or value.op != "lt" or value.type.shape != (num(2),):
        return False
    place, one = value.args
    return is_lane_numbers(place) and isinstance(one, Const) and one.value == 1


def _joined(values: Values, value: Apply) -> Text | None:
    """Return two tiles joined along a last axis of 2: one thread holds both of a pair, so no lanes are exchanged. None
    if ``value`` is no such choice."""
    test, *arms = value.args
    is_choice = tells_halves(test) or (isinstance(test, Read) and test.tile.uid in values.halves)
    inner = [each for a in arms if (each := _without_axis(a, len(value.type.shape) - 1)) is not None]
    if not is_choice or len(inner) < 2 or values.layouts is not None or inner[0].type.dtype is not inner[1].type.dtype:
        return None
    texts = [values.write(a) for a in inner]
    shape = values.broadcast([t.shape for t in texts])
    if any(t.bare for t in texts) or len(shape) != len(value.type.shape) - 1:
        return None
    return Text(f"tl.join({', '.join(values.spread(t, shape) for t in texts)})", (*shape, num(2)))


def _without_axis(value: Value, axis: int) -> Value | None:
    """Return ``value`` before an axis of 1 was added; None if none was."""
    if not isinstance(value, Apply):
        return None
    if value.op == "newaxis":
        return value.args[0] if axes_of(value.attr("axes")) == (axis,) else None
    inner = _without_axis(value.args[0], axis) if value.op == "cast" else None
    return inner and replace(value, args=(inner,), type=replace(value.type, shape=inner.type.shape))


def _where(values: Values, value: Apply) -> Text:
    pair = _joined(values, value)
    if pair is not None:
        return pair
    texts = [values.write(a) for a in value.args]
    if texts[1].bare and texts[2].bare:
        texts[1] = values.typed(value.args[1])
    if texts[0].bare:
        texts[0] = values.typed(value.args[0])
    if value.type.dtype is DType.F64:
        texts = [t if not t.bare else values.typed(a) for t, a in zip(texts, value.args, strict=True)]
    shape = values.broadcast([t.shape for t in texts])
    return Text(f"tl.where({', '.join(values.ranked(t, shape) for t in texts)})", shape)


def _cast(values: Values, value: Apply) -> Text:
    return values.cast(values.write(value.args[0]), value.args[0].type.dtype, value.type.dtype)


def _bitcast(values: Values, value: Apply) -> Text:
    text = values.typed(value.args[0])
    return Text(OPS["bitcast"].spell["triton"].format(text.code, TL_DTYPES[value.type.dtype]), text.shape)


def _newaxis(values: Values, value: Apply) -> Text:
    text = values.typed(value.args[0])
    axes = axes_of(value.attr("axes"))
    rank = len(text.shape) + len(axes)
    index = ", ".join("None" if k in axes else ":" for k in range(rank))
    shape, rest = [], iter(text.shape)
    for k in range(rank):
        shape.append(num(1) if k in axes else next(rest))
    if not text.shape:
        return Text(values.full(tuple(shape), text.code, value.type.dtype), tuple(shape))
    code = f"({text.code})" if values.layouts is None else values.layouts.for_new_axes(text.code, text.shape, axes)
    return Text(f"{code}[{index}]", tuple(shape))


def _transpose(values: Values, value: Apply) -> Text:
    source = value.args[0]
    code = values.filled(source, source.type.shape)
    perm = axes_of(value.attr("perm"))
    return Text(f"tl.permute({code}, {list(perm)})", tuple(source.type.shape[p] for p in perm))


def _broadcast(values: Values, value: Apply) -> Text:
    return Text(values.filled(value.args[0], value.type.shape), value.type.shape)


def _full(values: Values, value: Apply) -> Text:
    text = values.write(value.args[0])
    return Text(values.full(value.type.shape, text.code, value.type.dtype), value.type.shape)


def _arange(values: Values, value: Apply) -> Text:
    (extent,) = value.type.shape
    code = values.shapes.lanes(extent, 0, 1)
    start = value.attr("start")
    if isinstance(start, IntExpr) and start != num(0):
        code = f"({code} + {values.int_text(start)})"
    elif value.type.dtype is DType.I32:
        return Text(code, value.type.shape)
    return Text(f"({code}).to({TL_DTYPES[value.type.dtype]})", value.type.shape)


def _reshape(values: Values, value: Apply) -> Text:
    source, target = value.args[0].type.shape, value.type.shape
    before = [e for e in source if not e.is_one]
    after = [e for e in target if not e.is_one]
    same = len(before) == len(after) and all(map(values.shapes.ints.equal, before, after))
    if not same and not all(values.shapes.extent(e).exact for e in (*source, *target)):
        raise LoweringError(
            f"reshape from [{_shape(source)}] to [{_shape(target)}] moves elements across padded dimensions.",
            "Make every extent of the tile a power of two, or load it in the shape that is wanted.",
        )
    code = values.filled(value.args[0], source)
    if not target:
        return Text(f"tl.sum({code}, 0)" if len(source) == 1 else f"tl.sum(tl.reshape({code}, [1]), 0)", ())
    if not source:
        return Text(values.full(target, code, value.type.dtype), target)
    return Text(f"tl.reshape({code}, {values.shapes.text(target)})", target)


def _concat(values: Values, value: Apply) -> Text:
    axis = value.attr("axis", 0)
    assert isinstance(axis, int)
    shape = value.type.shape
    rank = len(shape)
    axis %= rank
    lane = values.temporary(
        f"tl.broadcast_to({values.shapes.lanes(shape[axis], axis, rank)}, {values.shapes.text(shape)})"
    )
    before: list[str] = []  # sizes of the parts before
    code = ""
    for part in value.args:
        first = " + ".join(before)
        extent = values.shapes.extent(part.type.shape[axis])
        at = f"({lane} - ({first}))" if before else lane
        last = f"{extent.padded} - 1"
        part_shape = (*shape[:axis], part.type.shape[axis], *shape[axis + 1 :])
        gathered = f"tl.gather({values.filled(part, part_shape)}, tl.minimum(tl.maximum({at}, 0), {last}), {axis})"
        code = f"tl.where({lane} < {first}, {code}, {gathered})" if before else gathered
        before.append(values.int_text(part.type.shape[axis]))
    return Text(code, shape)


#: powers that are computed without a logarithm
_POWERS: dict[float, str] = {
    2: "({0} * {0})", 3: "({0} * {0} * {0})", 4: "(({0} * {0}) * ({0} * {0}))", -1: "(1.0 / {0})",
    0.5: "kl_sqrt({0})", -0.5: "tl.rsqrt({0})", -2: "(1.0 / ({0} * {0}))",
}  # fmt: skip


def axes_of(attr: object) -> tuple[int, ...]:
    if isinstance(attr, int):
        return (attr,)
    assert isinstance(attr, (tuple, list))
    return tuple(int(a) for a in attr)


def _shape(shape: tuple[IntExpr, ...]) -> str:
    return re.sub(r"\s+", " ", ", ".join(map(str, shape)))


#: writes one operation
Rule = Callable[[Values, Apply], Text]
RULES: Mapping[str, Rule] = {
    "pow": _pow, "where": _where, "cast": _cast, "bitcast": _bitcast, "newaxis": _newaxis, "transpose": _transpose,
    "broadcast": _broadcast, "full": _full, "arange": _arange, "reshape": _reshape, "concat": _concat,
    "floordiv": division, "mod": division,
}  # fmt: skip


__all__ = ["RULES", "TL_DTYPES", "Layouts", "Rule", "Text", "Values", "axes_of", "shaped"]
