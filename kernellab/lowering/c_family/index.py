"""The elements of the operands from which one element of a value is computed, and addresses: index tuples as C++ text.

The element ``("i", "j")`` of ``transpose(x) + y[None, :]`` needs ``("j", "i")`` of x and ``("j",)`` of y; in a
row-major array of ``[M, N]`` it lies at ``i * N + j``.

An index has :data:`ZERO` in a dimension of 1. :func:`plus` and :func:`scaled` fold sums and products with it, so that
no address has a term of 0; no other text is 0 without being :data:`ZERO`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Fetch, Shifted
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Apply, Range, Read, Value

#: one C++ text for each dimension
Index = tuple[str, ...]
#: the C++ text of the number 0: the only index in a dimension of 1
ZERO = "0"


def align(index: Index, shape: tuple[IntExpr, ...], ints: Ints) -> Index:
    """Return the index into an operand of ``shape`` that broadcasts (NumPy's rule) to the element at ``index``."""
    tail = index[len(index) - len(shape) :] if shape else ()
    return tuple(ZERO if ints.is_one(e) else i for i, e in zip(tail, shape, strict=True))


def flat(index: Index, shape: tuple[IntExpr, ...], ints: Ints) -> str:
    """Return the row-major position of ``index`` in ``shape``, as C++."""
    ints.note(index)
    return _row_major(index, shape, ints)


def _row_major(index: Index, shape: tuple[IntExpr, ...], ints: Ints) -> str:
    address, base = ZERO, ZERO
    for i, extent in zip(index, shape, strict=True):
        base = scaled(address, extent, ints)
        address = plus(base, i)
    is_sum = ZERO not in (base, *index[-1:])
    return ints.composed(address, index, base if is_sum else None)


def plus(first: str, second: str) -> str:
    """Return the sum of two C++ texts."""
    if ZERO in (first, second):
        return second if first == ZERO else first
    return f"{first} + {second}"


def scaled(address: str, size: IntExpr, ints: Ints) -> str:
    """Return ``address`` times ``size``, as C++."""
    return ZERO if address == ZERO else f"{wrap(address)} * {ints.operand(size)}"


def step_into(address: str, size: IntExpr, position: str, ints: Ints) -> str:
    """Return the row-major ``address`` extended by the ``position`` in one more dimension of ``size`` elements."""
    return plus(scaled(address, size, ints), position)


def in_range(item: Range, at: str, ints: Ints) -> str:
    """Return the position in the tensor's dimension of the element of ``item`` at ``at``."""
    step = "" if ints.is_one(item.step) else f" * {ints.operand(item.step)}"
    return plus(start_of(item, ints), at if at == ZERO else f"{at}{step}")


def start_of(item: Range, ints: Ints) -> str:
    """Return the position of the first element of ``item``, as C++."""
    return ZERO if ints.const(item.start) == 0 else ints.cpp(item.start)


def wrap(text: str) -> str:
    """Return ``text`` in parentheses if it is more than a name, a number or a call."""
    return f"({text})" if any(c in text for c in " ?") else text


def child_indices(value: Apply, index: Index, ints: Ints) -> list[Index]:
    """Return one index for each argument of ``value``, for its element at ``index``."""
    if OPS[value.op].kind is not OpKind.SHAPE or value.op == "broadcast":
        return [align(index, arg.type.shape, ints) for arg in value.args]
    if value.op == "transpose":
        rank = len(index)
        perm = cast("tuple[int, ...]", value.attr("perm")) or tuple(reversed(range(rank)))
        source_index = {source: index[d] for d, source in enumerate(perm)}
        return [tuple(source_index[d] for d in range(rank))]
    if value.op == "newaxis":
        new = {a % len(index) for a in value.attr("axes")}  # type: ignore[attr-defined]
        return [tuple(i for d, i in enumerate(index) if d not in new)]
    if value.op == "reshape":
        return [_reshaped(index, value.type.shape, value.args[0].type.shape, ints)]
    if value.op == "concat":
        return _concatenated(value, index, ints)
    return [() for _ in value.args]  # full: its scalar


class _Axis(NamedTuple):
    """The index in one dimension of more than one element, and its extent."""

    position: str
    extent: IntExpr


def _reshaped(index: Index, shape: tuple[IntExpr, ...], source: tuple[IntExpr, ...], ints: Ints) -> Index:
    """Return the index in ``source`` of the element at ``index`` of ``shape``, to which it is reshaped.

    From ``[A, B]`` to ``[A * B]`` the index ``k`` becomes ``k / B, k % B``; from ``[A * B]`` to ``[A, B]`` the indices
    ``i, j`` become ``i * B + j``; dimensions of 1 take no part."""
    axes = [_Axis(i, e) for i, e in zip(index, shape, strict=True) if not ints.is_one(e)]
    wanted = [e for e in source if not ints.is_one(e)]
    if ints.same_shape(tuple(axis.extent for axis in axes), tuple(wanted)):
        indices: list[str] | None = [axis.position for axis in axes]
    else:
        indices = _merged(axes, wanted, ints)
    if indices is not None:
        following = iter(indices)
        return tuple(ZERO if ints.is_one(e) else next(following) for e in source)
    return _divided(_row_major(index, shape, ints), index, source, ints)


def _merged(axes: list[_Axis], wanted: list[IntExpr], ints: Ints) -> list[str] | None:
    """Return one index for each wanted extent if each is the product of neighbouring extents, else None."""
    remaining = list(axes)
    result: list[str] = []
    for extent in wanted:
        group: list[_Axis] = []
        size = num(1)
        while remaining and not ints.equal(size, extent):
            group.append(remaining.pop(0))
            size = int_op("*", size, group[-1].extent)
        if not group or not ints.equal(size, extent):
            return None
        result.append(_row_major(tuple(a.position for a in group), tuple(a.extent for a in group), ints))
    return None if remaining else result


def _divided(position: str, index: Index, shape: tuple[IntExpr, ...], ints: Ints) -> Index:
    """Return the index in ``shape`` of the element at a row-major ``position``, which is made of ``index``."""
    result: list[str] = []
    for d in reversed(range(len(shape))):
        if ints.is_one(shape[d]):
            result.append(ZERO)
        elif any(not ints.is_one(e) for e in shape[:d]):
            extent = ints.operand(shape[d])
            result.append(ints.composed(f"({wrap(position)} % {extent})", index))
            position = f"{wrap(position)} / {extent}"
        else:
            result.append(ints.composed(wrap(position), index))
            position = ZERO
    return tuple(reversed(result))


def _concatenated(value: Apply, index: Index, ints: Ints) -> list[Index]:
    """Return the index in each of the joined arguments: less the extents of those before it, along the axis."""
    axis = int(value.attr("axis", 0)) % len(index)  # type: ignore[call-overload]
    result = []
    before = ""
    for arg in value.args:
        extent = arg.type.shape[axis]
        at = ZERO if ints.is_one(extent) else index[axis]
        if before and at != ZERO:
            at = ints.composed(f"({at} - ({before}))", index[axis : axis + 1])
        result.append((*index[:axis], at, *index[axis + 1 :]))
        before = f"{before} + {ints.operand(extent)}" if before else ints.operand(extent)
    return result


def in_tile(read: Read, index: Index, ints: Ints) -> Index:
    """Return the index in its tile of the element of ``read`` at ``index``."""
    if not isinstance(read, Shifted):
        return index
    at = index[-1] if ints.is_one(read.step) else f"{wrap(index[-1])} * {ints.operand(read.step)}"
    at = plus(ZERO if index[-1] == ZERO else at, str(read.start))
    return (*index[:-1], ints.composed(at, index[-1:]))


def leaves(value: Value | Fetch, index: Index, ints: Ints) -> Iterator[tuple[Read | Fetch, Index]]:
    """Yield each element of a tile or tensor that the element of ``value`` at ``index`` needs."""
    if isinstance(value, Read):
        yield value, in_tile(value, index, ints)
    elif isinstance(value, Fetch):
        yield value, index
    elif isinstance(value, Apply):
        for arg, at in zip(value.args, child_indices(value, index, ints), strict=True):
            yield from leaves(arg, at, ints)
