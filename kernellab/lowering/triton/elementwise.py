"""Elementwise operations and operations that move elements, for which a template is not enough."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kernellab.errors import LoweringError
from kernellab.lowering.triton.shapes import division, is_lane_numbers
from kernellab.lowering.triton.text import is_atom
from kernellab.lowering.triton.values import TL_DTYPES, Rule, Text, Values
from kernellab.operations.sketch import OPS
from kernellab.sketch.program.ints import IntExpr, num
from kernellab.sketch.program.program import Apply, Const, DType, Read, Value


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


RULES: Mapping[str, Rule] = {
    "pow": _pow, "where": _where, "cast": _cast, "bitcast": _bitcast, "newaxis": _newaxis, "transpose": _transpose,
    "broadcast": _broadcast, "full": _full, "arange": _arange, "reshape": _reshape, "concat": _concat,
    "floordiv": division, "mod": division,
}  # fmt: skip


__all__ = ["RULES", "axes_of", "tells_halves"]
