"""One element of a value as a C++ expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from string import Formatter

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.gather import gather_text
from kernellab.lowering.c_family.index import Index, child_indices, plus, wrap
from kernellab.lowering.c_family.index import flat as flat_index
from kernellab.lowering.c_family.ints import Ints, Spelled
from kernellab.lowering.c_family.nests import Fetch
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, is_narrow, literal, strip
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Apply, Const, DType, Param, Read, Value
from kernellab.sketch.program.program import Index as IndexValue

_NARROW_INTS = {DType.I16, DType.I8, DType.U8}


#: spells the element of a tensor at an address; takes the names that the address was made of
Pick = Callable[[str, str, Spelled], str]


def picked(tensor: str, address: str, _address_names: Spelled) -> str:
    """Return the element in plain C."""
    return f"{tensor}[{address}]"


class Scalars:
    """Writes elements. ``read``, ``fetch`` and ``pick`` spell an element of a tile, of a region, and of a tensor at a
    computed address; ``params`` maps a constexpr to C++; ``dsl`` ("cpp" or "cuda_c") selects the spelling of
    operations."""

    def __init__(
        self,
        ints: Ints,
        read: Callable[[Read, Index], str],
        fetch: Callable[[Fetch, Index], str],
        params: Mapping[str, str],
        dsl: str,
        pick: Pick = picked,
    ) -> None:
        self.ints = ints
        self._dsl = dsl
        self._read = read
        self._fetch = fetch
        self._params = params
        self._pick = pick

    def element(self, value: Value | Fetch, index: Index) -> str:
        """Return the element of ``value`` at ``index`` (already aligned to the value's shape), as C++."""
        dtype = value.type.dtype
        match value:
            case Const():
                return literal(value.value, dtype)
            case Param():
                self.ints.note([self._params[value.name]])
                return f"{VALUE_TYPE[dtype]}({self._params[value.name]})"
            case IndexValue():
                return self._number(value.expr, dtype)
            case Fetch():
                return self._fetch(value, index)
            case Read():
                return self._read(value, index)
            case Apply():
                return self._apply(value, index)

    def _number(self, expr: IntExpr, dtype: DType) -> str:
        if dtype is DType.I64:
            constant = self.ints.const(expr)
            return self.ints.operand(expr) if constant is None else literal(constant, dtype)
        return f"{VALUE_TYPE[dtype]}({self.ints.cpp(expr)})"

    def _apply(self, value: Apply, index: Index) -> str:
        op, dtype = OPS[value.op], value.type.dtype
        if value.op == "arange":
            return self._arange(value, index)
        with self.ints.watch() as address_names:
            indices = child_indices(value, index, self.ints)
            args = [self.element(arg, at) for arg, at in zip(value.args, indices, strict=True)]
        if value.op == "cast":
            return converted(args[0], value.args[0].type.dtype, dtype)
        if value.op == "bitcast":
            source = value.args[0].type.dtype
            # a value's C++ type may be wider than its dtype: a narrow float, an index
            held = args[0] if source in (DType.F32, DType.F64) else f"{MEMORY_TYPE[source]}({strip(args[0])})"
            text = op.spell[self._dsl].format(strip(held), MEMORY_TYPE[dtype])
            return f"float({text})" if is_narrow(dtype) else text
        if value.op == "gather":
            return gather_text(value, args, self.ints, lambda name, at: self._pick(name, at, address_names))
        if value.op == "concat":
            return self._concat(value, args, index)
        if op.kind is OpKind.SHAPE:
            return converted(args[0], value.args[0].type.dtype, dtype)
        if op.kind not in (OpKind.POINTWISE, OpKind.COMPARE) or self._dsl not in op.spell:
            raise LoweringError(
                f"The operation {value.op!r} has no C++ lowering.", "Spell it out with other operations."
            )
        sources = [arg.type.dtype for arg in value.args]
        args = [self._operand(value.op, n, a, sources, dtype) for n, a in enumerate(args)]
        if op.result == "integer":
            args = [self._whole(a, t) for a, t in zip(value.args, args, strict=True)]
        template = op.spell[self._dsl]
        text = template.format(*(strip(a) if _is_argument(template, n) else a for n, a in enumerate(args)))
        if dtype in _NARROW_INTS and op.kind is OpKind.POINTWISE:
            return f"{VALUE_TYPE[dtype]}({strip(text)})"
        if dtype is DType.BOOL and op.kind is OpKind.POINTWISE and value.op != "where":
            return f"bool({strip(text)})"
        if is_narrow(dtype) and any(not is_narrow(s) and s.is_float for s in sources):
            return f"kl::rounded<{MEMORY_TYPE[dtype]}>({strip(text)})"
        return text

    def _whole(self, value: Value, text: str) -> str:
        """Return ``text`` cast to full width, which matters for this operand: an index may be narrower than i64."""
        is_index = isinstance(value, IndexValue) and self.ints.const(value.expr) is None
        return f"int64_t({strip(text)})" if is_index and value.type.dtype is DType.I64 else text

    def _operand(self, op: str, number: int, text: str, sources: list[DType], result: DType) -> str:
        """Return an operand in the type that the operands share: resolution leaves weak scalars and bool conditions
        mixed."""
        if op in ("logical_and", "logical_or", "logical_not"):
            return text if sources[number] is DType.BOOL else f"({text} != 0)"
        if op == "where":
            if number == 0:
                return text if sources[0] is DType.BOOL else f"({text} != 0)"
            return converted(text, sources[number], result)
        if OPS[op].result == "bool":
            return text
        if VALUE_TYPE[sources[number]] != VALUE_TYPE[result]:
            return converted(text, sources[number], result)
        return text

    def _arange(self, value: Apply, index: Index) -> str:
        start = value.attr("start")
        text = index[0]
        self.ints.note([text])
        if isinstance(start, IntExpr) and self.ints.const(start) != 0:
            text = plus(self.ints.cpp(start), text)
        elif isinstance(start, int):
            text = plus(str(start), text)
        return wrap(text) if value.type.dtype is DType.I64 else f"{VALUE_TYPE[value.type.dtype]}({text})"

    def _concat(self, value: Apply, args: list[str], index: Index) -> str:
        axis = int(value.attr("axis", 0)) % len(index)  # type: ignore[call-overload]
        self.ints.note(index[axis : axis + 1])
        text = args[-1]
        bounds = []
        total = ""
        for arg in value.args[:-1]:
            extent = self.ints.operand(arg.type.shape[axis])
            total = f"{total} + {extent}" if total else extent
            bounds.append(total)
        for bound, arg_text in zip(reversed(bounds), reversed(args[:-1]), strict=True):
            text = f"({index[axis]} < {bound} ? {arg_text} : {text})"
        return text


@lru_cache(maxsize=512)
def _is_argument(template: str, number: int) -> bool:
    """Is the operand an argument of a function in each place of ``template``? Then it needs no parentheses."""
    parts = [(before, field) for before, field, _, _ in Formatter().parse(template)]
    after = [*(before for before, _ in parts[1:]), ""]
    return all(
        (before.endswith(", ") or (before.endswith("(") and _ends_name(before[:-1]))) and behind.startswith((",", ")"))
        for (before, field), behind in zip(parts, after, strict=False)
        if field == str(number)
    )


def _ends_name(text: str) -> bool:
    return text[-1:].isalnum() or text.endswith("_")


def place(name: str, index: Index, shape: tuple[IntExpr, ...], ints: Ints) -> str:
    """Return ``name[...]`` for the element at ``index`` of a row-major array of ``shape``."""
    with ints.watch(indexes=True):
        return f"{name}[{flat_index(index, shape, ints)}]"
