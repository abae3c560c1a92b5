"""Shape rules of common operators on meta tensors, which replace torch's kernels for them.

Those are Python and load sympy (40 MB and half a second) for simple checks. A result's dtype is that of the operator on
a few elements of each argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

Tensor = torch.Tensor

#: operators whose result has their first argument's shape
_AS_FIRST = frozenset((
    "_softmax", "_log_softmax", "cumsum", "cumprod", "triu", "tril", "zeros_like", "ones_like", "full_like",
    "empty_like", "flip", "clone",
))  # fmt: skip
_REDUCE = frozenset(("sum", "mean", "amax", "amin", "prod", "argmax", "argmin", "var", "std", "any", "all"))
#: operators on a size, with their default dtype
_OF_SIZE = {"randn": None, "rand": None, "randint": torch.int64}
_PRODUCTS = frozenset(("mm", "bmm", "mv"))
#: memory formats in which a contiguous tensor's result is contiguous
_FORMATS = (None, torch.contiguous_format, torch.preserve_format)


def result(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the contiguous result of the operator ``func`` for meta tensors; None without a rule."""
    name = func.overloadpacket.__name__
    schema = func._schema
    if schema.is_mutable or func.is_view or len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return None
    bound = dict(zip((a.name for a in schema.arguments), args, strict=False)) | dict(kwargs)
    tensors = [v for v in bound.values() if isinstance(v, Tensor)]
    if name in _OF_SIZE and "size" in bound and _can_draw(bound, _OF_SIZE[name]):
        return torch.empty(bound["size"], dtype=bound.get("dtype") or _OF_SIZE[name], device="meta")
    if bound.get("memory_format") not in _FORMATS:
        return None
    if not tensors or not (name in _PRODUCTS or all(t.is_contiguous() for t in tensors)):
        return None
    shapes = [tuple(t.shape) for t in tensors]
    if torch.Tag.pointwise in func.tags:
        shape = _broadcast(shapes)
    elif name in _AS_FIRST:
        shape = shapes[0]
    elif name in _REDUCE and all(shapes[0]) and not (name in ("any", "all") and bound.get("dim") == []):
        shape = _reduced(shapes[0], bound.get("dim"), bool(bound.get("keepdim")))
    elif name in _PRODUCTS and len({t.dtype for t in tensors}) == 1:
        shape = _product(*shapes)
    elif name == "grid_sampler_2d" and len({t.dtype for t in tensors}) == 1:
        shape = _sampled(*shapes)
    else:
        return None
    if shape is None:
        return None
    return torch.empty(shape, dtype=_dtype(func, args, kwargs), device="meta")


def _can_draw(options: Mapping[str, Any], usual: torch.dtype | None) -> bool:
    """Does it draw integers of a range that is not empty, or floats?"""
    if usual is not None:
        return bool(options.get("low", 0) < options["high"])
    dtype = options.get("dtype")
    return dtype is None or dtype.is_floating_point


def _dtype(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype:
    """Return the dtype of the result for a few elements; each argument keeps its rank, since a tensor of rank 0 has
    less weight in promotion."""
    one = {**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs
    args, one = tree_map_only(Tensor, lambda t: torch.ones((2,) * t.dim(), dtype=t.dtype), (args, one))
    result: torch.dtype = func(*args, **one).dtype
    return result


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    shape = []
    for extents in zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        wide = {n for n in extents if n != 1}
        if len(wide) > 1:
            return None
        shape.append(wide.pop() if wide else 1)
    return tuple(reversed(shape))


def _reduced(shape: tuple[int, ...], dim: Any, keeps: bool) -> tuple[int, ...] | None:
    dims = range(len(shape)) if dim is None or dim == [] else dim if isinstance(dim, (list, tuple)) else [dim]
    if any(not -len(shape) <= d < len(shape) for d in dims):
        return None
    gone = {d % len(shape) for d in dims}
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keeps or i not in gone)


def _product(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the product of two matrices, of two batches of matrices, or of a matrix and a vector."""
    if len(b) == 1:
        return a[:1] if len(a) == 2 and a[1] == b[0] else None
    return (*a[:-1], b[-1]) if len(a) == len(b) and a[:-2] == b[:-2] and a[-1] == b[-2] else None


def _sampled(x: tuple[int, ...], grid: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return images [N, C, H, W] sampled at the positions [N, h, w, 2] of a grid: [N, C, h, w]."""
    fits = len(grid) == len(x) == 4 and grid[0] == x[0] and grid[3] == 2 and all(x[1:])
    return (*x[:2], *grid[1:3]) if fits else None
