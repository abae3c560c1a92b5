"""Matrix products, and attention as two products with a softmax between them.

A program reads both factors once for each tile of its product. Elements at computed positions, which a roll or a
reshape across axes causes, prevent the use of tensor cores. Rows in short pieces leave tiles mostly empty. A sum that
others read too is recomputed by every program. Such a factor is stored as a matrix first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.reductions import argument, reduced, split_axes
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import cast, is_float, settle, wide
from kernellab.designer.ir.axes import Axis, Free, Index, Ix
from kernellab.designer.ir.dtypes import FLOAT8, HALVES
from kernellab.designer.ir.expr import Dot, Expr, Leaf, Num, Op, SymNum, run, walk
from kernellab.operations.aten import Role, named

#: minimum rows or columns of the other factor, and minimum summed elements, for which storing a factor pays
_REUSED, _LEAST = 64, 16
#: the same on a CPU, and the minimum number of operations per element for which storing a factor pays: a tile of 256
#: columns recomputes it, at a sixteenth of the product's time for each operation
_REUSED_CPU, _COSTLY = 16, 8
#: minimum columns for which a GPU stores a factor of costly operations; the copy engine can then load it directly. On
#: an H100 a GELU before 4096 columns takes 0.214 ms (0.517 on the fly), a softmax before 512 columns 0.167 (0.161 on
#: the fly)
_REUSED_GPU = 1024
#: minimum rows of the other factor for which a GPU unpacks a factor in a launch before the product, which then loads it
#: with the copy engine. On an H200, int8 in groups of 64, 4096 x 4096: 512 rows take 0.047 ms, 0.089 when unpacked in
#: the product (128 rows: 0.057)
_UNPACKED_ROWS = 128
#: minimum queries of a head for which attention's computed factors are stored
_QUERIES = 128
#: costs of operations in multiplications, if more than one
_COSTS = {"div": 4, "exp": 8, "exp2": 8, "log": 8, "sqrt": 4, "rsqrt": 4, "tanh": 8, "erf": 8, "pow": 16, "sigmoid": 8}
#: on a GPU also activations, which are one operation each
_COSTS_GPU = {**_COSTS, "silu": 8, "gelu": 12}
#: one-byte dtypes that tensor cores multiply
_BYTES = FLOAT8 | {"int8"}
#: contiguous rows, and summed elements, that a tile reads as one slice
_ROWS, _SUMMED = 64, 32
#: views that preserve the order of elements
_RESHAPES = named(Role.RESHAPE, Role.SAME) - {"expand"}
_TURNS = named(Role.TURN)


def _matmul(b: Builder, node: Node, index: Index, left: Ref, right: Ref) -> Expr:
    a_shape = b.shape(left)
    k = a_shape[-1]
    used = frozenset(leaf for ix in index for leaf in ix.within())
    over = Ix() if k == 1 else Ix((b.pick_axis(k, set(used), whole=True),))
    batch, rows, cols = index[:-2], index[-2], index[-1]
    if b.options.narrow_products and over.axes and any(i.dtype in _BYTES for i in b.inputs.values()):
        # try this before a factor is stored in parts: the scales of its blocks would become part of the stored values
        product = _narrow(
            b, node, *(b.value(left, (*batch, rows, over)), b.value(right, (*batch, over, cols))), over, (rows, cols)
        )
        if product is not None:
            return product
    _factors_apart(b, left, right)
    a = b.value(left, (*batch, rows, over))
    c = b.value(right, (*batch, over, cols))
    a, c = (rounded(value, b.dtype(ref)) for value, ref in ((a, left), (c, right)))
    dtype = wide(node.dtype)
    if not is_float(dtype):
        product = _narrow(b, node, a, c, over, (rows, cols)) if b.options.narrow_products and over.axes else None
        if product is not None:
            return product
        # tensor cores do not accumulate in 64 bits: use a sum of products
        pair = Op("mul", (cast(a, "int64"), cast(c, "int64")), "int64", node.line)
        return settle(reduced("sum", pair, over.leaves(), "int64", node), node.dtype)
    if not over.axes:
        return Op("mul", (a, c), dtype, node.line)
    product = _narrow(b, node, a, c, over, (rows, cols)) if b.options.narrow_products and dtype == "float32" else None
    return product or b.dot(a, c, over.axes[0], rows, cols, dtype, node.line)


def _narrow(b: Builder, node: Node, a: Expr, c: Expr, over: Ix, around: tuple[Ix, Ix]) -> Expr | None:
    """Return the scaled product of the narrow numbers that both factors are casts of; None if they are not casts."""
    factors = narrow_factors(a, c, over.axes[0])
    if factors is None:
        return None
    is_int8 = factors.left.dtype == "int8"
    if is_int8 and not (isinstance(extent := over.extent, int) and extent < _MOST_INT8):
        return None
    product = b.dot(factors.left, factors.right, over.axes[0], *around, "int32" if is_int8 else "float32", node.line)
    if factors.steps or is_int8:
        if not isinstance(product, Dot):
            return None
        product = replace(product, steps=factors.steps)
    if not is_float(node.dtype):
        # integers have no scales
        return settle(cast(product, "int64"), node.dtype)
    return scaled(cast(product, "float32") if is_int8 else product, factors.scales, node.line)


def _factors_apart(b: Builder, left: Ref, right: Ref) -> None:
    """Mark those factors of a product for storage that its tiles would not read efficiently."""
    if not b.stores_factors:
        return
    rows, summed, _, cols = (b.expected(n) or 0 for n in (*b.shape(left)[-2:], *b.shape(right)[-2:]))
    if summed < _LEAST or not (rows and cols):
        return
    for ref, others, leads in ((left, cols, True), (right, rows, False)):
        if others >= (_REUSED if b.options.sizes is None else _REUSED_CPU) and ref.name in b.nodes:
            # on a GPU other dtypes are split on the way to tensor cores anyway
            narrow = b.options.sizes is None and b.dtype(ref) in HALVES
            reused = b.options.sizes is not None or (narrow and others >= _REUSED_GPU)
            _apart(b, ref, leads, reused, unpack=narrow and others >= _UNPACKED_ROWS)


def _apart(b: Builder, ref: Ref, rows: bool, reused: bool, unpack: bool) -> None:
    """Store the operand ``ref`` of a product before the product if the product would compute it more than once.

    ``rows``: its other axis is the rows. ``reused``: many blocks read it. ``unpack``: unpacking its bits once pays.
    """
    source, via = _source_of(b, ref)
    if b.is_stored(source) or source.item is not None:
        return
    index = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in b.shape(ref))
    value = b.value(ref, index)
    over, own_ix = (index[-1], index[-2]) if rows else (index[-2], index[-1])
    costly = _cost(value, _COSTS_GPU if b.options.sizes is None else _COSTS) >= _COSTLY
    if (
        (_joined(value, own_ix, over) and b.readers(source.name) > 1)
        or (unpack and _is_unpacked(value))
        or (reused and costly)
        or _scattered(b, value, own_ix, _ROWS)
        or _scattered(b, value, over, _SUMMED)
    ):
        b.stop(source, via)


def _source_of(b: Builder, ref: Ref) -> tuple[Ref, list[Ref]]:
    """Return the source of a matrix that is transposed and then reshaped with the same rows, and all refs on the way.
    The source is stored in its own order: a copy of the transposed matrix would read along the other dimension."""
    node, via = b.nodes[ref.name], [ref]
    if node.aten in _TURNS and len(node.shape) == 2 and not b.is_stored(ref):
        via += [r for r in node.refs() if r.name in b.nodes and r.item is None]
    first = source = via[-1]
    while b.nodes[source.name].aten in _RESHAPES and not b.is_stored(source):
        below = b.nodes[source.name].args[0]
        if below.name not in b.nodes or below.item is not None or b.shape(below)[-1:] != b.shape(first)[-1:]:
            break
        source = below
        via.append(source)
    return source, via


def _made_once(b: Builder, ref: Ref, queries: int) -> None:
    """Mark computed queries, keys or values for storage: each block of queries would recompute the keys, and the copy
    engine loads stored tensors. On an H200 normed queries and keys computed in place took 26 ms instead of 0.3."""
    if (
        not b.options.narrow_products
        or queries < _QUERIES
        or b.is_stored(ref)
        or ref.name not in b.nodes
        or ref.item is not None
    ):
        return
    value = b.value(ref, tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in b.shape(ref)))
    if not isinstance(value, (Leaf, Num)) and b.dtype(ref) in HALVES:
        b.stop(ref)


def _is_unpacked(value: Expr) -> bool:
    """Return whether the value is computed from one-byte numbers or parts of them."""
    leaves = [e for e in walk(value, inside=False) if isinstance(e, Leaf)]
    return not isinstance(value, Leaf) and any(e.dtype in _BYTES or e.dtype == "uint8" for e in leaves)


def _cost(value: Expr, costs: Mapping[str, int]) -> int:
    """Return the operations per element, in multiplications."""
    return sum(costs.get(e.op, 1) for e in walk(value, inside=False) if isinstance(e, Op))


def _scattered(b: Builder, value: Expr, ix: Ix, least: int) -> bool:
    """Return whether ``value`` reads along ``ix`` at computed positions, or in pieces of fewer than ``least``
    elements."""
    leaves, free = ix.leaves(), Free()
    for e in walk(value, inside=False):
        if isinstance(e, Leaf) and any(free(at).intersection(leaves) for at in e.operands):
            return True
    return len(leaves) > 1 and run(value, leaves) < min(least, b.expected(extents.counted(ix.extent)) or least)


def _joined(value: Expr, own: Ix, over: Ix) -> bool:
    """Return whether ``value`` combines several tensors that vary along both of its dimensions."""
    free, sides = Free(), (own.within(), over.within())
    loads = [free(e) for e in walk(value, inside=False) if isinstance(e, Leaf)]
    return sum(all(axes & side for side in sides) for axes in loads) > 1


def rounded(value: Expr, dtype: str) -> Expr:
    """Cast a factor to the dtype of its tensor: narrow factors are multiplied without widening."""
    narrow = dtype in HALVES and is_float(value.dtype)
    return cast(value, dtype) if narrow else value


def _mm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    return _matmul(b, node, index, node.args[0], node.args[1])


def _addmm(b: Builder, node: Node, index: Index, item: int) -> Expr:
    d = wide(node.dtype)
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
    over = Ix((b.pick_axis(k, {leaf for ix in index for leaf in ix.within()}),)) if k != 1 else Ix()
    d = wide(node.dtype)
    a = b.value(node.args[0], (*index, over))
    v = b.value(node.args[1], (over,))
    return reduced("sum", Op("mul", (a, v), d, node.line), list(over.leaves()), d, node)


def _attention(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Return softmax(q k^T scale + mask) v as two products with a softmax between them; 0 if a mask hides all keys."""
    q, k, v = node.args[:3]
    mask, causal = argument(node, 3, "attn_mask"), bool(argument(node, 5, "is_causal", False))
    scale = argument(node, 6, "scale")
    batch, row, col = index[:-2], index[-2], index[-1]
    length, width = b.shape(k)[-2], b.shape(q)[-1]
    if argument(node, 4, "dropout_p", 0.0):
        raise b.refuse(node, "attention with dropout")
    for factor in (q, k, v):
        _made_once(b, factor, b.expected(b.shape(q)[-2]) or 0)
    d = wide(node.dtype)
    shared = _shared_heads(b, node, batch) if argument(node, 7, "enable_gqa", False) else batch
    used = {leaf for ix in index for leaf in ix.within()}
    keys = Ix() if length == 1 else Ix((b.pick_axis(length, used),))
    over = Ix() if width == 1 else Ix((b.pick_axis(width, used | set(keys.leaves())),))
    lead = node.shape[:-2]
    heads = (*lead[:-1], b.shape(k)[-3]) if shared is not batch else lead
    queries = b.operand(q, (*batch, row, over), (*lead, node.shape[-2], width))
    product = _summed(b, node, queries, b.operand(k, (*shared, keys, over), (*heads, length, width)), over, (row, keys))
    scores: Expr = Op("mul", (product, _scale(b, width, d) if scale is None else b.value(scale)), d, node.line)
    lowest = Num(float("-inf"), d)
    if isinstance(mask, Ref):
        mask_value = b.operand(mask, (*batch, row, keys), (*node.shape[:-1], length))
        is_bool = mask_value.dtype == "bool"
        scores = (
            Op("where", (mask_value, scores, lowest), d) if is_bool else Op("add", (scores, mask_value), d, node.line)
        )
    if causal:
        visible = Op("ge", (b.position(row), b.position(keys)), "bool")
        scores = Op("where", (visible, scores, lowest), d, node.line)
    top = reduced("max", scores, list(keys.leaves()), d, node)
    exps = Op("exp", (Op("sub", (scores, top), d),), d, node.line)
    shares: Expr = Op("div", (exps, reduced("sum", exps, list(keys.leaves()), d, node)), d, node.line)
    if isinstance(mask, Ref):
        shares = Op("where", (Op("eq", (top, lowest), "bool"), Num(0.0, d), shares), d, node.line)
    values = b.operand(v, (*shared, keys, col), (*heads, length, node.shape[-1]))
    shares = rounded(shares, node.dtype)
    return _summed(b, node, shares, values, keys, (row, col))


def _summed(b: Builder, node: Node, left: Expr, right: Expr, over: Ix, around: tuple[Ix, Ix]) -> Expr:
    """Return the product of two factors, summed over the axes of ``over``, if any."""
    d = wide(node.dtype)
    if not over.axes:
        return Op("mul", (left, right), d, node.line)
    return b.dot(left, right, over.axes[0], *around, d, node.line)


def _scale(b: Builder, width: Extent, dtype: str) -> Expr:
    """Return one over the root of the heads' width, which may be known only at run time."""
    if isinstance(width, int):
        return b.value(width**-0.5)
    return Op("rsqrt", (cast(SymNum(width, "int64"), dtype),), dtype)


def _shared_heads(b: Builder, node: Node, batch: Index) -> Index:
    """Return the index of the keys' heads: neighbouring heads of the queries share one."""
    heads, key_heads = node.shape[-3], b.shape(node.args[1])[-3]
    group = extents.product(heads).over(extents.product(key_heads))
    if group is None or not batch[-1].plain:
        raise b.refuse(node, f"{heads} heads that share {key_heads}, or a slice of them")
    if extents.same(heads, key_heads):
        return batch
    outer, _ = split_axes(b, node, batch[-1], key_heads, group.extent)
    return (*batch[:-1], Ix(outer))


PRODUCTS: dict[str, Handler] = {
    "mm": _mm,
    "_int_mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "mv": _mv,
    "dot": _mv,
    "scaled_dot_product_attention": _attention,
}


# -- narrow ------------------------------------------------------------------------------------------------------------


#: dtypes whose values are all representable in the wider ones
_WIDER = {
    **dict.fromkeys(FLOAT8, frozenset(["float16", "bfloat16", "float32"])),
    "int8": frozenset(["float16", "bfloat16", "float32", "int16", "int32", "int64"]),
    "float16": frozenset(["float32"]),
    "bfloat16": frozenset(["float32"]),
}

#: factors that a sum is multiplied ("mul") or divided ("div") by
Scales = list[tuple[str, Expr]]
#: block lengths along the sum that may share one scale
_BLOCKS = (32, 64, 128)
#: number of summed elements from which products of two int8 may overflow 32 bits
_MOST_INT8 = 1 << 17


@dataclass
class Narrow:
    """Two factors that tensor cores accept, the scales of their sums, and the scales of each block along the sum."""

    left: Expr
    right: Expr
    scales: Scales
    steps: tuple[Expr, ...]


def narrow_factors(a: Expr, b: Expr, over: Axis) -> Narrow | None:
    """Return both factors as narrow numbers that tensor cores multiply; None if they are not."""
    steps: list[Expr] = []
    (left, first), (right, second) = (_bare(e, over.leaves(), steps) for e in (a, b))
    eight = {left.dtype, right.dtype} <= FLOAT8
    alike = eight or left.dtype == right.dtype in _WIDER
    plain = isinstance(left, Leaf) and isinstance(right, Leaf)
    already = left is a and right is b and left.dtype != "int8"
    if not (alike and plain) or already or (steps and not eight):
        return None
    return Narrow(left, right, [*first, *second], tuple(steps))


def _bare(value: Expr, leaves: tuple[Axis, ...], steps: list[Expr]) -> tuple[Expr, Scales]:
    """Return a factor without its widening casts and scales: scales of the whole sum are returned, scales of blocks
    along the last of the summed ``leaves`` are appended to ``steps``."""
    scales: Scales = []
    free = Free()
    while isinstance(value, Op):
        if value.op == "cast" and value.dtype in _WIDER.get(value.args[0].dtype, ()):
            value = value.args[0]
        elif value.op in ("mul", "div") and value.dtype == "float32":
            summed = [free(arg) & frozenset(leaves) for arg in value.args]
            block = _block_scale(value.op, summed, leaves)
            scale = _whole_scale(value.op, summed)
            if block is not None:
                steps.append(value.args[block])
                value = value.args[1 - block]
            elif scale is not None:
                scales.append((value.op, value.args[scale]))
                value = value.args[1 - scale]
            else:
                break
        else:
            break
    return value, scales


def _block_scale(op: str, summed: list[frozenset[Axis]], leaves: tuple[Axis, ...]) -> int | None:
    """Return the position of the operand of ``op`` that is constant within each block of the sum; None if neither is.

    ``summed``: the summed axes of each operand.
    """
    if op != "mul" or len(leaves) < 2 or leaves[-1].extent not in _BLOCKS or not all(summed):
        return None
    return next((n for n, axes in enumerate(summed) if leaves[-1] not in axes), None)


def _whole_scale(op: str, summed: list[frozenset[Axis]]) -> int | None:
    """Return the position of the operand of ``op`` that is the same for all terms of the sum while the other is not, or
    None."""
    left, right = map(bool, summed)
    if left and not right:
        return 1
    return 0 if right and not left and op == "mul" else None


def scaled(product: Expr, scales: Scales, line: int) -> Expr:
    """Return ``product`` with its factors' scales applied."""
    for op, scale in scales:
        product = Op(op, (product, scale), "float32", line)
    return product
