"""Resolves places in tensors, such as ``X[i, 0:64]``: the tensor, its rectangle, and whether its role allows the
access."""

from __future__ import annotations

from kernellab.errors import counted
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Point, Range, Region, Tensor, TensorRole, Touch
from kernellab.sketch.resolve.expr import check_fixed, read_index
from kernellab.sketch.resolve.scope import PoisonEntry, Refused, Scope, TileEntry
from kernellab.sketch.syntax import tree, walk
from kernellab.sketch.syntax.messages import nearest


def read_region(scope: Scope, expr: tree.Expr, touch: Touch) -> Region:
    """Return the rectangle of a tensor that ``expr`` names: a name alone is the whole tensor."""
    tensor = read_tensor(scope, expr, touch)
    items: tuple[tree.Expr | tree.Slice | tree.NewAxis, ...]
    items = expr.items if isinstance(expr, tree.Subscript) else (tree.Slice(),) * len(tensor.shape)
    if len(items) != len(tensor.shape):
        raise wrong_rank(scope, expr, tensor, len(items))
    pairs = zip(items, tensor.shape, strict=True)
    index = tuple(scope.each(pairs, lambda pair: read_index_item(scope, *pair, expr.span)))
    return Region(tensor, index)


def read_tensor(scope: Scope, expr: tree.Expr, touch: Touch) -> Tensor:
    """Return the tensor of ``expr``, and record that it is read, written or added to."""
    named = walk.tensor_of(expr)
    if named is None:
        raise scope.refuse("arguments", expr.span, what="This is not a part of a tensor.", remedy="Write X[...].")
    tensor = scope.names.tensors.get(named.id)
    if tensor is None:
        if isinstance(scope.find(named.id), PoisonEntry):
            raise Refused
        if isinstance(scope.find(named.id), TileEntry):
            message = f"'{named.id}' is a tile, not a tensor."
            raise scope.refuse("arguments", expr.span, what=message, remedy="Copy a tile with y = x.")
        raise scope.refuse(
            "unknown-name", named.span, name=named.id,
            remedy=nearest(named.id, scope.names.tensors) or "Declare it under tensors:.",
        )  # fmt: skip
    _record(scope, tensor, touch, named.span)
    return tensor


#: what is done to a tensor, in words
_WORDS = {Touch.READ: "read", Touch.WRITE: "written", Touch.ADD: "added to"}


def _record(scope: Scope, tensor: Tensor, touch: Touch, span: tree.Span) -> None:
    """Record the access of ``tensor``; one that its role does not allow is reported."""
    if touch is Touch.READ:
        refused, remedy = TensorRole.OUT, "Declare it inout, or temp when a later sketch reads it."
        scope.reads.add(tensor.name)
    else:
        refused, remedy = TensorRole.IN, "Declare it out, inout, or temp."
        scope.writes.add(tensor.name)
    if tensor.role is refused:
        scope.note("role", span, name=tensor.name, role=refused.value, what=_WORDS[touch], remedy=remedy)


def wrong_rank(scope: Scope, expr: tree.Expr, tensor: Tensor, count: int) -> Refused:
    """Return the error for a tensor that is not indexed along each dimension."""
    indices = "1 index is" if count == 1 else f"{count} indices are"
    rank = counted(len(tensor.shape), "dimension")
    return scope.refuse("rank", expr.span, name=tensor.name, rank=rank, given=indices)


def read_index_item(
    scope: Scope, item: tree.Expr | tree.Slice | tree.NewAxis, dim: IntExpr, span: tree.Span
) -> Point | Range:
    """Return one index of a tensor whose dimension has ``dim`` elements; ``span`` is that of the whole expression."""
    if isinstance(item, tree.NewAxis):
        message = "A tensor's slice cannot add a dimension."
        raise scope.refuse("arguments", item.span, what=message, remedy="Load it, then write x[:, None].")
    if not isinstance(item, tree.Slice):
        return Point(read_index(scope, item))
    start = read_index(scope, item.start) if item.start is not None else num(0)
    stop = read_index(scope, item.stop) if item.stop is not None else dim
    step = read_index(scope, item.step) if item.step is not None else num(1)
    constant = affine.constant(step)
    if constant is not None and constant < 1:
        message = f"The step {constant} of a slice is not positive."
        raise scope.refuse("arguments", item.span, what=message, remedy="Write a step of 1 or more.")
    extent = affine.difference(stop, start)
    if not step.is_one:
        extent = affine.simplify(int_op("cdiv", extent, step))
    place = item.span if item.span.line else span
    check_fixed(scope, extent, place)
    size = affine.constant(extent)
    if size is not None and size < 0:
        message = f"The slice has extent {size}."
        raise scope.refuse("out-of-range", place, what=message, remedy="Write start:stop with stop after start.")
    return Range(start, extent, step)


def widened(region: Region, shape: tuple[IntExpr, ...]) -> Region:
    """Return ``region`` for a value of ``shape``: in ``Y[b]`` for a tile of shape [1] the last scalar indices become
    slices of one element."""
    if region.shape or not shape or not all(d.is_one for d in shape):
        return region
    first = max(0, len(region.index) - len(shape))
    ranges = (Range(item.at, num(1), num(1)) for item in region.index[first:] if isinstance(item, Point))
    return Region(region.tensor, (*region.index[:first], *ranges))
