"""Values that combine elements: reductions, scans and matrix products."""

from __future__ import annotations

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.gather import GatherWriter
from kernellab.lowering.triton.text import is_atom
from kernellab.lowering.triton.values import TL_DTYPES, Text, axes_of
from kernellab.sketch.ints import num
from kernellab.sketch.program import Apply, DType, Type, Value


class ValueWriter(GatherWriter):
    """Writes every value of a Program."""

    def reduce(self, op: str, source: Value, attrs: tuple[tuple[str, object], ...], result: Type) -> Text:
        options = dict(attrs)
        shape = source.type.shape
        axes = sorted(axes_of(options.get("axes", options.get("axis", tuple(range(len(shape)))))), reverse=True)
        axes = [a % len(shape) for a in axes] if shape else []
        keep = bool(options.get("keepdims", False))
        accumulate = self._accumulator(op, source.type.dtype, result.dtype)
        text = self.cast(Text(self.filled(source, shape), shape), source.type.dtype, accumulate)
        code = self.neutral(text.code, shape, axes, accumulate, _IDENTITY[op])
        function = _REDUCTIONS[op]
        for axis in sorted(axes, reverse=True):
            code = f"{function}({code}, {axis}{', keep_dims=True' if keep else ''})"
        kept = tuple(num(1) if k in axes else e for k, e in enumerate(shape) if keep or k not in axes)
        if op == "reduce_mean":
            count = " * ".join(f"({self._int_text(shape[a])})" for a in sorted(axes)) or "1"
            code = f"({code} / ({count}))"
        produced = {"reduce_any": DType.BOOL, "argmax": DType.I64, "argmin": DType.I64}.get(op, accumulate)
        return self.cast(Text(code, kept), produced, result.dtype)

    def _accumulator(self, op: str, source: DType, result: DType) -> DType:
        if op in ("reduce_sum", "reduce_prod", "reduce_mean"):
            return result if result is not DType.BOOL else DType.I64
        if op == "reduce_any":
            return DType.BOOL
        return DType.I32 if source is DType.BOOL else source.compute

    def _reduction(self, value: Apply) -> Text:
        return self.reduce(value.op, value.args[0], value.attrs, value.type)

    _op_reduce_sum = _op_reduce_prod = _op_reduce_mean = _op_reduce_any = _reduction
    _op_reduce_max = _op_reduce_min = _reduction

    def _op_argmax(self, value: Apply) -> Text:
        return self._argument(value)

    def _op_argmin(self, value: Apply) -> Text:
        return self._argument(value)

    def _argument(self, value: Apply) -> Text:
        axes = axes_of(value.attr("axes", value.attr("axis", 0)))
        shape = value.args[0].type.shape
        if len(axes) == 1 or len(shape) == 1:
            return self.reduce(value.op, value.args[0], value.attrs, value.type)
        raise LoweringError(f"{value.op} over several axes at once has no Triton form.", "Give it one axis.")

    def scan(self, value: Apply, function: str) -> Text:
        axis = value.attr("axis", 0)
        assert isinstance(axis, int)
        shape = value.args[0].type.shape
        texts = [
            self.cast(Text(self.filled(a, a.type.shape), a.type.shape), a.type.dtype, value.type.dtype).code
            for a in value.args
        ]
        reverse = ""
        if value.attr("reverse", False):
            # lanes that padding added are the first that such a scan meets
            neutral = _NEUTRAL[str(value.attr("combine", "") or value.op)]
            texts = [self.neutral(t, shape, [axis % len(shape)], value.type.dtype, neutral) for t in texts]
            reverse = ", reverse=True"
        return Text(f"{function}({', '.join(texts)}, {axis % len(shape)}{reverse})", shape)

    def _op_cumsum(self, value: Apply) -> Text:
        return self.scan(value, "tl.cumsum")

    def _op_cumprod(self, value: Apply) -> Text:
        return self.scan(value, "tl.cumprod")

    def _op_cummax(self, value: Apply) -> Text:
        return self.scan(value, "kl_cummax")

    def _op_cummin(self, value: Apply) -> Text:
        return self.scan(value, "kl_cummin")

    def _op_associative_scan(self, value: Apply) -> Text:
        combine = str(value.attr("combine"))
        return self.scan(value, _SCANS[combine])

    def _op_dot(self, value: Apply) -> Text:
        precision = str(value.attr("precision", "ieee"))
        return Text(self.dot(value.args[0], value.args[1], "", value.type.dtype, precision), value.type.shape)

    def dot(self, a: Value, b: Value, acc: str, acc_dtype: DType, precision: str) -> str:
        """``a @ b`` (+ ``acc``) with lanes past the summed extent neutralised on both sides."""
        left = self._operand(a, len(a.type.shape) - 1, precision)
        right = self._operand(b, len(b.type.shape) - 2, precision)
        parts = [left, right, *([f"acc={acc}"] if acc else [])]
        self._fence()
        if not acc_dtype.is_float:
            return f"tl.dot({', '.join(parts)}, out_dtype={TL_DTYPES[acc_dtype]})"
        if precision not in ("bf16",):
            wanted = "ieee" if self._interpreter and precision.startswith("bf16x") else precision
            parts.append(f'input_precision="{wanted}"')
        return f"tl.dot({', '.join(parts)}, out_dtype={TL_DTYPES[acc_dtype]})"

    def _fence(self) -> None:
        # outside a serial loop nothing is copied ahead, and the compiler fences what it stores itself
        if self._interpreter or all(loop.hints.parallel for loop in self._shapes.ints.loops.values()):
            return
        at, self._out.at = self._out.at, 0
        self._out.put("kl_fence()")
        self._out.at = at

    def _operand(self, value: Value, summed: int, precision: str) -> str:
        # tl.dot takes the narrow dtype itself: the product of two is exact in float32
        if isinstance(value, Apply) and value.op == "cast" and value.args[0].type.dtype.compute is value.type.dtype:
            value = value.args[0]
        shape = value.type.shape
        dtype = value.type.dtype
        code = self.neutral(self.filled(value, shape), shape, [summed], dtype, "0")
        if self._interpreter and dtype is DType.BF16:
            # the interpreter's dot multiplies the bits of bfloat16 as integers
            return f"({code}).to(tl.float32)"
        if precision == "bf16" and dtype is DType.F32:
            rounded = self.cast(Text(code, shape), dtype, DType.BF16).code
            return f"({rounded}).to(tl.float32)" if self._interpreter else rounded
        return code

    def outer_sum(self, a: Value, b: Value, dtype: DType) -> str:
        """``a @ b`` as a sum over products, for shapes and dtypes that tl.dot does not take."""
        rank = len(a.type.shape)
        left = self._wide_operand(a, rank - 1, dtype)
        right = self._wide_operand(b, rank - 2, dtype)
        colons = ":, " * (rank - 2)
        return f"tl.sum(({left})[{colons}:, :, None] * ({right})[{colons}None, :, :], {rank - 1})"

    def _wide_operand(self, value: Value, summed: int, dtype: DType) -> str:
        shape = value.type.shape
        text = self.cast(Text(self.filled(value, shape), shape), value.type.dtype, dtype)
        return self.neutral(text.code, shape, [summed], dtype, "0")

    def moments(self, source: Value, attrs: tuple[tuple[str, object], ...], dtype: DType) -> tuple[Text, Text]:
        """Mean and (population) variance: the second from the distances to the first, so nothing cancels."""
        options = dict(attrs)
        shape = source.type.shape
        axes = [a % len(shape) for a in axes_of(options.get("axes", options.get("axis", tuple(range(len(shape))))))]
        keep = bool(options.get("keepdims", False))
        count = " * ".join(f"({self._int_text(shape[a])})" for a in sorted(axes))
        x = self.cast(Text(self.filled(source, shape), shape), source.type.dtype, dtype).code
        x = x if is_atom(x) else self.temporary(x)

        def total(code: str) -> str:
            code = self.neutral(code, shape, axes, dtype, "0")
            for axis in sorted(axes, reverse=True):
                code = f"tl.sum({code}, {axis}, keep_dims=True)" if len(shape) > 1 else f"tl.sum({code}, {axis})"
            return f"({code}) / ({count})"

        kept = tuple(num(1) if k in axes else e for k, e in enumerate(shape)) if len(shape) > 1 else ()
        mean = self.temporary(tidy(total(x)))
        away = self.temporary(f"{x} - {mean}")
        var = self.temporary(tidy(total(f"{away} * {away}")))
        result = tuple(e for k, e in enumerate(shape) if k not in axes)
        if keep and not kept:
            one = f"[{', '.join('1' for _ in shape)}]"
            return tuple(Text(f"tl.full({one}, {v}, {TL_DTYPES[dtype]})", (num(1),)) for v in (mean, var))  # type: ignore[return-value]
        if keep or not kept:
            return Text(mean, kept), Text(var, kept)
        if result:
            text = self._shapes.text(result)
            return Text(f"tl.reshape({mean}, {text})", result), Text(f"tl.reshape({var}, {text})", result)
        return Text(f"tl.max({mean})", ()), Text(f"tl.max({var})", ())


_REDUCTIONS = {
    "reduce_sum": "tl.sum", "reduce_mean": "tl.sum", "reduce_prod": "kl_reduce_prod", "reduce_max": "kl_reduce_max",
    "reduce_min": "kl_reduce_min", "reduce_any": "kl_reduce_any", "argmax": "kl_argmax", "argmin": "kl_argmin",
}  # fmt: skip
_IDENTITY = {
    "reduce_sum": "0", "reduce_mean": "0", "reduce_prod": "1", "reduce_max": "-inf", "reduce_min": "inf",
    "reduce_any": "0", "argmax": "-inf", "argmin": "inf",
}  # fmt: skip
#: what leaves a scan's state as it is; of a linear recurrence, which starts at 0, both operands
_NEUTRAL = {
    "cumsum": "0", "add": "0", "cumprod": "1", "mul": "1", "cummax": "-inf", "max": "-inf", "cummin": "inf",
    "min": "inf", "linear": "0",
}  # fmt: skip
_SCANS = {
    "add": "tl.cumsum", "mul": "tl.cumprod", "max": "kl_cummax", "min": "kl_cummin", "linear": "kl_linear_scan",
}  # fmt: skip
