"""Sorts as Triton: key and index are packed in one 64-bit integer, so that equal keys keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.errors import LoweringError
from kernellab.lowering.triton.values import Text
from kernellab.sketch.program.program import DType, MultiAssign

if TYPE_CHECKING:
    from kernellab.lowering.triton.kernel import KernelWriter

#: dtypes whose key fits 32 bits together with an index below 65536
_NARROW = frozenset((DType.F16, DType.BF16, DType.I16))


def write_sort(writer: KernelWriter, stmt: MultiAssign, placed: bool) -> None:
    """Write ``values, order = sort(...)`` or ``topk(...)``: indices by sorting and values by gathering or, if nothing
    reads the indices, values alone, whose keys are half as wide.

    Raises:
        LoweringError: the key and index of the dtype do not fit 64 bits.
    """
    attrs = dict(stmt.attrs)
    axis, down = attrs["axis"], attrs["descending"]
    assert isinstance(axis, int)
    (value,) = stmt.args
    values, order = stmt.tiles
    dtype, shape = value.type.dtype, value.type.shape
    rank, last = len(shape), len(shape) - 1
    is_wide = placed and dtype is DType.I64
    if dtype is DType.F64 or (is_wide and (axis != last or order.shape[axis] != shape[axis])):
        raise LoweringError(
            f"Triton sorts values of up to 32 bits, not {dtype.value}.", "Cast them to f32 or i32 first."
        )
    source = writer.values.filled(value, shape)
    source = writer.values.temporary(source) if not source.isidentifier() else source
    key = _gatherable(source, dtype)
    real = writer.shapes.real(shape[axis], writer.int_text(shape[axis]), axis, rank) or "True"
    size = writer.shapes.extent(shape[axis]).padded_value
    bits = 16 if dtype in _NARROW and size is not None and size <= 1 << 16 else 32
    packed = writer.values.temporary(f"kl_order_key({key}, {real}, {axis}, {down}, {bits if placed else 0})")
    if axis != last:
        packed = f"tl.permute({packed}, {_permutation(rank, axis)})"
    count = writer.shapes.extent(order.shape[axis]).padded
    places = f"kl_long_places({packed})" if is_wide else f"kl_first_in_order({packed}, {count})"
    if axis != last:
        places = f"tl.permute({places}, {_permutation(rank, axis)})"
    at = writer.values.temporary(places)
    if not placed:
        writer.set_tile(values, _as_dtype(Text(f"kl_of_key({at}, {key}, {down})", values.shape), dtype))
        return
    place = f"({at} & {(1 << bits) - 1:#x})"
    writer.set_tile(order, place if bits == 32 else f"{place}.to(tl.int64)")
    picked = f"tl.gather({_gatherable(source, dtype)}, {place}.to(tl.int32), {axis})"
    writer.set_tile(values, _as_dtype(Text(picked, values.shape), dtype))


def _gatherable(source: str, dtype: DType) -> str:
    return source if dtype is not DType.BOOL else f"{source}.to(tl.int8)"


def _as_dtype(text: Text, dtype: DType) -> str:
    return text.code if dtype is not DType.BOOL else f"({text.code} != 0)"


def _permutation(rank: int, axis: int) -> list[int]:
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return order
