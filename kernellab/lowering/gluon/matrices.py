"""Tiles of several dimensions as matrices with the rows of a product.

A product's result is a matrix. What follows may see it as a tile of more dimensions, ``[a, b, columns]``; here such
values become the matrix again: ``[a * b, columns]``, or ``[b * columns, a]`` where the tile is stored transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernellab.lowering.gluon.boxes import Refused
from kernellab.lowering.gluon.plan import Plan
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import IntExpr, int_op
from kernellab.sketch.program.program import Apply, Assign, Load, Read, Statement, Store, Tile, Value
from kernellab.sketch.program.walk import statements, subvalues


def matrix_shape(shape: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """Return a tile's shape with all dimensions but the last merged."""
    rows = shape[0]
    for extent in shape[1:-1]:
        rows = int_op("*", rows, extent)
    return rows, shape[-1]


def transposed_matrix_shape(shape: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """Return a tile's shape as a matrix whose columns are its first dimension."""
    return matrix_shape((*shape[1:], shape[0]))


def row_index(value: Value) -> Value:
    """Return the vector of which the value has one number for each row of a matrix, else the value itself."""
    if not isinstance(value, Apply) or value.op != "newaxis" or value.attr("axes") != (1,):
        return value
    return value.args[0] if len(value.args[0].type.shape) == 1 else value


def as_matrix(value: Value, matrices: Mapping[str, Tile]) -> Value:
    """Return ``value`` as a matrix, or the value itself if it is none: it must be elementwise of reshapes of matrices
    and of the tiles in ``matrices``, by uid."""
    if len(value.type.shape) < 3:
        return value
    shape = matrix_shape(value.type.shape)
    transposed = transposed_matrix_shape(value.type.shape)
    if isinstance(value, Read) and value.tile.uid in matrices:
        return Read(replace(value.type, shape=shape), matrices[value.tile.uid])
    if not isinstance(value, Apply):
        return value
    if value.op == "newaxis" and value.args[0].type.shape == value.type.shape[:1]:
        return value.args[0]  # the same in each row of a transposed matrix
    if value.op == "reshape":
        inner = value.args[0]
        if isinstance(inner, Apply) and inner.op == "transpose" and inner.args[0].type.shape == transposed:
            return inner.args[0]
        return inner if inner.type.shape == shape else value
    return _elementwise(value, [as_matrix(arg, matrices) for arg in value.args], shape, transposed)


def _elementwise(value: Apply, args: list[Value], shape: tuple[IntExpr, ...], transposed: tuple[IntExpr, ...]) -> Value:
    """Return the operation ``value`` on matrices; the value itself if it is not elementwise or its arguments differ."""
    if value.op != "cast" and OPS[value.op].kind is not OpKind.POINTWISE:
        return value
    if len(args) == 1:
        shape = args[0].type.shape
    elif any(arg.type.shape == transposed for arg in args):
        shape = transposed
    if not all(arg.type.shape in ((), shape, shape[1:]) for arg in args):
        return value
    return replace(value, args=tuple(args), type=replace(value.type, shape=shape))


def with_matrices(plan: Plan) -> Plan:
    """Return the plan with the tiles after its loop as matrices.

    Raises:
        Refused: a tile of more dimensions is no such matrix.
    """
    loads = [s for s in statements((*plan.before, *plan.loop.body)) if isinstance(s, Load) and s not in plan.buffered]
    misfit: Statement | None = next((load for load in loads if len(load.tile.shape) > 2), None)
    matrices: dict[str, Tile] = {}
    after: list[Statement] = []
    for stmt in plan.after:
        if isinstance(stmt, Load | Assign) and len(stmt.tile.shape) > 2:
            matrices[stmt.tile.uid] = replace(stmt.tile, shape=matrix_shape(stmt.tile.shape))
        if isinstance(stmt, Load):
            after.append(stmt)
            continue
        if isinstance(stmt, Assign):
            tile = matrices.get(stmt.tile.uid, stmt.tile)
            stmt = replace(stmt, tile=tile, value=as_matrix(stmt.value, matrices))
        elif isinstance(stmt, Store):
            stmt = replace(stmt, value=as_matrix(stmt.value, matrices))
            misfit = misfit or (None if _fits(stmt) else stmt)
        if any(len(v.type.shape) > 2 for s in statements((stmt,)) for root in s.values for v in subvalues(root)):
            misfit = stmt
        after.append(stmt)
    if misfit is not None:
        raise Refused(f"line {misfit.span.line} has a tile of several dimensions that are no rows of a product")
    return replace(plan, after=tuple(after), matrices=matrices)


def _fits(stmt: Store) -> bool:
    """Does the matrix that the statement stores fill its region?"""
    region = stmt.region.shape
    if len(region) <= 2:
        return True
    shape = matrix_shape(region)
    return stmt.value.type.shape in ((), shape, shape[1:], transposed_matrix_shape(region))


__all__ = ["as_matrix", "matrix_shape", "row_index", "transposed_matrix_shape", "with_matrices"]
