"""Reductions, the softmax family, normalisations, scans, gathers and matrix products as expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernellab.agents.designer import aten, extents
from kernellab.agents.designer.build import Builder
from kernellab.agents.designer.expr import Expr, Index, Iota, Ix, Num, Op, Scan, SymNum
from kernellab.agents.designer.extents import Extent
from kernellab.capture import Node, Ref

Handler = Callable[[Builder, Node, Index, int], Expr]


def _dims(given: Any, rank: int) -> list[int]:
    if given is None or given == ():
        return list(range(rank))
    items = given if isinstance(given, tuple) else (given,)
    return sorted({d % rank for d in items}) if rank else []


class _Reduction:
    """The operand of a reducing node at the node's index, with bound axes for the reduced dimensions."""

    def __init__(self, b: Builder, node: Node, index: Index, dims: list[int]) -> None:
        self.b, self.node, self.dims = b, node, dims
        self.shape = b.shape(node.args[0])
        outer = list(index)
        if len(outer) != len(self.shape):
            for d in dims:
                outer.insert(d, Ix())
        self.index = b.bound(self.shape, dims, tuple(outer))
        self.arg = b.value(node.args[0], self.index)
        self.count = b.count(self.shape, dims)

    def reduce(self, kind: str, arg: Expr, dtype: str) -> Expr:
        return self.b.reduce(kind, arg, self.index, self.dims, dtype, self.node.line)


def _arg(node: Node, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else node.keyword(name, default)


def _accumulate(dtype: str) -> str:
    """The dtype that a sum for a result of ``dtype`` is kept in."""
    return aten.wide(dtype) if aten.is_float(dtype) else "int64"


def _simple(kind: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        rank = len(b.shape(node.args[0]))
        given = _arg(node, 1, "dim")
        if node.op.endswith(".default") and kind in ("max", "min", "prod") and node.op.split(".")[1] in (kind,):
            given = None
        total = _linear_sum(b, node, index, _dims(given, rank)) if kind == "sum" else None
        if total is not None:
            return aten.settle(total, node.dtype)
        r = _Reduction(b, node, index, _dims(given, rank))
        name = kind
        if kind in ("max", "min") and item == 1:
            name = f"arg{kind}"
        if name in ("argmax", "argmin"):
            return r.reduce(name, r.arg, "int64")
        if kind == "any":
            return r.reduce(
                "any",
                aten.apply("logical_not", [aten.apply("logical_not", [r.arg], "bool", 0)], "bool", 0)
                if r.arg.dtype != "bool"
                else r.arg,
                "bool",
            )
        if kind == "all":
            inner = r.reduce("any", aten.apply("logical_not", [r.arg], "bool", 0), "bool")
            return Op("logical_not", (inner,), "bool", node.line)
        dtype = _accumulate(node.dtype) if kind in ("sum", "prod") else aten.wide(r.arg.dtype)
        arg = aten.compute(r.arg, dtype)
        return aten.settle(r.reduce(name, arg, dtype), node.dtype)

    return handle


def _linear_sum(b: Builder, node: Node, index: Index, dims: list[int]) -> Expr | None:
    """The sum over ``dims`` of the node's operand where that leaves out a product."""
    from kernellab.agents.designer.sums import summed

    outer = list(index)
    if len(outer) != len(b.shape(node.args[0])):
        for d in dims:
            outer.insert(d, Ix())
    return summed(b, node.args[0], dims, tuple(outer))


def _mean(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape, d = b.shape(node.args[0]), aten.wide(node.dtype)
    dims = _dims(_arg(node, 1, "dim"), len(shape))
    total = _linear_sum(b, node, index, dims)
    if total is not None:
        return Op("div", (total, b.count(shape, dims)), d, node.line)
    r = _Reduction(b, node, index, dims)
    return Op("div", (r.reduce("sum", aten.compute(r.arg, d), d), r.count), d, node.line)


def moments(r: _Reduction, d: str, correction: float) -> tuple[Expr, Expr]:
    """Mean and variance, the squares taken about the mean: no cancellation."""
    arg = aten.compute(r.arg, d)
    mean = Op("div", (r.reduce("sum", arg, d), r.count), d, r.node.line)
    centred = Op("sub", (arg, mean), d, r.node.line)
    squares = r.reduce("sum", Op("mul", (centred, centred), d, r.node.line), d)
    count = r.count
    if correction:
        if isinstance(count, Num):
            count = Num(max(count.value - correction, 0.0), d)
        else:
            assert isinstance(count, SymNum)
            count = SymNum(str(extents.add(count.expr, -int(correction))), d)
    return mean, Op("div", (squares, count), d, r.node.line)


def _var(root: bool, both: bool = False) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        r = _Reduction(b, node, index, _dims(_arg(node, 1, "dim"), len(b.shape(node.args[0]))))
        d = aten.wide(node.dtype)
        correction = node.keyword("correction", 1)
        mean, var = moments(r, d, 1 if correction is None else correction)
        if both and item == 1:
            return mean
        return Op("sqrt", (var,), d, node.line) if root else var

    return handle


def _vector_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    order = float(_arg(node, 1, "ord", 2))
    r = _Reduction(b, node, index, _dims(_arg(node, 2, "dim"), len(b.shape(node.args[0]))))
    d = aten.wide(node.dtype)
    x = aten.compute(r.arg, d)
    magnitude = Op("abs", (x,), d, node.line)
    if order == 2:
        return Op("sqrt", (r.reduce("sum", Op("mul", (x, x), d, node.line), d),), d, node.line)
    if order == 1:
        return r.reduce("sum", magnitude, d)
    if order in (float("inf"), float("-inf")):
        return r.reduce("max" if order > 0 else "min", magnitude, d)
    if order == 0:
        return r.reduce("sum", Op("cast", (Op("ne", (x, Num(0.0, d)), "bool"),), d), d)
    powered = r.reduce("sum", Op("pow", (magnitude, Num(order, d)), d, node.line), d)
    return Op("pow", (powered, Num(1.0 / order, d)), d, node.line)


def _softmax(log: bool) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        shape = b.shape(node.args[0])
        if not shape:
            return Num(0.0 if log else 1.0, node.dtype)
        dim = node.args[1] % len(shape)
        d = aten.wide(node.dtype)
        bound = b.bound(shape, [dim], index)
        inner = aten.compute(b.value(node.args[0], bound), d)
        here = aten.compute(b.value(node.args[0], index), d)
        top = b.reduce("max", inner, bound, [dim], d, node.line)
        total = b.reduce("sum", Op("exp", (Op("sub", (inner, top), d),), d, node.line), bound, [dim], d, node.line)
        shifted = Op("sub", (here, top), d, node.line)
        if log:
            return Op("sub", (shifted, Op("log", (total,), d)), d, node.line)
        return Op("div", (Op("exp", (shifted,), d), total), d, node.line)

    return handle


def _normalise(b: Builder, node: Node, index: Index, dims: list[int], eps: Any, centre: bool = True) -> Expr:
    shape = b.shape(node.args[0])
    d = aten.wide(node.dtype)
    r = _Reduction(b, node, b.bound(shape, dims, index), dims)
    here = aten.compute(b.value(node.args[0], index), d)
    if centre:
        mean, var = moments(r, d, 0)
        here = Op("sub", (here, mean), d, node.line)
    else:
        x = aten.compute(r.arg, d)
        var = Op("div", (r.reduce("sum", Op("mul", (x, x), d, node.line), d), r.count), d, node.line)
    scale = Op("rsqrt", (Op("add", (var, b.value(eps)), d),), d, node.line)
    return Op("mul", (here, scale), d, node.line)


def _affine(b: Builder, node: Node, x: Expr, weight: Any, bias: Any, index: Index) -> Expr:
    d = aten.wide(node.dtype)
    if isinstance(weight, Ref):
        x = Op("mul", (x, b.value(weight, index)), d, node.line)
    if isinstance(bias, Ref):
        x = Op("add", (x, b.value(bias, index)), d, node.line)
    return x


def _layer_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = len(node.args[1])
    dims = list(range(len(index) - count, len(index)))
    x = _normalise(b, node, index, dims, _arg(node, 4, "eps", 1e-5))
    return _affine(b, node, x, _arg(node, 2, "weight"), _arg(node, 3, "bias"), index[-count:])


def _rms_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = len(node.args[1])
    eps = _arg(node, 3, "eps")
    if eps is None:
        eps = {"float32": 1.1920928955078125e-07, "float64": 2.220446049250313e-16}.get(
            node.dtype, 1.1920928955078125e-07
        )
    dims = list(range(len(index) - count, len(index)))
    x = _normalise(b, node, index, dims, eps, centre=False)
    return _affine(b, node, x, _arg(node, 2, "weight"), None, index[-count:])


def _group_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """The channel axis splits into groups and channels of a group; the reduction runs over the latter and space."""
    source, groups = node.args[0], node.args[1]
    shape = b.shape(source)
    channels = extents.product(shape[1]).over(extents.product(groups))
    if channels is None:
        raise b.refuse(node, f"{shape[1]} channels in {groups} groups")
    d = aten.wide(node.dtype)
    ix = index[1]
    if not ix.plain:
        raise b.refuse(node, "a slice of the normalised channels")
    outer, inner = _split(b, node, ix, groups, channels.extent)
    bound = tuple(index[d] for d in range(2, len(shape)))
    fits = all(i.plain and (i.axes or e == 1) for i, e in zip(bound, shape[2:], strict=True))
    if not fits:
        bound = b.axes_for(shape[2:], frozenset((*index[0].leaves(), *ix.leaves())))
    here = aten.compute(b.value(source, index), d)
    over = [leaf for i in (Ix(inner), *bound) for leaf in i.leaves()]
    arg = aten.compute(b.value(source, (index[0], Ix((*outer, *inner)), *bound)), d)
    count = extents.times([channels.extent, *shape[2:]])
    size: Expr = Num(float(count), d) if isinstance(count, int) else SymNum(count, d)
    total = _over("sum", arg, over, d, node)
    mean = Op("div", (total, size), d, node.line)
    centred = Op("sub", (arg, mean), d, node.line)
    squares = _over("sum", Op("mul", (centred, centred), d, node.line), over, d, node)
    var = Op("div", (squares, size), d, node.line)
    scale = Op("rsqrt", (Op("add", (var, b.value(_arg(node, 4, "eps", 1e-5))), d),), d, node.line)
    x = Op("mul", (Op("sub", (here, mean), d), scale), d, node.line)
    return _affine(b, node, x, _arg(node, 2, "weight"), _arg(node, 3, "bias"), (ix,))


def _over(kind: str, arg: Expr, over: list[Any], dtype: str, node: Node) -> Expr:
    from kernellab.agents.designer.expr import Red

    return Red(kind, arg, tuple(over), dtype, node.line) if over else arg


def _split(b: Builder, node: Node, ix: Ix, groups: Extent, channels: Extent) -> tuple[Any, Any]:
    queue = list(ix.leaves())
    outer = b._take(node, queue, groups)
    inner = b._take(node, queue, channels)
    return tuple(outer), tuple(inner)


def _instance_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    if node.args[3] is not None and not node.args[5]:
        return _batch_norm(b, node, index, item)
    x = _normalise(b, node, index, list(range(2, len(index))), node.args[7])
    return _affine(b, node, x, node.args[1], node.args[2], (index[1],))


def _batch_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Evaluation mode: running statistics; everything is pointwise."""
    d = aten.wide(node.dtype)
    channel = (index[1],)
    legit = "no_training" in node.op
    eps = node.args[6] if legit else node.args[7]
    if not legit and node.args[5]:
        raise b.refuse(node, "batch normalisation in training mode updates its buffers")
    x = aten.compute(b.value(node.args[0], index), d)
    mean, var = b.value(node.args[3], channel), b.value(node.args[4], channel)
    scale = Op("rsqrt", (Op("add", (var, b.value(eps)), d),), d, node.line)
    x = Op("mul", (Op("sub", (x, mean), d), scale), d, node.line)
    return _affine(b, node, x, node.args[1], node.args[2], channel)


# -- scans


def _scan(kind: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        if item:
            raise b.refuse(node, "the positions of a running maximum")
        if not index:
            return b.value(node.args[0], index)
        dim = node.args[1] % len(index)
        ix = index[dim]
        if node.shape[dim] == 1:
            return b.value(node.args[0], index)
        if len(ix.leaves()) != 1:
            raise b.refuse(node, "a scan along a dimension that is reshaped or indexed afterwards")
        whole = ix.plain or (ix.sign == -1 and ix.offset == extents.add(node.shape[dim], -1))
        dtype = _accumulate(node.dtype)
        if ix.sign == 1 and _starts_late(ix, node.shape[dim]):
            return _late_scan(b, node, index, dim, kind, dtype)
        if not whole or not extents.same(ix.extent, node.shape[dim]):
            raise b.refuse(node, "a scan of which only a part is used")
        arg = aten.compute(b.value(node.args[0], index), dtype)
        return Scan(kind, arg, ix.leaves()[0], dtype, ix.sign == -1, node.line)

    return handle


#: what leaves a running sum, product, max or min as it is
_NEUTRAL = {"cumsum": 0.0, "cumprod": 1.0, "cummax": float("-inf"), "cummin": float("inf")}


def _starts_late(ix: Ix, extent: Extent) -> bool:
    """Does the index begin before the scanned elements and end with them or sooner?"""
    if not isinstance(ix.offset, int) or ix.offset >= 0:
        return False
    return extents.same(ix.extent, extents.add(extent, -ix.offset)) or extents.same(ix.extent, extent)


def _late_scan(b: Builder, node: Node, index: Index, dim: int, kind: str, dtype: str) -> Expr:
    """An exclusive scan: the elements come later along the axis, what lies before them changes nothing."""
    ix = index[dim]
    if not aten.is_float(dtype) and kind in ("cummax", "cummin"):
        raise b.refuse(node, "an exclusive running maximum of integers")
    inside = Op("ge", (Iota(ix), Num(0, "int64")), "bool")
    arg = aten.compute(b.value(node.args[0], index), dtype)
    neutral = Num(_NEUTRAL[kind] if aten.is_float(dtype) else int(_NEUTRAL[kind]), dtype)
    return Scan(kind, Op("where", (inside, arg, neutral), dtype), ix.leaves()[0], dtype, False, node.line)


# -- gathers


def _gather(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """One element of each row, picked by comparing positions: exact, and the row is read anyway."""
    source, dim, picks = node.args[0], node.args[1], node.args[2]
    shape = b.shape(source)
    dim %= len(shape)
    if b.shape(picks)[dim] != 1:
        raise b.refuse(node, "a gather of several elements per row")
    d = aten.wide(node.dtype)
    pick = b.value(picks, index)
    bound = b.bound(shape, [dim], (*index[:dim], Ix(), *index[dim + 1 :]))
    value = aten.compute(b.value(source, bound), d)
    chosen = Op("eq", (Iota(bound[dim]), aten.compute(pick, "int64")), "bool")
    arg = Op("where", (chosen, value, Num(0, d)), d, node.line)
    return aten.settle(b.reduce("sum", arg, bound, [dim], d if aten.is_float(d) else "int64", node.line), node.dtype)


# -- matrix products


def _matmul(b: Builder, node: Node, index: Index, left: Ref, right: Ref) -> Expr:
    a_shape = b.shape(left)
    k = a_shape[-1]
    taken = frozenset(leaf for ix in index for leaf in ix.leaves())
    over = Ix() if k == 1 else Ix((b._pick(k, set(taken), whole=True),))
    batch, rows, cols = index[:-2], index[-2], index[-1]
    a = b.value(left, (*batch, rows, over))
    c = b.value(right, (*batch, over, cols))
    a, c = (_rounded(value, b.dtype(ref)) for value, ref in ((a, left), (c, right)))
    if not over.axes:
        return Op("mul", (a, c), aten.wide(node.dtype), node.line)
    return b.dot(a, c, over.axes[0], rows, cols, aten.wide(node.dtype), node.line)


def _rounded(value: Expr, dtype: str) -> Expr:
    """A factor in the dtype that its tensor has: narrow ones are multiplied as they are."""
    narrow = dtype in ("bfloat16", "float16") and aten.is_float(value.dtype)
    return aten.cast(value, dtype) if narrow else value


def _mm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    return _matmul(b, node, index, node.args[0], node.args[1])


def _addmm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = aten.wide(node.dtype)
    product = _matmul(b, node, index, node.args[1], node.args[2])
    bias = b.operand(node.args[0], index, node.shape)
    beta, alpha = node.keyword("beta", 1), node.keyword("alpha", 1)
    if alpha != 1:
        product = Op("mul", (product, b.value(alpha)), d, node.line)
    if beta != 1:
        bias = Op("mul", (bias, b.value(beta)), d, node.line)
    return Op("add", (product, bias), d, node.line)


def _mv(b: Builder, node: Node, index: Index, item: int) -> Expr:
    k = b.shape(node.args[0])[-1]
    over = Ix((b._pick(k, {leaf for ix in index for leaf in ix.leaves()}),)) if k != 1 else Ix()
    d = aten.wide(node.dtype)
    a = b.value(node.args[0], (*index, over))
    v = b.value(node.args[1], (over,))
    return _over("sum", Op("mul", (a, v), d, node.line), list(over.leaves()), d, node)


# -- attention


def _attention(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """softmax(q k^T scale + mask) v, as its two products and the softmax between them; 0 where a mask hides all."""
    q, k, v = node.args[:3]
    mask, causal = _arg(node, 3, "attn_mask"), bool(_arg(node, 5, "is_causal", False))
    scale = _arg(node, 6, "scale")
    batch, row, col = index[:-2], index[-2], index[-1]
    length, width = b.shape(k)[-2], b.shape(q)[-1]
    if _arg(node, 4, "dropout_p", 0.0):
        raise b.refuse(node, "attention with dropout")
    if length == 1 or width == 1 or (scale is None and not isinstance(width, int)):
        raise b.refuse(node, "attention over one element, or of heads whose width is not fixed")
    d = aten.wide(node.dtype)
    shared = _shared_heads(b, node, batch) if _arg(node, 7, "enable_gqa", False) else batch
    taken = {leaf for ix in index for leaf in ix.leaves()}
    keys = Ix((b._pick(length, taken),))
    over = Ix((b._pick(width, taken | set(keys.leaves())),))
    lead = node.shape[:-2]
    heads = (*lead[:-1], b.shape(k)[-3]) if shared is not batch else lead
    queries = b.operand(q, (*batch, row, over), (*lead, node.shape[-2], width))
    product = b.dot(
        queries, b.operand(k, (*shared, keys, over), (*heads, length, width)), over.axes[0], row, keys, d, node.line
    )
    factor = float(width) ** -0.5 if scale is None else scale
    scores: Expr = Op("mul", (product, b.value(factor)), d, node.line)
    lowest = Num(float("-inf"), d)
    if isinstance(mask, Ref):
        given = b.operand(mask, (*batch, row, keys), (*node.shape[:-1], length))
        kept = given.dtype == "bool"
        scores = Op("where", (given, scores, lowest), d) if kept else Op("add", (scores, given), d, node.line)
    if causal:
        seen = Op("ge", (b.position(row), b.position(keys)), "bool")
        scores = Op("where", (seen, scores, lowest), d, node.line)
    top = _over("max", scores, list(keys.leaves()), d, node)
    exps = Op("exp", (Op("sub", (scores, top), d),), d, node.line)
    shares: Expr = Op("div", (exps, _over("sum", exps, list(keys.leaves()), d, node)), d, node.line)
    if isinstance(mask, Ref):
        shares = Op("where", (Op("eq", (top, lowest), "bool"), Num(0.0, d), shares), d, node.line)
    values = b.operand(v, (*shared, keys, col), (*heads, length, node.shape[-1]))
    shares = _rounded(shares, node.dtype)
    return b.dot(shares, values, keys.axes[0], row, col, d, node.line)


def _shared_heads(b: Builder, node: Node, batch: Index) -> Index:
    """The index of the keys' heads: neighbouring heads of the queries share one."""
    heads, own = node.shape[-3], b.shape(node.args[1])[-3]
    group = extents.product(heads).over(extents.product(own))
    if group is None or not batch[-1].plain:
        raise b.refuse(node, f"{heads} heads that share {own}, or a slice of them")
    if extents.same(heads, own):
        return batch
    outer, _ = _split(b, node, batch[-1], own, group.extent)
    return (*batch[:-1], Ix(outer))


FAMILIES: dict[str, Handler] = {
    "sum": _simple("sum"), "prod": _simple("prod"), "amax": _simple("max"), "amin": _simple("min"),
    "max": _simple("max"), "min": _simple("min"), "any": _simple("any"), "all": _simple("all"),
    "argmax": _simple("argmax"), "argmin": _simple("argmin"), "mean": _mean, "var": _var(False), "std": _var(True),
    "var_mean": _var(False, both=True), "linalg_vector_norm": _vector_norm,
    "softmax": _softmax(False), "_softmax": _softmax(False), "log_softmax": _softmax(True),
    "_log_softmax": _softmax(True), "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm,
    "instance_norm": _instance_norm, "_native_batch_norm_legit_no_training": _batch_norm, "batch_norm": _batch_norm,
    "cumsum": _scan("cumsum"), "cumprod": _scan("cumprod"), "cummax": _scan("cummax"), "cummin": _scan("cummin"),
    "gather": _gather, "mm": _mm, "bmm": _mm, "addmm": _addmm, "baddbmm": _addmm, "mv": _mv, "dot": _mv,
    "scaled_dot_product_attention": _attention,
}  # fmt: skip
