"""The operation table: one entry an operation, with its kind, meaning, cost and spelling in each DSL.

To add a pointwise operation, add one entry: ``torch`` (an expression over ``a, b, c`` that gives the meaning, at
any float dtype and in float64), ``flops`` per element, and a template per DSL in which ``{0} {1} {2}`` are the
operands. Reductions, scans and matrix operations are entries too; their lowering is structural, so a DSL's module
spells them and the table says what they are.

Templates may use ``kl::`` helpers (``lowering/cpp/kl_math.h``) in C++ and, in Triton, ``tl`` names and the ``kl_``
functions of ``lowering/triton/library.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class OpKind(str, Enum):
    POINTWISE = "pointwise"
    COMPARE = "compare"
    REDUCE = "reduce"
    SCAN = "scan"
    MATRIX = "matrix"
    SHAPE = "shape"
    #: elements of a tensor named by index values; a statement in the text
    PICK = "pick"
    #: a whole row put in order
    SORT = "sort"


@dataclass(frozen=True)
class Op:
    """``arity`` counts operands; ``symbol`` is the infix spelling; ``composite`` expands into other operations."""

    name: str
    kind: OpKind
    arity: int
    torch: str = ""
    flops: float = 1.0
    symbol: str = ""
    #: result dtype rule: "same" (promoted compute dtype), "bool", "float" (int/int gives f32), "i64", "cast"
    result: str = "same"
    #: identity element of a reduction or scan ("0", "1", "-inf", "inf", "false"), "" when it has none
    identity: str = ""
    spell: Mapping[str, str] = field(default_factory=dict)


def _pointwise(
    name: str, arity: int, torch: str, cpp: str, triton: str, flops: float = 1.0, symbol: str = "", result: str = "same"
) -> Op:
    kind = OpKind.COMPARE if result == "bool" else OpKind.POINTWISE
    return Op(name, kind, arity, torch, flops, symbol, result, "", {"cpp": cpp, "triton": triton})


# ruff: noqa: E501 - one entry a line reads as a table
_TABLE = (
    # arithmetic
    _pointwise("add", 2, "a + b", "({0} + {1})", "({0} + {1})", symbol="+"),
    _pointwise("sub", 2, "a - b", "({0} - {1})", "({0} - {1})", symbol="-"),
    _pointwise("mul", 2, "a * b", "({0} * {1})", "({0} * {1})", symbol="*"),
    _pointwise("div", 2, "a / b", "({0} / {1})", "({0} / {1})", 4, symbol="/", result="float"),
    _pointwise("pow", 2, "torch.pow(a, b)", "kl::pow({0}, {1})", "kl_pow({0}, {1})", 20, symbol="**"),
    _pointwise("floordiv", 2, "torch.floor_divide(a, b)", "kl::floordiv({0}, {1})", "kl_floordiv({0}, {1})", 4, symbol="//"),
    _pointwise("mod", 2, "torch.remainder(a, b)", "kl::mod({0}, {1})", "kl_mod({0}, {1})", 4, symbol="%"),
    _pointwise("fma", 3, "a * b + c", "kl::fma({0}, {1}, {2})", "tl.fma({0}, {1}, {2})", 2),
    _pointwise("neg", 1, "-a", "(-{0})", "(-{0})"),
    _pointwise("abs", 1, "torch.abs(a)", "kl::abs({0})", "tl.abs({0})"),
    _pointwise("sign", 1, "torch.sign(a)", "kl::sign({0})", "kl_sign({0})"),
    _pointwise("min", 2, "torch.minimum(a, b)", "kl::min({0}, {1})", "kl_min_nan({0}, {1})"),
    _pointwise("max", 2, "torch.maximum(a, b)", "kl::max({0}, {1})", "kl_max_nan({0}, {1})"),
    _pointwise("floor", 1, "torch.floor(a)", "kl::floor({0})", "tl.floor({0})"),
    _pointwise("ceil", 1, "torch.ceil(a)", "kl::ceil({0})", "tl.ceil({0})"),
    _pointwise("round", 1, "torch.round(a)", "kl::round({0})", "kl_round({0})"),
    _pointwise("trunc", 1, "torch.trunc(a)", "kl::trunc({0})", "kl_trunc({0})"),
    _pointwise("clamp", 3, "torch.maximum(torch.minimum(a, c), b)", "kl::clamp({0}, {1}, {2})",
               "kl_clamp({0}, {1}, {2})", 2),
    # comparison and logic
    _pointwise("lt", 2, "a < b", "({0} < {1})", "({0} < {1})", symbol="<", result="bool"),
    _pointwise("le", 2, "a <= b", "({0} <= {1})", "({0} <= {1})", symbol="<=", result="bool"),
    _pointwise("gt", 2, "a > b", "({0} > {1})", "({0} > {1})", symbol=">", result="bool"),
    _pointwise("ge", 2, "a >= b", "({0} >= {1})", "({0} >= {1})", symbol=">=", result="bool"),
    _pointwise("eq", 2, "a == b", "({0} == {1})", "({0} == {1})", symbol="==", result="bool"),
    _pointwise("ne", 2, "a != b", "({0} != {1})", "({0} != {1})", symbol="!=", result="bool"),
    _pointwise("logical_and", 2, "torch.logical_and(a, b)", "({0} && {1})", "({0} & {1})", result="bool"),
    _pointwise("logical_or", 2, "torch.logical_or(a, b)", "({0} || {1})", "({0} | {1})", result="bool"),
    _pointwise("logical_not", 1, "torch.logical_not(a)", "(!{0})", "(~{0})", result="bool"),
    _pointwise("isnan", 1, "torch.isnan(a)", "({0} != {0})", "({0} != {0})", result="bool"),
    _pointwise("where", 3, "torch.where(a, b, c)", "({0} ? {1} : {2})", "tl.where({0}, {1}, {2})"),
    _pointwise("cast", 1, "", "", "", 0, result="cast"),
    # math
    _pointwise("exp", 1, "torch.exp(a)", "kl::exp({0})", "tl.exp({0})", 10, result="float"),
    _pointwise("exp2", 1, "torch.exp2(a)", "kl::exp2({0})", "tl.exp2({0})", 10, result="float"),
    _pointwise("log", 1, "torch.log(a)", "kl::log({0})", "tl.log({0})", 10, result="float"),
    _pointwise("log2", 1, "torch.log2(a)", "kl::log2({0})", "tl.log2({0})", 10, result="float"),
    _pointwise("log1p", 1, "torch.log1p(a)", "kl::log1p({0})", "kl_log1p({0})", 12, result="float"),
    _pointwise("expm1", 1, "torch.expm1(a)", "kl::expm1({0})", "kl_expm1({0})", 12, result="float"),
    _pointwise("sqrt", 1, "torch.sqrt(a)", "kl::sqrt({0})", "kl_sqrt({0})", 6, result="float"),
    _pointwise("rsqrt", 1, "torch.rsqrt(a)", "kl::rsqrt({0})", "tl.rsqrt({0})", 6, result="float"),
    _pointwise("sin", 1, "torch.sin(a)", "kl::sin({0})", "tl.sin({0})", 16, result="float"),
    _pointwise("cos", 1, "torch.cos(a)", "kl::cos({0})", "tl.cos({0})", 16, result="float"),
    _pointwise("tanh", 1, "torch.tanh(a)", "kl::tanh({0})", "kl_tanh({0})", 16, result="float"),
    _pointwise("erf", 1, "torch.erf(a)", "kl::erf({0})", "tl.erf({0})", 16, result="float"),
    _pointwise("sigmoid", 1, "torch.sigmoid(a)", "kl::sigmoid({0})", "tl.sigmoid({0})", 14, result="float"),
    _pointwise("relu", 1, "torch.relu(a)", "kl::relu({0})", "kl_relu({0})"),
    _pointwise("silu", 1, "torch.nn.functional.silu(a)", "kl::silu({0})", "kl_silu({0})", 15, result="float"),
    _pointwise("gelu", 1, "torch.nn.functional.gelu(a)", "kl::gelu({0})",
               "kl_gelu({0})", 20, result="float"),
    _pointwise("gelu_tanh", 1, "torch.nn.functional.gelu(a, approximate='tanh')", "kl::gelu_tanh({0})",
               "kl_gelu_tanh({0})", 22, result="float"),
    _pointwise("softplus", 1, "torch.nn.functional.softplus(a, threshold=1e30)", "kl::softplus({0})",
               "kl_softplus({0})", 22, result="float"),
    # reductions along axes
    Op("reduce_sum", OpKind.REDUCE, 1, identity="0"),
    Op("reduce_prod", OpKind.REDUCE, 1, identity="1"),
    Op("reduce_max", OpKind.REDUCE, 1, identity="-inf"),
    Op("reduce_min", OpKind.REDUCE, 1, identity="inf"),
    Op("reduce_mean", OpKind.REDUCE, 1, result="float"),
    Op("reduce_any", OpKind.REDUCE, 1, result="bool", identity="false"),
    Op("argmax", OpKind.REDUCE, 1, result="i64"),
    Op("argmin", OpKind.REDUCE, 1, result="i64"),
    Op("welford", OpKind.REDUCE, 1, result="float", flops=5),
    # scans along an axis
    Op("cumsum", OpKind.SCAN, 1, identity="0"),
    Op("cumprod", OpKind.SCAN, 1, identity="1"),
    Op("cummax", OpKind.SCAN, 1, identity="-inf"),
    Op("cummin", OpKind.SCAN, 1, identity="inf"),
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
    # elements of a tensor at index values: the tensor, the slices among the indices and the pad are attributes
    Op("gather", OpKind.PICK, 1, flops=0),
    Op("scatter", OpKind.PICK, 1, flops=0),
    # rows in order: the values, and where they were
    Op("sort", OpKind.SORT, 1, flops=20),
    Op("topk", OpKind.SORT, 2, flops=8),
    # composite: reduces along axis and keeps the shape
    Op("softmax", OpKind.REDUCE, 1, torch="torch.softmax(a, dim)", flops=14, result="float"),
)  # fmt: skip

OPS: Mapping[str, Op] = {op.name: op for op in _TABLE}
BY_SYMBOL: Mapping[str, Op] = {op.symbol: op for op in _TABLE if op.symbol}
