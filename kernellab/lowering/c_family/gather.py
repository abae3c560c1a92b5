"""Elements at computed indices: a check for each index that is not proved to be inside, then the element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernellab.lowering.c_family.index import ZERO, Index, align, step_into, wrap
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Nest
from kernellab.lowering.c_family.types import MEMORY_TYPE, converted, is_narrow, literal, strip
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Apply, Point, Range, Tensor, Value

if TYPE_CHECKING:
    from kernellab.lowering.c_family.scalar import Scalars

Items = tuple[Point | Range | None, ...]


def gather_text(value: Apply, index: Sequence[str], ints: Ints, pick: Callable[[str, str], str]) -> str:
    """Return the element of the tensor at ``index`` (C++ integers), or the pad if it does not exist, as C++.

    ``pick`` spells the element of a tensor at an address.
    """
    tensor, items, pad = (value.attr(name) for name in ("tensor", "items", "pad"))
    assert isinstance(tensor, Tensor) and isinstance(items, tuple) and isinstance(pad, float)
    address, checks = place_at(tensor, index, items, ints)
    element = pick(ints.tensor(tensor), address)
    if is_narrow(tensor.dtype):
        element = f"float({element})"
    return f"({' && '.join(checks)} ? {element} : {literal(pad, tensor.dtype)})" if checks else element


def place_at(tensor: Tensor, index: Sequence[str], items: Items, ints: Ints) -> tuple[str, list[str]]:
    """Return the row-major position of ``index``, and the checks that it needs to lie inside."""
    address, checks = ZERO, []
    for text, item, size in zip(index, items, tensor.shape, strict=True):
        if not _is_inside(item, size, ints):
            checks.append(f"kl::within({text}, {ints.cpp(size)})")
        address = step_into(address, size, wrap(text), ints)
    return address, checks


def _is_inside(item: Point | Range | None, size: IntExpr, ints: Ints) -> bool:
    if isinstance(item, Point):
        return ints.nonnegative(item.at) and ints.below(item.at, size)
    return isinstance(item, Range) and ints.fits(item.start, item.extent, item.step, size)


def scatter_text(nest: Nest, variables: Index, scalars: Scalars) -> str:
    """Return the statement that writes one element of a scatter."""
    stmt, packed = nest.scatter, nest.value
    assert stmt is not None and isinstance(packed, Apply)
    tensor = stmt.tensor

    def element(value: Value) -> str:
        return scalars.element(value, align(variables, value.type.shape, scalars.ints))

    value, *index = (element(a) for a in packed.args)
    address, checks = place_at(tensor, [strip(i) for i in index], stmt.items, scalars.ints)
    text = strip(converted(value, packed.args[0].type.dtype, tensor.dtype.compute))
    target = f"{scalars.ints.tensor(tensor)}[{address}]"
    if stmt.add and nest.conflict_free and not is_narrow(tensor.dtype):
        line = f"{target} += {MEMORY_TYPE[tensor.dtype]}({text});"
    elif stmt.add:
        wide = text if is_narrow(tensor.dtype) else f"{MEMORY_TYPE[tensor.dtype]}({text})"
        line = f"kl::atomic_add(&{target}, {wide});"
    else:
        line = f"{target} = {text};"
    return f"if ({' && '.join(checks)}) {line}" if checks else line


__all__ = ["gather_text", "place_at", "scatter_text"]
