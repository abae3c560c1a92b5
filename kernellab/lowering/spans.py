"""What the elements of an integer value are between, from the sizes of a program and the extents of its tiles."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.lowering.bounds import UNKNOWN, Bounds, Interval, combined
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Apply, Const, Constexpr, DType, Index, Program, Read, Tensor, Value

#: operations that give the same value in any number of bits that holds their operands and their result
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "neg": "-", "min": "min", "max": "max", "floordiv": "//", "mod": "%"}
MOVES = frozenset(("newaxis", "broadcast", "reshape", "transpose", "full"))
_RANGES = {
    DType.BOOL: Interval(0, 1), DType.U8: Interval(0, 255), DType.I8: Interval(-128, 127),
    DType.I16: Interval(-(2**15), 2**15 - 1), DType.I32: Interval(-(2**31), 2**31 - 1),
}  # fmt: skip


class Sizes(Bounds):
    """Bounds over every value that a tunable may take, so that one program serves all of them."""

    def __init__(self, program: Program, values: Mapping[str, int]) -> None:
        super().__init__({name: value for name, value in values.items() if name in program.symbols})
        self._choices = {
            c.name: [int(v) for v in _values(c, values) if v is not None and float(v).is_integer()]
            for c in program.constexprs
        }

    def interval(self, expr: IntExpr) -> Interval:
        if expr.kind is not IntKind.OP and self._choices.get(expr.name):
            return Interval(min(self._choices[expr.name]), max(self._choices[expr.name]))
        return super().interval(expr)


def _values(constexpr: Constexpr, values: Mapping[str, int]) -> tuple[float | None, ...]:
    """Return what a tunable may be: its choices, the program's value, and the one that ``values`` names."""
    return *constexpr.choices, constexpr.value, values.get(constexpr.name)


class Spans:
    """The spans of values in a kernel; ``tensors`` and ``tiles`` (by uid): those of what was stored and assigned."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.tensors: dict[str, Interval] = {}
        self.tiles: dict[str, Interval] = {}
        #: spans of the values of the statement at hand, by id
        self._cache: dict[int, Interval] = {}

    def begin_statement(self) -> None:
        """Forget values: their ids may be used again."""
        self._cache.clear()

    def of(self, value: Value) -> Interval:
        """Return what the elements of an integer value are between; None where unknown."""
        if value.type.dtype.is_float:
            return UNKNOWN
        match value:
            case Const():
                return single(value.value)
            case Index():
                return self.sizes.interval(value.expr)
            case Read():
                return self.tiles.get(value.tile.uid) or _RANGES.get(value.type.dtype, UNKNOWN)
            case Apply():
                if id(value) not in self._cache:
                    self._cache[id(value)] = self._of_operation(value)
                return self._cache[id(value)]
        return UNKNOWN

    def _of_operation(self, value: Apply) -> Interval:
        if value.op == "arange":
            start, extent = value.attr("start"), self.sizes.interval(value.type.shape[0])
            first = self.sizes.interval(start) if isinstance(start, IntExpr) else Interval(0, 0)
            if first.high is None or extent.high is None:
                return Interval(first.low)
            # lanes that fill a tile up to a power of two count on
            return Interval(first.low, first.high + 2 * extent.high)
        if value.op in ARITHMETIC:
            spans = [self.of(a) for a in value.args]
            low = spans[-1][0]
            if value.op in ("floordiv", "mod") and (low is None or low < 1):
                return UNKNOWN
            return combined(ARITHMETIC[value.op], spans)
        if value.op == "where":
            return union([self.of(a) for a in value.args[1:]])
        if value.op in MOVES:
            return self.of(value.args[0])
        if value.op == "cast" and not value.args[0].type.dtype.is_float:
            span = self.of(value.args[0])
            whole = _RANGES.get(value.type.dtype)
            return span if whole is None or within(span, value.type.dtype) else whole
        if value.op == "gather":
            tensor, pad = value.attr("tensor"), value.attr("pad")
            stored = self.tensors.get(tensor.name) if isinstance(tensor, Tensor) else None
            if stored is not None and isinstance(pad, float):
                return union([stored, single(pad)])
        return _RANGES.get(value.type.dtype, UNKNOWN)


def single(value: float) -> Interval:
    """Return the span of one number."""
    return Interval(int(value), int(value))


def within(span: Interval, dtype: DType) -> bool:
    """Does ``dtype`` hold every value of the span?"""
    limits = _RANGES[dtype]
    assert limits.low is not None and limits.high is not None
    return span.low is not None and span.high is not None and limits.low <= span.low and span.high <= limits.high


def union(spans: list[Interval]) -> Interval:
    """Return the span of all values of ``spans``."""
    lows = [span.low for span in spans if span.low is not None]
    highs = [span.high for span in spans if span.high is not None]
    low = min(lows) if len(lows) == len(spans) else None
    return Interval(low, max(highs) if len(highs) == len(spans) else None)


__all__ = ["ARITHMETIC", "MOVES", "Sizes", "Spans", "single", "union", "within"]
