"""The operation table: one entry for each operation, with its kind, meaning, cost and spelling in each DSL.

To add a pointwise operation, add one entry: its name and number of operands, ``torch`` (an expression over ``a, b, c``
that gives the meaning, at any float dtype and in float64), the templates of C++ and of Triton, in which ``{0} {1} {2}``
are the operands, and the FLOPs of an element. ``aten`` names the ATen operations with the same operands: a capture keeps
them whole, the Designer writes them so, and the audit counts them so (``kernellab.operations.aten``). Reductions, scans
and matrix operations are entries too; their lowering is structural, so a DSL's module spells them and the table says
what they are.

Templates may use the ``kl::`` functions of ``lowering/cpp/headers`` in C++, those of ``lowering/cuda_c`` (``kl_cuda.h``,
``kl_special.h``) in CUDA-C, which has no ``std::``, and in Triton ``tl`` names and the ``kl_`` functions of
``lowering/triton/library/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class OpKind(str, Enum):
    """How an operation's results depend on its operands' elements."""

    POINTWISE = "pointwise"
    COMPARE = "compare"
    REDUCE = "reduce"
    SCAN = "scan"
    MATRIX = "matrix"
    SHAPE = "shape"
    #: elements of a tensor at computed indices; a statement in the text
    PICK = "pick"
    #: a sort of a row
    SORT = "sort"


@dataclass(frozen=True)
class Op:
    """One operation. ``arity`` counts operands, ``symbol`` is the infix spelling, ``torch`` the meaning as an expression
    over ``a, b, c``, ``flops`` those of an element."""

    name: str
    kind: OpKind
    arity: int
    torch: str = ""
    flops: float = 1.0
    symbol: str = ""
    #: result dtype rule: "same" (promoted compute dtype), "bool", "float" (int/int gives f32), "i64", "cast", and
    #: "integer", which takes integers alone
    result: str = "same"
    #: the neutral operand of a binary operation, or element of a reduction or scan; None if there is none. For bool, 0
    #: is false.
    identity: float | None = None
    #: the binary operation that combines two results of a reduction or scan; "" if one is not enough
    join: str = ""
    #: the template of an element in each DSL: "cpp", "cuda_c", "triton"
    spell: Mapping[str, str] = field(default_factory=dict)
    #: ATen operations, by name without the overload, that have this meaning and these operands
    aten: tuple[str, ...] = ()
    #: its two operands may be exchanged
    commutes: bool = False


def _pointwise(
    name: str,
    arity: int,
    torch: str,
    cpp: str,
    triton: str,
    flops: float = 1.0,
    symbol: str = "",
    result: str = "same",
    aten: str = "",
    identity: float | None = None,
    cuda_c: str = "",
    commutes: bool = False,
) -> Op:
    """Return an elementwise operation; a comparison if its ``result`` is bool. ``aten`` has names separated by spaces.
    ``cuda_c``: its spelling in CUDA-C if it differs from C++."""
    return Op(
        name,
        OpKind.COMPARE if result == "bool" else OpKind.POINTWISE,
        arity,
        torch=torch,
        flops=flops,
        symbol=symbol,
        result=result,
        identity=identity,
        spell={"cpp": cpp, "cuda_c": cuda_c or cpp, "triton": triton},
        aten=tuple(aten.split()),
        commutes=commutes,
    )


_INF = float("inf")

# ruff: noqa: E501 - one entry a line reads as a table
_TABLE = (
    # arithmetic
    _pointwise("add", 2, "a + b", "({0} + {1})", "({0} + {1})", symbol="+", identity=0.0, commutes=True),
    _pointwise("sub", 2, "a - b", "({0} - {1})", "({0} - {1})", symbol="-"),
    _pointwise("mul", 2, "a * b", "({0} * {1})", "({0} * {1})", symbol="*", identity=1.0, aten="mul", commutes=True),
    _pointwise("div", 2, "a / b", "({0} / {1})", "({0} / {1})", 4, symbol="/", result="float", aten="div"),
    _pointwise("pow", 2, "torch.pow(a, b)", "kl::pow({0}, {1})", "kl_pow({0}, {1})", 20, symbol="**"),
    _pointwise("floordiv", 2, "torch.floor_divide(a, b)", "kl::floordiv({0}, {1})", "kl_floordiv({0}, {1})", 4, symbol="//", aten="floor_divide"),
    _pointwise("mod", 2, "torch.remainder(a, b)", "kl::mod({0}, {1})", "kl_mod({0}, {1})", 4, symbol="%", aten="remainder"),
    _pointwise("fma", 3, "a * b + c", "kl::fma({0}, {1}, {2})", "tl.fma({0}, {1}, {2})", 2),
    _pointwise("neg", 1, "-a", "(-{0})", "(-{0})", aten="neg"),
    _pointwise("abs", 1, "torch.abs(a)", "kl::abs({0})", "tl.abs({0})", aten="abs"),
    _pointwise("sign", 1, "torch.sign(a)", "kl::sign({0})", "kl_sign({0})", aten="sign sgn"),
    _pointwise("min", 2, "torch.minimum(a, b)", "kl::min({0}, {1})", "kl_min_nan({0}, {1})", identity=_INF, commutes=True),
    _pointwise("max", 2, "torch.maximum(a, b)", "kl::max({0}, {1})", "kl_max_nan({0}, {1})", identity=-_INF, commutes=True),
    _pointwise("floor", 1, "torch.floor(a)", "kl::floor({0})", "tl.floor({0})", aten="floor"),
    _pointwise("ceil", 1, "torch.ceil(a)", "kl::ceil({0})", "tl.ceil({0})", aten="ceil"),
    _pointwise("round", 1, "torch.round(a)", "kl::round({0})", "kl_round({0})", aten="round"),
    _pointwise("trunc", 1, "torch.trunc(a)", "kl::trunc({0})", "kl_trunc({0})", aten="trunc fix"),
    _pointwise("clamp", 3, "torch.maximum(torch.minimum(a, c), b)", "kl::clamp({0}, {1}, {2})",
               "kl_clamp({0}, {1}, {2})", 2),
    # comparison and logic
    _pointwise("lt", 2, "a < b", "({0} < {1})", "({0} < {1})", symbol="<", result="bool", aten="lt"),
    _pointwise("le", 2, "a <= b", "({0} <= {1})", "({0} <= {1})", symbol="<=", result="bool", aten="le"),
    _pointwise("gt", 2, "a > b", "({0} > {1})", "({0} > {1})", symbol=">", result="bool", aten="gt"),
    _pointwise("ge", 2, "a >= b", "({0} >= {1})", "({0} >= {1})", symbol=">=", result="bool", aten="ge"),
    _pointwise("eq", 2, "a == b", "({0} == {1})", "({0} == {1})", symbol="==", result="bool", aten="eq", commutes=True),
    _pointwise("ne", 2, "a != b", "({0} != {1})", "({0} != {1})", symbol="!=", result="bool", aten="ne", commutes=True),
    _pointwise("logical_and", 2, "torch.logical_and(a, b)", "({0} & {1})", "({0} & {1})", result="bool", identity=1.0, aten="logical_and", commutes=True),
    _pointwise("logical_or", 2, "torch.logical_or(a, b)", "({0} | {1})", "({0} | {1})", result="bool", identity=0.0, aten="logical_or", commutes=True),
    _pointwise("logical_not", 1, "torch.logical_not(a)", "(!{0})", "(~{0})", result="bool", aten="logical_not"),
    _pointwise("isnan", 1, "torch.isnan(a)", "({0} != {0})", "({0} != {0})", result="bool", aten="isnan"),
    # bits of integers
    _pointwise("bit_and", 2, "torch.bitwise_and(a, b)", "({0} & {1})", "({0} & {1})", symbol="&", result="integer", aten="bitwise_and", commutes=True),
    _pointwise("bit_or", 2, "torch.bitwise_or(a, b)", "({0} | {1})", "({0} | {1})", symbol="|", result="integer", aten="bitwise_or", commutes=True),
    _pointwise("bit_xor", 2, "torch.bitwise_xor(a, b)", "({0} ^ {1})", "({0} ^ {1})", symbol="^", result="integer", aten="bitwise_xor", commutes=True),
    _pointwise("bit_not", 1, "torch.bitwise_not(a)", "(~{0})", "(~{0})", symbol="~", result="integer", aten="bitwise_not"),
    _pointwise("shift_left", 2, "torch.bitwise_left_shift(a, b)", "kl::shift_left({0}, {1})", "kl_shift_left({0}, {1})",
               symbol="<<", result="integer", aten="bitwise_left_shift __lshift__"),
    _pointwise("shift_right", 2, "torch.bitwise_right_shift(a, b)", "kl::shift_right({0}, {1})",
               "kl_shift_right({0}, {1})", symbol=">>", result="integer", aten="bitwise_right_shift __rshift__"),
    _pointwise("where", 3, "torch.where(a, b, c)", "({0} ? {1} : {2})", "tl.where({0}, {1}, {2})", aten="where"),
    _pointwise("cast", 1, "", "", "", 0, result="cast"),
    # the bits of one dtype read as another of as many bytes; {1} is the C++ type that they become
    _pointwise("bitcast", 1, "", "kl::bits<{1}>({0})", "({0}).to({1}, bitcast=True)", 0, result="cast"),
    # as cvt.rna: halves away from zero; what is not f32 stays, and so does NaN
    _pointwise("round_tf32", 1, "torch.where(a == a, ((a.view(torch.int32) + 4096) & -8192).view(torch.float32), a) if a.dtype == torch.float32 else a",
               "kl::round_tf32({0})", "kl_round_tf32({0})", 4, result="float"),
    # math
    _pointwise("exp", 1, "torch.exp(a)", "kl::exp({0})", "tl.exp({0})", 10, result="float", aten="exp"),
    _pointwise("exp2", 1, "torch.exp2(a)", "kl::exp2({0})", "tl.exp2({0})", 10, result="float", aten="exp2"),
    _pointwise("log", 1, "torch.log(a)", "kl::log({0})", "tl.log({0})", 10, result="float", aten="log"),
    _pointwise("log2", 1, "torch.log2(a)", "kl::log2({0})", "tl.log2({0})", 10, result="float", aten="log2"),
    _pointwise("log1p", 1, "torch.log1p(a)", "kl::log1p({0})", "kl_log1p({0})", 12, result="float", aten="log1p"),
    _pointwise("expm1", 1, "torch.expm1(a)", "kl::expm1({0})", "kl_expm1({0})", 12, result="float", aten="expm1"),
    _pointwise("sqrt", 1, "torch.sqrt(a)", "kl::sqrt({0})", "kl_sqrt({0})", 6, result="float", aten="sqrt"),
    _pointwise("rsqrt", 1, "torch.rsqrt(a)", "kl::rsqrt({0})", "tl.rsqrt({0})", 6, result="float", aten="rsqrt"),
    _pointwise("sin", 1, "torch.sin(a)", "kl::sin({0})", "tl.sin({0})", 16, result="float", aten="sin"),
    _pointwise("cos", 1, "torch.cos(a)", "kl::cos({0})", "tl.cos({0})", 16, result="float", aten="cos"),
    _pointwise("tanh", 1, "torch.tanh(a)", "kl::tanh({0})", "kl_tanh({0})", 16, result="float"),
    _pointwise("erf", 1, "torch.erf(a)", "kl::erf({0})", "tl.erf({0})", 16, result="float", aten="erf"),
    _pointwise("sigmoid", 1, "torch.sigmoid(a)", "kl::sigmoid({0})", "tl.sigmoid({0})", 14, result="float", aten="sigmoid"),
    _pointwise("relu", 1, "torch.relu(a)", "kl::relu({0})", "kl_relu({0})"),
    _pointwise("silu", 1, "torch.nn.functional.silu(a)", "kl::silu({0})", "kl_silu({0})", 15, result="float"),
    _pointwise("gelu", 1, "torch.nn.functional.gelu(a)", "kl::gelu({0})",
               "kl_gelu({0})", 20, result="float"),
    _pointwise("gelu_tanh", 1, "torch.nn.functional.gelu(a, approximate='tanh')", "kl::gelu_tanh({0})",
               "kl_gelu_tanh({0})", 22, result="float"),
    _pointwise("softplus", 1, "torch.nn.functional.softplus(a, threshold=1e30)", "kl::softplus({0})",
               "kl_softplus({0})", 22, result="float"),
    # the rest of mathematics
    _pointwise("tan", 1, "torch.tan(a)", "kl::tan({0})", "kl_tan({0})", 24, result="float", aten="tan"),
    _pointwise("asin", 1, "torch.asin(a)", "kl::asin({0})", "kl_asin({0})", 16, result="float", aten="asin"),
    _pointwise("acos", 1, "torch.acos(a)", "kl::acos({0})", "kl_acos({0})", 16, result="float", aten="acos"),
    _pointwise("atan", 1, "torch.atan(a)", "kl::atan({0})", "kl_atan({0})", 16, result="float", aten="atan"),
    _pointwise("sinh", 1, "torch.sinh(a)", "kl::sinh({0})", "kl_sinh({0})", 16, result="float", aten="sinh"),
    _pointwise("cosh", 1, "torch.cosh(a)", "kl::cosh({0})", "kl_cosh({0})", 16, result="float", aten="cosh"),
    _pointwise("asinh", 1, "torch.asinh(a)", "kl::asinh({0})", "kl_asinh({0})", 24, result="float", aten="asinh"),
    _pointwise("acosh", 1, "torch.acosh(a)", "kl::acosh({0})", "kl_acosh({0})", 24, result="float", aten="acosh"),
    _pointwise("atanh", 1, "torch.atanh(a)", "kl::atanh({0})", "kl_atanh({0})", 20, result="float", aten="atanh"),
    _pointwise("erfc", 1, "torch.erfc(a)", "kl::erfc({0})", "kl_erfc({0})", 20, result="float", aten="erfc special_erfc"),
    _pointwise("lgamma", 1, "torch.lgamma(a)", "kl::lgamma({0})", "kl_lgamma({0})", 40, result="float", aten="lgamma"),
    _pointwise("atan2", 2, "torch.atan2(a, b)", "kl::atan2({0}, {1})", "kl_atan2({0}, {1})", 24, result="float", aten="atan2"),
    _pointwise("hypot", 2, "torch.hypot(a, b)", "kl::hypot({0}, {1})", "kl_hypot({0}, {1})", 9, result="float", aten="hypot"),
    _pointwise("copysign", 2, "torch.copysign(a, b)", "kl::copysign({0}, {1})", "kl_copysign({0}, {1})", 2, result="float", aten="copysign"),
    _pointwise("nextafter", 2, "torch.nextafter(a, b)", "kl::nextafter({0}, {1})", "kl_nextafter({0}, {1})", 6, result="float", aten="nextafter"),
    _pointwise("gcd", 2, "torch.gcd(a, b)", "kl::gcd({0}, {1})", "kl_gcd({0}, {1})", 60, result="integer", aten="gcd"),
    # reductions along axes
    Op("reduce_sum", OpKind.REDUCE, 1, identity=0.0, join="add", aten=("sum",)),
    Op("reduce_prod", OpKind.REDUCE, 1, identity=1.0, join="mul", aten=("prod",)),
    Op("reduce_max", OpKind.REDUCE, 1, identity=-_INF, join="max"),
    Op("reduce_min", OpKind.REDUCE, 1, identity=_INF, join="min"),
    Op("reduce_mean", OpKind.REDUCE, 1, result="float", identity=0.0, aten=("mean",)),
    Op("reduce_any", OpKind.REDUCE, 1, result="bool", identity=0.0, join="logical_or", aten=("any",)),
    Op("argmax", OpKind.REDUCE, 1, result="i64", identity=-_INF, aten=("argmax",)),
    Op("argmin", OpKind.REDUCE, 1, result="i64", identity=_INF, aten=("argmin",)),
    Op("welford", OpKind.REDUCE, 1, result="float", flops=5),
    # scans along an axis
    Op("cumsum", OpKind.SCAN, 1, identity=0.0, join="add", aten=("cumsum",)),
    Op("cumprod", OpKind.SCAN, 1, identity=1.0, join="mul", aten=("cumprod",)),
    Op("cummax", OpKind.SCAN, 1, identity=-_INF, join="max", aten=("cummax",)),
    Op("cummin", OpKind.SCAN, 1, identity=_INF, join="min", aten=("cummin",)),
    Op("associative_scan", OpKind.SCAN, 1),
    # matrix and shape
    Op("dot", OpKind.MATRIX, 2, torch="a @ b", flops=2),
    Op("gemm", OpKind.MATRIX, 3, flops=2),
    Op("transpose", OpKind.SHAPE, 1, flops=0),
    Op("reshape", OpKind.SHAPE, 1, flops=0),
    Op("broadcast", OpKind.SHAPE, 1, flops=0),
    Op("newaxis", OpKind.SHAPE, 1, flops=0),
    Op("concat", OpKind.SHAPE, 2, flops=0),
    Op("arange", OpKind.SHAPE, 0, flops=0, result="i64"),
    Op("full", OpKind.SHAPE, 1, flops=0),
    # elements of a tensor at computed indices: the tensor, the slices among the indices and the pad are attributes
    Op("gather", OpKind.PICK, 1, flops=0),
    Op("scatter", OpKind.PICK, 1, flops=0),
    # sorted rows: the values, and their former positions
    Op("sort", OpKind.SORT, 1, flops=20),
    Op("topk", OpKind.SORT, 2, flops=8),
    # composite: reduces along axis and keeps the shape
    Op("softmax", OpKind.REDUCE, 1, torch="torch.softmax(a, dim)", flops=14, result="float", identity=-_INF),
)  # fmt: skip

OPS: Mapping[str, Op] = {op.name: op for op in _TABLE}
BY_SYMBOL: Mapping[str, Op] = {op.symbol: op for op in _TABLE if op.symbol}
#: the neutral element of an associative scan, by the combining operation; a linear recurrence starts at 0
SCAN_IDENTITY: Mapping[str, float] = {op: OPS[op].identity or 0.0 for op in ("add", "mul", "max", "min")} | {
    "linear": 0.0
}
