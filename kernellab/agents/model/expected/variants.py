"""A sketch with one small change: what a slip in the code made from it would compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import int_op
from kernellab.sketch.program.program import (
    Apply,
    Assign,
    Const,
    Gemm,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    Param,
    Program,
    Read,
    Statement,
    Store,
    Value,
)

#: Operation -> operations that are written instead by mistake.
_TAKEN_FOR = {
    "add": ("sub",), "sub": ("add",), "mul": ("div",), "div": ("mul",), "min": ("max",), "max": ("min",),
    "reduce_sum": ("reduce_mean", "reduce_max"), "reduce_mean": ("reduce_sum",), "reduce_max": ("reduce_min",),
    "reduce_min": ("reduce_max",), "exp": ("exp2",), "exp2": ("exp",), "log": ("log2",), "log2": ("log",),
    "sqrt": ("rsqrt",), "rsqrt": ("sqrt",), "gelu": ("gelu_tanh",), "gelu_tanh": ("gelu",), "lt": ("le",),
    "le": ("lt",), "gt": ("ge",), "ge": ("gt",), "floor": ("ceil",), "ceil": ("floor",), "silu": ("sigmoid",),
}  # fmt: skip
_ORDERED = ("sub", "div", "pow", "floordiv", "mod")


@dataclass(frozen=True)
class Variant:
    """A changed program: the ``line`` of the sketch and the change, in words."""

    program: Program
    line: int
    words: str


def variants(program: Program) -> Iterator[Variant]:
    """Yield each program that differs from ``program`` in one operation, constant or loop bound, in order."""
    for number, kernel in enumerate(program.kernels):
        for body, line, words in _bodies(kernel.body):
            changed: Kernel = replace(kernel, body=body)
            kernels = (*program.kernels[:number], changed, *program.kernels[number + 1 :])
            yield Variant(replace(program, kernels=kernels), line, words)


def _bodies(body: tuple[Statement, ...]) -> Iterator[tuple[tuple[Statement, ...], int, str]]:
    for number, stmt in enumerate(body):
        for changed, line, words in _statements(stmt):
            yield (*body[:number], changed, *body[number + 1 :]), line, words


def _statements(stmt: Statement) -> Iterator[tuple[Statement, int, str]]:
    line = stmt.span.line
    match stmt:
        case Loop():
            if not stmt.hints.parallel:
                yield (
                    replace(stmt, stop=int_op("-", stmt.stop, stmt.step)),
                    line,
                    f"the last step of {stmt.var} missing",
                )
                yield (
                    replace(stmt, start=int_op("+", stmt.start, stmt.step)),
                    line,
                    f"the first step of {stmt.var} missing",
                )
            for body, inner, words in _bodies(stmt.body):
                yield replace(stmt, body=body), inner, words
        case If():
            for body, inner, words in _bodies(stmt.then):
                yield replace(stmt, then=body), inner, words
            for body, inner, words in _bodies(stmt.orelse):
                yield replace(stmt, orelse=body), inner, words
        case Store() | Assign():
            for value, words in _values(stmt.value):
                yield replace(stmt, value=value), line, words
        case Gemm():
            yield Assign(stmt.acc, Read(stmt.a.type, stmt.acc), False, stmt.span), line, "this product left out"
        case Load() if stmt.pad != 0.0 or stmt.region.tensor.dtype.is_float:
            for pad in (0.0, 1.0, -inf):
                if pad != stmt.pad:
                    yield replace(stmt, pad=pad), line, f"{pad:g} read past the edge instead of {stmt.pad:g}"


def _values(value: Value) -> Iterator[tuple[Value, str]]:
    match value:
        case Const() if isinstance(value.value, (int, float)) and not isinstance(value.value, bool):
            yield from _constants(value)
        case Param():
            yield Const(value.type, 0), f"{value.name} taken as 0"
        case Apply():
            yield from _operations(value)
            for number, arg in enumerate(value.args):
                for changed, words in _values(arg):
                    yield replace(value, args=(*value.args[:number], changed, *value.args[number + 1 :])), words


def _constants(value: Const) -> Iterator[tuple[Value, str]]:
    current = value.value
    if not isfinite(current):
        return
    alternatives = dict.fromkeys((0, 1, 2 * current, current / 2, -current, current + 1, current - 1))
    is_integer = not value.type.dtype.is_float
    for alternative in alternatives:
        if alternative != current and not (is_integer and alternative != int(alternative)):
            yield (
                replace(value, value=int(alternative) if is_integer else alternative),
                f"{alternative:g} in place of {current:g}",
            )


def _operations(value: Apply) -> Iterator[tuple[Value, str]]:
    op = OPS[value.op]
    for replacement in _TAKEN_FOR.get(value.op, ()):
        yield replace(value, op=replacement), f"{_named(replacement)} in place of {_named(value.op)}"
    if op.kind is not OpKind.POINTWISE or value.op == "cast":
        return
    if op.arity == 1 and value.args[0].type.dtype is value.type.dtype:
        yield value.args[0], f"{_named(value.op)} left out"
    if op.arity == 2:
        a, b = value.args
        for left_out, operand in ((b, a), (a, b)):
            if operand.type.dtype is value.type.dtype:
                yield operand, f"{_text(left_out)} left out of `{_text(value)}`"
        if value.op in _ORDERED:
            yield replace(value, args=(b, a)), f"the operands of `{_text(value)}` exchanged"


def _named(op: str) -> str:
    return f"`{OPS[op].symbol or op}`"


def _text(value: Value) -> str:
    """The value in the sketch's syntax, without casts."""
    match value:
        case Const():
            return f"{value.value:g}" if isinstance(value.value, float) else str(value.value)
        case Param():
            return value.name
        case Index():
            return str(value.expr)
        case Read():
            return value.tile.name
        case Apply(op="cast", args=(inner,)):
            return _text(inner)
        case Apply(op=op, args=args):
            symbol = OPS[op].symbol
            if symbol and len(args) == 2:
                return f"{_text(args[0])} {symbol} {_text(args[1])}"
            return f"{op}({', '.join(map(_text, args))})"
