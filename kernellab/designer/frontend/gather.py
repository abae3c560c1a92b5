"""Indices that are values: rules for gathers, and accesses to tensor elements at computed positions.

An index with ``at`` (:class:`~kernellab.designer.ir.expr.Ix`) passes through views and pointwise work to the tensor
that it reads, so a gather costs no separate launch. A value that such an index cannot pass through is stored first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from kernellab.capture import Node, Ref, Sym
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.frontend.reductions import matching
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import compute, is_float, settle, wide
from kernellab.designer.ir.axes import Index, Ix
from kernellab.designer.ir.expr import Expr, Iota, Leaf, Num, Op, SymNum
from kernellab.designer.ir.normal import number
from kernellab.errors import DesignError
from kernellab.operations.aten import Role, named
from kernellab.task.formula import Formula

#: length of a sorted row up to which all elements are compared with a value
_COMPARED = 32
#: dtypes without negative values, and those that a cast of a larger value may make negative
_UNSIGNED = frozenset(("bool", "uint8"))
_NARROW = frozenset(("int8", "int16", "int32"))
#: operations that an index with ``at`` passes through: they only select elements or work on one at a time
_PASSED = named(Role.RESHAPE, Role.TURN, Role.PART, Role.SAME, Role.CAST) - {"as_strided", "diagonal", "unfold"}


def chosen(value: Expr) -> Ix:
    """Return the index for ``value``: a plain one if it is a position."""
    if isinstance(value, Iota):
        return value.index
    if isinstance(value, Num):
        return Ix((), int(value.value))
    return Ix((), 0, 1, None, value)


def picked(b: Builder, ref: Ref, index: Index) -> Expr:
    """Return ``ref`` at an index that may contain values; through a temporary tensor if there is no other form."""
    if not any(ix.at is not None for ix in index) or passes(b, ref):
        try:
            return b.value(ref, index)
        except DesignError:
            if ref.name in b.inputs:
                raise
    return Leaf(b.stored(ref), tuple(ix.over(ix.leaves()) for ix in index), b.dtype(ref))


def passes(b: Builder, ref: Ref) -> bool:
    """Return whether only views and pointwise work are between ``ref`` and stored tensors."""
    if ref.name in b.inputs or ref.name in b.stops:
        return True
    node = b.nodes[ref.name]
    name = node.op.split(".")[1]
    if name not in _PASSED and name not in OPERATIONS and name not in PICKS:
        return False
    return all(passes(b, inner) for inner in node.refs())


def _wrapped(at: Expr, size: Extent) -> Expr:
    """Wrap a negative index, which counts from the end."""
    if isinstance(at, (Iota, Num)) or (isinstance(at, Op) and at.op in ("mod", "abs")) or _not_negative(at):
        return at
    from_end = Op("add", (at, number(size)), "int64")
    return Op("where", (Op("lt", (at, Num(0, "int64")), "bool"), from_end, at), "int64")


def _embedding(b: Builder, node: Node, index: Index, item: int) -> Expr:
    table, ids = node.args[0], node.args[1]
    return picked(b, table, (chosen(b.value(ids, index[:-1])), index[-1]))


def _index_select(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, dim, ids = node.args[:3]
    dim = dim % max(len(index), 1)
    at = chosen(b.value(ids, (index[dim],) if b.shape(ids) else ()))
    return picked(b, source, (*index[:dim], at, *index[dim + 1 :]))


def _gather(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, dim, ids = node.args[0], node.args[1] % max(len(index), 1), node.args[2]
    if node.shape[dim] == 1 and source.name not in b.inputs:
        # one element of a computed row: with the row on chip it is a sum over the matching positions
        return matching(b, node, index)
    return picked(b, source, (*index[:dim], chosen(b.value(ids, index)), *index[dim + 1 :]))


def places(
    b: Builder, node: Node, given: Sequence[Any], shape: tuple[Extent, ...]
) -> tuple[list[int], tuple[Extent, ...]]:
    """For ``x[i, :, j]``: return the dimensions that have indices, and the shape to which the indices broadcast."""
    dims = [d for d, ref in enumerate(given) if ref is not None]
    if any(b.dtype(given[d]) == "bool" for d in dims):
        raise b.refuse(node, "an index that is a mask")
    rank = max(len(b.shape(given[d])) for d in dims)
    together: list[Extent] = [1] * rank
    for d in dims:
        own_shape = b.shape(given[d])
        for k, extent in enumerate(own_shape, rank - len(own_shape)):
            together[k] = extent if extent != 1 else together[k]
    return dims, tuple(together)


def indices(b: Builder, node: Node, given: Sequence[Any], shape: tuple[Extent, ...], index: Index) -> Index:
    """Return the index into a tensor of ``shape`` that ``x[given]`` reads at ``index`` of its result."""
    dims, together = places(b, node, given, shape)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if adjacent else 0
    inner = index[first : first + len(together)]
    rest = iter((*index[:first], *index[first + len(together) :]))
    result = []
    for d, extent in enumerate(shape):
        if d in dims:
            at = b.operand(given[d], inner, together)
            result.append(chosen(_wrapped(compute(at, "int64"), extent)))
        else:
            result.append(next(rest))
    return tuple(result)


def _index(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source = node.args[0]
    shape = b.shape(source)
    subscripts = (*node.args[1], *(None,) * (len(shape) - len(node.args[1])))
    return picked(b, source, indices(b, node, subscripts, shape, index))


def _fmod(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """The remainder with the sign of the dividend."""
    x, y = b.operand(node.args[0], index, node.shape), b.operand(node.args[1], index, node.shape)
    d = wide(node.dtype)
    left, right = compute(x, d), compute(y, d)
    if _turns_once(left, right):
        back = Op("sub", (left, right), d, node.line)
        return Op("where", (Op("ge", (left, right), "bool"), back, left), d, node.line)
    rest = Op("mod", (left, right), d, node.line)
    if not is_float(d) and _not_negative(left) and _not_negative(right):
        return rest
    zero = Num(0.0 if is_float(d) else 0, d)
    differs = Op("ne", (Op("lt", (rest, zero), "bool"), Op("lt", (left, zero), "bool")), "bool")
    moved = Op("logical_and", (Op("ne", (rest, zero), "bool"), differs), "bool")
    return Op("where", (moved, Op("sub", (rest, right), d), rest), d, node.line)


def _turns_once(left: Expr, right: Expr) -> bool:
    """Return whether ``left`` is a position below ``right`` plus a shift below it, as in a roll: the sum is then below
    twice ``right``."""
    match left, right:
        case Op(op="add", args=(Iota(index=ix), SymNum() | Num() as shift)), SymNum() | Num():
            size = right.expr if isinstance(right, SymNum) else right.value
            if not (ix.plain and isinstance(size, int | Formula) and extents.same(ix.extent, size)):
                return False
            if isinstance(shift, Num):
                return isinstance(size, int) and 0 <= shift.value < size
            return shift.expr.op == "%" and shift.expr.args[1] == size
    return False


def _not_negative(e: Expr) -> bool:
    """Whether its values are certainly not negative, whatever the inputs hold."""
    match e:
        case Num():
            return e.value >= 0
        case SymNum():
            # a size, or the shift of a roll, which Python's % has made non-negative
            return True
        case Iota():
            return e.index.sign == 1 and isinstance(e.index.offset, int) and e.index.offset >= 0
        case Leaf() | Op() if e.dtype in _UNSIGNED:
            return True
        case Op(op="cast", args=(Leaf() | Op() as inner,)) if e.dtype in _NARROW:
            return inner.dtype in _UNSIGNED and e.dtype != "int8"
        case Op(op="add" | "mul") if e.dtype in _NARROW:
            return False  # the result may wrap around
        case Op(op="add" | "mul" | "mod" | "cast" | "min" | "bit_or" | "bit_xor"):
            return all(map(_not_negative, e.args))
        case Op(op="where"):
            return all(map(_not_negative, e.args[1:]))
        case Op(op="shift_right"):
            return _not_negative(e.args[0])
        case Op(op="max" | "bit_and"):
            return any(map(_not_negative, e.args))
    return False


def _searchsorted(row: int, values: int) -> Handler:
    """Count the elements of a sorted row that are smaller than each value; from the right, not larger.

    A short row is compared element by element; in a longer one each step halves the rest.
    """

    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        rows, needles = node.args[row], node.args[values]
        right = bool(node.keyword("right", False)) or node.keyword("side") == "right"
        if node.keyword("sorter") is not None:
            raise b.refuse(node, "a sorter")
        shape = b.shape(rows)
        value = b.value(needles, index if b.shape(needles) else ())
        outer = index[:-1] if len(shape) > 1 else ()
        common = "float64" if "float64" in (b.dtype(rows), value.dtype) else "float32"
        common = common if is_float(b.dtype(rows)) or is_float(value.dtype) else "int64"

        def below(at: Index) -> Expr:
            sides = (compute(picked(b, rows, at), common), compute(value, common))
            # NaN sorts after every element
            return Op("logical_not", (Op("gt" if right else "ge", sides, "bool", node.line),), "bool", node.line)

        if (b.expected(shape[-1]) or 0) <= _COMPARED:
            bound = b.bound(shape, [len(shape) - 1], (*outer, Ix()), index)
            each = Op("cast", (below(bound),), "int64", node.line)
            return settle(b.reduce("sum", each, bound, [len(shape) - 1], "int64", node.line), node.dtype)
        length = number(shape[-1])
        place: Expr = Num(0, "int64")
        last = Op("sub", (length, Num(1, "int64")), "int64")
        for bit in reversed(range(b.largest(shape[-1]).bit_length())):
            ahead = Op("add", (place, Num(1 << bit, "int64")), "int64", node.line)
            at = Op("min", (Op("sub", (ahead, Num(1, "int64")), "int64"), last), "int64")
            inside = Op("le", (ahead, length), "bool")
            takes = Op("logical_and", (inside, below((*outer, chosen(at)))), "bool")
            place = Op("where", (takes, ahead, place), "int64", node.line)
        return settle(place, node.dtype)

    return handle


def _repeat(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """``x.repeat(2, 3)``: a dimension that runs twice over its extent."""
    shape = b.shape(node.args[0])
    inner = []
    for ix, extent, whole in zip(
        index[len(index) - len(shape) :], shape, node.shape[len(index) - len(shape) :], strict=True
    ):
        if extent == 1:
            inner.append(Ix())
        elif extents.same(extent, whole):
            inner.append(ix)
        else:
            inner.append(chosen(Op("mod", (b.position(ix), number(extent)), "int64")))
    return picked(b, node.args[0], tuple(inner))


def _diagonal(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape = b.shape(node.args[0])
    offset, first, second = ([*node.args[1:], *(0, 0, 1)[len(node.args) - 1 :]])[:3]
    first, second = first % len(shape), second % len(shape)
    rest = iter(index[:-1])
    result = []
    for d in range(len(shape)):
        if d not in (first, second):
            result.append(next(rest))
            continue
        shift = max(0, offset) if d == second else max(0, -offset)
        result.append(chosen(Op("add", (b.position(index[-1]), Num(shift, "int64")), "int64")))
    return picked(b, node.args[0], tuple(result))


def _unfold(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, dim, _, step = node.args[:4]
    dim %= len(index) - 1
    start = Op("mul", (b.position(index[dim]), b.value(step)), "int64")
    at = Op("add", (start, b.position(index[-1])), "int64")
    return picked(b, source, (*index[:dim], chosen(at), *index[dim + 1 : -1]))


def strided(b: Builder, ref: Ref, index: Index, dim: int, start: Extent, step: int) -> Expr:
    """Return ``x[start::step]`` along ``dim``."""
    at: Expr = Op("mul", (b.position(index[dim]), Num(step, "int64")), "int64")
    if start != 0:
        at = Op("add", (at, number(start)), "int64")
    return picked(b, ref, (*index[:dim], chosen(at), *index[dim + 1 :]))


def _slice_scatter(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """The base with one slice replaced."""
    base, source = node.args[0], node.args[1]
    dim, start, _, step = ([*node.args[2:], *(0, None, None, 1)[len(node.args) - 2 :]])[:4]
    dim %= len(index)
    start = start.expr if isinstance(start, Sym) else start or 0
    if not isinstance(step, int) or not extents.is_count(start):
        raise b.refuse(node, "a slice with a step or from an end that is not known")
    length = b.shape(source)[dim]
    here = b.position(index[dim])
    if step != 1 or not isinstance(start, int):
        return _stepped(b, node, index, dim, start, step)
    source_ix = replace(index[dim], offset=extents.add(index[dim].offset, -start))
    if length == 1:
        source_ix = Ix()
    if isinstance(here, Num) and isinstance(length, int):
        # a known position is on one side: the other may have no element there
        if start <= here.value < start + length:
            return compute(b.value(source, (*index[:dim], source_ix, *index[dim + 1 :])), wide(node.dtype))
        return compute(b.value(base, index), wide(node.dtype))
    inside = Op("lt", (here, number(extents.add(length, start))), "bool")
    if start:
        inside = Op("logical_and", (Op("ge", (here, Num(start, "int64")), "bool"), inside), "bool")
    d = wide(node.dtype)
    new = compute(b.value(source, (*index[:dim], source_ix, *index[dim + 1 :])), d)
    if extents.same(length, node.shape[dim]) and not start:
        return new
    return Op("where", (inside, new, compute(b.value(base, index), d)), d, node.line)


def _stepped(b: Builder, node: Node, index: Index, dim: int, start: Extent, step: int) -> Expr:
    """The base with each ``step``-th element from ``start`` replaced: the even or the odd elements of rotary pairs, or
    the end of a row that grows with a Dim."""
    base, source = node.args[0], node.args[1]
    past = b.position(index[dim])
    past = Op("sub", (past, number(start)), "int64") if start != 0 else past
    last = number(extents.add(b.shape(source)[dim], -1))
    at = Op("floordiv", (past, Num(step, "int64")), "int64") if step != 1 else past
    tests = [Op(o, (at, e), "bool") for o, e in (("ge", Num(0, "int64")), ("le", last))]
    if step != 1:
        whole = Op("mod", (past, Num(step, "int64")), "int64")
        tests.insert(0, Op("eq", (whole, Num(0, "int64")), "bool"))
    inside = reduce(lambda x, y: Op("logical_and", (x, y), "bool"), tests)
    # an element outside the slice reads an arbitrary element of the source and discards it
    at = Op("min", (Op("max", (at, Num(0, "int64")), "int64"), last), "int64")
    d = wide(node.dtype)
    new = compute(picked(b, source, (*index[:dim], chosen(at), *index[dim + 1 :])), d)
    return Op("where", (inside, new, compute(b.value(base, index), d)), d, node.line)


def _select_scatter(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """The base with one position of a dimension replaced."""
    base, source, dim, place = [*node.args, 0, 0][:4]
    dim %= len(index)
    place = place.expr if isinstance(place, Sym) else place
    if isinstance(place, int) and place < 0:
        place = extents.add(node.shape[dim], place)
    ix, d = index[dim], wide(node.dtype)
    new = compute(b.value(source, (*index[:dim], *index[dim + 1 :])), d)
    if not ix.axes and ix.at is None and extents.same(ix.offset, place):
        return new
    inside = Op("eq", (b.position(ix), number(place)), "bool")
    return Op("where", (inside, new, compute(b.value(base, index), d)), d, node.line)


def _copy(b: Builder, node: Node, index: Index, item: int) -> Expr:
    return compute(b.operand(node.args[1], index, node.shape), wide(node.dtype))


def _empty(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Uninitialised elements: a valid reference writes each element before it reads it."""
    return Num(0, node.dtype)


PICKS: dict[str, Handler] = {
    "embedding": _embedding, "index_select": _index_select, "gather": _gather, "index": _index, "fmod": _fmod,
    "searchsorted": _searchsorted(0, 1), "bucketize": _searchsorted(1, 0),
    "repeat": _repeat, "diagonal": _diagonal, "unfold": _unfold, "slice_scatter": _slice_scatter, "copy": _copy,
    "select_scatter": _select_scatter,
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"), _empty),
}  # fmt: skip
