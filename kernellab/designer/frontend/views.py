"""ATen operations that only choose elements of their operand: views, slices, concatenation, padding."""

from __future__ import annotations

from dataclasses import replace

from kernellab.capture import Node, Ref, Sym
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.gather import chosen, passes, picked, strided
from kernellab.designer.frontend.pointwise import OPERATIONS, compute, wide
from kernellab.designer.ir import extents, places
from kernellab.designer.ir.expr import Expr, Index, Ix, Leaf, Num, Op
from kernellab.designer.ir.normal import number, row_major
from kernellab.errors import DesignError, NodeError
from kernellab.task.formula import Formula

#: parts of a concatenation that are chosen among one after another; more are halved
_CHAIN = 64


def _dim(node: Node, given: int, rank: int) -> int:
    return given % rank if rank else 0


def _view(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """A reshape: the axes regrouped; where these do not follow its shape, a copy of it, or computed places."""
    if node.op.endswith(".dtype"):
        raise b.refuse(node, "the bits of one dtype are read as another, which float64 does not have")
    shape = b.shape(node.args[0])
    try:
        inner = b.regroup(node, index, shape)
    except DesignError:
        if (found := _straightened(b, node, index)) is not None:
            return picked(b, *found)
        plain = all(ix.plain and extents.same(ix.extent, e) for ix, e in zip(index, node.shape, strict=True))
        if not plain:
            lead = len(shape) - 1
            kept = 0 <= lead < len(index) and all(map(extents.same, node.shape[:lead], shape[:lead]))
            if kept and passes(b, node.args[0]):
                # parts of the last axis, as the pairs of a rotary embedding: the place in it is a product and a sum
                last = _places(b, index[lead:], node.shape[lead:], shape[lead:])
                return picked(b, node.args[0], (*index[:lead], *last))
            return Leaf(b.stored(Ref(node.name)), index, node.dtype)
        return picked(b, node.args[0], _places(b, index, node.shape, shape))
    return b.value(node.args[0], inner)


def _straightened(b: Builder, node: Node, index: Index) -> tuple[Ref, Index] | None:
    """What the view ``node`` reads at ``index``, below further views and slices; None where a quotient is left."""
    axes, ref = places.axes_of(index), node.args[0]
    if axes is None:
        return None
    at = places.regrouped([places.position(ix) for ix in index], node.shape, b.shape(ref), axes)
    while ref.name not in b.stops and (below := b.nodes.get(ref.name)) is not None:
        if below.op == "aten.view.default":
            at = places.regrouped(at, below.shape, b.shape(below.args[0]), axes)
        elif below.aten == "slice" and (len(below.args) < 5 or below.args[4] == 1):
            dim, start = (*below.args[1:3], 0, 0)[:2]
            start = start.expr if isinstance(start, Sym) else start or 0
            if not extents.is_count(start):
                break
            at[dim % len(at)] = Formula("+", (at[dim % len(at)], start))
        else:
            break
        ref = below.args[0]
    found = places.index_at(at, axes)
    return None if found is None else (ref, found)


def _places(b: Builder, index: Index, shape: tuple[Extent, ...], source: tuple[Extent, ...]) -> Index:
    """The index into ``source`` of the element that ``index`` names in ``shape``, by arithmetic on its place."""
    flat: Expr | None = None
    for ix, extent in zip(index, shape, strict=True):
        here = b.position(ix)
        flat = here if flat is None else Op("add", (Op("mul", (flat, number(extent)), "int64"), here), "int64")
    return _at_place(Num(0, "int64") if flat is None else flat, source)


def _at_place(flat: Expr, source: tuple[Extent, ...]) -> Index:
    """The index into ``source`` of the element at the row-major place ``flat``."""
    found: list[Ix] = []
    for d, extent in enumerate(source):
        inner = extents.times(list(source[d + 1 :]))
        at = flat if inner == 1 else Op("floordiv", (flat, number(inner)), "int64")
        found.append(chosen(at if d == 0 else Op("mod", (at, number(extent)), "int64")))
    return tuple(found)


def _as_strided(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Elements by their place in memory: of an input, or of the new tensor that an operation made."""
    source, _, strides = node.args[:3]
    start = node.args[3] if len(node.args) > 3 else node.keyword("storage_offset", 0)
    viewed = source.name not in b.inputs and b.nodes[source.name].op.split(".")[1] in VIEWS
    if viewed or not all(isinstance(n, int) for n in (*strides, start or 0)):
        raise b.refuse(node, "strides that are not fixed, or of a view")
    flat: Expr = Num(start or 0, "int64")
    for ix, stride in zip(index, strides, strict=True):
        flat = Op("add", (flat, Op("mul", (b.position(ix), Num(stride, "int64")), "int64")), "int64")
    return picked(b, source, _at_place(flat, b.shape(source)))


def _permute(b: Builder, node: Node, index: Index, item: int) -> Expr:
    inner = list(index)
    for out, source in enumerate(node.args[1]):
        inner[_dim(node, source, len(index))] = index[out]
    return b.value(node.args[0], tuple(inner))


def _transpose(b: Builder, node: Node, index: Index, item: int) -> Expr:
    rank = len(index)
    first, second = (node.args[1], node.args[2]) if len(node.args) > 2 else (0, 1)
    if rank < 2:
        return b.value(node.args[0], index)
    swapped = list(index)
    i, j = first % rank, second % rank
    swapped[i], swapped[j] = swapped[j], swapped[i]
    return b.value(node.args[0], tuple(swapped))


def _expand(b: Builder, node: Node, index: Index, item: int) -> Expr:
    return b.operand(node.args[0], index, node.shape)


def _unsqueeze(b: Builder, node: Node, index: Index, item: int) -> Expr:
    at = node.args[1] % len(index)
    return b.value(node.args[0], index[:at] + index[at + 1 :])


def _squeeze(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape = b.shape(node.args[0])
    dims = node.args[1] if len(node.args) > 1 else tuple(range(len(shape)))
    dims = {d % len(shape) for d in (dims if isinstance(dims, tuple) else (dims,))} if shape else set()
    left = iter(index)
    return b.value(node.args[0], tuple(Ix() if d in dims and e == 1 else next(left) for d, e in enumerate(shape)))


def _slice(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, dim = node.args[0], (node.args[1] if len(node.args) > 1 else 0)
    start = node.args[2] if len(node.args) > 2 and node.args[2] is not None else 0
    step = node.args[4] if len(node.args) > 4 else 1
    shape = b.shape(source)
    dim %= len(shape)
    start = start.expr if isinstance(start, Sym) else start
    if isinstance(start, int) and start < 0:
        start = extents.add(shape[dim], start)
    if step != 1:
        return strided(b, source, index, dim, start, step)
    return b.value(source, _shift(b, node, index, dim, start))


def _split(b: Builder, node: Node, index: Index, item: int) -> Expr:
    dim = (node.args[2] if len(node.args) > 2 else node.keyword("dim", 0)) % len(index)
    sizes = node.args[1]
    before = sizes[:item] if isinstance(sizes, tuple) else (sizes,) * item
    start: Extent = 0
    for size in before:
        start = extents.add(start, size.expr if isinstance(size, Sym) else size)
    return b.value(node.args[0], _shift(b, node, index, dim, start))


def _unbind(b: Builder, node: Node, index: Index, item: int) -> Expr:
    dim = (node.args[1] if len(node.args) > 1 else 0) % (len(index) + 1)
    return b.value(node.args[0], (*index[:dim], Ix((), item), *index[dim:]))


def _shift(b: Builder, node: Node, index: Index, dim: int, start: Extent) -> Index:
    ix = index[dim]
    if start == 0:
        return index
    if ix.sign != 1:
        raise b.refuse(node, "a slice of a flipped dimension")
    return (*index[:dim], replace(ix, offset=extents.add(ix.offset, start)), *index[dim + 1 :])


def _select(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape = b.shape(node.args[0])
    dim, at = node.args[1] % len(shape), node.args[2]
    at = at.expr if isinstance(at, Sym) else extents.add(shape[dim], at) if at < 0 else at
    return b.value(node.args[0], (*index[:dim], Ix((), at), *index[dim:]))


def _flip(b: Builder, node: Node, index: Index, item: int) -> Expr:
    flipped = list(index)
    for d in node.args[1]:
        d %= len(index)
        ix, extent = index[d], node.shape[d]
        if extent == 1:
            continue
        if len(ix.leaves()) > 1:
            ix = chosen(row_major(ix))
        last = extents.add(extent, -1)
        flipped[d] = replace(ix, offset=extents.subtract(last, ix.offset), sign=-ix.sign)
    return b.value(node.args[0], tuple(flipped))


def _cat(b: Builder, node: Node, index: Index, item: int) -> Expr:
    dim = (node.args[1] if len(node.args) > 1 else node.keyword("dim", 0)) % len(index)
    if node.name in b.stacked and index[dim].plain and (within := _stack(b, node, index, dim)) is not None:
        return within
    parts = list(node.args[0])
    sizes = [b.shape(part)[dim] for part in parts]
    alike = all(extents.same(size, sizes[0]) for size in sizes)
    starts: list[Extent] = [0]
    for k, size in enumerate(sizes[:-1], 1):
        starts.append(extents.times([k, size]) if alike else extents.add(starts[-1], size))
    ix = index[dim]
    whole = [k for k, begin in enumerate(starts) if is_part(ix, begin, sizes[k])]
    if whole:
        own = (*index[:dim], replace(ix, offset=0), *index[dim + 1 :])
        return compute(b.value(parts[whole[0]], own), wide(node.dtype))
    if len(ix.leaves()) > 1 or ix.sign != 1:
        return (_cat_alike(b, node, index, dim) if alike else None) or _cat_at(b, node, index, dim)
    values = []
    for part, begin in reversed(list(zip(parts, starts, strict=True))):
        own = (*index[:dim], replace(ix, offset=extents.subtract(ix.offset, begin)), *index[dim + 1 :])
        if b.shape(part)[dim] == 1:
            own = (*index[:dim], Ix(), *index[dim + 1 :])
        values.append(compute(b.value(part, own), wide(node.dtype)))
    values.reverse()
    return _among(b, node, ix, values, starts)


def _among(b: Builder, node: Node, ix: Ix, values: list[Expr], starts: list[Extent]) -> Expr:
    """The value whose range, from its start to the next one's, the index lies in."""

    def among(first: int, stop: int) -> Expr:
        if stop - first == 1:
            return values[first]
        # a chain says it best; a long one is too deep for what walks it
        middle = first + 1 if stop - first <= _CHAIN else (first + stop) // 2
        rest = among(middle, stop)
        before = Op("lt", (b.position(ix), number(starts[middle])), "bool")
        return Op("where", (before, among(first, middle), rest), wide(node.dtype), node.line)

    return among(0, len(values))


def is_part(ix: Ix, begin: Extent, size: Extent) -> bool:
    """Does the index run over the part of a concatenation that begins there, and over nothing else?"""
    plain = ix.sign == 1 and ix.win is None and ix.at is None
    return plain and extents.same(ix.offset, begin) and extents.same(ix.extent, size)


def _cat_alike(b: Builder, node: Node, index: Index, dim: int) -> Expr | None:
    """A concatenation of parts of one size, read along axes of which the outer ones tell the parts apart; None where
    the axes do not divide so."""
    parts, queue = list(node.args[0]), list(index[dim].leaves())
    if not index[dim].plain:
        return None
    try:
        outer = Ix(tuple(b.take_axes(node, queue, len(parts))))
        inner = Ix(tuple(b.take_axes(node, queue, b.shape(parts[0])[dim])))
    except NodeError:
        return None
    own = (*index[:dim], inner, *index[dim + 1 :])
    values = [compute(b.value(part, own), wide(node.dtype)) for part in parts]
    return _among(b, node, outer, values, list(range(len(parts))))


def _stack(b: Builder, node: Node, index: Index, dim: int) -> Expr | None:
    """A concatenation that lies in a tensor whose first dimension tells the parts apart; None where the axes that it
    is read along do not divide so."""
    stack = b.stacked[node.name]
    places = stack.joins[node.name]
    queue = list(index[dim].leaves())
    try:
        outer = b.take_axes(node, queue, len(places))
        inner = b.take_axes(node, queue, stack.size)
    except NodeError:
        return None
    if len(outer) > 1 and len(places) != stack.shape[0]:
        return None
    own = (Ix(tuple(outer), places.start), *index[:dim], Ix(tuple(inner)), *index[dim + 1 :])
    return Leaf(b.whole_stack(node), own, node.dtype)


def _cat_at(b: Builder, node: Node, index: Index, dim: int) -> Expr:
    """A concatenation whose dimension is read at positions that are computed, as a reshape behind it makes them."""
    ix = index[dim]
    at = chosen(row_major(ix))
    if at.at is None:
        raise b.refuse(node, "a concatenation that is reshaped or flipped afterwards")
    return _cat(b, node, (*index[:dim], at, *index[dim + 1 :]), 0)


def _pad(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, pads = node.args[0], node.args[1]
    given = node.args[2] if len(node.args) > 2 else 0.0
    # a whole number: next to 0.0 the tensor's own would be rounded to float32
    fill = b.value(int(given) if isinstance(given, float) and node.dtype.startswith(("int", "uint")) else given)
    shape, inner, inside = b.shape(source), list(index), None
    for k in range(len(pads) // 2):
        dim = len(shape) - 1 - k
        before, after = pads[2 * k], pads[2 * k + 1]
        ix = index[dim]
        if before == 0 and after == 0:
            continue
        if len(ix.leaves()) > 1 or not ix.straight:
            ix = chosen(row_major(ix)) if ix.at is None else chosen(b.position(ix))
        inner[dim] = replace(ix, offset=extents.subtract(ix.offset, before))
        if inner[dim].straight and extents.outside(inner[dim].offset, ix.extent, shape[dim]):
            # a slice of the padding alone reads no input
            return fill
        at = b.position(inner[dim])
        end = shape[dim]
        fits = Op(
            "logical_and",
            (Op("ge", (at, Num(0, "int64")), "bool"),
             Op("lt", (at, number(end)), "bool")),
            "bool",
        )  # fmt: skip
        inside = fits if inside is None else Op("logical_and", (inside, fits), "bool")
    value = b.value(source, tuple(inner))
    if isinstance(value, Leaf) and source.name in b.inputs and _reads_as_zero(b, value, fill):
        return value
    return value if inside is None else Op("where", (inside, value, fill), wide(node.dtype), node.line)


def _reads_as_zero(b: Builder, e: Leaf, fill: Expr) -> bool:
    """Is what a load of a whole input reads past each edge ``fill``? A reduction may ask for another pad than 0."""
    slices = all(ix.straight and len(ix.leaves()) == 1 for ix in e.index) and "float" in e.dtype
    simple = all((name := n.op.split(".")[1]) in OPERATIONS or name in VIEWS for n in b.nodes.values())
    return slices and simple and isinstance(fill, Num) and fill.value == 0


VIEWS: dict[str, Handler] = {
    "view": _view, "reshape": _view, "_unsafe_view": _view, "permute": _permute, "transpose": _transpose,
    "t": _transpose, "expand": _expand, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "slice": _slice,
    "select": _select, "split": _split, "split_with_sizes": _split, "unbind": _unbind, "flip": _flip, "cat": _cat,
    "constant_pad_nd": _pad, "as_strided": _as_strided,
}  # fmt: skip
