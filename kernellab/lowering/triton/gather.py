"""Loads, stores and atomics at indices that are tiles, with a mask for what is not proved to be inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.errors import LoweringError
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.shapes import is_below
from kernellab.lowering.triton.text import is_atom
from kernellab.lowering.triton.values import Text, Values
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Apply, DType, Point, Range, Scatter, Tensor, Value

if TYPE_CHECKING:
    from kernellab.lowering.triton.kernel import KernelWriter


def gather(values: Values, value: Apply) -> Text:
    """Return ``gather(X[...])``: a load at the places that the index values give."""
    tensor, items, pad = (value.attr(name) for name in ("tensor", "items", "pad"))
    assert isinstance(tensor, Tensor) and isinstance(items, tuple) and isinstance(pad, float)
    pointer, tests = pointer_at(values, tensor, value.args, items, len(value.type.shape))
    options = [pointer]
    if tests:
        options += [f"mask={' & '.join(tests)}", f"other={pad_text(pad, tensor.dtype)}"]
    shape = values.broadcast([a.type.shape for a in value.args])
    if shape and len(shape) != len(value.type.shape):
        raise LoweringError("The indices of a gather do not reach its shape.", "Broadcast them first.")
    return Text(f"tl.load({', '.join(options)})", shape)


def pointer_at(
    values: Values, tensor: Tensor, index: tuple[Value, ...], items: tuple[Point | Range | None, ...], rank: int
) -> tuple[str, list[str]]:
    """Return pointers to the elements of a tile of ``rank``, and the conditions under which they exist."""
    terms, tests = [tensor.name], []
    for dim, (value, item) in enumerate(zip(index, items, strict=True)):
        size = tensor.shape[dim]
        text = values.write(value)
        code = values.ranked(text, (num(1),) * rank)
        at = code if is_atom(code) else values.temporary(tidy(code))
        if not _is_inside(values, item, size) and not is_below(values, value, size):
            tests.append(_test(values, at, values.int_text(size), text, rank))
        if at == "0":
            continue
        factors = [at, *(_factor(values, s) for s in tensor.shape[dim + 1 :] if not s.is_one)]
        terms.append(" * ".join(factors))
    return " + ".join(terms), tests


def _test(values: Values, at: str, size: str, text: Text, rank: int) -> str:
    size = size if is_atom(size) else f"({size})"
    if values.interpreter and not text.shape:
        # the interpreter converts a scalar condition to an integer if it is alone or combined with a vector of
        # conditions
        return f"(tl.full({'[1]' if rank else '[]'}, tl.where(({at} >= 0) & ({at} < {size}), 1, 0), tl.int32) != 0)"
    return f"({at} >= 0) & ({at} < {size})"


def _factor(values: Values, size: IntExpr) -> str:
    text = tidy(values.int_text(size))
    return text if is_atom(text) else f"({text})"


def _is_inside(values: Values, item: Point | Range | None, size: IntExpr) -> bool:
    """Is a slice or scalar proved to stay inside the dimension, apart from lanes that pad a tile?"""
    ints = values.shapes.ints
    if isinstance(item, Range):
        extent = values.shapes.extent(item.extent)
        if item.start == num(0) and item.step.is_one and ints.equal(item.extent, size):
            return extent.exact
        return False
    if isinstance(item, Point):
        room = ints.low(int_op("-", size, int_op("+", item.at, num(1))))
        return ints.nonnegative(item.at) and room is not None and room >= 0
    return False


def write_scatter(writer: KernelWriter, stmt: Scatter) -> None:
    """Write ``scatter`` and ``atomic_add`` at tile indices; lanes that only pad a tile write nothing.

    Raises:
        LoweringError: Triton has no atomic addition on the tensor's dtype.
    """
    tensor, values = stmt.tensor, writer.values
    if stmt.add and (tensor.dtype.bytes < 2 or tensor.dtype is DType.I16):
        raise LoweringError(f"Triton has no atomic_add on {tensor.dtype.value}.", "Accumulate in f32 or i32.")
    pointer, tests = pointer_at(values, tensor, stmt.index, stmt.items, len(stmt.shape))
    rank = len(stmt.shape)
    code = values.filled(stmt.value, stmt.shape)
    value = values.cast(Text(code, stmt.shape), stmt.value.type.dtype, tensor.dtype).code
    for axis, extent in enumerate(stmt.shape):
        test = writer.shapes.real(extent, writer.int_text(extent), axis, rank)
        tests += [test] if test else []
    if rank:
        # an index that is constant along a dimension still writes every lane of it
        zero = f"tl.full({writer.shapes.text(stmt.shape)}, 0, tl.int32)"
        pointer = f"{pointer} + {zero}" if not _reaches(stmt) else pointer
    mask = f", mask={tidy(' & '.join(tests))}" if tests else ""
    if stmt.add:
        writer.out.put(f'tl.atomic_add({tidy(pointer)}, {tidy(value)}{mask}, sem="relaxed")')
    else:
        writer.out.put(f"tl.store({tidy(pointer)}, {tidy(value)}{mask})")


def _reaches(stmt: Scatter) -> bool:
    """Do the indices together span every dimension of the value?"""
    rank = len(stmt.shape)
    for axis, extent in enumerate(stmt.shape):
        own = [v.type.shape[axis - rank + len(v.type.shape)] for v in stmt.index if len(v.type.shape) >= rank - axis]
        if not extent.is_one and all(e.is_one for e in own):
            return False
    return True


def pad_text(pad: float, dtype: DType) -> str:
    """Return a pad as a literal of the tensor's dtype."""
    if dtype is DType.BOOL:
        return repr(bool(pad))
    if not dtype.is_float:
        return repr(int(pad))
    return repr(float(pad)) if abs(pad) != float("inf") else f'float("{float(pad)}")'


__all__ = ["gather", "pad_text", "pointer_at", "write_scatter"]
