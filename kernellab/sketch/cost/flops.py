"""The arithmetic of one statement: weighted FLOPs by precision class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import elements
from kernellab.sketch.program.library import LIBRARY
from kernellab.sketch.program.program import FLOAT8, Apply, DType, Gemm, LibraryCall, MultiAssign, Statement, Value
from kernellab.sketch.program.walk import subvalues


def operations_of(stmt: Statement, env: Mapping[str, int]) -> Iterator[tuple[str, str, float]]:
    """The operations of one execution of one statement (no loops): name, precision class, weighted FLOPs."""
    values = stmt.values
    match stmt:
        case Gemm():
            kind, count = _matmul_class(stmt.a, stmt.b, stmt.precision)
            yield "gemm", kind, count * 2 * elements(stmt.acc.shape, env) * _depth(stmt.a, env)
        case LibraryCall():
            given = [tuple(e.evaluate(env) for e in o.shape) for o in stmt.operands]
            made = tuple(e.evaluate(env) for e in stmt.out.shape)
            kind = _products(stmt.out.dtype, stmt.precision)
            yield f"library.{stmt.op}", kind, LIBRARY[stmt.op].flops(given, made, dict(stmt.settings))
        case MultiAssign():
            source = stmt.args[0].type
            yield stmt.op, _class(source.dtype), OPS[stmt.op].flops * elements(source.shape, env)
    for value in (v for root in values for v in subvalues(root)):
        if not isinstance(value, Apply):
            continue
        op = OPS[value.op]
        if value.op == "dot":
            kind, count = _matmul_class(value.args[0], value.args[1], str(value.attr("precision", "ieee")))
            yield "dot", kind, count * 2 * elements(value.type.shape, env) * _depth(value.args[0], env)
        elif op.kind in (OpKind.REDUCE, OpKind.SCAN):
            source = value.args[0].type
            yield value.op, _class(source.dtype), op.flops * elements(source.shape, env)
        elif op.flops and op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            kind = _class((value.args[0] if value.args else value).type.dtype)
            yield value.op, kind, op.flops * elements(value.type.shape, env)


def _class(dtype: DType) -> str:
    """The precision class in which pointwise arithmetic of ``dtype`` is counted."""
    if dtype.is_float:
        return str(dtype.compute.value)
    return "i8" if dtype in (DType.I8, DType.U8) else "f32"


def _matmul_class(a: Value, b: Value, precision: str) -> tuple[str, int]:
    """f16, bf16 or f8 where both operands are stored so (matrix units), else what ``precision`` permits; and how many
    products of that class make one: six of "bf16x6"."""
    dtypes = {_stored(a), _stored(b)}
    dtype = dtypes.pop() if len(dtypes) == 1 else DType.F32
    kind, count = _products(dtype, precision), precision.partition("x")[2]
    return kind, int(count) if count and dtype is DType.F32 else 1


def _products(dtype: DType, precision: str) -> str:
    """The class of products of two values of ``dtype``."""
    if dtype in (DType.F16, DType.BF16):
        return str(dtype.value)
    if dtype in FLOAT8:
        return "f8"
    if dtype in (DType.I8, DType.U8):
        return "i8"
    if dtype is DType.F64:
        return "f64"
    return precision.partition("x")[0] if precision != "ieee" else "f32"


def _stored(value: Value) -> DType:
    """The dtype below the casts and moves of an operand."""
    moves = ("cast", "transpose", "reshape", "newaxis", "broadcast")
    while isinstance(value, Apply) and value.op in moves:
        value = value.args[0]
    return value.type.dtype


def _depth(a: Value, env: Mapping[str, int]) -> int:
    return a.type.shape[-1].evaluate(env) if a.type.shape else 1
