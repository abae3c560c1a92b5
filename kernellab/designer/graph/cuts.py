"""Where a graph is cut into launches: after a product or a window and the pointwise work stored with it.

Readers of the stored value see a plain tensor: a reduction over rows and columns runs along one merged axis, a group's
channels are a view, and the product's tiles do not constrain later launches. A value that is only an output of the
graph is not cut off; its own launch stores it as an output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Body, Extent
from kernellab.designer.frontend.convolutions import CONVOLUTIONS
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.frontend.pooling import POOLS
from kernellab.designer.frontend.views import VIEWS
from kernellab.designer.ir import extents
from kernellab.operations.aten import Role, named

#: matrix products
PRODUCTS = named(Role.PRODUCT) - {"mv", "dot"}
_HEAVY = PRODUCTS | frozenset(CONVOLUTIONS) | frozenset(POOLS)
#: longest chain of operations in one launch; each adds some levels to an expression, which rules walk recursively
_LONGEST = 40
#: pointwise, although they have another table of handlers
_ALSO = frozenset(("_native_batch_norm_legit_no_training", "batch_norm"))
#: each of their values reads two numbers of its row in addition to pointwise work
_NORMS = named(Role.NORM)
#: number of stored operands of a value, and of products after it, from which the value itself is stored
_TERMS = 3
#: the number of distinct places of reads of one value that are tracked; the number of recomputed operations from which
#: a value is stored, since memory moves an element in less time; the cost of an element at a computed position
_PLACES, _AGAIN, _PICKED = 16, 32, 4
_GATHERS = named(Role.GATHER)
#: each of their values takes as many reads at computed positions as bisecting a row has steps
_SEARCHES = frozenset(("searchsorted", "bucketize"))
#: reductions, and the number of elements up to which one is short
_REDUCTIONS, _SHORT = named(Role.REDUCE), 16
#: reductions that read each element once
_IN_ONE_READ = frozenset(("sum", "mean", "prod", "amax", "amin")) & _REDUCTIONS
#: they read a value at positions other than their own; for the writing ones this holds for the written value
_WRITES = frozenset(("slice_scatter", "select_scatter"))
_MOVES = named(Role.PART, Role.MOVE, Role.GATHER) - _WRITES
_SCATTERS = named(Role.SCATTER)
_SCANS = named(Role.SCAN)
_ATTENTION = named(Role.ATTENTION)
#: they have the same elements as their operand, in any order
_SHOWS = {*VIEWS, "clone", "contiguous"}


def cut_nodes(graph: Graph) -> frozenset[str]:
    """Return the names of the nodes whose values are stored for all of their readers."""
    users: dict[str, list[str]] = {}
    for node in graph.nodes:
        for ref in node.refs():
            users.setdefault(ref.name, []).append(node.name)
    outputs = {ref.name for ref in graph.outputs}
    nodes = {n.name: n for n in graph.nodes}
    #: values that require no product: inputs of the graph, stored values, and pointwise work on those
    light = _light(graph, {i.name for i in graph.inputs})
    cut: set[str] = set()
    absorbed: set[str] = set()
    for node in graph.nodes:
        if node.aten not in _HEAVY or node.name in absorbed:
            continue
        region = _region(graph, node, light)
        absorbed |= region
        exits = [n for n in region if n in outputs or any(u not in region for u in users.get(n, []))]
        if any(u not in region for n in exits for u in _readers(n, users, nodes)):
            # with several exits the product itself is stored, and each exit recomputes its pointwise work
            last = _made_by(exits[0], nodes) if len(exits) == 1 else node.name
            cut.add(last)
            light = _light(graph, light | {last})
    cut |= _of_heads(graph, users, nodes)
    cut |= _of_many_terms(graph, cut, users)
    cut |= _of_many_places(graph, cut, outputs)
    cut |= _of_scatters(graph, users, nodes, outputs)
    # recomputed in another order, its values differ by rounding, and a difference of two is not the expected 0
    cut |= {n.name for n in graph.nodes if n.aten in _SCANS and not n.results and len(set(users.get(n.name, ()))) > 1}
    return frozenset(cut | _of_long_chains(graph, cut))


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


def _of_heads(graph: Graph, users: Mapping[str, list[str]], nodes: Mapping[str, Node]) -> set[str]:
    """Return attentions to store as the view that a product reads, with heads contiguous: one matrix, whose sum is one
    loop fed by a copy engine."""
    stored: set[str] = set()
    for node in graph.nodes:
        if node.aten not in _ATTENTION:
            continue
        last = node
        while len(readers := users.get(last.name, [])) == 1 and nodes[readers[0]].aten in _SHOWS:
            last = nodes[readers[0]]
        products = [r for r in readers if nodes[r].aten in PRODUCTS]
        if products and not extents.same(last.shape[-1], node.shape[-1]):
            stored.add(last.name)
    return stored


def _of_many_terms(graph: Graph, cut: Set[str], users: Mapping[str, list[str]]) -> set[str]:
    """Return pointwise values of at least _TERMS stored tensors to store if several later products, windows and
    positions of extremes would read all of those again, such as the sums of a residual network or the distances that
    are carried from step to step."""
    nodes = {n.name: n for n in graph.nodes}
    sizes = {i.name: extents.times(list(i.shape)) for i in graph.inputs}
    sizes |= {n.name: extents.times(list(n.shape)) for n in graph.nodes}
    stored: set[str] = set()
    terms: dict[str, frozenset[str]] = {}
    for node in graph.nodes:
        computes = node.aten in OPERATIONS or node.aten in _NORMS
        if node.name in cut or node.results or not (computes or node.aten in VIEWS):
            continue
        operands = frozenset[str]().union(*(terms.get(r.name, {r.name}) for r in node.refs()))
        terms[node.name] = operands
        alike = [t for t in operands if extents.same(sizes[t], sizes[node.name])]
        if computes and len(alike) >= _TERMS and _heavy_behind(node.name, users, nodes, cut) >= _TERMS:
            stored.add(node.name)
            terms[node.name] = frozenset((node.name,))
    return stored


def _of_many_places(graph: Graph, cut: Set[str], outputs: Set[str]) -> set[str]:
    """Return pointwise values that one launch would compute at several positions for each element, such as a step of a
    stencil whose neighbours the next step reads. Otherwise n unrolled steps cost the number of neighbours to the power
    n."""
    costs = _costs(graph, cut)
    readers = Counter(ref.name for node in graph.nodes for ref in node.refs())
    searches = {n.name for n in graph.nodes if n.aten in _SEARCHES}
    read_places: dict[str, frozenset[tuple[str, ...]]] = {name: frozenset(((),)) for name in outputs}
    stored: set[str] = set()
    for node in reversed(graph.nodes):
        places = read_places.get(node.name, frozenset())
        computes = node.aten in OPERATIONS or node.aten in _WRITES
        if (computes or node.name in searches) and (len(places) - 1) * costs[node.name] >= _AGAIN and not node.results:
            stored.add(node.name)
            places = frozenset(((),))
        elsewhere = frozenset((("elsewhere",),))
        for k, ref in enumerate(node.refs()):
            if node.aten in _GATHERS and (k != _looked_up(node) or ref.name in searches):
                # an index: read at the position of the gathered element
                operand_places = places
            elif node.aten in _MOVES or (node.aten in _WRITES and k):
                operand_places = frozenset((node.name, *place) for place in places)
            elif computes or node.aten in VIEWS:
                operand_places = places
            elif node.aten in _IN_ONE_READ and ref.name in outputs and readers[ref.name] == 1:
                # an output of the graph is stored by the launch that sums it
                operand_places = frozenset(((),))
            else:
                # another launch, or a loop inside this one
                operand_places = elsewhere
            read_places[ref.name] = frozenset(sorted(read_places.get(ref.name, frozenset()) | operand_places)[:_PLACES])
    return stored


def _looked_up(node: Node) -> int:
    """Return which of a gather's refs is read at computed positions; ``bucketize`` has the values to place first."""
    return int(node.aten == "bucketize" and isinstance(node.args[0], Ref))


def _of_scatters(
    graph: Graph, users: Mapping[str, list[str]], nodes: Mapping[str, Node], outputs: Set[str]
) -> set[str]:
    """Return reductions to store that a write at indices reads together with another reader, if recomputing them costs
    more than a launch: nested reductions, such as the nearest centre of each point for its sum, its count and the
    result, and positions in long rows. Positions are also stored for a product, which reads them as rows of zeros and a
    single 1."""
    shapes = _shapes(graph)
    places = named(Role.PLACE)
    reduced: set[str] = set()
    stored: set[str] = set()
    for node in graph.nodes:
        reduces, is_place = node.aten in _REDUCTIONS | places, node.aten in places
        nested = any(ref.name in reduced for ref in node.refs())
        if reduces or nested:
            reduced.add(node.name)
        if not reduces or node.results:
            continue
        if not nested and (not is_place or _is_short(shapes[next(node.refs()).name], node.shape)):
            continue
        readers = set(_readers(node.name, users, nodes, through=OPERATIONS if is_place else ()))
        separate_readers = {nodes[r].aten for r in readers} & (_SCATTERS | PRODUCTS if is_place else _SCATTERS)
        # a view is one user, regardless of its readers
        count = max(len(readers), len(set(users.get(node.name, ()))))
        if separate_readers and count + (node.name in outputs) > 1:
            stored.add(node.name)
    return stored


def _costs(graph: Graph, cut: Set[str]) -> dict[str, int]:
    """Return the operations of each value on stored tensors, at most _AGAIN; values of other launches cost none."""
    costs: dict[str, int] = {}
    shapes = _shapes(graph)
    for node in graph.nodes:
        computes = node.aten in OPERATIONS
        under = sum(0 if ref.name in cut else costs.get(ref.name, 0) for ref in node.refs())
        short = node.aten in _REDUCTIONS and _is_short(shapes[next(node.refs()).name], node.shape)
        through = computes or short or node.aten in VIEWS or node.aten in _MOVES or node.aten in _WRITES
        # gathered elements are read one by one
        own_cost = _AGAIN if node.aten in _SEARCHES else _PICKED if node.aten in _GATHERS else computes
        costs[node.name] = min(under + own_cost, _AGAIN) if through else 0
    return costs


def _shapes(graph: Graph) -> dict[str, tuple[Extent, ...]]:
    return {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in graph.nodes}


def _is_short(whole: tuple[Extent, ...], left: tuple[Extent, ...]) -> bool:
    """Return whether a reduction from one shape to another is over so few elements that each reader recomputes it."""
    over = extents.product(extents.times(whole)).over(extents.product(extents.times(left)))
    return over is not None and isinstance(over.extent, int) and over.extent <= _SHORT


def _heavy_behind(name: str, users: Mapping[str, list[str]], nodes: Mapping[str, Node], cut: Set[str]) -> int:
    """Count the products, windows and places of extremes that use the value before it is stored again, at most
    _TERMS."""
    heavy_users: set[str] = set()
    visited, pending = {name}, [name]
    while pending and len(heavy_users) < _TERMS:
        for user in users.get(pending.pop(), []):
            if user in visited:
                continue
            visited.add(user)
            if nodes[user].aten in _HEAVY or _places(nodes[user]):
                heavy_users.add(user)
            elif user not in cut:
                pending.append(user)
    return len(heavy_users)


def _places(node: Node) -> bool:
    """Return whether ``node`` is the position of an extreme, which reads a whole value before the next step begins."""
    return node.aten in named(Role.PLACE) or (node.aten in ("max", "min") and bool(node.results))


def without_twins(graph: Graph) -> Graph:
    """Return ``graph`` with each value computed once, even if the reference writes it several times."""
    first: dict[Any, str] = {}
    same: dict[str, str] = {}

    def own(value: Any) -> Any:
        if isinstance(value, Ref):
            return replace(value, name=same.get(value.name, value.name))
        if isinstance(value, Body):
            stacked = tuple(replace(one, value=own(one.value)) for one in value.stacked)
            return replace(value, nodes=tuple(map(renamed, value.nodes)), after=own(value.after), stacked=stacked)
        return type(value)(own(v) for v in value) if type(value) in (tuple, list) else value

    def renamed(node: Node) -> Node:
        return replace(node, args=own(node.args), kwargs=own(node.kwargs))

    unique = []
    for node in graph.nodes:
        now = renamed(node)
        key = repr((now.op, now.args, now.kwargs))
        if key in first:
            same[node.name] = first[key]
        else:
            first[key] = node.name
            unique.append(now)
    return replace(graph, nodes=tuple(unique), outputs=own(graph.outputs))


def _readers(
    name: str, users: Mapping[str, list[str]], nodes: Mapping[str, Node], through: Container[str] = ()
) -> Iterator[str]:
    """Yield the nodes that compute with the value, through views of it and operations of ``through``."""
    visited, pending = {name}, [name]
    while pending:
        for user in users.get(pending.pop(), []):
            if user in visited:
                continue
            visited.add(user)
            if nodes[user].aten in VIEWS or nodes[user].aten in through:
                pending.append(user)
            else:
                yield user


def _light(graph: Graph, given: set[str]) -> set[str]:
    """Return ``given`` and the values that views and pointwise work compute from it."""
    light = set(given)
    for node in graph.nodes:
        cheap = node.aten in OPERATIONS or node.aten in _ALSO or node.aten in VIEWS
        if cheap and all(ref.name in light for ref in node.refs()):
            light.add(node.name)
    return light


def _region(graph: Graph, heavy: Node, light: set[str]) -> set[str]:
    """Return ``heavy`` and the pointwise nodes that depend only on it and on light values, of its shape or of a view
    with the same rows: a linear layer of sequences is one matrix product between two such views."""
    region, shapes = {heavy.name}, [_shape(heavy)]
    for node in graph.nodes:
        refs = {ref.name for ref in node.refs()}
        if not refs & region or node.results:
            continue
        pointwise = node.aten in OPERATIONS or node.aten in _ALSO
        if node.aten in VIEWS and refs <= region and _same_rows(node.shape, shapes[0]):
            shapes.append(node.shape)
        elif not (pointwise and refs <= region | light and node.shape in shapes):
            continue
        region.add(node.name)
    return region


def _made_by(name: str, nodes: Mapping[str, Node]) -> str:
    """Return the node whose values a view shows."""
    while nodes[name].aten in VIEWS:
        name = next(nodes[name].refs()).name
    return name


def _same_rows(shape: tuple[Extent, ...], other: tuple[Extent, ...]) -> bool:
    """Return whether a view has the rows of its operand, in the same order."""
    alike = extents.same(extents.times(list(shape)), extents.times(list(other)))
    return len(shape) > 1 and len(other) > 1 and shape[-1] == other[-1] and alike


def _shape(node: Node) -> Any:
    return node.results[0][0] if node.results else node.shape
