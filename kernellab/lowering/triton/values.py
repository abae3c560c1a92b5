"""Values of a Program as Triton expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import Names
from kernellab.lowering.triton.shapes import Shapes
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


#: writes one operation
Rule = Callable[[Values, Apply], Text]


__all__ = ["TL_DTYPES", "Layouts", "Rule", "Text", "Values"]
