"""Edges of a reference's operations, where their behaviour changes: of a comparison, a clamp, a division, a reduction.

A run reaches an edge when an element of the operation's operands is on that side of it. Most edges are signs of a
distance (``x - c`` for ``x < c``): below, at and above zero, and NaN. The others are facts about a row or an index.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

Tensor = torch.Tensor
#: Arguments of an operation by their names in its schema.
Bound = Mapping[str, Any]
#: Number of operand elements that are inspected.
_MOST = 1 << 16


@dataclass(frozen=True)
class Edge:
    """One edge of the ``number``-th call of the ATen operation ``op`` in a run. ``purpose``: the operation exists to
    handle this edge, whatever the task's own inputs draw (a clamp's bound, a masked element, ``nan_to_num`` of a
    NaN)."""

    op: str
    number: int
    name: str
    purpose: bool = False


@dataclass(frozen=True)
class Distance:
    """Signed float64 distances of an operand's elements from an edge; ``purpose`` as in :class:`Edge`."""

    name: str
    values: Tensor
    is_float: bool
    purpose: bool
    #: Whether NaN is an edge that the operation exists to handle.
    for_nan: bool = False
    #: Whether two tensors are compared, so that equal elements may have any value.
    two_sided: bool = False


class Fact(NamedTuple):
    """Another edge of a call: its name, whether the call reached it, and ``purpose`` as in :class:`Edge`."""

    name: str
    reached: bool
    purpose: bool = False


def distances(op: str, bound: Bound) -> Iterator[Distance]:
    """Yield the distances whose signs are edges of a call of ``op``."""
    operand: Any = bound.get("self")
    if op in _COMPARED and isinstance(operand, Tensor) and "other" in bound:
        yield _distance("difference", operand, bound["other"], purpose=True, for_nan=op in COMPARISONS)
    elif op in _CLAMPS and isinstance(operand, Tensor):
        for bound_name in _CLAMPS[op]:
            if bound.get(bound_name) is not None:
                yield _distance(bound_name, operand, bound[bound_name], purpose=True)
    elif op in _CUT and isinstance(operand, Tensor):
        yield from (_distance(f"at {cut:g}", operand, cut, purpose=True) for cut in _CUT[op])
    elif op in _DIVISIONS and isinstance(operand, Tensor):
        whole = not operand.is_floating_point()
        yield _distance("numerator", operand, 0, purpose=whole and op != "div")
        if isinstance(bound.get("other"), Tensor):
            yield _distance("denominator", bound["other"], 0)
    elif op in _ROOTS and isinstance(operand, Tensor):
        yield _distance("operand", operand, _ROOTS[op])
    elif op in _ROUNDINGS or (op == "_to_copy" and _cuts(bound)):
        yield from _rounded(op, bound["self"])
    elif op in _SHIFTS and isinstance(operand, Tensor):
        yield _distance("operand", operand, 0)
    elif op in ("huber_loss", "smooth_l1_loss"):
        distance = (operand - bound["target"]).abs()
        yield _distance("difference", distance, bound.get("delta", bound.get("beta", 1.0)), purpose=True)
    elif op in ("hardshrink", "softshrink"):
        yield _distance("size", operand.abs(), bound.get("lambd", 0.5), purpose=True)
    elif op == "softplus":
        yield _distance("threshold", operand * bound.get("beta", 1), bound.get("threshold", 20), purpose=True)
    elif op == "threshold":
        yield _distance("threshold", operand, bound["threshold"], purpose=True)


def facts(op: str, bound: Bound) -> Iterator[Fact]:
    """Yield the other edges of a call of ``op``."""
    operand: Any = bound.get("self")
    if op in COMPARISONS and isinstance(operand, Tensor) and not operand.is_floating_point() and "other" in bound:
        # Integers (lengths, positions) that mask a row.
        yield from _masked(_COMPARISON[op](operand, bound["other"]))
    elif op in ("where", "masked_fill"):
        yield from _masked(bound.get("condition", bound.get("mask")))
    elif op.startswith("_scaled_dot_product") and isinstance(bound.get("attn_mask"), Tensor):
        mask = bound["attn_mask"]
        yield from _masked(mask if mask.dtype == torch.bool else mask.isneginf())
    elif op in ("nan_to_num", "isnan", "isinf", "isfinite", "nansum", "nanmedian"):
        yield Fact("NaN", bool(operand.isnan().any()), purpose=op != "isinf")
        if op not in ("isnan", "nansum", "nanmedian"):
            yield Fact("inf", bool(operand.isposinf().any()), purpose=True)
            yield Fact("-inf", bool(operand.isneginf().any()), purpose=True)
    elif op in _INDEXED:
        yield from _indexed(op, bound)
    elif op in ("nll_loss_forward", "nll_loss2d_forward"):
        target = bound["target"]
        yield Fact("ignored", bool((target == bound.get("ignore_index", -100)).any()), purpose=True)
        yield Fact("first", bool((target == 0).any()), purpose=True)
        yield Fact("last", bool((target == operand.shape[1 if operand.dim() > 1 else 0] - 1).any()), purpose=True)
    elif op in _EXTREMES and isinstance(operand, Tensor) and operand.numel():
        rows = _rows(operand, bound.get("dim"))
        yield from _extreme(rows, op in _LEAST)
        zero = rows == 0
        if op in _ORDERED and rows.is_floating_point() and bool((zero.sum(-1) > 1).any()):
            negative_zero = zero & rows.signbit()
            has_both = negative_zero.any(-1) & (zero & ~negative_zero).any(-1)
            yield Fact("zeros of both signs", bool(has_both.any()), purpose=True)
    elif op in ("any", "all") and isinstance(operand, Tensor) and operand.is_floating_point() and operand.numel():
        rows = _rows(operand, bound.get("dim"))
        nan_decides = rows.isnan().any(-1) & ((rows == 0) | rows.isnan() if op == "any" else rows != 0).all(-1)
        yield Fact("NaN decides", bool(nan_decides.any()), purpose=True)
    elif op in _NORMALISATIONS and isinstance(bound.get("input", operand), Tensor):
        yield from _normalised(op, _rows(bound.get("input", operand), bound.get("dim")))
    elif op in _SUMS and isinstance(operand, Tensor) and operand.numel():
        yield from _summed(operand, bound.get("dim"))
    elif op in ("add", "sub", "mul") and isinstance(operand, Tensor) and _whole(operand):
        yield from _wraps(op, operand, bound["other"])


#: Comparisons, which also define a result for NaN, and operations that select by comparing.
_COMPARISON: Mapping[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
COMPARISONS = frozenset(_COMPARISON)
_COMPARED = COMPARISONS | {"maximum", "minimum", "fmax", "fmin", "max", "min"}
_CLAMPS = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",), "hardtanh": ("min_val", "max_val")}
_CUT: Mapping[str, tuple[float, ...]] = {
    "relu": (0.0,), "leaky_relu": (0.0,), "elu": (0.0,), "_prelu_kernel": (0.0,), "abs": (0.0,), "sign": (0.0,),
    "sgn": (0.0,), "relu6": (0.0, 6.0), "hardswish": (-3.0, 3.0), "hardsigmoid": (-3.0, 3.0), "heaviside": (0.0,),
}  # fmt: skip
_DIVISIONS = frozenset(("div", "true_divide", "floor_divide", "remainder", "fmod"))
_ROOTS = {
    "reciprocal": 0.0, "rsqrt": 0.0, "sqrt": 0.0, "log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0, "pow": 0.0
}  # fmt: skip
_ROUNDINGS = frozenset(("round", "floor", "ceil", "trunc", "frac"))
_SHIFTS = frozenset(("__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift"))
_LEAST = frozenset(("amin", "min", "argmin"))
_EXTREMES = _LEAST | {"amax", "max", "argmax", "topk", "sort", "cummax", "cummin", "max_pool2d_with_indices"}
#: Operations of these that return an index, for which zeros of either sign are equal.
_ORDERED = frozenset(("argmin", "argmax", "topk", "sort", "cummax", "cummin"))
_SUMS = frozenset(("sum", "mean", "cumsum", "prod", "cumprod"))
_SOFTMAX = frozenset(("_softmax", "_log_softmax", "logsumexp", "logcumsumexp"))
_NORMALISATIONS = _SOFTMAX | {
    "native_layer_norm", "_fused_rms_norm", "native_group_norm", "var", "std", "var_mean", "linalg_vector_norm",
}  # fmt: skip
#: Operations that read or write at indices, with the name of the index argument.
_INDEXED = {
    "index": "indices", "index_put": "indices", "gather": "index", "index_select": "index", "embedding": "indices",
    "scatter": "index", "scatter_add": "index", "scatter_reduce": "index", "index_add": "index", "take": "index",
}  # fmt: skip

INDEXED = frozenset(_INDEXED)
#: Operations that reduce a float to an integer.
ROUNDED = _ROUNDINGS | {"_to_copy", "floor_divide", "remainder"}


def _distance(name: str, one: Tensor, other: Any, purpose: bool = False, for_nan: bool = False) -> Distance:
    is_float = one.is_floating_point() or (isinstance(other, Tensor) and other.is_floating_point())
    if isinstance(other, Tensor):
        two_sided = for_nan and is_float and one.numel() > 1 and other.numel() > 1
        one, other = torch.broadcast_tensors(one, other)  # type: ignore[no-untyped-call]
        return Distance(name, _few(one).double() - _few(other).double(), is_float, purpose, for_nan, two_sided)
    if one.is_floating_point():
        # torch compares with the number in the operand's dtype (0.9).
        other = torch.tensor(float(other), dtype=one.dtype)
    return Distance(name, _few(one).double() - float(other), is_float, purpose, for_nan)


def _few(value: Tensor) -> Tensor:
    """Return an operand flattened, or its first elements if it is large; for complex numbers the real parts."""
    flat = (value.reshape(-1) if value.numel() <= _MOST else value.flatten()[:_MOST]).detach()
    return flat.real if flat.is_complex() else flat


def _whole(value: Tensor) -> bool:
    return not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool


def _cuts(bound: Bound) -> bool:
    value, dtype = bound.get("self"), bound.get("dtype")
    to_integer = dtype is not None and not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
    return to_integer and isinstance(value, Tensor) and value.is_floating_point()


def _rounded(op: str, operand: Tensor) -> Iterator[Distance]:
    if not operand.is_floating_point():
        return
    x = _few(operand).double()
    yield Distance("sign", x, is_float=True, purpose=True)
    if op == "round":
        yield Distance("half", x - x.floor() - 0.5, is_float=True, purpose=True)
    else:
        yield Distance("whole", x - x.round(), is_float=True, purpose=True)


def _masked(mask: Any) -> Iterator[Fact]:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or not mask.numel():
        return
    yield Fact("true", bool(mask.any()), purpose=True)
    yield Fact("false", not bool(mask.all()), purpose=True)
    if mask.dim() and mask.shape[-1] > 1:
        rows = mask.reshape(-1, mask.shape[-1])
        yield Fact("a whole row true", bool(rows.all(-1).any()), purpose=True)
        yield Fact("a whole row false", not bool(rows.any(-1).all()), purpose=True)


def _indexed(op: str, bound: Bound) -> Iterator[Fact]:
    places = bound[_INDEXED[op]]
    source = bound.get("self", bound.get("weight"))
    indices = [p for p in places if p is not None] if isinstance(places, (list, tuple)) else [places]
    for i, index in enumerate(indices):
        if not isinstance(index, Tensor) or not index.numel():
            continue
        if index.dtype == torch.bool:
            yield Fact(f"{i} true", bool(index.any()), purpose=True)
            yield Fact(f"{i} false", not bool(index.all()), purpose=True)
            continue
        dim = bound.get("dim", i if isinstance(places, (list, tuple)) else 0)
        size = source.shape[dim] if isinstance(source, Tensor) and source.dim() else 1
        flat = _few(index)
        yield Fact(f"{i} first", bool((flat == 0).any()), purpose=True)
        yield Fact(f"{i} last", bool((flat == size - 1).any()), purpose=True)
        yield Fact(f"{i} repeated", torch.unique(flat).numel() < flat.numel(), purpose=True)
        if op in ("index", "index_put", "take"):
            yield Fact(f"{i} negative", bool((flat < 0).any()))


def _rows(operand: Tensor, dim: Any) -> Tensor:
    """Return the reduced elements as rows; a single row if no dimension is given."""
    along = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
    if operand.dim() == 0:
        return operand.reshape(1, 1)
    if isinstance(along, (list, tuple)):
        return operand.reshape(1, -1)[:, :_MOST]
    moved = operand.reshape(1, -1) if along is None else operand.movedim(along, -1)
    rows = moved.reshape(-1, moved.shape[-1]) if moved.numel() else moved.reshape(0, 1)
    return rows[: max(1, _MOST // max(rows.shape[-1], 1))]


def _extreme(rows: Tensor, least: bool) -> Iterator[Fact]:
    if not rows.numel() or rows.is_complex():
        return
    x = rows.double()
    x = -x if least else x
    most = x.nan_to_num(-torch.inf, torch.inf, -torch.inf).amax(-1, keepdim=True)
    same = x == most
    yield Fact("equal", bool((same.sum(-1) > 1).any()), purpose=True)
    yield Fact("first", bool(same[:, 0].any()), purpose=True)
    yield Fact("last", bool(same[:, -1].any()), purpose=True)
    yield Fact("all of one sign", bool((most < 0).any()), purpose=True)
    if rows.is_floating_point():
        yield from _not_finite(x)


def _not_finite(x: Tensor) -> Iterator[Fact]:
    low = x.isneginf()
    yield Fact("NaN", bool(x.isnan().any()))
    yield Fact("inf", bool(x.isposinf().any()))
    yield Fact("-inf first", bool((low[:, 0] & ~low.all(-1)).any()))
    yield Fact("-inf throughout", bool(low.all(-1).any()))


def _normalised(op: str, rows: Tensor) -> Iterator[Fact]:
    if not rows.numel() or not rows.is_floating_point():
        return
    x = rows.double()
    yield Fact("constant", bool((x == x[:, :1]).all(-1).any()))
    if x.shape[-1] > 1:
        largest = x.abs().topk(2, -1).values
        yield Fact("one dominates", bool((largest[:, 0] > 8 * largest[:, 1]).any()))
    if op in _SOFTMAX:
        yield Fact("overflows", bool((x > 89).any()))
        yield from _not_finite(x)
    else:
        yield Fact("zero", bool((x == 0).all(-1).any()))
        yield Fact("NaN", bool(x.isnan().any()))


def _summed(operand: Tensor, dim: Any) -> Iterator[Fact]:
    rows = _rows(operand, dim)
    if operand.is_complex() or not rows.numel():
        return
    x = rows.double()
    yield Fact("zero", bool((x == 0).all(-1).any()))
    if operand.is_floating_point():
        yield Fact("NaN", bool(x.isnan().any()))
        yield Fact("inf", bool(x.isinf().any()))
    elif operand.dtype != torch.bool:
        total = x.sum(-1).abs()
        yield Fact("negative", bool((x < 0).any()))
        if operand.dtype != torch.int64:
            yield Fact("beyond the dtype", bool((total > torch.iinfo(operand.dtype).max).any()))
        yield Fact("beyond 2^24", bool((total > 1 << 24).any()))
        yield Fact("beyond 2^31", bool((total > 1 << 31).any()))


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b
}  # fmt: skip


def _wraps(op: str, one: Tensor, other: Any) -> Iterator[Fact]:
    if isinstance(other, Tensor) and not _whole(other):
        return
    right = other.double() if isinstance(other, Tensor) else float(other)
    result = _ARITHMETIC[op](one.double(), right).abs()
    if result.numel():
        yield Fact("beyond the dtype", bool((result > torch.iinfo(one.dtype).max).any()))
        yield Fact("beyond 2^24", bool((result > 1 << 24).any()))
