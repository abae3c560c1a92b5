"""Values of pointwise ATen operations, casts and constants at an index.

A handler accepts (builder, node, index, item) and returns an expression. Operations that correspond to one operation of
a sketch (``AtenOp.direct``) need no rule here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernellab.capture import Node, Ref, Sym
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.ir.arithmetic import apply, cast, compute, is_float, settle, truth, wide
from kernellab.designer.ir.axes import Index
from kernellab.designer.ir.dtypes import DTYPES, item_bytes
from kernellab.designer.ir.expr import Expr, Iota, Num, Op, SymNum
from kernellab.operations.aten import ATEN, POINTWISE, power


def args_of(b: Builder, node: Node, index: Index, count: int | None = None) -> list[Expr]:
    """Return the first ``count`` (default: all) operands of ``node``, broadcast to its shape, at ``index``."""
    operands = [a for a in node.args if isinstance(a, (Ref, Sym, bool, int, float))]
    return [b.operand(a, index, node.shape) for a in (operands if count is None else operands[:count])]


def _pointwise(op: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        args = args_of(b, node, index)
        unsupported = [k for k, _ in node.kwargs if k not in ("rounding_mode", "dtype")]
        if unsupported:
            raise b.refuse(node, f"the argument {unsupported[0]}")
        if op == "div" and node.keyword("rounding_mode"):
            return settle(_rounded_quotient(node.keyword("rounding_mode"), args, node), node.dtype)
        if op == "mul" and node.dtype == "bool":
            return apply("logical_and", args, "bool", node.line)
        return settle(apply(op, args, node.dtype, node.line), node.dtype)

    return handle


def _rounded_quotient(mode: str, args: list[Expr], node: Node) -> Expr:
    """Return a quotient rounded down or towards zero: exact for integers, for floats rounded as torch rounds them."""
    if mode == "floor":
        return apply("floordiv", args, node.dtype, node.line)
    d = wide(node.dtype)
    if is_float(d):
        return Op("trunc", (apply("div", args, d, node.line),), d, node.line)
    left, right = (compute(a, d) for a in args)
    below = Op("floordiv", (left, right), d, node.line)
    uneven = Op("ne", (Op("mod", (left, right), d), Num(0, d)), "bool")
    signs = (Op("lt", (left, Num(0, d)), "bool"), Op("lt", (right, Num(0, d)), "bool"))
    negative = Op("logical_and", (uneven, Op("ne", signs, "bool")), "bool")
    return Op("where", (negative, Op("add", (below, Num(1, d)), d), below), d, node.line)


def _add(sign: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        first, second = args_of(b, node, index, 2)
        alpha = node.keyword("alpha", 1)
        if alpha != 1:
            second = apply("mul", [second, b.value(alpha)], node.dtype, node.line)
        if node.dtype == "bool":
            return apply("logical_or", [first, second], "bool", node.line)
        return apply(sign, [first, second], node.dtype, node.line)

    return handle


def _rsub(b: Builder, node: Node, index: Index, item: int) -> Expr:
    first, second = args_of(b, node, index, 2)
    return apply("sub", [second, first], node.dtype, node.line)


def _pow(b: Builder, node: Node, index: Index, item: int) -> Expr:
    base, exponent = args_of(b, node, index, 2)
    if isinstance(exponent, Num):
        p = float(exponent.value)
        target = wide(node.dtype)
        base = compute(base, target)
        match power(p):
            case ():
                return base
            case ("mul", *more):
                square = Op("mul", (base, base), target, node.line)
                return Op("mul", (square, base if p == 3 else square), target, node.line) if more else square
            case ("div",):
                return Op("div", (Num(1.0, target), base), target, node.line)
            case (root,) if root != "pow":
                return Op(root, (base,), target, node.line)
    return apply("pow", [base, exponent], node.dtype, node.line)


def _clamp(b: Builder, node: Node, index: Index, item: int) -> Expr:
    x = b.operand(node.args[0], index, node.shape)
    low = node.args[1] if len(node.args) > 1 else node.keyword("min")
    high = node.args[2] if len(node.args) > 2 else node.keyword("max")
    # torch applies the upper bound last: min(max(x, low), high)
    if low is not None:
        x = apply("max", [x, b.operand(low, index, node.shape)], node.dtype, node.line)
    if high is not None:
        x = apply("min", [x, b.operand(high, index, node.shape)], node.dtype, node.line)
    return x


def _one(op: str, x: Expr, line: int) -> Expr:
    return Op(op, (x,), x.dtype if x.dtype == "float64" else "float32", line)


def _gelu(b: Builder, node: Node, index: Index, item: int) -> Expr:
    x = compute(b.value(node.args[0], index), wide(node.dtype))
    return _one("gelu_tanh" if node.keyword("approximate") == "tanh" else "gelu", x, node.line)


def _tanh(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Return tanh. The tanh of a softplus, as in mish, uses one exponential: n / (n + 2) with n = e^x (e^x + 2)."""
    inner = b.nodes.get(node.args[0].name) if isinstance(node.args[0], Ref) else None
    d = wide(node.dtype)
    if inner is None or inner.op.split(".")[1] != "softplus" or len(inner.args) > 1 or not is_float(node.dtype):
        return apply("tanh", args_of(b, node, index), node.dtype, node.line)
    x = compute(b.value(inner.args[0], index), d)
    # beyond 20, softplus equals x to the last bit, and its tanh is 1
    power = Op("exp", (Op("min", (x, Num(20.0, d)), d),), d, node.line)
    top = Op("mul", (power, Op("add", (power, Num(2.0, d)), d)), d, node.line)
    return Op("div", (top, Op("add", (top, Num(2.0, d)), d)), d, node.line)


def _softplus(b: Builder, node: Node, index: Index, item: int) -> Expr:
    x = compute(b.value(node.args[0], index), wide(node.dtype))
    beta, threshold = ([*node.args[1:], *(1.0, 20.0)[len(node.args) - 1 :]])[:2]
    d = wide(node.dtype)
    scaled = x if beta == 1 else Op("mul", (x, b.value(beta)), d, node.line)
    soft = Op("softplus", (scaled,), d, node.line)
    soft = soft if beta == 1 else Op("div", (soft, b.value(beta)), d, node.line)
    return Op("where", (Op("gt", (scaled, b.value(threshold)), "bool"), x, soft), d, node.line)


def _binary_of_unary(build: Callable[[Expr, str, int], Expr]) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        d = wide(node.dtype)
        return build(compute(b.value(node.args[0], index), d), d, node.line)

    return handle


def _leaky(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = wide(node.dtype)
    x = b.value(node.args[0], index)
    slope = b.value(node.args[1] if len(node.args) > 1 else 0.01)
    return Op("where", (Op("gt", (x, Num(0, d)), "bool"), x, Op("mul", (x, slope), d)), d, node.line)


def _elu(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = wide(node.dtype)
    x = b.value(node.args[0], index)
    alpha, scale, input_scale = ([b.value(a) for a in node.args[1:4]] + [Num(1.0, d)] * 3)[:3]
    inner = Op("expm1", (Op("mul", (x, input_scale), d),), d)
    negative = Op("mul", (inner, alpha), d)
    chosen = Op("where", (Op("gt", (x, Num(0, d)), "bool"), x, negative), d)
    return Op("mul", (chosen, scale), d, node.line)


def _hard(scaled: bool) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        d = wide(node.dtype)
        x = b.value(node.args[0], index)
        shifted = Op("add", (x, Num(3.0, d)), d)
        gate = Op("min", (Op("max", (shifted, Num(0.0, d)), d), Num(6.0, d)), d)
        top = Op("mul", (x, gate), d) if scaled else gate
        return Op("div", (top, Num(6.0, d)), d, node.line)

    return handle


def _hardtanh(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = wide(node.dtype)
    # an exported graph leaves out the last bounds that are the default ones
    bounds = [b.value(a) for a in node.args[1:3]]
    low, high = bounds + [Num(-1.0, d), Num(1.0, d)][len(bounds) :]
    return Op("min", (Op("max", (b.value(node.args[0], index), low), d), high), d, node.line)


def _square(x: Expr, d: str, line: int) -> Expr:
    return Op("mul", (x, x), d, line)


def _log10(x: Expr, d: str, line: int) -> Expr:
    return Op("mul", (Op("log2", (x,), d), Num(0.30102999566398120, d)), d, line)


#: logical equivalents of bitwise operations on bools
_OF_BOOL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_not": "logical_not", "bitwise_xor": "ne"}


def _bitwise(name: str) -> Handler:
    on_integers = OPERATIONS[name]

    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        if node.dtype != "bool":
            return on_integers(b, node, index, item)
        return apply(_OF_BOOL[name], args_of(b, node, index), "bool", node.line)

    return handle


def _logical_xor(b: Builder, node: Node, index: Index, item: int) -> Expr:
    sides = [truth(a) for a in args_of(b, node, index, 2)]
    return Op("ne", tuple(sides), "bool", node.line)


def _of_present(op: str) -> Handler:
    """The larger or smaller of two values; if one is NaN, the other."""

    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        d = wide(node.dtype)
        x, y = (compute(a, d) for a in args_of(b, node, index, 2))
        both = Op(op, (x, y), d, node.line)
        if not is_float(d):
            return both
        first = Op("where", (Op("isnan", (y,), "bool"), x, both), d)
        return Op("where", (Op("isnan", (x,), "bool"), y, first), d, node.line)

    return handle


def _heaviside(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = wide(node.dtype)
    x, at_zero = (compute(a, d) for a in args_of(b, node, index, 2))
    step = cast(Op("gt", (x, Num(0, d)), "bool"), d)
    return Op("where", (Op("eq", (x, Num(0, d)), "bool"), at_zero, step), d, node.line)


def _signbit(b: Builder, node: Node, index: Index, item: int) -> Expr:
    x = b.value(node.args[0], index)
    if is_float(x.dtype):
        d = wide(x.dtype)
        x = Op("copysign", (Num(1.0, d), compute(x, d)), d, node.line)
    return Op("lt", (x, Num(0, x.dtype)), "bool", node.line)


def _round(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Round to integers, or to a number of decimals as torch does: scale, round, scale back."""
    (x,) = args_of(b, node, index, 1)
    decimals = node.keyword("decimals", 0)
    if not decimals or not is_float(node.dtype):
        return settle(apply("round", [x], node.dtype, node.line), node.dtype) if is_float(node.dtype) else x
    d = wide(node.dtype)
    scale = Num(10.0 ** abs(decimals), d)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    scaled = Op("round", (Op(there, (compute(x, d), scale), d),), d, node.line)
    return Op(back, (scaled, scale), d, node.line)


def _angle(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Return the angle of real numbers: pi below 0, else 0; NaN is preserved."""
    (x,) = args_of(b, node, index, 1)
    d = wide(node.dtype)
    x = compute(x, d)
    angle = Op("where", (Op("lt", (x, Num(0.0, d)), "bool"), Num(math.pi, d), Num(0.0, d)), d, node.line)
    return Op("where", (Op("isnan", (x,), "bool"), x, angle), d, node.line)


def _ldexp(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = wide(node.dtype)
    x, power = (compute(a, d) for a in args_of(b, node, index, 2))
    return Op("mul", (x, Op("exp2", (power,), d)), d, node.line)


def _isinf(b: Builder, node: Node, index: Index, item: int) -> Expr:
    x = b.value(node.args[0], index)
    return Op("eq", (Op("abs", (x,), x.dtype), Num(float("inf"), x.dtype)), "bool", node.line)


def _xlogy(b: Builder, node: Node, index: Index, item: int) -> Expr:
    x, y = args_of(b, node, index, 2)
    d = wide(node.dtype)
    product = Op("mul", (x, Op("log", (y,), d)), d)
    return Op("where", (Op("eq", (x, Num(0, d)), "bool"), Num(0.0, d), product), d, node.line)


# -- casts and constants


def _to_copy(b: Builder, node: Node, index: Index, item: int) -> Expr:
    return cast(b.value(node.args[0], index), node.dtype)


def _bits(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Reinterpret the bits of each element as a dtype of the same size."""
    source, target = b.dtype(node.args[0]), node.dtype
    if source not in DTYPES or target not in DTYPES or item_bytes(source) != item_bytes(target):
        raise b.refuse(node, f"the bits of {source} are read as {target}")
    value = b.value(node.args[0], index)
    if isinstance(value, Num):
        return Num(_bits_of(value.value, source, target), target, node.line)
    if isinstance(value, SymNum) or value.dtype != source:
        # the bits are those of the reference's dtype, to which arithmetic on narrow floats is rounded
        value = Op("cast", (value,), source, node.line)
    return Op("bitcast", (value,), target, node.line)


def _bits_of(value: float, source: str, target: str) -> float | int:
    import torch

    tensor = torch.tensor(value).to(getattr(torch, source)).view(getattr(torch, target))
    return tensor.double().item() if is_float(target) else int(tensor.item())


def _identity(b: Builder, node: Node, index: Index, item: int) -> Expr:
    return b.value(node.args[0], index)


def _full(value_at: int | float | bool | None, position: int = 1) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        value = b.value(node.args[position]) if value_at is None else Num(value_at, node.dtype)
        return cast(value, node.dtype) if isinstance(value, Num) else value

    return handle


def _arange(b: Builder, node: Node, index: Index, item: int) -> Expr:
    bounds = list(node.args)
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], bounds[2] if len(bounds) > 2 else 1)
    at: Expr = Iota(index[0], line=node.line) if index[0].leaves() else b.position(index[0])
    if step != 1:
        at = Op("mul", (at, b.value(step)), "int64")
    if start != 0:
        at = Op("add", (at, b.value(start)), "int64")
    return settle(at, node.dtype) if not is_float(node.dtype) else cast(at, node.dtype)


def _triangle(upper: bool) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        diagonal = node.args[1] if len(node.args) > 1 else 0
        distance = Op("sub", (b.position(index[-1]), b.position(index[-2])), "int64")
        inside = Op("ge" if upper else "le", (distance, b.value(diagonal)), "bool")
        return Op("where", (inside, b.value(node.args[0], index), Num(0, node.dtype)), wide(node.dtype), node.line)

    return handle


OPERATIONS: dict[str, Handler] = {
    row.name: _pointwise(row.sketch[0]) for row in ATEN.values() if row.direct and row.role in POINTWISE
}
OPERATIONS |= {
    "add": _add("add"), "sub": _add("sub"), "rsub": _rsub, "pow": _pow, "clamp": _clamp, "clamp_min": _clamp,
    "gelu": _gelu, "tanh": _tanh, "softplus": _softplus, "leaky_relu": _leaky, "elu": _elu, "hardtanh": _hardtanh,
    "hardsigmoid": _hard(False), "hardswish": _hard(True), "square": _binary_of_unary(_square),
    "reciprocal": _binary_of_unary(lambda x, d, line: Op("div", (Num(1.0, d), x), d, line)),
    "log10": _binary_of_unary(lambda x, d, line: _log10(x, d, line)),
    "isinf": _isinf, "xlogy": _xlogy, "logical_xor": _logical_xor, "fmax": _of_present("max"),
    "fmin": _of_present("min"), "heaviside": _heaviside, "signbit": _signbit, "ldexp": _ldexp,
    "round": _round, "angle": _angle, "bitcast": _bits,
    **{name: _bitwise(name) for name in _OF_BOOL},
    "_to_copy": _to_copy, "to": _to_copy, "clone": _identity, "alias": _identity, "detach": _identity,
    "contiguous": _identity, "lift_fresh_copy": _identity, "_assert_tensor_metadata": _identity,
    "full": _full(None), "full_like": _full(None), "scalar_tensor": _full(None, 0), "zeros": _full(0),
    "zeros_like": _full(0), "ones": _full(1), "ones_like": _full(1), "fill": _full(None), "new_zeros": _full(0),
    "new_ones": _full(1), "new_full": _full(None, 2), "arange": _arange, "tril": _triangle(False),
    "triu": _triangle(True),
}  # fmt: skip
