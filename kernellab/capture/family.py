"""The family of a task, from its captured graph only: never from its name, its words or its numbers.

One vocabulary for the documents of known designs, for examples, for reports and for retrieval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from kernellab.capture.graph import LOOP, Body, Extent, Graph, Node
from kernellab.operations.aten import POINTWISE, Role, role_of


class Family(str, Enum):
    """The main kind of work of a task. NONE: no family whose known designs would help."""

    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    MATMUL = "matmul"
    SCAN = "scan"
    ORDER = "order"
    LOSS = "loss"
    INDEXING = "indexing"
    SOFTMAX = "softmax"
    NORMALISATION = "normalisation"
    POOLING = "pooling"
    REDUCTION = "reduction"
    MOVEMENT = "movement"
    POINTWISE = "pointwise"
    NONE = ""


#: operations outside all families that dominate the cost of a task, so that no known design fits
_FOREIGN = (Role.RESAMPLE, Role.SPECTRUM, Role.LINALG, Role.DYNAMIC, Role.ALGORITHM, Role.RECURRENT)
#: operations that reduce many values to few
_SUMS = (Role.REDUCE, Role.PLACE)
#: number of steps of an unrolled recurrence: fewer are a sum of a few terms
_STEPS = 4
#: operations of a step that is linear in the previous step's values
_LINEAR = frozenset(("add", "sub", "rsub", "mul", "neg", "addcmul", "lerp"))


@dataclass(frozen=True)
class _Look:
    """A graph with the queries that the rules need."""

    graph: Graph
    nodes: Sequence[Node]
    words: Sequence[str]
    shapes: Mapping[str, tuple[Extent, ...]]

    def has(self, *roles: Role) -> bool:
        """Return whether an operation has one of ``roles``."""
        return any(role_of(word) in roles for word in self.words)

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def before(self, node: Node) -> set[str]:
        """Return the names of all values that ``node`` is computed from."""
        nodes: set[str] = set()
        open_ = [ref.name for ref in node.refs()]
        by_name = self.by_name
        while open_:
            name = open_.pop()
            if name not in nodes:
                nodes.add(name)
                open_ += [ref.name for ref in by_name[name].refs()] if name in by_name else []
        return nodes

    def made_of(self, names: Set[str]) -> set[str]:
        """Return the names of the nodes that are computed from one of ``names``, in one pass over the ordered nodes."""
        derived: set[str] = set()
        for node in self.nodes:
            if any(ref.name in names or ref.name in derived for ref in node.refs()):
                derived.add(node.name)
        return derived


def family_of(graph: Graph) -> Family:
    """Return the family of a captured graph: the first rule that holds, ordered by the share of the cost, largest
    first."""
    nodes = graph.nodes
    shapes = {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in nodes}
    look = _Look(graph, nodes, [n.aten for n in nodes], shapes)
    return next((family for family, holds in _RULES if holds(look)), Family.POINTWISE)


def _attention(look: _Look) -> bool:
    """A softmax between two products, by name or written out."""
    if look.has(Role.ATTENTION):
        return True
    products = {node.name for node in look.nodes if _is_product(look, node)}
    # an exponential not computed from a product, such as a decay, is not part of a softmax of scores
    scores = look.made_of(products)
    softmaxes = {n.name for n in look.nodes if role_of(n.aten) is Role.SOFTMAX and n.aten != "logsumexp"} & scores
    if products & look.made_of(softmaxes):
        return True
    for node in look.nodes:
        if node.aten in ("exp", "exp2") and node.name in scores:
            after = look.made_of({node.name})
            if products & after and any(n.aten == "sum" and n.name in after for n in look.nodes):
                return True
    return False


def _is_product(look: _Look, node: Node) -> bool:
    word = node.aten
    return role_of(word) is Role.PRODUCT or (word in ("sum", "mean") and _sums_a_product(look, node))


def _sums_a_product(look: _Look, node: Node) -> bool:
    """Return whether it is the sum of the product of two different values, one broadcast against the other."""
    source = look.by_name.get(next((ref.name for ref in node.refs()), ""))
    if source is None or source.aten != "mul":
        return False
    if any(_is_mask(look, ref.name) for ref in source.refs()):
        return False  # a sum of masked values
    operands = [look.shapes.get(ref.name, ()) for ref in source.refs()]
    names = {ref.name for ref in source.refs()}
    if len(operands) != 2 or len(names) != 2 or not all(operands):
        return False
    return any(_spreads(shape, source.shape) for shape in operands) and all(len(shape) > 0 for shape in operands)


def _is_mask(look: _Look, name: str) -> bool:
    """Return whether a value is computed from bools only by casts and changes of shape."""
    by_name = look.by_name
    bools = {i.name for i in look.graph.inputs if i.dtype == "bool"}
    while name in by_name and by_name[name].dtype != "bool":
        node = by_name[name]
        if role_of(node.aten) in POINTWISE and role_of(node.aten) is not Role.CAST:
            return False
        refs = [ref.name for ref in node.refs()]
        if len(refs) != 1:
            return False
        name = refs[0]
    return name in bools or name in by_name


def _spreads(shape: tuple[Extent, ...], to: tuple[Extent, ...]) -> bool:
    """Return whether a value of ``shape`` is repeated over an axis of ``to`` that is longer than one."""
    padded = (1,) * (len(to) - len(shape)) + shape
    return any(have == 1 and want != 1 for have, want in zip(padded, to, strict=True))


def _matmul(look: _Look) -> bool:
    return any(_is_product(look, node) for node in look.nodes)


def _scan(look: _Look) -> bool:
    scans = [n for n in look.nodes if role_of(n.aten) is Role.SCAN]
    return any(not _of_places(look, node) for node in scans) or _recurrence(look) or _loop(look)


def _of_places(look: _Look, node: Node) -> bool:
    """Return whether a scan of integers only determines where elements are read or added."""
    sources = look.before(node)
    floats = any(i.name in sources and "int" not in i.dtype and i.dtype != "bool" for i in look.graph.inputs)
    moves = [n for n in look.nodes if role_of(n.aten) in (Role.GATHER, Role.SCATTER)]
    return not floats and any(node.name in look.before(move) for move in moves)


def _recurrence(look: _Look, linear: bool = True) -> bool:
    """Return whether a loop over one input's slices is unrolled, each step computed from the previous one.

    If ``linear``, only by sums and products: no other recurrence is an associative scan.
    """
    slices: dict[str, list[Node]] = {}
    for node, word in zip(look.nodes, look.words, strict=True):
        if role_of(word) is Role.PART:
            slices.setdefault(next(ref.name for ref in node.refs()), []).append(node)
    if max(map(len, slices.values()), default=0) < _STEPS:
        return False
    #: by node: the number of steps on the longest path to it, and the operations on that path
    ways: dict[str, tuple[int, frozenset[str]]] = {}
    start = (0, frozenset[str]())
    for node in look.nodes:
        depth, words = max((ways.get(ref.name, start) for ref in node.refs()), key=lambda way: way[0], default=start)
        works = role_of(node.aten) in POINTWISE
        own_words = {node.aten} if works or role_of(node.aten) in _SUMS else set[str]()
        ways[node.name] = depth + bool(works), words | own_words
    longest, words = max(ways.values(), key=lambda way: way[0], default=start)
    return longest >= max(map(len, slices.values())) and (words <= _LINEAR) is linear


def _loop(look: _Look, linear: bool = True) -> bool:
    """Return whether there is a loop over a Dim; if ``linear``, only sums and products compute the values passed on."""
    bodies: list[Body] = [node.keyword("body") for node in look.nodes if node.op == LOOP]
    return any((_carried_by(body) <= _LINEAR) is linear for body in bodies if body.before)


def _carried_by(body: Body) -> set[str]:
    """Return the operations on the path from the values that a step reads to those it passes on."""
    reached, words = set(body.before), dict[str, set[str]]()
    for node in body.nodes:
        if any(ref.name in reached for ref in node.refs()):
            reached.add(node.name)
            works = {node.aten} if role_of(node.aten) in POINTWISE or role_of(node.aten) in _SUMS else set[str]()
            words[node.name] = works.union(*(words.get(ref.name, set()) for ref in node.refs()))
    return set[str]().union(*(words.get(ref.name, set()) for ref in body.after))


def _loss(look: _Look) -> bool:
    """A loss by name, or a single number computed from two or more tensors."""
    if look.has(Role.LOSS):
        return True
    outputs = [look.shapes.get(ref.name, ()) for ref in look.graph.outputs]
    tensors = [i for i in look.graph.inputs if i.shape and i.name not in look.graph.constants]
    return len(outputs) == 1 and all(e == 1 for e in outputs[0]) and len(tensors) >= 2 and look.has(*_SUMS)


def _indexing(look: _Look) -> bool:
    """Return whether elements are selected by an index that is an argument or is computed from one."""
    argument_names = {i.name for i in look.graph.inputs if i.name not in look.graph.constants}
    whole = look.made_of({i.name for i in look.graph.inputs if "int" in i.dtype or i.dtype == "bool"})
    for node, word in zip(look.nodes, look.words, strict=True):
        if role_of(word) in (Role.GATHER, Role.SCATTER) and node.name in whole:
            return True
        index_names = [ref.name for ref in node.refs()][1:] if role_of(word) is Role.GATHER else []
        if any(argument_names & {name, *_made_of(look, name)} for name in index_names):
            return True
    return False


def _softmax(look: _Look) -> bool:
    """A softmax or a log of a sum of exponentials, by name or written out."""
    if look.has(Role.SOFTMAX):
        return True
    after = look.made_of({n.name for n in look.nodes if n.aten in ("exp", "exp2")})
    return any(n.aten == "sum" and n.name in after for n in look.nodes)


def _normalisation(look: _Look) -> bool:
    """A norm by name, or a reduction whose results are applied to the values that they were computed from. With a
    single result for a whole tensor no row fits on a chip, and two passes are the best design."""
    if look.has(Role.NORM):
        return True
    reduced = [n for n in look.nodes if role_of(n.aten) is Role.REDUCE and _is_of_rows(look, n)]
    for node in reduced:
        sources = look.before(node)
        for after in look.nodes:
            if after.aten not in ("div", "mul", "sub"):
                continue
            refs = [ref.name for ref in after.refs()]
            through = [name for name in refs if name == node.name or node.name in _made_of(look, name)]
            unreduced = [name for name in refs if name in sources and name not in through]
            if through and unreduced and len(look.shapes.get(unreduced[0], ())) >= 1 and after.shape != node.shape:
                return True
    return False


def _is_of_rows(look: _Look, node: Node) -> bool:
    """Return whether a reduction leaves more than one number, or a single number for a single row."""
    extents = [e for ref in node.refs() for e in look.shapes.get(ref.name, ()) if e != 1]
    return any(e != 1 for e in node.shape) or (bool(node.shape) and len(extents) < 2)


def _made_of(look: _Look, name: str) -> set[str]:
    node = look.by_name.get(name)
    return look.before(node) if node is not None else set()


def _pairwise(look: _Look) -> bool:
    """Return whether a reduction combines each element of one value with each of another. Its arithmetic exceeds its
    memory traffic, such as for distances to a table, and it contains no product."""
    for node in look.nodes:
        operands = [look.shapes.get(ref.name, ()) for ref in node.refs()]
        if role_of(node.aten) not in POINTWISE or len(operands) != 2 or len({ref.name for ref in node.refs()}) != 2:
            continue
        spread = all(shape and _spreads(shape, node.shape) for shape in operands)
        after = look.made_of({node.name}) if spread else set()
        if any(role_of(n.aten) in _SUMS and n.name in after for n in look.nodes):
            return True
    return False


def traits_of(graph: Graph) -> frozenset[str]:
    """Return the properties of a task that sections of its family's document cover: ``scatter``, ``order``,
    ``triangle``, ``strided-reduction`` (over an axis other than the last)."""
    roles = {role_of(node.aten) for node in graph.nodes}
    shapes = {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in graph.nodes}
    traits = {"scatter"} if Role.SCATTER in roles else set[str]()
    traits |= {"order"} if Role.ORDER in roles else set[str]()
    traits |= {"triangle"} if {"tril", "triu"} & {node.aten for node in graph.nodes} else set[str]()
    for node in graph.nodes:
        if role_of(node.aten) in _SUMS and any(_keeps_last(shapes.get(ref.name, ()), node) for ref in node.refs()):
            traits.add("strided-reduction")
    return frozenset(traits)


def _keeps_last(operand: tuple[Extent, ...], node: Node) -> bool:
    """Return whether a reduction specifies its axes, and its operand's last axis is not among them."""
    axes = next((a for a in node.args[1:2] if isinstance(a, (int, list, tuple))), node.keyword("dim") or ())
    axis_numbers = [n for n in ([axes] if isinstance(axes, int) else axes) if isinstance(n, int)]
    return bool(operand and axis_numbers) and len(operand) - 1 not in {n % len(operand) for n in axis_numbers}


def _movement(look: _Look) -> bool:
    return look.has(Role.TURN, Role.MOVE) and not look.has(Role.FUNCTION)


_RULES: tuple[tuple[Family, Callable[[_Look], bool]], ...] = (
    (Family.ATTENTION, _attention),
    (Family.CONVOLUTION, lambda look: look.has(Role.CONVOLUTION)),
    (Family.NONE, lambda look: look.has(*_FOREIGN)),
    (Family.MATMUL, _matmul),
    (Family.SCAN, _scan),
    (Family.NONE, lambda look: _recurrence(look, linear=False) or _loop(look, linear=False)),
    (Family.ORDER, lambda look: look.has(Role.ORDER)),
    (Family.NONE, _pairwise),
    (Family.LOSS, _loss),
    (Family.INDEXING, _indexing),
    (Family.SOFTMAX, _softmax),
    (Family.NORMALISATION, _normalisation),
    (Family.POOLING, lambda look: look.has(Role.POOL)),
    (Family.REDUCTION, lambda look: look.has(*_SUMS)),
    (Family.MOVEMENT, _movement),
)

__all__ = ["Family", "family_of", "traits_of"]
