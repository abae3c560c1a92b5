"""Reductions, scans and matrix products as Triton expressions."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.elementwise import RULES as ELEMENTWISE
from kernellab.lowering.triton.elementwise import axes_of
from kernellab.lowering.triton.gather import gather
from kernellab.lowering.triton.text import is_atom
from kernellab.lowering.triton.values import TL_DTYPES, Rule, Text, Values
from kernellab.operations.sketch import OPS, SCAN_IDENTITY
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import Apply, DType, Type, Value

_REDUCTIONS = {
    "reduce_sum": "tl.sum", "reduce_mean": "tl.sum", "reduce_prod": "kl_reduce_prod", "reduce_max": "kl_reduce_max",
    "reduce_min": "kl_reduce_min", "reduce_any": "kl_reduce_any", "argmax": "kl_argmax", "argmin": "kl_argmin",
}  # fmt: skip
SCANS = {
    "add": "tl.cumsum", "mul": "tl.cumprod", "max": "kl_cummax", "min": "kl_cummin", "linear": "kl_linear_scan",
    "cumsum": "tl.cumsum", "cumprod": "tl.cumprod", "cummax": "kl_cummax", "cummin": "kl_cummin",
}  # fmt: skip


def reduce(values: Values, op: str, source: Value, attrs: tuple[tuple[str, object], ...], result: Type) -> Text:
    options = dict(attrs)
    shape = source.type.shape
    axes = sorted(axes_of(options.get("axes", options.get("axis", tuple(range(len(shape)))))), reverse=True)
    axes = [a % len(shape) for a in axes] if shape else []
    keep = bool(options.get("keepdims", False))
    accumulate = _accumulator(op, source.type.dtype, result.dtype)
    text = values.cast(Text(values.filled(source, shape), shape), source.type.dtype, accumulate)
    code = values.neutral(text.code, shape, axes, accumulate, OPS[op].identity or 0.0)
    function = _REDUCTIONS[op]
    for k, axis in enumerate(sorted(axes, reverse=True)):
        summed = _sum(len(shape) - (0 if keep else k), axis, accumulate) if function == "tl.sum" else function
        code = f"{summed}({code}, {axis}{', keep_dims=True' if keep else ''})"
    kept = tuple(num(1) if k in axes else e for k, e in enumerate(shape) if keep or k not in axes)
    if op == "reduce_mean":
        count = " * ".join(f"({values.int_text(shape[a])})" for a in sorted(axes)) or "1"
        code = f"({code} / ({count}))"
    produced = {"reduce_any": DType.BOOL, "argmax": DType.I64, "argmin": DType.I64}.get(op, accumulate)
    return values.cast(Text(code, kept), produced, result.dtype)


def _sum(rank: int, axis: int, dtype: DType) -> str:
    """Return the name of the function that sums along ``axis`` in ``dtype`` for any terms."""
    return "kl_sum_middle" if (rank, axis, dtype) == (3, 1, DType.F32) else "tl.sum"


def _accumulator(op: str, source: DType, result: DType) -> DType:
    if op in ("reduce_sum", "reduce_prod", "reduce_mean"):
        return result if result is not DType.BOOL else DType.I64
    if op == "reduce_any":
        return DType.BOOL
    return DType.I32 if source is DType.BOOL else source.compute


def _reduction(values: Values, value: Apply) -> Text:
    return reduce(values, value.op, value.args[0], value.attrs, value.type)


def _argument(values: Values, value: Apply) -> Text:
    axes = axes_of(value.attr("axes", value.attr("axis", 0)))
    shape = value.args[0].type.shape
    if len(axes) == 1 or len(shape) == 1:
        return reduce(values, value.op, value.args[0], value.attrs, value.type)
    raise LoweringError(f"{value.op} over several axes at once has no Triton form.", "Give it one axis.")


def scan(values: Values, value: Apply) -> Text:
    """``kl_cummax(x, 0, reverse=True)``: a scan along one axis, from its end where it is reversed."""
    function = SCANS[str(value.attr("combine", "") or value.op)]
    axis = value.attr("axis", 0)
    assert isinstance(axis, int)
    shape = value.args[0].type.shape
    texts = [
        values.cast(Text(values.filled(a, a.type.shape), a.type.shape), a.type.dtype, value.type.dtype).code
        for a in value.args
    ]
    reverse = ""
    if value.attr("reverse", False):
        # a reversed scan starts at the lanes that padding added
        neutral = SCAN_IDENTITY[str(value.attr("combine", "") or OPS[value.op].join)]
        texts = [values.neutral(t, shape, [axis % len(shape)], value.type.dtype, neutral) for t in texts]
        reverse = ", reverse=True"
    return Text(f"{function}({', '.join(texts)}, {axis % len(shape)}{reverse})", shape)


def _dot(values: Values, value: Apply) -> Text:
    precision = str(value.attr("precision", "ieee"))
    return Text(dot(values, value.args[0], value.args[1], "", value.type.dtype, precision), value.type.shape)


def dot(values: Values, a: Value, b: Value, acc: str, acc_dtype: DType, precision: str) -> str:
    """Return ``a @ b`` (+ ``acc``), with neutral lanes past the summed extent in both factors."""
    narrow = _stored(a).type.dtype is _stored(b).type.dtype
    left = _operand(values, _stored(a) if narrow else a, len(a.type.shape) - 1, precision)
    right = _operand(values, _stored(b) if narrow else b, len(b.type.shape) - 2, precision)
    parts = [left, right, *([f"acc={acc}"] if acc else [])]
    _fence(values, a)
    if not acc_dtype.is_float:
        return f"tl.dot({', '.join(parts)}, out_dtype={TL_DTYPES[acc_dtype]})"
    if precision not in ("bf16",):
        wanted = "ieee" if values.interpreter and precision.startswith("bf16x") else precision
        parts.append(f'input_precision="{wanted}"')
    return f"tl.dot({', '.join(parts)}, out_dtype={TL_DTYPES[acc_dtype]})"


def _fence(values: Values, left: Value) -> None:
    # outside a serial loop nothing is prefetched, and the compiler fences its own stores
    if values.interpreter or all(loop.hints.parallel for loop in values.shapes.ints.loops.values()):
        return
    at, values.out.at = values.out.at, 0
    values.out.put(f"kl_fence({values.shapes.padded(left.type.shape)[-2]})")
    values.out.at = at


def _stored(value: Value) -> Value:
    """Return ``value`` without a cast from a narrow dtype: tl.dot takes two factors of one narrow dtype, and their
    products are exact."""
    if isinstance(value, Apply) and value.op == "cast" and value.args[0].type.dtype.compute is value.type.dtype:
        return value.args[0]
    return value


def _operand(values: Values, value: Value, summed: int, precision: str) -> str:
    shape = value.type.shape
    dtype = value.type.dtype
    code = values.neutral(values.filled(value, shape), shape, [summed], dtype, 0.0)
    if values.interpreter and dtype is DType.BF16:
        # the interpreter's dot multiplies the bits of bfloat16 as integers
        return f"({code}).to(tl.float32)"
    if precision == "bf16" and dtype is DType.F32:
        rounded = values.cast(Text(code, shape), dtype, DType.BF16).code
        return f"({rounded}).to(tl.float32)" if values.interpreter else rounded
    return code


def outer_sum(values: Values, a: Value, b: Value, dtype: DType) -> str:
    """Return ``a @ b`` as a sum over products, for shapes and dtypes that tl.dot does not support."""
    rank = len(a.type.shape)
    left = _wide_operand(values, a, rank - 1, dtype)
    right = _wide_operand(values, b, rank - 2, dtype)
    colons = ":, " * (rank - 2)
    summed = _sum(rank + 1, rank - 1, dtype)
    return f"{summed}(({left})[{colons}:, :, None] * ({right})[{colons}None, :, :], {rank - 1})"


def _wide_operand(values: Values, value: Value, summed: int, dtype: DType) -> str:
    shape = value.type.shape
    text = values.cast(Text(values.filled(value, shape), shape), value.type.dtype, dtype)
    return values.neutral(text.code, shape, [summed], dtype, 0.0)


def moments(values: Values, source: Value, attrs: tuple[tuple[str, object], ...], dtype: DType) -> tuple[Text, Text]:
    """Return mean and population variance: the second from differences to the first, so nothing cancels."""
    options = dict(attrs)
    shape = source.type.shape
    axes = [a % len(shape) for a in axes_of(options.get("axes", options.get("axis", tuple(range(len(shape))))))]
    keep = bool(options.get("keepdims", False))
    count = " * ".join(f"({values.int_text(shape[a])})" for a in sorted(axes))
    x = values.cast(Text(values.filled(source, shape), shape), source.type.dtype, dtype).code
    x = x if is_atom(x) else values.temporary(x)

    def total(code: str) -> str:
        code = values.neutral(code, shape, axes, dtype, 0.0)
        for axis in sorted(axes, reverse=True):
            summed = _sum(len(shape), axis, dtype)
            code = f"{summed}({code}, {axis}, keep_dims=True)" if len(shape) > 1 else f"{summed}({code}, {axis})"
        return f"({code}) / ({count})"

    kept = tuple(num(1) if k in axes else e for k, e in enumerate(shape)) if len(shape) > 1 else ()
    mean = values.temporary(tidy(total(x)))
    away = values.temporary(f"{x} - {mean}")
    var = values.temporary(tidy(total(f"{away} * {away}")))
    result = tuple(e for k, e in enumerate(shape) if k not in axes)
    if keep and not kept:
        one = f"[{', '.join('1' for _ in shape)}]"
        return tuple(Text(f"tl.full({one}, {v}, {TL_DTYPES[dtype]})", (num(1),)) for v in (mean, var))  # type: ignore[return-value]
    if keep or not kept:
        return Text(mean, kept), Text(var, kept)
    if result:
        text = values.shapes.text(result)
        return Text(f"tl.reshape({mean}, {text})", result), Text(f"tl.reshape({var}, {text})", result)
    return Text(f"tl.max({mean})", ()), Text(f"tl.max({var})", ())


#: the functions that write operations for which a template is not enough
RULES: Mapping[str, Rule] = {
    **ELEMENTWISE,
    "gather": gather,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_mean", "reduce_any", "reduce_max", "reduce_min"), _reduction),
    **dict.fromkeys(("argmax", "argmin"), _argument),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "associative_scan"), scan),
    "dot": _dot,
}
