"""The meaning of every value of a resolved sketch, over torch tensors.

A value is a tensor whose first axis runs over the parallel iterations that are computed together (extent 1 where
all of them share the value); the rest is the tile's shape, so a scalar has rank 1 here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, Any, Union, cast

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.ints import ARITHMETIC, IntExpr, IntKind
from kernellab.sketch.program.program import Apply, Const, DType, Index, Param, Read, Value

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: an index: one value for all iterations that are computed together, or one for each
IndexValue = Union[int, "torch.Tensor"]


@dataclass
class Scope:
    """Names while a statement runs: integers by name, tiles by uid, numeric constexprs by name."""

    indices: dict[str, IndexValue]
    numbers: Mapping[str, int | float]
    f64: bool = False
    tiles: dict[str, Tensor] = field(default_factory=dict)
    #: reads a ``gather``; set by the machine, which owns the memory
    gather: Callable[[Apply, list[Tensor], Scope], Tensor] | None = None

    def dtype(self, dtype: DType) -> torch.dtype:
        """Return the torch dtype for ``dtype``; every float is float64 in f64 mode."""
        import torch

        if self.f64 and dtype.is_float:
            return torch.float64
        return cast("torch.dtype", getattr(torch, dtype.torch_name))

    def extents(self, shape: Sequence[IntExpr]) -> tuple[int, ...]:
        """Return the extents of a tile, without loop variables, as integers."""
        return tuple(max(0, int(self.index(e))) for e in shape)

    def index(self, expr: IntExpr) -> IndexValue:
        """Return the value of an index expression: an int, or one for each iteration."""
        if expr.kind is IntKind.NUM:
            return expr.value
        if expr.kind is not IntKind.OP:
            return self.indices[expr.name]
        args = [self.index(a) for a in expr.args]
        if all(isinstance(a, int) for a in args):
            return IntExpr(IntKind.OP, op=expr.op, args=tuple(_number(cast(int, a)) for a in args)).evaluate({})
        return _INDEX_OPS[expr.op](*args)


@lru_cache(maxsize=4096)
def _number(value: int) -> IntExpr:
    return IntExpr(IntKind.NUM, value=value)


def _minimum(a: IndexValue, b: IndexValue) -> IndexValue:
    import torch

    return torch.minimum(torch.as_tensor(a), torch.as_tensor(b))


def _maximum(a: IndexValue, b: IndexValue) -> IndexValue:
    import torch

    return torch.maximum(torch.as_tensor(a), torch.as_tensor(b))


_INDEX_OPS: dict[str, Callable[..., IndexValue]] = {
    **ARITHMETIC,
    "min": _minimum,
    "max": _maximum,
    "<": lambda a, b: (a < b).long(),
    "<=": lambda a, b: (a <= b).long(),
    ">": lambda a, b: (a > b).long(),
    ">=": lambda a, b: (a >= b).long(),
    "==": lambda a, b: (a == b).long(),
    "!=": lambda a, b: (a != b).long(),
    "and": lambda a, b: ((a != 0) & (b != 0)).long(),
    "or": lambda a, b: ((a != 0) | (b != 0)).long(),
    "not": lambda a: (a == 0).long(),
}


# -- values ------------------------------------------------------------------------------------------------------------


def evaluate(value: Value, scope: Scope) -> Tensor:
    """Return the current tensor of ``value``, in its dtype; the first axis is that of the iterations."""
    import torch

    dtype = scope.dtype(value.type.dtype)
    match value:
        case Const():
            return torch.full((1,), as_number(value.value, dtype), dtype=dtype)
        case Param():
            return torch.full((1,), as_number(scope.numbers[value.name], dtype), dtype=dtype)
        case Index():
            number = scope.index(value.expr)
            return torch.full((1,), number, dtype=dtype) if isinstance(number, int) else number.to(dtype)
        case Read():
            return scope.tiles[value.tile.uid]
        case Apply():
            return _apply(value, [evaluate(a, scope) for a in value.args], scope)
    raise TypeError(f"not a value: {value!r}")


def convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a cast of ``x``: truncated to integers, non-zero to bool, rounded to nearest even to narrower floats."""
    return x if x.dtype == dtype else x.to(dtype)


def stretch(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return ``x`` broadcast to ``shape`` after the iterations' axis."""
    return align(x, len(shape)).expand(x.shape[0], *shape)


def align(x: Tensor, rank: int) -> Tensor:
    """Return ``x`` with extents 1 inserted after the iterations' axis until it has ``rank`` more axes (NumPy's
    rule)."""
    missing = rank - (x.dim() - 1)
    return x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:]) if missing > 0 else x


def as_number(value: float, dtype: torch.dtype) -> Any:
    """Return a literal or pad in ``dtype``; infinities become the ends of an integer's range."""
    import torch

    if dtype == torch.bool:
        return bool(value)
    if dtype.is_floating_point:
        return float(value)
    if value in (inf, -inf):
        return torch.iinfo(dtype).max if value > 0 else torch.iinfo(dtype).min
    return int(value)


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    import torch

    return torch.zeros(tuple(shape), dtype=dtype)


def poison(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return undefined memory: NaN, the smallest integer, or True."""
    import torch

    if dtype == torch.bool:
        return torch.ones(tuple(shape), dtype=dtype)
    wrong = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
    if dtype.is_floating_point:
        return torch.full(tuple(shape), wrong).to(dtype)  # full does not support the 8-bit floats
    return torch.full(tuple(shape), wrong, dtype=dtype)


def _apply(value: Apply, args: list[Tensor], scope: Scope) -> Tensor:
    op = OPS[value.op]
    dtype = scope.dtype(value.type.dtype)
    if value.op == "cast":
        return convert(args[0], dtype)
    if value.op == "bitcast":
        return _bits(args[0], value.args[0].type.dtype, value.type.dtype).to(dtype)
    if value.op == "dot":
        return matmul(args[0], args[1], dtype)
    if value.op == "gather" and scope.gather is not None:
        return convert(scope.gather(value, args, scope), dtype)
    if op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
        return _pointwise(value, args, dtype, op.result)
    if op.kind is OpKind.REDUCE:
        return convert(_reduce(value, args[0], scope, dtype), dtype)
    if op.kind is OpKind.SCAN:
        return _scan(value, args, dtype)
    return _reshape(value, args, scope, dtype)


def _bits(x: Tensor, source: DType, target: DType) -> Tensor:
    """Return the bits of ``x`` in its declared dtype, also in f64 mode, read as ``target``."""
    import torch

    held = x.to(getattr(torch, source.torch_name)).contiguous()
    return held.view(cast("torch.dtype", getattr(torch, target.torch_name)))


def _pointwise(value: Apply, args: list[Tensor], dtype: torch.dtype, result: str) -> Tensor:
    rank = max(len(value.type.shape), *(a.dim() - 1 for a in args))
    aligned = [align(a, rank) for a in args]
    if result == "float":
        aligned = [a if a.is_floating_point() else a.to(dtype) for a in aligned]
    return convert(meaning(value.op)(*aligned), dtype)


@lru_cache(maxsize=256)
def meaning(op: str) -> Callable[..., Any]:
    """Return the operation table's torch expression as a function of a, b, c."""
    import torch

    names = ", ".join("abc"[: OPS[op].arity])
    return cast("Callable[..., Any]", eval(f"lambda {names}: {OPS[op].torch}", {"torch": torch}))


def matmul(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a @ b over the last two axes, accumulated in ``dtype``. Precision words have no effect: they permit
    rounding."""
    rank = max(a.dim(), b.dim()) - 1
    return align(a, rank).to(dtype) @ align(b, rank).to(dtype)


def _axes(value: Apply, rank: int) -> tuple[int, ...]:
    axes = cast("tuple[int, ...]", value.attr("axes", ())) or tuple(range(rank))
    return tuple(a % rank + 1 for a in axes)


def _reduce(value: Apply, x: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
    import torch

    axes = _axes(value, x.dim() - 1)
    keep = bool(value.attr("keepdims", False))
    match value.op:
        case "reduce_sum":
            return x.to(dtype).sum(axes, keepdim=keep)
        case "reduce_mean":
            return x.to(dtype).mean(axes, keepdim=keep)
        case "reduce_any":
            return x.to(torch.bool).any(axes[0], keepdim=keep) if len(axes) == 1 else _any(x, axes, keep)
        case "reduce_prod":
            for axis in sorted(axes, reverse=True):
                x = x.to(dtype).prod(axis, keepdim=keep)
            return x
        case "reduce_max" | "reduce_min":
            if 0 in (x.shape[a] for a in axes):
                shape = _reduced(x.shape, axes, keep)
                return torch.full(shape, as_number(-inf if value.op == "reduce_max" else inf, x.dtype), dtype=x.dtype)
            return (x.amax if value.op == "reduce_max" else x.amin)(axes, keepdim=keep)
        case "argmax" | "argmin":
            flat, shape = _flatten(x, axes)
            best = _first_best(flat, value.op == "argmax")
            return best.reshape(_reduced(shape, axes, keep))
        case "softmax":
            return torch.softmax(x.to(dtype), axes[0])
    raise NotImplementedError(value.op)


def _first_best(x: Tensor, largest: bool) -> Tensor:
    """Return the first index of the largest (smallest) element of the last axis; a NaN counts as both."""
    import torch

    if not x.shape[-1]:
        return torch.zeros(x.shape[:-1], dtype=torch.int64)
    best = x.amax(-1, keepdim=True) if largest else x.amin(-1, keepdim=True)
    hit = x.isnan() if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)
    hit = torch.where(best.isnan(), hit, x == best) if x.is_floating_point() else x == best
    return hit.to(torch.uint8).argmax(-1)


def _flatten(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    kept = [d for d in range(x.dim()) if d not in axes]
    moved = x.permute(*kept, *axes)
    return moved.reshape(*(x.shape[d] for d in kept), prod(x.shape[a] for a in axes)), tuple(x.shape)


def _any(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    flat, shape = _flatten(x != 0, axes)
    return flat.any(-1).reshape(_reduced(shape, axes, keep))


def _reduced(shape: Sequence[int], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes)


def welford(x: Tensor, axes: Sequence[int], keepdims: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return mean and population variance over tile axes ``axes``."""
    rank = x.dim() - 1
    over = tuple(a % rank + 1 for a in axes) or tuple(range(1, rank + 1))
    x = x.to(dtype)
    mean = x.mean(over, keepdim=True)
    variance = (x - mean).square().mean(over, keepdim=keepdims)
    return (mean if keepdims else x.mean(over)), variance


def in_order(x: Tensor, axis: int, down: bool, count: int) -> tuple[Tensor, Tensor]:
    """Return the first ``count`` along ``axis`` in stable order, and their positions; NaN is greater than every
    number."""
    import torch

    if x.shape[axis] < count:
        raise ValueError(f"the first {count} of {x.shape[axis]} elements are asked for")
    keys = x.float() if x.dtype.itemsize == 1 and x.is_floating_point() else x
    order = torch.sort(keys, dim=axis, descending=down, stable=True).indices.narrow(axis, 0, count)
    return x.gather(axis, order), order


def _scan(value: Apply, args: list[Tensor], dtype: torch.dtype) -> Tensor:
    x = args[0].to(dtype)
    axis = cast(int, value.attr("axis", 0)) % (x.dim() - 1) + 1
    kind = str(value.attr("combine", "")) or value.op
    if x.shape[axis] == 0:
        return x
    operands = [x, *(align(a.to(dtype), x.dim() - 1) for a in args[1:])]
    if value.attr("reverse", False):
        return _scanned(kind, [a.flip(axis) for a in operands], axis, dtype).flip(axis)
    return _scanned(kind, operands, axis, dtype)


def _scanned(kind: str, args: list[Tensor], axis: int, dtype: torch.dtype) -> Tensor:
    import torch

    x = args[0]
    match kind:
        case "cumsum" | "add":
            return x.cumsum(axis, dtype=dtype)
        case "cumprod" | "mul":
            return x.cumprod(axis, dtype=dtype)
        case "cummax" | "max":
            return torch.cummax(x, axis).values
        case "cummin" | "min":
            return torch.cummin(x, axis).values
        case "linear":
            return _linear_scan(x, args[1], axis)
    raise NotImplementedError(kind)


def _linear_scan(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """Return h[t] = a[t] * h[t-1] + b[t], where h is 0 before the first element."""
    import torch

    rank = max(a.dim(), b.dim()) - 1
    a, b = align(a, rank), align(b, rank)
    a, b = a + torch.zeros_like(b), b + torch.zeros_like(a)
    state = torch.zeros_like(b.select(axis, 0))
    steps = []
    for t in range(b.shape[axis]):
        state = a.select(axis, t) * state + b.select(axis, t)
        steps.append(state)
    return torch.stack(steps, axis)


def _reshape(value: Apply, args: list[Tensor], scope: Scope, dtype: torch.dtype) -> Tensor:
    import torch

    shape = scope.extents(value.type.shape)
    match value.op:
        case "arange":
            start = value.attr("start")
            first = scope.index(start) if isinstance(start, IntExpr) else int(cast(int, start or 0))
            steps = torch.arange(shape[0])[None]
            return (steps + (first if isinstance(first, int) else first[:, None])).to(dtype)
        case "full" | "broadcast":
            return convert(stretch(args[0], shape), dtype)
        case "transpose":
            rank = args[0].dim() - 1
            perm = cast("tuple[int, ...]", value.attr("perm", ())) or tuple(reversed(range(rank)))
            return args[0].permute(0, *(p % rank + 1 for p in perm))
        case "reshape":
            return args[0].reshape(args[0].shape[0], *shape)
        case "newaxis":
            x = args[0]
            for axis in sorted(cast("tuple[int, ...]", value.attr("axes", ()))):
                x = x.unsqueeze(axis + 1)
            return x
        case "concat":
            count = max(a.shape[0] for a in args)
            axis = cast(int, value.attr("axis", 0)) % len(shape) + 1
            return torch.cat([a.expand(count, *a.shape[1:]).to(dtype) for a in args], axis)
    raise NotImplementedError(value.op)
