"""The softmax family and normalisations as expressions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.reductions import Reduction, argument, moments, reduced, split_axes
from kernellab.designer.frontend.views import is_part
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import compute, wide
from kernellab.designer.ir.axes import Index, Ix
from kernellab.designer.ir.expr import Expr, Num, Op, SymNum


def _softmax(log: bool) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        shape = b.shape(node.args[0])
        if not shape:
            return Num(0.0 if log else 1.0, node.dtype)
        dim = node.args[1] % len(shape)
        d = wide(node.dtype)
        source, index, others = _apart(b, node.args[0], dim, index)
        bound = b.bound(b.shape(source), [dim], index)
        inner = compute(b.value(source, bound), d)
        here = compute(b.value(source, index), d)
        top = b.reduce("max", inner, bound, [dim], d, node.line)
        more = [compute(b.value(other, (*index[:dim], Ix(), *index[dim + 1 :])), d) for other in others]
        for other in more:
            top = Op("max", (top, other), d, node.line)
        total = b.reduce("sum", Op("exp", (Op("sub", (inner, top), d),), d, node.line), bound, [dim], d, node.line)
        for other in more:
            total = Op("add", (total, Op("exp", (Op("sub", (other, top), d),), d, node.line)), d, node.line)
        shifted = Op("sub", (here, top), d, node.line)
        if log:
            return Op("sub", (shifted, Op("log", (total,), d)), d, node.line)
        return Op("div", (Op("exp", (shifted,), d), total), d, node.line)

    return handle


def _apart(b: Builder, source: Ref, dim: int, index: Index) -> tuple[Ref, Index, list[Ref]]:
    """Split rows that are concatenations: return the part that is read, its index, and the others, of one element each,
    such as attention's scores and a sink whose share is not read. Otherwise return the rows unchanged."""
    whole = _less_largest(b, source, dim)
    node = None if b.is_stored(whole) else b.nodes.get(whole.name)
    if node is None or node.aten != "cat" or (argument(node, 1, "dim", 0) - dim) % len(index):
        return source, index, []
    begin: Extent = 0
    for part in node.args[0]:
        size = b.shape(part)[dim]
        other_parts = [other for other in node.args[0] if other is not part]
        if is_part(index[dim], begin, size) and all(b.shape(other)[dim] == 1 for other in other_parts):
            return part, (*index[:dim], replace(index[dim], offset=0), *index[dim + 1 :]), other_parts
        begin = extents.add(begin, size)
    return source, index, []


def _less_largest(b: Builder, source: Ref, dim: int) -> Ref:
    """Return the rows from which ``source`` subtracts their largest elements, which does not change the shares; else
    ``source``."""
    node = b.nodes.get(source.name)
    if b.is_stored(source) or node is None or node.aten != "sub" or node.keyword("alpha", 1) != 1:
        return source
    rows, largest = node.args
    top = b.nodes.get(largest.name) if isinstance(largest, Ref) and isinstance(rows, Ref) else None
    if top is None or top.aten not in ("max", "amax") or largest.item or top.args[0] != rows:
        return source
    keeps_dim = b.shape(largest) == (*b.shape(rows)[:dim], 1, *b.shape(rows)[dim + 1 :])
    return rows if keeps_dim and b.shape(rows)[dim] != 1 else source


def _normalise(b: Builder, node: Node, index: Index, dims: list[int], eps: Any, centre: bool = True) -> Expr:
    shape = b.shape(node.args[0])
    d = wide(node.dtype)
    r = Reduction(b, node, b.bound(shape, dims, index), dims)
    here = compute(b.value(node.args[0], index), d)
    if centre:
        mean, var = moments(r, d, 0)
        here = Op("sub", (here, mean), d, node.line)
    else:
        x = compute(r.arg, d)
        var = Op("div", (r.reduce("sum", Op("mul", (x, x), d, node.line), d), r.count), d, node.line)
    scale = Op("rsqrt", (Op("add", (var, b.value(eps)), d),), d, node.line)
    return Op("mul", (here, scale), d, node.line)


def _affine(b: Builder, node: Node, x: Expr, weight: Any, bias: Any, index: Index) -> Expr:
    d = wide(node.dtype)
    if isinstance(weight, Ref):
        x = Op("mul", (x, b.value(weight, index)), d, node.line)
    if isinstance(bias, Ref):
        x = Op("add", (x, b.value(bias, index)), d, node.line)
    return x


def _layer_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = len(node.args[1])
    dims = list(range(len(index) - count, len(index)))
    x = _normalise(b, node, index, dims, argument(node, 4, "eps", 1e-5))
    return _affine(b, node, x, argument(node, 2, "weight"), argument(node, 3, "bias"), index[-count:])


def _rms_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = len(node.args[1])
    eps = argument(node, 3, "eps")
    if eps is None:
        eps = {"float32": 1.1920928955078125e-07, "float64": 2.220446049250313e-16}.get(
            node.dtype, 1.1920928955078125e-07
        )
    dims = list(range(len(index) - count, len(index)))
    x = _normalise(b, node, index, dims, eps, centre=False)
    return _affine(b, node, x, argument(node, 2, "weight"), None, index[-count:])


def _group_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Split the channel axis into groups and channels of a group; reduce over the latter and space."""
    source, groups = node.args[0], node.args[1]
    shape = b.shape(source)
    channels = extents.product(shape[1]).over(extents.product(groups))
    if channels is None:
        raise b.refuse(node, f"{shape[1]} channels in {groups} groups")
    d = wide(node.dtype)
    ix = index[1]
    if not ix.plain:
        raise b.refuse(node, "a slice of the normalised channels")
    outer, inner = split_axes(b, node, ix, groups, channels.extent)
    bound = tuple(index[d] for d in range(2, len(shape)))
    fits = all(i.plain and (i.axes or e == 1) for i, e in zip(bound, shape[2:], strict=True))
    if not fits:
        bound = b.axes_for(shape[2:], index[0].within() | ix.within())
    here = compute(b.value(source, index), d)
    over = [leaf for i in (Ix(inner), *bound) for leaf in i.leaves()]
    arg = compute(b.value(source, (index[0], Ix((*outer, *inner)), *bound)), d)
    count = extents.times([channels.extent, *shape[2:]])
    size: Expr = Num(float(count), d) if isinstance(count, int) else SymNum(count, d)
    total = reduced("sum", arg, over, d, node)
    mean = Op("div", (total, size), d, node.line)
    centred = Op("sub", (arg, mean), d, node.line)
    squares = reduced("sum", Op("mul", (centred, centred), d, node.line), over, d, node)
    var = Op("div", (squares, size), d, node.line)
    scale = Op("rsqrt", (Op("add", (var, b.value(argument(node, 4, "eps", 1e-5))), d),), d, node.line)
    x = Op("mul", (Op("sub", (here, mean), d), scale), d, node.line)
    return _affine(b, node, x, argument(node, 2, "weight"), argument(node, 3, "bias"), (ix,))


def _instance_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    if node.args[3] is not None and not node.args[5]:
        return _batch_norm(b, node, index, item)
    x = _normalise(b, node, index, list(range(2, len(index))), node.args[7])
    return _affine(b, node, x, node.args[1], node.args[2], (index[1],))


def _batch_norm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Evaluation mode: running statistics, all pointwise."""
    d = wide(node.dtype)
    channel = (index[1],)
    legit = "no_training" in node.op
    eps = node.args[6] if legit else node.args[7]
    if not legit and node.args[5]:
        raise b.refuse(node, "batch normalisation in training mode updates its buffers")
    x = compute(b.value(node.args[0], index), d)
    mean, var = b.value(node.args[3], channel), b.value(node.args[4], channel)
    scale = Op("rsqrt", (Op("add", (var, b.value(eps)), d),), d, node.line)
    x = Op("mul", (Op("sub", (x, mean), d), scale), d, node.line)
    return _affine(b, node, x, node.args[1], node.args[2], channel)


def _batch_norm_training(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Training mode: statistics of the batch. The updated running statistics are not supported as outputs."""
    if item != 0:
        raise b.refuse(node, "the statistics that batch normalisation writes")
    training, eps = node.args[5], node.args[7]
    if not training:
        raise b.refuse(node, "batch normalisation of this form in evaluation mode")
    x = _normalise(b, node, index, [0, *range(2, len(index))], eps)
    return _affine(b, node, x, node.args[1], node.args[2], (index[1],))


NORMALISATIONS: dict[str, Handler] = {
    "softmax": _softmax(False),
    "_softmax": _softmax(False),
    "log_softmax": _softmax(True),
    "_log_softmax": _softmax(True),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm_training,
}
