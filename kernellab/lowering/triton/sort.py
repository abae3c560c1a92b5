"""Rows in order as Triton: keys and places packed in one 64-bit integer, so that equal keys keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.errors import LoweringError
from kernellab.lowering.triton.values import Text
from kernellab.sketch.program.program import DType, MultiAssign

if TYPE_CHECKING:
    from kernellab.lowering.triton.kernel import KernelWriter

_WIDE = frozenset((DType.F64, DType.I64))


def write_sort(writer: KernelWriter, stmt: MultiAssign) -> None:
    """``values, order = sort(...)`` or ``topk(...)``: the places by sorting, the values by gathering.

    Raises:
        LoweringError: a dtype whose key and place do not fit 64 bits.
    """
    attrs = dict(stmt.attrs)
    axis, down = attrs["axis"], attrs["descending"]
    assert isinstance(axis, int)
    (value,), (values, order) = stmt.args, stmt.tiles
    dtype, shape = value.type.dtype, value.type.shape
    if dtype in _WIDE:
        raise LoweringError(
            f"Triton sorts values of up to 32 bits, not {dtype.value}.", "Cast them to f32 or i32 first."
        )
    rank, last = len(shape), len(shape) - 1
    source = writer.values.filled(value, shape)
    source = writer.values.temporary(source) if not source.isidentifier() else source
    key = source if dtype is not DType.BOOL else f"{source}.to(tl.int8)"
    real = writer.shapes.real(shape[axis], writer.int_text(shape[axis]), axis, rank) or "True"
    packed = writer.values.temporary(f"kl_order_key({key}, {real}, {axis}, {down})")
    if axis != last:
        packed = f"tl.permute({packed}, {_swapped(rank, axis)})"
    count = writer.shapes.extent(order.shape[axis]).padded
    places = f"kl_first_in_order({packed}, {count})"
    if axis != last:
        places = f"tl.permute({places}, {_swapped(rank, axis)})"
    at = writer.values.temporary(places)
    writer.set_tile(order, f"({at} & 0xFFFFFFFF)")
    picked = f"tl.gather({_gatherable(source, dtype)}, ({at} & 0xFFFFFFFF).to(tl.int32), {axis})"
    writer.set_tile(values, _back(Text(picked, values.shape), dtype))


def _gatherable(source: str, dtype: DType) -> str:
    return source if dtype is not DType.BOOL else f"{source}.to(tl.int8)"


def _back(text: Text, dtype: DType) -> str:
    return text.code if dtype is not DType.BOOL else f"({text.code} != 0)"


def _swapped(rank: int, axis: int) -> list[int]:
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return order
