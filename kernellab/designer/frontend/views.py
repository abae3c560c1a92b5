"""ATen operations that only select elements of their operand: views, slices, concatenation, padding."""

from __future__ import annotations

from dataclasses import replace

from kernellab.capture import Node, Ref, Sym
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.gather import chosen, passes, picked, strided
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.ir import extents, places
from kernellab.designer.ir.arithmetic import compute, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Expr, Leaf, Num, Op
from kernellab.designer.ir.normal import number, row_major
from kernellab.errors import DesignError, NodeError
from kernellab.task.formula import Formula

#: number of parts of a concatenation up to which they are tested in sequence; more are bisected
_CHAIN = 64


def _dim(node: Node, given: int, rank: int) -> int:
    return given % rank if rank else 0


def _view(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """A reshape: the axes are regrouped; if they do not follow the shape, a copy or computed positions are used."""
    if node.op.endswith(".dtype"):
        raise b.refuse(node, "the bits of one dtype are read as another, which float64 does not have")
    shape = b.shape(node.args[0])
    try:
        inner = _regroup(b, node, index, shape)
    except DesignError:
        if (source_index := _straightened(b, node, index)) is not None:
            return picked(b, *source_index)
        plain = all(ix.plain and extents.same(ix.extent, e) for ix, e in zip(index, node.shape, strict=True))
        if not plain:
            lead = len(shape) - 1
            same_lead = 0 <= lead < len(index) and all(map(extents.same, node.shape[:lead], shape[:lead]))
            if same_lead and passes(b, node.args[0]):
                # parts of the last axis, such as the pairs of a rotary embedding: its position is a product and a sum
                last = _places(b, index[lead:], node.shape[lead:], shape[lead:])
                return picked(b, node.args[0], (*index[:lead], *last))
            return Leaf(b.stored(Ref(node.name)), index, node.dtype)
        return picked(b, node.args[0], _places(b, index, node.shape, shape))
    return b.value(node.args[0], inner)


def _regroup(b: Builder, node: Node, index: Index, shape: tuple[Extent, ...]) -> Index:
    """Return the index into ``shape`` of the element at ``index``, both row-major: a reshape, inverted."""
    if not all(_is_whole(ix, e) for ix, e in zip(index, node.shape, strict=True)):
        return _regroup_sliced(b, node, index, shape)
    queue = [leaf for ix in index for leaf in ix.leaves()]
    return tuple(Ix(tuple(b.take_axes(node, queue, extent))) for extent in shape)


def _regroup_sliced(b: Builder, node: Node, index: Index, shape: tuple[Extent, ...]) -> Index:
    """A reshape that keeps each dimension with an offset unchanged; it may add or remove dimensions of extent 1."""
    result: list[Ix] = []
    remaining = [(ix, e) for ix, e in zip(index, node.shape, strict=True) if e != 1]
    for extent in shape:
        if extent == 1:
            result.append(Ix())
        elif remaining and extents.same(remaining[0][1], extent):
            result.append(remaining.pop(0)[0])
        else:
            result.append(_merged(b, node, remaining, extent))
    if remaining:
        raise b.refuse(node, "a reshape of a sliced or flipped tensor")
    return tuple(result)


def _merged(b: Builder, node: Node, kept: list[tuple[Ix, Extent]], extent: Extent) -> Ix:
    """Merge the first entries of ``kept`` into one index of ``extent``: heads 3 to 5 of a width are an offset of
    whole heads."""
    queue: list[Axis] = []
    merged_size: Extent = 1
    offset: Extent = 0
    while kept and not extents.same(merged_size, extent):
        ix, size = kept[0]
        if not (_is_whole(ix, size) or (merged_size == 1 and ix.sign == 1 and ix.win is None and ix.at is None)):
            break
        kept.pop(0)
        queue += ix.leaves()
        offset = ix.offset if merged_size == 1 else 0 if offset == 0 else extents.times([offset, size])
        merged_size = extents.times([merged_size, size])
    if not extents.same(merged_size, extent):
        raise b.refuse(node, "a reshape of a sliced or flipped tensor")
    return Ix(tuple(queue), offset)


def _is_whole(ix: Ix, extent: Extent) -> bool:
    """Return whether the index runs over an entire dimension of ``extent``, from its start."""
    return ix.plain and extents.same(ix.extent, extent)


def _straightened(b: Builder, node: Node, index: Index) -> tuple[Ref, Index] | None:
    """Return the source and index that the view ``node`` reads at ``index``, through further views and slices; None if
    a quotient remains."""
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
    source_index = places.index_at(at, axes)
    return None if source_index is None else (ref, source_index)


def _places(b: Builder, index: Index, shape: tuple[Extent, ...], source: tuple[Extent, ...]) -> Index:
    """Return the index into ``source`` of the element at ``index`` in ``shape``, by arithmetic on its position."""
    flat: Expr | None = None
    for ix, extent in zip(index, shape, strict=True):
        here = b.position(ix)
        flat = here if flat is None else Op("add", (Op("mul", (flat, number(extent)), "int64"), here), "int64")
    return _at_place(Num(0, "int64") if flat is None else flat, source)


def _at_place(flat: Expr, source: tuple[Extent, ...]) -> Index:
    """Return the index into ``source`` of the element at the row-major position ``flat``."""
    result: list[Ix] = []
    for d, extent in enumerate(source):
        inner = extents.times(list(source[d + 1 :]))
        at = flat if inner == 1 else Op("floordiv", (flat, number(inner)), "int64")
        result.append(chosen(at if d == 0 else Op("mod", (at, number(extent)), "int64")))
    return tuple(result)


def _as_strided(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Elements by their position in memory: of an input, or of a new tensor that an operation computed."""
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
    remaining = iter(index)
    return b.value(node.args[0], tuple(Ix() if d in dims and e == 1 else next(remaining) for d, e in enumerate(shape)))


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
        part_index = (*index[:dim], replace(ix, offset=0), *index[dim + 1 :])
        return compute(b.value(parts[whole[0]], part_index), wide(node.dtype))
    if len(ix.leaves()) > 1 or ix.sign != 1:
        return (_cat_alike(b, node, index, dim) if alike else None) or _cat_at(b, node, index, dim)
    reached = [k for k in range(len(parts)) if _reaches(b, ix, starts[k], sizes[k])] or range(len(parts))
    parts, starts = [parts[k] for k in reached], [starts[k] for k in reached]
    values = []
    for part, begin in reversed(list(zip(parts, starts, strict=True))):
        part_index = (*index[:dim], replace(ix, offset=extents.subtract(ix.offset, begin)), *index[dim + 1 :])
        if b.shape(part)[dim] == 1:
            part_index = (*index[:dim], Ix(), *index[dim + 1 :])
        values.append(compute(b.value(part, part_index), wide(node.dtype)))
    values.reverse()
    return _among(b, node, ix, values, starts)


def _among(b: Builder, node: Node, ix: Ix, values: list[Expr], starts: list[Extent]) -> Expr:
    """Return the value whose range, from its start to the next one's, contains the index."""

    def among(first: int, stop: int) -> Expr:
        if stop - first == 1:
            return values[first]
        # a chain is the most readable form; a long one is too deep for recursive walks
        middle = first + 1 if stop - first <= _CHAIN else (first + stop) // 2
        rest = among(middle, stop)
        before = Op("lt", (b.position(ix), number(starts[middle])), "bool")
        return Op("where", (before, among(first, middle), rest), wide(node.dtype), node.line)

    return among(0, len(values))


def _reaches(b: Builder, ix: Ix, begin: Extent, size: Extent) -> bool:
    """Return whether the index may lie in the part that begins at ``begin``; a slice of a circular padding leaves parts
    out, and would read them beyond their ends."""
    if ix.win is not None or ix.at is not None:
        return True
    behind, ahead = extents.subtract(ix.offset, extents.add(begin, size)), extents.add(ix.offset, ix.extent)
    return not any(places.never_negative(t, b.steps) for t in (behind, extents.subtract(begin, ahead)))


def is_part(ix: Ix, begin: Extent, size: Extent) -> bool:
    """Return whether the index runs exactly over the part of a concatenation that begins at ``begin``."""
    plain = ix.sign == 1 and ix.win is None and ix.at is None
    return plain and extents.same(ix.offset, begin) and extents.same(ix.extent, size)


def _cat_alike(b: Builder, node: Node, index: Index, dim: int) -> Expr | None:
    """Return a concatenation of parts of one size, read along axes whose outer ones select the part; None if the axes
    do not divide in this way."""
    parts, queue = list(node.args[0]), list(index[dim].leaves())
    if not index[dim].plain:
        return None
    try:
        outer = Ix(tuple(b.take_axes(node, queue, len(parts))))
        inner = Ix(tuple(b.take_axes(node, queue, b.shape(parts[0])[dim])))
    except NodeError:
        return None
    part_index = (*index[:dim], inner, *index[dim + 1 :])
    values = [compute(b.value(part, part_index), wide(node.dtype)) for part in parts]
    return _among(b, node, outer, values, list(range(len(parts))))


def _stack(b: Builder, node: Node, index: Index, dim: int) -> Expr | None:
    """Return a concatenation stored in a tensor whose first dimension selects the part; None if the axes that it is
    read along do not divide in this way."""
    stack = b.stacked[node.name]
    positions = stack.joins[node.name]
    queue = list(index[dim].leaves())
    try:
        outer = b.take_axes(node, queue, len(positions))
        inner = b.take_axes(node, queue, stack.size)
    except NodeError:
        return None
    if len(outer) > 1 and len(positions) != stack.shape[0]:
        return None
    stack_index = (Ix(tuple(outer), positions.start), *index[:dim], Ix(tuple(inner)), *index[dim + 1 :])
    return Leaf(b.whole_stack(node), stack_index, node.dtype)


def _cat_at(b: Builder, node: Node, index: Index, dim: int) -> Expr:
    """Return a concatenation whose dimension is read at computed positions, as a later reshape causes."""
    ix = index[dim]
    at = chosen(row_major(ix))
    if at.at is None:
        raise b.refuse(node, "a concatenation that is reshaped or flipped afterwards")
    return _cat(b, node, (*index[:dim], at, *index[dim + 1 :]), 0)


def _pad(b: Builder, node: Node, index: Index, item: int) -> Expr:
    source, pads = node.args[0], node.args[1]
    fill_value = node.args[2] if len(node.args) > 2 else 0.0
    # an integer: next to 0.0 the tensor's own values would be rounded to float32
    fill = b.value(
        int(fill_value) if isinstance(fill_value, float) and node.dtype.startswith(("int", "uint")) else fill_value
    )
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
            # a slice that contains only padding reads no input
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
    """Return whether ``fill`` is the value that a load of a whole input reads past each edge; a reduction may choose a
    pad other than 0."""
    slices = all(ix.straight and len(ix.leaves()) == 1 for ix in e.index) and "float" in e.dtype
    simple = all((name := n.op.split(".")[1]) in OPERATIONS or name in VIEWS for n in b.nodes.values())
    return slices and simple and isinstance(fill, Num) and fill.value == 0


VIEWS: dict[str, Handler] = {
    "view": _view, "reshape": _view, "_unsafe_view": _view, "permute": _permute, "transpose": _transpose,
    "t": _transpose, "expand": _expand, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "slice": _slice,
    "select": _select, "split": _split, "split_with_sizes": _split, "unbind": _unbind, "flip": _flip, "cat": _cat,
    "constant_pad_nd": _pad, "as_strided": _as_strided,
}  # fmt: skip
