"""Where a graph is cut into launches: after a product or a window and the pointwise work stored with it.

Readers of the stored value see a plain tensor: a reduction over rows and columns runs along one merged axis, a group's
channels are a view, and the product's tiles do not constrain later launches. A value that is only an output of the
graph is not cut off; its own launch stores it as an output.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.convolutions import CONVOLUTIONS
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.frontend.pooling import POOLS
from kernellab.designer.frontend.views import VIEWS
from kernellab.designer.graph.uses import Uses
from kernellab.designer.ir import extents
from kernellab.operations.aten import Role, named

#: matrix products
PRODUCTS = named(Role.PRODUCT) - {"mv", "dot"}
_HEAVY = PRODUCTS | frozenset(CONVOLUTIONS) | frozenset(POOLS)
#: longest chain of operations in one launch; each adds some levels to an expression, which rules walk recursively
_LONGEST = 40
#: pointwise, although they have another table of handlers
_OTHER_POINTWISE = frozenset(("_native_batch_norm_legit_no_training", "batch_norm"))
#: each of their values reads two numbers of its row in addition to pointwise work
_NORMS = named(Role.NORM)
#: number of stored operands of a value, and of products after it, from which the value itself is stored
_MANY_TERMS = 3
#: number of distinct places of reads of one value that are tracked
_MOST_PLACES = 16
#: number of recomputed operations from which a value is stored, since memory moves an element in less time
_MANY_OPERATIONS = 32
#: operations that an element at a computed position costs as much as
_COST_OF_GATHER = 4
_GATHERS = named(Role.GATHER)
#: each of their values takes as many reads at computed positions as bisecting a row has steps
_SEARCHES = frozenset(("searchsorted", "bucketize"))
#: reductions, and the number of elements up to which one is short
_REDUCTIONS, _SHORT = named(Role.REDUCE), 16
#: positions of extremes
_EXTREMES = named(Role.PLACE)
#: reductions that read each element once
_IN_ONE_READ = frozenset(("sum", "mean", "prod", "amax", "amin")) & _REDUCTIONS
#: they read a value at positions other than their own; for the writing ones this holds for the written value
_WRITES = frozenset(("slice_scatter", "select_scatter"))
_MOVES = named(Role.PART, Role.MOVE, Role.GATHER) - _WRITES
_SCATTERS = named(Role.SCATTER)
_SCANS = named(Role.SCAN)
_ATTENTION = named(Role.ATTENTION)
#: they have the same elements as their operand, in any order
_VIEWS_AND_COPIES = {*VIEWS, "clone", "contiguous"}


def cut_nodes(graph: Graph) -> frozenset[str]:
    """Return the names of the nodes whose values are stored for all of their readers."""
    uses = Uses(graph)
    cut = _of_products(uses)
    cut |= _of_heads(uses)
    cut |= _of_many_terms(uses, cut)
    cut |= _of_many_places(uses, cut)
    cut |= _of_scatters(uses)
    cut |= _of_scans(uses)
    return frozenset(cut | _of_long_chains(graph, cut))


def _of_products(uses: Uses) -> set[str]:
    """Return products, windows and pools to store, with the pointwise work after them, if another node computes with
    the value."""
    graph = uses.graph
    light = _with_pointwise(graph, {i.name for i in graph.inputs})
    cut: set[str] = set()
    absorbed: set[str] = set()
    for node in graph.nodes:
        if node.aten not in _HEAVY or node.name in absorbed:
            continue
        region = _region(graph, node, light)
        absorbed |= region
        exits = [n for n in region if n in uses.outputs or any(u not in region for u in uses.users(n))]
        if any(reader not in region for name in exits for reader in uses.readers(name)):
            # with several exits the product itself is stored, and each exit recomputes its pointwise work
            last = uses.viewed(exits[0]) if len(exits) == 1 else node.name
            cut.add(last)
            light = _with_pointwise(graph, light | {last})
    return cut


def _of_scans(uses: Uses) -> set[str]:
    """Return scans with several users: recomputed in another order, their values differ by rounding, and a difference
    of two is not the expected 0."""
    scans = (n for n in uses.graph.nodes if n.aten in _SCANS and not n.results)
    return {n.name for n in scans if len(set(uses.users(n.name))) > 1}


def depth(graph: Graph, stops: frozenset[str] = frozenset()) -> int:
    """Return the length of the longest chain of operations, where each of ``stops`` begins a new one."""
    return max(_depths(graph, stops).values(), default=0)


def _depths(graph: Graph, stops: Set[str]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depths[node.name] = 1 + max((depths.get(r.name, 0) for r in node.refs() if r.name not in stops), default=0)
    return depths


def _of_long_chains(graph: Graph, cut: Set[str]) -> set[str]:
    """Return pointwise values to store so that no launch computes a chain of more than _LONGEST operations (unrolled
    loops)."""
    stored: set[str] = set()
    depths: dict[str, int] = {}
    for node in graph.nodes:
        refs = [r.name for r in node.refs() if r.name not in cut and r.name not in stored]
        depths[node.name] = 1 + max((depths.get(name, 0) for name in refs), default=0)
        if depths[node.name] >= _LONGEST and node.aten in OPERATIONS:
            stored.add(node.name)
    return stored


def _of_heads(uses: Uses) -> set[str]:
    """Return attentions to store as the view that a product reads, with heads contiguous: one matrix, whose sum is one
    loop fed by a copy engine."""
    stored: set[str] = set()
    for node in uses.graph.nodes:
        if node.aten not in _ATTENTION:
            continue
        last = node
        while len(users := uses.users(last.name)) == 1 and uses.nodes[users[0]].aten in _VIEWS_AND_COPIES:
            last = uses.nodes[users[0]]
        for_product = any(uses.nodes[user].aten in PRODUCTS for user in users)
        if for_product and not extents.same(last.shape[-1], node.shape[-1]):
            stored.add(last.name)
    return stored


def _of_many_terms(uses: Uses, cut: Set[str]) -> set[str]:
    """Return pointwise values of at least _MANY_TERMS stored tensors to store if several later products, windows and
    positions of extremes would read all of those again, such as the sums of a residual network or the distances that
    are carried from step to step."""
    graph = uses.graph
    sizes = {name: extents.times(list(shape)) for name, shape in _shapes(graph).items()}
    stored: set[str] = set()
    terms: dict[str, frozenset[str]] = {}
    for node in graph.nodes:
        computes = node.aten in OPERATIONS or node.aten in _NORMS
        if node.name in cut or node.results or not (computes or node.aten in VIEWS):
            continue
        operands = frozenset[str]().union(*(terms.get(r.name, {r.name}) for r in node.refs()))
        terms[node.name] = operands
        alike = [t for t in operands if extents.same(sizes[t], sizes[node.name])]
        if computes and len(alike) >= _MANY_TERMS and _has_many_heavy_users(uses, node.name, cut):
            stored.add(node.name)
            terms[node.name] = frozenset((node.name,))
    return stored


class _Place(NamedTuple):
    """Where a value is read, relative to an element of an output: the moves that the position went through.

    ``x[i]`` and ``x[i + 1]`` differ by the name of the node that shifts. No moves: at the element's own position.
    """

    moves: tuple[str, ...]


_OWN_PLACE: frozenset[_Place] = frozenset((_Place(()),))
#: in another launch, or in a loop inside this one
_ELSEWHERE: frozenset[_Place] = frozenset((_Place(("elsewhere",)),))


def _of_many_places(uses: Uses, cut: Set[str]) -> set[str]:
    """Return pointwise values that one launch would compute at several positions for each element, such as a step of a
    stencil whose neighbours the next step reads. Otherwise n unrolled steps cost the number of neighbours to the power
    n."""
    costs = _costs(uses.graph, cut)
    read_at: dict[str, frozenset[_Place]] = dict.fromkeys(uses.outputs, _OWN_PLACE)
    stored: set[str] = set()
    for node in reversed(uses.graph.nodes):
        places = read_at.get(node.name, frozenset())
        computes = node.aten in OPERATIONS or node.aten in _WRITES or node.aten in _SEARCHES
        if computes and not node.results and (len(places) - 1) * costs[node.name] >= _MANY_OPERATIONS:
            stored.add(node.name)
            places = _OWN_PLACE
        for position, ref in enumerate(node.refs()):
            known = read_at.get(ref.name, frozenset()) | _places_of_operand(uses, node, position, ref.name, places)
            read_at[ref.name] = frozenset(sorted(known)[:_MOST_PLACES])
    return stored


def _places_of_operand(
    uses: Uses, node: Node, position: int, operand: str, places: frozenset[_Place]
) -> frozenset[_Place]:
    """Return where the ``position``-th operand of a node is read if the node's value is read at ``places``."""
    if node.aten in _GATHERS and (position != _looked_up(node) or _is_search(uses, operand)):
        # an index: read at the position of the gathered element
        return places
    if node.aten in _MOVES or (node.aten in _WRITES and position):
        return frozenset(_Place((node.name, *place.moves)) for place in places)
    if node.aten in OPERATIONS or node.aten in _WRITES or node.aten in VIEWS:
        return places
    if node.aten in _IN_ONE_READ and operand in uses.outputs and uses.count(operand) == 1:
        # an output of the graph is stored by the launch that sums it
        return _OWN_PLACE
    return _ELSEWHERE


def _is_search(uses: Uses, name: str) -> bool:
    return name in uses.nodes and uses.nodes[name].aten in _SEARCHES


def _looked_up(node: Node) -> int:
    """Return which of a gather's refs is read at computed positions; ``bucketize`` has the values to place first."""
    return int(node.aten == "bucketize" and isinstance(node.args[0], Ref))


def _of_scatters(uses: Uses) -> set[str]:
    """Return reductions to store that a write at indices reads together with another reader, if recomputing them costs
    more than a launch: nested reductions, such as the nearest centre of each point for its sum, its count and the
    result, and positions in long rows. Positions are also stored for a product, which reads them as rows of zeros and a
    single 1."""
    shapes = _shapes(uses.graph)
    reduced: set[str] = set()
    stored: set[str] = set()
    for node in uses.graph.nodes:
        is_extreme = node.aten in _EXTREMES
        reduces = is_extreme or node.aten in _REDUCTIONS
        nested = any(ref.name in reduced for ref in node.refs())
        if reduces or nested:
            reduced.add(node.name)
        if not reduces or node.results:
            continue
        is_long = is_extreme and not _is_short(shapes[next(node.refs()).name], node.shape)
        if (nested or is_long) and _is_shared_with_scatter(uses, node, is_extreme):
            stored.add(node.name)
    return stored


def _is_shared_with_scatter(uses: Uses, node: Node, is_extreme: bool) -> bool:
    """Return whether a write at indices (for a position of an extreme also a product) and something else read a
    value."""
    readers = set(uses.readers(node.name, through=OPERATIONS if is_extreme else ()))
    separate = _SCATTERS | PRODUCTS if is_extreme else _SCATTERS
    # a view is one user, regardless of its readers
    count = max(len(readers), len(set(uses.users(node.name))))
    has_separate_reader = any(uses.nodes[reader].aten in separate for reader in readers)
    return has_separate_reader and count + (node.name in uses.outputs) > 1


def _costs(graph: Graph, cut: Set[str]) -> dict[str, int]:
    """Return the operations of each value on stored tensors, at most _MANY_OPERATIONS; values of other launches cost
    none."""
    costs: dict[str, int] = {}
    shapes = _shapes(graph)
    for node in graph.nodes:
        computes = node.aten in OPERATIONS
        short = node.aten in _REDUCTIONS and _is_short(shapes[next(node.refs()).name], node.shape)
        if not (computes or short or node.aten in VIEWS or node.aten in _MOVES or node.aten in _WRITES):
            costs[node.name] = 0
            continue
        under = sum(0 if ref.name in cut else costs.get(ref.name, 0) for ref in node.refs())
        costs[node.name] = min(under + _cost(node), _MANY_OPERATIONS)
    return costs


def _cost(node: Node) -> int:
    """Return how many operations a node itself costs for each element."""
    if node.aten in _SEARCHES:
        return _MANY_OPERATIONS
    # gathered elements are read one by one
    return _COST_OF_GATHER if node.aten in _GATHERS else int(node.aten in OPERATIONS)


def _shapes(graph: Graph) -> dict[str, tuple[Extent, ...]]:
    return {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in graph.nodes}


def _is_short(whole: tuple[Extent, ...], left: tuple[Extent, ...]) -> bool:
    """Return whether a reduction from one shape to another is over so few elements that each reader recomputes it."""
    over = extents.product(extents.times(whole)).over(extents.product(extents.times(left)))
    return over is not None and isinstance(over.extent, int) and over.extent <= _SHORT


def _has_many_heavy_users(uses: Uses, name: str, cut: Set[str]) -> bool:
    """Return whether many products, windows and places of extremes use the value before it is stored again."""
    heavy_users: set[str] = set()
    visited, pending = {name}, [name]
    while pending and len(heavy_users) < _MANY_TERMS:
        for user in uses.users(pending.pop()):
            if user in visited:
                continue
            visited.add(user)
            if uses.nodes[user].aten in _HEAVY or _is_extreme(uses.nodes[user]):
                heavy_users.add(user)
            elif user not in cut:
                pending.append(user)
    return len(heavy_users) >= _MANY_TERMS


def _is_extreme(node: Node) -> bool:
    """Return whether ``node`` is the position of an extreme, which reads a whole value before the next step begins."""
    return node.aten in _EXTREMES or (node.aten in ("max", "min") and bool(node.results))


def _with_pointwise(graph: Graph, names: set[str]) -> set[str]:
    """Return ``names`` and the values that views and pointwise work compute from them."""
    light = set(names)
    for node in graph.nodes:
        cheap = node.aten in OPERATIONS or node.aten in _OTHER_POINTWISE or node.aten in VIEWS
        if cheap and all(ref.name in light for ref in node.refs()):
            light.add(node.name)
    return light


def _region(graph: Graph, heavy: Node, light: Set[str]) -> set[str]:
    """Return ``heavy`` and the pointwise nodes that depend only on it and on light values, of its shape or of a view
    with the same rows: a linear layer of sequences is one matrix product between two such views."""
    region, shapes = {heavy.name}, [_shape(heavy)]
    for node in graph.nodes:
        refs = {ref.name for ref in node.refs()}
        if not refs & region or node.results:
            continue
        pointwise = node.aten in OPERATIONS or node.aten in _OTHER_POINTWISE
        if node.aten in VIEWS and refs <= region and _same_rows(node.shape, shapes[0]):
            shapes.append(node.shape)
        elif not (pointwise and refs <= region | light and node.shape in shapes):
            continue
        region.add(node.name)
    return region


def _same_rows(shape: tuple[Extent, ...], other: tuple[Extent, ...]) -> bool:
    """Return whether a view has the rows of its operand, in the same order."""
    alike = extents.same(extents.times(list(shape)), extents.times(list(other)))
    return len(shape) > 1 and len(other) > 1 and shape[-1] == other[-1] and alike


def _shape(node: Node) -> tuple[Extent, ...]:
    return node.results[0][0] if node.results else node.shape
