"""Where a graph is cut into launches: behind a product or a window, and the pointwise work that goes out with it.

What reads the stored value has it as a plain tensor: a reduction over rows and columns runs along one merged axis, a
group's channels are a view, and nothing of the product's tiles limits those of what follows. A value that only leaves
the graph is not cut off; it is stored as an output by its own launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.convolutions import CONVOLUTIONS
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.frontend.pooling import POOLS
from kernellab.designer.frontend.views import VIEWS
from kernellab.designer.ir import extents
from kernellab.operations.aten import Role, named

#: products of matrices
PRODUCTS = named(Role.PRODUCT) - {"mv", "dot"}
_HEAVY = PRODUCTS | frozenset(CONVOLUTIONS) | frozenset(POOLS)
#: operations of one chain in one launch; each is some levels of an expression, which rules walk by recursion
_LONGEST = 40
#: pointwise although their table of handlers is another
_ALSO = frozenset(("_native_batch_norm_legit_no_training", "batch_norm"))
#: each of their values takes two numbers of its row in addition to what pointwise work does
_NORMS = named(Role.NORM)
#: stored tensors that a value is made of, and products behind it, from which on it is stored itself
_TERMS = 3
#: places at which one value is read that are distinguished; operations that reading it there makes again from which on
#: it is stored, since memory moves an element in less time; what an element at a computed place counts
_PLACES, _AGAIN, _PICKED = 16, 32, 4
_GATHERS = named(Role.GATHER)
#: each of their values takes as many reads at computed places as halving a row has steps
_SEARCHES = frozenset(("searchsorted", "bucketize"))
#: reductions, and how many elements are few for one
_REDUCTIONS, _SHORT = named(Role.REDUCE), 16
#: reductions that read each element once
_IN_ONE_READ = frozenset(("sum", "mean", "prod", "amax", "amin")) & _REDUCTIONS
#: they read a value at other places than they are asked at; of the writing ones that holds for what is written
_WRITES = frozenset(("slice_scatter", "select_scatter"))
_MOVES = named(Role.PART, Role.MOVE, Role.GATHER) - _WRITES
_SCATTERS = named(Role.SCATTER)
_SCANS = named(Role.SCAN)
_ATTENTION = named(Role.ATTENTION)
#: they have the elements of what they read, in whatever order
_SHOWS = {*VIEWS, "clone", "contiguous"}


def cut_nodes(graph: Graph) -> frozenset[str]:
    """Names of the nodes whose values are stored for all that reads them."""
    users: dict[str, list[str]] = {}
    for node in graph.nodes:
        for ref in node.refs():
            users.setdefault(ref.name, []).append(node.name)
    outputs = {ref.name for ref in graph.outputs}
    nodes = {n.name: n for n in graph.nodes}
    #: values that cost no product: what the graph is given, what is stored, and pointwise work on those
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
            # with several ways out the product itself is kept, and each way makes its pointwise work again
            last = _made_by(exits[0], nodes) if len(exits) == 1 else node.name
            cut.add(last)
            light = _light(graph, light | {last})
    cut |= _of_heads(graph, users, nodes)
    cut |= _of_many_terms(graph, cut, users)
    cut |= _of_many_places(graph, cut, outputs)
    cut |= _of_scatters(graph, users, nodes, outputs)
    # made again in another order its values differ by rounding, and a difference of two is not the 0 that it should be
    cut |= {n.name for n in graph.nodes if n.aten in _SCANS and not n.results and len(set(users.get(n.name, ()))) > 1}
    return frozenset(cut | _of_long_chains(graph, cut))


def depth(graph: Graph, stops: frozenset[str] = frozenset()) -> int:
    """The longest chain of operations, where one of ``stops`` begins a new one."""
    return max(_depths(graph, stops).values(), default=0)


def _depths(graph: Graph, stops: Set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in graph.nodes:
        found[node.name] = 1 + max((found.get(r.name, 0) for r in node.refs() if r.name not in stops), default=0)
    return found


def _of_long_chains(graph: Graph, cut: Set[str]) -> set[str]:
    """Pointwise values to store so that no launch computes a chain of more than _LONGEST operations: unrolled loops."""
    stored: set[str] = set()
    found: dict[str, int] = {}
    for node in graph.nodes:
        refs = [r.name for r in node.refs() if r.name not in cut and r.name not in stored]
        found[node.name] = 1 + max((found.get(name, 0) for name in refs), default=0)
        if found[node.name] >= _LONGEST and node.aten in OPERATIONS:
            stored.add(node.name)
    return stored


def _of_heads(graph: Graph, users: Mapping[str, list[str]], nodes: Mapping[str, Node]) -> set[str]:
    """Attention to store as the view that a product reads, its heads side by side: one matrix, whose sum is one loop
    that a copy engine feeds."""
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
    """Pointwise values of _TERMS stored tensors and more to store, where several products and windows behind them would
    read all of those again: the sums with which a residual network continues."""
    nodes = {n.name: n for n in graph.nodes}
    sizes = {i.name: extents.times(list(i.shape)) for i in graph.inputs}
    sizes |= {n.name: extents.times(list(n.shape)) for n in graph.nodes}
    stored: set[str] = set()
    terms: dict[str, frozenset[str]] = {}
    for node in graph.nodes:
        made = node.aten in OPERATIONS or node.aten in _NORMS
        if node.name in cut or node.results or not (made or node.aten in VIEWS):
            continue
        found = frozenset[str]().union(*(terms.get(r.name, {r.name}) for r in node.refs()))
        terms[node.name] = found
        alike = [t for t in found if extents.same(sizes[t], sizes[node.name])]
        if made and len(alike) >= _TERMS and _heavy_behind(node.name, users, nodes, cut) >= _TERMS:
            stored.add(node.name)
            terms[node.name] = frozenset((node.name,))
    return stored


def _of_many_places(graph: Graph, cut: Set[str], outputs: Set[str]) -> set[str]:
    """Pointwise values that one launch would make at several places for each element: a step of a stencil, whose
    neighbours the next step reads. Without this, n steps that are written out take the neighbours' number to the nth.
    """
    costs = _costs(graph, cut)
    readers = Counter(ref.name for node in graph.nodes for ref in node.refs())
    searches = {n.name for n in graph.nodes if n.aten in _SEARCHES}
    asked: dict[str, frozenset[tuple[str, ...]]] = {name: frozenset(((),)) for name in outputs}
    stored: set[str] = set()
    for node in reversed(graph.nodes):
        places = asked.get(node.name, frozenset())
        made = node.aten in OPERATIONS or node.aten in _WRITES
        if (made or node.name in searches) and (len(places) - 1) * costs[node.name] >= _AGAIN and not node.results:
            stored.add(node.name)
            places = frozenset(((),))
        elsewhere = frozenset((("elsewhere",),))
        for k, ref in enumerate(node.refs()):
            if ref.name in searches and node.aten in _GATHERS:
                # an index: read where the gathered element is
                read = places
            elif node.aten in _MOVES or (node.aten in _WRITES and k):
                read = frozenset((node.name, *place) for place in places)
            elif made or node.aten in VIEWS:
                read = places
            elif node.aten in _IN_ONE_READ and ref.name in outputs and readers[ref.name] == 1:
                # what leaves the graph is stored by the launch that sums it
                read = frozenset(((),))
            else:
                # another launch, or a loop inside this one
                read = elsewhere
            asked[ref.name] = frozenset(sorted(asked.get(ref.name, frozenset()) | read)[:_PLACES])
    return stored


def _of_scatters(
    graph: Graph, users: Mapping[str, list[str]], nodes: Mapping[str, Node], outputs: Set[str]
) -> set[str]:
    """Reductions to store that a write at indices reads, and something else too, where making them again costs more
    than a launch: reductions of what is reduced, as the nearest centre of each point for its sum, its count and the
    result, and places in long rows. Places are stored for a product, too: it reads them as rows of zeros and one 1."""
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
        apart = {nodes[r].aten for r in readers} & (_SCATTERS | PRODUCTS if is_place else _SCATTERS)
        # a view is one user, whatever reads it
        count = max(len(readers), len(set(users.get(node.name, ()))))
        if apart and count + (node.name in outputs) > 1:
            stored.add(node.name)
    return stored


def _costs(graph: Graph, cut: Set[str]) -> dict[str, int]:
    """Operations that each value takes from what is stored, at most _AGAIN; what other launches make takes none."""
    costs: dict[str, int] = {}
    shapes = _shapes(graph)
    for node in graph.nodes:
        made = node.aten in OPERATIONS
        under = sum(0 if ref.name in cut else costs.get(ref.name, 0) for ref in node.refs())
        short = node.aten in _REDUCTIONS and _is_short(shapes[next(node.refs()).name], node.shape)
        through = made or short or node.aten in VIEWS or node.aten in _MOVES or node.aten in _WRITES
        # elements that are picked come one by one
        own = _AGAIN if node.aten in _SEARCHES else _PICKED if node.aten in _GATHERS else made
        costs[node.name] = min(under + own, _AGAIN) if through else 0
    return costs


def _shapes(graph: Graph) -> dict[str, tuple[Extent, ...]]:
    return {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in graph.nodes}


def _is_short(whole: tuple[Extent, ...], left: tuple[Extent, ...]) -> bool:
    """Is a reduction from one shape to another over so few elements that who reads it makes it again?"""
    over = extents.product(extents.times(whole)).over(extents.product(extents.times(left)))
    return over is not None and isinstance(over.extent, int) and over.extent <= _SHORT


def _heavy_behind(name: str, users: Mapping[str, list[str]], nodes: Mapping[str, Node], cut: Set[str]) -> int:
    """Products and windows that compute with the value before it is stored again; no more than _TERMS are counted."""
    found: set[str] = set()
    seen, left = {name}, [name]
    while left and len(found) < _TERMS:
        for user in users.get(left.pop(), []):
            if user in seen:
                continue
            seen.add(user)
            if nodes[user].aten in _HEAVY:
                found.add(user)
            elif user not in cut:
                left.append(user)
    return len(found)


def without_twins(graph: Graph) -> Graph:
    """``graph`` with each value computed once, however often the reference writes it."""
    first: dict[Any, str] = {}
    same: dict[str, str] = {}

    def own(value: Any) -> Any:
        if isinstance(value, Ref):
            return replace(value, name=same.get(value.name, value.name))
        return type(value)(own(v) for v in value) if type(value) in (tuple, list) else value

    kept = []
    for node in graph.nodes:
        turned = replace(node, args=own(node.args), kwargs=own(node.kwargs))
        key = repr((turned.op, turned.args, turned.kwargs))
        if key in first:
            same[node.name] = first[key]
        else:
            first[key] = node.name
            kept.append(turned)
    return replace(graph, nodes=tuple(kept), outputs=own(graph.outputs))


def _readers(
    name: str, users: Mapping[str, list[str]], nodes: Mapping[str, Node], through: Container[str] = ()
) -> Iterator[str]:
    """Nodes that compute with the value, seen through views of it and operations of ``through``."""
    seen, left = {name}, [name]
    while left:
        for user in users.get(left.pop(), []):
            if user in seen:
                continue
            seen.add(user)
            if nodes[user].aten in VIEWS or nodes[user].aten in through:
                left.append(user)
            else:
                yield user


def _light(graph: Graph, given: set[str]) -> set[str]:
    """``given``, and what views and pointwise work make of it."""
    light = set(given)
    for node in graph.nodes:
        cheap = node.aten in OPERATIONS or node.aten in _ALSO or node.aten in VIEWS
        if cheap and all(ref.name in light for ref in node.refs()):
            light.add(node.name)
    return light


def _region(graph: Graph, heavy: Node, light: set[str]) -> set[str]:
    """``heavy`` and the pointwise nodes that follow from it and from light values alone, of its shape or of one whose
    rows are its own: a linear layer of sequences is a product of one matrix between two such views."""
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
    """The node whose values a view shows."""
    while nodes[name].aten in VIEWS:
        name = next(nodes[name].refs()).name
    return name


def _same_rows(shape: tuple[Extent, ...], other: tuple[Extent, ...]) -> bool:
    """Has a view the rows of what it shows, in their order?"""
    alike = extents.same(extents.times(list(shape)), extents.times(list(other)))
    return len(shape) > 1 and len(other) > 1 and shape[-1] == other[-1] and alike


def _shape(node: Node) -> Any:
    return node.results[0][0] if node.results else node.shape
