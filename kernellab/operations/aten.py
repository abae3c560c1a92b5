"""Facts about each operation of ATen: its role, its operations in a sketch, its FLOPs, its treatment in a capture.

One row for each operation, by its name without the overload (``kernellab.operations.aten_table``). An operation that is
one operation of a sketch is named in that operation's entry instead (``kernellab.operations.sketch``) and becomes a row
here. Capture, Designer, the audit, model regions and the memory read this table and keep no separate list of names.
Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kernellab.operations.aten_row import FREE, POINTWISE, AtenOp, Capture, Copies, Per, Role
from kernellab.operations.aten_table import ROWS
from kernellab.operations.sketch import OPS, Op, OpKind

#: least FLOPs for which an elementwise operation of floats costs more than moving its element; quotients of integers
#: are mostly of indices
_COSTLY_FLOPS = 4


class _Entry(NamedTuple):
    """A row, and the place where it is written, for the error of a second one."""

    place: str
    row: AtenOp


def _of_sketch() -> Iterator[_Entry]:
    """Yield the operations of ATen in the entries of the sketch's operations."""
    for op in OPS.values():
        elementwise = op.kind in (OpKind.POINTWISE, OpKind.COMPARE)
        for name in op.aten:
            row = AtenOp(
                name, _role(op), (op.name,), Per.RESULT if elementwise else Per.OPERAND, direct=True, word=name,
                along_axis=not elementwise, structural=not elementwise, commutes=op.commutes,
                # an operation that is one elementwise operation of a sketch reaches the Designer whole
                capture=Capture.WHOLE if elementwise else Capture.DEFAULT,
            )  # fmt: skip
            yield _Entry(f"the entry {op.name!r} of kernellab/operations/sketch.py", row)


def _role(op: Op) -> Role:
    if op.kind is OpKind.SCAN:
        return Role.SCAN
    if op.kind is OpKind.REDUCE:
        return Role.PLACE if op.result == "i64" else Role.REDUCE
    return Role.FUNCTION if op.result == "float" and op.flops >= _COSTLY_FLOPS else Role.ARITHMETIC


def _table(entries: Iterable[_Entry]) -> dict[str, AtenOp]:
    """Return the rows by name; no operation may have two."""
    table: dict[str, AtenOp] = {}
    places: dict[str, str] = {}
    for place, row in entries:
        if row.name in table:
            raise AssertionError(
                f"ATen's {row.name} has two rows, in {places[row.name]} and in {place}: remove one of them."
            )
        table[row.name], places[row.name] = row, place
    return table


ATEN: Mapping[str, AtenOp] = _table(
    (*_of_sketch(), *(_Entry("kernellab/operations/aten_table.py", row) for row in ROWS))
)


def aten_op(name: str) -> AtenOp | None:
    """Return the row of an operation by its name without the overload; an in-place name (``relu_``) has the row of the
    other one. None without a row."""
    return ATEN.get(name) or ATEN.get(name.removesuffix("_"))


def role_of(name: str) -> Role | None:
    """Return the role of an operation; None without a row."""
    row = aten_op(name)
    return row.role if row else None


def copies_of(name: str) -> Copies | None:
    """Return whether the operation's result is in new memory; None without a row."""
    row = aten_op(name)
    return row.copies if row else None


def named(*roles: Role) -> frozenset[str]:
    """Return the names of all operations with one of ``roles``."""
    return frozenset(row.name for row in ATEN.values() if row.role in roles)


def base_name(op: str) -> str:
    """Return the name without namespace and overload: ``mul`` for ``aten.mul.Tensor``."""
    return op.split(".")[1] if "." in op else op


def power(exponent: object) -> tuple[str, ...]:
    """Return the operations of a sketch for a power with a constant ``exponent``: a few products, a root or a quotient,
    or pow."""
    if isinstance(exponent, bool) or not isinstance(exponent, (int, float)):
        return ("pow",)
    return _POWERS.get(exponent, ("pow",))


_POWERS: Mapping[float, tuple[str, ...]] = {
    1: (), 2: ("mul",), 3: ("mul", "mul"), 4: ("mul", "mul"), 0.5: ("sqrt",), -0.5: ("rsqrt",), -1: ("div",),
}  # fmt: skip


__all__ = [
    "ATEN", "FREE", "POINTWISE", "AtenOp", "Capture", "Copies", "Per", "Role", "aten_op", "base_name", "copies_of",
    "named", "power", "role_of",
]  # fmt: skip
